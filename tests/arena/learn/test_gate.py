"""The gate: what was played has to be what the trainer's weights would say, whatever went wrong on the way."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agents.adapter import create_adapter
from agents.adapter_config import AdapterSpec
from agents.engines.in_process import InProcessEngine
from agents.policy import AdapterOnBase
from agents.precision import Precision
from agents.published import ModuleWeights
from agents.stream import Stream
from arena.cli.loop import wait
from arena.config.experiment import LearnSpec
from arena.errors import GateError
from arena.learn.samples import Sample
from arena.learn.trainer import PolicyTrainer
from tests.factories.models import are_equal, copy_weights, make_model, randomise_adapter
from tests.factories.requests import make_contexts, make_request
from tests.factories.updating import run_update


def played(engine: InProcessEngine, policy: str = "p") -> list[Sample]:
    """What an engine says that it sampled, as the trainer is given it."""
    asked = [make_request(ids, i, f"{i}", policy=policy) for i, ids in enumerate(make_contexts(24, 16))]
    samples = []
    for one, got in zip(asked, wait(engine.generate(asked)), strict=True):
        stream = Stream()
        stream.observe(one.ids)
        stream.append_sampled(got.ids, got.logprobs, 0)
        ones = np.ones(len(got.ids), np.float32)
        behaviour = np.asarray(got.logprobs, np.float32)
        samples.append(
            Sample(
                stream=stream,
                advantages=ones,
                behaviour=behaviour,
                temperature=1.0,
                places=np.zeros(len(ones), np.int64),
                learned=ones.astype(bool),
            )
        )
    return samples


def update(model: Any, samples: list[Sample]) -> float:
    """The gap that an update tells of; GateError where it is too wide."""
    trainer = PolicyTrainer("p", model, LearnSpec(lr=1e-3, regularisers={}))
    return run_update(trainer, samples, np.random.default_rng(0))["logprob_gap"]


def serving(published: Any, precision: Precision = Precision.FP32) -> InProcessEngine:
    engine = InProcessEngine(precision)
    wait(engine.publish("p", 1, ModuleWeights(published)))
    return engine


def on(base: Any, model: Any) -> AdapterOnBase:
    return AdapterOnBase(model, base, Path("there"), "base")


def learn(model: Any) -> None:
    """One update's worth of change."""
    update(model, played(serving(model)))


def a_forgotten_publish() -> tuple[Any, InProcessEngine]:
    model = make_model("untied")
    engine = serving(copy.deepcopy(model))
    learn(model)
    return model, engine


def a_permuted_tensor() -> tuple[Any, InProcessEngine]:
    model = make_model("untied")
    wrong = copy.deepcopy(model)
    layer = wrong.model.layers[1].mlp.up_proj
    layer.weight.data = layer.weight.data.roll(1, 0)
    return model, serving(wrong)


def a_stale_tied_head() -> tuple[Any, InProcessEngine]:
    model = make_model("tied")
    old = model.get_output_embeddings().weight.detach().clone()
    learn(model)
    wrong = copy.deepcopy(model)
    wrong.lm_head.weight = torch.nn.Parameter(old)
    return model, serving(wrong)


def a_stale_adapter() -> tuple[Any, InProcessEngine]:
    base = make_model("untied").requires_grad_(False)
    model = randomise_adapter(create_adapter(base, AdapterSpec(rank=2), 0))
    engine = serving(on(base, copy.deepcopy(model)))
    learn(model)
    return model, engine


def the_adapter_of_another_role() -> tuple[Any, InProcessEngine]:
    base = make_model("untied").requires_grad_(False)
    one, other = (randomise_adapter(create_adapter(base, AdapterSpec(rank=2), seed), seed) for seed in (1, 2))
    return one, serving(on(base, other))


def a_wrong_dtype() -> tuple[Any, InProcessEngine]:
    model = make_model("untied")
    return model, serving(model, precision=Precision.BF16)


FAULTS: list[Callable[[], tuple[Any, InProcessEngine]]] = [
    a_forgotten_publish, a_permuted_tensor, a_stale_tied_head, a_stale_adapter, the_adapter_of_another_role,
    a_wrong_dtype,
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_it_stops(fault: Callable[[], tuple[Any, InProcessEngine]]) -> None:
    model, engine = fault()
    before = copy_weights(model)
    with pytest.raises(GateError, match="log-probabilities differ by"):
        update(model, played(engine))
    assert are_equal(copy_weights(model), before), "before any weight changed"


@pytest.mark.parametrize("family", ["tied", "untied", "biases", "experts"])
def test_it_lets_through_what_is_right(family: str) -> None:
    model = make_model(family)
    assert update(model, played(serving(model))) < 1e-5
    base = make_model(family).requires_grad_(False)
    small = randomise_adapter(create_adapter(base, AdapterSpec(rank=2), 0))
    assert update(small, played(serving(on(base, small)))) < 1e-5


def test_in_bfloat16_its_tolerance_is_wider() -> None:
    model = make_model("untied")
    trainer = PolicyTrainer("p", model, LearnSpec(regularisers={}), bf16=True)
    assert trainer.tolerance == 0.1
    gap = run_update(trainer, played(serving(model, precision=Precision.BF16)), np.random.default_rng(0))["logprob_gap"]
    assert gap < 0.05
