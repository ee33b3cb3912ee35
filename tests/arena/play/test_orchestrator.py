"""Many matches at once: each is as if played alone; failed ones are recorded and replayed."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from agents.errors import EngineDied, EnginesLost
from agents.players.model import ScriptedPlayer
from agents.players.scripted import SCRIPTED
from arena.errors import PlayError
from arena.play.match import Limits, MatchPlan, play_match
from arena.play.orchestrator import play_all
from arena.records import MatchRecord
from games.contracts import Act, View
from games.negotiation import Negotiation
from tests.factories.negotiations import SEATS, make_plans, play_negotiation


def without_times(record: MatchRecord) -> dict[str, Any]:
    row = record.to_json()
    return row | {"started": "", "seconds": 0.0, "turns": [{**t, "seconds": 0.0} for t in row["turns"]]}


class FlakyPlay:
    """Play that fails given matches a given number of times."""

    def __init__(self, fails: dict[str, int]) -> None:
        self.fails = Counter(fails)
        self.running = self.peak = 0

    async def play(self, plan: MatchPlan) -> MatchRecord:
        self.running += 1
        self.peak = max(self.peak, self.running)
        record = await play_negotiation(plan)
        self.running -= 1
        first = plan.id[:9]
        if self.fails[first] > 0:
            self.fails[first] -= 1
            reason = f"broke in attempt {plan.identity.attempt}"
            return replace(record, status="failed", reason=reason, payoffs={}, report={})
        return record


def play_matches(
    count: int, play: Any = play_negotiation, in_flight: int = 64, attempts: int = 3
) -> tuple[list[MatchRecord], list[MatchRecord]]:
    reported: list[MatchRecord] = []
    return asyncio.run(play_all(make_plans(count), play, reported.append, in_flight, attempts)), reported


@pytest.mark.parametrize("in_flight", [200, 3])
def test_match_is_the_same_alone_and_among_hundreds(in_flight: int) -> None:
    many, _ = play_matches(200, in_flight=in_flight)
    for i in (0, 57, 199):
        alone = asyncio.run(play_negotiation(make_plans(200)[i]))
        assert without_times(alone) == without_times(many[i])
    assert len({str(without_times(r)["turns"]) for r in many}) > 150, "different seeds, different matches"


def test_records_are_in_plan_order_and_reported_once() -> None:
    records, reported = play_matches(30, in_flight=7)
    assert [r.id for r in records] == [p.id for p in make_plans(30)]
    assert [r.seed for r in records] == [p.seed for p in make_plans(30)]
    assert sorted(r.id for r in reported) == [r.id for r in records]


def test_no_more_matches_than_asked_for_are_in_flight() -> None:
    flaky = FlakyPlay({"0001-0002": 1})
    play_matches(20, flaky.play, in_flight=4)
    assert flaky.peak == 4


def test_a_failed_match_is_recorded_and_played_again_from_the_same_deal() -> None:
    records, reported = play_matches(10, FlakyPlay({"0001-0003": 2, "0001-0007": 1}).play)
    assert all(r.status == "finished" for r in records) and len(records) == 10
    assert records[3].id == "0001-0003-r2" and records[3].identity.attempt == 2 and records[7].id == "0001-0007-r1"
    assert records[3].seed == 1003, "the same deal"
    failed = {r.id: r.reason for r in reported if r.status == "failed"}
    assert failed == {
        "0001-0003": "broke in attempt 0",
        "0001-0003-r1": "broke in attempt 1",
        "0001-0007": "broke in attempt 0",
    }
    assert len({r.id for r in reported}) == len(reported) == 13


def test_a_failure_changes_nothing_for_the_others() -> None:
    calm, _ = play_matches(20)
    stormy, _ = play_matches(20, FlakyPlay({"0001-0003": 2}).play)
    for i in set(range(20)) - {3}:
        assert without_times(calm[i]) == without_times(stormy[i])


class DyingPlayer(ScriptedPlayer):
    """A player whose engine is lost in each of its first turns."""

    waits = True

    def __init__(self, script: Any, errors: list[Exception]) -> None:
        super().__init__(script)
        self.errors = errors

    async def act(self, view: View) -> Act:
        if self.errors:
            raise self.errors.pop()
        return await super().act(view)


def make_dying_play(errors: list[Exception]) -> Callable[[MatchPlan], Awaitable[MatchRecord]]:
    async def play(plan: MatchPlan) -> MatchRecord:
        players = {seat: DyingPlayer(SCRIPTED["random"](plan.seed + i), errors) for i, seat in enumerate(SEATS)}
        return await play_match(plan, Negotiation(max_turns=6), players, Limits())

    return play


def test_an_engines_death_uses_no_attempt_up() -> None:
    deaths: list[Exception] = [EngineDied("engine 0 died in 3 replies") for _ in range(5)]
    (record,), reported = play_matches(1, make_dying_play(deaths), attempts=2)
    assert record.id == "0001-0000-r5" and len(reported) == 6
    assert {(r.failure.kind, r.reason) for r in reported if r.failure} == {
        ("endpoint", "EngineDied: engine 0 died in 3 replies")
    }


def test_without_any_engine_the_play_ends_at_once() -> None:
    with pytest.raises(EnginesLost, match="none of 2 engines is left"):
        play_matches(4, make_dying_play([EnginesLost("none of 2 engines is left")]), in_flight=1)


def test_match_that_keeps_failing_is_given_up() -> None:
    records, reported = play_matches(8, FlakyPlay({"0001-0004": 99}).play, in_flight=2)
    assert [r.id for r in records] == [p.id for p in make_plans(8) if p.id != "0001-0004"]
    assert [r.id for r in reported if r.status == "failed"] == ["0001-0004", "0001-0004-r1", "0001-0004-r2"]


def test_play_stops_if_more_matches_fail_than_finish() -> None:
    half = {f"0001-{i:04d}": 99 for i in range(4)}
    assert len(play_matches(8, FlakyPlay(half).play)[0]) == 4
    reported: list[MatchRecord] = []
    with pytest.raises(PlayError, match=r"5 of 8 matches failed 3 times each, the last time with: broke in attempt 2"):
        asyncio.run(play_all(make_plans(8), FlakyPlay(half | {"0001-0007": 99}).play, reported.append, 2, 3))
    assert len([r for r in reported if r.status == "failed"]) == 15 and len(reported) == 18


def test_error_of_a_listener_is_raised() -> None:
    def raise_disk_full(record: MatchRecord) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        asyncio.run(play_all(make_plans(5), play_negotiation, raise_disk_full, 5, 3))
