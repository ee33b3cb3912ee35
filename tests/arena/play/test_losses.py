"""Matches that are lost are reported, and do not change by their loss what is learned from the others."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.comparison import collect_figures
from analysis.frames import load
from arena.cli.loop import wait
from arena.credit.compare import compare
from arena.errors import PlayError
from arena.play.contenders import derive_seed
from arena.play.match import MatchPlan
from arena.play.orchestrator import play_all
from arena.records import Failure, MatchRecord
from arena.store.failures import read_failures
from arena.store.losses import find_incomplete_deals, summarise_failures
from arena.store.reader import RunReader
from games.contracts import MatchId
from tests.factories.commands import ITERATIONS, NO_IMITATION, TINY, CommandResult, arena
from tests.factories.labs import make_experiment, open_lab
from tests.factories.negotiations import SEATS, make_plans, play_negotiation

LINES = [part.replace(str(ITERATIONS), "1") for part in TINY[:7] if part != "--json"] + TINY[7:]
RACE = '''
from games.negotiation import Negotiation

FAILED = []

class Race(Negotiation):
    """Raises for some acts, always the same."""

    def play(self, seat, act):
        if {when}:
            FAILED.append(act)
            raise RuntimeError("lost the race")
        return super().play(seat, act)
'''


class Fails:
    """Plays as the seed and the attempt say, and fails at the first attempt."""

    def __init__(self, kind: Any, draws_again: bool) -> None:
        self.kind, self.draws_again = kind, draws_again

    async def play(self, plan: MatchPlan) -> MatchRecord:
        record = await play_negotiation(
            plan if self.draws_again else replace(plan, identity=plan.identity.first_attempt)
        )
        record = replace(record, identity=plan.identity)
        if plan.attempt:
            return record
        failure = Failure(kind=self.kind, error="RuntimeError", where="a/race.py, line 21")
        return replace(record, status="failed", reason="RuntimeError: x", turns=record.turns[:2], failure=failure)


def given_up(kind: Any, draws_again: bool) -> list[str]:
    heard: list[MatchRecord] = []
    asyncio.run(play_all(make_plans(12), Fails(kind, draws_again).play, heard.append, 4, 3, must_finish=False))
    return [record.id for record in heard if record.failure and record.failure.given_up]


def test_a_replay_draws_the_same_again() -> None:
    plan = make_plans(1)[0]
    again = replace(plan, identity=MatchId(1, 0, attempt=2))
    assert [derive_seed(7, plan, seat) for seat in SEATS] == [derive_seed(7, again, seat) for seat in SEATS]


@pytest.mark.parametrize("kind", ["game", "limit"])
def test_a_replay_that_goes_otherwise_does_not_stand_for_a_match_that_its_game_failed(kind: str) -> None:
    assert given_up(kind, draws_again=False) == []
    assert len(given_up(kind, draws_again=True)) > 6


def test_an_outage_says_nothing_of_play_so_that_any_replay_will_do() -> None:
    assert given_up("endpoint", draws_again=True) == []


def test_a_deal_is_incomplete_once_one_of_its_matches_has_no_finished_attempt() -> None:
    ends = [
        ("a", "0001-0000", "finished"), ("a", "0001-0001", "failed"), ("a", "0001-0001-r1", "finished"),
        ("b", "0001-0002", "finished"), ("b", "0001-0003", "failed"), ("b", "0001-0003-r1", "failed"),
        ("c", "0001-0004", "finished"), ("c", "0001-0004-b2", "failed"),
    ]  # fmt: skip
    assert find_incomplete_deals(ends) == {"b", "c"}


def test_the_line_has_counts_share_cause_and_where_to_look() -> None:
    rows: list[dict[str, Any]] = [
        {"matches": 20, "failed": 0, "given_up": 0, "left_out": 0},
        {"matches": 8, "failed": 36, "given_up": 12, "left_out": 8, "failure": "RuntimeError at race.py:21"},
        {"matches": "x", "failed": True, "given_up": -1, "failure": 5},
    ]
    told = summarise_failures(rows)
    assert "12 matches given up" in told and "50 % of attempts" in told and "RuntimeError at race.py:21" in told
    assert "8 more" in told and "--failures" in told
    assert summarise_failures(rows[:1]) == summarise_failures([]) == summarise_failures(rows[2:]) == ""


# In a run


def raced(place: Path, when: str, *more: str) -> CommandResult:
    (place / "race.py").write_text(RACE.format(when=when))
    settings = ("game.name=race.py:Race", "play.matches=16", "play.group=2", "play.attempts=2", *more)
    return arena(*LINES, *NO_IMITATION, *(part for one in settings for part in ("--set", one)), "--out", "run")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_says_what_it_lost_and_leaves_incomplete_deals_out(place: Path) -> None:
    told = raced(place, "len(act) % 11 == 0")
    assert told.code == 0, told.err
    reader = RunReader(place / "run")
    (first, *_), rows = reader.metrics(), reader.log.read(1)
    assert first["given_up"] > 0 and first["left_out"] > 0 and first["failed"] == 2 * first["given_up"]
    assert first["matches"] + first["left_out"] + first["given_up"] == 16
    assert first["failure"] == "RuntimeError at race.py:12"
    for shown in (told.out, arena("show", "run").out):
        assert "given up" in shown and "RuntimeError at race.py:12" in shown and "--failures" in shown

    lost = find_incomplete_deals((row["seed"], row["id"], row["status"]) for row in rows)
    seeds = {row["id"]: row["seed"] for row in rows}
    credited = {row.match for row in reader.credit(1)}
    assert len(credited) == first["matches"] and not lost & {seeds[match] for match in credited}
    by_seed = [seeds[match] for match in credited]
    assert {by_seed.count(seed) for seed in by_seed} == {2}, "no group is short"

    log = load(place / "run")
    counted = log.complete
    assert len(counted) == len(collect_figures(log)) == first["matches"] and not lost & {*counted["seed"]}

    given = make_experiment()
    found = wait(compare(place / "run", given.credit, [given.credit.estimator], length=1)).turns
    assert set(found["match"]) == {row.match for row in reader.credit(1)}


def test_a_run_of_which_most_is_lost_with_its_deals_stops(place: Path) -> None:
    told = raced(place, "len(act) % 3 == 0")
    assert told.code == 1 and "failed 2 times each, and" in told.line and "shared their deals" in told.line
    assert "race.py, line 12" in told.line


def test_imitation_plays_again_what_failed_with_the_same_players_and_says_so(place: Path) -> None:
    (place / "race.py").write_text(RACE.format(when="not act.startswith('ACCEPT') and act not in FAILED"))
    lab = open_lab(place / "run", make_experiment("game.name=race.py:Race", "play.attempts=9"))
    whole = open_lab(place / "whole", make_experiment())
    shown = [wait(one.parts.demonstrations.play_scripted("shared", 0, ["random"], 6)) for one in (lab, whole)]
    assert [sample.stream.ids for sample in shown[0]] == [sample.stream.ids for sample in shown[1]]
    kept, _ = read_failures(place / "run")
    assert kept and {each.iteration for each in kept} == {0}
    assert any("of attempts failed" in text for _, text in lab.watcher.phases)  # type: ignore[attr-defined]


def test_imitation_gives_up_after_as_many_attempts_as_play(place: Path) -> None:
    (place / "race.py").write_text(RACE.format(when="True"))
    lab = open_lab(place / "run", make_experiment("game.name=race.py:Race", "play.attempts=2"))
    with pytest.raises(PlayError, match="failed 2 times each"):
        wait(lab.parts.demonstrations.play_scripted("shared", 0, ["random"], 4))
    assert len(read_failures(place / "run")[0]) == 8


def test_the_log_of_failures_says_which_attempt_was_the_last(place: Path) -> None:
    raced(place, "len(act) % 3 == 0")
    rows = json.loads(arena("show", "run", "--failures", "--json").out)["failures"]
    assert {row["attempt"]: row["given_up"] for row in rows} == {0: False, 1: True}
