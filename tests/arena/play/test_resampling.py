"""Resampling: other deals are played in place of those that selection drops, and nothing else changes."""

import shutil
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
from arena.records import MatchRecord, Turn
from arena.store.run import RunFolder
from tests.factories.labs import RecordingWatcher, make_warm_experiment, open_lab, read_log, read_weight_files, run_lab


class Dealt(PlaySource):
    """Play in which a third of the deals is always lost by the opener, a third always won, and a third is open."""

    async def play(self, plans: list[MatchPlan]) -> Attempts:
        return [self.record(plan) for plan in plans], []

    def record(self, plan: MatchPlan) -> MatchRecord:
        chance = (0.0, 0.5, 1.0)[plan.seed % 3]
        won = float(np.random.default_rng((plan.seed, plan.identity.deal)).random() < chance)
        plain: dict[str, Any] = {
            "policy": "shared", "version": 0, "messages": (), "raw": "x", "public": "", "private": "", "action": "x",
            "valid": True, "finish": "stop", "tokens": 0, "seconds": 0.0,
        }  # fmt: skip
        earned = {"opener": won, "responder": 1.0 - won}
        turns = tuple(
            Turn(index=i, seat=seat, role=seating.role, rewards={"deal": earned[seat]}, **plain)
            for i, (seat, seating) in enumerate(plan.seats.items())
        )
        return MatchRecord(
            identity=plan.identity, game=plan.game, options=plan.options, seed=plan.seed, seats=plan.seats,
            status="finished", reason="", payoffs=earned, report={}, turns=turns, streams={},
            started="now", seconds=0.0,
        )  # fmt: skip


def dealt(folder: Path, warm: str, *assignments: str) -> Lab:
    given = make_warm_experiment(warm, "play.matches=96", "play.group=8", "credit.select=[zero_variance]", *assignments)
    lab = wait(Lab.open(RunFolder.create(folder, "name: x\n", {}), given, RecordingWatcher()))
    assert isinstance(lab.parts.source, PlaySource)
    lab.parts = replace(lab.parts, source=Dealt(**vars(lab.parts.source)))
    return lab


@pytest.mark.slow
def test_the_effective_batch_is_constant_with_resampling_and_shrinks_without(warm: str, tmp_path: Path) -> None:
    """DAPO's case: groups at p in {0, .5, 1}. A batch is 12 deals of 8 matches, two trajectories each: 192."""
    sizes = {}
    for rounds in (0, 1, 30):
        lab = dealt(
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


def test_what_is_not_dropped_is_not_played_again(warm: str, tmp_path: Path) -> None:
    lab = dealt(tmp_path / "run", warm, "play.parts=[{resample: {rounds: 5}}]", "credit.select=[]")
    records = wait(lab.play(1)).records
    assert len(records) == 96
    lab = dealt(tmp_path / "other", warm)
    assert wait(lab.play(1)).records == records, "the first round is that of a run without"


def test_selection_is_asked_often_and_credit_remembers_once(
    warm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RAE's baseline moves with the final batch alone: as in a run that had played just that batch at once."""

    def counting(batch: TurnBatch, rewards: Any) -> dict[str, Any]:
        """A stage that remembers how often it was asked."""
        batch.memory["counting"] = batch.memory.get("counting", 0) + 1
        return {}

    monkeypatch.setitem(STAGES, "counting", counting)
    rules = "credit.estimator=rae", "credit.stages=[counting]", "learn.replay=success"
    one = dealt(tmp_path / "one", warm, "play.parts=[{resample: {rounds: 30}}]", *rules)
    records = wait(one.play(1)).records
    assert one.parts.crediting.state() == {"memory": {}, "replay": {}}
    wait(one.parts.crediting.credit(1, records))
    other = dealt(tmp_path / "other", warm, *rules)
    wait(other.parts.crediting.credit(1, records))
    assert one.parts.crediting.state() == other.parts.crediting.state() and one.parts.crediting.state()["replay"]
    assert one.parts.crediting.state()["memory"]["counting"] == 1 and one.parts.crediting.state()["memory"]["rae"]


def resampled(warm: str) -> Experiment:
    return make_warm_experiment(
        warm, "play.matches=6", "play.group=2", "play.parts=[{resample: {rounds: 3}}]",
        "credit.select=[{zero_variance: {of: illegal}}]",
        "credit.estimator=rae",
    )  # fmt: skip


@pytest.fixture(scope="module")
def whole(warm: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RecordingWatcher]:
    folder, watcher = tmp_path_factory.mktemp("resampled") / "run", RecordingWatcher()
    run_lab(folder, resampled(warm), watcher)
    return folder, watcher


def test_a_run_says_what_was_dropped_and_played(whole: tuple[Path, RecordingWatcher]) -> None:
    run = RunFolder.open(whole[0])
    for row in run.reader.metrics():
        told = row["selection"]
        assert told["deals"] > 3 and row["matches"] == 2 * told["deals"], "some deal was played in another's place"
        assert told["dropped"] > 0 and told["replayed"] == told["out_of_loss"] == told["out_of_statistics"] == 0
        played = run.log.read(row["iteration"])
        assert [r["id"] for r in played] == [f"{row['iteration']:04d}-{i:04d}" for i in range(row["matches"])]
        seats = sum(len({t["seat"] for t in r["turns"]}) for r in played)
        assert told["trajectories"] == seats - told["dropped"]
        credited = {(c.match, c.seat) for c in run.log.credit(row["iteration"])}
        assert len(credited) == told["trajectories"]
    phases = [name for k, name in whole[1].phases if k == 1]
    assert phases[phases.index("credit") :] == ["credit", "learn", "commit"]
    assert 2 <= phases.count("play") == phases.index("credit") <= 4


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("moment", ["0001-0006", "0002-0005", None])
def test_a_resampled_run_resumes_bit_by_bit(
    whole: tuple[Path, RecordingWatcher], warm: str, tmp_path: Path, moment: str | None
) -> None:
    folder = tmp_path / "run"
    if moment is None:
        shutil.copytree(whole[0], folder)
        shutil.rmtree(folder / "checkpoints" / "0002")
    else:
        with pytest.raises(KeyboardInterrupt):
            wait(
                open_lab(
                    folder, resampled(warm), RecordingWatcher(lambda what, value: (what, value) == ("match", moment))
                ).run()
            )
    wait(wait(Lab.open(RunFolder.open(folder), resampled(warm), RecordingWatcher())).run())
    assert read_log(folder) == read_log(whole[0])
    assert read_weight_files(folder, 2) == read_weight_files(whole[0], 2)
    states = [(f / "checkpoints" / "0002" / "state.json").read_text() for f in (folder, whole[0])]
    assert states[0] == states[1]
