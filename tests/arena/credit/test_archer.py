"""ArCHer's critic on a stochastic chain with exact values; its replay buffer and saved state."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from arena.cli.loop import wait
from arena.config.kinds import choose
from arena.credit.batch import CreditedTrajectory, TurnBatch
from arena.credit.critics import create_critic
from arena.credit.critics.archer import Archer
from arena.credit.critics.base import CriticContext
from arena.credit.critics.networks import twin_loss
from arena.credit.estimators.gae import Discounts
from arena.credit.settings import CreditSpec
from games.contracts import Message
from tests.factories.records import make_turn, wrap_turns

GOAL, SLIP, GAMMA = 4, 0.25, 0.9
ACTS = ("go left", "go right")
SMALL: dict[str, Any] = {"gamma": GAMMA, "features": 64, "hidden": 32, "lr": 3e-3, "batch": 64, "warmup": 1}


def make_critic(seed: int = 0, **settings: Any) -> Archer:
    critic = choose("critic", "archer", **{**SMALL, **settings})(CriticContext(discounts=Discounts(), seed=seed))
    assert isinstance(critic, Archer)
    return critic


# -- the chain: places 1 to GOAL-1, an end on either side, reward 1 at the right one; steps may slip -----------------


def make_walk(places: list[int], acts: list[int], rewards: list[float]) -> CreditedTrajectory:
    turns = tuple(
        make_turn(k, {}, messages=(Message.of("referee", f"you are at place {place}"),), raw=ACTS[act])
        for k, (place, act) in enumerate(zip(places, acts, strict=True))
    )
    trajectory = wrap_turns(turns, game="chain")
    return CreditedTrajectory(trajectory=trajectory, rewards=np.array(rewards), advantages=np.zeros(len(turns)))


def sample_walk(
    rng: np.random.Generator, right: np.ndarray, goal: int = GOAL
) -> tuple[CreditedTrajectory, list[int], list[int]]:
    """Return a walk from a random place, its places and acts; `right` holds each place's probability of going right."""
    place, places, acts, rewards = int(rng.integers(1, goal)), [], [], []
    while 0 < place < goal:
        places.append(place)
        acts.append(int(rng.random() < right[place]))
        place += 1 if (acts[-1] == 1) != (rng.random() < SLIP) else -1
        rewards.append(float(place == goal))
    return make_walk(places, acts, rewards), places, acts


def compute_exact_values(right: np.ndarray, goal: int = GOAL) -> tuple[np.ndarray, np.ndarray]:
    """Return Q [places, acts] and V [places] of a policy: solve V = P (r + γ V), then one step for Q."""
    right_probability = right * (1 - SLIP) + (1 - right) * SLIP
    places = np.arange(1, goal)
    step = np.zeros((goal + 1, goal + 1))
    step[places, places + 1], step[places, places - 1] = right_probability[places], 1 - right_probability[places]
    reward = step[:, goal].copy()
    step[:, [0, goal]] = 0  # nothing comes after an end
    v = np.linalg.solve(np.eye(goal + 1) - GAMMA * step, reward)
    after = GAMMA * v + (np.arange(goal + 1) == goal)
    q = np.stack([p * np.roll(after, -1) + (1 - p) * np.roll(after, 1) for p in (SLIP, 1 - SLIP)], 1)
    return q[1:goal], v[1:goal]


def predict_values(critic: Archer) -> tuple[np.ndarray, np.ndarray]:
    """Return the critic's Q [places, acts] and V [places]."""
    predicted = wait(critic.predict([make_walk([p], [a], [0.0]).trajectory for p in range(1, GOAL) for a in (0, 1)]))
    q, v = (np.concatenate(predicted[name]).reshape(GOAL - 1, 2) for name in ("action_values", "values"))
    return q, v.mean(1)


def measure_errors(seed: int, iterations: int = 10, **settings: Any) -> tuple[float, float]:
    """Return mean |Q - exact| and |V - exact| over the last five iterations, each of 16 walks of a fixed policy."""
    rng, critic, right = np.random.default_rng(seed), make_critic(seed, **settings), np.full(GOAL + 1, 0.6)
    q, v = compute_exact_values(right)
    errors = []
    for _ in range(iterations):
        wait(critic.fit([sample_walk(rng, right)[0] for _ in range(16)], rng))
        predicted = predict_values(critic)
        errors.append((np.abs(predicted[0] - q).mean(), np.abs(predicted[1] - v).mean()))
    mean_errors = np.mean(errors[-5:], 0)
    return float(mean_errors[0]), float(mean_errors[1])


def test_exact_values_equal_the_mean_of_many_walks() -> None:
    rng, right = np.random.default_rng(0), np.full(GOAL + 1, 0.6)
    sums, counts = np.zeros(GOAL + 1), np.zeros(GOAL + 1)
    for _ in range(4000):
        credited, places, _ = sample_walk(rng, right)
        sums[places[0]] += credited.rewards.sum() * GAMMA ** (len(places) - 1)
        counts[places[0]] += 1
    assert sums[1:GOAL] / counts[1:GOAL] == pytest.approx(compute_exact_values(right)[1], abs=0.03)


@pytest.mark.slow
def test_values_approach_exact_ones_with_more_steps_and_replay() -> None:
    for seed in range(2):
        (q, v), (one_step_error, _), (no_replay_error, _) = (
            measure_errors(seed, **settings) for settings in ({}, {"steps": 1}, {"replay": 0})
        )
        assert q < 0.1 and v < 0.1, "of values between 0.1 and 0.85"
        assert one_step_error > 2 * q, "one step per iteration is far from done"
        assert no_replay_error > q, "the turns of this iteration alone are fewer"


def count_walks_to_threshold(
    rule: CreditSpec, seed: int, goal: int = 5, walks: int = 8, max_iterations: int = 60
) -> int:
    """Return how many walks a tabular softmax policy needs, with the rule's advantages, for 90 % of the best value."""
    rng, slopes = np.random.default_rng(seed), np.zeros(goal + 1)
    critic = create_critic(rule.critic, rule.estimator, seed=seed)
    best = compute_exact_values(np.ones(goal + 1), goal)[1].mean()
    for k in range(max_iterations):
        right = 1 / (1 + np.exp(-slopes))
        if compute_exact_values(right, goal)[1].mean() >= 0.9 * best:
            return k * walks
        sampled = [sample_walk(rng, right, goal) for _ in range(walks)]
        credited = [c for c, _, _ in sampled]
        trajectories = [c.trajectory for c in credited]
        batch = TurnBatch(trajectories, measures=wait(critic.predict(trajectories)) if critic else {})
        advantages = rule.estimator(batch, np.concatenate([c.rewards for c in credited]))
        advantages = advantages / (advantages.std() + 1e-6)
        if critic:
            wait(critic.fit(credited, rng))
        places, acts = (np.concatenate([f[i] for f in sampled]) for i in (1, 2))
        for place in np.unique(places):
            rows = places == place
            slopes[place] += 0.7 * np.mean(advantages[rows] * (acts[rows] - right[place]))
    return max_iterations * walks


@pytest.mark.slow
def test_needs_fewer_walks_than_monte_carlo() -> None:
    monte_carlo = CreditSpec.model_validate(dict(estimator={"mars": {"gamma": GAMMA}}))
    critic = CreditSpec.model_validate(dict(estimator="archer", critic={"archer": SMALL}))
    monte_carlo_walks, archer_walks = (
        [count_walks_to_threshold(rule, seed) for seed in range(3)] for rule in (monte_carlo, critic)
    )
    assert max(archer_walks) < min(monte_carlo_walks) and np.mean(archer_walks) < 0.6 * np.mean(monte_carlo_walks), (
        archer_walks,
        monte_carlo_walks,
    )


# -- components --------------------------------------------------------------------------------------------


def test_twin_loss_by_finite_differences() -> None:
    values = torch.tensor([[1.0, 2.0], [0.0, 5.0]], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([[0.0, 2.0], [1.0, 2.0]], dtype=torch.float64)
    assert twin_loss(values, target).item() == (1 + 0) / 2 + (1 + 9) / 2, "each against its own target"
    assert torch.autograd.gradcheck(lambda x: twin_loss(x, target), values)


def test_advantages_are_zero_during_warmup() -> None:
    critic, rng = make_critic(warmup=2, steps=5), np.random.default_rng(0)
    walks = [sample_walk(rng, np.full(GOAL + 1, 0.5))[0] for _ in range(4)]
    rule = choose("estimator", "archer")
    for is_warm in (False, False, True):
        measures = wait(critic.predict([c.trajectory for c in walks]))
        advantages = rule(TurnBatch([c.trajectory for c in walks], measures=measures), np.zeros(0))
        assert advantages.any() == is_warm
        assert [len(v) for v in measures["values"]] == [len(c.trajectory.turns) for c in walks]
        wait(critic.fit(walks, rng))


def test_predicts_the_lower_of_both_networks() -> None:
    critic, rng = make_critic(steps=2), np.random.default_rng(0)
    walks = [sample_walk(rng, np.full(GOAL + 1, 0.5))[0] for _ in range(4)]
    wait(critic.fit(walks, rng))
    trajectories = [c.trajectory for c in walks]
    states, actions = critic._compute_features(trajectories)
    q, v = critic.networks.q(torch.cat([states, actions], 1)), critic.networks.v(states)
    measures = wait(critic.predict(trajectories))
    assert np.concatenate(measures["values"]) == pytest.approx(v.min(0).values.detach().numpy())
    assert np.concatenate(measures["action_values"]) == pytest.approx(q.min(0).values.detach().numpy())


def test_reports_how_well_it_predicted_new_turns_before_it_learned_from_them() -> None:
    critic, rng = make_critic(warmup=1, steps=20), np.random.default_rng(0)
    first, second = ([sample_walk(rng, np.full(GOAL + 1, 0.5))[0] for _ in range(16)] for _ in range(2))
    assert "explained" not in wait(critic.fit(first, rng)), "nothing was predicted during the warm-up"
    trajectories = [c.trajectory for c in second]
    returns = TurnBatch(trajectories).returns(np.concatenate([c.rewards for c in second]), GAMMA)
    measures = wait(critic.predict(trajectories))
    metrics = wait(critic.fit(second, rng))
    for metric, measure in (("explained", "values"), ("action_explained", "action_values")):
        errors = returns - np.concatenate(measures[measure])
        # float16 features in the buffer
        assert metrics[metric] == pytest.approx(1 - np.mean(errors**2) / np.var(returns), abs=2e-3)


@pytest.mark.parametrize(("size", "sizes"), [(100, [5, 8, 11]), (7, [5, 7, 7]), (0, [5, 3, 3])])
def test_replay_drops_the_oldest_turns_first(size: int, sizes: list[int]) -> None:
    critic, rng = make_critic(replay=size, steps=1), np.random.default_rng(0)
    for count, expected in zip((5, 3, 3), sizes, strict=True):
        figures = wait(critic.fit([make_walk([1] * count, [1] * count, [0.0] * (count - 1) + [float(count)])], rng))
        assert figures["replayed"] == expected == len(critic.buffer)
    assert critic.buffer.rewards.tolist()[-3:] == [0, 0, 3]
    assert critic.buffer.last.tolist()[-4:] == ([True] if expected > 3 else []) + [False, False, True]


def test_saved_critic_resumes_bit_equal(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    walks = [sample_walk(rng, np.full(GOAL + 1, 0.5))[0] for _ in range(8)]
    uninterrupted, first, resumed = (make_critic(seed, steps=4) for seed in (1, 1, 2))
    for critic in (uninterrupted, first):
        wait(critic.fit(walks[:4], np.random.default_rng(3)))
    first.save(tmp_path)
    resumed.load(tmp_path)
    for critic in (uninterrupted, resumed):
        wait(critic.fit(walks[4:], np.random.default_rng(4)))
    expected, predicted = (wait(critic.predict([c.trajectory for c in walks])) for critic in (uninterrupted, resumed))
    for name in expected:
        assert all((a == b).all() for a, b in zip(expected[name], predicted[name], strict=True))
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}


def test_empty_input_is_no_error(tmp_path: Path) -> None:
    critic, loaded = make_critic(), make_critic(1)
    assert wait(critic.fit([], np.random.default_rng(0))) == {} and wait(critic.predict([])) == {
        "values": [],
        "action_values": [],
    }
    critic.save(tmp_path)
    loaded.load(tmp_path)
    assert len(loaded.buffer) == loaded.fit_count == 0


def test_skipped_steps_leave_networks_and_targets() -> None:
    context = CriticContext(discounts=Discounts(), nonfinite="skip")
    critic: Archer = choose("critic", "archer", **SMALL)(context)
    before = [p.clone() for p in (*critic.networks.parameters(), *critic.target.parameters())]
    metrics = wait(critic.fit([make_walk([1], [1], [1e308])], np.random.default_rng(0)))
    assert metrics["skipped"] == critic.settings.steps
    after = [*critic.networks.parameters(), *critic.target.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
