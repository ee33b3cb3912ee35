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

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log

from arena.credit.samples import OWN
from arena.parts.chance import generator
from arena.play.branches import Branch
from arena.play.match import MatchPlan
from arena.play.settings import TreesSpec
from arena.records import MatchRecord, Turn, place_of
from games.contracts import MOST_BRANCHES, MatchId


@dataclass
class _Path:
    """Finished match of a deal's tree, whose later turns may be branched."""

    plan: MatchPlan
    record: MatchRecord
    chain: int
    """Number of consecutive branched turns before the next one."""


class Tree:
    """Planner of a deal's matches and branches: `next` returns the plans to play, `ended` adds each finished match."""

    def __init__(self, plans: Sequence[MatchPlan], rule: TreesSpec, vocabulary: Mapping[str, int], seed: int) -> None:
        """Plan as many matches as `plans`. `vocabulary` has the vocabulary size by policy; `seed` is the run's."""
        self.rule, self.vocabulary, self.seed = rule, vocabulary, seed
        self._plans, self._begun, self._left = list(plans), 0, len(plans)
        """Plans by match that starts at the deal, number of started ones, and number of matches still to plan."""
        self._paths: list[_Path] = []
        self._chains: dict[MatchId, int] = {}
        """`_Path.chain` of the branches in progress."""
        self._turn = 0
        """Next turn to consider for branching."""
        self._auto = rule.first == "auto"
        """True until the first match has decided how many matches start at the deal."""

    def next(self) -> list[MatchPlan]:
        """Return the plans to play next, once all earlier ones have ended; [] if every match of the tree is planned."""
        if not self._begun:
            return self._dealt(1 if self.rule.first == "auto" else self.rule.first)
        if self._auto:
            self._auto = False
            if self._paths and (more := self._dealt(self._from_the_deal(self._paths[0].record) - 1)):
                return more
        while self._left and self._turn < max((len(path.record.turns) for path in self._paths), default=0):
            branches = list(self._branches())
            self._turn += 1
            if branches:
                return branches
        return self._dealt(self._left)

    def ended(self, record: MatchRecord) -> None:
        """Add a finished match of the tree, whose turns may then be branched."""
        plan = next(plan for plan in self._plans if plan.identity == record.identity.line()[0].planned)
        self._paths.append(_Path(plan, record, self._chains.pop(record.identity.planned, 0)))

    def _dealt(self, count: int) -> list[MatchPlan]:
        """Take up to `count` further plans of matches that start at the deal."""
        plans = self._plans[self._begun : self._begun + min(count, self._left)]
        self._begun, self._left = self._begun + len(plans), self._left - len(plans)
        return plans

    def _branches(self) -> Iterator[MatchPlan]:
        """Yield the plans of branches drawn at the current turn, at most one per finished match."""
        for path in self._paths:
            if not self._left or not (turn := self._open(path)):
                continue
            place = (path.record.iteration, "tree", str(path.record.identity.planned), f"{turn.index}")
            coin = generator(self.seed, *place).random()
            if coin >= self.chance(path.record, turn, path.chain):
                path.chain = 0
                continue
            path.chain += 1
            self._left -= 1
            branch = Branch(path.record, turn.index)
            self._chains[branch.identity] = path.chain
            yield replace(path.plan, identity=branch.identity, branch=branch, source="branched")

    def _open(self, path: _Path) -> Turn | None:
        """Return the current turn of a path, or None if it must not be branched.

        It must be written by a learner, not the seat's first turn, and after the path's own branch turn.
        """
        record, identity = path.record, path.record.identity
        if self._turn >= len(record.turns) or self._turn <= (-1 if identity.turn is None else identity.turn):
            return None
        turn = record.turns[self._turn]
        own = record.seats[turn.seat].trained and turn.source in OWN
        if not own or len(identity.line()) >= MOST_BRANCHES:
            return None
        return turn if any(one.seat == turn.seat for one in record.turns[: self._turn]) else None

    def chance(self, record: MatchRecord, turn: Turn, chain: int) -> float:
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
        stream, begin, end = place_of(record.streams[turn.seat], turn.index)
        nats = sum(stream.entropy[begin : min(end, begin + self.rule.tokens)])
        return nats / log(self.vocabulary[record.seats[turn.seat].policy])

    def _from_the_deal(self, record: MatchRecord) -> int:
        """Return AEPO's number of matches that start at the deal, from the reply entropies of the first match."""
        first, later = list[float](), list[float]()
        for seat, seating in record.seats.items():
            own = [self.entropy(record, turn) for turn in record.turns if seating.trained and turn.seat == seat]
            first, later = first + own[:1], later + own[1:]
        gap = sum(first) / max(1, len(first)) - sum(later) / max(1, len(later))
        count = len(self._plans)
        return min(count, max(1, int(count / (1.0 + exp(-0.5 * gap))) + 1))


async def play_trees(
    trees: Sequence[Tree], play: Callable[[list[MatchPlan]], Awaitable[tuple[list[MatchRecord], list[MatchRecord]]]]
) -> tuple[list[MatchRecord], list[MatchRecord]]:
    """Play all trees level by level with `play`, and return finished matches and failed attempts.

    A match that was given up is not replaced.
    """
    records, failures = list[MatchRecord](), list[MatchRecord]()
    while plans := [(plan, tree) for tree in trees for plan in tree.next()]:
        of = {plan.identity: tree for plan, tree in plans}
        played, failed = await play([plan for plan, _ in plans])
        for record in played:
            of[record.identity.planned].ended(record)
        records += played
        failures += failed
    return records, failures
