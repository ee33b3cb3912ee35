"""What an iteration reached is told of whole matches: branches part where a match was long enough to."""

from dataclasses import replace

from arena.league.ratings import Ratings
from arena.metrics import compute_iteration_metrics
from arena.records import MatchRecord
from tests.factories.matches import play_scripted


def reached(*records: MatchRecord) -> dict[str, object]:
    row = compute_iteration_metrics(1, records, [], [], {}, Ratings(), {"play": 1.0})
    return {name: row[name] for name in ("payoff", "mean_payoff", "report", "win_rate", "valid_rate")}


def test_branches_count_as_played_and_not_in_what_was_reached() -> None:
    scripted = {"first": "random", "second": "random"}
    whole = [play_scripted("kuhn_poker", seed, scripted) for seed in range(6)]
    branches = [replace(one, identity=one.identity.branch(0), payoffs={"first": 9.0, "second": -9.0}) for one in whole]
    both = compute_iteration_metrics(1, [*whole, *branches], [], [], {}, Ratings(), {"play": 1.0})
    assert both["matches"] == 12 and reached(*whole, *branches) == reached(*whole)
