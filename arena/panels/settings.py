"""Evaluation settings: panels of fixed opponents, shipped or from a YAML file, and held-out games."""

import re
from functools import cache
from importlib.resources import files
from os.path import exists, expanduser, isfile
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, field_validator, model_validator

from agents import strict_yaml
from arena.credit.rewards.reward_model import ModelFolder
from arena.errors import ConfigError
from arena.parts.paths import Anchor, GameName, OptionValue, absolute, absolute_model, absolute_name
from arena.parts.spec import STRICT, Name, Positive, Spec
from arena.play.settings import GameSpec
from arena.store.files import CONFIG, explain_errors
from games.names import nearest

RUN_WEIGHTS = re.compile(r"(?P<path>.+?)(?:@(?P<iteration>\d{1,9}))?(?::(?P<policy>[A-Za-z0-9_-]{1,64}))?")
"""A run folder with an optional iteration and policy, such as runs/latest@12:opener."""


def _anchor_contender(spec: str) -> str:
    """Return a contender's name with an absolute path if it names a run folder, a model folder or a script."""
    from agents.players.scripted import is_scripted

    run = RUN_WEIGHTS.fullmatch(spec)
    if is_scripted(spec):
        return absolute_name(spec)
    if run and isfile(Path(absolute(run["path"]), CONFIG)):
        return absolute(run["path"]) + spec[run.end("path") :]
    return absolute_model(spec) if isfile(Path(absolute(spec), "config.json")) else spec


ContenderName = Annotated[str, Anchor(_anchor_contender)]
"""A contender of `arena eval`: a scripted policy, a run folder, a model or its folder, or endpoint:MODEL."""
Deals = Annotated[int, Field(ge=2, le=10**5)]
"""At least two, because one deal gives no confidence interval."""
MODELINE = re.compile(r"# yaml-language-server:.*\n")
"""Comment that names a file's JSON Schema for editors."""


class PanelGame(BaseModel):
    """The game of a panel, with its options."""

    model_config = STRICT

    name: GameName
    """A game of `arena list games` with at least two seats."""
    options: dict[str, OptionValue] | None = None
    """Options of the game; null takes those of the evaluated run."""


class Panel(BaseModel):
    """Fixed opponents, and the deals that each contender plays against them from every seat."""

    model_config = STRICT

    panel: Name
    """Name of the panel."""
    game: PanelGame
    """Game of the panel."""
    members: Annotated[list[ContenderName], Field(min_length=1, max_length=100)]
    """Contenders as in `arena eval`: scripted policies, runs, models, endpoint:MODEL. They play all other seats."""
    deals: Deals = 32
    """Number of deals; each is played once from every seat against every member."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of the deals."""

    @field_validator("members")
    @classmethod
    def _check_members(cls, members: list[str]) -> list[str]:
        for member in members:
            if not member.strip():
                raise ValueError("a member has no name: name a scripted policy, a run, a model or endpoint:MODEL")
            if members.count(member) > 1:
                raise ValueError(f"{strict_yaml.escape_line(member, 60)!r} is named twice: remove one")
        return members


def list_panels() -> list[str]:
    """Return the names of the panels that come with the package, sorted."""
    return sorted(f.name[:-5] for f in files("arena.panels").iterdir() if f.name.endswith(".yaml"))


@cache
def read_panel_text(name: str) -> str:
    """Return the YAML text of a panel that comes with the package. Cached."""
    return (files("arena.panels") / f"{name}.yaml").read_text("utf-8")


def load_panel(name: str) -> Panel:
    """Load a panel by its shipped name or from a YAML file. Raises ConfigError that names file, line and field."""
    if name in list_panels():
        return read_panel(read_panel_text(name), f"panel {name}")
    if not name.strip() or (not name.endswith((".yaml", ".yml")) and not exists(expanduser(name))):
        raise ConfigError(
            f"unknown panel '{strict_yaml.escape_line(name, 80)}'{nearest(name, list_panels())} "
            "(arena list panels, or a path that ends in .yaml)"
        )
    path = Path(expanduser(name))
    with explain_errors(path, "reading"):
        try:
            text = strict_yaml.read_text(path)
        except strict_yaml.YamlError as error:
            raise ConfigError(str(error)) from None
    return read_panel(text, name)


def read_panel(text: str, source: str) -> Panel:
    """Parse and validate a panel's YAML text. Raises ConfigError that names `source`, line and field."""
    try:
        data = strict_yaml.load(text, source)
        if not isinstance(data, dict):
            raise ConfigError(f"{source}:1: expected `key: value` lines, got {type(data).__name__}")
        return Panel.model_validate(data)
    except strict_yaml.YamlError as error:
        raise ConfigError(str(error)) from None
    except ValidationError as error:
        raise ConfigError(strict_yaml.explain(error, text, source, Panel)) from None


def describe_panel(name: str) -> str:
    """Return the description of a shipped panel: the comment at the head of its file, as one line."""
    lines = MODELINE.sub("", read_panel_text(name)).splitlines()
    return " ".join(line.lstrip("# ") for line in lines if line.startswith("#"))


def _load_if_named(value: Any) -> Any:
    if not isinstance(value, str):
        if not isinstance(value, dict | Panel):
            raise ValueError("give a panel's name, its file, or its fields: panel, game, members")
        return value
    try:
        return load_panel(value)
    except ConfigError as error:
        raise ConfigError(f"evaluate.panel: {error}") from None


PanelOrName = Annotated[Panel, BeforeValidator(_load_if_named)]
"""A panel, or its name or file, which validation replaces by the panel."""


class EvaluateSpec(Spec):
    """Evaluation of a run: on a panel of fixed opponents during training, and on other games at its end."""

    panel: PanelOrName | None = None
    """Fixed opponents: a panel's name (`arena list panels`), YAML file or fields. The policies play them before the
    first iteration and after the last."""
    every: Positive | None = None
    """Also evaluate on the panel after every N iterations."""
    deals: Deals | None = None
    """Number of deals, instead of the panel's own."""
    games: Annotated[list[GameSpec], Field(min_length=1)] | None = None
    """Games, held out of training or not, that the first and the last weights play on the same deals."""
    summaries: Annotated[int, Field(ge=1, le=10**4)] | None = None
    """Number of summaries that a seat may write in a match of `games`, instead of its role's `memory.summaries`: more
    rounds at test than in training (SUPO)."""
    policy: Name | None = None
    """Policy that plays `games`, if the run trains several and none has a seat there."""
    against: list[ContenderName] = ["random"]
    """Opponents in `games`, as in `arena eval`. In cooperative games the policy plays with itself instead."""
    reward_model: ModelFolder | None = None
    """Reward model, as in `credit.stages`, that scores the matches of `games`: the figure `learned`."""
    matches: Annotated[int, Field(ge=2, le=10**6)] = 100
    """Number of matches per game and opponent, before and after training each."""

    @property
    def held_out(self) -> list[GameSpec]:
        """The setting `games`; [] if it is not given."""
        return self.games or []

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if self.panel is None and self.games is None:
            raise ValueError("give `panel: NAME` or `games: […]` to evaluate")
        if self.panel is None and (self.every or self.deals):
            raise ValueError(f"`{'every' if self.every else 'deals'}` belongs to `panel`: name one, or remove it")
        for name in ("policy", "summaries", "reward_model"):
            if self.games is None and getattr(self, name) is not None:
                raise ValueError(f"`{name}` belongs to `games`: name some, or remove it")
        return self
