"""Non-finite updates stop the run, or their steps are skipped and counted."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena.cli.loop import wait
from arena.config.experiment import LearnSpec
from arena.config.kinds import choose
from arena.credit.critics.base import CriticContext
from arena.credit.estimators.gae import Discounts
from arena.errors import DivergedError
from arena.learn.settings import ImitateSpec
from arena.learn.trainer import PolicyTrainer
from tests.factories.commands import TINY, arena
from tests.factories.models import are_equal, copy_weights, make_tiny_llama
from tests.factories.policies import make_policies
from tests.factories.samples import STAGES, Stage, make_samples
from tests.factories.traces import read_trace
from tests.factories.trajectories import make_token_trajectories
from tests.factories.updating import run_imitation, run_update

DIVERGE = ["--set", "learn.lr=1e30", "--set", "checkpoint={every: 1, keep: 1}"]


def make_poisoned_samples(model: Any) -> list[Any]:
    """Return samples of which one has a NaN advantage."""
    first, *rest = make_samples(model)
    return [replace(first, advantages=first.advantages * np.float32("nan")), *rest]


@pytest.mark.parametrize("stage", STAGES)
def test_nonfinite_gradient_stops_before_any_weight_changes(stage: Stage) -> None:
    model = make_tiny_llama()
    before = copy_weights(model)
    trainer = PolicyTrainer("seller", model, LearnSpec(lr=1e-3, zero_stage=stage))
    with pytest.raises(DivergedError) as error:
        run_update(trainer, make_poisoned_samples(model), np.random.default_rng(0))
    message = str(error.value)
    assert "policy 'seller'" in message and "minibatch 1" in message and "lower learn.lr (0.001)" in message
    assert "learn.nonfinite=skip" in message and "\n" not in message
    with trainer.gather():
        assert are_equal(copy_weights(model), before)


@pytest.mark.parametrize("stage", STAGES)
def test_nonfinite_steps_can_be_skipped_and_are_counted(stage: Stage) -> None:
    """One of two minibatches is poisoned: only the other one's step is taken."""
    model = make_tiny_llama()
    before = copy_weights(model)
    rule = LearnSpec(lr=1e-3, zero_stage=stage, minibatches=2, nonfinite="skip", gate_tolerance=1.0)
    trainer = PolicyTrainer("p", model, rule)
    figures = run_update(trainer, make_poisoned_samples(model), np.random.default_rng(0))
    assert figures["skipped"] == 1 and trainer.steps == 1
    assert np.isfinite(figures["grad_norm"]) and figures["grad_norm"] > 0
    with trainer.gather():
        after = copy_weights(model)
    assert not are_equal(after, before) and all(bool(value.isfinite().all()) for value in after.values())
    healthy = run_update(trainer, make_samples(model, 1), np.random.default_rng(0))
    assert healthy["skipped"] == 0 and trainer.steps == 3


@pytest.mark.parametrize("lr", [1e30, 1e12])
@pytest.mark.parametrize("nonfinite", ["stop", "skip"])
def test_nonfinite_weights_stop_every_run(lr: float, nonfinite: Any) -> None:
    """The only step's gradient is finite, but the new weights or their outputs are not."""
    model = make_tiny_llama()
    trainer = PolicyTrainer("p", model, LearnSpec(lr=lr, nonfinite=nonfinite))
    with pytest.raises(DivergedError, match=r"not finite.*lower learn.lr"):
        run_update(trainer, make_samples(model), np.random.default_rng(0))


@pytest.mark.parametrize("lr", [1e30, 1e12])
def test_diverging_imitation_stops(lr: float) -> None:
    model = make_tiny_llama()
    spec = ImitateSpec(scripted=["random"], lr=lr, epochs=2, minibatches=2)
    with pytest.raises(DivergedError, match=r"policy 'p', imitation.*policies\.p\.imitate\.lr"):
        run_imitation(PolicyTrainer("p", model, LearnSpec()), make_samples(model), spec, np.random.default_rng(0))


@pytest.mark.parametrize("name", ["linear", "archer", "value_head"])
def test_diverging_critics_stop_or_skip(name: str) -> None:
    huge = [replace(c, rewards=c.rewards + 1e308) for c in make_token_trajectories(0)]
    rng = np.random.default_rng(0)

    def make_critic(nonfinite: Any) -> Any:
        context = CriticContext(
            discounts=Discounts(1.0, None), nonfinite=nonfinite, policies=make_policies(make_tiny_llama())
        )
        return choose("critic", name)(context)

    with pytest.raises(DivergedError, match=f"critic {name}.*credit.weights"):
        wait(make_critic("stop").fit(huge, rng))
    skipping_critic = make_critic("skip")
    figures = wait(skipping_critic.fit(huge, rng))
    assert next(value for figure, value in figures.items() if figure.endswith("skipped")) > 0
    assert all(np.isfinite(v).all() for v in wait(skipping_critic.predict([c.trajectory for c in huge]))["values"])


@pytest.mark.slow
def test_last_good_checkpoint_is_kept(tmp_path: Path) -> None:
    """After divergence the previous checkpoint remains usable."""
    run = tmp_path / "run"
    result = arena(*TINY, *DIVERGE, "--out", run)
    assert (
        result.code == 1 and "policy 'shared', iteration 1" in result.line and "lower learn.lr (1e+30)" in result.line
    )
    assert f"arena resume {run}" in result.line
    assert {n.split("/")[1] for n in read_trace(run).files} == {"0000"}
    assert arena("eval", f"{run}@0", "--game", "negotiation", "--matches", "2").code == 0
