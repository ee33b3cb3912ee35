"""Names from papers: each preset against its formula written by hand, and written out in the experiment."""

import numpy as np
import pytest

from arena.config.experiment import LearnSpec
from arena.config.layers import compose, to_yaml
from arena.config.presets import PRESETS
from arena.config.sources import recipe_layer, set_layer, text_layer
from arena.errors import ConfigError
from tests.factories.commands import arena, get_refusal
from tests.factories.token_batches import compute_gradient, make_batch, make_floats, make_integers

CHANGE = np.array([0.5, -0.5, 0.05, -0.02, 0.3, 0.001])
"""log r of six tokens: a stream of four, and one of two."""
A = np.array([1.0, 1.0, 1.0, 1.0, -0.5, -0.5])
STREAMS = np.array([0, 0, 0, 0, 1, 1])


def learn(*settings: str) -> LearnSpec:
    return compose([recipe_layer("negotiation-nano"), *map(set_layer, settings)]).learn


def bounded(ratio: np.ndarray, low: float, high: float) -> np.ndarray:
    """d/dlog π of max(-A r, -A clip(r)): -A r unless the bound binds."""
    binds = np.where(A > 0, ratio > 1 + high, ratio < 1 - low)
    return np.where(binds, 0.0, -A * ratio)


def by_hand(name: str) -> np.ndarray:
    """The gradient of the whole step's loss by each token's log-probability."""
    token = np.exp(CHANGE)
    sequence = np.exp(np.array([CHANGE[:4].mean()] * 4 + [CHANGE[4:].mean()] * 2))
    per_stream = 1 / np.array([2 * 4] * 4 + [2 * 2] * 2)
    plain = -A * token
    return {
        "ppo": bounded(token, 0.2, 0.2) / 6,
        "bnpo": bounded(token, 0.2, 0.2) / 6,
        "reinforce_pp": bounded(token, 0.2, 0.2) / 6,
        "grpo": bounded(token, 0.2, 0.2) * per_stream,
        "dr_grpo": bounded(token, 0.2, 0.2) / (2 * 1024),
        "dapo": bounded(token, 0.2, 0.28) / 6,
        "gspo": bounded(sequence, 3e-4, 4e-4) * per_stream,
        "luspo": bounded(sequence, 2e-3, 2.5e-3) / 2,
        "cispo": -np.minimum(token, 5.0) * A / 6,
        "reinforce": plain / 2,
        "rloo": plain / 2,
    }[name]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_its_formula(name: str) -> None:
    rule = learn(f"learn.loss={name}")
    change = make_floats(*CHANGE).requires_grad_()
    tokens = make_batch(
        change, make_floats(*[0] * 6), make_floats(*A), streams=make_integers(*STREAMS), turns=make_integers(*STREAMS)
    )
    weights = rule.aggregate(STREAMS, STREAMS, np.ones(6, dtype=bool))
    loss = rule.loss(tokens).loss * make_floats(*weights)
    assert compute_gradient(loss, change) == pytest.approx(list(by_hand(name)), abs=1e-9)
    assert rule.regularisers["kl"].with_defaults().settings["weight"].to_plain() == (0.04 if name == "grpo" else 0.0)


def test_what_it_stands_for_is_what_is_written() -> None:
    experiment = compose([recipe_layer("negotiation-nano"), set_layer("learn.loss=gspo")])
    text = to_yaml(experiment)
    assert "gspo" not in text and "ratio: sequence" in text and "low: 0.0003" in text and "stream_mean" in text
    assert compose([text_layer("config.yaml", text)]) == experiment


def test_what_stands_beside_it_or_above_it_wins() -> None:
    beside = text_layer("mine.yaml", "learn: {loss: grpo, aggregate: turn_mean, regularisers: {kl: {weight: 0.5}}}")
    rule = compose([recipe_layer("negotiation-nano"), beside]).learn
    assert rule.aggregate.name == "turn_mean"
    assert rule.regularisers["kl"].with_defaults().settings["weight"].to_plain() == 0.5
    above = learn("learn.aggregate=turn_mean", "learn.loss=dapo", "learn.loss.policy_gradient.clip.ppo.high=0.3")
    assert above.aggregate.name == "token_mean", "the later layer wins"
    assert above.loss.settings["clip"].to_plain() == {"ppo": {"low": 0.2, "high": 0.3}}
    kept = learn("learn.loss=dapo")
    assert (kept.minibatches, kept.lr) == (4, 3e-4), "what it says nothing of stays the recipe's"


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("learn.loss=grpoo", "unknown loss 'grpoo' — did you mean 'grpo'?"),
        ("learn.loss={cispo: {high: 2.0}}", "cispo is a preset and takes no settings"),
        ("learn.loss=dual", "unknown loss 'dual': it is a clip (learn.loss.policy_gradient.clip)"),
        ("learn.loss=stream_mean", "it is a aggregate (learn.aggregate)"),
        ("learn.loss=mars", "it is a estimator (credit.estimator)"),
        ("credit.estimator=dapo", "unknown estimator 'dapo': it is a preset (learn.loss)"),
        ("learn.aggregate=gspo", "it is a preset (learn.loss)"),
        ("learn.loss.policy_gradient.clip=token_mean", "it is a aggregate (learn.aggregate)"),
    ],
)
def test_a_name_in_the_wrong_place_is_told_the_right_one(setting: str, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        learn(setting)
    assert told.replace("a aggregate", "an aggregate").replace("a estimator", "an estimator") in str(raised.value)


def test_they_are_listed() -> None:
    told = arena("list", "presets", "--json")
    assert told.code == 0 and "cispo: {low: 1.0, high: 4.0}" in told.out
    assert "did you mean 'presets'" in get_refusal("list", "preset")
