"""Outcome of one finished match of an evaluation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from arena.records import MatchRecord
from games.contracts import UNREAD

LEARNED = "learned"
"""Figure of a reward model's scores."""


@dataclass(frozen=True)
class MatchOutcome:
    """Outcome of a finished match: payoffs, number of acts and of illegal ones by seat, and the game's report."""

    payoffs: Mapping[str, float]
    acts: Mapping[str, int]
    """Number of acts by seat."""
    invalid: Mapping[str, int]
    """Number of illegal acts by seat."""
    offender: str
    """Seat whose illegal act ended the match; "" if none did."""
    report: Mapping[str, float | bool | str]
    learned: Mapping[str, float] = field(default_factory=dict)
    """Scores of a reward model by seat, for seats with weights; {} without a reward model."""
    tokens: Mapping[str, int] = field(default_factory=dict)
    """Number of sampled tokens by seat."""

    def score(self, seats: Sequence[str]) -> float:
        """Return the score of the player at these seats: 1 for a win, 0.5 for a draw, 0 for a loss.

        If an illegal act ended the match, the offender's score is 0 and that of others 0.5.
        """
        if self.offender:
            return 0.0 if self.offender in seats else 0.5
        best = max(self.payoffs.values())
        winners = [seat for seat, payoff in self.payoffs.items() if payoff == best]
        if not set(winners) & set(seats):
            return 0.0
        return 1.0 if len(winners) == 1 else 0.5

    def payoff(self, seats: Sequence[str]) -> float:
        """Return the mean payoff over `seats`, those of the evaluated player."""
        return float(np.mean([self.payoffs[seat] for seat in seats]))

    def figures(self, seats: Sequence[str], is_scored: bool) -> dict[str, float | bool]:
        """Return the figures of the player at `seats`: payoff, share of illegal acts, and the report's numbers.

        `turns` counts the acts of all seats, `tokens` those that the player sampled, if any. With `is_scored` also
        `win`. `learned` is the reward model's mean score of those seats that have one.
        """
        acts = sum(self.acts[seat] for seat in seats)
        invalid = sum(self.invalid[seat] for seat in seats) / acts if acts else math.nan
        figures: dict[str, float | bool] = {"payoff": self.payoff(seats), "invalid": invalid}
        figures |= {"win": self.score(seats) == 1} if is_scored else {}
        if scores := [self.learned[seat] for seat in seats if seat in self.learned]:
            figures[LEARNED] = float(np.mean(scores))
        figures |= {"turns": float(sum(self.acts.values()))}
        if tokens := sum(self.tokens.get(seat, 0) for seat in seats):
            figures["tokens"] = float(tokens)
        return figures | {n: v for n, v in self.report.items() if n not in figures and not isinstance(v, str)}


def read_outcome(record: MatchRecord, learned: Mapping[str, float]) -> MatchOutcome:
    """Return the outcome of a finished match. `learned` are a reward model's scores by seat."""
    acts = Counter(turn.seat for turn in record.turns if turn.source not in UNREAD)
    invalid = Counter(turn.seat for turn in record.turns if not turn.valid)
    last = record.turns[-1] if record.turns else None
    offender = last.seat if last and not last.valid and record.report["ended"] == "illegal" else ""
    tokens = Counter[str]()
    for turn in record.turns:
        tokens[turn.seat] += turn.tokens
    return MatchOutcome(record.payoffs, acts, invalid, offender, record.report, learned, tokens)
