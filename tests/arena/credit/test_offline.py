"""Learning from logs: critics and weights by hand, and the stitching test on the game `maze`."""

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
from tests.factories.trajectories import make_groups, make_scored_trajectory, make_trajectory, make_turn, wrap_turns

SMALL: dict[str, Any] = {"gamma": 0.5, "steps": 3, "warmup": 1}


def critic(name: str, seed: int = 0, **given: Any) -> Ilql:
    found = choose("critic", name, **{**SMALL, **given})(CriticContext(discounts=Discounts(), seed=seed))
    assert isinstance(found, Ilql)
    return found


def rewarded(*rewards: list[float]) -> list[CreditedTrajectory]:
    return [
        CreditedTrajectory(
            trajectory=make_trajectory(own, match=f"m{i}"), rewards=np.array(own), advantages=np.zeros(len(own))
        )
        for i, own in enumerate(rewards)
    ]


# -- critics -----------------------------------------------------------------------------------------------


def test_the_expectile_loss_by_hand() -> None:
    values = torch.tensor([[1.0, 2.0], [0.0, 5.0]], dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([3.0, 1.0], dtype=torch.float64)
    # u = 2, -1 and 3, -4: (.8 · 4 + .2 · 1) / 2 + (.8 · 9 + .2 · 16) / 2 = 1.7 + 5.2
    assert expectile_loss(values, targets, 0.8).item() == pytest.approx(6.9)
    (gradient,) = torch.autograd.grad(expectile_loss(values, targets, 0.8), values)
    # -2 w u / 2
    assert gradient.tolist() == [pytest.approx([-1.6, 0.2]), pytest.approx([-2.4, 0.8])]
    assert torch.autograd.gradcheck(lambda x: expectile_loss(x, targets, 0.8), values)


@pytest.mark.parametrize(("expectile", "value"), [(0.5, 2.0), (0.9, 3.6), (0.999, 3.996)])
def test_its_minimiser_is_the_expectile(expectile: float, value: float) -> None:
    """Of 0 and 4: w (4 - v) = (1 - w) v, so v = 4 w."""
    values = torch.full((2, 2), value, dtype=torch.float64, requires_grad=True)
    loss = expectile_loss(values[:, :1].expand(2, 2), torch.tensor([0.0, 4.0], dtype=torch.float64), expectile)
    assert torch.autograd.grad(loss, values)[0].abs().max() < 1e-12


def test_the_targets_of_q_by_hand() -> None:
    rewards, last = torch.tensor([-1.0, -1.0, 2.0]), torch.tensor([False, False, True])
    # -1 + .9 · 3, -1 + .9 · -2, and nothing comes after the end
    found = compute_q_targets(rewards, last, torch.tensor([3.0, -2.0, 7.0]), 0.9)
    assert found.tolist() == pytest.approx([1.7, -2.8, 2.0])


def test_ilql_takes_the_lower_target_for_v_and_its_own_v_for_q() -> None:
    found, rows = critic("ilql", expectile=0.8, steps=1), torch.tensor([0, 1, 2])
    wait(found.fit(rewarded([1.0, 0.0, 4.0]), np.random.default_rng(0)))
    drawn = found._get_transitions(rows)
    q_loss, v_loss = found._compute_losses(drawn, drawn.states, drawn.states)
    with torch.no_grad():
        v, q = found.networks.v(drawn.states), found.networks.q(drawn.pairs)
        lower = found.target.q(drawn.pairs).min(0).values
        target = torch.tensor([1 + 0.5 * v[:, 1].min(), 0.5 * v[:, 2].min(), 4])
    assert q_loss.item() == pytest.approx(float((q - target).square().mean(1).sum()), rel=1e-5)
    gaps = lower - v
    weights = torch.where(gaps < 0, 0.2, 0.8)
    assert v_loss.item() == pytest.approx(float((weights * gaps.square()).mean(1).sum()), rel=1e-5)


def test_monte_carlo_regresses_on_returns() -> None:
    found = critic("monte_carlo")
    wait(found.fit(rewarded([1.0, 0.0, 4.0], [2.0]), np.random.default_rng(0)))
    # γ = .5: 1 + .5 · 0 + .25 · 4, 0 + .5 · 4, 4, and 2
    assert found.buffer.rewards.tolist() == [2.0, 2.0, 4.0, 2.0] and found.buffer.last.all()
    assert isinstance(found, MonteCarlo) and found.expectile == 0.5


@pytest.mark.parametrize("name", ["ilql", "monte_carlo"])
def test_a_saved_critic_goes_on_as_if_never_stopped(name: str, tmp_path: Path) -> None:
    found = rewarded([1.0, 0.0], [0.0, 2.0, 0.0], [3.0])
    whole, first, resumed = (critic(name, seed) for seed in (1, 1, 2))
    for one in (whole, first):
        wait(one.fit(found[:2], np.random.default_rng(3)))
    first.save(tmp_path)
    resumed.load(tmp_path)
    for one in (whole, resumed):
        wait(one.fit(found[2:], np.random.default_rng(4)))
    ours, theirs = (wait(one.predict([c.trajectory for c in found])) for one in (whole, resumed))
    assert all((a == b).all() for key in ours for a, b in zip(ours[key], theirs[key], strict=True))


def prompted(*observed: list[int]) -> Trajectory:
    """A trajectory of one stream per turn (a memory window of 0), whose prompts have these ids."""
    streams = []
    for index, ids in enumerate(observed):
        stream = Stream()
        stream.observe(ids)
        stream.append_sampled([5], [-1.0], index)
        streams.append(stream)
    turns = [make_turn(index, {}, raw="go", action="go") for index in range(len(observed))]
    return wrap_turns(turns, streams=tuple(streams))


def test_equal_prompts_are_equal_states_whenever_they_come() -> None:
    found = [prompted([1, 2, 3], [4, 2], [1, 2, 3]), prompted([3, 2, 1], [1, 2, 3])]
    seen = hash_prompts(found, 256, 2)
    assert (seen[0] == seen[2]).all() and (seen[0] == seen[4]).all(), "whatever came before"
    assert len({row.tobytes() for row in seen}) == 3, "an order of tokens is another prompt"
    read = critic("ilql", reads="prompt")._compute_features(found)[0]
    assert read.numpy() == pytest.approx(hash_prompts(found, 256, 2))


# -- weights -----------------------------------------------------------------------------------------------


def test_awr_weights_by_hand() -> None:
    advantages = np.array([0.0, 1.0, -2.0, 100.0, -1e6])
    found = choose("transform", "exponential", beta=0.5, most=20.0)(TurnBatch([]), advantages)
    assert found.tolist() == pytest.approx([1.0, np.exp(2), np.exp(-4), 20.0, 0.0])


def test_awr_weighs_by_the_return_above_what_was_expected() -> None:
    """V = 1 at all turns; returns 3, 2 and 2, 0 with γ = 1."""
    found = [make_trajectory([1.0, 2.0], match="a"), make_trajectory([2.0, 0.0], match="b")]
    values = {"values": [np.ones(2, np.float32)] * 2}
    rule = CreditSpec.model_validate(
        {"estimator": "gae_turn", "critic": "linear", "transforms": [{"exponential": {"beta": 2.0}}]}
    )
    weights = np.concatenate([c.advantages for c in assign(TurnBatch(found, measures=values), rule)])
    assert weights.tolist() == pytest.approx(np.exp([1.0, 0.5, 0.5, -0.5]).tolist())


def test_behaviour_cloning_weighs_1() -> None:
    rule = CreditSpec.model_validate({"estimator": "zero", "transforms": ["exponential"]})
    (found,) = assign(TurnBatch([make_trajectory([1.0, -2.0, 5.0])]), rule)
    assert found.advantages.tolist() == [1.0] * 3 and found.learned is None


def imitated(found: Sequence[Trajectory], **settings: Any) -> list[bool]:
    batch = TurnBatch(list(found))
    rule = CreditSpec.model_validate({"select": [{"top_returns": settings}]})
    chosen = select(batch, compute_turn_rewards(batch, rule), rule)
    assert chosen.kept.all() and chosen.counted.all()
    return chosen.learned.tolist()


def test_filtered_cloning_keeps_the_best_share_of_each_seat() -> None:
    buyers = [make_scored_trajectory(s, k, f"0001-{k:04d}") for k, s in enumerate([5.0, 1.0, 3.0, 3.0, 2.0])]
    sellers = [make_scored_trajectory(s, k, f"0001-{k:04d}", role="seller") for k, s in enumerate([-5.0, -1.0, -3.0])]
    # of 5 buyers ⌈.3 · 5⌉ = 2, and 3 ties with the second; of 3 sellers one
    assert imitated([*buyers, *sellers], share=0.3) == [True, False, True, True, False, False, True, False]
    assert imitated(buyers, share=1.0) == [True] * 5, "all: behaviour cloning"
    assert imitated(buyers, share=0.3, at_least=4.0) == [True, False, False, False, False]
    assert imitated(sellers, share=0.3, at_least=0.0) == [False] * 3, "the best need not verify"


def test_expert_iteration_keeps_the_best_of_each_deal() -> None:
    found = make_groups([0.0, 1.0, 0.5], [0.0, 0.0, 0.0])
    best = {"share": 1 / 3, "by": ["game", "seed", "role"]}
    assert imitated(found, **best) == [False, True, False, True, True, True]
    assert imitated(found, **best, at_least=1.0) == [False, True, False, False, False, False]


# -- the stitching test ------------------------------------------------------------------------------------

CELLS = {f"at {(x, y)}": 4 * x + y for x in range(4) for y in range(4)}


def maze() -> Maze:
    """Six steps from start to goal."""
    game = Maze(size=4, max_turns=60, reward="steps")
    game.reset(seed=8)
    return game


def is_over(game: Maze) -> bool:
    return all(game.terminations.values()) or all(game.truncations.values())


def stroll(rng: np.random.Generator) -> CreditedTrajectory:
    """A logged walk that rather walks into walls than on."""
    game, turns, rewards = maze(), list[Turn](), list[float]()
    while not is_over(game):
        walls = [way for way in STEPS if way not in game.public()["exits"]]
        chance = rng.random()
        act = walls[0] if chance < 0.5 and walls else game.find_step() if chance < 0.8 else str(rng.choice([*STEPS]))
        messages = (Message.of("referee", f"at {game.situation('walker')}"),)
        turns.append(make_turn(len(turns), {}, messages=messages, raw=act, action=act))
        game.step(act)
        rewards.append(float(game.rewards["walker"]))
    stream = Stream()
    for one in turns:
        stream.observe([1])
        stream.append_sampled([5], [-1.0], one.index)
    walk = wrap_turns(turns, game="maze", streams=(stream,))
    return CreditedTrajectory(trajectory=walk, rewards=np.array(rewards), advantages=np.zeros(len(turns)))


def steps_needed(walks: Sequence[CreditedTrajectory], weights: Sequence[np.ndarray]) -> int:
    """Steps of the policy that does in each cell what has the largest sum of weights: weighted imitation, solved."""
    worth: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for walk, own in zip(walks, weights, strict=True):
        for one, weight in zip(walk.trajectory.turns, own.tolist(), strict=True):
            worth[one.messages[0].text][one.raw] += weight
    game = maze()
    while not is_over(game):
        acts = worth[f"at {game.situation('walker')}"]
        game.step(max(acts, key=acts.__getitem__))
    return game.turns


class Tabular(Ilql):
    """Implicit Q-learning that knows cells and directions by their numbers."""

    def _features(self, trajectories: Sequence[Trajectory]) -> tuple[torch.Tensor, torch.Tensor]:
        turns, one = [t for trajectory in trajectories for t in trajectory.turns], torch.eye(self.settings.features)
        return one[[CELLS[t.messages[0].text] for t in turns]], one[[[*STEPS].index(t.raw) for t in turns]]


@pytest.mark.slow
def test_ilql_stitches_a_way_that_no_walk_took_and_cloning_does_not() -> None:
    """As in LMRL-Gym: the best way is absent from the data, but each step of it is there."""
    rng, shortest = np.random.default_rng(0), maze().shortest()
    walks = [stroll(rng) for _ in range(40)]
    lengths = np.array([len(walk.rewards) for walk in walks])
    assert lengths.min() > shortest == 6
    best = np.quantile(lengths, 0.1)
    clones = [steps_needed(walks, [np.full(n, float(n <= most)) for n in lengths]) for most in (lengths.max(), best)]
    assert clones == [60, 60], "the walls are never left, in all walks and in the best"
    settings = critic("ilql", gamma=1.0, lr=1e-2, steps=100, replay=0).settings
    settings = replace(settings, batch=128, features=20, hidden=64)
    found = Tabular(CriticContext(discounts=Discounts()), settings, expectile=0.9)
    for _ in range(4):
        wait(found.fit(walks, rng))
    trajectories = [walk.trajectory for walk in walks]
    rule = CreditSpec.model_validate({"estimator": "archer", "critic": "ilql", "transforms": ["exponential"]})
    batch = TurnBatch(trajectories, measures=wait(found.predict(trajectories)))
    assert steps_needed(walks, [c.advantages for c in assign(batch, rule)]) == shortest
