"""Control of a match while it is played: an expert's act in place of a learner's wrong one, and stops by a rule.

**Patch** (semi-online: UI-S1, Lu et al. 2025). At a learner's turn an expert is asked, too. Where the two acts differ,
the learner's is a turn of its own, of source `replaced`, which the game does not read. The expert's act follows, a turn
of source `patch` from which no policy learns, and the learner goes on as if it had written that. A learner's act that
agrees earns the reward `match` of 1, which is part of no payoff.

**Stop.** A match in which a learner's last acts show that nothing comes of it ends there, at the cost of its stake.
Sources: ActiveVLN (2025) and SimpleTIR (Xue et al. 2025) end such episodes early.

**Horizon** (ScalingInter-RL, Xi et al. 2025). A schedule says after how many acts of a learner a match is cut off, or
what the game's own option for that is in an iteration.
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
    """A learner's seat: its expert, and its last acts."""

    expert: ScriptedPolicy | None
    acts: int = 0
    last: str = ""
    repeated: int = 0
    """How often the last act came in a row,"""
    illegal: int = 0
    """and how many illegal ones."""


@dataclass
class Control:  # the Rules of arena.play.match
    """Rules of one match; they hold for the seats of learners alone."""

    rule: PlaySpec
    seats: dict[str, _Seat]
    horizon: int | None = None
    """The most acts of a learner, None where the game knows."""
    patches: int = 0
    """How many acts were patched so far."""

    @classmethod
    def of(cls, rule: PlaySpec, iterations: int, plan: MatchPlan, game: Game) -> "Control | None":
        """The rules for a match of a run of so many iterations, before it begins; None where there are none."""
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
        """The expert's act for a learner that is to move, asked once a turn; None for other seats."""
        seat = self.seats.get(view.seat)
        if not (seat and seat.expert):
            return None
        act = seat.expert.act(view)
        if not isinstance(act, str):
            expert = self.rule.patch.expert if self.rule.patch else ""
            raise ScriptedPolicyError(f"{expert} has to answer with a text, not with {type(act).__name__}")
        return act

    def agree(self, act: str, expected: str) -> bool:
        """Return True if two acts are the same but for talk, case and blanks."""
        return same(act) == same(expected)

    def may_patch(self) -> bool:
        """Count a patch; False where `patch.most` were made already."""
        self.patches += 1
        patch = self.rule.patch
        return patch is not None and (patch.most is None or self.patches <= patch.most)

    def why_stop(self, act: Act, seat: str, valid: bool) -> str:
        """Why the match stops after this act, in words; "" where it goes on."""
        if (own := self.seats.get(seat)) is None:
            return ""
        said, stop = same(act.action), self.rule.stop or StopSpec()
        own.acts += 1
        if act.source != "patch":
            own.repeated = own.repeated + 1 if said == own.last else 1
            own.illegal, own.last = 0 if valid else own.illegal + 1, said
        if stop.repeated and own.repeated >= stop.repeated:
            return f"{seat} did the same {own.repeated} times"
        if stop.illegal and own.illegal >= stop.illegal:
            return f"{seat} made {own.illegal} illegal acts in a row"
        return f"{seat} acted {own.acts} times" if self.horizon and own.acts >= self.horizon else ""


def same(act: str) -> str:
    """An act without talk, by which two are compared: case and blanks make no difference."""
    return " ".join(act.partition("|")[0].split()).casefold()
