"""Settings of evaluation from outside: panels of opponents, one YAML file each, shipped or one's own; other games."""

import re
from functools import cache
from importlib.resources import files
from os.path import expanduser, isfile
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, field_validator, model_validator

from agents import strict_yaml
from agents.names import nearest
from arena.errors import ConfigError
from arena.parts.paths import Anchor, GameName, OptionValue, absolute, absolute_model, absolute_name
from arena.parts.spec import STRICT, Name, Positive, Spec
from arena.play.settings import GameSpec
from arena.store.files import CONFIG, explained

RUN_WEIGHTS = re.compile(r"(?P<path>.+?)(?:@(?P<iteration>\d{1,9}))?(?::(?P<policy>[A-Za-z0-9_-]{1,64}))?")
"""A run folder, and which of its weights: runs/latest@12:opener."""


def _contender(spec: str) -> str:
    """A run's folder, before what says which of its weights, or a model's."""
    from agents.players.scripted import names_scripted

    run = RUN_WEIGHTS.fullmatch(spec)
    if names_scripted(spec):
        return absolute_name(spec)
    if run and isfile(Path(absolute(run["path"]), CONFIG)):
        return absolute(run["path"]) + spec[run.end("path") :]
    return absolute_model(spec) if isfile(Path(absolute(spec), "config.json")) else spec


ContenderName = Annotated[str, Anchor(_contender)]
"""As `arena eval` takes it: a scripted policy, a run folder, a model or its folder, or endpoint:MODEL."""
Deals = Annotated[int, Field(ge=2, le=10**5)]
"""Two at least: one deal has no interval."""
MODELINE = re.compile(r"# yaml-language-server:.*\n")
"""Comment line from which an editor learns a file's schema."""


class PanelGame(BaseModel):
    """Game that a panel plays."""

    model_config = STRICT

    name: GameName
    """One of `arena list games`, of two seats or more."""
    options: dict[str, OptionValue] | None = None
    """Options of the game; null are those of the run that is judged."""


class Panel(BaseModel):
    """Opponents that stand still, and the deals that everybody plays against them from every seat."""

    model_config = STRICT

    panel: Name
    """Its name."""
    game: PanelGame
    """Game that is played."""
    members: Annotated[list[ContenderName], Field(min_length=1, max_length=100)]
    """Contenders as in `arena eval`: scripted policies, runs, models, endpoint:MODEL; at all seats but the judged."""
    deals: Deals = 32
    """Each is played once from every seat against every member."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """The deals come from it alone."""

    @field_validator("members")
    @classmethod
    def _each_once(cls, members: list[str]) -> list[str]:
        for member in members:
            if not member.strip():
                raise ValueError("a member has no name: name a scripted policy, a run, a model or endpoint:MODEL")
            if members.count(member) > 1:
                raise ValueError(f"{strict_yaml.one_line(member, 60)!r} is named twice: remove one")
        return members


def panel_names() -> list[str]:
    """Panels that come with the package."""
    return sorted(f.name[:-5] for f in files("arena.panels").iterdir() if f.name.endswith(".yaml"))


@cache
def panel_text(name: str) -> str:
    """The text of a panel that comes with the package."""
    return (files("arena.panels") / f"{name}.yaml").read_text("utf-8")


def load_panel(name: str) -> Panel:
    """A panel by its name, or from a file; ConfigError in one line, with the file, the line and the field."""
    if name in panel_names():
        return read_panel(panel_text(name), f"panel {name}")
    if not name.strip() or (not name.endswith((".yaml", ".yml")) and not Path(expanduser(name)).exists()):
        raise ConfigError(
            f"unknown panel '{strict_yaml.one_line(name, 80)}'{nearest(name, panel_names())} "
            "(arena list panels, or a path that ends in .yaml)"
        )
    path = Path(expanduser(name))
    with explained(path, "reading"):
        try:
            text = strict_yaml.read_text(path)
        except strict_yaml.YamlError as error:
            raise ConfigError(str(error)) from None
    return read_panel(text, name)


def read_panel(text: str, source: str) -> Panel:
    """A panel from its text; ConfigError naming the source, the line and the field."""
    try:
        data = strict_yaml.load(text, source)
        if not isinstance(data, dict):
            raise ConfigError(f"{source}:1: expected `key: value` lines, got {type(data).__name__}")
        return Panel.model_validate(data)
    except strict_yaml.YamlError as error:
        raise ConfigError(str(error)) from None
    except ValidationError as error:
        raise ConfigError(strict_yaml.explain(error, text, source, Panel)) from None


def about(name: str) -> str:
    """Return what a shipped panel says of itself in the comment above it."""
    lines = MODELINE.sub("", panel_text(name)).splitlines()
    return " ".join(line.lstrip("# ") for line in lines if line.startswith("#"))


def _given(value: Any) -> Any:
    if not isinstance(value, str):
        if not isinstance(value, dict | Panel):
            raise ValueError("give a panel's name, its file, or its fields: panel, game, members")
        return value
    try:
        return load_panel(value)
    except ConfigError as error:
        raise ConfigError(f"evaluate.panel: {error}") from None


GivenPanel = Annotated[Panel, BeforeValidator(_given)]
"""A panel, written out or by its name or file: an experiment that was read holds it whole."""


class EvaluateSpec(Spec):
    """Evaluation of a run from outside: a panel of opponents while it goes on, other games when it is over."""

    panel: GivenPanel | None = None
    """Opponents that stand still: a name (`arena list panels`), a YAML file, or written out. The weights play them
    before the first iteration and after the last."""
    every: Positive | None = None
    """And after every so many iterations."""
    deals: Deals | None = None
    """Number of deals, in place of the panel's own."""
    games: Annotated[list[GameSpec], Field(min_length=1)] | None = None
    """Which games, held out of training or not, the first and the last weights play on the same deals."""
    summaries: Annotated[int, Field(ge=1, le=10**4)] | None = None
    """Number of summaries that a seat may write in a match of `games`, in place of its role's `memory.summaries`: more
    rounds at test than in training (SUPO)."""
    policy: Name | None = None
    """Whose weights play `games`, where a run trains several that do not sit there."""
    against: list[ContenderName] = ["random"]
    """In `games`, as in `arena eval`; where all seats are paid the same, the policy plays with itself instead."""
    matches: Annotated[int, Field(ge=2, le=10**6)] = 100
    """Per game and opponent, before and after each."""

    @property
    def held_out(self) -> list[GameSpec]:
        """The games that are played when the run is over; often none."""
        return self.games or []

    @model_validator(mode="after")
    def _asks_for_something(self) -> Self:
        if self.panel is None and self.games is None:
            raise ValueError("give `panel: NAME`, or `games: […]`: what is to be evaluated?")
        if self.panel is None and (self.every or self.deals):
            raise ValueError(f"`{'every' if self.every else 'deals'}` belongs to `panel`: name one, or remove it")
        for name in ("policy", "summaries"):
            if self.games is None and getattr(self, name) is not None:
                raise ValueError(f"`{name}` belongs to `games`: name some, or remove it")
        return self
