"""Replay: which trajectories return, what they replace, their advantages, and bit-equal resumption."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena.cli.loop import wait
from arena.config.experiment import Experiment, LearnSpec
from arena.config.kinds import choose
from arena.credit.assign import assign
from arena.credit.batch import CreditedTrajectory, TrajectoryKey, TurnBatch
from arena.credit.compare import compare
from arena.credit.replay import Entry, Recall, SelfImitation, Success, apply_recalls, load_recalled
from arena.credit.settings import CreditSpec
from arena.errors import GateError, StoreError
from arena.learn.trainer import PolicyTrainer
from arena.parts.schedules import Clock
from arena.records import MatchRecord, Trajectory, trained_trajectories
from arena.store.matchlog import MatchLog
from arena.store.reader import LogReader
from arena.store.run import RunFolder
from tests.factories.labs import (
    RecordingWatcher,
    copy_run,
    make_warm_experiment,
    read_weight_files,
    resume_lab,
    run_lab,
)
from tests.factories.models import are_equal, copy_weights, make_tiny_llama
from tests.factories.samples import make_samples
from tests.factories.traces import assert_same_runs
from tests.factories.trajectories import assign_credit, make_groups, make_record, make_scored_trajectory
from tests.factories.updating import run_update


def write_log(folder: Path, *trajectories: Trajectory, seal: bool = True) -> LogReader:
    """Write a match log of these trajectories, each the only seat of its match."""
    match_log = MatchLog(folder / "log")
    for t in trajectories:
        match_log.extend([make_record(t)])
    for k in match_log.iterations() if seal else ():
        match_log.seal(k)
    match_log.close()
    return LogReader(folder / "log")


def make_batch(trajectories: list[Trajectory], k: int = 2) -> tuple[TurnBatch, np.ndarray]:
    batch = TurnBatch(trajectories, Clock(k, 10))
    return batch, batch.column(lambda turn: sum(turn.rewards.values()))


OLD_SUCCESS = make_scored_trajectory(1.0, seed=77, match="0001-0005", turns=2, raw="old")
TASK_KEY = '["g", "buyer", "buyer", "shared"]'
KNOWN_ENTRY: list[Any] = ["0001-0005", "buyer", "shared", TASK_KEY, 1.0]


# -- a success in a failed group ---------------------------------------------------------------------------


ANY_DEAL: tuple[TrajectoryKey, ...] = ("game", "role")


@pytest.mark.parametrize("seal", [True, False])
def test_injected_success_by_hand(tmp_path: Path, seal: bool) -> None:
    """One 1 among seven 0: mean 1/8, sample variance ((7/8)² + 7 (1/8)²) / 7 = 1/8; (7/8)/√(1/8) = 2.475, -.354."""
    replay = Success({TASK_KEY: [KNOWN_ENTRY]}, write_log(tmp_path, OLD_SUCCESS, seal=seal), by=ANY_DEAL)
    failures = make_groups([0.0] * 8)
    injected = replay.inject(*make_batch(failures))
    assert injected[0] == replace(OLD_SUCCESS, seed=0, source="recalled") and injected[1:] == failures[1:]
    rule = CreditSpec.model_validate(dict(estimator="grpo", select=["zero_variance"]))
    assert assign(TurnBatch(failures), rule) == [], "without the injected success nothing is learned"
    values = [c.advantages.tolist() for c in assign(TurnBatch(injected), rule)]
    assert values[0] == pytest.approx([7 / 8 / math.sqrt(1 / 8)] * 2, rel=1e-5)
    assert values[0][0] == pytest.approx(2.475, abs=5e-4)
    assert [v[0] for v in values[1:]] == pytest.approx([-1 / 8 / math.sqrt(1 / 8)] * 7, rel=1e-5)
    assert values[1][0] == pytest.approx(-0.354, abs=5e-4)


def test_success_of_another_deal_is_not_injected(tmp_path: Path) -> None:
    memory: dict[str, Any] = {}
    replay = Success(memory, write_log(tmp_path, OLD_SUCCESS))
    replay.extra_trajectories(*make_batch([replace(OLD_SUCCESS, seed=5)]), [])
    batch, rewards = make_batch([*make_groups([0.0, 0.0]), *(replace(t, seed=5) for t in make_groups([0.0, 0.0]))])
    assert [t.source == "recalled" for t in replay.inject(batch, rewards)] == [False, False, True, False]


def test_failures_keep_zero_advantage_if_replays_are_not_counted(tmp_path: Path) -> None:
    injected = Success({TASK_KEY: [KNOWN_ENTRY]}, write_log(tmp_path, OLD_SUCCESS), by=ANY_DEAL).inject(
        *make_batch(make_groups([0.0] * 8))
    )
    results = assign_credit(injected, "replayed", estimator="dr_grpo")
    assert [c.advantages.tolist() for c in results] == [[1.0, 1.0]] + [[0.0]] * 7


def test_only_failed_groups_get_a_success(tmp_path: Path) -> None:
    memory = {TASK_KEY: [KNOWN_ENTRY]}
    buyers = make_groups([0.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.1, 0.14], [0.0])
    sellers = [replace(t, role="seller", seat="seller") for t in buyers]
    others = [replace(t, policy="other") for t in buyers]
    batch, rewards = make_batch(buyers + sellers + others)
    injected = Success(memory, write_log(tmp_path, OLD_SUCCESS), by=ANY_DEAL).inject(batch, rewards)
    # deal 1 varies, deal 2 is no failure, deal 4 has one match, and other seats' and policies' successes do not count
    assert [i for i, t in enumerate(injected) if t.source == "recalled"] == [0, 6]
    assert [t.seed for t in injected] == [t.seed for t in batch.trajectories]
    assert memory == {TASK_KEY: [KNOWN_ENTRY]}, "inject does not change the memory"
    assert Success({}, write_log(tmp_path / "other")).inject(batch, rewards) == list(batch.trajectories)


def test_the_latest_successes_of_each_task_are_remembered(tmp_path: Path) -> None:
    memory: dict[str, Any] = {}
    replay = Success(memory, write_log(tmp_path), keep=2, by=ANY_DEAL)
    trajectories = make_groups([0.0, 0.1, 0.11, 1.0], [0.5])
    trajectories += [make_scored_trajectory(1.0, match="0002-0009", role="seller")]
    batch, rewards = make_batch(trajectories)
    assert replay.extra_trajectories(batch, rewards, []) == []
    seller = TASK_KEY.replace("buyer", "seller")
    assert {task: [(row[0], row[4]) for row in rows] for task, rows in memory.items()} == {
        TASK_KEY: [("0001-0003", 1.0), ("0001-0004", 0.5)],
        seller: [("0002-0009", 1.0)],
    }
    assert json.loads(json.dumps(memory)) == memory
    by_deal: dict[str, Any] = {}
    Success(by_deal, write_log(tmp_path)).extra_trajectories(batch, rewards, [])
    assert [len(rows) for rows in by_deal.values()] == [2, 1, 1]


def test_named_reward_can_be_the_score(tmp_path: Path) -> None:
    trajectories = make_groups([0.0, 0.0])
    batch = TurnBatch(trajectories)
    memory: dict[str, Any] = {TASK_KEY: [KNOWN_ENTRY]}
    by_sum, by_deal = (
        Success(memory, write_log(tmp_path, OLD_SUCCESS), by=ANY_DEAL),
        Success(memory, write_log(tmp_path), by=ANY_DEAL, of="deal"),
    )
    assert not any(t.source == "recalled" for t in by_sum.inject(batch, np.array([1.0, 1.0])))
    by_deal = replace(by_deal, log=by_sum.log)
    assert [t.source == "recalled" for t in by_deal.inject(batch, np.array([1.0, 1.0]))] == [True, False]


def test_removed_match_gives_one_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"has no match 0001-0005, which replay needs: it was removed$"):
        load_recalled(write_log(tmp_path), [Entry(*KNOWN_ENTRY)])


def test_recalled_trajectories_equal_the_logged_ones(tmp_path: Path) -> None:
    trajectories = [*make_groups([0.0, 1.0, 2.0], turns=3), make_scored_trajectory(5.0, match="0002-0000")]
    entries = [Entry(t.match, t.seat, t.policy, "", 0.0) for t in (trajectories[3], trajectories[1], trajectories[1])]
    assert load_recalled(write_log(tmp_path, *trajectories), entries) == [
        replace(t, source="recalled") for t in (trajectories[3], trajectories[1], trajectories[1])
    ]


# -- self-imitation ----------------------------------------------------------------------------------------


def make_self_imitation(folder: Path, *trajectories: Trajectory, **settings: Any) -> SelfImitation:
    defaults: dict[str, Any] = {"threshold": 0, "weight": choose("schedule", "constant", value=1.0)}
    return SelfImitation({}, write_log(folder, *trajectories), **{**defaults, **settings})


def replay_iteration(
    replay: SelfImitation, k: int, scores: list[float], trajectories: list[Trajectory] | None = None
) -> list[Any]:
    """Return the matches replayed after an iteration with these scores, as (match, advantages of its turns)."""
    trajectories = trajectories or make_trajectories(k, scores)
    batch, rewards = make_batch(trajectories, k)
    advantages = np.array(scores) - np.mean(scores)
    results = [
        CreditedTrajectory(trajectory=t, rewards=np.zeros(1), advantages=np.array([gap]))
        for t, gap in zip(trajectories, advantages, strict=True)
    ]
    extra = replay.extra_trajectories(batch, rewards, results)
    assert all(c.trajectory.source == "recalled" for c in extra)
    return [(c.trajectory.match, *c.advantages.tolist()) for c in extra]


def make_trajectories(k: int, scores: list[float], **changes: Any) -> list[Trajectory]:
    return [make_scored_trajectory(score, i, f"{k:04d}-{i:04d}", **changes) for i, score in enumerate(scores)]


def test_advantage_is_the_score_above_the_current_median(tmp_path: Path) -> None:
    logged = [
        *make_trajectories(1, [0.0, 1.0]),
        *make_trajectories(2, [2.0, 2.0]),
        *make_trajectories(3, [0.0, 0.0, 0.0]),
    ]
    replay = make_self_imitation(tmp_path, *logged, threshold=1)
    assert replay_iteration(replay, 1, [0.0, 1.0]) == []  # only 0001-0001 has A > 0, and one is not more than one
    assert [Entry(*row).match for row in replay.memory["admitted"]] == ["0001-0001"]
    replay = replace(replay, threshold=0)
    # means so far 0 1 2 2, median 1.5: the score of 1 has been passed, its A is 0
    assert replay_iteration(replay, 2, [2.0, 2.0]) == []
    assert [Entry(*row).match for row in replay.memory["admitted"]] == ["0001-0001"]
    # means so far 0 1 2 2 0 0 0, median 0: it is worth 1 again
    assert replay_iteration(replay, 3, [0.0, 0.0, 0.0]) == [("0001-0001", 1.0)]
    assert replay.memory["admitted"] == [], "replayed entries are removed"


def test_groups_are_compared_by_their_means(tmp_path: Path) -> None:
    """Two groups, of 0 0 3 and of 1 1: means 1 and 1, deviations √2 and 0; scores of 3 gain 2, in std 2 / (√2/2)."""
    trajectories = make_groups([0.0, 0.0, 3.0], [1.0, 1.0])
    batch, rewards = make_batch(trajectories, 1)
    results = [
        CreditedTrajectory(trajectory=t, rewards=np.zeros(1), advantages=np.array([s - 1.0]))
        for t, s in zip(trajectories, rewards.tolist(), strict=True)
    ]
    replay = make_self_imitation(tmp_path, *trajectories)
    assert [c.advantages.tolist() for c in replay.extra_trajectories(batch, rewards, results)] == [[2.0]]
    assert list(replay.memory["means"].values()) == [[1.0, 1.0]]
    replay = make_self_imitation(tmp_path / "std", *trajectories, std=True)
    assert replay.extra_trajectories(batch, rewards, results)[0].advantages == pytest.approx(
        [2 / (math.sqrt(2) / 2)], rel=1e-5
    )


def test_excludes_old_surplus_and_unmatched_trajectories(tmp_path: Path) -> None:
    logged = [*make_trajectories(1, [0.0, 1.0]), *make_trajectories(2, [5.0, 5.0]), *make_trajectories(4, [0.0] * 5)]
    for tolerate, expected in ((3, [("0001-0001", 1.0)]), (2, [])):
        replay = make_self_imitation(tmp_path / f"old{tolerate}", *logged, tolerate=tolerate)
        replay_iteration(replace(replay, threshold=9), 1, [0.0, 1.0])
        assert replay_iteration(replay, 4, [0.0] * 5) == expected
    many = make_trajectories(1, [0.0] * 6 + [1.0] * 5)
    replay = make_self_imitation(tmp_path / "many", *many, size=3)
    replayed = replay_iteration(replay, 1, [0.0] * 6 + [1.0] * 5)
    assert len(replayed) == len(set(replayed)) == 3 and all(a == 1.0 for _, a in replayed)
    assert replay_iteration(make_self_imitation(tmp_path / "few", *many, threshold=5), 1, [0.0] * 6 + [1.0] * 5) == []
    calls = [*make_trajectories(1, [0.0, 0.0, 1.0]), make_scored_trajectory(1.0, 3, "0001-0003", raw="tool: look")]
    replay = make_self_imitation(tmp_path / "calls", *calls, pattern=r"tool:\s")
    assert replay_iteration(replay, 1, [0.0, 0.0, 1.0, 1.0], calls) == [("0001-0003", 0.5)]


def test_random_control_gives_the_advantages_to_random_trajectories(tmp_path: Path) -> None:
    """Median 0: the three above the mean of .9 have advantages 2, 3, 4; random ones of the next iteration get these."""
    scores = [0.0] * 7 + [2.0, 3.0, 4.0]
    earlier, later = make_trajectories(1, scores), make_trajectories(2, [0.0] * 10)
    replay = make_self_imitation(tmp_path, *earlier, *later, which="any")
    replay_iteration(replace(replay, threshold=9), 1, scores)
    replayed = replay_iteration(replay, 2, [0.0] * 10)
    assert sorted(a for _, a in replayed) == [2.0, 3.0, 4.0] and replay.memory["admitted"] == []
    assert len({match for match, _ in replayed}) == 3 and all(match.startswith("0002-") for match, _ in replayed)
    short_replay = make_self_imitation(tmp_path / "few", *earlier, *make_trajectories(3, [0.0]), which="any")
    replay_iteration(replace(short_replay, threshold=9), 1, scores)
    assert [match for match, _ in replay_iteration(short_replay, 3, [0.0])] == ["0003-0000"] * 3


def test_weight_follows_its_schedule(tmp_path: Path) -> None:
    """coefficient · (1 - cos(πt/T))/2: 0 in the first iteration, then (1 - cos(π/4))/2 with T = 4."""
    schedule = choose("schedule", "cosine", start=0.0, end=1.0, over=4)
    replay = make_self_imitation(
        tmp_path, *make_trajectories(1, [0.0, 1.0]), *make_trajectories(2, [0.0, 0.0]), weight=schedule
    )
    assert replay_iteration(replay, 1, [0.0, 1.0]) == [] and len(replay.memory["admitted"]) == 1
    assert replay_iteration(replay, 2, [0.0, 0.0]) == [("0001-0001", pytest.approx((1 - math.cos(math.pi / 4)) / 2))]


def test_histories_are_per_task_and_bounded(tmp_path: Path) -> None:
    trajectories = [
        *make_trajectories(1, [0.0, 1.0, 2.0]),
        *(replace(t, role="seller") for t in make_trajectories(1, [7.0])),
    ]
    replay = make_self_imitation(tmp_path, history=2)
    replay.extra_trajectories(*make_batch(trajectories, 1), [])
    assert replay.memory["means"] == {'["g", "buyer", "shared"]': [1.0, 2.0], '["g", "seller", "shared"]': [7.0]}
    replay = make_self_imitation(tmp_path / "one", by=())
    replay.extra_trajectories(*make_batch(trajectories, 1), [])
    assert replay.memory["means"] == {'["shared"]': [0.0, 1.0, 2.0, 7.0]}
    assert json.loads(json.dumps(replay.memory)) == replay.memory


def test_each_policy_has_its_own_memory(tmp_path: Path) -> None:
    own, others = (
        make_trajectories(1, [0.0, 1.0]),
        [replace(t, policy="other") for t in make_trajectories(2, [0.0, 0.0])],
    )
    replay = make_self_imitation(tmp_path, *own, *others)
    replay_iteration(replace(replay, threshold=9), 1, [0.0, 1.0])
    assert replay_iteration(replace(replay, threshold=1), 2, [0.0, 0.0], others) == []
    assert [Entry(*row).policy for row in replay.memory["admitted"]] == ["shared"]


# -- the update --------------------------------------------------------------------------------------------


def test_gate_ignores_replayed_samples_and_corrections_weigh_them() -> None:
    """Sampled by weights to which each token was e^.5 times as likely: ρ = e^-.5, the loss -ρ A, or openly -A."""
    for name, loss in (("uncorrected", -1.0), ("truncated", -math.exp(-0.5))):
        model = make_tiny_llama()
        shifted = [replace(s, behaviour=s.behaviour + np.float32(0.5)) for s in make_samples(model, advantage=1.0)]
        rule = LearnSpec.model_validate(dict(lr=0.1, loss={"policy_gradient": {"correction": name}}, regularisers={}))
        with pytest.raises(GateError):
            run_update(PolicyTrainer("p", make_tiny_llama(), rule), shifted, np.random.default_rng(0))
        replayed = [replace(s, source="replayed") for s in shifted]
        figures = run_update(PolicyTrainer("p", model, rule), replayed, np.random.default_rng(0))
        assert figures["loss"] == pytest.approx(loss, rel=1e-4) and "logprob_gap" not in figures
        assert not are_equal(copy_weights(make_tiny_llama()), copy_weights(model))


# -- whole runs --------------------------------------------------------------------------------------------

REPLAYS = {
    "success": "{success: {above: -9, std: 9, mean: 9, keep: 2}}",
    "self_imitation": "{self_imitation: {threshold: 0, size: 3, weight: 0.5}}",
    "shared": "{self_imitation: {threshold: 0, size: 3, weight: 0.5, step: shared}}",
}


def make_experiment(warm: str, kind: str) -> Experiment:
    return make_warm_experiment(
        warm, "iterations=3", "checkpoint.keep=9", "play.matches=6", "play.group=3", f"learn.replay={REPLAYS[kind]}",
        "play.pool=2", "credit.estimator=dr_grpo",
    )  # fmt: skip


def check_credit_from_log(run: RunFolder, experiment: Experiment) -> None:
    """Check that log and metrics alone reproduce the credit of played and of recalled trajectories."""
    for k, row in enumerate(run.reader.metrics(), start=1):
        recalls = [Recall(**entry) for entry in row.get("recalled", [])]
        played = trained_trajectories(MatchRecord.from_json(entry) for entry in run.reader.log.read(k))
        results = assign(TurnBatch(apply_recalls(played, recalls, run.reader.log), Clock(k, 3)), experiment.credit)
        fresh = [a for c in results if c.trajectory.source != "recalled" for a in c.advantages.tolist()]
        assert fresh == pytest.approx([entry.advantage for entry in run.reader.credit(k)])
        recomputed = {
            (c.trajectory.match, c.trajectory.seat): c.advantages.tolist()
            for c in results
            if c.trajectory.source == "recalled"
        }
        expected = {(entry.match, entry.seat): entry.advantages for entry in recalls if entry.instead}
        assert recomputed.keys() == expected.keys()
        for key, advantages in expected.items():
            assert recomputed[key] == pytest.approx(advantages)


@pytest.mark.slow
def test_comparison_shows_trained_advantages_of_replayed_turns(warm: str, tmp_path: Path) -> None:
    """`arena credit` with the run's estimator shows all advantages, including those of replacements."""
    experiment = make_experiment(warm, "success")
    run_lab(tmp_path / "run", experiment, RecordingWatcher())
    run, estimator = RunFolder.open(tmp_path / "run"), experiment.credit.estimator
    table = wait(compare(run.path, experiment.credit, [estimator], seed=experiment.seed, length=3)).turns
    for k, metrics in enumerate(run.reader.metrics(), start=1):
        recalls = [Recall(**shown_row) for shown_row in metrics.get("recalled", [])]
        trained = [(row.match, row.seat, row.advantage) for row in run.reader.credit(k)]
        trained += [(shown_row.match, shown_row.seat, a) for shown_row in recalls for a in shown_row.advantages]
        shown = table[table["iteration"] == k][["match", "seat", estimator.name]].itertuples(index=False, name=None)
        for shown_row, trained_row in zip(sorted(shown), sorted(trained), strict=True):
            assert shown_row[:2] == trained_row[:2] and shown_row[2] == pytest.approx(trained_row[2])
        assert bool(recalls) == (k > 1), "replay starts in the second iteration"


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("kind", sorted(REPLAYS))
def test_run_with_replay_reports_it_and_resumes_bit_equal(warm: str, tmp_path: Path, kind: str) -> None:
    experiment, watcher = make_experiment(warm, kind), RecordingWatcher()
    run_lab(tmp_path / "whole", experiment, watcher)
    counts = [(row["selection"]["replayed"], row["selection"]["dropped"]) for row in watcher.rows]
    has_replay_loss = ["replay_loss" in row["learn"]["shared"] for row in watcher.rows]
    if kind == "success":
        assert counts[0] == (0, 0) and min(counts[1:]) > (0, 0) and not any(has_replay_loss)
        assert all(replayed == dropped for replayed, dropped in counts), "each replaces another trajectory"
    elif kind == "shared":
        assert any(replayed for replayed, _ in counts) and not any(has_replay_loss)
    else:
        assert any(has_replay_loss) and all(replayed == dropped == 0 for replayed, dropped in counts)
    run = RunFolder.open(tmp_path / "whole")
    for k in (1, 2, 3):
        assert {row.match[:4] for row in run.reader.credit(k)} == {f"{k:04d}"}, "stored for played matches only"
    check_credit_from_log(run, experiment)
    state = json.loads((run.path / "checkpoints" / "0003" / "state.json").read_text())
    assert state["credit"]["replay"], "the replay's memory is saved"
    folder = copy_run(run.path, tmp_path / "broken", done=1)
    resume_lab(folder, experiment)
    assert_same_runs(folder, run.path)


def test_replay_is_off_by_default_and_changes_nothing_while_empty(warm: str, tmp_path: Path) -> None:
    assert LearnSpec().replay is None
    without_replay = make_warm_experiment(warm, "iterations=1", "play.matches=4")
    never_replayed = make_warm_experiment(
        warm, "iterations=1", "play.matches=4", "learn.replay={self_imitation: {threshold: 99}}"
    )
    for name, experiment in (("plain", without_replay), ("never", never_replayed)):
        run_lab(tmp_path / name, experiment)
    assert read_weight_files(tmp_path / "plain", 1) == read_weight_files(tmp_path / "never", 1)
