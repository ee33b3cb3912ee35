"""Trees: some of a deal's matches part from others of it, at turns that chance or the policy's entropy picks.

A match is a function of its deal and the replies in it, so a branch is played after the match that it parts from; which
turns are branched is decided turn by turn over all matches of a deal, as if they were played at once. What is decided
at a turn depends on nothing that comes later. A branch may be branched in turn. What is left of the deal's matches when
no turn is branched any more is played from the deal on.

At a learner's turn, not its first, a branch has the probability

    p = clip(1 - (1 - chance) / (1 - chain · l) + weight · (H - H_first), 0, 1),    0 where chain · l >= 1,

H the entropy of the reply: the sum over its first `tokens` tokens, in units of the log of the vocabulary; H_first that
of the seat's first reply; l the number of the path's turns just before that were branched, one after the other.
Sources: ARPO (Dong et al. 2025): chance .5, weight .2, 8 of 16 from the deal on. AEPO (Dong et al. 2025): chain .05,
and of k matches int(k · sigmoid((H_first - H_later) / 2)) + 1 from the deal on, by the first's replies (`first: auto`).
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
    """A match of a tree, as long as turns of it may be branched."""

    plan: MatchPlan
    record: MatchRecord
    chain: int
    """Number of its turns, just before the next, that were branched one after the other."""


class Tree:
    """The matches of one deal: which are to be played next, from the deal on or as branches."""

    def __init__(self, plans: Sequence[MatchPlan], rule: TreesSpec, vocabulary: Mapping[str, int], seed: int) -> None:
        """`plans` are as many as the tree is to have matches; `vocabulary` is by policy; `seed` is the run's."""
        self.rule, self.vocabulary, self.seed = rule, vocabulary, seed
        self._plans, self._begun, self._left = list(plans), 0, len(plans)
        """Matches of the tree: those that began at the deal, and those that are still to be planned."""
        self._paths: list[_Path] = []
        self._chains: dict[MatchId, int] = {}
        """Of branches that are being played."""
        self._turn = 0
        """The next turn to decide about."""
        self._auto = rule.first == "auto"
        """Whether the first match is still to say how many begin at the deal."""

    def next(self) -> list[MatchPlan]:
        """Plans of what is played next, once all that was planned has ended; none when the tree is whole."""
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
        """Take in a match of the tree that was finished."""
        plan = next(plan for plan in self._plans if plan.identity == record.identity.line()[0].planned)
        self._paths.append(_Path(plan, record, self._chains.pop(record.identity.planned, 0)))

    def _dealt(self, count: int) -> list[MatchPlan]:
        """The next plans of matches that begin at the deal, as many as are left at most."""
        plans = self._plans[self._begun : self._begun + min(count, self._left)]
        self._begun, self._left = self._begun + len(plans), self._left - len(plans)
        return plans

    def _branches(self) -> Iterator[MatchPlan]:
        """Plans of the branches that part at the present turn, from each of the paths at most one."""
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
        """The path's present turn, where it may be branched: a learner's own, not its first nor a branch's first."""
        record, identity = path.record, path.record.identity
        if self._turn >= len(record.turns) or self._turn <= (-1 if identity.turn is None else identity.turn):
            return None
        turn = record.turns[self._turn]
        own = record.seats[turn.seat].trained and turn.source in OWN
        if not own or len(identity.line()) >= MOST_BRANCHES:
            return None
        return turn if any(one.seat == turn.seat for one in record.turns[: self._turn]) else None

    def chance(self, record: MatchRecord, turn: Turn, chain: int) -> float:
        """The probability p of a branch at a turn, as above; without the term of the entropy where chance decides."""
        if (room := 1.0 - self.rule.chain * chain) <= 0:
            return 0.0
        rise = 0.0
        if self.rule.trigger == "entropy":
            first = next(one for one in record.turns if one.seat == turn.seat)
            rise = self.entropy(record, turn) - self.entropy(record, first)
        return min(1.0, max(0.0, 1.0 - (1.0 - self.rule.chance) / room + self.rule.weight * rise))

    def entropy(self, record: MatchRecord, turn: Turn) -> float:
        """The sum of the entropies of a reply's first tokens, by the log of the vocabulary."""
        stream, begin, end = place_of(record.streams[turn.seat], turn.index)
        nats = sum(stream.entropy[begin : min(end, begin + self.rule.tokens)])
        return nats / log(self.vocabulary[record.seats[turn.seat].policy])

    def _from_the_deal(self, record: MatchRecord) -> int:
        """AEPO's number of matches that begin at the deal, by the entropies of one's first and later replies."""
        first, later = list[float](), list[float]()
        for seat, seating in record.seats.items():
            own = [self.entropy(record, turn) for turn in record.turns if seating.trained and turn.seat == seat]
            first, later = first + own[:1], later + own[1:]
        gap = sum(first) / max(1, len(first)) - sum(later) / max(1, len(later))
        count = len(self._plans)
        return min(count, max(1, int(count / (1.0 + exp(-0.5 * gap))) + 1))


async def grown(
    trees: Sequence[Tree], play: Callable[[list[MatchPlan]], Awaitable[tuple[list[MatchRecord], list[MatchRecord]]]]
) -> tuple[list[MatchRecord], list[MatchRecord]]:
    """Play trees to their ends, all at the same pace; the matches that finished and the attempts that failed.

    A match that is given up is not played in another's place.
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
