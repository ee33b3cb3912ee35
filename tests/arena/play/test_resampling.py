"""Resampling: other deals replace those that selection drops, and nothing else changes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.credit.batch import TurnBatch
from arena.credit.rewards import STAGES
from arena.lab import Lab
from arena.play.match import MatchPlan
from arena.play.source import Attempts, PlaySource
from arena.records import MatchRecord
from arena.store.run import RunFolder
from tests.factories.labs import RecordingWatcher, copy_run, make_warm_experiment, resume_lab, run_lab, stop_lab
from tests.factories.records import make_match_record, make_turn
from tests.factories.traces import assert_same_runs


class ScriptedSource(PlaySource):
    """Play in which the opener always loses a third of the deals, always wins a third, and wins half of the rest."""

    async def play(self, plans: list[MatchPlan]) -> Attempts:
        return [self.make_record(plan) for plan in plans], []

    def make_record(self, plan: MatchPlan) -> MatchRecord:
        chance = (0.0, 0.5, 1.0)[plan.seed % 3]
        won = float(np.random.default_rng((plan.seed, plan.identity.deal)).random() < chance)
        payoffs = {"opener": won, "responder": 1.0 - won}
        turns = tuple(
            make_turn(i, {"deal": payoffs[seat]}, seat, role=seating.role, version=0, tokens=0)
            for i, (seat, seating) in enumerate(plan.seats.items())
        )
        return make_match_record(
            identity=plan.identity, game=plan.game, options=plan.options, seed=plan.seed, seats=plan.seats,
            payoffs=payoffs, turns=turns,
        )  # fmt: skip


def open_resampling_lab(folder: Path, warm: str, *assignments: str) -> Lab:
    config = make_warm_experiment(
        warm, "play.matches=96", "play.group=8", "credit.select=[zero_variance]", *assignments
    )
    lab = wait(Lab.open(RunFolder.create(folder, "name: x\n", {}), config, RecordingWatcher()))
    assert isinstance(lab.parts.source, PlaySource)
    lab.parts = replace(lab.parts, source=ScriptedSource(**vars(lab.parts.source)))
    return lab


@pytest.mark.slow
def test_resampling_keeps_the_effective_batch_constant(warm: str, tmp_path: Path) -> None:
    """DAPO's case: groups with p in {0, .5, 1}. 12 deals of 8 matches with two trajectories each are a batch of 192."""
    sizes = {}
    for rounds in (0, 1, 30):
        lab = open_resampling_lab(
            tmp_path / str(rounds), warm, *([f"play.parts=[{{resample: {{rounds: {rounds}}}}}]"] if rounds else [])
        )
        records = {k: wait(lab.play(k)).records for k in range(1, 7)}
        sizes[rounds] = [len(wait(lab.parts.crediting.credit(k, found)).credited) for k, found in records.items()]
        for k, found in records.items():
            assert [r.id for r in found] == [f"{k:04d}-{i:04d}" for i in range(len(found))], "numbering goes on"
            deals = [r.seed for r in found[::8]]
            assert len(set(deals)) == len(deals) and all(r.seed == deals[i // 8] for i, r in enumerate(found))
        played = [len(found) for found in records.values()]
        assert all(count == 96 for count in played) if rounds == 0 else all(count > 96 for count in played)
    assert sizes[30] == [192] * 6
    assert all(size % 16 == 0 and size < 192 for size in sizes[0]), "whole deals are dropped, both roles of them"
    assert np.mean(sizes[0]) == pytest.approx(192 / 3, abs=25)
    assert all(less <= more for less, more in zip(sizes[0], sizes[1], strict=True)) and sum(sizes[0]) < sum(sizes[1])


def test_nothing_is_resampled_if_nothing_is_dropped(warm: str, tmp_path: Path) -> None:
    lab = open_resampling_lab(tmp_path / "run", warm, "play.parts=[{resample: {rounds: 5}}]", "credit.select=[]")
    records = wait(lab.play(1)).records
    assert len(records) == 96
    lab = open_resampling_lab(tmp_path / "other", warm)
    assert wait(lab.play(1)).records == records, "the first round is that of a run without"


def test_credit_memory_is_updated_once_per_iteration(
    warm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RAE's baseline is updated with the final batch only, as in a run that plays that batch at once."""

    def count_calls(batch: TurnBatch, rewards: Any) -> dict[str, Any]:
        """Stage that counts how often it is asked."""
        batch.memory["counting"] = batch.memory.get("counting", 0) + 1
        return {}

    monkeypatch.setitem(STAGES, "counting", count_calls)
    rules = "credit.estimator=rae", "credit.stages=[counting]", "learn.replay=success"
    first = open_resampling_lab(tmp_path / "one", warm, "play.parts=[{resample: {rounds: 30}}]", *rules)
    records = wait(first.play(1)).records
    assert first.parts.crediting.state() == {"memory": {}, "replay": {}}
    wait(first.parts.crediting.credit(1, records))
    second = open_resampling_lab(tmp_path / "other", warm, *rules)
    wait(second.parts.crediting.credit(1, records))
    assert first.parts.crediting.state() == second.parts.crediting.state() and first.parts.crediting.state()["replay"]
    assert first.parts.crediting.state()["memory"]["counting"] == 1 and first.parts.crediting.state()["memory"]["rae"]


def make_experiment(warm: str) -> Experiment:
    return make_warm_experiment(
        warm, "play.matches=6", "play.group=2", "play.parts=[{resample: {rounds: 3}}]",
        "credit.select=[{zero_variance: {of: illegal}}]",
        "credit.estimator=rae",
    )  # fmt: skip


@pytest.fixture(scope="module")
def finished_run(warm: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RecordingWatcher]:
    folder, watcher = tmp_path_factory.mktemp("resampled") / "run", RecordingWatcher()
    run_lab(folder, make_experiment(warm), watcher)
    return folder, watcher


def test_run_reports_dropped_and_replaced_deals(finished_run: tuple[Path, RecordingWatcher]) -> None:
    run = RunFolder.open(finished_run[0])
    for row in run.reader.metrics():
        selection = row["selection"]
        assert selection["deals"] > 3 and row["matches"] == 2 * selection["deals"], (
            "some deal was played in another's place"
        )
        assert (
            selection["dropped"] > 0
            and selection["replayed"] == selection["out_of_loss"] == selection["out_of_statistics"] == 0
        )
        played = run.reader.log.read(row["iteration"])
        assert [r["id"] for r in played] == [f"{row['iteration']:04d}-{i:04d}" for i in range(row["matches"])]
        seats = sum(len({t["seat"] for t in r["turns"]}) for r in played)
        assert selection["trajectories"] == seats - selection["dropped"]
        credited = {(c.match, c.seat) for c in run.reader.credit(row["iteration"])}
        assert len(credited) == selection["trajectories"]
    phases = [name for k, name in finished_run[1].phases if k == 1]
    assert phases[phases.index("credit") :] == ["credit", "learn", "commit"]
    assert 2 <= phases.count("play") == phases.index("credit") <= 4


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("moment", ["0001-0006", "0002-0005", None])
def test_a_resampled_run_resumes_bit_by_bit(
    finished_run: tuple[Path, RecordingWatcher], warm: str, tmp_path: Path, moment: str | None
) -> None:
    folder = tmp_path / "run"
    if moment is None:
        copy_run(finished_run[0], folder, done=1)
    else:
        stop_lab(folder, make_experiment(warm), "match", moment)
    resume_lab(folder, make_experiment(warm))
    assert_same_runs(folder, finished_run[0])
