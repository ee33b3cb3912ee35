"""Adaptive allocation of attempts and lengths to deals by their earlier outcomes, if deals repeat (`play.pool`).

Attempts with equal outcomes teach a group estimator nothing. So each deal gets `least` attempts, and the others are
allocated in proportion to the standard deviation of the outcome, √(p(1 - p)) (Neyman allocation). p is the success
rate with one success and one failure added, so that new deals have the largest deviation. For example, of 16 deals with
8 attempts on average and `least` 2, 8 deals that were always solved (30 of 30) get 5 each, and 8 deals that were solved
half of the time get 11. Source: DART-GUI (Li et al. 2025), which gives fewer than 8 attempts to tasks with a success
rate above .6, and limits a task's length to that of its longest success. For its replay of stored successes see
`learn.replay: success`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import sqrt
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, TypeAdapter

from arena.parts.apportion import apportion
from arena.parts.spec import Name
from arena.play.match import MatchPlan
from arena.play.parts.base import PartContext, RolloutPart, Setup, declare
from arena.records import MatchRecord

ATTEMPTS, SUCCESSES, LONGEST = range(3)
_OUTCOMES = TypeAdapter(dict[str, Annotated[list[NonNegativeInt], Field(min_length=3, max_length=3)]])


def _check(setup: Setup, *, above: float, least: int, cap: str | None) -> None:
    """Raise ValueError unless deals repeat in groups of at least `least`, and every game sets the option `cap`."""
    play = setup.play
    if not play.pool:
        raise ValueError("it needs deals that repeat: set play.pool")
    if least > play.group:
        raise ValueError(f"least is {least}, more than play.group, which is {play.group}")
    if play.part("resample") or play.part("branches"):
        raise ValueError("it plays groups of different sizes: leave out resample and branches")
    if cap is None:
        return
    other = play.part("horizon")
    if other and other.with_defaults().settings["option"]:
        raise ValueError("`cap` and the option of horizon both limit the length of matches: set one to null")
    for game, options in setup.games:
        if not isinstance(options.get(cap), int):
            raise ValueError(
                f"{cap} is lowered from its value in the game's options: set {cap} to a number in the options of {game}"
            )


@declare(check=_check)
def adaptive(
    context: PartContext,
    *,
    above: Annotated[float, Field(ge=-1e9, le=1e9)] = 0.0,
    least: Annotated[int, Field(ge=1, le=10**6)] = 2,
    cap: Name | None = None,
) -> RolloutPart:
    """Allocate attempts to deals by their earlier outcomes, for deals that repeat (`play.pool`).

    A match is a success if the mean payoff of its trained seats is above `above`. Each deal of an iteration gets at
    least `least` attempts. `cap` names the game's option that limits turns, such as `max_turns`; for solved deals it is
    lowered to the length of their longest success. null lowers nothing.
    """
    return Adaptive(above, least, cap)


class Adaptive(RolloutPart):
    """Allocation of attempts and lengths by the earlier outcomes of each deal."""

    def __init__(self, above: float, least: int, cap: str | None) -> None:
        self.above, self.least, self.cap = above, least, cap
        self._deals: dict[str, list[int]] = {}
        """[attempts, successes, turns of the longest success] by deal ("game seed")."""

    async def plan(self, k: int, plans: list[MatchPlan]) -> list[MatchPlan]:
        """Distribute the plans' total number of attempts over their deals, and cap the length of solved deals."""
        deals = [list(group) for _, group in groupby(plans, _deal_key)]
        counts = self.split_attempts([(deal[0].game, deal[0].seed) for deal in deals], len(plans))
        number, adapted = plans[0].identity.deal, list[MatchPlan]()
        for deal, count in zip(deals, counts, strict=True):
            options, capped = self.cap_options(deal[0].game, deal[0].seed, deal[0].options)
            for attempt in range(count):
                identity = replace(deal[0].identity, deal=number + len(adapted))
                # Plans of a group differ in the first of their `draws`, the number of the attempt.
                draws = (attempt, *deal[0].draws[1:]) if deal[0].group >= 0 else deal[0].draws
                adapted.append(replace(deal[0], identity=identity, draws=draws, options=dict(options), capped=capped))
        return adapted

    def observe(self, k: int, records: Sequence[MatchRecord]) -> None:
        """Count each match as an attempt, and as a success if its trained seats' mean payoff exceeds `above`."""
        for record in records:
            row = self._deals.setdefault(_seed_key(record.game, record.seed), [0, 0, 0])
            row[ATTEMPTS] += 1
            if _mean_payoff(record) > self.above:
                row[SUCCESSES] += 1
                row[LONGEST] = max(row[LONGEST], len(record.turns))

    def split_attempts(self, deals: Sequence[tuple[str, int]], total: int) -> list[int]:
        """Split `total` attempts among deals (game, seed): `least` each, the rest by their standard deviations."""
        shares = [sqrt(p * (1 - p)) for p in (self._rate(*deal) for deal in deals)]
        extra = apportion(total - self.least * len(deals), shares)
        return [self.least + count for count in extra]

    def cap_options(self, game: str, seed: int, options: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """Return a deal's game options and the name of the option that was lowered, or "" if none was.

        The option `cap` is lowered to the number of turns of the deal's longest success, if that is less.
        """
        cap, row = self.cap, self._deals.get(_seed_key(game, seed))
        if cap is None or row is None or not row[SUCCESSES] or row[LONGEST] >= options[cap]:
            return dict(options), ""
        return {**options, cap: row[LONGEST]}, cap

    def state(self) -> dict[str, list[int]]:
        """Return [attempts, successes, turns of the longest success] by deal, whose key is "game seed"."""
        return self._deals

    def load(self, state: Mapping[str, Sequence[int]]) -> None:
        """Restore the outcomes. Raises ValueError for a deal with more successes than attempts."""
        deals = _OUTCOMES.validate_python(state)
        if invalid := [deal for deal, row in deals.items() if row[SUCCESSES] > row[ATTEMPTS]]:
            raise ValueError(f"deal {invalid[0]} was solved more often than it was played")
        self._deals = deals

    def _rate(self, game: str, seed: int) -> float:
        """Return a deal's success rate with one success and one failure added: 1/2 for a new deal."""
        attempts, successes, _ = self._deals.get(_seed_key(game, seed), (0, 0, 0))
        return (successes + 1) / (attempts + 2)


def _deal_key(plan: MatchPlan) -> tuple[int, int]:
    """Return the key of the plan's deal. A plan without a group is a deal of its own."""
    return plan.group, plan.identity.deal if plan.group < 0 else 0


def _seed_key(game: str, seed: int) -> str:
    return f"{game} {seed}"


def _mean_payoff(record: MatchRecord) -> float:
    """Return the mean payoff of the match's trained seats; 0 without any. A missing payoff counts as 0."""
    payoffs = [record.payoffs.get(seat, 0.0) for seat, seating in record.seats.items() if seating.trained]
    return sum(payoffs) / max(1, len(payoffs))
