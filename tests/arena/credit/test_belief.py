"""The reward stage `belief`: probabilities of an answer under a frozen policy, with images and text, and refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agents.policy import load_module, load_tokenizer_and_frame
from agents.scoring import StreamScorer, pack
from agents.stream import OBSERVED, Stream
from agents.weights import resolve
from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.sources import set_layer, text_layer
from arena.credit.batch import TurnBatch
from arena.credit.rewards.belief import _fill_forward, belief
from arena.errors import ConfigError
from arena.preflight import preflight
from arena.records import MatchRecord, Trajectory, trajectories
from arena.store.run import RunFolder
from tests.factories.labs import run_lab
from tests.factories.records import make_turn, wrap_turns

CONFIG = """\
name: moved
iterations: 1
threads: 1
precision: fp32
game: {name: reach, options: {bins: 9, max_turns: 4}}
policies:
  viewer: {model: nano-vlm}
  other: {model: nano-vlm-1, train: false}
seats:
  viewer: {role: nano_reach_viewer, policy: viewer}
play: {matches: 4, group: 2}
credit:
  stages: [{belief: {policy: other}}]
learn: {regularisers: {kl: {weight: 0.0}}}
"""


def make_experiment(*changes: str, text: str = CONFIG) -> Experiment:
    return compose([text_layer("test", text), *map(set_layer, changes)])


def compute_beliefs(trajectory: Trajectory, model: Any) -> list[float]:
    """Return the probability of "yes" before each turn, by one forward pass each."""
    (yes,) = load_tokenizer_and_frame(resolve("nano-vlm"))[1].encode("yes")
    beliefs = []
    for _, context in sorted(trajectory.contexts().items()):
        size = len(context.ids)
        stream = Stream(
            [*context.ids, yes],
            [False] * size + [True],
            [0.0] * (size + 1),
            [OBSERVED] * size + [0],
            media=context.media,
        )
        (batch,) = pack([stream], [1.0], 4096)
        with torch.no_grad():
            beliefs.append(float(StreamScorer(model)(batch).logprobs.exp()))
    return beliefs


def test_turn_reward_is_the_gain_in_belief_of_a_policy_with_images(tmp_path: Path) -> None:
    run_lab(tmp_path / "run", make_experiment())
    run, model = RunFolder.open(tmp_path / "run"), load_module(resolve("nano-vlm-1"), frozen=True)
    records = [MatchRecord.from_json(row, run.reader.log.blobs.get) for row in run.reader.matches()]
    all_trajectories = [trajectory for record in records for trajectory in trajectories(record)]
    assert max(len(trajectory.turns) for trajectory in all_trajectories) > 1 and all(
        trajectory.streams[0].media for trajectory in all_trajectories
    )
    (row,) = run.reader.metrics()
    last_beliefs = []
    for trajectory in all_trajectories:
        beliefs = compute_beliefs(trajectory, model)
        last_beliefs.append(beliefs[-1])
        batch = TurnBatch([trajectory], measures={"belief.process": [np.array(beliefs, np.float32)]})
        gains = belief(batch, {}, policy="other")["process"]
        assert gains[:-1] == pytest.approx(np.diff(beliefs), abs=1e-6) and gains[-1] == 0
    assert row["belief.process"]["value"] == pytest.approx(np.mean(last_beliefs), rel=1e-4)
    assert row["belief.process"]["payoff"] == pytest.approx(
        np.mean([trajectory.payoff for trajectory in all_trajectories])
    )


def test_gains_sum_to_last_belief_minus_first() -> None:
    two_trajectories = [wrap_turns([make_turn(k, {}) for k in range(3)]), wrap_turns([make_turn(0, {})])]
    measures = {"belief.process": [np.array([0.25, 0.75, 0.5], np.float32), np.array([0.5], np.float32)]}
    rewards = belief(TurnBatch(two_trajectories, measures=measures), {}, policy="other")["process"]
    assert rewards.tolist() == [0.5, -0.25, 0.0, 0.0]


def test_turn_without_tokens_keeps_previous_belief() -> None:
    nan = np.nan
    assert _fill_forward(np.array([nan, 0.5, nan, 0.25], np.float32)).tolist() == [0.0, 0.5, 0.5, 0.25]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("policy: other}", "policy: othr}"), "unknown policy 'othr' — did you mean 'other'?"),
        (("policy: other}", "policy: viewer}"), "policy 'viewer' is trained: name a frozen one"),
        (("policy: other}", "policy: endpoint:wise}"), "is no policy of the run, and an endpoint"),
        (("policy: other}", "policy: other, seats: [buyer]}"), "no trained policy has the seat 'buyer'"),
        (("model: nano-vlm-1", "model: nano"), "has another tokenizer or chat template"),
        (("policy: other}", "policy: other, answer: ''}"), "answer"),
    ],
)  # fmt: skip
def test_unusable_policy_is_refused_before_the_run(change: tuple[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        wait(preflight(make_experiment(text=CONFIG.replace(*change)), lambda step: None))
    assert message in str(error.value) and "\n" not in str(error.value)
