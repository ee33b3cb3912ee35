"""Tree rollouts: some of a deal's matches branch from others, at turns chosen by chance or by the policy's entropy.

A match is a function of its deal and the replies in it, so a branch is played after its parent match. The branching
turns are chosen turn by turn over all matches of a deal, as if they were played at once, and never depend on later
turns. A branch may have branches. If no further turn is branched, the remaining matches start from the deal.

At a learner's turn, not its first, a branch has the probability

    p = clip(1 - (1 - chance) / (1 - chain · l) + weight · (H - H_first), 0, 1),    0 where chain · l >= 1,

with H the entropy of the reply (summed over its first `tokens` tokens, divided by the log of the vocabulary size),
H_first that of the seat's first reply, and l the number of consecutive branched turns of the path just before.
Sources: ARPO (Dong et al. 2025): chance .5, weight .2, 8 of 16 matches start at the deal. AEPO (Dong et al. 2025):
chain .05, and int(k · sigmoid((H_first - H_later) / 2)) + 1 of k matches start at the deal, by the entropies of the
first match (`first: auto`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from typing import Annotated, Any, Literal

from pydantic import Field

from arena.parts.chance import generator
from arena.parts.spec import Matches
from arena.play.branches import Branch
from arena.play.match import MatchPlan
from arena.play.parts.base import Expansion, PartContext, Progress, RolloutPart, Setup, declare
from arena.records import POLICY_SOURCES, MatchRecord, Turn, find_reply
from games.contracts import MAX_BRANCHES, MatchId


def _check(setup: Setup, *, first: int | Literal["auto"], trigger: str, **settings: Any) -> None:
    """Raise ValueError unless `group` has room for branches and the engine records the entropies that they need."""
    play = setup.play
    if play.part("branches") or play.part("adaptive") or play.enough < 1:
        raise ValueError("trees plan a deal's matches themselves: leave out branches and adaptive, set enough to 1")
    if play.group < 2 or (first != "auto" and first >= play.group):
        raise ValueError(f"there are no branches besides the first {first}: raise play.group, which is {play.group}")
    if (trigger == "entropy" or first == "auto") and not setup.has_entropy:
        raise ValueError(
            "branches by entropy, which the engine does not record: set engine.entropy to true, or trigger to random "
            "and `first` to a number"
        )


@declare(check=_check)
def trees(
    context: PartContext,
    *,
    first: Matches | Literal["auto"] = "auto",
    trigger: Literal["entropy", "random"] = "entropy",
    chance: Annotated[float, Field(ge=0, le=1)] = 0.5,
    weight: Annotated[float, Field(ge=0, le=1e6)] = 0.2,
    chain: Annotated[float, Field(ge=0, le=1)] = 0.0,
    tokens: Annotated[int, Field(ge=1, le=10**6)] = 20,
) -> RolloutPart:
    """Play some matches of a `group` as branches of others, by the module's formula.

    `first` matches start at the deal; `auto` derives their number from the entropies of the first match (AEPO). With
    `trigger: random`, a control, entropies do not count. `chance` is the branching probability of a turn with the
    entropy of the first reply, `weight` its increase per unit of entropy, `chain` the penalty for each consecutive
    branched turn just before (AEPO: 0.05). The entropies of a reply's first `tokens` tokens are summed.
    """
    return Trees(
        context, TreeRule(first=first, trigger=trigger, chance=chance, weight=weight, chain=chain, tokens=tokens)
    )


@dataclass(frozen=True, kw_only=True)
class TreeRule:
    """Settings of `trees`."""

    first: int | Literal["auto"] = "auto"
    trigger: Literal["entropy", "random"] = "entropy"
    chance: float = 0.5
    weight: float = 0.2
    chain: float = 0.0
    tokens: int = 20


class Trees(RolloutPart):
    """Trees of the deals of each iteration."""

    def __init__(self, context: PartContext, rule: TreeRule) -> None:
        self.context, self.rule = context, rule
        self.trees: dict[int, list[Tree]] = {}
        """Trees that may still grow, by iteration."""
        self.seen: dict[int, int] = {}
        """Number of ended matches that the trees of an iteration know."""

    async def plan(self, k: int, plans: list[MatchPlan]) -> list[MatchPlan]:
        """Hold back each deal's matches except the first ones."""
        deals: dict[int, list[MatchPlan]] = {}
        for plan in plans:
            deals.setdefault(plan.group, []).append(plan)
        sizes = {name: policy.frame.vocabulary_size for name, policy in self.context.policies.items()}
        new = [Tree(deal, self.rule, sizes, self.context.seed) for deal in deals.values()]
        self.trees.setdefault(k, []).extend(new)
        return [plan for tree in new for plan in tree.next_plans()]

    async def expand(self, k: int, progress: Progress) -> Expansion:
        """Return the next matches of all trees. A match that was given up is not replaced."""
        trees = {identity: tree for tree in self.trees[k] for identity in tree.identities}
        for record in progress.ended[self.seen.get(k, 0) :]:
            if tree := trees.get(record.identity.lineage()[0].first_attempt):
                tree.add_match(record)
        plans = [plan for tree in self.trees[k] for plan in tree.next_plans()]
        if plans:
            self.seen[k] = len(progress.ended)
        else:
            del self.trees[k]
            self.seen.pop(k, None)
        return Expansion(plans=plans)


@dataclass
class _Path:
    """Finished match of a deal's tree, whose later turns may be branched."""

    plan: MatchPlan
    record: MatchRecord
    chain: int
    """Number of consecutive branched turns before the next one."""


class Tree:
    """Planner of one deal's matches and branches. `next_plans` returns plans to play; `add_match` takes the results."""

    def __init__(self, plans: Sequence[MatchPlan], rule: TreeRule, vocabulary_size: dict[str, int], seed: int) -> None:
        """Prepare a tree with one match per plan. `vocabulary_size` is by policy; `seed` is the run's."""
        self.rule, self.vocabulary_size, self.seed = rule, vocabulary_size, seed
        self._plans, self._started, self._remaining = list(plans), 0, len(plans)
        """Plans of matches that start at the deal, number of those started, and number of matches still to plan."""
        self._paths: list[_Path] = []
        self._chains: dict[MatchId, int] = {}
        """`_Path.chain` of the branches in progress."""
        self._turn = 0
        """Next turn to consider for branching."""
        self._decide_starts = rule.first == "auto"
        """True until the first match's entropies have decided how many matches start at the deal (`first: auto`)."""

    @property
    def identities(self) -> list[MatchId]:
        """Identities of the deal's plans; every branch descends from one of them."""
        return [plan.identity for plan in self._plans]

    def next_plans(self) -> list[MatchPlan]:
        """Return the plans to play next, once all earlier ones have ended; [] if every match of the tree is planned."""
        if not self._started:
            return self._take_plans(1 if self.rule.first == "auto" else self.rule.first)
        if self._decide_starts:
            self._decide_starts = False
            if self._paths and (more := self._take_plans(self._count_starts(self._paths[0].record) - 1)):
                return more
        while self._remaining and self._turn < max((len(path.record.turns) for path in self._paths), default=0):
            branches = list(self._draw_branches())
            self._turn += 1
            if branches:
                return branches
        return self._take_plans(self._remaining)

    def add_match(self, record: MatchRecord) -> None:
        """Add a finished match of the tree, whose turns may then be branched."""
        plan = next(plan for plan in self._plans if plan.identity == record.identity.lineage()[0].first_attempt)
        self._paths.append(_Path(plan, record, self._chains.pop(record.identity.first_attempt, 0)))

    def _take_plans(self, count: int) -> list[MatchPlan]:
        """Take up to `count` further plans of matches that start at the deal."""
        plans = self._plans[self._started : self._started + min(count, self._remaining)]
        self._started, self._remaining = self._started + len(plans), self._remaining - len(plans)
        return plans

    def _draw_branches(self) -> Iterator[MatchPlan]:
        """Yield the plans of branches drawn at the current turn, at most one per finished match."""
        for path in self._paths:
            if not self._remaining or not (turn := self._find_branchable_turn(path)):
                continue
            place = (path.record.iteration, "tree", str(path.record.identity.first_attempt), f"{turn.index}")
            coin = generator(self.seed, *place).random()
            if coin >= self.branch_probability(path.record, turn, path.chain):
                path.chain = 0
                continue
            path.chain += 1
            self._remaining -= 1
            branch = Branch(path.record, turn.index)
            self._chains[branch.identity] = path.chain
            yield replace(path.plan, identity=branch.identity, branch=branch, source="branched")

    def _find_branchable_turn(self, path: _Path) -> Turn | None:
        """Return the current turn of a path, or None if it must not be branched.

        It must be written by a learner, not be the seat's first turn, and follow the path's own branch turn.
        """
        record, identity = path.record, path.record.identity
        if self._turn >= len(record.turns) or self._turn <= identity.turn:
            return None
        turn = record.turns[self._turn]
        is_learners = record.seats[turn.seat].trained and turn.source in POLICY_SOURCES
        if not is_learners or len(identity.lineage()) >= MAX_BRANCHES:
            return None
        return turn if any(one.seat == turn.seat for one in record.turns[: self._turn]) else None

    def branch_probability(self, record: MatchRecord, turn: Turn, chain: int) -> float:
        """Return a turn's branching probability p (see the module), without its entropy term if `trigger` is random."""
        if (room := 1.0 - self.rule.chain * chain) <= 0:
            return 0.0
        rise = 0.0
        if self.rule.trigger == "entropy":
            first = next(one for one in record.turns if one.seat == turn.seat)
            rise = self.entropy(record, turn) - self.entropy(record, first)
        return min(1.0, max(0.0, 1.0 - (1.0 - self.rule.chance) / room + self.rule.weight * rise))

    def entropy(self, record: MatchRecord, turn: Turn) -> float:
        """Return the entropy of a reply's first `rule.tokens` tokens, divided by the log of the vocabulary size."""
        stream, begin, end = find_reply(record.streams[turn.seat], turn.index)
        nats = sum(stream.entropy[begin : min(end, begin + self.rule.tokens)])
        return nats / log(self.vocabulary_size[record.seats[turn.seat].policy])

    def _count_starts(self, record: MatchRecord) -> int:
        """Return AEPO's number of matches that start at the deal, from the reply entropies of the first match."""
        first, later = list[float](), list[float]()
        for seat, seating in record.seats.items():
            entropies = [self.entropy(record, turn) for turn in record.turns if seating.trained and turn.seat == seat]
            first, later = first + entropies[:1], later + entropies[1:]
        gap = sum(first) / max(1, len(first)) - sum(later) / max(1, len(later))
        count = len(self._plans)
        return min(count, max(1, int(count / (1.0 + exp(-0.5 * gap))) + 1))
