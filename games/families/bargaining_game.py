"""Base class of bargaining games: statistics, best responses, and texts for people.

The rules are in the game's own file, the theory in games.families.bargaining, the texts in bargaining_words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from games.base import IllegalAct, TextGame
from games.contracts import View
from games.families import bargaining, bargaining_words
from games.families.pools import Triple, frontier, remainder

ACT = re.compile(r"\s*(?:OFFER\s+(\d+)\s+(\d+)\s+(\d+)|(ACCEPT)|(WALK))\s*", re.ASCII | re.IGNORECASE)


def parse_act(act: str) -> bargaining.Answer:
    """Parse an act to a demanded share, "ACCEPT" or "WALK". Raises IllegalAct for any other text."""
    match = ACT.fullmatch(act)
    if match is None:
        raise IllegalAct("write OFFER and three numbers, or ACCEPT, or WALK")
    if match[1] is None:
        return "ACCEPT" if match[4] else "WALK"
    return int(match[1]), int(match[2]), int(match[3])


class BargainingGame(TextGame):
    """Base class of games in which two seats divide a pool of three kinds of items.

    It has figures, best responses and texts for people. A subclass adds the rules and sets the fields below.
    """

    items: tuple[str, ...]
    pool: Triple
    values: dict[str, Triple]
    """Worth of one item of each kind, by seat."""
    offer: Triple | None
    """Share that the seat that moved last demands, or None."""
    movers: tuple[str, str]
    """Seat that moves first, and the other seat."""
    has_public_values: bool
    """Whether values are public."""
    shows_splits: bool
    """Whether seats see the Pareto-optimal splits."""
    max_turns: int
    breakdown: float

    def figures(self) -> dict[str, float | bool | str]:
        """Return `deal`, whether there was a deal, and the statistics of `games.families.bargaining.figures`."""
        totals = self.payoffs()
        payoffs = [totals[seat] for seat in self.movers]
        deals, perfect = self._solve()
        return {"deal": self.ended == "deal", **bargaining.figures(payoffs, deals, perfect)}

    def best_response(self, seat: str, chances: Callable[[View], Mapping[str, float]]) -> float:
        """Return the expected payoff of this seat's best response on this deal, or NaN if that takes too long.

        `chances` is the other side's memoryless strategy: it maps a view to act probabilities.
        """
        return self.best_against_mixture(seat, [chances])

    def best_against_mixture(self, seat: str, members: Sequence[Callable[[View], Mapping[str, float]]]) -> float:
        """Return the best expected payoff against a uniformly drawn member that the seat does not know.

        Each member is a memoryless strategy: it maps the other side's view to act probabilities. NaN if that takes too
        long.
        """
        first, answers = self.movers[0] == seat, [self._answer_function(seat, chances) for chances in members]
        return bargaining.best_against_mixture(
            self.pool, self.values[seat], first, self.max_turns, self.breakdown, answers
        )

    def _answer_function(self, seat: str, chances: Callable[[View], Mapping[str, float]]) -> bargaining.Chances:
        """Return a function from turn and `seat`'s demand (None: none yet) to the other side's act probabilities."""
        (other,) = (name for name in self.seats if name != seat)
        table = self.clone()

        def answers(turn: int, offer: Triple | None) -> dict[bargaining.Answer, float]:
            table.turns, table.offer = turn, offer
            probabilities = dict[bargaining.Answer, float]()
            view = View(
                seat=other,
                turn=turn,
                messages=(),
                rules="",
                public=table.public(),
                private=table.private(other),
                legal=None,
            )
            for act, p in chances(view).items():
                answer = parse_act(act)
                probabilities[answer] = probabilities.get(answer, 0.0) + p
            return probabilities

        return answers

    def introduction(self, seat: str) -> str:
        """Explain to a person the pool, its worth as far as the seat knows, and how to type an act."""
        limits = bargaining_words.Limits(self.max_turns, self.breakdown, self.talk)
        return bargaining_words.write_introduction(self._describe_side(seat), limits, seat == self.movers[0])

    def in_words(self, seat: str) -> str:
        """Describe the other side's standing offer and the remaining turns to the person at the seat to move."""
        turns_left, has_offer = self.max_turns - self.turns, self.offer is not None
        table = bargaining_words.describe_offer(self._describe_side(seat), self.offer)
        return f"{table} {bargaining_words.describe_time_left(turns_left, has_offer, self.breakdown)}"

    def act_in_words(self, act: str) -> str:
        """Describe the other side's act to a person. Returns "" if it is no act."""
        try:
            return bargaining_words.describe_act(parse_act(act), self.items)
        except IllegalAct:
            return ""

    def epilogue(self, people: Sequence[str]) -> tuple[bargaining_words.Rows, str]:
        """Return a table that compares both sides' shares and values with theory, and a summary, for people."""
        (first, second), (deals, perfect) = self.movers, self._solve()
        names = bargaining_words.name_seats(self.movers, people)
        # The turn passes on after a legal act, but not after an illegal one.
        idle, last = self.agent_selection, self.next_seat(self.agent_selection)
        shares = None
        if self.offer is not None:
            split = self.offer, remainder(self.pool, self.offer)
            shares = split if first == (idle if self.ended in ("deal", "walk") else last) else split[::-1]
        reason = {
            "walk": f"{names[last]} walked away", "turns": "no turns were left", "breakdown": "the talks broke down",
        }.get(self.ended, f"{names[idle]} made no legal act")  # fmt: skip
        outcome = bargaining_words.Outcome(
            self.movers, self.items, self.pool, (self.values[first], self.values[second]), shares,
            self.ended == "deal", reason, max(map(sum, deals)), bargaining.find_nash_deals(deals), perfect,
        )  # fmt: skip
        return bargaining_words.compare_with_theory(outcome, names), bargaining_words.summarise(outcome, names)

    def _solve(self) -> tuple[tuple[bargaining.Deal, ...], bargaining.Deal | None]:
        """Return the Pareto-optimal payoffs, first mover's first, and the subgame-perfect ones if values are public."""
        deals = frontier(self.pool, *(self.values[seat] for seat in self.movers))
        stages = bargaining.subgame_perfect(deals, self.max_turns, self.breakdown) if self.has_public_values else ()
        return deals, stages[0].offer if stages else None

    def _describe_side(self, seat: str) -> bargaining_words.Side:
        other = self.values[self.next_seat(seat)] if self.has_public_values else None
        splits = (
            bargaining.list_efficient_splits(self.pool, self.values[seat], other) if self.shows_splits and other else []
        )
        return bargaining_words.Side(self.items, self.pool, self.values[seat], other, splits)
