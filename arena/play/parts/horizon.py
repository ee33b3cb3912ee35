"""Horizon: a schedule over iterations limits the length of matches (ScalingInter-RL, Xi et al. 2025)."""

from collections import Counter
from dataclasses import replace
from typing import Annotated

from arena.parts.part_config import PartConfig
from arena.parts.schedules import SCHEDULE, Clock
from arena.parts.spec import Name
from arena.play.control import MatchControl
from arena.play.match import MatchPlan
from arena.play.parts.base import PartContext, RolloutPart, Setup, declare, learner_seats
from games.contracts import Act, Game


def _check(setup: Setup, *, turns: PartConfig, option: str | None) -> None:
    """Raise ValueError unless every game sets the option that the schedule replaces, to a number."""
    for game, options in setup.games if option else ():
        if not isinstance(options.get(option or ""), int):
            raise ValueError(
                f"{option} follows the schedule in training: set its value for evaluations in the options of {game}"
            )


@declare(check=_check)
def horizon(context: PartContext, *, turns: Annotated[PartConfig, SCHEDULE], option: Name | None = None) -> RolloutPart:
    """Limit matches to `turns`, a number or a schedule such as `steps: {values: [6, 13, 20], every: 100}`.

    The value is rounded and at least 1. `option` names the game's option to set to it, such as `max_turns`; null stops
    a match after that many acts of a learner.
    """
    return Horizon(turns, option, context.iterations)


class Horizon(RolloutPart):
    """Maximum length of matches by iteration."""

    def __init__(self, turns: PartConfig, option: str | None, iterations: int) -> None:
        self.turns, self.option, self.iterations = turns, option, iterations

    def length(self, k: int) -> int:
        """Return the maximum number of turns in iteration `k`."""
        return max(1, round(float(self.turns(Clock(k, self.iterations)))))

    async def plan(self, k: int, plans: list[MatchPlan]) -> list[MatchPlan]:
        """Set the game's option, if there is one, to the iteration's length."""
        if self.option is None:
            return plans
        length = {self.option: self.length(k)}
        return [replace(plan, options={**plan.options, **length}, capped=self.option) for plan in plans]

    def control(self, plan: MatchPlan, game: Game) -> MatchControl | None:
        """Return a limit of the learners' acts; None if an option of the game limits the match."""
        return None if self.option else _Limit(self.length(plan.iteration), learner_seats(plan))


class _Limit(MatchControl):
    """Limit of each learner's acts in one match."""

    def __init__(self, length: int, seats: list[str]) -> None:
        self.length, self.seats, self.acts = length, seats, Counter[str]()

    def after(self, seat: str, act: Act, valid: bool) -> str:
        """Count an act, and return a reason to stop at the limit."""
        self.acts[seat] += 1
        reached = seat in self.seats and self.acts[seat] >= self.length
        return f"{seat} acted {self.acts[seat]} times" if reached else ""
