"""The games in which claims about credit are tested: what is best in them is known, and exact figures are exact."""

from functools import partial
from importlib import import_module

import agent_normalisation
import gigpo
import gradients
import numpy as np
import pyspiel
import pytest
import role_baseline
import turn_level
from world import NEVER, Learner, Matches

from agents.stream import Stream
from arena.learn.samples import Sample

MINE = ("gigpo", "agent_normalisation", "turn_level", "role_baseline")


@pytest.mark.parametrize("name", MINE)
def test_what_is_shown_and_compared_exists(name):
    claim = import_module(name).CLAIM
    arms = {arm for setting in claim.settings.values() for arm in setting.arms}
    assert {arm for pair in claim.compare for arm in pair} <= arms
    assert all(arm in claim.settings[place].arms for place, shown in claim.shown.items() for arm in shown)
    assert any("outcome only" in arm for arm in arms)
    assert any("shuffled" in arm for arm in arms)


def played(world, logits, matches=1500, seed=0):
    """A world's matches under a table of logits."""
    probs = np.exp(logits - logits.max(-1, keepdims=True))
    probs /= probs.sum(-1, keepdims=True)
    rng = np.random.default_rng(seed)
    deals = rng.integers(world.deals, size=matches)
    found = Matches(world, {"shared": probs}, deals, np.arange(matches), rng, 1)
    world.play(found)
    return {"shared": probs}, found.records()[0]


def total(trajectories, *names):
    return np.array([sum(turn.rewards.get(n, 0.0) for turn in t.turns for n in names) for t in trajectories])


@pytest.mark.parametrize("world", [gigpo.House(12), gigpo.House(24), gigpo.House(6, loops=False)], ids=str)
def test_house_is_exact(world):
    logits = np.random.default_rng(3).normal(size=(gigpo.HOUSES * gigpo.ROOMS, gigpo.WAYS))
    probs, trajectories = played(world, logits)
    exact, won = world.evaluate(probs), total(trajectories, "won")
    assert won.mean() == pytest.approx(exact["success"], abs=4 * won.std() / 1500**0.5 + 1e-9)
    assert np.mean([len(t.turns) for t in trajectories]) == pytest.approx(exact["length"], abs=0.3)
    best = {"shared": np.eye(gigpo.WAYS)[gigpo.RIGHT]}
    assert world.evaluate(best) == {"success": 1.0, "length": 6.0}
    # leaving after k turns pays γ^(k - 1) in all where `early` counts
    told = {len(t.turns): v for t, v in zip(trajectories, total(trajectories, "won", "early"), strict=True) if v}
    assert told == pytest.approx({k: gigpo.GAMMA ** (k - 1) for k in told})


def test_what_a_seat_reads_decides_what_shares_an_anchor():
    def texts(sees):
        _, trajectories = played(gigpo.House(12, sees), np.zeros((gigpo.HOUSES * gigpo.ROOMS, gigpo.WAYS)), 50)
        return [[turn.messages[0].text for turn in t.turns] for t in trajectories]

    assert any(len(set(own)) < len(own) for own in texts("room"))
    clocked = texts("clock")
    assert all(len(set(own)) == len(own) for own in clocked)
    assert len({text for own in clocked for text in own}) < sum(map(len, clocked))
    stamped = texts("stamp")
    assert len({text for own in stamped for text in own}) == sum(map(len, stamped))


def test_gigpo_without_shared_anchors_learns_what_grpo_learns():
    setting = gigpo.SETTINGS[gigpo.STAMPED]
    for ours, theirs in ((gigpo.OURS, gigpo.GRPO), (gigpo.MEAN, gigpo.DR)):
        learners = [Learner(setting.world(0), setting.arms[name], 1, 32, 8) for name in (ours, theirs)]
        for learner in learners:
            learner.step()
            learner.step()
        assert (learners[0].probs()["shared"] == learners[1].probs()["shared"]).all()


@pytest.mark.parametrize("each_turn", [False, True])
def test_stalls_pay_the_offset_whatever_is_done(each_turn):
    world = agent_normalisation.Stalls(offset=3.0, each_turn=each_turn, stake=2.0)
    assert world.evaluate({"shared": np.full((12, 4), 0.25)})["skill"] == pytest.approx(0.0)
    best = np.eye(4)[agent_normalisation.WORTH.argmax(-1).reshape(-1)]
    assert world.evaluate({"shared": best}) == {"skill": 1.0, "skill_first": 1.0, "skill_second": 1.0}
    _, trajectories = played(world, np.where(best, 0.0, NEVER), 20)
    # three best answers earn 3, doubled by the stake for the first seat; 3 goes from one seat to the other
    earned = {t.seat: round(sum(total([t], "answer", "offset")), 9) for t in trajectories}
    assert earned == {"first": 2 * 3.0 + 3.0, "second": 3.0 - 3.0}
    first = next(t for t in trajectories if t.seat == "first")
    paid = [turn.rewards.get("offset", 0.0) for turn in first.turns]
    assert paid == ([1.0, 1.0, 1.0] if each_turn else [0.0, 0.0, 3.0])


@pytest.mark.parametrize("setting", turn_level.SETTINGS)
def test_blunder_is_exact(setting):
    world = turn_level.SETTINGS[setting].world(0)
    assert isinstance(world, turn_level.Blunder)
    best = np.eye(4)[turn_level.MARKED].reshape(6, 6, 4)
    if world.turn >= 0:
        best[world.turn] = (1 - best[world.turn]) / 3
    found = world.evaluate({"shared": best.reshape(-1, 4)})
    assert found == pytest.approx({"score": 1.0, "right": 1.0, "blunder": 0.0})
    uniform = {"shared": np.full((36, 4), 0.25)}
    assert world.evaluate(uniform)["score"] == pytest.approx(0.0)
    logits = np.random.default_rng(4).normal(size=(36, 4))
    probs, trajectories = played(world, logits)
    returns = total(trajectories, "earned", "lost")
    # by hand at random answers: 5 · 1/4 - 10 · 1/4, (5 · 1/4) · 3/4, and 6 · 1/4 without a blunder
    least, most = {turn_level.FORFEITS: (0.9375, 5.0), turn_level.NONE: (1.5, 6.0)}.get(setting, (-1.25, 5.0))
    exact = least + world.evaluate(probs)["score"] * (most - least)
    assert returns.mean() == pytest.approx(exact, abs=4 * returns.std() / 1500**0.5)


def test_kuhn_is_exact_whatever_the_toll():
    a = 1 / 3
    bet = np.array([a, 0, 3 * a, 0, a + 1 / 3, 1, 1 / 3, 0, 1, 0, 1 / 3, 1])
    equilibrium = {"shared": np.stack([1 - bet, bet], 1)}
    for toll in (0.0, 2.0):
        found = role_baseline.Kuhn(toll).evaluate(equilibrium)
        assert found == pytest.approx({"nash_conv": 0.0, "mean_nash_conv": 0.0, "value_error": 0.0}, abs=1e-9)
    logits = np.random.default_rng(5).normal(size=(12, 2))
    world = role_baseline.Kuhn(2.0)
    probs, trajectories = played(world, logits)
    first, second = (total([t for t in trajectories if t.seat == seat], "chips") for seat in ("first", "second"))
    assert (first == -second).all()
    value = pyspiel.expected_returns(
        role_baseline.KUHN.new_initial_state(), role_baseline.spoken(probs["shared"]), -1, False
    )[0]
    assert first.mean() == pytest.approx(value - 2.0, abs=4 * first.std() / 1500**0.5)


def test_mean_policy_weighs_states_by_the_own_part_in_reaching_them():
    always, never = np.tile([0.0, 1.0], (12, 1)), np.tile([1.0, 0.0], (12, 1))
    world = role_baseline.Kuhn()
    world.evaluate({"shared": always})
    world.evaluate({"shared": never})
    mean = world.sums / world.sums.sum(1, keepdims=True)
    assert mean[:3] == pytest.approx(0.5)  # both policies come to their first decision
    assert mean[3:6] == pytest.approx(np.tile([1.0, 0.0], (3, 1)), abs=1e-9)  # only who passes comes to the second


def test_gradient_by_hand():
    # one state, p = (1/4, 3/4), action 0 with advantage 2: 2 · (1 - 1/4, -3/4); a mean over one token
    one = np.array([2.0], np.float32)
    stream = Stream([0, 0], [False, True], [0.0, np.log(0.25)], [-1, 0])
    sample = Sample(stream, one, one, 1.0, np.array([0]), np.array([True]))
    assert gradients.gradient([sample], np.array([[0.25, 0.75]])) == pytest.approx(np.array([[1.5, -1.5]]))


def test_an_offset_makes_pooled_gradients_noisier_and_leaves_agent_specific_ones():
    setting = agent_normalisation.SETTINGS["offset 3"]
    arms = {name: setting.arms[name] for name in (agent_normalisation.OURS, agent_normalisation.POOLED)}
    found = {
        offset: gradients.gradient_noise(partial(agent_normalisation.Stalls, offset), arms, 16, 1, 30)
        for offset in (0.0, 3.0)
    }
    ours, pooled = arms
    assert found[3.0][ours] == found[0.0][ours]
    assert found[3.0][pooled]["cosine"] < 0.6 * found[3.0][ours]["cosine"]
