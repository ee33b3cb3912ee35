"""Patches: an expert's acts replace a learner's wrong acts (semi-online RL: UI-S1, Lu et al. 2025).

At every turn of a learner, an expert also chooses an act. If the acts differ, the learner's becomes a turn of source
`replaced`, which the game does not read. The expert's act follows as a turn of source `patch`, from which no policy
learns, and the learner continues as if it had written that act. Equal acts earn the reward `match` of 1, which is
not part of the payoff.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from agents.errors import ScriptedPolicyError
from agents.player import ScriptedPolicy
from agents.players.scripted import check_scripted, make_scripted
from arena.parts.paths import PolicyName
from arena.plain import clean_text
from arena.play.control import CONTINUE, Continue, Decision, MatchControl, Replace, Stop
from arena.play.match import MatchPlan
from arena.play.parts.base import PartContext, RolloutPart, SeatedGame, declare, learner_seats
from arena.play.texts import normalise_act
from arena.records import MatchRecord
from games.contracts import CUT, Act, Game, View

MATCH = "match"
"""Name of the reward for an act equal to the expert's, which is 1."""


def _check_tables(tables: Sequence[SeatedGame], policies: Mapping[str, bool], *, expert: str, most: int | None) -> None:
    """Raise ValueError if the expert cannot play a learner's seat."""
    for table in tables:
        for seat in (seat for seat, policy in table.holders.items() if policies.get(policy)):
            try:
                check_scripted(expert, table.make_game(), seat)
            except ScriptedPolicyError as error:
                raise ValueError(f"expert: {error}") from None


@declare(check_tables=_check_tables, rewards=(MATCH,))
def patch(
    context: PartContext, *, expert: PolicyName, most: Annotated[int, Field(ge=0, le=10**4)] | None = None
) -> RolloutPart:
    """Replace learners' wrong acts by an expert's. After `most` patches the match stops at the next wrong act.

    `expert` is a scripted policy, such as `oracle`, or path/to/file.py:function. An act is wrong if it differs from the
    expert's. `most: null` means no limit; 0 stops the match at the first wrong act.
    """
    return Patch(expert, most)


class Patch(RolloutPart):
    """Rollout part that replaces learners' wrong acts by an expert's."""

    def __init__(self, expert: str, most: int | None) -> None:
        self.expert, self.most = expert, most

    def control(self, plan: MatchPlan, game: Game) -> MatchControl | None:
        """Return the control that patches a match, with one expert per learner, or None without learners."""
        experts = {seat: make_scripted(self.expert, plan.seed % 2**32, game) for seat in learner_seats(plan)}
        return _Patches(self.expert, experts, self.most) if experts else None

    def metrics(self, records: Sequence[MatchRecord]) -> dict[str, dict[str, float]]:
        """Return the section `patches` of the metrics; see `patch_metrics`."""
        figures = patch_metrics(records)
        return {"patches": figures} if figures else {}


class _Patches(MatchControl):
    """Control that patches one match."""

    def __init__(self, name: str, experts: Mapping[str, ScriptedPolicy], most: int | None) -> None:
        self.name, self.experts, self.most = name, experts, most
        self.count = 0

    def before(self, view: View, act: Act) -> Decision:
        """Reward a learner's act if it equals the expert's, else replace it, or stop the match after `most` patches.

        Raises ScriptedPolicyError if the expert's act is not a text.
        """
        if (expert := self.experts.get(view.seat)) is None:
            return CONTINUE
        expected = expert.act(view)
        if not isinstance(expected, str):
            raise ScriptedPolicyError(f"{self.name} must answer with a text, not with {type(expected).__name__}")
        if normalise_act(act.action) == normalise_act(expected := clean_text(expected)):
            return Continue({MATCH: 1.0})
        self.count += 1
        if self.most is not None and self.count > self.most:
            return Stop(f"{view.seat} departs from the expert")
        return Replace(expected)


def patch_metrics(records: Sequence[MatchRecord]) -> dict[str, float]:
    """Return metrics of learners whose wrong acts are patched; {} if no act was wrong.

    `count` is the number of patches per match, `agreed` the share of acts equal to the expert's. Three metrics measure
    semi-online performance (UI-S1): `progress`, the number of acts before the first wrong one as a share of the
    solution's length; `success`, the share of matches finished without a wrong act; and `sop`, the mean of both. The
    solution's length is the game's figure `shortest`, or else the number of acts that the game read.
    """
    turns = [[t for t in r.turns if r.seats[t.seat].trained] for r in records]
    sources = [[turn.source for turn in each] for each in turns]
    if not any("replaced" in each for each in sources):
        return {}
    progress, success = list[float](), list[float]()
    for record, each in zip(records, sources, strict=True):
        own = [source for source in each if source in ("policy", "replaced")]
        right = own.index("replaced") if "replaced" in own else len(own)
        length = float(record.report.get("shortest", 0)) or max(1, len(each) - each.count("replaced"))
        progress.append(min(1.0, right / length))
        success.append(float("replaced" not in own and record.report.get("ended") not in CUT))
    acts = [source for each in sources for source in each]
    replaced, agreed = acts.count("replaced"), acts.count("policy")
    sop_parts = sum(progress) / len(records), sum(success) / len(records)
    return {
        "count": acts.count("patch") / len(records),
        "agreed": agreed / max(1, agreed + replaced),
        "progress": sop_parts[0],
        "success": sop_parts[1],
        "sop": sum(sop_parts) / 2,
    }
