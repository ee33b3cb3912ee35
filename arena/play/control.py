"""Control of a match during play: an expert's patches of learners' acts, early stops, and horizons.

**Patch** (semi-online: UI-S1, Lu et al. 2025). An expert acts at every turn of a learner, too. If the acts differ, the
learner's becomes a turn of source `replaced`, which the game does not read. The expert's act follows as a turn of
source `patch`, from which no policy learns, and the learner continues as if it had written that. An act that agrees
earns the reward `match` of 1, which is part of no payoff.

**Stop.** A match ends early, at the cost of its stake, if a learner repeats itself or acts illegally too often.
Sources: ActiveVLN (2025) and SimpleTIR (Xue et al. 2025) end such episodes early.

**Horizon** (ScalingInter-RL, Xi et al. 2025). A schedule limits the acts of a learner in a match, or sets the game's
own option for that, by iteration.
"""

from dataclasses import dataclass

from agents.errors import ScriptedPolicyError
from agents.player import ScriptedPolicy
from agents.players.scripted import make_scripted
from arena.parts.schedules import Clock
from arena.play.match import MatchPlan
from arena.play.settings import PlaySpec, StopSpec
from games.contracts import Act, Game, View


@dataclass
class _Seat:
    """State of one learner's seat: its expert, and counts of its acts, repeated acts and illegal acts."""

    expert: ScriptedPolicy | None
    acts: int = 0
    last: str = ""
    repeated: int = 0
    """Number of times the last act came in a row."""
    illegal: int = 0
    """Number of illegal acts in a row."""


@dataclass
class Control:  # implements Rules of arena.play.match
    """Rules of one match at the learners' seats: patches by an expert, early stops, and a maximum number of acts."""

    rule: PlaySpec
    seats: dict[str, _Seat]
    horizon: int | None = None
    """Maximum acts of a learner; None if the game has the limit or there is none."""
    patches: int = 0
    """Number of patched acts so far."""

    @classmethod
    def of(cls, rule: PlaySpec, iterations: int, plan: MatchPlan, game: Game) -> "Control | None":
        """Return a planned match's rules; None if there are none. The horizon's schedule spans `iterations`."""
        learners = [seat for seat, seating in plan.seats.items() if seating.trained]
        if not learners or (rule.patch, rule.stop, rule.horizon) == (None, None, None):
            return None
        expert = rule.patch.expert if rule.patch else ""
        experts = {s: make_scripted(expert, plan.seed % 2**32, game) if expert else None for s in learners}
        horizon = None
        if rule.horizon and rule.horizon.option is None:
            horizon = rule.horizon.length(Clock(plan.iteration, iterations))
        return cls(rule, {seat: _Seat(expert) for seat, expert in experts.items()}, horizon)

    def expected(self, view: View) -> str | None:
        """Return the expert's act if the seat to move is a learner's; None for other seats or without an expert.

        Call it once per turn. Raises ScriptedPolicyError if the expert's act is no text.
        """
        seat = self.seats.get(view.seat)
        if not (seat and seat.expert):
            return None
        act = seat.expert.act(view)
        if not isinstance(act, str):
            expert = self.rule.patch.expert if self.rule.patch else ""
            raise ScriptedPolicyError(f"{expert} has to answer with a text, not with {type(act).__name__}")
        return act

    def agree(self, act: str, expected: str) -> bool:
        """Return True if two acts are equal, ignoring talk after `|`, case and repeated blanks."""
        return normalise_act(act) == normalise_act(expected)

    def may_patch(self) -> bool:
        """Count one more act replaced by the expert's; return False if that exceeds `patch.most` (None: no limit)."""
        self.patches += 1
        patch = self.rule.patch
        return patch is not None and (patch.most is None or self.patches <= patch.most)

    def why_stop(self, act: Act, seat: str, valid: bool) -> str:
        """Count a seat's act, and return why the match has to stop after it; "" if it continues.

        It stops after `stop.repeated` equal acts or `stop.illegal` illegal acts of a learner in a row, or at the
        horizon. `valid` is False for an illegal act. Patches count towards the horizon only.
        """
        if (own := self.seats.get(seat)) is None:
            return ""
        normalised, stop = normalise_act(act.action), self.rule.stop or StopSpec()
        own.acts += 1
        if act.source != "patch":
            own.repeated = own.repeated + 1 if normalised == own.last else 1
            own.illegal, own.last = 0 if valid else own.illegal + 1, normalised
        if stop.repeated and own.repeated >= stop.repeated:
            return f"{seat} did the same {own.repeated} times"
        if stop.illegal and own.illegal >= stop.illegal:
            return f"{seat} made {own.illegal} illegal acts in a row"
        return f"{seat} acted {own.acts} times" if self.horizon and own.acts >= self.horizon else ""


def normalise_act(act: str) -> str:
    """Return an act without the talk after `|`, with single blanks and folded case, for comparisons."""
    return " ".join(act.partition("|")[0].split()).casefold()
