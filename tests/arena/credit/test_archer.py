"""ArCHer's critic on a stochastic chain whose values are known exactly; and what it keeps, asks anew and saves."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agents.role import load_role
from agents.stream import Stream
from arena.cli.loop import wait
from arena.config.kinds import choose
from arena.credit.batch import CreditedTrajectory, TurnBatch
from arena.credit.critics import create_critic
from arena.credit.critics.archer import Archer, Context, get_contexts, sample_replies
from arena.credit.critics.base import CriticContext
from arena.credit.critics.networks import twin_loss
from arena.credit.estimators.gae import Discounts
from arena.credit.settings import CreditSpec
from games.contracts import Message
from tests.factories.babble import POLICIES, RandomTextEngine
from tests.factories.trajectories import make_turn, wrap_turns

GOAL, SLIP, GAMMA = 4, 0.25, 0.9
ACTS = ("go left", "go right")
SMALL: dict[str, Any] = {"gamma": GAMMA, "features": 64, "hidden": 32, "lr": 3e-3, "batch": 64, "warmup": 1}


def archer(seed: int = 0, **given: Any) -> Archer:
    found = choose("critic", "archer", **{**SMALL, **given})(CriticContext(discounts=Discounts(), seed=seed))
    assert isinstance(found, Archer)
    return found


# -- the chain: places 1 to GOAL-1, an end at both sides, 1 for the right one; a step slips the other way ------------


def walked(places: list[int], acts: list[int], rewards: list[float]) -> CreditedTrajectory:
    turns = tuple(
        make_turn(k, {}, messages=(Message.of("referee", f"you are at place {place}"),), raw=ACTS[act])
        for k, (place, act) in enumerate(zip(places, acts, strict=True))
    )
    one = wrap_turns(turns, game="chain")
    return CreditedTrajectory(trajectory=one, rewards=np.array(rewards), advantages=np.zeros(len(turns)))


def play(
    rng: np.random.Generator, right: np.ndarray, goal: int = GOAL
) -> tuple[CreditedTrajectory, list[int], list[int]]:
    """A walk from anywhere; `right` is the policy's chance to go right at each place."""
    place, places, acts, rewards = int(rng.integers(1, goal)), [], [], []
    while 0 < place < goal:
        places.append(place)
        acts.append(int(rng.random() < right[place]))
        place += 1 if (acts[-1] == 1) != (rng.random() < SLIP) else -1
        rewards.append(float(place == goal))
    return walked(places, acts, rewards), places, acts


def exact(right: np.ndarray, goal: int = GOAL) -> tuple[np.ndarray, np.ndarray]:
    """Q [places, acts] and V [places] of a policy: V = P (r + γ V) solved, then Q by one step."""
    up = right * (1 - SLIP) + (1 - right) * SLIP
    inside = np.arange(1, goal)
    step = np.zeros((goal + 1, goal + 1))
    step[inside, inside + 1], step[inside, inside - 1] = up[inside], 1 - up[inside]
    reward = step[:, goal].copy()
    step[:, [0, goal]] = 0  # nothing comes after an end
    v = np.linalg.solve(np.eye(goal + 1) - GAMMA * step, reward)
    after = GAMMA * v + (np.arange(goal + 1) == goal)
    q = np.stack([p * np.roll(after, -1) + (1 - p) * np.roll(after, 1) for p in (SLIP, 1 - SLIP)], 1)
    return q[1:goal], v[1:goal]


def predictions(critic: Archer) -> tuple[np.ndarray, np.ndarray]:
    """What the critic says of every place and act."""
    found = wait(critic.predict([walked([p], [a], [0.0]).trajectory for p in range(1, GOAL) for a in (0, 1)]))
    q, v = (np.concatenate(found[name]).reshape(GOAL - 1, 2) for name in ("action_values", "values"))
    return q, v.mean(1)


def errors(seed: int, iterations: int = 10, **given: Any) -> tuple[float, float]:
    """Mean |Q - exact| and |V - exact| over the last five iterations of 16 walks of a fixed policy."""
    rng, critic, right = np.random.default_rng(seed), archer(seed, **given), np.full(GOAL + 1, 0.6)
    q, v = exact(right)
    found = []
    for _ in range(iterations):
        wait(critic.fit([play(rng, right)[0] for _ in range(16)], rng))
        said = predictions(critic)
        found.append((np.abs(said[0] - q).mean(), np.abs(said[1] - v).mean()))
    errors = np.mean(found[-5:], 0)
    return float(errors[0]), float(errors[1])


def test_the_exact_values_are_those_of_many_walks() -> None:
    rng, right = np.random.default_rng(0), np.full(GOAL + 1, 0.6)
    sums, counts = np.zeros(GOAL + 1), np.zeros(GOAL + 1)
    for _ in range(4000):
        credited, places, _ = play(rng, right)
        sums[places[0]] += credited.rewards.sum() * GAMMA ** (len(places) - 1)
        counts[places[0]] += 1
    assert sums[1:GOAL] / counts[1:GOAL] == pytest.approx(exact(right)[1], abs=0.03)


@pytest.mark.slow
def test_values_come_near_the_exact_ones_with_many_steps_and_nearer_with_replay() -> None:
    for seed in range(2):
        (q, v), (few, _), (forgetful, _) = (errors(seed, **given) for given in ({}, {"steps": 1}, {"replay": 0}))
        assert q < 0.1 and v < 0.1, "of values between 0.1 and 0.85"
        assert few > 2 * q, "one step per iteration is far from done"
        assert forgetful > q, "the turns of this iteration alone are fewer"


def samples_to_threshold(rule: CreditSpec, seed: int, goal: int = 5, walks: int = 8, most: int = 60) -> int:
    """Walks until a tabular softmax policy is worth 90 % of the best, learning from the rule's advantages."""
    rng, slopes = np.random.default_rng(seed), np.zeros(goal + 1)
    critic = create_critic(rule.critic, rule.estimator, seed=seed)
    best = exact(np.ones(goal + 1), goal)[1].mean()
    for k in range(most):
        right = 1 / (1 + np.exp(-slopes))
        if exact(right, goal)[1].mean() >= 0.9 * best:
            return k * walks
        found = [play(rng, right, goal) for _ in range(walks)]
        credited = [c for c, _, _ in found]
        trajectories = [c.trajectory for c in credited]
        batch = TurnBatch(trajectories, measures=wait(critic.predict(trajectories)) if critic else {})
        advantages = rule.estimator(batch, np.concatenate([c.rewards for c in credited]))
        advantages = advantages / (advantages.std() + 1e-6)
        if critic:
            wait(critic.fit(credited, rng))
        places, acts = (np.concatenate([f[i] for f in found]) for i in (1, 2))
        for place in np.unique(places):
            own = places == place
            slopes[place] += 0.7 * np.mean(advantages[own] * (acts[own] - right[place]))
    return most * walks


@pytest.mark.slow
def test_it_needs_fewer_walks_than_monte_carlo() -> None:
    monte_carlo = CreditSpec.model_validate(dict(estimator={"mars": {"gamma": GAMMA}}))
    critic = CreditSpec.model_validate(dict(estimator="archer", critic={"archer": SMALL}))
    plain, ours = ([samples_to_threshold(rule, seed) for seed in range(3)] for rule in (monte_carlo, critic))
    assert max(ours) < min(plain) and np.mean(ours) < 0.6 * np.mean(plain), (ours, plain)


# -- what it is made of ------------------------------------------------------------------------------------


def test_the_twin_loss_by_finite_differences() -> None:
    said = torch.tensor([[1.0, 2.0], [0.0, 5.0]], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([[0.0, 2.0], [1.0, 2.0]], dtype=torch.float64)
    assert twin_loss(said, target).item() == (1 + 0) / 2 + (1 + 9) / 2, "each against the target of its own number"
    assert torch.autograd.gradcheck(lambda x: twin_loss(x, target), said)


def test_it_says_nothing_while_it_warms_up() -> None:
    critic, rng = archer(warmup=2, steps=5), np.random.default_rng(0)
    found = [play(rng, np.full(GOAL + 1, 0.5))[0] for _ in range(4)]
    rule = choose("estimator", "archer")
    for heard in (False, False, True):
        measures = wait(critic.predict([c.trajectory for c in found]))
        advantages = rule(TurnBatch([c.trajectory for c in found], measures=measures), np.zeros(0))
        assert advantages.any() == heard
        assert [len(v) for v in measures["values"]] == [len(c.trajectory.turns) for c in found]
        wait(critic.fit(found, rng))


def test_the_lower_of_the_two_is_told() -> None:
    critic, rng = archer(steps=2), np.random.default_rng(0)
    found = [play(rng, np.full(GOAL + 1, 0.5))[0] for _ in range(4)]
    wait(critic.fit(found, rng))
    trajectories = [c.trajectory for c in found]
    seen, said = critic._compute_features(trajectories)
    q, v = critic.networks.q(torch.cat([seen, said], 1)), critic.networks.v(seen)
    measures = wait(critic.predict(trajectories))
    assert np.concatenate(measures["values"]) == pytest.approx(v.min(0).values.detach().numpy())
    assert np.concatenate(measures["action_values"]) == pytest.approx(q.min(0).values.detach().numpy())


@pytest.mark.parametrize(("size", "left"), [(100, [5, 8, 11]), (7, [5, 7, 7]), (0, [5, 3, 3])])
def test_the_oldest_turns_leave_the_replay_first(size: int, left: list[int]) -> None:
    critic, rng = archer(replay=size, steps=1), np.random.default_rng(0)
    for count, expected in zip((5, 3, 3), left, strict=True):
        told = wait(critic.fit([walked([1] * count, [1] * count, [0.0] * (count - 1) + [float(count)])], rng))
        assert told["replayed"] == expected == len(critic.buffer)
    assert critic.buffer.rewards.tolist()[-3:] == [0, 0, 3]
    assert critic.buffer.last.tolist()[-4:] == ([True] if expected > 3 else []) + [False, False, True]


def test_a_saved_one_goes_on_as_if_never_stopped(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    found = [play(rng, np.full(GOAL + 1, 0.5))[0] for _ in range(8)]
    whole, first, resumed = (archer(seed, steps=4) for seed in (1, 1, 2))
    for critic in (whole, first):
        wait(critic.fit(found[:4], np.random.default_rng(3)))
    first.save(tmp_path)
    resumed.load(tmp_path)
    for critic in (whole, resumed):
        wait(critic.fit(found[4:], np.random.default_rng(4)))
    one, other = (wait(critic.predict([c.trajectory for c in found])) for critic in (whole, resumed))
    for name in one:
        assert all((a == b).all() for a, b in zip(one[name], other[name], strict=True))
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}


def test_no_turn_is_no_error(tmp_path: Path) -> None:
    critic, again = archer(), archer(1)
    assert wait(critic.fit([], np.random.default_rng(0))) == {} and wait(critic.predict([])) == {
        "values": [],
        "action_values": [],
    }
    critic.save(tmp_path)
    again.load(tmp_path)
    assert len(again.buffer) == again.fit_count == 0


def test_fresh_replies_need_an_engine() -> None:
    with pytest.raises(ValueError, match="fresh replies need an engine"):
        archer(fresh=8)


def test_a_turn_is_asked_anew_with_what_it_was_asked_with() -> None:
    stream, window = Stream(), Stream()
    stream.observe([1, 2])
    stream.append_sampled([3, 4], [-1.0, -1.0], 0)
    stream.observe([5])
    stream.append_sampled([6], [-1.0], 2)
    window.observe([1, 6, 7])  # forgot the first exchange
    window.append_sampled([8], [-1.0], 5)
    turns = tuple(make_turn(k, {}) for k in (0, 2, 5))
    one = wrap_turns(turns, streams=(stream, window))
    asked = [(1, 2), (1, 2, 3, 4, 5), (1, 6, 7)]
    assert get_contexts(one) == [Context("shared", "opener", ids) for ids in asked]


def test_replies_that_are_asked_anew_stay_within_the_positions() -> None:
    """Where a summary was written, a whole reply may not fit."""
    engine: Any = RandomTextEngine()
    policies: Any = {"p": replace(POLICIES["p"], positions=20)}
    run = CriticContext(
        discounts=Discounts(), policies=policies, engine=engine, roles={"nano_player": load_role("nano_player")}
    )
    asked = [Context("p", "nano_player", (5,) * length) for length in (4, 15)]
    wait(sample_replies(asked, run, np.random.default_rng(0)))
    assert [request.max_tokens for request in engine.requests] == [16, 5]
