"""Matchmaking: draw opponents for trained policies, and count win rates against each."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from agents.policy import Policy
from arena.league.pool import Pool, version_name
from arena.league.settings import OpponentSpec
from arena.records import MatchRecord, Seating

FADING = 0.98
"""Decay of earlier results per new result, because old results are of older learners."""
PRIOR = 2.0
"""Prior matches against every opponent, half of them won."""


class WinRates:
    """Win rates of policies against opponents, by game; a draw is half a win. The state is JSON, for the checkpoint."""

    def __init__(self, state: Mapping[str, Sequence[float]] | None = None) -> None:
        self._table: dict[str, tuple[float, float]] = {
            key: (won, played) for key, (won, played) in (state or {}).items()
        }

    def update(self, records: Iterable[MatchRecord]) -> None:
        """Count finished matches in order: each trained seat against each untrained one."""
        for record in records:
            for learner, opponent, score in scores(record):
                key = _key(record.game, learner, opponent)
                won, played = self._table.get(key, (0.0, 0.0))
                self._table[key] = (FADING * won + score, FADING * played + 1)

    def rate(self, game: str, learner: str, opponent: str) -> float:
        """Return the estimated probability that the learner wins, in (0, 1); 0.5 before their first match."""
        won, played = self._table.get(_key(game, learner, opponent), (0.0, 0.0))
        return (won + PRIOR / 2) / (played + PRIOR)

    def state(self) -> dict[str, list[float]]:
        """Return decayed wins and matches by `game: learner vs opponent`."""
        return {key: [won, played] for key, (won, played) in sorted(self._table.items())}


def _key(game: str, learner: str, opponent: str) -> str:
    return f"{game}: {learner} vs {opponent}"


def scores(record: MatchRecord) -> list[tuple[str, str, float]]:
    """Return (learner, opponent, 1 won, 0.5 drawn, 0 lost) per trained and untrained seat; [] for a failed match."""
    if record.status != "finished":
        return []
    payoffs, seats = record.payoffs, record.seats
    return [
        (learner.policy, opponent.policy, 0.5 + 0.5 * float(np.sign(payoffs[one] - payoffs[other])))
        for one, learner in seats.items()
        for other, opponent in seats.items()
        if learner.trained and not opponent.trained
    ]


def pfsp(rates: Sequence[float]) -> np.ndarray:
    """Return probabilities ∝ (1 − p)² of opponents that the learner beats with probability p, float64, sum 1.

    "Prioritized fictitious self-play", Vinyals et al. 2019, "Grandmaster level in StarCraft II", with f_hard, p = 2.
    """
    weights = (1 - np.asarray(rates, np.float64)) ** 2
    return np.asarray(weights / weights.sum()) if weights.sum() else np.full(len(weights), 1 / len(weights))


@dataclass(frozen=True)
class Matchmaker:
    """Draws opponents for matches from a mixture."""

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
        """Return the seating of each of `count` matches of iteration `k` at a table with `seats`.

        The trained seats alternate as the learner, per opponent; the other trained seats get a frozen opponent. A table
        with fewer than two trained seats is unchanged.
        """
        trained = [seat for seat, seating in seats.items() if seating.trained]
        if len(trained) < 2:
            return [dict(seats)] * count
        opponents = [opponent for opponent in self.opponents if opponent.met_in(k)]
        weights = np.array([opponent.weight for opponent in opponents])
        turn = Counter[int]()
        arranged = []
        for drawn in rng.choice(len(opponents), size=count, p=weights / weights.sum()).tolist():
            if opponents[drawn].play == "self":
                arranged.append(dict(seats))
                continue
            learner = trained[(k + turn[drawn]) % len(trained)]
            turn[drawn] += 1
            arranged.append(self._opposed(opponents[drawn], game, seats, learner, policies, rng))
        return arranged

    def _opposed(
        self,
        opponent: OpponentSpec,
        game: str,
        seats: Mapping[str, Seating],
        learner: str,
        policies: Mapping[str, Policy],
        rng: np.random.Generator,
    ) -> dict[str, Seating]:
        """Replace all trained seats but the learner's by this opponent: one past version per policy."""
        replaced = {seat: s for seat, s in seats.items() if s.trained and seat != learner}
        if (name := opponent.policy) is not None:
            return {**seats, **{seat: Seating.of(s.role, name, policies.get(name)) for seat, s in replaced.items()}}
        versions = {
            policy: self._past(opponent, game, seats[learner].policy, policy, now, rng)
            for policy, now in sorted({(s.policy, s.version) for s in replaced.values()})
        }
        past = {
            seat: replace(
                s, policy=version_name(s.policy, versions[s.policy]), version=versions[s.policy], trained=False
            )
            for seat, s in replaced.items()
        }
        return {**seats, **past}

    def _past(
        self, opponent: OpponentSpec, game: str, learner: str, policy: str, now: int, rng: np.random.Generator
    ) -> int:
        """Draw the version of `policy` that the learner meets."""
        if opponent.lag is not None:
            return self.pool.lagged(now, opponent.lag)
        members = self.pool.members
        chances = pfsp([self.rates.rate(game, learner, version_name(policy, member)) for member in members])
        return members[int(rng.choice(len(members), p=chances))]
