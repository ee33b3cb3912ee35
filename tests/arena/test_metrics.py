"""Outcome metrics count whole matches only, because branches start within long matches."""

from dataclasses import replace

from arena.league.ratings import Ratings
from arena.metrics import compute_iteration_metrics
from arena.records import MatchRecord
from tests.factories.matches import play_scripted


def compute_outcomes(*records: MatchRecord) -> dict[str, object]:
    row = compute_iteration_metrics(1, records, [], [], {}, Ratings(), {"play": 1.0})
    return {name: row[name] for name in ("payoff", "mean_payoff", "report", "win_rate", "valid_rate")}


def test_branches_count_as_matches_and_not_in_outcomes() -> None:
    scripted = {"first": "random", "second": "random"}
    matches = [play_scripted("kuhn_poker", seed, scripted) for seed in range(6)]
    branches = [
        replace(match, identity=match.identity.branch(0), payoffs={"first": 9.0, "second": -9.0}) for match in matches
    ]
    both = compute_iteration_metrics(1, [*matches, *branches], [], [], {}, Ratings(), {"play": 1.0})
    assert both["matches"] == 12 and compute_outcomes(*matches, *branches) == compute_outcomes(*matches)
