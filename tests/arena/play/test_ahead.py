"""Play ahead: replies have a bounded age; no match is lost, doubled or judged with the wrong weights."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agents.engines.base import Completion, Request
from agents.engines.in_process import InProcessEngine
from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.errors import ConfigError, GateError
from arena.play.source import AheadSource, PlayedMatches
from arena.store.run import RunFolder
from tests.factories.labs import (
    RecordingWatcher,
    make_experiment,
    make_warm_experiment,
    open_lab,
    read_weight_files,
    reopen_lab,
    run_lab,
    stop_lab,
)


def make_ahead_experiment(warm: str, *assignments: str) -> Experiment:
    return make_warm_experiment(warm, "iterations=3", "play.matches=8", "checkpoint.keep=9", *assignments)


def compute_lags(folder: Path) -> list[int]:
    """Return for every turn how many versions older it is than the weights that learn from it."""
    rows = RunFolder.open(folder).reader.matches()
    return [row["iteration"] - 1 - turn["version"] for row in rows for turn in row["turns"]]


def assert_complete(folder: Path, iterations: int = 3, matches: int = 8, is_all_credited: bool = True) -> None:
    """Assert that every match is in the log and in credit once, and every iteration in the metrics."""
    run = RunFolder.open(folder)
    assert run.log.iterations() == list(range(1, iterations + 1))
    run_lab = [row["id"] for row in run.reader.matches() if row["status"] == "finished"]
    assert len(run_lab) == len(set(run_lab)) == iterations * matches
    credited = [m for k in run.log.iterations() for m in dict.fromkeys(row.match for row in run.reader.credit(k))]
    assert credited and set(credited) <= set(run_lab) and len(credited) == len(set(credited))
    assert is_all_credited is False or sorted(credited) == sorted(run_lab)
    assert [row["iteration"] for row in run.reader.metrics()] == list(range(1, iterations + 1))


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("ahead", [1, 2])
def test_replies_have_bounded_age(warm: str, tmp_path: Path, ahead: int) -> None:
    watcher = RecordingWatcher()
    lab = run_lab(tmp_path / "run", make_ahead_experiment(warm, f"play.ahead={ahead}"), watcher)
    assert_complete(tmp_path / "run")
    assert lab.policies["shared"].version == 3
    found = compute_lags(tmp_path / "run")
    assert min(found) == 0 and 0 < max(found) <= ahead, "some was played ahead, and none too early"
    rows = [row["learn"]["shared"] for row in watcher.rows]
    assert rows[0]["most_lag"] == 0 and max(row["most_lag"] for row in rows) == max(found)
    assert all(row["gated"] >= 16 for row in rows), "the gate always has replies by the present weights"
    assert all(0 < row["seconds"]["waited"] <= row["seconds"]["play"] for row in watcher.rows)


@pytest.mark.slow
def test_deals_equal_those_of_a_sequential_run(warm: str, tmp_path: Path) -> None:
    seeds = []
    for ahead in (0, 2):
        run_lab(tmp_path / str(ahead), make_ahead_experiment(warm, f"play.ahead={ahead}"))
        seeds.append([(row["id"], row["seed"]) for row in RunFolder.open(tmp_path / str(ahead)).reader.matches()])
    assert seeds[0] == seeds[1]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("event", "value"), [("match", "0002-0003"), ("phase", (2, "learn")), ("phase", (2, "commit"))]
)
def test_killed_run_resumes_with_nothing_lost_or_doubled(warm: str, tmp_path: Path, event: str, value: Any) -> None:
    folder, config = tmp_path / "run", make_ahead_experiment(warm, "play.ahead=1")
    stop_lab(folder, config, event, value)
    resumed_lab = reopen_lab(folder, config)
    assert max(RunFolder.open(folder).log.iterations(), default=0) <= resumed_lab.done, "the rest is played again"
    wait(resumed_lab.run())
    assert_complete(folder)
    assert max(compute_lags(folder)) <= 1
    assert len({read_weight_files(folder, k)[0] for k in (1, 2, 3)}) == 3


def test_closing_ends_play_ahead(warm: str, tmp_path: Path) -> None:
    lab = open_lab(tmp_path / "run", make_ahead_experiment(warm, "play.ahead=2"))

    async def iterate_once() -> int:
        await lab.iterate(1)
        await lab.close()
        return len(asyncio.all_tasks()) - 1

    assert wait(iterate_once()) == 0


def break_engine_from(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    """Shift the engine's log-probabilities by -0.5 in replies of this version and later ones."""
    decode = InProcessEngine._decode

    def decode_shifted(self: InProcessEngine, requests: list[Request]) -> list[Completion]:
        return [
            Completion(c.ids, tuple(p - 0.5 for p in c.logprobs), c.finish, c.version) if c.version >= version else c
            for c in decode(self, requests)
        ]

    monkeypatch.setattr(InProcessEngine, "_decode", decode_shifted)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_gate_stops_a_wrong_engine_despite_old_replies(
    warm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    break_engine_from(monkeypatch, version)
    lab = open_lab(tmp_path / "run", make_ahead_experiment(warm, "play.ahead=1"))
    with pytest.raises(GateError, match=r"differ by 0\.5"):
        wait(lab.run())
    assert lab.done == version, "in the first update of the weights that it serves wrongly"


@pytest.mark.parametrize("stage", [0, 3])
def test_gate_accepts_correct_replies_of_older_weights(warm: str, tmp_path: Path, stage: int) -> None:
    """With this learning rate versions differ by far more than the gate allows."""
    settings = ("play.ahead=2", "learn.lr=1e-2", "learn.gate_tolerance=1e-4", f"learn.zero_stage={stage}")
    run_lab(tmp_path / "run", make_ahead_experiment(warm, *settings))
    rows = RunFolder.open(tmp_path / "run").reader.metrics()
    assert rows[-1]["learn"]["shared"]["most_lag"] >= 1


def test_engine_that_claims_an_impossible_version_is_stopped(
    warm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = InProcessEngine._decode

    def decode_as_later_version(self: InProcessEngine, requests: list[Request]) -> list[Completion]:
        return [Completion(c.ids, c.logprobs, c.finish, c.version + 3) for c in decode(self, requests)]

    monkeypatch.setattr(InProcessEngine, "_decode", decode_as_later_version)
    with pytest.raises(GateError, match="version 0 would learn from replies of version 3"):
        wait(open_lab(tmp_path / "run", make_ahead_experiment(warm, "play.ahead=1")).run())


@pytest.mark.slow
def test_league_opponents_are_played_ahead(warm: str, tmp_path: Path) -> None:
    """Past versions stay while planned matches need them, though the pool holds only one."""
    league = "league={opponents: [{play: past, lag: 1, weight: 1}], pool: {keep: 2, every: 1, in_memory: 1}}"
    config = make_ahead_experiment(warm, "play.ahead=2", "iterations=5", league, "checkpoint.keep=1")
    run_lab(tmp_path / "run", config)
    assert_complete(tmp_path / "run", iterations=5, is_all_credited=False)  # a match may have no turn of a learner
    met = {s["policy"] for row in RunFolder.open(tmp_path / "run").reader.matches() for s in row["seats"].values()}
    assert any("@" in name for name in met)


def test_iteration_begins_when_its_predecessor_is_handed_out() -> None:
    """It never begins earlier, which bounds the age however long updates take."""
    begun: list[int] = []

    class RecordingSource:
        async def matches(self, k: int) -> PlayedMatches:
            begun.append(k)
            return PlayedMatches([], [])

        async def close(self) -> None: ...

    async def run_iterations() -> list[list[int]]:
        seen = []
        source = AheadSource(RecordingSource(), 2, 4, RecordingWatcher())
        for k in (1, 2, 3, 4):
            await source.matches(k)
            await asyncio.sleep(0.001)
            seen.append(list(begun))
        return seen

    assert asyncio.run(run_iterations()) == [[1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]]


def test_incompatible_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="resample"):
        make_experiment("play.ahead=1", "play.parts=[resample]")
    with pytest.raises(ConfigError, match="branches"):
        make_experiment("play.enough=0.9", "play.parts=[branches]")
