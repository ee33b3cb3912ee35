"""Early stops: matches end if a learner repeats itself or acts illegally too often.

The seat to move then loses its stake, as after an illegal act. Sources: ActiveVLN (2025) and SimpleTIR (Xue et al.
2025), which end such episodes early.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from arena.play.control import MatchControl
from arena.play.match import MatchPlan
from arena.play.parts.base import PartContext, RolloutPart, learner_seats
from arena.play.texts import normalise_act
from games.contracts import Act, Game

Times = Annotated[int, Field(ge=0, le=10**4)]


def stop(context: PartContext, *, repeated: Times = 0, illegal: Times = 0) -> RolloutPart:
    """Stop a match after `repeated` equal or `illegal` illegal acts of a learner in a row; 0 turns a rule off."""
    return EarlyStop(repeated, illegal)


class EarlyStop(RolloutPart):
    """Rules that stop hopeless matches."""

    def __init__(self, repeated: int, illegal: int) -> None:
        self.repeated, self.illegal = repeated, illegal

    def control(self, plan: MatchPlan, game: Game) -> MatchControl | None:
        """Return the control that applies the rules to a match's learners."""
        return _Streaks(learner_seats(plan), self.repeated, self.illegal)


class _Streaks(MatchControl):
    """Lengths of learners' streaks of equal and of illegal acts in one match."""

    def __init__(self, seats: Sequence[str], repeated: int, illegal: int) -> None:
        self.seats, self.most_repeated, self.most_illegal = seats, repeated, illegal
        self.last: dict[str, str] = {}
        self.repeated, self.illegal = Counter[str](), Counter[str]()

    def after(self, seat: str, act: Act, valid: bool) -> str:
        """Count a learner's own act, and return a reason to stop if a streak is too long."""
        if seat not in self.seats:
            return ""
        if act.source != "patch":
            normalised = normalise_act(act.action)
            self.repeated[seat] = self.repeated[seat] + 1 if normalised == self.last.get(seat, "") else 1
            self.illegal[seat] = 0 if valid else self.illegal[seat] + 1
            self.last[seat] = normalised
        if self.most_repeated and self.repeated[seat] >= self.most_repeated:
            return f"{seat} did the same {self.repeated[seat]} times"
        if self.most_illegal and self.illegal[seat] >= self.most_illegal:
            return f"{seat} made {self.illegal[seat]} illegal acts in a row"
        return ""
