"""Settings of play: games, seats, and the matches of an iteration."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from arena.credit.rewards.columns import Regex
from arena.parts.part_config import PartConfig
from arena.parts.paths import Folder, GameName, Harness, OptionValue, PolicyName, RoleName, Tools
from arena.parts.spec import Matches, Name, Positive, Spec
from arena.play.making import SEAT_TOOLS
from arena.play.parts import ROLLOUT_PART
from arena.play.parts.base import get_declaration


class GameSpec(Spec):
    """Game, by name, with its options."""

    name: GameName
    """Name from `arena list games`, of another library (`openspiel:…`, `gymnasium:…`, see docs/games.md), or
    path/to/file.py:Class."""
    options: dict[str, OptionValue] = {}
    """Options of the game, such as `illegal: end`."""


class SeatSpec(Spec):
    """Role and policy of the player at a seat."""

    role: RoleName
    """Name of a built-in role or of one in the roles folder, or a path ending in .yaml."""
    policy: PolicyName
    """Name from `policies`, a scripted policy such as `random` or path/to/file.py:function, `endpoint:MODEL` or
    `endpoint@SERVER:MODEL`."""
    harness: Annotated[Harness, Field(min_length=1, max_length=4000)] | None = None
    """Agent program that plays the seat by asking the policy: a command such as `python my_agent.py`, or a URL."""
    tools: Tools | None = None
    """Tools besides the game's own: `calculator`, `python`, path/to/file.py:name, or a mapping with `function` or `mcp`
    and limits (docs/tools.md). null uses the role's tools."""

    @field_validator("tools")
    @classmethod
    def _check_tools(cls, tools: Tools | None) -> Tools | None:
        from simulators.toolbox.sources import parse  # loads PettingZoo

        for tool in tools or ():
            parse(tool)
        return tools


class TableSpec(Spec):
    """Game with the roles and policies at its seats. A run plays one or more of these."""

    game: GameSpec
    """Game of the table."""
    seats: dict[str, SeatSpec]
    """Role and policy of each seat, by the seat's name in the game."""
    share: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """Share of the matches of an iteration, relative to the other tables' shares."""

    def with_tools(self) -> Self:
        """Return the table with the seats' tools as an option of the game, so that matches and logs include them."""
        tools = {seat: seat_spec.tools for seat, seat_spec in self.seats.items() if seat_spec.tools}
        if not tools:
            return self
        options = {**self.game.options, SEAT_TOOLS: tools}
        return self.model_copy(update={"game": self.game.model_copy(update={"options": options})})


class LimitsSpec(Spec):
    """Limits of turns, tokens and seconds beyond which a match fails; null is no limit."""

    turns: Positive | None = 100
    """Maximum turns of all seats together."""
    tokens: Positive | None = None
    """Maximum sampled tokens of all seats together."""
    seconds: Annotated[float, Field(gt=0, le=1e9)] | None = 600.0
    """Maximum wall time of the match."""
    turn_seconds: Annotated[float, Field(gt=0, le=1e9)] | None = 120.0
    """Maximum wall time of one turn."""


class PlaySpec(Spec):
    """Settings of an iteration's matches: their number, deals, branches, interventions, limits and concurrency."""

    matches: Matches = 16
    """Number of matches per iteration, over all tables."""
    group: Matches = 1
    """Number of matches per deal, for estimators that compare within one. It divides `matches`."""
    pool: Matches | None = None
    """Number of different deals, like tasks of a training set: each pass plays all in a new random order. Null always
    draws new deals."""
    parts: list[Annotated[PartConfig, ROLLOUT_PART]] = []
    """Rollout parts, such as `[{trees: {chance: 0.5}}, {stop: {repeated: 3}}]`, applied in this order."""
    ahead: Annotated[int, Field(ge=0, le=16)] = 0
    """Number of later iterations played while one is learned. Replies are at most that many versions older than the
    weights that learn from them; 0 alternates play and learning."""
    enough: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of an iteration's deals that its update waits for. The next update learns from the others."""
    in_flight: Positive = 64
    """Number of concurrent matches."""
    attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """Maximum attempts at a failing match before it and its deal are given up."""
    limits: LimitsSpec = LimitsSpec()
    """Limits of one match."""

    @property
    def deals(self) -> int:
        """Number of deals per iteration: `matches` divided by `group`."""
        return self.matches // self.group

    @property
    def overlaps(self) -> bool:
        """True if matches are played while policies learn: with `ahead` above 0 or `enough` below 1."""
        return self.ahead > 0 or self.enough < 1

    @property
    def lag(self) -> int:
        """Maximum age of replies, in versions before the weights that learn from them."""
        return self.ahead + (self.enough < 1)

    @model_validator(mode="after")
    def _check_group(self) -> Self:
        if self.matches % self.group:
            raise ValueError(
                f"{self.matches} `matches` are not a multiple of `group`, which is {self.group}: change one"
            )
        return self

    def part(self, name: str) -> PartConfig | None:
        """Return the rollout part of that name, or None."""
        return next((config for config in self.parts if config.name == name), None)

    @property
    def max_matches(self) -> int:
        """Maximum number of matches per iteration with those that parts add."""
        extra = sum(get_declaration(config).extra_matches(**config.with_defaults().settings) for config in self.parts)
        return self.matches * (1 + extra)


class RunRows(Spec):
    """Rows of a data set from the matches of a run, as `arena export` writes them."""

    run: Folder
    """Folder of the run."""
    where: str = ""
    """SQL condition on the columns of its matches, such as `"report.success" and iteration > 3`."""
    rows: Literal["chats", "texts", "pairs"] = "chats"
    """Chats of the seats that a model played, whole matches as plain texts, or preference pairs."""
    policies: list[Name] = []
    """Policies whose chats or pairs are used, including scripted ones; [] is all models."""


class UnitsSpec(Spec):
    """Split of long replies into units, which become the turns of a chat."""

    end: Annotated[Regex, Field(min_length=1)]
    """Regular expression whose matches end a unit, such as `Wait`; `(?=Wait)` splits before the word."""
    between: Annotated[str, Field(min_length=1)] = "Go on."
    """Text of the user between two units; use the text that the role shows in play."""


class SourceSpec(Spec):
    """Source of learning without play: logged matches of another run, or a data set."""

    log: Folder | None = None
    """Folder of another run. Iteration k learns from that run's iteration k, starting over after its last, or with
    `shuffle` from random deals."""
    iterations: Positive | None = None
    """Last iteration of `log` to use; null is the newest committed one at the run's start, which is then saved in the
    config."""
    shuffle: bool = False
    """Learn from the log's deals in random order instead of the log's order. Each iteration uses an equal part of them;
    after `iterations` all are used, and a new random order begins."""
    data: Folder | RunRows | None = None
    """Data set that every trained policy learns from: a JSON Lines file, a Parquet file, a folder of the `datasets`
    library, or the matches of a run. Rows are chats, texts, preference pairs or labelled completions."""
    units: UnitsSpec | None = None
    """Split the replies of chats into units."""
    batch: Matches = 32
    """Rows of `data` per iteration, in a new random order for each pass."""
    epochs: Positive | None = None
    """Passes over `data`, from which the run's number of iterations follows; null repeats for all iterations."""
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the rows, at most 1,000 rows, that no update learns from. The metrics report the loss on them."""
    held_out_every: Positive = 10
    """Number of iterations between two evaluations on held-out rows. The first and the last iteration also have one."""
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    """Hash of the data set's files; null computes it at the run's start and saves it in the config."""

    @model_validator(mode="after")
    def _require_one_source(self) -> Self:
        if (self.log is None) == (self.data is None):
            raise ValueError("give `log: FOLDER` or `data: FILE`: one of them is the source")
        if self.units and self.data is None:
            raise ValueError("`units` splits the chats of `data`: remove it")
        return self
