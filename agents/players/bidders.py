"""Scripted players that name numbers: auction bids, prices, offers and contributions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from agents.player import ScriptedPolicy
from games.contracts import View

AUCTIONS = ("first_price_auction", "second_price_auction")


class FunctionPolicy:
    """Policy that acts by a function of the view; the seed changes nothing."""

    def __init__(self, plan: Callable[[View], str], seed: int = 0) -> None:
        self.plan = plan

    def act(self, view: View) -> str:
        """Return the act that the function chooses at this view."""
        return self.plan(view)


# Auctions.


def truthful_bidder(view: View) -> str:
    """Bid the own value: weakly dominant in a second-price auction."""
    return f"BID {view.private['value']}"


def shading_bidder(view: View) -> str:
    """Bid (n - 1) / n of the own value, rounded up: the equilibrium of n bidders in a first-price auction."""
    players, value = view.public["players"], view.private["value"]
    return f"BID {-(-(players - 1) * value // players)}"


def greedy_bidder(view: View) -> str:
    """Bid 1, in the hope that nobody else bids."""
    return "BID 1"


# Haggling. A limit is the price at which a deal gains nothing: the seller's cost, the buyer's value.


def _haggle(view: View, target: Callable[[int, int, int, int], int]) -> str:
    """Accept a price as good as the target, else name the target; return the act.

    `target` takes the limit (cost or value), the best possible price, and the turns played and left.
    """
    facts, sells = view.public, "cost" in view.private
    limit = view.private["cost" if sells else "value"]
    price = target(limit, facts["max_price"] if sells else 1, facts["turn"], facts["turns_left"])
    offered = facts["price"]
    good = offered is not None and (offered >= price if sells else offered <= price)
    return "ACCEPT" if good else f"PRICE {price}"


def truthful_haggler(view: View) -> str:
    """Name the own cost or value as the price, and accept any price that is no worse."""
    return _haggle(view, lambda limit, dream, turn, left: limit)


def conceding_haggler(view: View) -> str:
    """Concede in equal steps from the best possible price to the own cost or value at the last act."""

    def target(limit: int, dream: int, turn: int, left: int) -> int:
        made, to_come = turn // 2, (left - 1) // 2
        return limit + math.trunc((dream - limit) * to_come / max(1, made + to_come))

    return _haggle(view, target)


def hard_haggler(view: View) -> str:
    """Insist on the price halfway between the own cost or value and the best one, rounded in the own favour."""
    return _haggle(view, lambda limit, dream, turn, left: limit + _round_away((dream - limit) / 2))


def _round_away(x: float) -> int:
    return math.ceil(x) if x > 0 else math.floor(x)


# The ultimatum game.


def fair_splitter(view: View) -> str:
    """Offer half of the pie, rounded down, and reject less."""
    half = view.public["pie"] // 2
    offer = view.public["offer"]
    return f"OFFER {half}" if offer is None else "ACCEPT" if offer >= half else "REJECT"


def greedy_splitter(view: View) -> str:
    """Subgame perfect: offer one coin, and accept any offer above zero."""
    offer = view.public["offer"]
    return "OFFER 1" if offer is None else "ACCEPT" if offer else "REJECT"


# Public goods.


def free_rider(view: View) -> str:
    """Give nothing: dominant if a coin returns less than a coin to its giver."""
    return "GIVE 0"


def contributor(view: View) -> str:
    """Give everything."""
    return f"GIVE {view.public['endowment']}"


def conditional_contributor(view: View) -> str:
    """Give everything first, then the others' average contribution of the last round, rounded down."""
    history = view.public["history"]
    if not history:
        return contributor(view)
    contributions = history[-1]
    others = sum(contributions) - contributions[int(view.seat.removeprefix("player_"))]
    return f"GIVE {others // (len(contributions) - 1)}"


# Liar's dice.


def bid_probability(view: View, bid: str) -> float:
    """Return the probability that a liar's dice bid such as "BID 2 5" is true, given the seat's own dice."""
    own = view.private["dice"]
    bids = [*view.public["bids"], *(word for word in view.legal or () if word != "LIAR")]
    wild = int(bids[-1].split()[-1])  # the highest bid there is names the highest side, which is wild
    count, face = map(int, bid.split()[1:])
    faces, others = {face, wild}, len(own)
    chance, missing = len(faces) / wild, count - sum(die in faces for die in own)
    return sum(
        math.comb(others, k) * chance**k * (1 - chance) ** (others - k) for k in range(max(0, missing), others + 1)
    )


def plain_dealer(view: View) -> str:
    """Make the most probable bid, the lowest among equals; say LIAR if that is more probably right."""
    bids = view.public["bids"]
    right = {word: bid_probability(view, word) for word in view.legal or () if word != "LIAR"}
    if bids:
        right["LIAR"] = 1 - bid_probability(view, bids[-1])
    return max(right, key=right.__getitem__)


def bluffer(view: View) -> str:
    """Make the lowest remaining bid, whatever the dice; say LIAR if none is left or the dice disprove the last bid."""
    bids = view.public["bids"]
    lowest = (view.legal or ("LIAR",))[0]
    return "LIAR" if bids and not bid_probability(view, bids[-1]) else lowest


PLANS: Mapping[Callable[[View], str], tuple[str, ...]] = {
    truthful_bidder: AUCTIONS, shading_bidder: AUCTIONS, greedy_bidder: AUCTIONS,
    truthful_haggler: ("haggle",), conceding_haggler: ("haggle",), hard_haggler: ("haggle",),
    fair_splitter: ("ultimatum",), greedy_splitter: ("ultimatum",),
    free_rider: ("public_goods",), contributor: ("public_goods",), conditional_contributor: ("public_goods",),
    plain_dealer: ("liars_dice",), bluffer: ("liars_dice",),
}  # fmt: skip


def _policy_factory(plan: Callable[[View], str]) -> Callable[[int], ScriptedPolicy]:
    def make(seed: int) -> ScriptedPolicy:
        return FunctionPolicy(plan, seed)

    make.__doc__ = plan.__doc__  # what a list of scripted policies shows
    return make


SCRIPTED: dict[str, Callable[[int], ScriptedPolicy]] = {plan.__name__: _policy_factory(plan) for plan in PLANS}

GAMES = {plan.__name__: games for plan, games in PLANS.items()}
