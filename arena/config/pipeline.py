"""Pipelines: the list `stages` in an experiment's file, read into stages with their settings.

    stages:
      - play: {iterations: 5}          # a kind, with its settings
      - name: rl                       # its name, by default the kind
        play: {iterations: 20}

All other top-level settings are shared by the stages (`arena.config.staging`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from pydantic import TypeAdapter, ValidationError

from agents import strict_yaml
from arena.config.experiment import Experiment
from arena.config.layers import explain, merge, merge_layers
from arena.config.sources import Layer, require_mapping
from arena.config.study import StudySpec
from arena.errors import ConfigError
from arena.parts.part_config import Kinds, accepts_any_setting, part, settings_model
from arena.parts.paths import anchor_paths
from arena.parts.spec import Name, Seed, Spec
from arena.stages import PIPELINE_STAGE, PIPELINE_STAGES
from arena.store.files import CONFIG, STAGES
from arena.store.stages import MAX_STAGES
from games.names import nearest

NAME, OVERLAY = "name", "with"
"""Keys of a stage beside its kind: its name, and settings of the experiment that the kind makes."""
_NAME: TypeAdapter[str] = TypeAdapter(Name)
Resolve = Callable[[str, str], str]
"""Function of a policy's name and model that returns the model's final name."""


class Head(Spec):
    """Settings of a pipeline as a whole."""

    name: Name
    seed: Seed = 0
    study: StudySpec | None = None


@dataclass(frozen=True, kw_only=True)
class StageSpec:
    """Uncomposed stage: name, kind, and layers of settings of which later ones override earlier ones."""

    number: int
    """Position, from 1."""
    name: str
    kind: str
    settings: tuple[Layer, ...]
    """The kind's own settings."""
    overlay: tuple[Layer, ...]
    """Settings under `with`, over those of the experiment that the kind makes."""

    def data(self) -> dict[str, Any]:
        """Return the kind's settings as plain values, not validated."""
        if accepts_any_setting(PIPELINE_STAGE, self.kind):
            return merge_layers(self.settings)
        data: dict[str, Any] = {}
        for layer in self.settings:
            data = merge(data, layer.data, settings_model(PIPELINE_STAGE, self.kind))
        return data


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Pipeline: its stages and the settings that they share, as layers of which later ones override earlier ones."""

    name: str
    seed: int
    """Seed from which those of the stages derive."""
    study: StudySpec | None
    """Study of a claim about the pipeline, if any."""
    shared: tuple[Layer, ...]
    stages: tuple[StageSpec, ...]

    def to_plain(self, transform: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict) -> dict[str, Any]:
        """Return the pipeline as plain values, which `read_pipeline` reads back.

        `transform` is applied to the shared settings and to the experiment settings of each stage.
        """
        stages = []
        for spec in self.stages:
            settings = Kinds(PIPELINE_STAGE).anchor_value({spec.kind: spec.data()})
            if accepts_any_setting(PIPELINE_STAGE, spec.kind):
                settings = {kind: transform(data) for kind, data in settings.items()}
            overlay = {OVERLAY: transform(merge_layers(spec.overlay))} if spec.overlay else {}
            stages.append({NAME: spec.name, **settings, **overlay})
        study = {} if self.study is None else {"study": self.study.model_dump(mode="json")}
        return {**transform(merge_layers(self.shared)), **study, STAGES: stages}

    def with_changes(self, changed: Mapping[str, Any], resolve: Resolve = lambda name, model: model) -> "Pipeline":
        """Return the pipeline with absolute paths, final names of models, and `changed` shared settings."""
        data = self.to_plain(lambda settings: _with_models(anchor_paths(settings, Experiment), resolve))
        return read_pipeline([Layer(CONFIG, "", merge(data, changed))])

    def to_yaml(self) -> str:
        """Return the pipeline as YAML, which `read_pipeline` reads back.

        Raises ConfigError for values that YAML cannot hold.
        """
        try:
            return strict_yaml.dump(self.to_plain(), CONFIG)
        except strict_yaml.YamlError as error:
            raise ConfigError(str(error)) from None


def read_pipeline(layers: Sequence[Layer]) -> Pipeline:
    """Read a pipeline from layers of settings, without composing its stages' experiments.

    The last list of stages replaces earlier ones. Later layers can change settings of its stages by name: `--set
    stages.rl.play.iterations=5`. Raises ConfigError, with source and line, for malformed stages.
    """
    for layer in layers:
        require_mapping(layer)
    listing = next((n for n in reversed(range(len(layers))) if isinstance(layers[n].data.get(STAGES), list)), None)
    if listing is None:
        first = next(layer for layer in layers if STAGES in layer.data)
        raise locate_error(
            first, (STAGES,), "a list of stages belongs here, such as `stages: [{play: {iterations: 5}}]`"
        )
    stages = _read_stages(layers[listing])
    for layer in layers[listing + 1 :]:
        stages = _override_stages(stages, layer)
    top_layers = [replace(layer, data={k: v for k, v in layer.data.items() if k != STAGES}) for layer in layers]
    top_settings = merge_layers(top_layers)
    try:
        head = Head.model_validate({name: top_settings[name] for name in Head.model_fields if name in top_settings})
    except ValidationError as error:
        raise ConfigError(explain(error, top_layers, Head)) from None
    shared = [replace(layer, data={k: v for k, v in layer.data.items() if k != "study"}) for layer in top_layers]
    return Pipeline(**dict(head), shared=tuple(shared), stages=tuple(stages))


def count_equal_stages(first: Mapping[str, Any], second: Mapping[str, Any]) -> int:
    """Return the number of leading stages that two pipelines share, by their plain settings. `study` may differ."""
    others = (STAGES, "study")
    if any(first.get(key) != second.get(key) for key in first.keys() | second.keys() if key not in others):
        return 0
    pairs = zip(first[STAGES], second[STAGES], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def locate_error(layer: Layer, path: Sequence[str | int], problem: str) -> ConfigError:
    """Return an error about the field at a path in the layer, in one line with source and line."""
    return ConfigError(strict_yaml.format_problem(layer.text, layer.source, (*layer.at, *path), problem))


def _read_stages(layer: Layer) -> list[StageSpec]:
    """Read a list of stages. Raises ConfigError for a malformed stage, or two with the same name."""
    entries = layer.data[STAGES]
    if not 1 <= len(entries) <= MAX_STAGES:
        raise locate_error(layer, (STAGES,), f"{len(entries)} stages: a pipeline has 1 to {MAX_STAGES}")
    stages: list[StageSpec] = []
    for n, entry in enumerate(entries):
        path = (STAGES, n)
        spec = _read_stage(layer, path, {entry: None} if isinstance(entry, str) else entry, n + 1)
        if spec.name in (other.name for other in stages):
            raise locate_error(layer, path, f"a second stage with the name '{spec.name}': give one another `name`")
        stages.append(spec)
    return stages


def _read_stage(layer: Layer, path: tuple[str, int], entry: Any, number: int) -> StageSpec:
    """Read one entry of the list of stages. Raises ConfigError for a malformed one."""
    if not isinstance(entry, Mapping):
        raise locate_error(layer, path, "a stage is its kind with settings, such as `play: {iterations: 5}`")
    kinds = [key for key in entry if key not in (NAME, OVERLAY)]
    if len(kinds) != 1:
        known = ", ".join(PIPELINE_STAGES)
        missing = f"the stage's kind is missing: one of {known}"
        raise locate_error(layer, path, f"one kind belongs here, not {' and '.join(kinds)}" if kinds else missing)
    kind = kinds[0]
    try:
        part(PIPELINE_STAGE, kind)
    except ValueError as error:
        near = nearest(kind, PIPELINE_STAGES) or f" (there are: {', '.join(PIPELINE_STAGES)})"
        unknown = f"unknown kind of stage '{strict_yaml.escape_line(kind, 80)}'{near}"
        raise locate_error(layer, (*path, kind), str(error) if ".py:" in kind else unknown) from None
    name = entry.get(NAME, kind.rpartition(":")[2])
    try:
        _NAME.validate_python(name)
    except ValidationError:
        rule = "use at most 64 lower-case letters, digits, - and _, first a letter or digit"
        problem = f"{strict_yaml.escape_line(repr(name), 80)} is not a valid name: {rule}"
        raise locate_error(layer, (*path, NAME), problem) from None
    empty = StageSpec(number=number, name=name, kind=kind, settings=(), overlay=())
    return _with_layers(empty, layer, path, {key: value for key, value in entry.items() if key != NAME})


def _override_stages(stages: Sequence[StageSpec], layer: Layer) -> list[StageSpec]:
    """Return the stages with a layer's overrides, which are by stage name. Raises ConfigError if it is malformed."""
    changed = layer.data.get(STAGES, {})
    if not isinstance(changed, Mapping):
        raise locate_error(
            layer, (STAGES,), "settings of stages by name belong here, such as stages.rl.play.iterations=5"
        )
    known = [spec.name for spec in stages]
    for name, entry in changed.items():
        if name not in known:
            raise locate_error(
                layer, (STAGES, name), f"no stage '{name}'{nearest(name, known)} (there are {', '.join(known)})"
            )
        kind = stages[known.index(name)].kind
        if not isinstance(entry, Mapping) or (unknown := [key for key in entry if key not in (kind, OVERLAY)]):
            problem = f"no {unknown[0]} here" if isinstance(entry, Mapping) else "settings belong here"
            raise locate_error(layer, (STAGES, name), f"{problem}: change the settings under {kind} or {OVERLAY}")
    return [
        _with_layers(spec, layer, (STAGES, spec.name), changed[spec.name]) if spec.name in changed else spec
        for spec in stages
    ]


def _with_layers(spec: StageSpec, layer: Layer, path: tuple[str | int, ...], entry: Mapping[str, Any]) -> StageSpec:
    """Return the stage with the entry's settings, under its kind and `with`, added as the highest layer."""
    added: dict[str, tuple[Layer, ...]] = {spec.kind: (), OVERLAY: ()}
    for key, value in entry.items():
        data = {} if value is None else value
        if not isinstance(data, Mapping):
            raise locate_error(layer, (*path, key), "a mapping of settings belongs here")
        added[key] = (Layer(layer.source, layer.text, data, (*layer.at, *path, key)),)
    if added[OVERLAY] and accepts_any_setting(PIPELINE_STAGE, spec.kind):
        raise locate_error(
            layer, (*path, OVERLAY), f"{spec.kind} takes these settings itself: write them under {spec.kind}"
        )
    return replace(spec, settings=spec.settings + added[spec.kind], overlay=spec.overlay + added[OVERLAY])


_MODELS = ("model", "reference")


def _with_models(data: Mapping[str, Any], resolve: Resolve) -> dict[str, Any]:
    """Return the settings with the final names of their policies' models."""
    policies = data.get("policies")
    if not isinstance(policies, Mapping):
        return dict(data)
    resolved = {
        name: {**spec, **{f: resolve(name, spec[f]) for f in _MODELS if isinstance(spec.get(f), str)}}
        if isinstance(spec, Mapping)
        else spec
        for name, spec in policies.items()
    }
    return {**data, "policies": resolved}
