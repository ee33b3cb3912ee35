"""Metrics of an iteration, and warnings that they cause."""

from dataclasses import replace

import numpy as np

from arena.credit.batch import CreditedTrajectory
from arena.league.ratings import Ratings
from arena.metrics import compute_iteration_metrics, find_excused_replies
from arena.records import MatchRecord
from tests.factories.matches import play_scripted
from tests.factories.records import make_turn, wrap_turns


def compute_outcomes(*records: MatchRecord) -> dict[str, object]:
    row = compute_iteration_metrics(1, records, [], [], {}, Ratings(), {"play": 1.0})
    return {name: row[name] for name in ("payoff", "mean_payoff", "report", "win_rate", "valid_rate")}


def test_branches_count_as_matches_and_not_in_outcomes() -> None:
    """Branches start within long matches."""
    scripted = {"first": "random", "second": "random"}
    matches = [play_scripted("kuhn_poker", seed, scripted) for seed in range(6)]
    branches = [
        replace(match, identity=match.identity.branch(0), payoffs={"first": 9.0, "second": -9.0}) for match in matches
    ]
    both = compute_iteration_metrics(1, [*matches, *branches], [], [], {}, Ratings(), {"play": 1.0})
    assert both["matches"] == 12 and compute_outcomes(*matches, *branches) == compute_outcomes(*matches)


def test_policy_with_many_excused_replies_is_reported() -> None:
    """Not if the cut replies were penalised, or had a legal act."""
    excused, penalised = make_turn(0, {}, valid=False, finish="length"), make_turn(0, {"illegal": -1.0}, valid=False)
    legal = make_turn(0, {}, finish="length")
    policies = {
        "escaping": [excused, excused, legal, legal, legal],
        "rarely": [excused, penalised, penalised, legal],
        "penalised": [penalised._replace(finish="length")],
    }
    credited = [
        CreditedTrajectory(
            trajectory=wrap_turns(turns, policy=name), rewards=np.zeros(len(turns)), advantages=np.zeros(len(turns))
        )
        for name, turns in policies.items()
    ]
    notes = find_excused_replies(7, credited)
    assert list(notes) == ["escaping"] and "iteration 7 excuses 40 % of its replies" in notes["escaping"]
