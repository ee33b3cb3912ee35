"""Replay: what comes back, in whose place, at what worth; and a run with it goes on as if never stopped."""

import json
import math
import shutil
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
from arena.lab import Lab
from arena.learn.trainer import PolicyTrainer
from arena.parts.schedules import Clock
from arena.records import MatchRecord, Trajectory, trained_trajectories
from arena.store.matchlog import MatchLog
from arena.store.reader import LogReader
from arena.store.run import RunFolder
from tests.factories.labs import RecordingWatcher, make_warm_experiment, read_log, read_weight_files, run_lab
from tests.factories.models import are_equal, copy_weights, make_tiny_llama
from tests.factories.samples import make_samples
from tests.factories.trajectories import assign_credit, make_groups, make_record, make_scored_trajectory
from tests.factories.updating import run_update


def logged(folder: Path, *found: Trajectory, seal: bool = True) -> LogReader:
    """A match log that holds these, each the only seat of its match."""
    written = MatchLog(folder / "log")
    for t in found:
        written.append(make_record(t))
    for k in written.iterations() if seal else ():
        written.seal(k)
    written.close()
    return LogReader(folder / "log")


def fresh(found: list[Trajectory], k: int = 2) -> tuple[TurnBatch, np.ndarray]:
    batch = TurnBatch(found, Clock(k, 10))
    return batch, batch.column(lambda turn: sum(turn.rewards.values()))


OLD = make_scored_trajectory(1.0, seed=77, match="0001-0005", turns=2, raw="old")
KEY = '["g", "buyer", "buyer", "shared"]'
KNOWN: list[Any] = ["0001-0005", "buyer", "shared", KEY, 1.0]


# -- a success in a failed group ---------------------------------------------------------------------------


ANY_DEAL: tuple[TrajectoryKey, ...] = ("game", "role")


@pytest.mark.parametrize("seal", [True, False])
def test_injection_into_a_group_of_failures_by_hand(tmp_path: Path, seal: bool) -> None:
    """One 1 among seven 0: mean 1/8, sample variance ((7/8)² + 7 (1/8)²) / 7 = 1/8; (7/8)/√(1/8) = 2.475, -.354."""
    replay = Success({KEY: [KNOWN]}, logged(tmp_path, OLD, seal=seal), by=ANY_DEAL)
    found = make_groups([0.0] * 8)
    heard = replay.inject(*fresh(found))
    assert heard[0] == replace(OLD, seed=0, source="recalled") and heard[1:] == found[1:]
    rule = CreditSpec.model_validate(dict(estimator="grpo", select=["zero_variance"]))
    assert assign(TurnBatch(found), rule) == [], "without it nothing is learned"
    values = [c.advantages.tolist() for c in assign(TurnBatch(heard), rule)]
    assert values[0] == pytest.approx([7 / 8 / math.sqrt(1 / 8)] * 2, rel=1e-5)
    assert values[0][0] == pytest.approx(2.475, abs=5e-4)
    assert [v[0] for v in values[1:]] == pytest.approx([-1 / 8 / math.sqrt(1 / 8)] * 7, rel=1e-5)
    assert values[1][0] == pytest.approx(-0.354, abs=5e-4)


def test_a_success_in_another_deal_is_no_success_of_the_task(tmp_path: Path) -> None:
    memory: dict[str, Any] = {}
    replay = Success(memory, logged(tmp_path, OLD))
    replay.extra_trajectories(*fresh([replace(OLD, seed=5)]), [])
    batch, rewards = fresh([*make_groups([0.0, 0.0]), *(replace(t, seed=5) for t in make_groups([0.0, 0.0]))])
    assert [t.source == "recalled" for t in replay.inject(batch, rewards)] == [False, False, True, False]


def test_out_of_the_statistics_the_failures_stay_worth_nothing(tmp_path: Path) -> None:
    heard = Success({KEY: [KNOWN]}, logged(tmp_path, OLD), by=ANY_DEAL).inject(*fresh(make_groups([0.0] * 8)))
    found = assign_credit(heard, "replayed", estimator="dr_grpo")
    assert [c.advantages.tolist() for c in found] == [[1.0, 1.0]] + [[0.0]] * 7


def test_only_failed_groups_get_one(tmp_path: Path) -> None:
    known = {KEY: [KNOWN]}
    found = make_groups([0.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.1, 0.14], [0.0])
    sellers = [replace(t, role="seller", seat="seller") for t in found]
    others = [replace(t, policy="other") for t in found]
    batch, rewards = fresh(found + sellers + others)
    heard = Success(known, logged(tmp_path, OLD), by=ANY_DEAL).inject(batch, rewards)
    # deal 1 varies, deal 2 is no failure, deal 4 is alone, and nobody else's success is theirs
    assert [i for i, t in enumerate(heard) if t.source == "recalled"] == [0, 6]
    assert [t.seed for t in heard] == [t.seed for t in batch.trajectories]
    assert known == {KEY: [KNOWN]}, "asking changes nothing"
    assert Success({}, logged(tmp_path / "other")).inject(batch, rewards) == list(batch.trajectories)


def test_the_latest_successes_of_each_task_are_remembered(tmp_path: Path) -> None:
    memory: dict[str, Any] = {}
    replay = Success(memory, logged(tmp_path), keep=2, by=ANY_DEAL)
    found = make_groups([0.0, 0.1, 0.11, 1.0], [0.5])
    found += [make_scored_trajectory(1.0, match="0002-0009", role="seller")]
    batch, rewards = fresh(found)
    assert replay.extra_trajectories(batch, rewards, []) == []
    seller = KEY.replace("buyer", "seller")
    assert {task: [(row[0], row[4]) for row in rows] for task, rows in memory.items()} == {
        KEY: [("0001-0003", 1.0), ("0001-0004", 0.5)],
        seller: [("0002-0009", 1.0)],
    }
    assert json.loads(json.dumps(memory)) == memory
    by_deal: dict[str, Any] = {}
    Success(by_deal, logged(tmp_path)).extra_trajectories(batch, rewards, [])
    assert [len(rows) for rows in by_deal.values()] == [2, 1, 1]


def test_a_named_reward_can_be_the_score(tmp_path: Path) -> None:
    found = make_groups([0.0, 0.0])
    batch = TurnBatch(found)
    memory: dict[str, Any] = {KEY: [KNOWN]}
    by_sum, by_deal = (
        Success(memory, logged(tmp_path, OLD), by=ANY_DEAL),
        Success(memory, logged(tmp_path), by=ANY_DEAL, of="deal"),
    )
    assert not any(t.source == "recalled" for t in by_sum.inject(batch, np.array([1.0, 1.0])))
    by_deal = replace(by_deal, log=by_sum.log)
    assert [t.source == "recalled" for t in by_deal.inject(batch, np.array([1.0, 1.0]))] == [True, False]


def test_a_match_that_was_removed_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"has no match 0001-0005, which is to be replayed: it was removed$"):
        load_recalled(logged(tmp_path), [Entry(*KNOWN)])


def test_what_is_recalled_is_what_was_played(tmp_path: Path) -> None:
    found = [*make_groups([0.0, 1.0, 2.0], turns=3), make_scored_trajectory(5.0, match="0002-0000")]
    entries = [Entry(t.match, t.seat, t.policy, "", 0.0) for t in (found[3], found[1], found[1])]
    assert load_recalled(logged(tmp_path, *found), entries) == [
        replace(t, source="recalled") for t in (found[3], found[1], found[1])
    ]


# -- self-imitation ----------------------------------------------------------------------------------------


def imitation(folder: Path, *found: Trajectory, **settings: Any) -> SelfImitation:
    plain: dict[str, Any] = {"threshold": 0, "weight": choose("schedule", "constant", value=1.0)}
    return SelfImitation({}, logged(folder, *found), **{**plain, **settings})


def iteration(replay: SelfImitation, k: int, scores: list[float], found: list[Trajectory] | None = None) -> list[Any]:
    """What is learned again after an iteration of deals with these scores: (match, A of its turns)."""
    found = found or played(k, scores)
    batch, rewards = fresh(found, k)
    gaps = np.array(scores) - np.mean(scores)
    told = [
        CreditedTrajectory(trajectory=t, rewards=np.zeros(1), advantages=np.array([gap]))
        for t, gap in zip(found, gaps, strict=True)
    ]
    again = replay.extra_trajectories(batch, rewards, told)
    assert all(c.trajectory.source == "recalled" for c in again)
    return [(c.trajectory.match, *c.advantages.tolist()) for c in again]


def played(k: int, scores: list[float], **changes: Any) -> list[Trajectory]:
    return [make_scored_trajectory(score, i, f"{k:04d}-{i:04d}", **changes) for i, score in enumerate(scores)]


def test_a_trajectory_is_worth_what_it_is_above_the_median_by_now(tmp_path: Path) -> None:
    past = [*played(1, [0.0, 1.0]), *played(2, [2.0, 2.0]), *played(3, [0.0, 0.0, 0.0])]
    replay = imitation(tmp_path, *past, threshold=1)
    assert iteration(replay, 1, [0.0, 1.0]) == []  # only 0001-0001 has A > 0, and one is not more than one
    assert [Entry(*row).match for row in replay.memory["admitted"]] == ["0001-0001"]
    replay = replace(replay, threshold=0)
    # means so far 0 1 2 2, median 1.5: the score of 1 has been passed, its A is 0
    assert iteration(replay, 2, [2.0, 2.0]) == []
    assert [Entry(*row).match for row in replay.memory["admitted"]] == ["0001-0001"]
    # means so far 0 1 2 2 0 0 0, median 0: it is worth 1 again
    assert iteration(replay, 3, [0.0, 0.0, 0.0]) == [("0001-0001", 1.0)]
    assert replay.memory["admitted"] == [], "then all is forgotten"


def test_the_standing_of_a_group_is_its_mean(tmp_path: Path) -> None:
    """Two groups, of 0 0 3 and of 1 1: means 1 and 1, deviations √2 and 0; scores of 3 gain 2, in std 2 / (√2/2)."""
    found = make_groups([0.0, 0.0, 3.0], [1.0, 1.0])
    batch, rewards = fresh(found, 1)
    told = [
        CreditedTrajectory(trajectory=t, rewards=np.zeros(1), advantages=np.array([s - 1.0]))
        for t, s in zip(found, rewards.tolist(), strict=True)
    ]
    replay = imitation(tmp_path, *found)
    assert [c.advantages.tolist() for c in replay.extra_trajectories(batch, rewards, told)] == [[2.0]]
    assert list(replay.memory["means"].values()) == [[1.0, 1.0]]
    replay = imitation(tmp_path / "std", *found, std=True)
    assert replay.extra_trajectories(batch, rewards, told)[0].advantages == pytest.approx(
        [2 / (math.sqrt(2) / 2)], rel=1e-5
    )


def test_the_old_the_many_and_the_unfitting_are_left_out(tmp_path: Path) -> None:
    past = [*played(1, [0.0, 1.0]), *played(2, [5.0, 5.0]), *played(4, [0.0] * 5)]
    for tolerate, expected in ((3, [("0001-0001", 1.0)]), (2, [])):
        replay = imitation(tmp_path / f"old{tolerate}", *past, tolerate=tolerate)
        iteration(replace(replay, threshold=9), 1, [0.0, 1.0])
        assert iteration(replay, 4, [0.0] * 5) == expected
    many = played(1, [0.0] * 6 + [1.0] * 5)
    replay = imitation(tmp_path / "many", *many, size=3)
    drawn = iteration(replay, 1, [0.0] * 6 + [1.0] * 5)
    assert len(drawn) == len(set(drawn)) == 3 and all(a == 1.0 for _, a in drawn)
    assert iteration(imitation(tmp_path / "few", *many, threshold=5), 1, [0.0] * 6 + [1.0] * 5) == []
    calls = [*played(1, [0.0, 0.0, 1.0]), make_scored_trajectory(1.0, 3, "0001-0003", raw="tool: look")]
    replay = imitation(tmp_path / "calls", *calls, pattern=r"tool:\s")
    assert iteration(replay, 1, [0.0, 0.0, 1.0, 1.0], calls) == [("0001-0003", 0.5)]


def test_the_random_counterpart_learns_any_at_what_the_better_ones_are_worth(tmp_path: Path) -> None:
    """Median 0: the three above the mean of .9 are worth 2, 3, 4. Any three of the next iteration's ten get these."""
    scores = [0.0] * 7 + [2.0, 3.0, 4.0]
    past, later = played(1, scores), played(2, [0.0] * 10)
    replay = imitation(tmp_path, *past, *later, which="any")
    iteration(replace(replay, threshold=9), 1, scores)
    told = iteration(replay, 2, [0.0] * 10)
    assert sorted(a for _, a in told) == [2.0, 3.0, 4.0] and replay.memory["admitted"] == []
    assert len({match for match, _ in told}) == 3 and all(match.startswith("0002-") for match, _ in told)
    few = imitation(tmp_path / "few", *past, *played(3, [0.0]), which="any")
    iteration(replace(few, threshold=9), 1, scores)
    assert [match for match, _ in iteration(few, 3, [0.0])] == ["0003-0000"] * 3


def test_the_weight_follows_its_schedule(tmp_path: Path) -> None:
    """coefficient · (1 - cos(πt/T))/2: 0 in the first iteration, then (1 - cos(π/4))/2 with T = 4."""
    warmed = choose("schedule", "cosine", start=0.0, end=1.0, over=4)
    replay = imitation(tmp_path, *played(1, [0.0, 1.0]), *played(2, [0.0, 0.0]), weight=warmed)
    assert iteration(replay, 1, [0.0, 1.0]) == [] and len(replay.memory["admitted"]) == 1
    assert iteration(replay, 2, [0.0, 0.0]) == [("0001-0001", pytest.approx((1 - math.cos(math.pi / 4)) / 2))]


def test_histories_are_of_a_task_and_end(tmp_path: Path) -> None:
    found = [*played(1, [0.0, 1.0, 2.0]), *(replace(t, role="seller") for t in played(1, [7.0]))]
    replay = imitation(tmp_path, history=2)
    replay.extra_trajectories(*fresh(found, 1), [])
    assert replay.memory["means"] == {'["g", "buyer", "shared"]': [1.0, 2.0], '["g", "seller", "shared"]': [7.0]}
    replay = imitation(tmp_path / "one", by=())
    replay.extra_trajectories(*fresh(found, 1), [])
    assert replay.memory["means"] == {'["shared"]': [0.0, 1.0, 2.0, 7.0]}
    assert json.loads(json.dumps(replay.memory)) == replay.memory


def test_each_policys_memory_is_its_own(tmp_path: Path) -> None:
    mine, yours = played(1, [0.0, 1.0]), [replace(t, policy="other") for t in played(2, [0.0, 0.0])]
    replay = imitation(tmp_path, *mine, *yours)
    iteration(replace(replay, threshold=9), 1, [0.0, 1.0])
    assert iteration(replace(replay, threshold=1), 2, [0.0, 0.0], yours) == []
    assert [Entry(*row).policy for row in replay.memory["admitted"]] == ["shared"]


# -- the update --------------------------------------------------------------------------------------------


def test_the_gate_ignores_what_is_replayed_and_a_correction_weighs_it() -> None:
    """Sampled by weights to which each token was e^.5 times as likely: ρ = e^-.5, the loss -ρ A, or openly -A."""
    for name, loss in (("uncorrected", -1.0), ("truncated", -math.exp(-0.5))):
        model = make_tiny_llama()
        given = [replace(s, behaviour=s.behaviour + np.float32(0.5)) for s in make_samples(model, advantage=1.0)]
        rule = LearnSpec.model_validate(dict(lr=0.1, loss={"policy_gradient": {"correction": name}}, regularisers={}))
        with pytest.raises(GateError):
            run_update(PolicyTrainer("p", make_tiny_llama(), rule), given, np.random.default_rng(0))
        again = [replace(s, source="replayed") for s in given]
        told = run_update(PolicyTrainer("p", model, rule), again, np.random.default_rng(0))
        assert told["loss"] == pytest.approx(loss, rel=1e-4) and "logprob_gap" not in told
        assert not are_equal(copy_weights(make_tiny_llama()), copy_weights(model))


# -- whole runs --------------------------------------------------------------------------------------------

EAGER = {
    "success": "{success: {above: -9, std: 9, mean: 9, keep: 2}}",
    "self_imitation": "{self_imitation: {threshold: 0, size: 3, weight: 0.5}}",
    "shared": "{self_imitation: {threshold: 0, size: 3, weight: 0.5, step: shared}}",
}


def replaying(warm: str, which: str) -> Experiment:
    return make_warm_experiment(
        warm, "iterations=3", "checkpoint.keep=9", "play.matches=6", "play.group=3", f"learn.replay={EAGER[which]}",
        "play.pool=2", "credit.estimator=dr_grpo",
    )  # fmt: skip


def follows_from_the_log(run: RunFolder, given: Experiment) -> None:
    """Credit, of what was played and of what was brought back in its place, worked out again from log and metrics."""
    for k, row in enumerate(run.reader.metrics(), start=1):
        brought = [Recall(**one) for one in row.get("recalled", [])]
        played = trained_trajectories(MatchRecord.from_json(one) for one in run.log.read(k))
        found = assign(TurnBatch(apply_recalls(played, brought, run.reader.log), Clock(k, 3)), given.credit)
        fresh = [a for c in found if c.trajectory.source != "recalled" for a in c.advantages.tolist()]
        assert fresh == pytest.approx([one.advantage for one in run.log.credit(k)])
        again = {
            (c.trajectory.match, c.trajectory.seat): c.advantages.tolist()
            for c in found
            if c.trajectory.source == "recalled"
        }
        kept = {(one.match, one.seat): one.advantages for one in brought if one.instead}
        assert again.keys() == kept.keys()
        for place, advantages in kept.items():
            assert again[place] == pytest.approx(advantages)


@pytest.mark.slow
def test_a_comparison_says_of_replayed_turns_what_was_trained(warm: str, tmp_path: Path) -> None:
    """`arena credit` with the run's own estimator: every advantage, also of what came in the place of another."""
    given = replaying(warm, "success")
    run_lab(tmp_path / "run", given, RecordingWatcher())
    run, own = RunFolder.open(tmp_path / "run"), given.credit.estimator
    table = wait(compare(run.path, given.credit, [own], seed=given.seed, length=3)).turns
    for k, metrics in enumerate(run.reader.metrics(), start=1):
        brought = [Recall(**one) for one in metrics.get("recalled", [])]
        trained_on = [(row.match, row.seat, row.advantage) for row in run.log.credit(k)]
        trained_on += [(one.match, one.seat, a) for one in brought for a in one.advantages]
        said = table[table["iteration"] == k][["match", "seat", own.name]].itertuples(index=False, name=None)
        for one, other in zip(sorted(said), sorted(trained_on), strict=True):
            assert one[:2] == other[:2] and one[2] == pytest.approx(other[2])
        assert bool(brought) == (k > 1), "there is something to see from the second on"


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("which", sorted(EAGER))
def test_a_run_that_replays_says_so_and_resumes_bit_by_bit(warm: str, tmp_path: Path, which: str) -> None:
    given, watcher = replaying(warm, which), RecordingWatcher()
    run_lab(tmp_path / "whole", given, watcher)
    told = [(row["selection"]["replayed"], row["selection"]["dropped"]) for row in watcher.rows]
    own = ["replay_loss" in row["learn"]["shared"] for row in watcher.rows]
    if which == "success":
        assert told[0] == (0, 0) and min(told[1:]) > (0, 0) and not any(own)
        assert all(replayed == dropped for replayed, dropped in told), "each in the place of another"
    elif which == "shared":
        assert any(replayed for replayed, _ in told) and not any(own)
    else:
        assert any(own) and all(replayed == dropped == 0 for replayed, dropped in told)
    run = RunFolder.open(tmp_path / "whole")
    for k in (1, 2, 3):
        assert {row.match[:4] for row in run.log.credit(k)} == {f"{k:04d}"}, "credit is kept of what was played"
    follows_from_the_log(run, given)
    state = json.loads((run.path / "checkpoints" / "0003" / "state.json").read_text())
    assert state["credit"]["replay"], "it remembers"
    folder = tmp_path / "broken"
    shutil.copytree(run.path, folder)
    for later in ("0002", "0003"):
        shutil.rmtree(folder / "checkpoints" / later)
    wait(wait(Lab.open(RunFolder.open(folder), given, RecordingWatcher())).run())
    assert read_log(folder) == read_log(run.path) and read_weight_files(folder, 3) == read_weight_files(run.path, 3)
    assert json.loads((folder / "checkpoints" / "0003" / "state.json").read_text()) == state


def test_off_by_default_and_silent_until_there_is_something(warm: str, tmp_path: Path) -> None:
    assert LearnSpec().replay is None
    plain = make_warm_experiment(warm, "iterations=1", "play.matches=4")
    never = make_warm_experiment(
        warm, "iterations=1", "play.matches=4", "learn.replay={self_imitation: {threshold: 99}}"
    )
    for name, given in (("plain", plain), ("never", never)):
        run_lab(tmp_path / name, given)
    assert read_weight_files(tmp_path / "plain", 1) == read_weight_files(tmp_path / "never", 1)
