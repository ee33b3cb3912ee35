"""REFUEL: its minimiser is the published one, its gradient that of the pair's loss, and a run learns with it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agents.scoring import StreamScorer, score_streams
from agents.stream import Stream
from arena.config.experiment import Experiment, LearnSpec
from arena.config.kinds import choose
from arena.config.layers import compose
from arena.config.sources import set_layer, text_layer
from arena.credit.batch import TurnBatch
from arena.credit.estimators.refuel import refuel as refuel_differences
from arena.errors import ConfigError
from arena.learn.losses import dpo, refuel
from arena.learn.samples import Sample, compute_rival_changes, group_paired, select_complete_pairs
from arena.learn.trainer import PolicyTrainer
from arena.records import Trajectory
from arena.store.run import RunFolder
from tests.factories.labs import RecordingWatcher, copy_run, read_weight_files, resume_lab, run_lab, stop_lab
from tests.factories.models import VOCABULARY, assert_nearly_equal, copy_weights, make_tiny_llama
from tests.factories.records import make_turn, wrap_turns
from tests.factories.samples import Stage, compute_plain_scores
from tests.factories.token_batches import make_batch, make_floats, make_integers
from tests.factories.traces import assert_same_runs
from tests.factories.updating import run_update

# -- returns -----------------------------------------------------------------------------------------------


def make_trajectory(match: str, replies: list[tuple[int, float]], seat: str = "a") -> Trajectory:
    """Return a seat's trajectory of turns 0, 2, 4, …, each with the sampled id and its reward."""
    turns, stream = [], Stream()
    for k, (token, reward) in enumerate(replies):
        stream.observe([1])
        stream.append_sampled([token], [-1.0], 2 * k)
        turns.append(make_turn(2 * k, {"x": reward}, seat, raw=str(token), action=str(token), tokens=1))
    parent, _, turn = match.removesuffix("-r1").rpartition("-b")
    parent_turn = int(turn) if parent else -1
    return wrap_turns(turns, match=match, streams=(stream,), parent=parent, parent_turn=parent_turn)


def test_estimator_is_the_difference_of_returns_at_the_branching_turn() -> None:
    # They branch at turn 2, the second own one: R = 2 + .5·4 = 4 there, R' = 1 + .5·(-2) + .25·8 = 2; R - R' = 2.
    match = make_trajectory("m", [(5, 9.0), (6, 2.0), (7, 4.0)])
    branch = make_trajectory("m-b2", [(5, 9.0), (8, 1.0), (7, -2.0), (7, 8.0)])
    identical_branch = make_trajectory("m-b0", [(5, 1.0)])  # wrote at turn 0 what the match wrote
    unrelated = make_trajectory("n-b2", [(5, 0.0), (8, 1.0)])
    turn_batch = TurnBatch([branch, match, identical_branch, unrelated])
    rewards = turn_batch.column(lambda turn: turn.rewards["x"])
    advantages = refuel_differences(turn_batch, rewards, gamma=0.5)
    assert advantages.tolist() == [0, -2, 0, 0, 0, 2, 0, 0, 0, 0]


def test_several_branches_of_a_match_give_several_pairs() -> None:
    match = make_trajectory("m", [(5, 1.0), (6, 2.0)])
    first, second = make_trajectory("m-b0", [(4, 1.0)]), make_trajectory("m-b2-r1", [(5, 1.0), (7, 5.0)])
    turn_batch = TurnBatch([match, first, second])
    # at turn 0: 1 + 2 against 1; at turn 2: 2 against 5
    assert refuel_differences(turn_batch, turn_batch.column(lambda t: t.rewards["x"])).tolist() == [2, -3, -2, 0, 3]


# -- the loss ----------------------------------------------------------------------------------------------


def compute_pair_loss(
    now: torch.Tensor, old: torch.Tensor, turns: torch.Tensor, return_gap: float, eta: float
) -> torch.Tensor:
    """Return the trainer's objective for one pair: turn 0 against turn 1, aggregated by `turn_mean`."""
    delta = torch.stack([(now - old)[turns == turn].sum() for turn in (0, 1)])
    rivals = delta.flip(0)[turns].detach()
    advantages = torch.where(turns == 0, return_gap, -return_gap).to(now.dtype)
    losses = refuel(make_batch(now, old, advantages, turns=turns, rivals=rivals), eta=eta).loss
    sizes = torch.bincount(turns)
    return (losses / sizes[turns] / 2).sum()


def compute_direct_loss(
    now: torch.Tensor, old: torch.Tensor, turns: torch.Tensor, return_gap: float, eta: float
) -> torch.Tensor:
    """Return (δ - δ' - η (R - R'))² directly."""
    change = now - old
    return (change[turns == 0].sum() - change[turns == 1].sum() - eta * return_gap) ** 2


def test_pair_loss_by_hand() -> None:
    # y: two tokens, log-ratios +.3 and -.1, δ = .2; y': one token, δ' = -.4; η (R - R') = .5 · 2 = 1.
    # gap = .2 + .4 - 1 = -.4, loss .16; by each token of y 2 · -.4 = -.8, by that of y' +.8
    old, turns = make_floats(-1.0, -2.0, -3.0), make_integers(0, 0, 1)
    now = (old + make_floats(0.3, -0.1, -0.4)).requires_grad_()
    value = compute_pair_loss(now, old, turns, 2.0, 0.5)
    value.backward()
    assert value.item() == pytest.approx(0.16)
    assert now.grad is not None and now.grad.tolist() == pytest.approx([-0.8, -0.8, 0.8])


def test_gradient_agrees_with_finite_differences_of_the_pair_loss() -> None:
    """Each half uses the other's log-ratio as a constant; together they give the gradient of the pair's loss."""
    rng = torch.Generator().manual_seed(0)
    for _ in range(5):
        turns = make_integers(0, 1, 1, 0, 0, 1, 0)
        old = -torch.rand(7, generator=rng, dtype=torch.float64) * 3
        now = (old + torch.randn(7, generator=rng, dtype=torch.float64) * 0.5).requires_grad_()
        (gradient,) = torch.autograd.grad(compute_pair_loss(now, old, turns, 1.7, 0.6), now)
        assert compute_pair_loss(now, old, turns, 1.7, 0.6).item() == pytest.approx(
            compute_direct_loss(now, old, turns, 1.7, 0.6).item()
        )
        for k in range(7):
            step = torch.zeros(7, dtype=torch.float64)
            step[k] = 1e-5
            above, below = (compute_direct_loss(now.detach() + s, old, turns, 1.7, 0.6).item() for s in (step, -step))
            assert gradient[k].item() == pytest.approx((above - below) / 2e-5, rel=1e-6, abs=1e-8)


def compute_dpo_loss(
    now: torch.Tensor, old: torch.Tensor, turns: torch.Tensor, return_gap: float, beta: float
) -> torch.Tensor:
    """Return the trainer's DPO objective for one pair: turn 0 against turn 1, aggregated by `turn_mean`."""
    delta = torch.stack([(now - old)[turns == turn].sum() for turn in (0, 1)])
    advantages = torch.where(turns == 0, return_gap, -return_gap).to(now.dtype)
    losses = dpo(make_batch(now, old, advantages, turns=turns, rivals=delta.flip(0)[turns].detach()), beta=beta).loss
    return (losses / torch.bincount(turns)[turns] / 2).sum()


def test_dpo_equals_its_formula_and_ignores_the_size_of_the_gap() -> None:
    # δ = .2 and δ' = -.4 as above; the second answer led to more: -log σ(-.5 · .6), gradient ±.5 · σ(.3)
    old, turns = make_floats(-1.0, -2.0, -3.0), make_integers(0, 0, 1)
    now = (old + make_floats(0.3, -0.1, -0.4)).requires_grad_()
    value = compute_dpo_loss(now, old, turns, -2.0, 0.5)
    value.backward()
    assert value.item() == pytest.approx(np.log1p(np.exp(0.3)))
    gradient = 0.5 / (1 + np.exp(-0.3))
    assert now.grad is not None and now.grad.tolist() == pytest.approx([gradient, gradient, -gradient])
    assert compute_dpo_loss(now, old, turns, -9.0, 0.5).item() == pytest.approx(value.item())


def test_dpo_ignores_pairs_of_equal_returns() -> None:
    now = make_floats(-1.0, -2.0).requires_grad_()
    value = compute_dpo_loss(now, make_floats(-1.5, -1.5), make_integers(0, 1), 0.0, 0.5)
    value.backward()
    assert value.item() == 0 and now.grad is not None and now.grad.tolist() == [0, 0]


def test_excluded_turns_are_in_no_sum() -> None:
    old, now = make_floats(-1.0, -1.0), make_floats(-0.5, -0.9)
    tokens = make_batch(
        now,
        old,
        make_floats(0.0, 0.0),
        turns=make_integers(0, 0),
        learned=make_integers(1, 0) > 0,
        rivals=make_floats(0.0, 0.0),
    )
    assert refuel(tokens).loss[0].item() == pytest.approx(0.25)


def test_minimiser_is_the_old_policy_times_exp_eta_q() -> None:
    """One state, four replies, all pairs by their probability: descent converges to π_old exp(η Q) / Z."""
    old, q, eta = make_floats(0.4, 0.3, 0.2, 0.1).log(), make_floats(1.0, -0.5, 2.0, 0.3), 0.7
    expected = torch.softmax(old + eta * q, 0)
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    first, second = (torch.tensor(column) for column in zip(*pairs, strict=True))
    probability = (old[first] + old[second]).exp()
    logits = old.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [logits], max_iter=200, tolerance_grad=1e-14, tolerance_change=1e-18, line_search_fn="strong_wolfe"
    )

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        policy = torch.log_softmax(logits, 0)
        replies = torch.cat([first, second])
        now, old_logprobs = policy[replies], old[replies]
        rivals = (policy - old)[torch.cat([second, first])].detach()
        return_gaps = torch.cat([q[first] - q[second], q[second] - q[first]])
        value = (
            refuel(make_batch(now, old_logprobs, return_gaps, rivals=rivals), eta=eta).loss
            * torch.cat([probability, probability])
            / 2
        ).sum()
        value.backward()
        return value

    optimizer.step(loss)
    assert torch.softmax(logits, 0).tolist() == pytest.approx(expected.tolist(), abs=1e-6)
    assert (torch.softmax(logits, 0) - old.exp()).abs().max() > 0.1, "the minimiser differs from the start"


# -- samples and updates -----------------------------------------------------------------------------------


def make_paired_samples(
    model: torch.nn.Module, pairs: list[tuple[int, int]], streams: int, seed: int = 0
) -> list[Sample]:
    """Return samples of three turns of unequal length; pair n compares turn n % 3 of two streams."""
    rng, stream_list = np.random.default_rng(seed), []
    for _ in range(streams):
        stream = Stream()
        for turn in range(3):
            stream.observe(rng.integers(0, VOCABULARY, 3).tolist())
            ids = rng.integers(0, VOCABULARY, rng.integers(1, 5)).tolist()
            stream.append_sampled(ids, [0.0] * len(ids), turn)
        stream_list.append(stream)
    behaviour = score_streams(StreamScorer(model), stream_list, [1.0] * streams)
    samples = []
    for i, (stream, logprobs) in enumerate(zip(stream_list, behaviour, strict=True)):
        turn_numbers = np.array([t for t in stream.turns if t >= 0])
        pair_numbers = np.full(len(turn_numbers), -1)
        gains = np.zeros(len(turn_numbers), np.float32)
        for number, pair in enumerate(pairs):
            if i in pair:
                pair_numbers[turn_numbers == number % 3] = number
                gains[turn_numbers == number % 3] = (1.0 + number) * (1 if i == pair[0] else -1)
        samples.append(
            Sample(
                stream=stream,
                advantages=gains,
                behaviour=logprobs,
                temperature=1.0,
                places=turn_numbers,
                learned=np.ones(len(turn_numbers), bool),
                pairs=pair_numbers,
            )
        )
    return samples


def test_only_complete_pairs_are_learned() -> None:
    samples = make_paired_samples(make_tiny_llama(), [(0, 1), (0, 2), (3, 4)], 6)
    samples[4] = replace(
        samples[4], learned=samples[4].learned & (samples[4].pairs != 2)
    )  # selection removed the other reply
    complete = select_complete_pairs(samples)
    assert [s.stream is samples[i].stream for i, s in enumerate(complete)] == [True] * 3, (
        "the last three have no complete pair"
    )
    for sample in complete:
        assert sample.pairs is not None and (sample.learned == (sample.pairs >= 0)).all()
    assert select_complete_pairs([replace(s, pairs=None) for s in samples]) == [] == select_complete_pairs([])


def test_connected_pairs_stay_together() -> None:
    samples = select_complete_pairs(make_paired_samples(make_tiny_llama(), [(0, 1), (2, 0), (3, 4), (5, 6), (1, 6)], 8))
    assert sorted(map(sorted, group_paired(samples))) == [[0, 1, 2, 5, 6], [3, 4]]
    assert group_paired([replace(s, pairs=None) for s in samples]) == [[i] for i in range(7)]


def test_rival_log_ratio_by_hand() -> None:
    samples = select_complete_pairs(make_paired_samples(make_tiny_llama(), [(0, 1)], 2))
    changes = [np.arange(len(s.advantages), dtype=np.float32) + 1 for s in samples]
    lengths = [int(s.learned.sum()) for s in samples]  # tokens 1, 2, … of the first turn are the answer
    rival_changes = compute_rival_changes(samples, changes)
    for i, sample in enumerate(samples):
        rival_length = lengths[1 - i]
        assert rival_changes[i][sample.learned].tolist() == [rival_length * (rival_length + 1) / 2] * lengths[i]
        assert not rival_changes[i][~sample.learned].any()


def train_directly(
    model: torch.nn.Module, samples: list[Sample], pairs: list[tuple[int, int]], rule: LearnSpec
) -> None:
    """Train on the pairs' loss written out, with torch's AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rule.lr, betas=rule.betas, weight_decay=rule.weight_decay)
    with torch.no_grad():
        old = [compute_plain_scores(model, sample)[0] for sample in samples]
    for _ in range(rule.epochs):
        optimizer.zero_grad()
        changes = [compute_plain_scores(model, s)[0] - o for s, o in zip(samples, old, strict=True)]
        loss = torch.zeros(())
        for number, (first, second) in enumerate(pairs):
            first_change, second_change = (
                changes[i][torch.from_numpy(samples[i].pairs == number)].sum() for i in (first, second)
            )
            loss = loss + (first_change - second_change - rule.loss.settings["eta"] * (1.0 + number)) ** 2
        (loss / len(pairs)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), rule.grad_clip)
        optimizer.step()


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("budget", "stage"), [(1, 0), (10**6, 0), (200, 3)], ids=["unpacked", "packed", "sharded"])
def test_updates_equal_those_of_the_explicit_pair_loss(budget: int, stage: Stage) -> None:
    """Three steps: from the second on, each half needs the other's current log-ratio."""
    pairs = [(0, 1), (2, 0), (3, 4)]
    model, reference = make_tiny_llama(), make_tiny_llama()
    rule = LearnSpec.model_validate(dict(
        loss=choose("loss", "refuel", eta=0.3), aggregate=choose("aggregate", "turn_mean"), regularisers={}, lr=1e-3,
        epochs=3, grad_clip=0.5, token_budget=budget, zero_stage=stage,
    ))  # fmt: skip
    samples = make_paired_samples(model, pairs, 6)
    trainer = PolicyTrainer("p", model, rule)
    run_update(trainer, samples, np.random.default_rng(0))
    train_directly(reference, samples, pairs, rule)
    with trainer.gather():
        assert_nearly_equal(model, reference, rule.lr)
        assert any((p != copy_weights(make_tiny_llama())[n]).any() for n, p in copy_weights(model).items())


def test_both_replies_of_a_pair_are_in_one_step() -> None:
    model = make_tiny_llama()
    samples = make_paired_samples(model, [(0, 1), (2, 0), (3, 4), (5, 6)], 7)
    rule = LearnSpec(loss=choose("loss", "refuel"), aggregate=choose("aggregate", "turn_mean"), minibatches=2, epochs=5)

    plan = PolicyTrainer("p", model, rule).plan(samples, np.random.default_rng(0))
    parts = [list(step.pairs) for step in plan.steps]
    assert len(parts) == 10 and sorted(parts[0] + parts[1]) == list(range(7))
    for step, part in zip(plan.steps, parts, strict=True):
        assert sorted(i for rank in step.played for one in rank for i in one.index) == sorted(part)
    for part in parts:
        assert all(set(unit) <= set(part) or not set(unit) & set(part) for unit in ([0, 1, 2], [3, 4], [5, 6]))


def test_iteration_without_pairs_changes_nothing() -> None:
    model = make_tiny_llama()
    before = copy_weights(model)
    rule = LearnSpec(loss=choose("loss", "refuel"), aggregate=choose("aggregate", "turn_mean"), minibatches=2)
    figures = run_update(PolicyTrainer("p", model, rule), make_paired_samples(model, [], 4), np.random.default_rng(0))
    assert figures == {"steps": 0, "tokens": 0, "skipped": 0}
    assert all((p == before[n]).all() for n, p in model.named_parameters())


# -- a run -------------------------------------------------------------------------------------------------

CONFIG = """\
name: pairs
iterations: 2
threads: 1
game: {name: negotiation, options: {illegal: retry, max_turns: 4, talk: false}}
policies:
  shared:
    model: nano
    imitate: {scripted: [random], matches: 24, epochs: 6, minibatches: 4, lr: 6e-3}
seats:
  opener: {role: nano_opener, policy: shared}
  responder: {role: nano_responder, policy: shared}
play: {matches: 8, in_flight: 4, parts: [branches]}
credit: {estimator: refuel, stages: [valid_act]}
learn:
  loss: {refuel: {eta: 0.5}}
  aggregate: turn_mean
  regularisers: {}
  lr: 1e-3
  epochs: 2
  gate_tolerance: 0.01
"""


def make_experiment(*assignments: str) -> Experiment:
    return compose([text_layer("test", CONFIG), *map(set_layer, assignments)])


@pytest.fixture(scope="module")
def uninterrupted_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RecordingWatcher]:
    folder, watcher = tmp_path_factory.mktemp("refuel") / "run", RecordingWatcher()
    run_lab(folder, make_experiment(), watcher)
    return folder, watcher


@pytest.mark.slow
def test_run_learns_only_from_turns_compared_by_branches(uninterrupted_run: tuple[Path, RecordingWatcher]) -> None:
    folder, watcher = uninterrupted_run
    run = RunFolder.open(folder)
    for k in (1, 2):
        rows = {row["id"]: row for row in run.reader.log.read(k)}
        assert len(rows) == 16
        credit = {(c.match, c.turn): c.advantage for c in run.reader.credit(k)}
        branch_points = {id: (row["parent"], row["parent_turn"]) for id, row in rows.items() if row["parent"]}
        assert len(branch_points) == 8
        for id, (match, turn) in ((id, branch_point) for id, branch_point in branch_points.items() if branch_point):
            assert (rows[id]["seed"], rows[id]["iteration"]) == (rows[match]["seed"], k)
            assert [t["raw"] for t in rows[id]["turns"][:turn]] == [t["raw"] for t in rows[match]["turns"][:turn]]
            assert credit[id, turn] == -credit[match, turn]
            seat = rows[id]["turns"][turn]["seat"]
            (branch_stream,), (match_stream,) = rows[id]["streams"][seat], rows[match]["streams"][seat]
            start = branch_stream["turns"].index(turn)
            for name in ("ids", "mask", "logprobs", "turns"):
                assert branch_stream[name][:start] == match_stream[name][:start]
            assert match_stream["turns"][start] == turn
        compared = {(id, branch_point[1]) for id, branch_point in branch_points.items() if branch_point} | set(
            branch_points.values()
        )
        assert {place for place, advantage in credit.items() if advantage} <= compared
        assert any(credit.values())
    assert len({read_weight_files(folder, k)[0] for k in (0, 1, 2)}) == 3
    assert all(row["learn"]["shared"]["logprob_gap"] < 0.01 for row in watcher.rows)


@pytest.mark.slow
@pytest.mark.parametrize("stop", [("match", "0002-0003"), ("phase", (2, "learn"))])
def test_resume_with_branches_is_bit_equal(
    uninterrupted_run: tuple[Path, RecordingWatcher], tmp_path: Path, stop: tuple[str, Any]
) -> None:
    folder = copy_run(uninterrupted_run[0], tmp_path / "run", done=1)
    stop_lab(folder, make_experiment(), *stop)
    resume_lab(folder, make_experiment())
    assert_same_runs(folder, uninterrupted_run[0])


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("learn.loss=dpo + play.parts=[]", "learn.loss: dpo compares two replies"),
        ("play.parts=[]", "learn.loss: refuel compares two replies in the same context: set play.parts: [branches]"),
        ("credit.estimator=mars", "set credit.estimator: refuel"),
        ("credit.transforms=[whiten]", "set credit.transforms: []"),
        ("learn.aggregate=token_mean", "set learn.aggregate: turn_mean"),
        ("learn.loss={refuel: {eta: 0}}", "greater than 0"),
        ("play.parts=[{branches: {count: -1}}]", "play.parts"),
        ("play.parts=[{branches: {count: true}}]", "play.parts"),
    ],
)
def test_inconsistent_settings_give_one_line(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        make_experiment(*assignment.split(" + "))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_estimator_without_branches_is_refused_with_any_loss() -> None:
    with pytest.raises(ConfigError, match=r"credit\.estimator: refuel .* set play\.parts: \[branches\]"):
        make_experiment("learn.loss=policy_gradient", "play.parts=[]")
    with pytest.raises(ConfigError, match=r"set play\.parts: \[branches\]"):
        make_experiment(
            "learn.loss=policy_gradient", "play.parts=[]",
            "credit.estimator={weighted_sum: {parts: [{estimator: mars}, {estimator: refuel}]}}",
        )  # fmt: skip
    make_experiment("learn.loss=policy_gradient", "credit.transforms=[whiten]", "learn.aggregate=token_mean")


@pytest.mark.slow
def test_policy_learns_valid_acts(tmp_path: Path) -> None:
    """If only valid acts pay, nearly all acts are valid within eight iterations."""
    config, watcher = (
        make_experiment(
            "iterations=8", "play.matches=32", "learn.lr=5e-4", "game.options.illegal=end",
            "credit.stages=[{valid_act: {bonus: 1.0}}]", "credit.weights={deal: 0.0, illegal: 0.0}",
        ),
        RecordingWatcher(),
    )  # fmt: skip
    run_lab(tmp_path / "run", config, watcher)
    rates = [row["valid_rate"] for row in watcher.rows]
    assert rates[0] < 0.8 and np.mean(rates[-2:]) > 0.9
