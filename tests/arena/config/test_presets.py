"""Presets of papers: each equals its formula written by hand and is written out in the experiment."""

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
ADVANTAGES = np.array([1.0, 1.0, 1.0, 1.0, -0.5, -0.5])
STREAMS = np.array([0, 0, 0, 0, 1, 1])


def make_learn_spec(*settings: str) -> LearnSpec:
    return compose([recipe_layer("negotiation-nano"), *map(set_layer, settings)]).learn


def clipped_gradient(ratio: np.ndarray, low: float, high: float) -> np.ndarray:
    """d/dlog π of max(-A r, -A clip(r)): -A r unless the bound binds."""
    binds = np.where(ADVANTAGES > 0, ratio > 1 + high, ratio < 1 - low)
    return np.where(binds, 0.0, -ADVANTAGES * ratio)


def compute_expected_gradient(name: str) -> np.ndarray:
    """Return the gradient of the step's loss by each token's log-probability, by the paper's formula."""
    token = np.exp(CHANGE)
    sequence = np.exp(np.array([CHANGE[:4].mean()] * 4 + [CHANGE[4:].mean()] * 2))
    per_stream = 1 / np.array([2 * 4] * 4 + [2 * 2] * 2)
    unclipped = -ADVANTAGES * token
    return {
        "ppo": clipped_gradient(token, 0.2, 0.2) / 6,
        "bnpo": clipped_gradient(token, 0.2, 0.2) / 6,
        "reinforce_pp": clipped_gradient(token, 0.2, 0.2) / 6,
        "grpo": clipped_gradient(token, 0.2, 0.2) * per_stream,
        "dr_grpo": clipped_gradient(token, 0.2, 0.2) / (2 * 1024),
        "dapo": clipped_gradient(token, 0.2, 0.28) / 6,
        "gspo": clipped_gradient(sequence, 3e-4, 4e-4) * per_stream,
        "luspo": clipped_gradient(sequence, 2e-3, 2.5e-3) / 2,
        "cispo": -np.minimum(token, 5.0) * ADVANTAGES / 6,
        "reinforce": unclipped / 2,
        "rloo": unclipped / 2,
    }[name]


@pytest.mark.parametrize("name", PRESETS)
def test_preset_equals_its_formula(name: str) -> None:
    rule = make_learn_spec(f"learn.loss={name}")
    log_ratios = make_floats(*CHANGE).requires_grad_()
    tokens = make_batch(
        log_ratios,
        make_floats(*[0] * 6),
        make_floats(*ADVANTAGES),
        streams=make_integers(*STREAMS),
        turns=make_integers(*STREAMS),
    )
    weights = rule.aggregate(STREAMS, STREAMS, np.ones(6, dtype=bool))
    loss = rule.loss(tokens).loss * make_floats(*weights)
    assert compute_gradient(loss, log_ratios) == pytest.approx(list(compute_expected_gradient(name)), abs=1e-9)
    assert rule.regularisers["kl"].with_defaults().settings["weight"].to_plain() == (0.04 if name == "grpo" else 0.0)


def test_preset_is_written_out() -> None:
    experiment = compose([recipe_layer("negotiation-nano"), set_layer("learn.loss=gspo")])
    text = to_yaml(experiment)
    assert "gspo" not in text and "ratio: sequence" in text and "low: 0.0003" in text and "stream_mean" in text
    assert compose([text_layer("config.yaml", text)]) == experiment


def test_explicit_settings_override_presets() -> None:
    beside = text_layer("mine.yaml", "learn: {loss: grpo, aggregate: turn_mean, regularisers: {kl: {weight: 0.5}}}")
    rule = compose([recipe_layer("negotiation-nano"), beside]).learn
    assert rule.aggregate.name == "turn_mean"
    assert rule.regularisers["kl"].with_defaults().settings["weight"].to_plain() == 0.5
    above = make_learn_spec(
        "learn.aggregate=turn_mean", "learn.loss=dapo", "learn.loss.policy_gradient.clip.ppo.high=0.3"
    )
    assert above.aggregate.name == "token_mean", "the later layer wins"
    assert above.loss.settings["clip"].to_plain() == {"ppo": {"low": 0.2, "high": 0.3}}
    preset = make_learn_spec("learn.loss=dapo")
    assert (preset.minibatches, preset.lr) == (4, 3e-4), "what it says nothing of stays the recipe's"


@pytest.mark.parametrize(
    ("setting", "message"),
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
def test_misplaced_name_gets_a_hint(setting: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        make_learn_spec(setting)
    assert message.replace("a aggregate", "an aggregate").replace("a estimator", "an estimator") in str(raised.value)


def test_presets_are_listed() -> None:
    result = arena("list", "presets", "--json")
    assert result.code == 0 and "cispo: {low: 1.0, high: 4.0}" in result.out
    assert "did you mean 'presets'" in get_refusal("list", "preset")
