"""Learning from logs: critics and weights by hand, and the stitching test on the game `make_maze`."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agents.stream import Stream
from arena.cli.loop import wait
from arena.config.kinds import choose
from arena.credit.assign import assign, compute_turn_rewards, select
from arena.credit.batch import CreditedTrajectory, TurnBatch
from arena.credit.critics.base import CriticContext
from arena.credit.critics.ilql import Ilql, MonteCarlo
from arena.credit.critics.networks import compute_q_targets, expectile_loss
from arena.credit.critics.words import hash_prompts
from arena.credit.estimators.gae import Discounts
from arena.credit.settings import CreditSpec
from arena.records import Trajectory, Turn
from games.contracts import Message
from games.families.grid import STEPS
from games.maze import Maze
from tests.factories.records import make_turn, wrap_turns
from tests.factories.trajectories import make_groups, make_scored_trajectory, make_trajectory

SMALL: dict[str, Any] = {"gamma": 0.5, "steps": 3, "warmup": 1}


def make_critic(name: str, seed: int = 0, **settings: Any) -> Ilql:
    critic = choose("critic", name, **{**SMALL, **settings})(CriticContext(discounts=Discounts(), seed=seed))
    assert isinstance(critic, Ilql)
    return critic


def make_credited(*rewards: list[float]) -> list[CreditedTrajectory]:
    return [
        CreditedTrajectory(
            trajectory=make_trajectory(turn_rewards, match=f"m{i}"),
            rewards=np.array(turn_rewards),
            advantages=np.zeros(len(turn_rewards)),
        )
        for i, turn_rewards in enumerate(rewards)
    ]


# -- critics -----------------------------------------------------------------------------------------------


def test_expectile_loss_by_hand() -> None:
    values = torch.tensor([[1.0, 2.0], [0.0, 5.0]], dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([3.0, 1.0], dtype=torch.float64)
    # u = 2, -1 and 3, -4: (.8 · 4 + .2 · 1) / 2 + (.8 · 9 + .2 · 16) / 2 = 1.7 + 5.2
    assert expectile_loss(values, targets, 0.8).item() == pytest.approx(6.9)
    (gradient,) = torch.autograd.grad(expectile_loss(values, targets, 0.8), values)
    # -2 w u / 2
    assert gradient.tolist() == [pytest.approx([-1.6, 0.2]), pytest.approx([-2.4, 0.8])]
    assert torch.autograd.gradcheck(lambda x: expectile_loss(x, targets, 0.8), values)


@pytest.mark.parametrize(("expectile", "value"), [(0.5, 2.0), (0.9, 3.6), (0.999, 3.996)])
def test_expectile_loss_is_minimal_at_the_expectile(expectile: float, value: float) -> None:
    """For 0 and 4: w (4 - v) = (1 - w) v, so v = 4 w."""
    values = torch.full((2, 2), value, dtype=torch.float64, requires_grad=True)
    loss = expectile_loss(values[:, :1].expand(2, 2), torch.tensor([0.0, 4.0], dtype=torch.float64), expectile)
    assert torch.autograd.grad(loss, values)[0].abs().max() < 1e-12


def test_q_targets_by_hand() -> None:
    rewards, last = torch.tensor([-1.0, -1.0, 2.0]), torch.tensor([False, False, True])
    # -1 + .9 · 3, -1 + .9 · -2, and nothing comes after the end
    targets = compute_q_targets(rewards, last, torch.tensor([3.0, -2.0, 7.0]), 0.9)
    assert targets.tolist() == pytest.approx([1.7, -2.8, 2.0])


def test_ilql_uses_the_lower_target_for_v_and_its_own_v_for_q() -> None:
    critic, rows = make_critic("ilql", expectile=0.8, steps=1), torch.tensor([0, 1, 2])
    wait(critic.fit(make_credited([1.0, 0.0, 4.0]), np.random.default_rng(0)))
    batch = critic._get_transitions(rows)
    q_loss, v_loss = critic._compute_losses(batch, batch.states, batch.states)
    with torch.no_grad():
        v, q = critic.networks.v(batch.states), critic.networks.q(batch.pairs)
        lower = critic.target.q(batch.pairs).min(0).values
        target = torch.tensor([1 + 0.5 * v[:, 1].min(), 0.5 * v[:, 2].min(), 4])
    assert q_loss.item() == pytest.approx(float((q - target).square().mean(1).sum()), rel=1e-5)
    differences = lower - v
    weights = torch.where(differences < 0, 0.2, 0.8)
    assert v_loss.item() == pytest.approx(float((weights * differences.square()).mean(1).sum()), rel=1e-5)


def test_monte_carlo_regresses_on_returns() -> None:
    critic = make_critic("monte_carlo")
    wait(critic.fit(make_credited([1.0, 0.0, 4.0], [2.0]), np.random.default_rng(0)))
    # γ = .5: 1 + .5 · 0 + .25 · 4, 0 + .5 · 4, 4, and 2
    assert critic.buffer.rewards.tolist() == [2.0, 2.0, 4.0, 2.0] and critic.buffer.last.all()
    assert isinstance(critic, MonteCarlo) and critic.expectile == 0.5


@pytest.mark.parametrize("name", ["ilql", "monte_carlo"])
def test_saved_critic_resumes_bit_equal(name: str, tmp_path: Path) -> None:
    credited = make_credited([1.0, 0.0], [0.0, 2.0, 0.0], [3.0])
    uninterrupted, first, resumed = (make_critic(name, seed) for seed in (1, 1, 2))
    for critic in (uninterrupted, first):
        wait(critic.fit(credited[:2], np.random.default_rng(3)))
    first.save(tmp_path)
    resumed.load(tmp_path)
    for critic in (uninterrupted, resumed):
        wait(critic.fit(credited[2:], np.random.default_rng(4)))
    expected, predicted = (
        wait(critic.predict([c.trajectory for c in credited])) for critic in (uninterrupted, resumed)
    )
    assert all((a == b).all() for key in expected for a, b in zip(expected[key], predicted[key], strict=True))


def make_prompted(*observed: list[int]) -> Trajectory:
    """Return a trajectory with one stream per turn (a memory window of 0) whose prompts have these ids."""
    streams = []
    for index, ids in enumerate(observed):
        stream = Stream()
        stream.observe(ids)
        stream.append_sampled([5], [-1.0], index)
        streams.append(stream)
    turns = [make_turn(index, {}, raw="go", action="go") for index in range(len(observed))]
    return wrap_turns(turns, streams=tuple(streams))


def test_equal_prompts_are_equal_states_at_any_turn() -> None:
    trajectories = [make_prompted([1, 2, 3], [4, 2], [1, 2, 3]), make_prompted([3, 2, 1], [1, 2, 3])]
    states = hash_prompts(trajectories, 256, 2)
    assert (states[0] == states[2]).all() and (states[0] == states[4]).all(), "independent of earlier turns"
    assert len({row.tobytes() for row in states}) == 3, "an order of tokens is another prompt"
    features = make_critic("ilql", reads="prompt")._compute_features(trajectories)[0]
    assert features.numpy() == pytest.approx(hash_prompts(trajectories, 256, 2))


# -- weights -----------------------------------------------------------------------------------------------


def test_awr_weights_by_hand() -> None:
    advantages = np.array([0.0, 1.0, -2.0, 100.0, -1e6])
    weights = choose("transform", "exponential", beta=0.5, most=20.0)(TurnBatch([]), advantages)
    assert weights.tolist() == pytest.approx([1.0, np.exp(2), np.exp(-4), 20.0, 0.0])


def test_awr_weighs_by_the_return_minus_the_value() -> None:
    """V = 1 at all turns; returns 3, 2 and 2, 0 with γ = 1."""
    trajectories = [make_trajectory([1.0, 2.0], match="a"), make_trajectory([2.0, 0.0], match="b")]
    values = {"values": [np.ones(2, np.float32)] * 2}
    rule = CreditSpec.model_validate(
        {"estimator": "gae_turn", "critic": "linear", "transforms": [{"exponential": {"beta": 2.0}}]}
    )
    weights = np.concatenate([c.advantages for c in assign(TurnBatch(trajectories, measures=values), rule)])
    assert weights.tolist() == pytest.approx(np.exp([1.0, 0.5, 0.5, -0.5]).tolist())


def test_behaviour_cloning_has_weight_one() -> None:
    rule = CreditSpec.model_validate({"estimator": "zero", "transforms": ["exponential"]})
    (credited,) = assign(TurnBatch([make_trajectory([1.0, -2.0, 5.0])]), rule)
    assert credited.advantages.tolist() == [1.0] * 3 and credited.learned is None


def select_imitated(trajectories: Sequence[Trajectory], **settings: Any) -> list[bool]:
    batch = TurnBatch(list(trajectories))
    rule = CreditSpec.model_validate({"select": [{"top_returns": settings}]})
    selection = select(batch, compute_turn_rewards(batch, rule), rule)
    assert selection.kept.all() and selection.counted.all()
    return selection.learned.tolist()


def test_filtered_cloning_keeps_the_best_share_per_seat() -> None:
    buyers = [make_scored_trajectory(s, k, f"0001-{k:04d}") for k, s in enumerate([5.0, 1.0, 3.0, 3.0, 2.0])]
    sellers = [make_scored_trajectory(s, k, f"0001-{k:04d}", role="seller") for k, s in enumerate([-5.0, -1.0, -3.0])]
    # of 5 buyers ⌈.3 · 5⌉ = 2, and 3 ties with the second; of 3 sellers one
    assert select_imitated([*buyers, *sellers], share=0.3) == [True, False, True, True, False, False, True, False]
    assert select_imitated(buyers, share=1.0) == [True] * 5, "all: behaviour cloning"
    assert select_imitated(buyers, share=0.3, at_least=4.0) == [True, False, False, False, False]
    assert select_imitated(sellers, share=0.3, at_least=0.0) == [False] * 3, "the best need not verify"


def test_expert_iteration_keeps_the_best_per_deal() -> None:
    trajectories = make_groups([0.0, 1.0, 0.5], [0.0, 0.0, 0.0])
    best = {"share": 1 / 3, "by": ["game", "seed", "role"]}
    assert select_imitated(trajectories, **best) == [False, True, False, True, True, True]
    assert select_imitated(trajectories, **best, at_least=1.0) == [False, True, False, False, False, False]


# -- the stitching test ------------------------------------------------------------------------------------

CELLS = {f"at {(x, y)}": 4 * x + y for x in range(4) for y in range(4)}


def make_maze() -> Maze:
    """Return a maze of six steps from start to goal."""
    game = Maze(size=4, max_turns=60, reward="steps")
    game.reset(seed=8)
    return game


def is_over(game: Maze) -> bool:
    return all(game.terminations.values()) or all(game.truncations.values())


def sample_walk(rng: np.random.Generator) -> CreditedTrajectory:
    """Return a logged walk that prefers walls to progress."""
    game, turns, rewards = make_maze(), list[Turn](), list[float]()
    while not is_over(game):
        walls = [way for way in STEPS if way not in game.public()["exits"]]
        draw = rng.random()
        action = walls[0] if draw < 0.5 and walls else game.find_step() if draw < 0.8 else str(rng.choice([*STEPS]))
        messages = (Message.of("referee", f"at {game.situation('walker')}"),)
        turns.append(make_turn(len(turns), {}, messages=messages, raw=action, action=action))
        game.step(action)
        rewards.append(float(game.rewards["walker"]))
    stream = Stream()
    for turn_ in turns:
        stream.observe([1])
        stream.append_sampled([5], [-1.0], turn_.index)
    walk = wrap_turns(turns, game="maze", streams=(stream,))
    return CreditedTrajectory(trajectory=walk, rewards=np.array(rewards), advantages=np.zeros(len(turns)))


def count_steps(walks: Sequence[CreditedTrajectory], weights: Sequence[np.ndarray]) -> int:
    """Return the steps of weighted imitation's policy: in each cell, take the act with the largest sum of weights."""
    weight_sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for walk, turn_weights in zip(walks, weights, strict=True):
        for turn_, weight in zip(walk.trajectory.turns, turn_weights.tolist(), strict=True):
            weight_sums[turn_.messages[0].text][turn_.raw] += weight
    game = make_maze()
    while not is_over(game):
        act_weights = weight_sums[f"at {game.situation('walker')}"]
        game.step(max(act_weights, key=act_weights.__getitem__))
    return game.turns


class Tabular(Ilql):
    """Implicit Q-learning with one-hot features of cells and directions."""

    def _compute_features(self, trajectories: Sequence[Trajectory]) -> tuple[torch.Tensor, torch.Tensor]:
        turns, one_hot = [t for trajectory in trajectories for t in trajectory.turns], torch.eye(self.settings.features)
        return one_hot[[CELLS[t.messages[0].text] for t in turns]], one_hot[[[*STEPS].index(t.raw) for t in turns]]


@pytest.mark.slow
def test_ilql_finds_an_unlogged_path_and_cloning_does_not() -> None:
    """As in LMRL-Gym: the data lack the best path but hold each of its steps."""
    rng, shortest = np.random.default_rng(0), make_maze().shortest()
    walks = [sample_walk(rng) for _ in range(40)]
    lengths = np.array([len(walk.rewards) for walk in walks])
    assert lengths.min() > shortest == 6
    best = np.quantile(lengths, 0.1)
    clone_steps = [
        count_steps(walks, [np.full(n, float(n <= max_length)) for n in lengths])
        for max_length in (lengths.max(), best)
    ]
    assert clone_steps == [60, 60], "neither all walks nor the best ones leave the walls"
    settings = make_critic("ilql", gamma=1.0, lr=1e-2, steps=100, replay=0).settings
    settings = replace(settings, batch=128, features=20, hidden=64)
    critic = Tabular(CriticContext(discounts=Discounts()), settings, expectile=0.9)
    for _ in range(4):
        wait(critic.fit(walks, rng))
    trajectories = [walk.trajectory for walk in walks]
    rule = CreditSpec.model_validate({"estimator": "archer", "critic": "ilql", "transforms": ["exponential"]})
    batch = TurnBatch(trajectories, measures=wait(critic.predict(trajectories)))
    assert count_steps(walks, [c.advantages for c in assign(batch, rule)]) == shortest
