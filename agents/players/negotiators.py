"""Scripted negotiators, which know the rules of the game `negotiation` and their seat's view.

Three follow one rule with different aspirations: accept an offer worth at least the aspiration, else demand a share
that is just worth it. `rubinstein` lowers its demand each turn by the risk of breakdown. The exploiters know the
opponent's rule but not its values: they track all value vectors consistent with the rules and the acts so far and
maximise the expected gain, assuming no breakdown.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from agents.player import ScriptedPolicy
from games.contracts import View

Triple = tuple[int, ...]  # always three: counts or values per item, by kind
Aspiration = Callable[[int, int], float]
"""(turns played, turns left) -> aspiration: the least value to the seat for which it settles."""

WORTH = 10
"""Value of the whole pool to either seat."""
SURE_VALUE = 8
"""Value from which `Naive` always accepts an offer."""


class Table(NamedTuple):
    """A seat's parsed view of a negotiation."""

    pool: Triple
    """Number of items of each kind."""
    values: Triple
    """Value of one item of each kind to the seat."""
    offer: Triple | None
    """Share that the other side demands; None without an offer."""
    turn: int
    """Number of turns played."""
    turns_left: int
    """Remaining turns, including this one."""
    breakdown: float
    """Probability that a counteroffer ends the match."""

    @property
    def offer_value(self) -> int:
        """Value to the seat of accepting the standing offer; 0 without one."""
        return worth(self.values, remainder(self.pool, self.offer)) if self.offer is not None else 0


def parse_view(view: View) -> Table:
    """Parse the view of a seat in the game `negotiation`."""
    facts = view.public
    pool, values = tuple(facts["pool"]), tuple(view.private["values"])
    offer = tuple(map(int, facts["offer"].split())) if facts["offer"] else None
    return Table(
        pool=pool,
        values=values,
        offer=offer,
        turn=facts["turn"],
        turns_left=facts["turns_left"],
        breakdown=facts.get("breakdown", 0.0),
    )


def worth(values: Triple, share: Triple) -> int:
    """Return the value of a share, given the values per item of each kind."""
    return values[0] * share[0] + values[1] * share[1] + values[2] * share[2]


def remainder(pool: Triple, share: Triple) -> Triple:
    """Return the items of the pool that a share leaves to the other side, by kind."""
    return pool[0] - share[0], pool[1] - share[1], pool[2] - share[2]


@functools.lru_cache(maxsize=64)
def list_shares(pool: Triple) -> tuple[Triple, ...]:
    """Return all possible shares of the pool, each with counts by kind."""
    return tuple(itertools.product(*(range(count + 1) for count in pool)))


def choose_demand(pool: Triple, values: Triple, aspiration: float) -> Triple:
    """Return the least valuable share that is worth at least the aspiration, with the fewest items in a tie."""
    priced_shares = [(worth(values, share), sum(share), share) for share in list_shares(pool)]
    return min(entry for entry in priced_shares if entry[0] >= aspiration)[2]


def format_offer(share: Triple) -> str:
    """Return the act that demands a share, such as "OFFER 1 0 2"."""
    return "OFFER " + " ".join(map(str, share))


def concede(turn: int, turns_left: int) -> float:
    """Settle for the full value at first, then for less in equal steps: 10, 8, 6, 4, 2 in ten turns.

    Returns the aspiration.
    """
    acts_left = (turns_left + 1) // 2
    return WORTH * acts_left / (acts_left + turn // 2)


def insist(turn: int, turns_left: int) -> float:
    """Settle for 8 of 10 at every turn.

    Returns the aspiration.
    """
    return 8


def split_evenly(turn: int, turns_left: int) -> float:
    """Settle for half of the full value at every turn.

    Returns the aspiration.
    """
    return WORTH / 2


def decide(seen: Table, aspiration: float) -> str:
    """Return ACCEPT if the standing offer is worth at least `aspiration`, else an OFFER demanding just that."""
    if seen.offer is not None and seen.offer_value >= aspiration:
        return "ACCEPT"
    return format_offer(choose_demand(seen.pool, seen.values, aspiration))


class AspirationNegotiator:
    """Negotiator that accepts an offer worth at least its aspiration, and else demands that much.

    It is deterministic: `seed` has no effect.
    """

    def __init__(self, aspiration: Aspiration, seed: int = 0) -> None:
        self.aspiration = aspiration

    def act(self, view: View) -> str:
        """Return ACCEPT or an OFFER act."""
        seen = parse_view(view)
        return decide(seen, self.aspiration(seen.turn, seen.turns_left))

    def chances(self, view: View) -> dict[str, float]:
        """Return probability 1 for the act that `act` returns."""
        return {self.act(view): 1.0}


class Rubinstein:
    """Negotiator that demands its share in Rubinstein's bargaining model, reduced by the risk of breakdown.

    The first mover gets 1 / (1 + d) of the pool's value and the other d / (1 + d), with d = 1 - breakdown; each turn
    multiplies the demand by d. Without risk both demand half.
    """

    def __init__(self, seed: int = 0) -> None:
        pass

    def act(self, view: View) -> str:
        """Return ACCEPT or an OFFER act."""
        seen = parse_view(view)
        patience = 1 - seen.breakdown
        return decide(seen, WORTH / (1 + patience) * patience**seen.turn)


class Naive:
    """Negotiator that offers random splits, and accepts with a probability of an eighth of the offer's value.

    If its view lists splits, it offers one of these. It uses its own values only to decide whether to accept.
    """

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)

    def act(self, view: View) -> str:
        """Return ACCEPT with the probability that `accepts` returns, else a random OFFER act."""
        if self.rng.random() < self.accepts(parse_view(view)):
            return "ACCEPT"
        offers = list_offers(view)
        return offers[self.rng.integers(len(offers))]

    def chances(self, view: View) -> dict[str, float]:
        """Return the probability of ACCEPT and of each possible OFFER act."""
        accepts, offers = self.accepts(parse_view(view)), list_offers(view)
        return {"ACCEPT": accepts, **{offer: (1 - accepts) / len(offers) for offer in offers}}

    def accepts(self, seen: Table) -> float:
        """Return the probability of accepting the standing offer: its value / 8, at most 1; 0 without an offer."""
        return min(1.0, seen.offer_value / SURE_VALUE)


class Novice(Naive):
    """Negotiator that knows only the format of acts: offers random splits, and accepts with probability .5."""

    def accepts(self, seen: Table) -> float:
        """Return the probability of accepting: one half if there is an offer, else 0."""
        return 0.0 if seen.offer is None else 0.5


def list_offers(view: View) -> list[str]:
    """Return OFFER acts for the splits that the view lists, else for all shares of the pool."""
    splits = view.private.get("splits")
    return (
        [f"OFFER {share}" for share, *_ in splits]
        if splits
        else [format_offer(s) for s in list_shares(parse_view(view).pool)]
    )


class RandomExploiter:
    """Best response to a uniformly random negotiator: demands everything, and accepts by optimal stopping."""

    def __init__(self, seed: int = 0) -> None:
        pass

    def act(self, view: View) -> str:
        """Return ACCEPT if continuing is not worth more on average, else an OFFER that demands the full pool."""
        seen = parse_view(view)
        if seen.offer is not None and seen.offer_value >= self.expected_gain(seen.pool, seen.values, seen.turns_left):
            return "ACCEPT"
        return format_offer(seen.pool)

    def expected_gain(self, pool: Triple, values: Triple, turns_left: int) -> float:
        """Return the expected gain of demanding everything now and stopping optimally later."""
        if turns_left < 2:
            return 0.0
        later = self.expected_gain(pool, values, turns_left - 2)
        replies = [max(worth(values, share), later) if turns_left > 2 else 0.0 for share in list_shares(pool)]
        return (WORTH + sum(replies)) / (len(replies) + 2)


class AspirationExploiter:
    """Best response to a negotiator of known aspiration and unknown values; `seed` has no effect.

    The opponent's possible value vectors ("minds") are equally likely. A set of minds is a bit mask. Gains are summed
    over a set, not averaged, so that sums over disjoint sets add up.
    """

    def __init__(self, aspiration: Aspiration, seed: int = 0) -> None:
        self.aspiration = aspiration
        self.turns = 0

    def act(self, view: View) -> str:
        """Return ACCEPT or the OFFER with the greatest expected gain, after learning from the opponent's last act."""
        seen = parse_view(view)
        if seen.turn < 2 or seen.turn + seen.turns_left != self.turns:
            self._start_match(seen)
        elif seen.offer is not None:
            self._learn(seen.turn - 1, seen.offer)
        gain, share = self._find_best_demand(seen.turn, self.belief)
        if seen.offer is not None and seen.offer_value * self.belief.bit_count() >= gain:
            return "ACCEPT"
        self.last_demand = share
        return format_offer(share)

    def _start_match(self, seen: Table) -> None:
        """Start a match: list the opponent's possible value vectors, and by turn what each accepts and demands."""
        pool, own = seen.pool, seen.values
        vectors = itertools.product(*(range(WORTH // count + 1) for count in pool))
        minds = [
            v for v in vectors
            if worth(v, pool) == WORTH and all(map(max, v, own)) and any(map(min, v, own))
        ]  # fmt: skip
        self.turns = seen.turn + seen.turns_left
        self.all_minds = self.belief = (1 << len(minds)) - 1
        self.gains = {share: worth(own, share) for share in list_shares(pool)}
        self.remainder_gains = {share: worth(own, remainder(pool, share)) for share in list_shares(pool)}
        self.options: dict[int, dict[Triple, int]] = {}
        self.demands: dict[int, dict[Triple, int]] = {}
        self.best_demands: dict[tuple[int, int], tuple[int, Triple]] = {}
        for turn in range(1 - seen.turn % 2, self.turns, 2):
            aspiration = self.aspiration(turn, self.turns - turn)
            self.options[turn] = {
                share: sum(1 << i for i, v in enumerate(minds) if worth(v, remainder(pool, share)) >= aspiration)
                for share in sorted(list_shares(pool), key=self.gains.__getitem__, reverse=True)
            }
            demands = self.demands.setdefault(turn, {})
            for i, v in enumerate(minds):
                share = choose_demand(pool, v, aspiration)
                demands[share] = demands.get(share, 0) | 1 << i
        if seen.offer is not None:
            self._restrict_belief(self.demands[seen.turn - 1].get(seen.offer, 0))

    def _learn(self, turn: int, share: Triple) -> None:
        """Restrict the belief to value vectors that would refuse our last demand and demand `share` at this turn."""
        self._restrict_belief(self.demands[turn].get(share, 0) & ~self.options[turn][self.last_demand])

    def _restrict_belief(self, minds: int) -> None:
        # If no mind is left, the opponent does not play by the known rule: start again with all of them.
        self.belief = self.belief & minds or self.all_minds

    def _find_best_demand(self, turn: int, minds: int) -> tuple[int, Triple]:
        """Return the greatest sum of gains over `minds` from demanding a share at this turn, and that share; cached."""
        if (turn, minds) not in self.best_demands:
            best: dict[int, tuple[int, Triple]] = {}
            for share, takers in self.options.get(turn + 1, dict.fromkeys(self.gains, 0)).items():
                takers &= minds
                if takers not in best:
                    later = self._expect_refusals(turn + 1, minds & ~takers)
                    best[takers] = self.gains[share] * takers.bit_count() + later, share
            self.best_demands[turn, minds] = max(best.values())
        return self.best_demands[turn, minds]

    def _expect_refusals(self, turn: int, minds: int) -> int:
        """Return the sum of future gains over `minds`, all of which refuse at this turn and make their own demand."""
        if not minds or turn + 1 >= self.turns:
            return 0
        total = 0
        for share, group in self.demands[turn].items():
            if group := group & minds:
                total += max(
                    self.remainder_gains[share] * group.bit_count(), self._find_best_demand(turn + 1, group)[0]
                )
        return total


ASPIRATIONS: dict[str, Aspiration] = {"conceder": concede, "hard_liner": insist, "fair_split": split_evenly}

SCRIPTED: dict[str, Callable[[int], ScriptedPolicy]] = {
    "novice": Novice,
    "naive": Naive,
    "rubinstein": Rubinstein,
    "exploiter:random": RandomExploiter,
    **{n: functools.partial(AspirationNegotiator, rule) for n, rule in ASPIRATIONS.items()},
    **{f"exploiter:{n}": functools.partial(AspirationExploiter, rule) for n, rule in ASPIRATIONS.items()},
}
