"""Theory of two-sided bargaining with alternating offers over a given set of deals.

A deal is a pair of payoffs: the first mover's and the other side's. No deal pays both sides 0. The Nash (1950) deal has
the greatest product. With known payoffs, backward induction gives the subgame-perfect play of Rubinstein's (1982)
alternating offers, here with a last turn, a risk of breakdown instead of impatience (Binmore, Rubinstein and Wolinsky
1986), and indivisible items.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from operator import mul
from typing import Any, Literal, NamedTuple

from games.contracts import View
from games.families.pools import Triple, frontier, remainder, splits, worth

Deal = tuple[int, int]
Answer = Triple | Literal["ACCEPT", "WALK"]
"""Act of a side at its turn: ACCEPT the offer, WALK away, or make an offer by demanding this share."""


class Stage(NamedTuple):
    """Subgame-perfect play at one turn: accept any offer worth at least `expected`, else make `offer`.

    Payoffs are the first mover's, then the other side's. Delay never pays, because the other side would accept now the
    deal that both would agree on at the next turn.
    """

    offer: Deal
    """Deal to offer, which is accepted at the next turn; (0, 0) at the last turn, when no offer can be accepted."""
    expected: tuple[Fraction, Fraction]
    """Expected payoffs of making the offer."""


@functools.lru_cache(maxsize=1024)
def subgame_perfect(deals: tuple[Deal, ...], turns: int, breakdown: float) -> tuple[Stage, ...]:
    """Return subgame-perfect play at turns 0 to `turns` - 1, by backward induction.

    At each turn a side accepts or offers one of these deals. An offer at the last turn ends the talks; an offer that
    answers another one ends them with probability `breakdown`. An indifferent side accepts; among equally good offers,
    it makes the best one for the other side. Fractions are exact, so that ties are ties.
    """
    continuation = 1 - Fraction(str(breakdown))
    stages = [Stage((0, 0), (Fraction(0), Fraction(0)))]
    for turn in reversed(range(turns - 1)):
        mover, other = turn % 2, 1 - turn % 2
        least = math.ceil(stages[-1].expected[other])
        best = max((deal for deal in deals if deal[other] >= least), key=lambda deal: (deal[mover], deal[other]))
        chance = continuation if turn else Fraction(1)
        stages.append(Stage(best, (chance * best[0], chance * best[1])))
    return tuple(reversed(stages))


def find_share(pool: Triple, own: Triple, other: Triple, deal: Deal) -> Triple:
    """Return a share of the pool that yields the payoffs `deal`, own payoff first.

    `own` and `other` are both sides' values per item. Of several such shares, returns one that splits the fewest kinds
    of items. Raises ValueError if there is none.
    """
    shares = (share for share in splits(pool) if (worth(own, share), worth(other, remainder(pool, share))) == deal)
    return min(shares, key=lambda share: sum(0 < n < count for n, count in zip(share, pool, strict=True)))


def list_efficient_splits(pool: Triple, own: Triple, other: Triple) -> list[tuple[str, int, int]]:
    """Return the Pareto-optimal splits as (one side's share "a b c", its worth to that side, the rest's to the other).

    `own` and `other` are both sides' values per item. The best split for the first side comes first. Of several shares
    with equal payoffs, one is returned.
    """
    deals = frontier(pool, own, other)
    return [("{} {} {}".format(*find_share(pool, own, other, deal)), *deal) for deal in deals]


@functools.lru_cache(maxsize=1024)
def find_nash_deals(deals: tuple[Deal, ...]) -> tuple[Deal, ...]:
    """Return the deals with the greatest product of payoffs (Nash bargaining solution), usually one. Cached."""
    greatest = max(map(math.prod, deals))
    return tuple(deal for deal in deals if math.prod(deal) == greatest)


@functools.lru_cache(maxsize=1024)
def _best_values(deals: tuple[Deal, ...]) -> tuple[int, int, float, float]:
    """Return the greatest sum and product of payoffs, and each side's mean payoff over the Nash deals."""
    nash = find_nash_deals(deals)
    first, second = (sum(side) / len(nash) for side in zip(*nash, strict=True))
    return max(map(sum, deals)), math.prod(nash[0]), first, second


def figures(payoffs: Sequence[float], deals: tuple[Deal, ...], equilibrium: Deal | None = None) -> dict[str, float]:
    """Return figures by name that compare a bargaining result with the Pareto-optimal deals and with theory.

    `payoffs` and deals have the first mover first.

    - joint_value: sum of payoffs; best_joint_value: its maximum; efficiency: the ratio of both
    - nash_product_raw: product of payoffs; nash_product: its ratio to the maximum
    - pareto_distance: Euclidean distance to the nearest Pareto-optimal deal that is worse for neither side
    - nash_distance: Euclidean distance to the nearest Nash deal
    - nash_payoff_first, nash_payoff_second: mean payoffs over the Nash deals
    - payoff_first, payoff_second: the payoffs
    - equilibrium_distance, equilibrium_payoff_first, equilibrium_payoff_second: for `equilibrium`, if given
    """
    first, second = payoffs
    joint, product, nash_first, nash_second = _best_values(deals)
    better = [deal for deal in deals if deal[0] >= first and deal[1] >= second]
    result = {
        "joint_value": first + second, "best_joint_value": float(joint), "efficiency": (first + second) / joint,
        "nash_product": first * second / product, "nash_product_raw": first * second,
        "pareto_distance": _distance(payoffs, better), "nash_distance": _distance(payoffs, find_nash_deals(deals)),
        "payoff_first": first, "payoff_second": second,
        "nash_payoff_first": nash_first, "nash_payoff_second": nash_second,
    }  # fmt: skip
    if equilibrium:
        result["equilibrium_distance"] = _distance(payoffs, [equilibrium])
        result |= zip(("equilibrium_payoff_first", "equilibrium_payoff_second"), map(float, equilibrium), strict=True)
    return result


def _distance(payoffs: Sequence[float], deals: Sequence[Sequence[float]]) -> float:
    return min(math.dist(payoffs, deal) for deal in deals)


Chances = Callable[[int, Triple | None], Mapping[Answer, float]]
"""Memoryless strategy of a side: `chances(turn, offer)` returns its act probabilities at `turn`, after the other side
demanded `offer` (None: no offer yet)."""
MAX_BELIEFS = 5_000
"""Number of beliefs after which `best_against_mixture` gives up, after some seconds.

Four turns against six members need dozens.
"""


def best_response(
    pool: Triple, own: Triple, moves_first: bool, turns: int, breakdown: float, chances: Chances
) -> float:
    """Return the best expected payoff of a side with values `own` against a known, memoryless strategy, `chances`.

    Uses backward induction over turns 0 to `turns` - 1 under the rules of `subgame_perfect`. Exact up to rounding; NaN
    if there are too many beliefs.
    """
    return best_against_mixture(pool, own, moves_first, turns, breakdown, [chances])


def best_against_mixture(
    pool: Triple, own: Triple, moves_first: bool, turns: int, breakdown: float, members: Sequence[Chances]
) -> float:
    """Return the best expected payoff of a side against a uniformly drawn member, without knowing which one it is.

    The side knows the deal and every member's probabilities. This is the Bayes-adaptive best response (Martin 1967;
    Duff 2002): since members have no memory, a belief b over members is a sufficient statistic of the past. If member i
    answers a demand x at the next turn with act a with probability p_i(a | x), and goes_on is the probability that
    the talks continue,

        V(turn, b) = goes_on * max over x of [ own(x) * sum_i b_i p_i(ACCEPT | x)
                     + goes_on * sum over demands y of P(y) * max(own(rest of y), V(turn + 2, b given y)) ],

    with P(y) = sum_i b_i p_i(y | x), and b given y = b_i p_i(y | x) / P(y). The talks cannot break down after the
    opening offer. With one member this is `best_response`. Returns NaN if there are more than `MAX_BELIEFS` beliefs.
    """
    goes_on, prior = 1 - breakdown, tuple(1 / len(members) for _ in members)
    collect = functools.cache(functools.partial(_collect_answers, members))

    @functools.cache
    def evaluate_offer(turn: int, belief: tuple[float, ...]) -> float:
        """Return the expected value of the best offer at this turn; 0 if no turn is left to accept it."""
        if turn + 1 == turns:
            return 0.0
        if evaluate_offer.cache_info().currsize > MAX_BELIEFS:
            raise OverflowError
        return (goes_on if turn else 1.0) * max(evaluate_demand(turn + 1, share, belief) for share in splits(pool))

    def evaluate_demand(turn: int, share: Triple, belief: tuple[float, ...]) -> float:
        """Return the expected value of having demanded `share` when the other side answers at this turn."""
        answers = collect(turn, share)
        accepted = sum(map(mul, belief, answers["ACCEPT"])) * worth(own, share) if "ACCEPT" in answers else 0.0
        return accepted if turn + 1 == turns else accepted + goes_on * evaluate_answers(turn, answers, belief)

    def evaluate_answers(turn: int, answers: Mapping[Answer, tuple[float, ...]], belief: tuple[float, ...]) -> float:
        """Return the expected value over the answers that are demands: the side accepts, or makes its best offer."""
        total = 0.0
        for demand, by_member in answers.items():
            joint = [b * p for b, p in zip(belief, by_member, strict=True)]
            if isinstance(demand, tuple) and (chance := sum(joint)):
                posterior = tuple(round(p / chance, 12) for p in joint)  # rounded, so that equal beliefs share a cache
                total += chance * max(float(worth(own, remainder(pool, demand))), evaluate_offer(turn + 1, posterior))
        return total

    try:
        if moves_first:
            return evaluate_offer(0, prior)
        return evaluate_answers(0, collect(0, None), prior) if turns > 1 else 0.0
    except OverflowError:
        return math.nan


def _collect_answers(members: Sequence[Chances], turn: int, offer: Triple | None) -> dict[Answer, tuple[float, ...]]:
    """Return the probabilities of each answer to this offer at this turn, in the order of the members."""
    answers = [chances(turn, offer) for chances in members]
    return {answer: tuple(member.get(answer, 0.0) for member in answers) for answer in dict.fromkeys(chain(*answers))}


@dataclass(frozen=True)
class Rule:
    """Deterministic, memoryless scripted player that plays by the function `act`."""

    act: Callable[[View], str]

    def __call__(self, view: View) -> str:
        return self.act(view)

    def chances(self, view: View) -> dict[str, float]:
        """Return probability 1 for the player's act."""
        return {self.act(view): 1.0}


def subgame_perfect_player(game: object, seed: int) -> Rule:
    """Return the subgame-perfect player of `negotiation` with public values. `game` and `seed` have no effect."""
    return Rule(_perfect_act)


def nash_bargaining_player(game: object, seed: int) -> Rule:
    """Return a player of `negotiation` with public values that offers the Nash deal.

    It accepts any offer worth at least its payoff in that deal times the probability that the talks do not break down,
    and at the last turn every offer. `game` and `seed` have no effect.
    """
    return Rule(_nash_act)


class _Position(NamedTuple):
    """State of the talks as the side to move sees it: `own` and `other` are both sides' values per item."""

    pool: Triple
    own: Triple
    other: Triple
    turn: int
    turns: int
    breakdown: float
    offer_value: int | None
    """Own payoff of accepting the standing offer; None without one."""

    @property
    def deals(self) -> tuple[Deal, ...]:
        """All Pareto-optimal deals, own payoff first."""
        return frontier(self.pool, self.own, self.other)

    def offer(self, deal: Deal) -> str:
        """Return the act `OFFER a b c` that demands a share with these payoffs, own payoff first."""
        return "OFFER {} {} {}".format(*find_share(self.pool, self.own, self.other, deal))


def _read_position(view: View) -> _Position:
    facts = view.public
    pool, own = tuple(facts["pool"]), tuple(facts["values"][view.seat])
    (other,) = (tuple(values) for seat, values in facts["values"].items() if seat != view.seat)
    offer_value = worth(own, remainder(pool, tuple(map(int, facts["offer"].split())))) if facts["offer"] else None
    turns = facts["turn"] + facts["turns_left"]
    return _Position(pool, own, other, facts["turn"], turns, facts.get("breakdown", 0.0), offer_value)


def _perfect_act(view: View) -> str:
    position = _read_position(view)
    mover = position.turn % 2
    sides = (position.own, position.other) if mover == 0 else (position.other, position.own)
    stage = subgame_perfect(frontier(position.pool, *sides), position.turns, position.breakdown)[position.turn]
    if position.offer_value is not None and position.offer_value >= stage.expected[mover]:
        return "ACCEPT"
    if position.turn + 1 == position.turns:  # no offer can be accepted any more
        return "OFFER {} {} {}".format(*position.pool)
    return position.offer((stage.offer[mover], stage.offer[1 - mover]))


def _nash_act(view: View) -> str:
    position = _read_position(view)
    deals = find_nash_deals(position.deals)
    least = 0 if position.turn + 1 == position.turns else (1 - position.breakdown) * min(own for own, _ in deals)
    if position.offer_value is not None and position.offer_value >= least:
        return "ACCEPT"
    return position.offer(max(deals))


PLAYERS: Mapping[str, Callable[[Any, int], Callable[[View], str]]] = {
    "nash_bargaining": nash_bargaining_player,
    "subgame_perfect": subgame_perfect_player,
}
"""Scripted players of `negotiation` with public values, by name."""
