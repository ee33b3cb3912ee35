"""REFUEL: its regression has the published minimiser, its gradient is the direct one, and a run learns by it."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agents.scoring import StreamScorer, score_streams
from agents.stream import Stream
from arena.cli.loop import wait
from arena.config.experiment import Experiment, LearnSpec
from arena.config.kinds import choose
from arena.config.layers import compose, to_yaml
from arena.config.sources import set_layer, text_layer
from arena.credit.batch import TurnBatch
from arena.credit.estimators.refuel import refuel as differences
from arena.errors import ConfigError
from arena.lab import Lab
from arena.learn.losses import dpo, refuel
from arena.learn.samples import Sample, compute_rival_changes, group_paired, select_complete_pairs
from arena.learn.trainer import PolicyTrainer
from arena.records import Trajectory, Turn
from arena.store.run import RunFolder
from tests.factories.labs import FILES, RecordingWatcher, read_log
from tests.factories.models import VOCABULARY, assert_nearly_equal, copy_weights, make_tiny_llama
from tests.factories.samples import Stage, compute_plain_scores
from tests.factories.token_batches import make_batch, make_floats, make_integers
from tests.factories.updating import run_update

# -- returns -----------------------------------------------------------------------------------------------


def trajectory(match: str, answers: list[tuple[int, float]], seat: str = "a") -> Trajectory:
    """A seat's turns 0, 2, 4, …: the id that it wrote, and its reward."""
    turns, stream = [], Stream()
    for k, (token, reward) in enumerate(answers):
        stream.observe([1])
        stream.append_sampled([token], [-1.0], 2 * k)
        turns.append(
            Turn(
                index=2 * k,
                seat=seat,
                role="r",
                policy="p",
                version=0,
                messages=(),
                raw=str(token),
                public="",
                private="",
                action=str(token),
                valid=True,
                rewards={"x": reward},
                finish="stop",
                tokens=1,
                seconds=0.0,
            )
        )
    parent, _, turn = match.removesuffix("-r1").rpartition("-b")
    return Trajectory(
        match=match,
        game="g",
        seat=seat,
        role="r",
        policy="p",
        version=0,
        trained=True,
        turns=tuple(turns),
        streams=(stream,),
        parent=parent,
        parent_turn=int(turn) if parent else -1,
    )


def test_the_estimator_is_the_difference_of_returns_where_lines_part() -> None:
    # They part at turn 2, the second own one: R = 2 + .5·4 = 4 there, R' = 1 + .5·(-2) + .25·8 = 2; R - R' = 2.
    match = trajectory("m", [(5, 9.0), (6, 2.0), (7, 4.0)])
    branch = trajectory("m-b2", [(5, 9.0), (8, 1.0), (7, -2.0), (7, 8.0)])
    lone = trajectory("m-b0", [(5, 1.0)])  # wrote at turn 0 what the match wrote
    stranger = trajectory("n-b2", [(5, 0.0), (8, 1.0)])
    given = TurnBatch([branch, match, lone, stranger])
    rewards = given.column(lambda turn: turn.rewards["x"])
    found = differences(given, rewards, gamma=0.5)
    assert found.tolist() == [0, -2, 0, 0, 0, 2, 0, 0, 0, 0]


def test_several_branches_of_a_match_are_several_pairs() -> None:
    match = trajectory("m", [(5, 1.0), (6, 2.0)])
    first, second = trajectory("m-b0", [(4, 1.0)]), trajectory("m-b2-r1", [(5, 1.0), (7, 5.0)])
    given = TurnBatch([match, first, second])
    # at turn 0: 1 + 2 against 1; at turn 2: 2 against 5
    assert differences(given, given.column(lambda t: t.rewards["x"])).tolist() == [2, -3, -2, 0, 3]


# -- the loss ----------------------------------------------------------------------------------------------


def halves(now: torch.Tensor, old: torch.Tensor, turns: torch.Tensor, gain: float, eta: float) -> torch.Tensor:
    """The objective over one pair, as the trainer makes it: turn 0 against turn 1, by `turn_mean`."""
    delta = torch.stack([(now - old)[turns == turn].sum() for turn in (0, 1)])
    rivals = delta.flip(0)[turns].detach()
    advantages = torch.where(turns == 0, gain, -gain).to(now.dtype)
    found = refuel(make_batch(now, old, advantages, turns=turns, rivals=rivals), eta=eta).loss
    sizes = torch.bincount(turns)
    return (found / sizes[turns] / 2).sum()


def direct(now: torch.Tensor, old: torch.Tensor, turns: torch.Tensor, gain: float, eta: float) -> torch.Tensor:
    """(δ - δ' - η (R - R'))², in so many words."""
    change = now - old
    return (change[turns == 0].sum() - change[turns == 1].sum() - eta * gain) ** 2


def test_a_pair_by_hand() -> None:
    # y: two tokens, log-ratios +.3 and -.1, δ = .2; y': one token, δ' = -.4; η (R - R') = .5 · 2 = 1.
    # gap = .2 + .4 - 1 = -.4, loss .16; by each token of y 2 · -.4 = -.8, by that of y' +.8
    old, turns = make_floats(-1.0, -2.0, -3.0), make_integers(0, 0, 1)
    now = (old + make_floats(0.3, -0.1, -0.4)).requires_grad_()
    value = halves(now, old, turns, 2.0, 0.5)
    value.backward()
    assert value.item() == pytest.approx(0.16)
    assert now.grad is not None and now.grad.tolist() == pytest.approx([-0.8, -0.8, 0.8])


def test_the_gradient_agrees_with_finite_differences_of_the_pairs_loss() -> None:
    """The two halves know each other's log-ratio as a number only, and still add up to the gradient of the whole."""
    rng = torch.Generator().manual_seed(0)
    for _ in range(5):
        turns = make_integers(0, 1, 1, 0, 0, 1, 0)
        old = -torch.rand(7, generator=rng, dtype=torch.float64) * 3
        now = (old + torch.randn(7, generator=rng, dtype=torch.float64) * 0.5).requires_grad_()
        (found,) = torch.autograd.grad(halves(now, old, turns, 1.7, 0.6), now)
        assert halves(now, old, turns, 1.7, 0.6).item() == pytest.approx(direct(now, old, turns, 1.7, 0.6).item())
        for k in range(7):
            step = torch.zeros(7, dtype=torch.float64)
            step[k] = 1e-5
            above, below = (direct(now.detach() + s, old, turns, 1.7, 0.6).item() for s in (step, -step))
            assert found[k].item() == pytest.approx((above - below) / 2e-5, rel=1e-6, abs=1e-8)


def preferred(now: torch.Tensor, old: torch.Tensor, turns: torch.Tensor, gain: float, beta: float) -> torch.Tensor:
    """DPO's objective over one pair, as the trainer makes it: turn 0 against turn 1, by `turn_mean`."""
    delta = torch.stack([(now - old)[turns == turn].sum() for turn in (0, 1)])
    advantages = torch.where(turns == 0, gain, -gain).to(now.dtype)
    found = dpo(make_batch(now, old, advantages, turns=turns, rivals=delta.flip(0)[turns].detach()), beta=beta).loss
    return (found / torch.bincount(turns)[turns] / 2).sum()


def test_dpo_is_its_formula_in_value_and_gradient_and_hears_no_sizes() -> None:
    # δ = .2 and δ' = -.4 as above; the second answer led to more: -log σ(-.5 · .6), gradient ±.5 · σ(.3)
    old, turns = make_floats(-1.0, -2.0, -3.0), make_integers(0, 0, 1)
    now = (old + make_floats(0.3, -0.1, -0.4)).requires_grad_()
    value = preferred(now, old, turns, -2.0, 0.5)
    value.backward()
    assert value.item() == pytest.approx(np.log1p(np.exp(0.3)))
    slope = 0.5 / (1 + np.exp(-0.3))
    assert now.grad is not None and now.grad.tolist() == pytest.approx([slope, slope, -slope])
    assert preferred(now, old, turns, -9.0, 0.5).item() == pytest.approx(value.item())


def test_dpo_learns_nothing_from_answers_that_led_to_the_same() -> None:
    now = make_floats(-1.0, -2.0).requires_grad_()
    value = preferred(now, make_floats(-1.5, -1.5), make_integers(0, 1), 0.0, 0.5)
    value.backward()
    assert value.item() == 0 and now.grad is not None and now.grad.tolist() == [0, 0]


def test_turns_out_of_the_loss_are_in_no_sum() -> None:
    old, now = make_floats(-1.0, -1.0), make_floats(-0.5, -0.9)
    given = make_batch(
        now,
        old,
        make_floats(0.0, 0.0),
        turns=make_integers(0, 0),
        learned=make_integers(1, 0) > 0,
        rivals=make_floats(0.0, 0.0),
    )
    assert refuel(given).loss[0].item() == pytest.approx(0.25)


def test_the_minimiser_is_the_old_policy_weighed_by_exp_eta_q() -> None:
    """One state, four answers, all pairs by their chance: descent ends at π_old exp(η Q) / Z."""
    old, q, eta = make_floats(0.4, 0.3, 0.2, 0.1).log(), make_floats(1.0, -0.5, 2.0, 0.3), 0.7
    goal = torch.softmax(old + eta * q, 0)
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    first, second = (torch.tensor(column) for column in zip(*pairs, strict=True))
    chance = (old[first] + old[second]).exp()
    logits = old.clone().requires_grad_()
    descent = torch.optim.LBFGS(
        [logits], max_iter=200, tolerance_grad=1e-14, tolerance_change=1e-18, line_search_fn="strong_wolfe"
    )

    def loss() -> torch.Tensor:
        descent.zero_grad()
        policy = torch.log_softmax(logits, 0)
        answers = torch.cat([first, second])
        now, before = policy[answers], old[answers]
        rivals = (policy - old)[torch.cat([second, first])].detach()
        gains = torch.cat([q[first] - q[second], q[second] - q[first]])
        value = (
            refuel(make_batch(now, before, gains, rivals=rivals), eta=eta).loss * torch.cat([chance, chance]) / 2
        ).sum()
        value.backward()
        return value

    descent.step(loss)
    assert torch.softmax(logits, 0).tolist() == pytest.approx(goal.tolist(), abs=1e-6)
    assert (torch.softmax(logits, 0) - old.exp()).abs().max() > 0.1, "it had somewhere to go"


# -- samples and updates -----------------------------------------------------------------------------------


def answers(model: torch.nn.Module, pairs: list[tuple[int, int]], streams: int, seed: int = 0) -> list[Sample]:
    """Streams of three turns of unequal length; pair n is turn n % 3 of two of them."""
    rng, made = np.random.default_rng(seed), []
    for _ in range(streams):
        stream = Stream()
        for turn in range(3):
            stream.observe(rng.integers(0, VOCABULARY, 3).tolist())
            said = rng.integers(0, VOCABULARY, rng.integers(1, 5)).tolist()
            stream.append_sampled(said, [0.0] * len(said), turn)
        made.append(stream)
    behaviour = score_streams(StreamScorer(model), made, [1.0] * streams)
    found = []
    for i, (stream, logprobs) in enumerate(zip(made, behaviour, strict=True)):
        places = np.array([t for t in stream.turns if t >= 0])
        numbered = np.full(len(places), -1)
        gains = np.zeros(len(places), np.float32)
        for number, pair in enumerate(pairs):
            if i in pair:
                numbered[places == number % 3] = number
                gains[places == number % 3] = (1.0 + number) * (1 if i == pair[0] else -1)
        found.append(
            Sample(
                stream=stream,
                advantages=gains,
                behaviour=logprobs,
                temperature=1.0,
                places=places,
                learned=np.ones(len(places), bool),
                pairs=numbered,
            )
        )
    return found


def test_only_whole_pairs_are_learned() -> None:
    given = answers(make_tiny_llama(), [(0, 1), (0, 2), (3, 4)], 6)
    given[4] = replace(given[4], learned=given[4].learned & (given[4].pairs != 2))  # selection took the other answer
    kept = select_complete_pairs(given)
    assert [s.stream is given[i].stream for i, s in enumerate(kept)] == [True] * 3, "the last three have no whole pair"
    for sample in kept:
        assert sample.pairs is not None and (sample.learned == (sample.pairs >= 0)).all()
    assert select_complete_pairs([replace(s, pairs=None) for s in given]) == [] == select_complete_pairs([])


def test_what_pairs_connect_stays_together() -> None:
    given = select_complete_pairs(answers(make_tiny_llama(), [(0, 1), (2, 0), (3, 4), (5, 6), (1, 6)], 8))
    assert sorted(map(sorted, group_paired(given))) == [[0, 1, 2, 5, 6], [3, 4]]
    assert group_paired([replace(s, pairs=None) for s in given]) == [[i] for i in range(7)]


def test_the_others_log_ratio_by_hand() -> None:
    given = select_complete_pairs(answers(make_tiny_llama(), [(0, 1)], 2))
    changes = [np.arange(len(s.advantages), dtype=np.float32) + 1 for s in given]
    own = [int(s.learned.sum()) for s in given]  # tokens 1, 2, … of the first turn are the answer
    found = compute_rival_changes(given, changes)
    for i, sample in enumerate(given):
        other = own[1 - i]
        assert found[i][sample.learned].tolist() == [other * (other + 1) / 2] * own[i]
        assert not found[i][~sample.learned].any()


def plain(model: torch.nn.Module, given: list[Sample], pairs: list[tuple[int, int]], rule: LearnSpec) -> None:
    """The same updates by the pairs' loss written out, with torch's AdamW and nothing else."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rule.lr, betas=rule.betas, weight_decay=rule.weight_decay)
    with torch.no_grad():
        old = [compute_plain_scores(model, sample)[0] for sample in given]
    for _ in range(rule.epochs):
        optimizer.zero_grad()
        change = [compute_plain_scores(model, s)[0] - o for s, o in zip(given, old, strict=True)]
        loss = torch.zeros(())
        for number, (one, other) in enumerate(pairs):
            first, second = (change[i][torch.from_numpy(given[i].pairs == number)].sum() for i in (one, other))
            loss = loss + (first - second - rule.loss.settings["eta"] * (1.0 + number)) ** 2
        (loss / len(pairs)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), rule.grad_clip)
        optimizer.step()


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("budget", "stage"), [(1, 0), (10**6, 0), (200, 3)], ids=["one by one", "packed", "sharded"])
def test_updates_are_those_of_the_pairs_loss_written_out(budget: int, stage: Stage) -> None:
    """Three steps: from the second one on, each half needs what has become of the other."""
    pairs = [(0, 1), (2, 0), (3, 4)]
    model, other = make_tiny_llama(), make_tiny_llama()
    rule = LearnSpec.model_validate(dict(
        loss=choose("loss", "refuel", eta=0.3), aggregate=choose("aggregate", "turn_mean"), regularisers={}, lr=1e-3,
        epochs=3, grad_clip=0.5, token_budget=budget, zero_stage=stage,
    ))  # fmt: skip
    given = answers(model, pairs, 6)
    trainer = PolicyTrainer("p", model, rule)
    run_update(trainer, given, np.random.default_rng(0))
    plain(other, given, pairs, rule)
    with trainer.gather():
        assert_nearly_equal(model, other, rule.lr)
        assert any((p != copy_weights(make_tiny_llama())[n]).any() for n, p in copy_weights(model).items())


def test_answers_of_a_pair_are_never_in_different_steps() -> None:
    model = make_tiny_llama()
    given = answers(model, [(0, 1), (2, 0), (3, 4), (5, 6)], 7)
    rule = LearnSpec(loss=choose("loss", "refuel"), aggregate=choose("aggregate", "turn_mean"), minibatches=2, epochs=5)

    plan = PolicyTrainer("p", model, rule).plan(given, np.random.default_rng(0))
    parts = [list(step.pairs) for step in plan.steps]
    assert len(parts) == 10 and sorted(parts[0] + parts[1]) == list(range(7))
    for step, part in zip(plan.steps, parts, strict=True):
        assert sorted(i for rank in step.played for one in rank for i in one.index) == sorted(part)
    for part in parts:
        assert all(set(unit) <= set(part) or not set(unit) & set(part) for unit in ([0, 1, 2], [3, 4], [5, 6]))


def test_an_iteration_without_pairs_teaches_nothing() -> None:
    model = make_tiny_llama()
    before = copy_weights(model)
    rule = LearnSpec(loss=choose("loss", "refuel"), aggregate=choose("aggregate", "turn_mean"), minibatches=2)
    told = run_update(PolicyTrainer("p", model, rule), answers(model, [], 4), np.random.default_rng(0))
    assert told == {"steps": 0, "tokens": 0, "skipped": 0}
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


def experiment(*assignments: str) -> Experiment:
    return compose([text_layer("test", CONFIG), *map(set_layer, assignments)])


def weight_files(folder: Path, iteration: int) -> list[bytes]:
    where = folder / "checkpoints" / f"{iteration:04d}" / "policies" / "shared"
    return [(where / name).read_bytes() for name in FILES]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RecordingWatcher]:
    folder, watcher = tmp_path_factory.mktemp("refuel") / "run", RecordingWatcher()
    given = experiment()
    wait(wait(Lab.open(RunFolder.create(folder, to_yaml(given), {}), given, watcher)).run())
    return folder, watcher


@pytest.mark.slow
def test_a_run_plays_branches_and_learns_from_their_partings_alone(unbroken: tuple[Path, RecordingWatcher]) -> None:
    folder, watcher = unbroken
    run = RunFolder.open(folder)
    for k in (1, 2):
        rows = {row["id"]: row for row in run.log.read(k)}
        assert len(rows) == 16
        credit = {(c.match, c.turn): c.advantage for c in run.log.credit(k)}
        partings = {id: (row["parent"], row["parent_turn"]) for id, row in rows.items() if row["parent"]}
        assert len(partings) == 8
        for id, (match, turn) in ((id, found) for id, found in partings.items() if found):
            assert (rows[id]["seed"], rows[id]["iteration"]) == (rows[match]["seed"], k)
            assert [t["raw"] for t in rows[id]["turns"][:turn]] == [t["raw"] for t in rows[match]["turns"][:turn]]
            assert credit[id, turn] == -credit[match, turn]
            seat = rows[id]["turns"][turn]["seat"]
            (one,), (other,) = rows[id]["streams"][seat], rows[match]["streams"][seat]
            begin = one["turns"].index(turn)
            for name in ("ids", "mask", "logprobs", "turns"):
                assert one[name][:begin] == other[name][:begin]
            assert other["turns"][begin] == turn
        compared = {(id, found[1]) for id, found in partings.items() if found} | set(partings.values())
        assert {place for place, advantage in credit.items() if advantage} <= compared
        assert any(credit.values())
    assert len({weight_files(folder, k)[0] for k in (0, 1, 2)}) == 3
    assert all(row["learn"]["shared"]["logprob_gap"] < 0.01 for row in watcher.rows)


@pytest.mark.slow
@pytest.mark.parametrize("stop", [("match", "0002-0003"), ("phase", (2, "learn"))])
def test_a_run_with_branches_resumes_bit_by_bit(
    unbroken: tuple[Path, RecordingWatcher], tmp_path: Path, stop: tuple[str, Any]
) -> None:
    folder, given = tmp_path / "run", experiment()
    shutil.copytree(unbroken[0], folder)
    shutil.rmtree(folder / "checkpoints" / "0002")
    with pytest.raises(KeyboardInterrupt):
        wait(
            wait(
                Lab.open(RunFolder.open(folder), given, RecordingWatcher(lambda what, value: (what, value) == stop))
            ).run()
        )
    wait(wait(Lab.open(RunFolder.open(folder), given, RecordingWatcher())).run())
    assert read_log(folder) == read_log(unbroken[0]) and weight_files(folder, 2) == weight_files(unbroken[0], 2)


@pytest.mark.parametrize(
    ("assignment", "told"),
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
def test_what_does_not_fit_together_is_one_line(assignment: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        experiment(*assignment.split(" + "))
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_the_estimator_without_branches_is_refused_with_any_loss() -> None:
    with pytest.raises(ConfigError, match=r"credit\.estimator: refuel .* set play\.parts: \[branches\]"):
        experiment("learn.loss=policy_gradient", "play.parts=[]")
    with pytest.raises(ConfigError, match=r"set play\.parts: \[branches\]"):
        experiment(
            "learn.loss=policy_gradient", "play.parts=[]",
            "credit.estimator={weighted_sum: {parts: [{estimator: mars}, {estimator: refuel}]}}",
        )  # fmt: skip
    experiment("learn.loss=policy_gradient", "credit.transforms=[whiten]", "learn.aggregate=token_mean")


@pytest.mark.slow
def test_a_policy_learns_to_be_understood(tmp_path: Path) -> None:
    """Where only valid acts pay, they become the rule within eight iterations."""
    given, watcher = (
        experiment(
            "iterations=8", "play.matches=32", "learn.lr=5e-4", "game.options.illegal=end",
            "credit.stages=[{valid_act: {bonus: 1.0}}]", "credit.weights={deal: 0.0, illegal: 0.0}",
        ),
        RecordingWatcher(),
    )  # fmt: skip
    wait(wait(Lab.open(RunFolder.create(tmp_path / "run", to_yaml(given), {}), given, watcher)).run())
    rates = [row["valid_rate"] for row in watcher.rows]
    assert rates[0] < 0.8 and np.mean(rates[-2:]) > 0.9
