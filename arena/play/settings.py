"""Settings of play: which games, who sits at them, and how the matches of an iteration are played."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from arena.parts.paths import Folder, GameName, OptionValue, PolicyName, RoleName
from arena.parts.spec import Matches, Positive, Spec


class GameSpec(Spec):
    """A game, with its options."""

    name: GameName
    """One of `arena list games`, `openspiel:…`, `pettingzoo:…`, `textarena:…`, or path/to/file.py:Class."""
    options: dict[str, OptionValue] = {}
    """Options of the game, such as `illegal: end`."""


class SeatSpec(Spec):
    """The role and the policy at a seat."""

    role: RoleName
    """A built-in role's name, one from the roles folder, or a path ending in .yaml."""
    policy: PolicyName
    """A name from `policies`, a scripted policy such as `random` or path/to/file.py:function, `endpoint:MODEL` or
    `endpoint@SERVER:MODEL`."""


class TableSpec(Spec):
    """A game and who sits at it."""

    game: GameSpec
    """Which game is played there."""
    seats: dict[str, SeatSpec]
    """By the game's names for its seats."""
    share: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """Share of the matches of an iteration, relative to the other tables' shares."""


class LimitsSpec(Spec):
    """Limits of one match, beyond which it is recorded as failed; null is no limit."""

    turns: Positive | None = 100
    """Taken by all seats together."""
    tokens: Positive | None = None
    """Sampled by all seats together."""
    seconds: Annotated[float, Field(gt=0, le=1e9)] | None = 600.0
    """Wall time of the match."""
    turn_seconds: Annotated[float, Field(gt=0, le=1e9)] | None = 120.0
    """Wall time of one turn."""


class PlaySpec(Spec):
    """Settings of play: the matches of an iteration."""

    matches: Matches = 16
    """Number of matches of one iteration, all tables together."""
    group: Matches = 1
    """Number of matches that share a deal, for estimators that compare within one; divides `matches`."""
    pool: Matches | None = None
    """Deals are drawn from so many, as tasks of a training set are: all of them, in a random order, before any comes
    again; null is always new ones."""
    resample: Annotated[int, Field(ge=0, le=10**4)] = 0
    """Rounds in which new deals are played in place of those that `credit.select` dropped, until none is missing."""
    branch: Annotated[int, Field(ge=0, le=10**4)] = 0
    """Number of further matches that part from each one, at turns of its learners drawn at random; they come on top."""
    branch_at: Literal["any", "last"] = "any"
    """At which of these turns: `last` is each match's last one alone, so there is one branch at most."""
    in_flight: Positive = 64
    """Number of matches that run at once."""
    attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """Number of times that a failing match is tried before the run stops."""
    limits: LimitsSpec = LimitsSpec()
    """Limits of one match."""

    @property
    def deals(self) -> int:
        """Return the number of deals of an iteration."""
        return self.matches // self.group

    @model_validator(mode="after")
    def _comes_out_even(self) -> Self:
        if self.matches % self.group:
            raise ValueError(
                f"{self.matches} `matches` are not a multiple of `group`, which is {self.group}: change one"
            )
        if self.matches * (1 + self.branch) > 10**6:
            raise ValueError(f"{self.matches:,} `matches` with {self.branch:,} branches each are more than a million")
        if self.branch_at == "last" and self.branch != 1:
            raise ValueError(f"branch_at: last is one branch of each match: set `branch` to 1, not {self.branch}")
        return self


class SourceSpec(Spec):
    """Matches that were played already, to learn from instead of playing."""

    log: Folder
    """Another run's folder: iteration k learns from that run's k-th, and after its last from its first again."""
    iterations: Positive | None = None
    """The last of them; null is the newest that is committed when this run begins, and then noted in its config."""


def apportion(count: int, shares: Sequence[float]) -> list[int]:
    """Return how many of `count` each share gets, by largest remainder (Hamilton's method); ties go to the earlier."""
    quotas = [count * share / sum(shares) for share in shares]
    counts = [int(quota) for quota in quotas]
    by_remainder = sorted(range(len(shares)), key=lambda i: counts[i] - quotas[i])
    for i in by_remainder[: count - sum(counts)]:
        counts[i] += 1
    return counts
