"""Online ratings of players by openskill's Plackett–Luce model."""

from collections.abc import Iterable, Mapping
from typing import Any

from openskill.models import PlackettLuce

from arena.records import MatchRecord, Seating


class Ratings:
    """Bayesian skill ratings, one per `role/policy`, or per `game/role/policy` if the run has several games.

    Past versions are rated as separate policies. The state is JSON, for the checkpoint. Model: Weng & Lin 2011, "A
    Bayesian Approximation Method for Online Ranking"; mu starts at 25, sigma at 25/3.
    """

    def __init__(self, state: Mapping[str, list[float]] | None = None, by_game: bool = False) -> None:
        self.by_game = by_game
        self._model = PlackettLuce()
        self._ratings: dict[str, Any] = {
            name: self._model.rating(mu=mu, sigma=sigma, name=name) for name, (mu, sigma) in (state or {}).items()
        }

    def name(self, game: str, seating: Seating) -> str:
        """Return the name under which a player is rated: `role/policy`, after `game/` if the run has several games."""
        name = f"{seating.role}/{seating.policy}"
        return f"{game}/{name}" if self.by_game else name

    def update(self, records: Iterable[MatchRecord]) -> None:
        """Rate the players of finished matches in order. A higher payoff is a better rank; equal payoffs are draws.

        Skips matches with one player, or with a player in two seats.
        """
        for record in records:
            if record.status != "finished":
                continue
            seats = sorted(record.seats)
            names = [self.name(record.game, record.seats[s]) for s in seats]
            if len(names) < 2 or len(set(names)) < len(names):
                continue  # a player alone or against itself gives no information
            teams = [[self._ratings.get(n) or self._model.rating(name=n)] for n in names]
            new_ratings = self._model.rate(teams, scores=[record.payoffs[s] for s in seats])
            self._ratings |= {name: team[0] for name, team in zip(names, new_ratings, strict=True)}

    def inherit(self, version: str, policy: str) -> None:
        """Copy a policy's ratings, in all roles and games, to its past version named `version`."""
        for name, rating in list(self._ratings.items()):
            if name.endswith(f"/{policy}"):
                version_key = name.removesuffix(policy) + version
                self._ratings[version_key] = self._model.rating(mu=rating.mu, sigma=rating.sigma, name=version_key)

    def state(self) -> dict[str, list[float]]:
        """Return [mu, sigma] of every rated player, by name, as JSON for the checkpoint."""
        return {name: [r.mu, r.sigma] for name, r in sorted(self._ratings.items())}
