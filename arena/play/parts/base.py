"""Base of rollout parts: plug-ins that change how an iteration's matches are planned, expanded, controlled, observed.

A part is a function `part(context, *, settings) -> RolloutPart`. Its keyword-only parameters are its settings in YAML,
as in `play: {parts: [{trees: {chance: 0.5}}, stop: {repeated: 3}]}`. `declare` adds checks and declarations that are
needed before a run exists. A built-in part has a line in `arena.play.parts`; a user's part is named by its file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from agents.policy import Policy
from agents.role import Role
from arena.credit.asking import Asker
from arena.parts.part_config import PartConfig, part
from arena.play.control import MatchControl
from arena.play.match import MatchPlan
from arena.records import MatchRecord
from games.adapters.loading import error_line, file_of
from games.contracts import Game

MakePart = TypeVar("MakePart", bound=Callable[..., "RolloutPart"])


@dataclass(frozen=True, kw_only=True)
class PartContext:
    """Context of the run for a rollout part: seed, policies, model access and callbacks."""

    seed: int
    """Seed of the run."""
    iterations: int
    """Number of iterations of the run, for schedules."""
    policies: Mapping[str, Policy]
    """Policies with weights, by name."""
    asker: Asker
    """Client for replies of these policies outside of matches."""
    missing_deals: Callable[[int, Sequence[MatchRecord], int], Awaitable[int]]
    """Function that returns how many deals credit still lacks, because it would drop some of the played ones. Its
    arguments are the iteration, the finished matches and the number of played deals."""
    note: Callable[[str], None]
    """Function that shows a line to the user."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Matches of an iteration so far. All planned ones have ended."""

    ended: Sequence[MatchRecord]
    """All finished matches."""
    records: Sequence[MatchRecord]
    """Finished matches of complete deals, from which policies learn."""
    given_up: Sequence[MatchRecord]
    """Last attempts at matches that kept failing."""
    deals: int
    """Number of deals planned so far."""


@dataclass(frozen=True, kw_only=True)
class Expansion:
    """Further matches of an iteration."""

    plans: Sequence[MatchPlan] = ()
    """Plans to play as they are."""
    deals: int = 0
    """Number of new deals, whose plans pass through the `plan` hook of every part."""


class RolloutPart:
    """Plug-in with hooks into every iteration's play. The hooks do nothing by default.

    Iterations may overlap (`play.ahead`), so a part has to keep state between hooks by iteration `k`.
    """

    async def plan(self, k: int, plans: list[MatchPlan]) -> list[MatchPlan]:
        """Return the plans to play in place of `plans`, which hold all matches of some deals of iteration `k`."""
        return plans

    async def expand(self, k: int, progress: Progress) -> Expansion:
        """Return further matches of iteration `k`, given those so far; an empty expansion if there are none.

        It is called again whenever all planned matches have ended, until every part returns an empty expansion.
        """
        return Expansion()

    def control(self, plan: MatchPlan, game: Game) -> MatchControl | None:
        """Return a control for a planned match, or None. `game` is the game of this match, not yet reset."""
        return None

    def observe(self, k: int, records: Sequence[MatchRecord]) -> None:
        """Learn from the finished matches of iteration `k`, after the policies have learned from them."""

    def metrics(self, records: Sequence[MatchRecord]) -> dict[str, dict[str, float]]:
        """Return sections of an iteration's metrics, by name."""
        return {}

    def state(self) -> Any:
        """Return the state for the checkpoint, as JSON; None without state."""
        return None

    def load(self, state: Any) -> None:
        """Restore a `state`. Raises ValueError, TypeError or KeyError if it is invalid."""


class PlaySettings(Protocol):
    """Settings of play that a part's check may read; see `arena.play.settings.PlaySpec`."""

    @property
    def group(self) -> int: ...
    @property
    def matches(self) -> int: ...
    @property
    def pool(self) -> int | None: ...
    @property
    def enough(self) -> float: ...
    @property
    def overlaps(self) -> bool: ...
    def part(self, name: str) -> PartConfig | None: ...


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Settings of an experiment that a part's check may read."""

    play: PlaySettings
    has_entropy: bool
    """True if the engine records the entropies of sampled tokens."""
    games: Sequence[tuple[str, Mapping[str, Any]]]
    """Name and options of each game."""


class SeatedGame(Protocol):
    """Game with the roles and policies at its seats; see `arena.play.tables.Table`."""

    @property
    def roles(self) -> Mapping[str, Role]: ...
    @property
    def holders(self) -> Mapping[str, str]: ...
    def make_game(self) -> Game: ...


@dataclass(frozen=True)
class Declaration:
    """Checks and facts of a part that are needed before a run exists. All take the part's settings as keywords."""

    check: Callable[..., None] = lambda setup, **settings: None
    """Raise ValueError if the part cannot work with a `Setup`."""
    check_tables: Callable[..., None] = lambda tables, policies, **settings: None
    """Raise ValueError if the part cannot work with the tables. `policies` maps policies to True if trained."""
    rewards: tuple[str, ...] = ()
    """Names of rewards that the part adds to turns."""
    extra_matches: Callable[..., int] = lambda **settings: 0
    """Return the maximum number of matches added per planned match."""
    instructions: Callable[[Any], Mapping[str, str]] = lambda state: {}
    """Return the text that ends each role's system prompt outside of training, by role, from the part's `state`."""


def declare(**declarations: Any) -> Callable[[MakePart], MakePart]:
    """Attach a `Declaration` to a part's function."""

    def attach(make: MakePart) -> MakePart:
        make.declaration = Declaration(**declarations)  # type: ignore[attr-defined]
        return make

    return attach


def get_declaration(config: PartConfig) -> Declaration:
    """Return the declaration that a part made with `declare`, or the default one."""
    return getattr(part(config.kind, config.name), "declaration", Declaration())


def read_instructions(parts: Sequence[PartConfig], states: Sequence[Any]) -> dict[str, str]:
    """Return the texts that end roles' system prompts outside of training, by role, from the parts' states.

    Raises ValueError, TypeError or KeyError if a state is invalid.
    """
    texts: dict[str, str] = {}
    for config, state in zip(parts, states, strict=False):  # a run's first checkpoint may have no states
        texts |= get_declaration(config).instructions(state)
    return texts


def check_parts(parts: Sequence[PartConfig], setup: Setup) -> None:
    """Raise ValueError, naming the part, if one cannot work with the setup."""
    for config in parts:
        _check(config, get_declaration(config).check, setup)


def check_tables(parts: Sequence[PartConfig], tables: Sequence[SeatedGame], policies: Mapping[str, bool]) -> None:
    """Raise ValueError, naming the part, if one cannot work with the run's tables."""
    for config in parts:
        _check(config, get_declaration(config).check_tables, tables, policies)


def _check(config: PartConfig, check: Callable[..., None], *arguments: Any) -> None:
    try:
        check(*arguments, **config.with_defaults().settings)
    except ValueError as error:
        raise ValueError(f"play.parts: {config.name}: {error}") from None
    except Exception as error:
        if not (path := file_of(config.name)):
            raise
        raise ValueError(f"play.parts: {config.name}: {error_line(error, path)}") from error


def learner_seats(plan: MatchPlan) -> list[str]:
    """Return the seats of a planned match that trained policies play."""
    return [seat for seat, seating in plan.seats.items() if seating.trained]
