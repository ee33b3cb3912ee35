"""A small run: it plays, learns, logs everything, and resumes bit-equal."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM

from agents.engines.in_process import InProcessEngine
from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.layers import with_policies
from arena.credit.assign import assign
from arena.credit.batch import TurnBatch
from arena.lab import Lab
from arena.play.match import MatchPlan
from arena.records import MatchRecord, Turn, trajectories
from arena.store.run import RunFolder
from tests.factories.labs import (
    RecordingWatcher,
    check_resume,
    copy_run,
    make_experiment,
    make_warm_experiment,
    open_lab,
    read_log,
    read_weight_files,
    reopen_lab,
    resume_lab,
    run_lab,
    run_with_negated_advantages,
    stop_lab,
)
from tests.factories.models import are_equal, copy_weights
from tests.factories.traces import assert_same_runs


def test_run_folder_is_complete(small_run: tuple[Path, Lab, RecordingWatcher]) -> None:
    folder, lab, watcher = small_run
    run = RunFolder.open(folder)
    assert run.log.iterations() == [1, 2] and [len(run.reader.log.read(k)) for k in (1, 2)] == [6, 6]
    assert [row["iteration"] for row in run.reader.metrics()] == [1, 2]
    assert watcher.rows == run.reader.metrics()
    assert lab.done == 2 and lab.policies["shared"].version == 2
    assert [r["seats"]["opener"]["version"] for r in run.reader.matches()] == [0] * 6 + [1] * 6
    assert len({r["seed"] for r in run.reader.matches()}) == 12
    assert [name for k, name in watcher.phases if k == 1] == ["play", "credit", "learn", "commit"]
    weights = [read_weight_files(folder, k)[0] for k in (0, 1, 2)]
    assert len(set(weights)) == 3, "an iteration changed no weight"


@pytest.mark.slow
def test_a_run_that_saves_memory_is_the_same_run(tmp_path: Path, small_run: tuple[Path, Lab, RecordingWatcher]) -> None:
    """Activations are recomputed, and the reference is dropped before every update and loaded again."""
    config = make_experiment("learn.gradient_checkpointing=true", "learn.offload_reference=true")
    lab = run_lab(tmp_path / "run", config)
    assert read_log(tmp_path / "run") == read_log(small_run[0])
    assert read_weight_files(tmp_path / "run", 2) == read_weight_files(small_run[0], 2)
    offloading, keeping = lab.engine, small_run[1].engine
    assert isinstance(offloading, InProcessEngine) and isinstance(keeping, InProcessEngine)
    assert "shared@reference" not in offloading._served and "shared@reference" in keeping._served


def test_logged_turns_are_the_sampled_tokens(small_run: tuple[Path, Lab, RecordingWatcher]) -> None:
    """Invariant 1, in the log: every turn's tokens are masked, and their number is the turn's."""
    for row in RunFolder.open(small_run[0]).reader.matches():
        for seat, streams in row["streams"].items():
            for turn in (t for t in row["turns"] if t["seat"] == seat):
                places = [(s, i) for s in streams for i, k in enumerate(s["turns"]) if k == turn["index"]]
                assert len(places) == turn["tokens"] and all(s["mask"][i] for s, i in places)
            assert sum(map(sum, (s["mask"] for s in streams))) == sum(
                t["tokens"] for t in row["turns"] if t["seat"] == seat
            )


def test_a_checkpoint_is_a_folder_that_transformers_loads(small_run: tuple[Path, Lab, RecordingWatcher]) -> None:
    folder, lab, _ = small_run
    model = AutoModelForCausalLM.from_pretrained(folder / "checkpoints" / "0002" / "policies" / "shared")
    assert are_equal(copy_weights(lab.policies["shared"].model), copy_weights(model))


def test_credit_can_be_recomputed_from_the_log(small_run: tuple[Path, Lab, RecordingWatcher]) -> None:
    folder, lab, _ = small_run
    run = RunFolder.open(folder)
    for k in (1, 2):
        records = [MatchRecord.from_json(row) for row in run.reader.log.read(k)]
        again = assign(TurnBatch([t for r in records for t in trajectories(r)]), lab.experiment.credit)
        online = {(row.match, row.turn): (row.reward, row.advantage) for row in run.reader.credit(k)}
        offline = {
            (c.trajectory.match, turn.index): (reward, advantage)
            for c in again
            for turn, reward, advantage in zip(c.trajectory.turns, c.rewards, c.advantages, strict=True)
        }
        assert online == offline and any(advantage for _, advantage in online.values())


def test_equal_runs_are_bit_equal(small_run: tuple[Path, Lab, RecordingWatcher], tmp_path: Path) -> None:
    run_lab(tmp_path / "run", make_experiment())
    assert read_log(tmp_path / "run") == read_log(small_run[0])
    assert read_weight_files(tmp_path / "run", 2) == read_weight_files(small_run[0], 2)


def test_another_seed_is_another_run(warm: str, tmp_path: Path) -> None:
    logs = []
    for seed in (0, 1):
        lab = open_lab(tmp_path / str(seed), make_warm_experiment(warm, f"seed={seed}", "iterations=1"))
        wait(lab.play(1))
        logs.append(read_log(tmp_path / str(seed)))
    assert len(logs[0]) == 6 and logs[0] != logs[1]


def test_lost_checkpoint_is_replayed_bit_equal(small_run: tuple[Path, Lab, RecordingWatcher], tmp_path: Path) -> None:
    folder = copy_run(small_run[0], tmp_path / "run", done=1)
    lab = reopen_lab(folder, make_experiment())
    assert lab.done == 1 and lab.policies["shared"].version == 1
    wait(lab.run())
    assert_same_runs(folder, small_run[0])


def test_a_torn_checkpoint_is_skipped_with_the_reason(
    small_run: tuple[Path, Lab, RecordingWatcher], tmp_path: Path
) -> None:
    folder, watcher = tmp_path / "run", RecordingWatcher()
    shutil.copytree(small_run[0], folder)
    (folder / "checkpoints" / "0002" / "state.json").write_text("{}")
    lab = reopen_lab(folder, make_experiment(), watcher)
    assert lab.done == 1 and "state.json" in watcher.phases[0][1]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("event", "value"),
    [
        ("match", "0001-0002"),
        ("match", "0002-0004"),
        ("phase", (0, "imitate (shared): learning")),
        ("phase", (2, "learn")),
        ("phase", (2, "commit")),
    ],
)
def test_stopped_run_resumes_bit_equal(
    small_run: tuple[Path, Lab, RecordingWatcher], tmp_path: Path, event: str, value: Any
) -> None:
    folder = tmp_path / "run"
    stop_lab(folder, make_experiment(), event, value)
    resume_lab(folder, make_experiment())
    assert_same_runs(folder, small_run[0])


def test_separate_policies_are_two_sets_of_weights(warm: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    lab = run_lab(folder, with_policies(make_warm_experiment(warm), "separate"))
    assert sorted(p.name for p in (folder / "checkpoints" / "0002" / "policies").iterdir()) == [
        "nano_opener",
        "nano_responder",
    ]
    opener, responder = read_weight_files(folder, 2, "nano_opener"), read_weight_files(folder, 2, "nano_responder")
    assert opener[0] != responder[0] and opener[1] != responder[1]
    assert set(lab.parts.ratings.state()) == {"nano_opener/nano_opener", "nano_responder/nano_responder"}
    for row in RunFolder.open(folder).reader.matches():
        assert {t["seat"]: t["policy"] for t in row["turns"]}.items() <= {
            ("opener", "nano_opener"),
            ("responder", "nano_responder"),
        }


def make_config_with_frozen_responder(warm: str, *assignments: str) -> Experiment:
    return make_warm_experiment(
        warm, f"policies.old={{model: {warm}, train: false}}", "seats.responder.policy=old", *assignments
    )


def test_frozen_policy_does_not_change(warm: str, tmp_path: Path) -> None:
    lab = run_lab(tmp_path / "run", make_config_with_frozen_responder(warm))
    first = copy_weights(AutoModelForCausalLM.from_pretrained(warm))
    assert isinstance(lab.engine, InProcessEngine)
    current = {name: copy_weights(lab.engine._served[name].model) for name in ("shared", "old")}
    assert are_equal(current["old"], first), "the frozen policy changed"
    assert not are_equal(current["shared"], first)
    assert {row["seats"]["responder"]["version"] for row in RunFolder.open(tmp_path / "run").reader.matches()} == {0}
    credited = {row.seat for k in (1, 2) for row in RunFolder.open(tmp_path / "run").reader.credit(k)}
    assert credited == {"opener"}


@pytest.mark.slow
def test_a_run_with_a_frozen_policy_resumes_bit_by_bit(warm: str, tmp_path: Path) -> None:
    """The engine's cache of a policy that is never published again must not survive a restart."""
    config = make_config_with_frozen_responder(warm, "play.matches=2", "iterations=3", "checkpoint.keep=9")
    check_resume(config, tmp_path)


def test_each_policy_learns_only_from_its_own_roles_tokens(warm: str, tmp_path: Path) -> None:
    """The opener's reversed advantages change the opener's weights and not one bit of the responder's."""
    config = with_policies(make_warm_experiment(warm, "iterations=1"), "separate")
    run_lab(tmp_path / "plain", config)
    run_with_negated_advantages(tmp_path / "turned", config, role="nano_opener")
    for policy, equal in (("nano_opener", False), ("nano_responder", True)):
        first, second = (read_weight_files(tmp_path / name, 1, policy) for name in ("plain", "turned"))
        assert (first == second) is equal


def test_zero_credit_without_kl_changes_no_weight(warm: str, tmp_path: Path) -> None:
    run_lab(
        tmp_path / "run",
        make_warm_experiment(warm, "credit.estimator=zero", "learn.regularisers={kl: {weight: 0}}", "iterations=1"),
    )
    assert read_weight_files(tmp_path / "run", 1)[0] == (Path(warm) / "model.safetensors").read_bytes()


def test_unfinishable_match_is_logged_and_stops_the_run(warm: str, tmp_path: Path) -> None:
    from arena.errors import PlayError

    config = make_warm_experiment(
        warm, "play.limits.tokens=1", "play.attempts=2", "play.in_flight=1", "game.options.illegal=retry"
    )
    with pytest.raises(PlayError, match="failed 2 times each, the last time with: token limit"):
        run_lab(tmp_path / "run", config)
    failed = [row for row in RunFolder.open(tmp_path / "run").reader.matches() if row["status"] == "failed"]
    assert failed[-1]["id"] == f"{failed[-2]['id']}-r1" and failed[-1]["seed"] == failed[-2]["seed"]
    assert all(row["payoffs"] == {} and "token limit" in row["reason"] for row in failed)


def test_watcher_with_turn_method_receives_turns(tmp_path: Path) -> None:
    class Viewer(RecordingWatcher):
        """Watcher of every turn."""

        def __init__(self) -> None:
            super().__init__()
            self.turns: list[tuple[str, int, str]] = []

        def turn(self, plan: MatchPlan, turn: Turn) -> None:
            self.turns.append((plan.id, turn.index, turn.raw))

    viewer, config = Viewer(), make_experiment("policies.shared.imitate=null", "iterations=1")
    lab = open_lab(tmp_path / "run", config, viewer)
    records, failures, _ = wait(lab.play(1))
    assert sorted(viewer.turns) == sorted((r.id, t.index, t.raw) for r in [*records, *failures] for t in r.turns)
