"""Scripted players of auctions, haggling, the ultimatum game, public goods and liar's dice."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

from agents.player import ScriptedPolicy
from agents.players.simple import FunctionPlayer
from games.contracts import View

AUCTIONS = ("first_price_auction", "second_price_auction")


# Auctions.


def truthful_bidder(view: View) -> str:
    """Bid its own value: weakly dominant in a second-price auction."""
    return f"BID {view.private['value']}"


def shading_bidder(view: View) -> str:
    """Bid (n - 1) / n of its own value, rounded up: the equilibrium of n bidders in a first-price auction."""
    players, value = view.public["players"], view.private["value"]
    return f"BID {-(-(players - 1) * value // players)}"


def greedy_bidder(view: View) -> str:
    """Bid 1, in the hope that nobody else bids."""
    return "BID 1"


# Haggling. The limit is the price at which a deal gains nothing: the seller's cost, or the buyer's value.


def _haggle(view: View, target: Callable[[int, int, int, int], int]) -> str:
    """Return ACCEPT if the other side's price is at least as good as the target, else propose the target.

    `target` takes the limit (cost or value), the best possible price, and the numbers of turns played and left.
    """
    facts, sells = view.public, "cost" in view.private
    limit = view.private["cost" if sells else "value"]
    price = target(limit, facts["max_price"] if sells else 1, facts["turn"], facts["turns_left"])
    price_offered = facts["price"]
    good = price_offered is not None and (price_offered >= price if sells else price_offered <= price)
    return "ACCEPT" if good else f"PRICE {price}"


def truthful_haggler(view: View) -> str:
    """Propose its own cost or value as the price, and accept any price that is no worse."""
    return _haggle(view, lambda limit, best, turn, turns_left: limit)


def conceding_haggler(view: View) -> str:
    """Concede in equal steps, from the best possible price at first to its own cost or value at its last act."""

    def target(limit: int, best: int, turn: int, turns_left: int) -> int:
        acts_made, acts_left = turn // 2, (turns_left - 1) // 2
        return limit + math.trunc((best - limit) * acts_left / max(1, acts_made + acts_left))

    return _haggle(view, target)


def hard_haggler(view: View) -> str:
    """Insist on the price halfway between its own cost or value and the best price, rounded in its own favour."""
    return _haggle(view, lambda limit, best, turn, turns_left: limit + _round_away((best - limit) / 2))


def _round_away(x: float) -> int:
    return math.ceil(x) if x > 0 else math.floor(x)


# The ultimatum game.


def fair_splitter(view: View) -> str:
    """Offer half of the pie, rounded down, and reject any smaller offer."""
    half = view.public["pie"] // 2
    offer = view.public["offer"]
    return f"OFFER {half}" if offer is None else "ACCEPT" if offer >= half else "REJECT"


def greedy_splitter(view: View) -> str:
    """Offer one coin, and accept any offer above zero, which is subgame perfect."""
    offer = view.public["offer"]
    return "OFFER 1" if offer is None else "ACCEPT" if offer else "REJECT"


# Public goods.


def free_rider(view: View) -> str:
    """Give nothing, which is dominant if the giver gets back less than a coin for each coin given."""
    return "GIVE 0"


def contributor(view: View) -> str:
    """Give everything."""
    return f"GIVE {view.public['endowment']}"


def conditional_contributor(view: View) -> str:
    """Give everything at first, then the others' average contribution of the last round, rounded down."""
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
    wild = int(bids[-1].split()[-1])  # the highest possible bid, listed last, names the highest side, which is wild
    count, face = map(int, bid.split()[1:])
    faces, others = {face, wild}, len(own)
    chance, missing = len(faces) / wild, count - sum(die in faces for die in own)
    return sum(
        math.comb(others, k) * chance**k * (1 - chance) ** (others - k) for k in range(max(0, missing), others + 1)
    )


def plain_dealer(view: View) -> str:
    """Make the most probable bid, the lowest of a tie, or say LIAR if that is more likely to be right."""
    bids = view.public["bids"]
    chances = {word: bid_probability(view, word) for word in view.legal or () if word != "LIAR"}
    if bids:
        chances["LIAR"] = 1 - bid_probability(view, bids[-1])
    return max(chances, key=chances.__getitem__)


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


SCRIPTED: dict[str, Callable[[int], ScriptedPolicy]] = {plan.__name__: partial(FunctionPlayer, plan) for plan in PLANS}

GAMES = {plan.__name__: games for plan, games in PLANS.items()}
