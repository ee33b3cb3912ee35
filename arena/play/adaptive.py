"""Adaptive allocation of attempts and lengths to deals by their earlier outcomes, if deals repeat (`play.pool`).

Attempts with equal outcomes teach a group estimator nothing. So each deal gets `least` attempts, and the others are
allocated in proportion to the standard deviation of the outcome, √(p(1 - p)) (Neyman allocation). p is the success
rate with one success and one failure added, so new deals are the least certain. For example, of 16 deals with 8
attempts on average and `least` 2, 8 deals solved 30 times of 30 get 5 each, and 8 deals solved every second time 11.
Source: DART-GUI (Li et al. 2025): fewer than 8 attempts if more than .6 succeed, and a length limit per task, that of
its longest success. Its stored successes for tasks never solved are `learn.replay: success`.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from typing import Any

from arena.play.settings import AdaptiveSpec, apportion
from arena.records import MatchRecord

ATTEMPTS, SUCCESSES, LONGEST = range(3)


class History:
    """Outcomes of each deal so far: attempts, successes, turns of its longest success. They set later attempts."""

    def __init__(self, rule: AdaptiveSpec, state: Mapping[str, Sequence[int]]) -> None:
        """Restore a checkpoint's `state` or {}. Raises ValueError for a deal with more successes than attempts."""
        self.rule = rule
        if wrong := [deal for deal, row in state.items() if row[SUCCESSES] > row[ATTEMPTS]]:
            raise ValueError(f"deal {wrong[0]} was solved more often than it was played")
        self._deals: dict[str, list[int]] = {deal: list(row) for deal, row in state.items()}

    def add(self, records: Iterable[MatchRecord]) -> None:
        """Count each match as an attempt, and as a success if its trained seats' mean payoff exceeds `rule.above`."""
        for record in records:
            row = self._deals.setdefault(_key(record.game, record.seed), [0, 0, 0])
            row[ATTEMPTS] += 1
            if _mean_payoff(record) > self.rule.above:
                row[SUCCESSES] += 1
                row[LONGEST] = max(row[LONGEST], len(record.turns))

    def attempts(self, deals: Sequence[tuple[str, int]], total: int) -> list[int]:
        """Return the number of attempts for each deal (game, seed), in order, `total` in all.

        Each deal gets `rule.least`. The rest is in proportion to the standard deviation of its outcomes.
        """
        shares = [sqrt(p * (1 - p)) for p in (self._rate(*deal) for deal in deals)]
        more = apportion(total - self.rule.least * len(deals), shares)
        return [self.rule.least + count for count in more]

    def options(self, game: str, seed: int, options: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """Return a deal's game options and the name of the option that was lowered, or "" if none was.

        The option `rule.cap` is lowered to the number of turns of the deal's longest success, if that is below its
        value.
        """
        cap, row = self.rule.cap, self._deals.get(_key(game, seed))
        if cap is None or row is None or not row[SUCCESSES] or row[LONGEST] >= options[cap]:
            return dict(options), ""
        return {**options, cap: row[LONGEST]}, cap

    def state(self) -> dict[str, list[int]]:
        """Return attempts, successes and turns of the longest success by deal (as "game seed"), for the checkpoint."""
        return self._deals

    def _rate(self, game: str, seed: int) -> float:
        """Return a deal's success rate with one success and one failure added: 1/2 for a new deal."""
        attempts, successes, _ = self._deals.get(_key(game, seed), (0, 0, 0))
        return (successes + 1) / (attempts + 2)


def _key(game: str, seed: int) -> str:
    return f"{game} {seed}"


def _mean_payoff(record: MatchRecord) -> float:
    """Return the mean payoff of the match's trained seats; 0 without any. A missing payoff counts as 0."""
    paid = [record.payoffs.get(seat, 0.0) for seat, seating in record.seats.items() if seating.trained]
    return sum(paid) / max(1, len(paid))
