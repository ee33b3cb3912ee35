"""The experiment: strict models, read from a recipe over which a file and `--set` lie."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents import strict_yaml
from agents.names import nearest

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
Positive = Annotated[int, Field(ge=1)]


class ConfigError(Exception):
    """An experiment that cannot be run; the message is one line that says what, where and how to fix it."""


class Spec(BaseModel):
    """Base of all parts of an experiment: unknown keys and wrong types are errors."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True)


class GameSpec(Spec):
    """Which game, with which of its options."""

    name: str
    options: dict[str, Any] = {}


class SeatSpec(Spec):
    """Who sits at a seat."""

    role: str
    """A built-in role's name, one from the roles folder, or a path ending in .yaml."""
    policy: str
    """A name from `policies`, or a brain such as `random`."""


class ImitateSpec(Spec):
    """A warm start: learn to speak like brains before learning from reward."""

    brains: list[str]
    """Names of brains; every match seats two of them."""
    matches: Positive = 256
    epochs: Positive = 4
    minibatches: Positive = 8
    lr: Annotated[float, Field(gt=0)] = 1e-3


class PolicySpec(Spec):
    """Named weights."""

    model: str
    """`smollm2-135m-instruct`, `nano`, a local folder, or a Hugging Face id."""
    train: bool = True
    imitate: ImitateSpec | None = None


class LimitsSpec(Spec):
    """What one match may use before it is called off and recorded as failed; null is no limit."""

    turns: Positive | None = 100
    tokens: Positive | None = None
    """Sampled by all seats together."""
    seconds: Annotated[float, Field(gt=0)] | None = 600.0
    turn_seconds: Annotated[float, Field(gt=0)] | None = 120.0


class PlaySpec(Spec):
    """How the matches of an iteration are played."""

    matches: Positive = 16
    in_flight: Positive = 64
    """How many matches run at once."""
    attempts: Positive = 3
    """How often a failing match is tried before the run stops."""
    limits: LimitsSpec = LimitsSpec()


class StageSpec(Spec):
    """One reward stage and its parameters."""

    stage: str
    parameters: dict[str, float] = {}


class CreditSpec(Spec):
    """From rewards to advantages."""

    estimator: str = "mars"
    gamma: Annotated[float, Field(ge=0, le=1)] = 1.0
    stages: list[StageSpec] = []
    weights: dict[str, float] = {}
    """Weight of each named reward; 1 if not given."""
    normalise_by: list[Literal["game", "role", "policy", "seat"]] = ["game", "role", "policy"]
    normalise_std: bool = False


class LearnSpec(Spec):
    """One update per iteration and policy."""

    loss: str = "ppo_clip"
    lr: Annotated[float, Field(ge=0)] = 2e-5
    betas: Annotated[tuple[float, float], Field(strict=False)] = (0.9, 0.95)
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    epochs: Positive = 1
    minibatches: Positive = 1
    """Optimiser steps per epoch."""
    token_budget: Positive = 2048
    """Padded tokens per forward pass."""
    clip_low: Annotated[float, Field(ge=0, lt=1)] = 0.2
    clip_high: Annotated[float, Field(ge=0)] = 0.2
    kl: Annotated[float, Field(ge=0)] = 0.01
    """Weight of the KL to the policy's own beginning; 0 keeps no reference."""
    entropy: float = 0.0
    grad_clip: Annotated[float, Field(ge=0)] = 1.0
    zero_stage: Literal[0, 1, 2, 3] = 0
    gate_tolerance: Annotated[float, Field(gt=0)] = 0.05
    """Mean |sampler - trainer| log-probability at which the run stops."""


class EngineSpec(Spec):
    """What serves tokens."""

    max_batch: Positive = 256
    cache_mb: Positive = 2048
    """Attention caches kept between turns, per policy."""


class CheckpointSpec(Spec):
    """How often the run is committed, and how many commits are kept."""

    every: Positive = 1
    keep: Positive = 2


class Experiment(Spec):
    """One run, whole."""

    name: Name
    seed: Annotated[int, Field(ge=0)] = 0
    iterations: Positive
    precision: Literal["fp32", "bf16"] = "fp32"
    """Of the matrix products in play and learning; weights and optimiser are float32 always."""
    threads: Positive | None = None
    """CPU threads of torch; null leaves torch's own choice."""
    game: GameSpec
    roles: str | None = None
    """A folder of role files, searched after the built-in ones."""
    policies: dict[Name, PolicySpec]
    seats: dict[str, SeatSpec]
    play: PlaySpec = PlaySpec()
    credit: CreditSpec = CreditSpec()
    learn: LearnSpec = LearnSpec()
    engine: EngineSpec = EngineSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()


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
        return Layer(str(path), path.read_text("utf-8"), data)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except strict_yaml.YamlError as error:
        raise ConfigError(str(error)) from None


def text_layer(source: str, text: str) -> Layer:
    """Settings given as text."""
    try:
        return Layer(source, text, strict_yaml.load(text, source))
    except strict_yaml.YamlError as error:
        raise ConfigError(str(error)) from None


def set_layer(assignment: str) -> Layer:
    """`a.b=c`: the value is read as YAML."""
    path, equals, value = assignment.partition("=")
    if not equals or not path.strip():
        raise ConfigError(f"--set {assignment}: write it as a.b=value, such as --set learn.lr=1e-5")
    data: Any = text_layer(f"--set {assignment}", value).data if value.strip() else ""
    for key in reversed(path.strip().split(".")):
        data = {key: data}
    return Layer(f"--set {assignment}", "", data)


def compose(layers: Iterable[Layer]) -> Experiment:
    """Lay the sources over each other, later over earlier, and check the whole."""
    stack = list(layers)
    merged: dict[str, Any] = {}
    for layer in stack:
        if not isinstance(layer.data, Mapping):
            raise ConfigError(f"{layer.source}:1: expected `key: value` lines, got {type(layer.data).__name__}")
        merged = _over(merged, layer.data)
    try:
        return Experiment.model_validate(merged)
    except ValidationError as error:
        raise ConfigError(_explain(error, stack)) from None


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _over(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def _explain(error: ValidationError, stack: list[Layer]) -> str:
    """One line naming the source that the wrong field came from: the last layer that speaks of it."""
    path = tuple(strict_yaml.gravest(error)["loc"])
    for depth in range(len(path), 0, -1):
        for layer in reversed(stack):
            if _has(layer.data, path[:depth]):
                return strict_yaml.explain(error, layer.text, layer.source, Experiment)
    return strict_yaml.explain(error, stack[-1].text, stack[-1].source, Experiment)


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
    seats = dict(experiment.seats)
    for seat, spec in experiment.seats.items():
        if spec.policy not in trainable:
            continue
        name = "shared" if mode == "shared" else re.sub(r"[^a-z0-9_-]", "-", Path(spec.role).stem.lower()).lstrip("-_")
        if name in experiment.policies and name not in trainable:
            raise ConfigError(f"policies.{name}: a frozen policy has the name that {seat} needs: rename it")
        if policies.setdefault(name, trainable[spec.policy]) != trainable[spec.policy]:
            raise ConfigError(
                f"seats.{seat}: policy '{name}' would have to begin as two different ones: name them yourself"
            )
        seats[seat] = SeatSpec(role=spec.role, policy=name)
    return experiment.model_copy(update={"policies": policies, "seats": seats})


def to_yaml(experiment: Experiment) -> str:
    """The exact experiment, as `compose` reads it back."""
    import yaml

    return yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
