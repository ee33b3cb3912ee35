"""The gate: sampled log-probabilities must match the trainer's weights, whatever fault occurred."""

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


def sample_replies(engine: InProcessEngine, policy: str = "p") -> list[Sample]:
    """Return the engine's sampled replies as training samples."""
    requests = [make_request(ids, i, f"{i}", policy=policy) for i, ids in enumerate(make_contexts(24, 16))]
    samples = []
    for sampling_request, completion in zip(requests, wait(engine.generate(requests)), strict=True):
        stream = Stream()
        stream.observe(sampling_request.ids)
        stream.append_sampled(completion.ids, completion.logprobs, 0)
        ones = np.ones(len(completion.ids), np.float32)
        behaviour = np.asarray(completion.logprobs, np.float32)
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
    """Update the model and return the log-probability gap. Raises GateError if it is too wide."""
    trainer = PolicyTrainer("p", model, LearnSpec(lr=1e-3, regularisers={}))
    return run_update(trainer, samples, np.random.default_rng(0))["logprob_gap"]


def start_engine(published: Any, precision: Precision = Precision.FP32) -> InProcessEngine:
    engine = InProcessEngine(precision)
    wait(engine.publish("p", 1, ModuleWeights(published)))
    return engine


def make_adapter_policy(base: Any, model: Any) -> AdapterOnBase:
    return AdapterOnBase(model, base, Path("there"), "base")


def learn(model: Any) -> None:
    """Train the model for one update."""
    update(model, sample_replies(start_engine(model)))


def forget_publish() -> tuple[Any, InProcessEngine]:
    model = make_model("untied")
    engine = start_engine(copy.deepcopy(model))
    learn(model)
    return model, engine


def permute_tensor() -> tuple[Any, InProcessEngine]:
    model = make_model("untied")
    wrong = copy.deepcopy(model)
    layer = wrong.model.layers[1].mlp.up_proj
    layer.weight.data = layer.weight.data.roll(1, 0)
    return model, start_engine(wrong)


def keep_stale_tied_head() -> tuple[Any, InProcessEngine]:
    model = make_model("tied")
    old = model.get_output_embeddings().weight.detach().clone()
    learn(model)
    wrong = copy.deepcopy(model)
    wrong.lm_head.weight = torch.nn.Parameter(old)
    return model, start_engine(wrong)


def keep_stale_adapter() -> tuple[Any, InProcessEngine]:
    base = make_model("untied").requires_grad_(False)
    model = randomise_adapter(create_adapter(base, AdapterSpec(rank=2), 0))
    engine = start_engine(make_adapter_policy(base, copy.deepcopy(model)))
    learn(model)
    return model, engine


def publish_other_adapter() -> tuple[Any, InProcessEngine]:
    base = make_model("untied").requires_grad_(False)
    own_adapter, other_adapter = (
        randomise_adapter(create_adapter(base, AdapterSpec(rank=2), seed), seed) for seed in (1, 2)
    )
    return own_adapter, start_engine(make_adapter_policy(base, other_adapter))


def use_wrong_dtype() -> tuple[Any, InProcessEngine]:
    model = make_model("untied")
    return model, start_engine(model, precision=Precision.BF16)


FAULTS: list[Callable[[], tuple[Any, InProcessEngine]]] = [
    forget_publish, permute_tensor, keep_stale_tied_head, keep_stale_adapter, publish_other_adapter,
    use_wrong_dtype,
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_gate_stops_at_each_fault(fault: Callable[[], tuple[Any, InProcessEngine]]) -> None:
    model, engine = fault()
    before = copy_weights(model)
    with pytest.raises(GateError, match="log-probabilities differ by"):
        update(model, sample_replies(engine))
    assert are_equal(copy_weights(model), before), "before any weight changed"


@pytest.mark.parametrize("family", ["tied", "untied", "biases", "experts"])
def test_gate_passes_correct_models(family: str) -> None:
    model = make_model(family)
    assert update(model, sample_replies(start_engine(model))) < 1e-5
    base = make_model(family).requires_grad_(False)
    adapted = randomise_adapter(create_adapter(base, AdapterSpec(rank=2), 0))
    assert update(adapted, sample_replies(start_engine(make_adapter_policy(base, adapted)))) < 1e-5


def test_tolerance_is_wider_in_bfloat16() -> None:
    model = make_model("untied")
    trainer = PolicyTrainer("p", model, LearnSpec(regularisers={}), bf16=True)
    assert trainer.tolerance == 0.1
    gap = run_update(trainer, sample_replies(start_engine(model, precision=Precision.BF16)), np.random.default_rng(0))[
        "logprob_gap"
    ]
    assert gap < 0.05
