"""A planner searches for a reader: its rewards, and when optimal play stops."""

import pytest

from simulators.conformance import play
from simulators.search import SearchPlanner
from tests.factories.thorough import count_cases
from tests.simulators.promises import find_failed_checks, passes_over_many_seeds

OPTIONS = {
    "words": {"pages": 100},
    "terse, at a cost": {
        "pages": 60, "terse": True, "cost": 0.3, "process": 0.1, "baseline": True,
        "sorts": ["chain", "unanswerable"], "hops": [1, 4],
    },
    "a reader's seat": {"pages": 60, "terse": True, "reader": "seat", "hops": 1},
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.slow_after(1)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_passes_the_conformance_kit(options) -> None:
    assert (
        find_failed_checks(lambda: SearchPlanner(**options), seeds=count_cases(3, 8), acts=count_cases(80, 200)) == []
    )


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_passes_the_conformance_kit_over_many_seeds(options, capsys) -> None:
    assert passes_over_many_seeds(lambda: SearchPlanner(**options), options, capsys)


def test_team_reward_pays_both_seats_and_needs_a_reader_seat() -> None:
    game = SearchPlanner(pages=60, terse=True, hops=1, reader="seat", team=True)
    game.reset(seed=1)
    answer = game.question.answer
    for act in (f"?{next(iter(game.question.evidence))}", ".", f"={answer}"):
        game.step(act)
    assert game.payoffs() == {"planner": 1.0, "reader": 1.0}
    with pytest.raises(ValueError, match="team"):
        SearchPlanner(pages=60, terse=True, team=True)


def test_planner_pays_for_calls_and_earns_the_readers_answer() -> None:
    game = SearchPlanner(pages=60, terse=True, hops=2, cost=0.1, process=0.5)
    game.reset(seed=1)
    pages = sorted(game.question.evidence)
    game.step(f"?{pages[0]}")
    assert game.infos["planner"]["rewards"] == pytest.approx({"cost": -0.1, "process": 0.25})
    game.step(f"?{pages[1]}")
    game.step(".")
    report = game.report()
    assert report["success"] and game.payoffs()["planner"] == pytest.approx(1 - 0.2 + 0.5)


def test_reader_sees_pages_only_after_the_planner_stops() -> None:
    game = SearchPlanner(pages=60, reader="seat", hops=1)
    game.reset(seed=1)
    (page,) = game.question.evidence
    game.step(f'search(query="{page}")')
    game.step(f'open(title="{page}")')
    assert game.private("reader") == {"pages": []}
    game.step("STOP")
    assert game.agent_selection == "reader" and game.private("reader") == {"pages": [game.library.pages[page]]}
    game.step(f"ANSWER {game.question.answer}")
    assert game.payoffs() == {"planner": 1.0, "reader": 0.0}


def test_best_play_searches_only_if_it_pays() -> None:
    """A chain of h facts needs h calls, so searching pays if h x cost < 1."""
    for hops in (1, 2, 3):
        for cost in (0.2, 0.4, 0.6):
            game = SearchPlanner(pages=60, terse=True, hops=hops, cost=cost)
            for seed in range(12):
                report = play(game, seed, "best")
                is_chain = "^" not in str(game.question.program)
                if is_chain:
                    assert report["calls"] == (hops if hops * cost < 1 else 0)
                    assert report["best"] == pytest.approx(max(0.0, 1 - hops * cost))
                assert report["regret"] == pytest.approx(0.0)


def test_best_play_is_optimal_at_every_cost() -> None:
    earned = {}
    for cost in (0.0, 0.2, 0.4, 0.8):
        game = SearchPlanner(pages=60, terse=True, hops=[1, 3], cost=cost)
        for player in ("best", "reader", "random"):
            total = calls = 0.0
            for seed in range(40):
                report = play(game, seed, player)
                total, calls = total + game.payoffs()["planner"], calls + float(report["calls"])
            earned[cost, player] = total, calls
        assert all(earned[cost, "best"][0] >= earned[cost, player][0] for player in ("reader", "random"))
    call_counts = [earned[cost, "best"][1] for cost in (0.0, 0.2, 0.4, 0.8)]
    assert call_counts == sorted(call_counts, reverse=True) and call_counts[0] > call_counts[-1]


def test_baseline_pays_nothing_if_no_search_was_needed() -> None:
    for baseline in (False, True):
        game = SearchPlanner(pages=60, terse=True, sorts="unanswerable", baseline=baseline)
        game.reset(seed=0)
        game.step(".")
        assert game.report()["success"] and game.payoffs()["planner"] == float(not baseline)
