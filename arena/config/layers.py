"""From settings to an experiment: a recipe, over which a file and `--set` lie; checked as a whole."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError

from agents import strict_yaml
from agents.names import nearest
from agents.players.spend import EndpointSpec
from arena.config.experiment import (
    CreditSpec,
    Experiment,
    LeagueSpec,
    LearnSpec,
    SeatSpec,
)
from arena.config.kinds import parts_of
from arena.config.parts import Kind, Kinds, given_by_critics, settings_model
from arena.config.presets import preset_in
from arena.config.schedules import Clock
from arena.errors import ConfigError


@dataclass(frozen=True)
class Layer:
    """One source of settings: where it comes from, its text, and what was read from it."""

    source: str
    text: str
    data: Any


def recipe_names() -> list[str]:
    """Experiments that come with the package."""
    return sorted(f.name[:-5] for f in files("arena.recipes").iterdir() if f.name.endswith(".yaml"))


def recipe_layer(name: str) -> Layer:
    """A built-in recipe by name."""
    if name not in recipe_names():
        raise ConfigError(f"unknown recipe '{name}'{nearest(name, recipe_names())} (arena list recipes)")
    return text_layer(f"recipe {name}", (files("arena.recipes") / f"{name}.yaml").read_text("utf-8"))


def file_layer(path: Path) -> Layer:
    """A user's own settings."""
    try:
        data = strict_yaml.read(path)
        return _checked(Layer(str(path), path.read_text("utf-8"), data))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except strict_yaml.YamlError as error:
        raise ConfigError(str(error)) from None


def _checked(layer: Layer) -> Layer:
    """The layer, or ConfigError where it is not of keys and values."""
    if not isinstance(layer.data, Mapping):
        raise ConfigError(f"{layer.source}:1: expected `key: value` lines, got {type(layer.data).__name__}")
    return layer


def text_layer(source: str, text: str) -> Layer:
    """Settings given as text."""
    try:
        return Layer(source, text, strict_yaml.load(text, source))
    except strict_yaml.YamlError as error:
        raise ConfigError(str(error)) from None


def game_options(assignments: Iterable[str]) -> dict[str, Any]:
    """A game's options from `A=B`, values read as YAML."""
    options: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, value = (part.strip() for part in assignment.partition("="))
        if not equals or not name.isidentifier():
            raise ConfigError(f"--option {assignment}: write A=B, such as --option illegal=end")
        options[name] = text_layer(f"--option {name}", value).data
    return options


def endpoint_specs(assignments: Iterable[str]) -> dict[str, EndpointSpec]:
    """Servers by name from `A=B`, "" for the one of `endpoint:MODEL`, and from `NAME.A=B`; values read as YAML."""
    given: dict[str, dict[str, Any]] = {}
    for assignment in assignments:
        place, equals, value = (part.strip() for part in assignment.partition("="))
        name, dot, setting = place.rpartition(".")
        if not equals or bool(dot) != bool(re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", name)):
            example = "--endpoint url=http://localhost:8000/v1, or --endpoint NAME.url=…"
            raise ConfigError(f"--endpoint {assignment}: write A=B, such as {example}")
        given.setdefault(name, {})[setting] = text_layer(f"--endpoint {place}", value).data
    servers = {}
    for name, settings in given.items():
        try:
            servers[name] = EndpointSpec.model_validate(settings)
        except ValidationError as error:
            raise ConfigError(strict_yaml.explain(error, "", f"--endpoint {name}".strip(), EndpointSpec)) from None
    return servers


def set_layer(assignment: str) -> Layer:
    """`a.b=c`: the value is read as YAML."""
    source = strict_yaml.one_line(f"--set {assignment}", 200)
    path, equals, value = assignment.partition("=")
    if not equals or not path.strip():
        raise ConfigError(f"{source}: write it as a.b=value, such as --set learn.lr=1e-5")
    data: Any = text_layer(source, value).data if value.strip() else ""
    for key in reversed(path.strip().split(".")):
        data = {key: data}
    return Layer(source, "", data)


def compose(layers: Iterable[Layer]) -> Experiment:
    """Lay the sources over each other, later over earlier, and check the whole."""
    stack = list(layers)
    merged: dict[str, Any] = {}
    for layer in stack:
        _checked(layer)
        # Several games replace one, and one several: they are two ways to say the same.
        lower = ("game", "seats") if "tables" in layer.data else ("tables",) if "game" in layer.data else ()
        merged = _over({key: value for key, value in merged.items() if key not in lower}, _written_out(layer))
    try:
        experiment = Experiment.model_validate(merged)
    except ValidationError as error:
        raise ConfigError(_explain(error, stack)) from None
    _check_tables(experiment)
    _check_adapters(experiment)
    _check_critic(experiment.credit)
    _check_groups(experiment)
    _check_branches(experiment)
    _check_pairs(experiment)
    _check_shown(experiment)
    if experiment.league:
        _check_league(experiment, experiment.league)
    return experiment


def _check_tables(experiment: Experiment) -> None:
    """Either one table or several, each with something to play."""
    matches, group = experiment.play.matches, experiment.play.group
    if matches % group:
        raise ConfigError(f"play.matches: {matches} is not a multiple of play.group, which is {group}: change one")
    if experiment.tables is None:
        for field in ("game", "seats"):
            if getattr(experiment, field) is None:
                raise ConfigError(f"{field}: missing: give `game` and `seats`, or `tables` for several games")
        return
    for field in ("game", "seats"):
        if getattr(experiment, field) is not None:
            raise ConfigError(f"{field}: stands beside `tables`: give one or the other (`{field}: null` takes it away)")
    counts = apportion(matches // group, [table.share for table in experiment.tables])
    if 0 in counts:
        raise ConfigError(
            f"tables[{counts.index(0)}].share: none of the {matches} matches of an iteration "
            "would be played there: raise it, or play.matches"
        )


def _check_adapters(experiment: Experiment) -> None:
    """An adapter that is asked for learns."""
    for name, policy in experiment.policies.items():
        if policy.adapter and not policy.train:
            raise ConfigError(f"policies.{name}.adapter: a new adapter of a frozen policy changes nothing: remove it")


def _check_critic(rule: CreditSpec) -> None:
    """Where a part needs values, the critic gives them."""
    by_critic = given_by_critics()
    values, given = frozenset().union(*by_critic.values()), by_critic[rule.critic.name] if rule.critic else frozenset()
    parts = [("estimator", rule.estimator), *(("stages", p) for p in rule.stages)]
    parts += [*(("select", p) for p in rule.select), *(("transforms", p) for p in rule.transforms)]
    for place, part in parts:
        needed = part.needs & values
        if needed - given:
            fitting = " or ".join(name for name, gives in by_critic.items() if needed <= gives)
            instead = f", not {rule.critic.name}" if rule.critic else ""
            raise ConfigError(f"credit.{place}: {part.name} needs credit.critic: {fitting}{instead}")


def _check_groups(experiment: Experiment) -> None:
    """Who compares matches of one deal has more than one of them: a group, or those that part from one match (ARPO)."""
    credit, alone = experiment.credit, experiment.play.group == 1 and not experiment.play.branch
    parts = (credit.estimator, *credit.stages, *credit.select)
    for part in (inner for one in parts for inner in (one, *one.parts)):
        if alone and "seed" in (part.whole().settings.get("by") or ()):
            raise ConfigError(
                f"credit: {part.name} compares matches of one deal, and each deal is played once: set play.group, such "
                f"as play.group=8, or give {part.name} another `by` than {', '.join(part.whole().settings['by'])}"
            )


def _check_branches(experiment: Experiment) -> None:
    """A match has one last turn, so one branch from it."""
    if experiment.play.branch_at == "last" and experiment.play.branch != 1:
        raise ConfigError(
            f"play.branch_at: last is one branch of each match: set play.branch to 1, not {experiment.play.branch}"
        )


def _check_pairs(experiment: Experiment) -> None:
    """A loss of two answers has pairs to compare, and its objective is theirs."""
    credit, learn = experiment.credit, experiment.learn
    of_pairs = "pairs" in learn.loss.needs
    if not of_pairs and "refuel" not in (part.name for part in (credit.estimator, *credit.estimator.parts)):
        return
    wanted = {"play.branch: 1": experiment.play.branch > 0}
    if of_pairs:
        wanted["credit.estimator: refuel"] = credit.estimator.name == "refuel"
        wanted["credit.transforms: []"] = not credit.transforms
        wanted["learn.aggregate: turn_mean"] = learn.aggregate.name == "turn_mean"
    if missing := [setting for setting, given in wanted.items() if not given]:
        where = f"learn.loss: {learn.loss.name}" if of_pairs else "credit.estimator: refuel"
        raise ConfigError(f"{where} compares two answers to the same words: set {' and '.join(missing)}")


def _check_shown(experiment: Experiment) -> None:
    """What is shown is to be imitated, never to be shunned."""
    if experiment.learn.shown is None:
        return
    for k in range(1, experiment.iterations + 1):
        weight: float = experiment.learn.shown.weight(Clock(k, experiment.iterations))
        if not 0 <= weight < math.inf:
            raise ConfigError(f"learn.shown.weight: {weight:g} in iteration {k}: it has to be 0 or more")


def _check_league(experiment: Experiment, league: LeagueSpec) -> None:
    """There is always somebody to meet, and a seat for them."""
    for k in range(1, experiment.iterations + 1):
        if not any(opponent.met_in(k) for opponent in league.opponents):
            raise ConfigError(
                f"league.opponents: nobody has a weight above 0 in iteration {k}: change weight, from, until"
            )
    for opponent in league.opponents:
        if opponent.policy and experiment.trained(opponent.policy):
            raise ConfigError(
                f"league.opponents: fixed opponent '{opponent.policy}' is a policy that is trained: "
                "name a brain or a policy with `train: false`, or use `play: past`"
            )
    if not any(sum(experiment.trained(s.policy) for s in t.seats.values()) > 1 for t in experiment.all_tables()):
        raise ConfigError(
            "league: its opponents take the seats of trained policies, and no game has two such seats "
            "(league: null plays without one)"
        )


def apportion(count: int, shares: Sequence[float]) -> list[int]:
    """How many of `count` each share gets, by largest remainder (Hamilton's method); ties go to the earlier."""
    quotas = [count * share / sum(shares) for share in shares]
    counts = [int(quota) for quota in quotas]
    by_remainder = sorted(range(len(shares)), key=lambda i: counts[i] - quotas[i])
    for i in by_remainder[: count - sum(counts)]:
        counts[i] += 1
    return counts


def _written_out(layer: Layer) -> Mapping[str, Any]:
    """The layer's settings, with what a preset stands for in place of its name, under what stands beside it."""
    if (preset := preset_in(layer.data, layer.source)) is None:
        return layer.data  # type: ignore[no-any-return]
    beside = {key: value for key, value in layer.data["learn"].items() if key != "loss"}
    return {**layer.data, "learn": _over(preset.learn, beside, LearnSpec)}


def _over(below: Mapping[str, Any], above: Mapping[str, Any], hint: Any = Experiment) -> dict[str, Any]:
    """One source over another, key by key; another part in a part's place takes it whole, settings and all."""
    merged = dict(below)
    for key, value in above.items():
        old, (is_part, inner) = merged.get(key), _place(hint, key)
        if isinstance(old, Mapping) and isinstance(value, Mapping) and not (is_part and old.keys() != value.keys()):
            merged[key] = _over(old, value, inner)
        else:
            merged[key] = value
    return merged


def _place(hint: Any, key: str) -> tuple[bool, Any]:
    """Of what stands under a key: whether it is one part, and the hint by which to read on inside it."""
    if isinstance(hint, Kinds):  # parts by name: what stands there are settings
        return False, settings_model(hint.name, key) if key in parts_of(hint.name) else None
    if get_origin(hint) is UnionType:  # `Model | None`
        hint = get_args(hint)[0]
    if get_origin(hint) is dict:
        hint = get_args(hint)[1]
        marks, inner = getattr(hint, "__metadata__", ()), hint
    else:
        field = getattr(hint, "model_fields", {}).get(key)
        marks, inner = (field.metadata, field.annotation) if field else ((), None)
    for mark in marks:
        if isinstance(mark, Kind | Kinds):
            return isinstance(mark, Kind), Kinds(mark.name)
    return False, inner


def _explain(error: ValidationError, stack: list[Layer]) -> str:
    """One line naming the source that the wrong field came from: the last layer that speaks of it."""
    worst = strict_yaml.gravest(error)
    path = tuple(worst["loc"])
    if worst["type"] == "missing" and (slip := _slip(path[:-1], stack)):
        raise ConfigError(slip)
    for depth in range(len(path), 0, -1):
        for layer in reversed(stack):
            if _has(layer.data, path[:depth]):
                return strict_yaml.explain(error, layer.text, layer.source, Experiment)
    return strict_yaml.explain(error, stack[-1].text, stack[-1].source, Experiment)


def _slip(path: tuple[str | int, ...], stack: list[Layer]) -> str:
    """What is wrong with a half-filled entry whose key looks like a neighbour's: `seats.opner`; "" if nothing does."""
    if not path or not isinstance(path[-1], str):
        return ""
    siblings = [key for layer in stack for key in _keys(layer.data, path[:-1]) if key != path[-1]]
    source = next((layer.source for layer in reversed(stack) if _has(layer.data, path)), "")
    near = nearest(path[-1], siblings)
    where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
    return strict_yaml.one_line(f"{source}: {where}: there is no '{path[-1]}'{near}") if near else ""


def _keys(data: Any, path: tuple[str | int, ...]) -> list[str]:
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
    """Give all trainable seats one policy named `shared`, or each role a policy of its own named after it."""
    trainable = {n: p for n, p in experiment.policies.items() if p.train}
    policies = {n: p for n, p in experiment.policies.items() if not p.train}
    tables = []
    for table in experiment.all_tables():
        seats = dict(table.seats)
        for seat, spec in table.seats.items():
            if spec.policy not in trainable:
                continue
            name = "shared" if mode == "shared" else _policy_name(spec.role)
            if name in experiment.policies and name not in trainable:
                raise ConfigError(f"policies.{name}: a frozen policy has the name that {seat} needs: rename it")
            if policies.setdefault(name, trainable[spec.policy]) != trainable[spec.policy]:
                raise ConfigError(
                    f"seats.{seat}: policy '{name}' would have to begin as two different ones: name them yourself"
                )
            seats[seat] = SeatSpec(role=spec.role, policy=name)
        tables.append(table.model_copy(update={"seats": seats}))
    return experiment.with_tables(tables).model_copy(update={"policies": policies})


def _policy_name(role: str) -> str:
    """A role's name, or its file's, as the name of a policy."""
    return re.sub(r"[^a-z0-9_-]", "-", Path(role).stem.lower()).lstrip("-_")


def to_yaml(experiment: Experiment) -> str:
    """The exact experiment, as `compose` reads it back."""
    import yaml

    return yaml.safe_dump(experiment.model_dump(mode="json", by_alias=True), sort_keys=False, allow_unicode=True)
