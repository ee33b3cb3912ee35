"""Lost matches are reported, and their loss does not bias what is learned from the others."""

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

TINY_ONE_ITERATION = [part.replace(str(ITERATIONS), "1") for part in TINY[:7] if part != "--json"] + TINY[7:]
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


class FailingPlay:
    """Play by seed and attempt that fails at the first attempt."""

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


def list_given_up(kind: Any, draws_again: bool) -> list[str]:
    records: list[MatchRecord] = []
    asyncio.run(play_all(make_plans(12), FailingPlay(kind, draws_again).play, records.append, 4, 3, must_finish=False))
    return [record.id for record in records if record.failure and record.failure.given_up]


def test_a_replay_draws_the_same_again() -> None:
    plan = make_plans(1)[0]
    again = replace(plan, identity=MatchId(1, 0, attempt=2))
    assert [derive_seed(7, plan, seat) for seat in SEATS] == [derive_seed(7, again, seat) for seat in SEATS]


@pytest.mark.parametrize("kind", ["game", "limit"])
def test_different_replay_does_not_replace_a_failed_match(kind: str) -> None:
    assert list_given_up(kind, draws_again=False) == []
    assert len(list_given_up(kind, draws_again=True)) > 6


def test_any_replay_replaces_a_match_lost_to_an_outage() -> None:
    assert list_given_up("endpoint", draws_again=True) == []


def test_a_deal_is_incomplete_once_one_of_its_matches_has_no_finished_attempt() -> None:
    ends = [
        ("a", "0001-0000", "finished"), ("a", "0001-0001", "failed"), ("a", "0001-0001-r1", "finished"),
        ("b", "0001-0002", "finished"), ("b", "0001-0003", "failed"), ("b", "0001-0003-r1", "failed"),
        ("c", "0001-0004", "finished"), ("c", "0001-0004-b2", "failed"),
    ]  # fmt: skip
    assert find_incomplete_deals(ends) == {"b", "c"}


def test_failure_summary() -> None:
    rows: list[dict[str, Any]] = [
        {"matches": 20, "failed": 0, "given_up": 0, "left_out": 0},
        {"matches": 8, "failed": 36, "given_up": 12, "left_out": 8, "failure": "RuntimeError at race.py:21"},
        {"matches": "x", "failed": True, "given_up": -1, "failure": 5},
    ]
    summary = summarise_failures(rows)
    assert (
        "12 matches given up" in summary and "50 % of attempts" in summary and "RuntimeError at race.py:21" in summary
    )
    assert "8 more" in summary and "--failures" in summary
    assert summarise_failures(rows[:1]) == summarise_failures([]) == summarise_failures(rows[2:]) == ""


# In a run


def run_race(folder: Path, when: str, *more: str) -> CommandResult:
    (folder / "race.py").write_text(RACE.format(when=when))
    settings = ("game.name=race.py:Race", "play.matches=16", "play.group=2", "play.attempts=2", *more)
    return arena(
        *TINY_ONE_ITERATION, *NO_IMITATION, *(part for one in settings for part in ("--set", one)), "--out", "run"
    )


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_run_reports_losses_and_leaves_incomplete_deals_out(empty_folder: Path) -> None:
    result = run_race(empty_folder, "len(act) % 11 == 0")
    assert result.code == 0, result.err
    reader = RunReader(empty_folder / "run")
    (first, *_), rows = reader.metrics(), reader.log.read(1)
    assert first["given_up"] > 0 and first["left_out"] > 0 and first["failed"] == 2 * first["given_up"]
    assert first["matches"] + first["left_out"] + first["given_up"] == 16
    assert first["failure"] == "RuntimeError at race.py:12"
    for shown in (result.out, arena("show", "run").out):
        assert "given up" in shown and "RuntimeError at race.py:12" in shown and "--failures" in shown

    lost = find_incomplete_deals((row["seed"], row["id"], row["status"]) for row in rows)
    seeds = {row["id"]: row["seed"] for row in rows}
    credited = {row.match for row in reader.credit(1)}
    assert len(credited) == first["matches"] and not lost & {seeds[match] for match in credited}
    by_seed = [seeds[match] for match in credited]
    assert {by_seed.count(seed) for seed in by_seed} == {2}, "no group is short"

    log = load(empty_folder / "run")
    counted = log.complete
    assert len(counted) == len(collect_figures(log)) == first["matches"] and not lost & {*counted["seed"]}

    config = make_experiment()
    found = wait(compare(empty_folder / "run", config.credit, [config.credit.estimator], length=1)).turns
    assert set(found["match"]) == {row.match for row in reader.credit(1)}


def test_run_that_loses_most_deals_stops(empty_folder: Path) -> None:
    result = run_race(empty_folder, "len(act) % 3 == 0")
    assert result.code == 1 and "failed 2 times each, and" in result.line and "shared their deals" in result.line
    assert "race.py, line 12" in result.line


def test_imitation_replays_failures_with_the_same_players(empty_folder: Path) -> None:
    (empty_folder / "race.py").write_text(RACE.format(when="not act.startswith('ACCEPT') and act not in FAILED"))
    lab = open_lab(empty_folder / "run", make_experiment("game.name=race.py:Race", "play.attempts=9"))
    healthy = open_lab(empty_folder / "whole", make_experiment())
    samples = [wait(tested.parts.demonstrations.play_scripted("shared", 0, ["random"], 6)) for tested in (lab, healthy)]
    assert [sample.stream.ids for sample in samples[0]] == [sample.stream.ids for sample in samples[1]]
    failures, _ = read_failures(empty_folder / "run")
    assert failures and {each.iteration for each in failures} == {0}
    assert any("of attempts failed" in text for _, text in lab.watcher.phases)  # type: ignore[attr-defined]


def test_imitation_gives_up_after_as_many_attempts_as_play(empty_folder: Path) -> None:
    (empty_folder / "race.py").write_text(RACE.format(when="True"))
    lab = open_lab(empty_folder / "run", make_experiment("game.name=race.py:Race", "play.attempts=2"))
    with pytest.raises(PlayError, match="failed 2 times each"):
        wait(lab.parts.demonstrations.play_scripted("shared", 0, ["random"], 4))
    assert len(read_failures(empty_folder / "run")[0]) == 8


def test_failure_log_marks_the_last_attempt(empty_folder: Path) -> None:
    run_race(empty_folder, "len(act) % 3 == 0")
    rows = json.loads(arena("show", "run", "--failures", "--json").out)["failures"]
    assert {row["attempt"]: row["given_up"] for row in rows} == {0: False, 1: True}
