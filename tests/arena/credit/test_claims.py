"""The harness of the claims' studies: tables learn through the lab's own parts, and every study's arms run."""

import importlib
import json
from typing import Any

import numpy as np
import pytest
from claim import Ends
from study import STUDIES, kept_of, measured, result, with_means
from world import Arm, Floats, Learner, Matches, World

from arena.config.experiment import LearnSpec
from arena.credit.batch import TurnBatch
from arena.credit.settings import CreditSpec

pytestmark = pytest.mark.usefixtures("controls")


class Bandit(World):
    """Four deals, ten arms, one of them right; then a second token that has to repeat the deal."""

    name = "bandit"
    deals = 4

    def tables(self) -> dict[str, Floats]:
        return {"shared": np.zeros((8, 10))}

    def play(self, matches: Matches) -> None:
        arm = matches.act("player", matches.deals)
        token = matches.more("player", 4 + matches.deals)
        matches.reward("player", "win", 0.5 * (arm == matches.deals) + 0.5 * (token == matches.deals))
        matches.figure("both", (arm == matches.deals) & (token == matches.deals))

    def evaluate(self, tables: Any) -> dict[str, float]:
        return {"right": tables["shared"][range(8), [0, 1, 2, 3] * 2].mean()}


def arm(estimator: str, **learn: Any) -> Arm:
    return Arm(
        CreditSpec.model_validate(dict(estimator=estimator)),
        LearnSpec.model_validate(dict(lr=0.2, **{"regularisers": {}, **learn})),
    )


def test_a_table_learns_a_bandit_and_nothing_without_credit() -> None:
    learned = Learner(Bandit(), arm("mars"), 0, 32, 8).run(32 * 60, 4)
    assert learned["right"][-1] > 0.9 and learned["both"][-1] > 0.7
    assert learned["right"][0] < 0.9 and learned["turns"] == [1.0] * 4
    idle = Learner(Bandit(), arm("zero"), 0, 32, 8).run(32 * 10, 2)
    assert idle["right"][-1] == pytest.approx(0.1) and idle["zero_share"] == [1.0, 1.0]


def test_the_same_seed_learns_the_same() -> None:
    def run(seed: int) -> dict[str, list[float]]:
        rule = arm("grpo", regularisers={"kl": {"weight": 0.1}, "entropy": {"weight": 0.01}}, epochs=2)
        return Learner(Bandit(), rule, seed, 16, 8).run(16 * 10, 2)

    assert run(1) == run(1) != run(2)


def test_what_a_world_plays_are_ordinary_records() -> None:
    probs = {"shared": np.full((8, 10), 0.1)}
    matches = Matches(Bandit(), probs, np.array([2, 3]), np.array([7, 7]), np.random.default_rng(0), 5)
    matches.world.play(matches)
    matches.note("player", "gold", [0.5, 0.25])
    found, noted = matches.records()
    one = found[0]
    assert (one.match, one.seed, one.role, one.version) == ("5-0", 7, "player", 5)
    assert [len(t.turns) for t in found] == [1, 1] and one.turns[0].tokens == 2
    # opening, state 2, its action, state 4 + 2, its action; what was sampled is turn 0's, with log 1/10 each
    stream = one.streams[0]
    assert [i for i, own in zip(stream.ids, stream.mask, strict=True) if not own] == [0, 2, 6]
    assert stream.turns == [-1, -1, 0, -1, 0]
    assert np.exp(stream.logprobs)[[2, 4]] == pytest.approx([0.1, 0.1])
    assert one.turns[0].action == f"{stream.ids[2]} {stream.ids[4]}"
    assert TurnBatch(found, measures=noted).measure("gold").tolist() == [0.5, 0.25]


def test_rows_choose_matches_and_rewards_go_to_the_latest_turn() -> None:
    matches = Matches(
        Bandit(), {"shared": np.full((8, 10), 0.1)}, np.zeros(3, int), np.arange(3), np.random.default_rng(0), 1
    )
    matches.act("player", 0)
    matches.act("player", [1, 2], np.array([True, False, True]))
    matches.reward("player", "win", [1.0, 2.0, 0.0])
    found, _ = matches.records()
    assert [[t.rewards for t in one.turns] for one in found] == [[{}, {"win": 1.0}], [{"win": 2.0}], [{}, {}]]
    assert [one.turns[-1].messages[0].text for one in found] == ["state 1", "state 0", "state 2"]


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("name", STUDIES)
def test_every_arm_of_a_study_runs(name: str) -> None:
    claim = importlib.import_module(name).CLAIM
    for setting in claim.settings.values():
        for rule in setting.arms.values():
            learner = Learner(setting.world(0), rule, 0, setting.group, setting.group)
            figures = learner.step() | learner.step() | learner.world.evaluate(learner.probs())
            wanted = {figure.removesuffix("_over_the_run") for figure in claim.figures}
            assert wanted <= figures.keys() and all(np.isfinite(value) for value in figures.values())


def test_exact_figures_are_what_play_finds() -> None:
    world = importlib.import_module("gated").Editing(0, 8, 4, 0.25)
    probs = {policy: np.exp(t) / np.exp(t).sum(-1, keepdims=True) for policy, t in world.tables().items()}
    probs["shared"] = np.random.default_rng(1).dirichlet([4, 4, 1, 1], len(probs["shared"]))
    matches = Matches(world, probs, np.zeros(4000, int), np.arange(4000), np.random.default_rng(2), 1)
    world.play(matches)
    solved = np.mean([t.turns[-1].rewards.get("solved", 0.0) for t in matches.records()[0]])
    exact = world.evaluate(probs)["solved"]
    assert 0.02 < exact < 0.98 and abs(solved - exact) < 4 * np.sqrt(exact * (1 - exact) / 4000)


def test_a_result_says_what_a_reader_needs() -> None:
    claim = importlib.import_module("igpo").CLAIM
    runs = {
        (place, name): [
            with_means(claim, Learner(setting.world(s), rule, s, 8, 8).run(4 * 8, 2)) for s in range(2)
        ]
        for place, setting in claim.settings.items()
        for name, rule in setting.arms.items()
    }  # fmt: skip
    found = json.loads(json.dumps(result(claim, kept_of(claim, runs), measured("igpo", claim, 1.0))))
    assert {"claim", "published", "ours", "verdict", "rule", "environment_steps", "seeds", "command"} <= found.keys()
    assert found["machine"]["versions"]["torch"] and found["seeds"] == 2
    arm = next(iter(found["settings"].values()))["arms"]["outcome only (GRPO)"]["success"]
    assert arm["low"] <= arm["estimate"] <= arm["high"]


def test_a_verdict_needs_an_interval_above_zero() -> None:
    ends = Ends({("s", "a", "f"): [1.0, 1.1, 0.9], ("s", "b", "f"): [0.0, 0.1, 0.2]}, "f")
    assert ends.above("s", "a", "b") and not ends.above("s", "b", "a")
    assert ends.minus("s", "a", "b").estimate == pytest.approx(0.9)  # 1.0 - 0.1
    assert not Ends({("s", "a", "f"): [0.0, 2.0], ("s", "b", "f"): [0.0, 0.1]}, "f").above("s", "a", "b")
