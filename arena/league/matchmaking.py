"""Matchmaking: draw opponents for trained policies, and count win rates against each."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from agents.policy import Policy
from arena.league.pool import Pool, format_version
from arena.league.settings import OpponentSpec
from arena.records import MatchRecord, Seating

DECAY = 0.98
"""Decay of earlier results per new result, because they are results of older versions of the learner."""
PRIOR = 2.0
"""Number of pseudo-matches against every opponent, half of them won."""


class WinRates:
    """Win rates of policies against opponents, by game. A draw is half a win, and earlier results decay."""

    def __init__(self, state: Mapping[str, Sequence[float]] | None = None) -> None:
        self._table: dict[str, tuple[float, float]] = {
            key: (won, played) for key, (won, played) in (state or {}).items()
        }

    def update(self, records: Iterable[MatchRecord]) -> None:
        """Count finished matches in order: the results of each trained seat against each untrained one."""
        for record in records:
            for learner, opponent, score in score_match(record):
                key = _key(record.game, learner, opponent)
                won, played = self._table.get(key, (0.0, 0.0))
                self._table[key] = (DECAY * won + score, DECAY * played + 1)

    def rate(self, game: str, learner: str, opponent: str) -> float:
        """Return the learner's estimated probability of winning, in (0, 1); 0.5 before the first match."""
        won, played = self._table.get(_key(game, learner, opponent), (0.0, 0.0))
        return (won + PRIOR / 2) / (played + PRIOR)

    def state(self) -> dict[str, list[float]]:
        """Return [wins, matches], both decayed, by `game: learner vs opponent`."""
        return {key: [won, played] for key, (won, played) in sorted(self._table.items())}


def _key(game: str, learner: str, opponent: str) -> str:
    return f"{game}: {learner} vs {opponent}"


def score_match(record: MatchRecord) -> list[tuple[str, str, float]]:
    """Return (learner, opponent, score), two policies' names and a result, for each trained and untrained seat.

    The score is 1 if the learner's payoff is higher, 0.5 if equal, 0 if lower. Returns [] for a failed match.
    """
    if record.status != "finished":
        return []
    payoffs, seats = record.payoffs, record.seats
    return [
        (learner.policy, opponent.policy, 0.5 + 0.5 * float(np.sign(payoffs[seat] - payoffs[other_seat])))
        for seat, learner in seats.items()
        for other_seat, opponent in seats.items()
        if learner.trained and not opponent.trained
    ]


def pfsp(rates: Sequence[float]) -> np.ndarray:
    """Return each opponent's draw probability ∝ (1 − p)², where the learner beats it with probability p (`rates`).

    Uniform if every p is 1. This is prioritized fictitious self-play (Vinyals et al. 2019, "Grandmaster level in
    StarCraft II") with f_hard and the exponent 2.
    """
    weights = (1 - np.asarray(rates, np.float64)) ** 2
    return np.asarray(weights / weights.sum()) if weights.sum() else np.full(len(weights), 1 / len(weights))


@dataclass(frozen=True)
class Matchmaker:
    """Matchmaker that draws opponents for trained policies, from the mixture `opponents` of the league's settings."""

    opponents: Sequence[OpponentSpec]
    pool: Pool
    rates: WinRates

    def arrange(
        self,
        k: int,
        game: str,
        seats: Mapping[str, Seating],
        count: int,
        policies: Mapping[str, Policy],
        rng: np.random.Generator,
    ) -> list[dict[str, Seating]]:
        """Return the seating of each of `count` matches of iteration `k` in a game with these `seats`.

        Each match draws one of the iteration's opponents by weight. One trained seat is the learner, in turns per
        opponent, and the other trained seats get the frozen opponent. `policies` are the run's policies by name. Seats
        stay unchanged for the opponent `self`, or if fewer than two are trained.
        """
        trained = [seat for seat, seating in seats.items() if seating.trained]
        if len(trained) < 2:
            return [dict(seats)] * count
        opponents = [opponent for opponent in self.opponents if opponent.is_drawn_in(k)]
        weights = np.array([opponent.weight for opponent in opponents])
        drawn_counts = Counter[int]()
        plans = []
        for choice in rng.choice(len(opponents), size=count, p=weights / weights.sum()).tolist():
            if opponents[choice].play == "self":
                plans.append(dict(seats))
                continue
            learner = trained[(k + drawn_counts[choice]) % len(trained)]
            drawn_counts[choice] += 1
            plans.append(self._seat_opponent(opponents[choice], game, seats, learner, policies, rng))
        return plans

    def _seat_opponent(
        self,
        opponent: OpponentSpec,
        game: str,
        seats: Mapping[str, Seating],
        learner: str,
        policies: Mapping[str, Policy],
        rng: np.random.Generator,
    ) -> dict[str, Seating]:
        """Return the seats with the opponent at all trained seats except the learner's.

        The opponent is a fixed policy or, if its settings name none, one past version of each replaced policy.
        """
        other_learners = {seat: s for seat, s in seats.items() if s.trained and seat != learner}
        if (name := opponent.policy) is not None:
            return {
                **seats,
                **{seat: Seating.of(s.role, name, policies.get(name)) for seat, s in other_learners.items()},
            }
        versions = {
            policy: self._choose_past_version(opponent, game, seats[learner].policy, policy, current, rng)
            for policy, current in sorted({(s.policy, s.version) for s in other_learners.values()})
        }
        past = {
            seat: replace(
                s, policy=format_version(s.policy, versions[s.policy]), version=versions[s.policy], trained=False
            )
            for seat, s in other_learners.items()
        }
        return {**seats, **past}

    def _choose_past_version(
        self, opponent: OpponentSpec, game: str, learner: str, policy: str, current: int, rng: np.random.Generator
    ) -> int:
        """Return a past version of `policy`: `opponent.lag` updates before `current`, or without a lag by `pfsp`.

        If the lagged version is no longer available, returns the oldest one. `pfsp` draws from the pool's members by
        the learner's win rates.
        """
        if opponent.lag is not None:
            return self.pool.find_lagged(current, opponent.lag)
        members = self.pool.members
        chances = pfsp([self.rates.rate(game, learner, format_version(policy, member)) for member in members])
        return members[int(rng.choice(len(members), p=chances))]
