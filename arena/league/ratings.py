"""Online ratings of who played which role, by openskill's Plackett–Luce model."""

from collections.abc import Iterable, Mapping
from typing import Any

from openskill.models import PlackettLuce

from arena.records import MatchRecord


class Ratings:
    """A rating per `role/policy`. State is JSON-able, so that it lives in the checkpoint.

    Model: Weng & Lin 2011, "A Bayesian Approximation Method for Online Ranking"; mu starts at 25, sigma at 25/3.
    """

    def __init__(self, state: Mapping[str, list[float]] | None = None) -> None:
        self._model = PlackettLuce()
        self._rated: dict[str, Any] = {
            name: self._model.rating(mu=mu, sigma=sigma, name=name) for name, (mu, sigma) in (state or {}).items()
        }

    def update(self, records: Iterable[MatchRecord]) -> None:
        """Rate finished matches in order; a higher payoff is a better rank, equal payoffs draw."""
        for record in records:
            if record.status != "finished":
                continue
            seats = sorted(record.seats)
            names = [f"{record.seats[s].role}/{record.seats[s].policy}" for s in seats]
            if len(set(names)) < len(names):
                continue  # a player against itself tells nothing
            teams = [[self._rated.get(n) or self._model.rating(name=n)] for n in names]
            rated = self._model.rate(teams, scores=[record.payoffs[s] for s in seats])
            self._rated |= {name: team[0] for name, team in zip(names, rated, strict=True)}

    def state(self) -> dict[str, list[float]]:
        """mu and sigma by name."""
        return {name: [r.mu, r.sigma] for name, r in sorted(self._rated.items())}
