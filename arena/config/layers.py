"""Composition of an experiment from layers: a recipe, then a file, then `--set`; later layers win."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

from agents import nano, nano_vlm, strict_yaml
from agents.players.spend import EndpointSpec
from arena.config.experiment import Experiment, LearnSpec
from arena.config.kinds import with_hints
from arena.config.presets import find_preset
from arena.config.role_tools import with_role_tools
from arena.config.sources import Layer, require_mapping, text_layer
from arena.errors import ConfigError
from arena.parts.part_config import Kind, Kinds, settings_model
from arena.store.files import CONFIG, STAGES
from games.names import nearest


def parse_endpoints(assignments: Iterable[str]) -> dict[str, EndpointSpec]:
    """Parse `--endpoint` assignments into servers by name, values as YAML.

    `A=B` sets the server of `endpoint:MODEL`, whose name is ""; `NAME.A=B` sets a named one. Raises ConfigError for a
    malformed assignment or setting.
    """
    settings_by_server: dict[str, dict[str, Any]] = {}
    for assignment in assignments:
        key, equals, value = (part.strip() for part in assignment.partition("="))
        name, dot, setting = key.rpartition(".")
        if not equals or bool(dot) != bool(re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", name)):
            example = "--endpoint url=http://localhost:8000/v1, or --endpoint NAME.url=…"
            raise ConfigError(f"--endpoint {assignment}: write A=B, such as {example}")
        settings_by_server.setdefault(name, {})[setting] = text_layer(f"--endpoint {key}", value).data
    servers = {}
    for name, settings in settings_by_server.items():
        try:
            servers[name] = EndpointSpec.model_validate(settings)
        except ValidationError as error:
            raise ConfigError(strict_yaml.explain(error, "", f"--endpoint {name}".strip(), EndpointSpec)) from None
    return servers


def compose(layers: Iterable[Layer]) -> Experiment:
    """Merge the layers, later over earlier, and return the validated experiment.

    Expands presets. Nano models get the learning rate `NANO_LR` unless a layer sets another. Raises ConfigError, with
    source and line, for invalid settings or a pipeline.
    """
    stack = list(layers)
    settings = merge_layers(stack)
    if STAGES in settings:
        source = next(layer.source for layer in reversed(stack) if STAGES in layer.data)
        expected = "a single experiment is needed, not a pipeline (arena run selfplay --config runs one)"
        raise ConfigError(f"{source}: it has `stages`, but {expected}")
    try:
        return with_role_tools(Experiment.model_validate(merge(find_nano_defaults(settings), settings)))
    except ValidationError as error:
        raise ConfigError(explain(error, stack)) from None


def merge_layers(layers: Iterable[Layer]) -> dict[str, Any]:
    """Merge the settings of all layers, later over earlier, and expand presets. Does not validate them.

    Raises ConfigError for a layer that is not a mapping.
    """
    settings: dict[str, Any] = {}
    for layer in layers:
        require_mapping(layer)
        # `tables` replaces `game` and `seats`, and vice versa.
        lower = ("game", "seats") if "tables" in layer.data else ("tables",) if "game" in layer.data else ()
        settings = merge({key: value for key, value in settings.items() if key not in lower}, _expand_preset(layer))
    return settings


NANO_LR = 5e-4
"""Default learning rate of nano models. At a real model's rate their random weights learn nothing in a short run."""


def find_nano_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the default `learn.lr: NANO_LR` if all policies are nano models; else {}. All layers override it."""
    policies = settings.get("policies")
    specs = list(policies.values()) if isinstance(policies, Mapping) else []
    models = [policy.get("model") if isinstance(policy, Mapping) else None for policy in specs]
    all_nano = bool(models) and all(isinstance(model, str) and _is_nano(model) for model in models)
    return {"learn": {"lr": NANO_LR}} if all_nano and isinstance(settings.get("learn", {}), Mapping) else {}


def _is_nano(model: str) -> bool:
    return nano.parse_name(model) is not None or nano_vlm.parse_seed(model) is not None


def _expand_preset(layer: Layer) -> Mapping[str, Any]:
    """Return the layer's settings with a preset in `learn.loss` expanded. The layer's other settings win."""
    if (preset := find_preset(layer.data, layer.source)) is None:
        return layer.data  # type: ignore[no-any-return]
    others = {key: value for key, value in layer.data["learn"].items() if key != "loss"}
    return {**layer.data, "learn": merge(preset.learn, others, LearnSpec)}


def merge(below: Mapping[str, Any], above: Mapping[str, Any], hint: Any = Experiment) -> dict[str, Any]:
    """Merge two mappings of settings, which have the type `hint`, key by key; `above` wins.

    A part with another name replaces the old part and all its settings.
    """
    merged = dict(below)
    for key, value in above.items():
        old, (is_part, inner) = merged.get(key), _find_inner_hint(hint, key)
        if isinstance(old, Mapping) and isinstance(value, Mapping) and not (is_part and old.keys() != value.keys()):
            merged[key] = merge(old, value, inner)
        else:
            merged[key] = value
    return merged


def _find_inner_hint(hint: Any, key: str) -> tuple[bool, Any]:
    """Return True if the value under `key` is a single part, and the type of the settings in it; None if unknown.

    `hint` is the type of the mapping that has the key.
    """
    if isinstance(hint, Kinds):  # several parts by name: each value is a part's settings
        return False, settings_model(hint.kind, key) if key in hint.kind.table else None
    if get_origin(hint) is UnionType:  # `Model | None`
        hint = get_args(hint)[0]
    if get_origin(hint) is dict:
        hint = get_args(hint)[1]
        marks, inner = getattr(hint, "__metadata__", ()), hint
    else:
        field = getattr(hint, "model_fields", {}).get(key)
        marks, inner = (field.metadata, field.annotation) if field else ((), None)
    for mark in marks:
        if isinstance(mark, Kind):
            return True, Kinds(mark)
        if isinstance(mark, Kinds):
            return False, mark
    return False, inner


def explain(error: ValidationError, stack: Sequence[Layer], model: type[BaseModel] = Experiment) -> str:
    """Return the error in one line, with the source and line of the last layer that sets the invalid field.

    `model` is the validated class. Raises ConfigError instead for an entry with a misspelt key.
    """
    error = with_hints(error)
    worst = strict_yaml.select_error(error)
    path = tuple(worst["loc"])
    if worst["type"] == "missing" and (slip := _explain_misspelt_entry(path[:-1], stack)):
        raise ConfigError(slip)
    found = (layer for n in range(len(path), 0, -1) for layer in reversed(stack) if _has(layer.data, path[:n]))
    layer = next(found, stack[-1])
    return strict_yaml.explain(error, layer.text, layer.source, model, layer.at)


def _explain_misspelt_entry(path: tuple[str | int, ...], stack: Sequence[Layer]) -> str:
    """Return an error message if the incomplete entry at `path` has a misspelt key, such as `seats.opner`; else ""."""
    if not path or not isinstance(path[-1], str):
        return ""
    siblings = [key for layer in stack for key in _keys_at(layer.data, path[:-1]) if key != path[-1]]
    source = next((layer.source for layer in reversed(stack) if _has(layer.data, path)), "")
    near = nearest(path[-1], siblings)
    field_name = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
    return strict_yaml.escape_line(f"{source}: {field_name}: there is no '{path[-1]}'{near}") if near else ""


def _keys_at(data: Any, path: tuple[str | int, ...]) -> list[str]:
    for key in path:
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            return []
    return list(data) if isinstance(data, Mapping) else []


def _has(data: Any, path: tuple[str | int, ...]) -> bool:
    for key in path:
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def with_policies(experiment: Experiment, mode: Literal["shared", "separate"]) -> Experiment:
    """Return the experiment with one policy, `shared`, at all trainable seats, or with one per role and named after it.

    Raises ConfigError if a frozen policy has such a name, or if policies of different settings would get one name.
    """
    trainable = {n: p for n, p in experiment.policies.items() if p.train}
    policies = {n: p for n, p in experiment.policies.items() if not p.train}
    tables = []
    for table in experiment.all_tables():
        seats = dict(table.seats)
        for seat, spec in table.seats.items():
            if spec.policy not in trainable:
                continue
            name = "shared" if mode == "shared" else _make_policy_name(spec.role)
            if name in experiment.policies and name not in trainable:
                raise ConfigError(f"policies.{name}: a frozen policy has the name that {seat} needs: rename it")
            if policies.setdefault(name, trainable[spec.policy]) != trainable[spec.policy]:
                raise ConfigError(
                    f"seats.{seat}: policy '{name}' would have two different initial settings: "
                    "name the policies in the config"
                )
            seats[seat] = spec.model_copy(update={"policy": name})
        tables.append(table.model_copy(update={"seats": seats}))
    return experiment.with_tables(tables).model_copy(update={"policies": policies})


def _make_policy_name(role: str) -> str:
    """Turn the name of a role or of its file into a policy's name."""
    return re.sub(r"[^a-z0-9_-]", "-", Path(role).stem.lower()).lstrip("-_")


def to_yaml(experiment: Experiment) -> str:
    """Return the experiment as YAML, which `compose` reads back exactly. Raises ConfigError if that is not possible."""
    try:
        return strict_yaml.dump(experiment.model_dump(mode="json", by_alias=True), CONFIG)
    except strict_yaml.YamlError as error:
        raise ConfigError(str(error)) from None
