"""Settings of the league: opponents of the trained policies, and the pool of past versions."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from arena.parts.paths import PolicyName
from arena.parts.spec import Positive, Spec

Share = Annotated[float, Field(ge=0, le=1e6)]
"""Weight relative to others; bounded so that sums stay finite."""


class OpponentSpec(Spec):
    """Settings of one kind of opponent: how it plays, how often it is drawn, and in which iterations."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    play: Literal["self", "past", "pfsp", "fixed"]
    """`self`: all seats as configured; `past`: the version of `lag` updates ago; `pfsp`: past versions that the learner
    rarely beats; `fixed`: a scripted or a frozen policy."""
    weight: Share = 1.0
    """Probability of being drawn for a match, relative to the other opponents of the same iteration."""
    lag: Positive | None = None
    """For `past`: the opponent's age in updates."""
    policy: PolicyName | None = None
    """For `fixed`: a scripted policy, a frozen policy, or `endpoint:MODEL`."""
    since: Annotated[Positive, Field(alias="from")] = 1
    """First iteration of this opponent."""
    until: Positive | None = None
    """Last iteration of this opponent; null is the end of the run."""

    def is_drawn_in(self, iteration: int) -> bool:
        """Return True if this opponent may be drawn in the iteration."""
        return self.weight > 0 and self.since <= iteration and (self.until is None or iteration <= self.until)

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        for field, play, example in (("lag", "past", "lag: 1"), ("policy", "fixed", "policy: random")):
            is_given = getattr(self, field) is not None
            if self.play == play and not is_given:
                raise ValueError(f"`play: {play}` needs `{field}`, such as `{example}`")
            if is_given and self.play != play:
                raise ValueError(f"`{field}` belongs to `play: {play}`, not to `play: {self.play}`")
        if self.until is not None and self.until < self.since:
            raise ValueError(f"`from: {self.since}` is after `until: {self.until}`, so the opponent never plays")
        return self


class PoolSpec(Spec):
    """Settings of the pool of past versions: how often versions are admitted, and how many are kept."""

    every: Positive = 5
    """Iterations between two admissions; the initial policies are always admitted."""
    keep: Annotated[int, Field(ge=2, le=10**6)] = 8
    """Maximum number of members; beyond it the second oldest retires."""
    in_memory: Positive = 4
    """Maximum number of past versions in memory at once."""


class LeagueSpec(Spec):
    """Settings of the league, which draws opponents for trained policies. Without it they play as configured."""

    opponents: Annotated[list[OpponentSpec], Field(min_length=1)]
    """The mixture of opponents that each match draws from."""
    pool: PoolSpec = PoolSpec()
    """Settings of the pool of past versions."""
