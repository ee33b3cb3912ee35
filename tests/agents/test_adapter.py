"""Adapters: equality with peft, sharing of the base, and folders in both directions."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

from agents.adapter import LowRank, create_adapter, load_adapter, low_rank_layers, save_adapter, save_merged
from agents.adapter_config import CONFIG, TENSORS, AdapterSpec, read_adapter
from agents.bf16 import convert_to_bf16
from agents.errors import WeightsError
from agents.model_folder import load_model
from agents.policy import trainable_parameters
from agents.weights import resolve
from tests.factories.models import make_model, randomise_adapter

IDS = torch.arange(20).reshape(2, 10) % 24


def compute_logits(model: Any) -> torch.Tensor:
    """Return the logits of a small model."""
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=IDS).logits
    return logits


def test_layer_matches_worked_example() -> None:
    """W = [[1, 2]], A = [[3, -1]], B = [[2]], scale 0.5: W x + 0.5 B A x at x = (1, 4) is 9 + 0.5 · 2 · (-1) = 8."""
    base = torch.nn.Linear(2, 1, bias=False)
    base.weight = torch.nn.Parameter(torch.tensor([[1.0, 2.0]]), requires_grad=False)
    layer = LowRank(base, torch.tensor([[3.0, -1.0]]), torch.tensor([[2.0]]), 0.5)
    assert layer(torch.tensor([[1.0, 4.0]])).item() == 8.0


@pytest.mark.parametrize("family", ["tied", "untied", "biases", "experts"])
def test_new_adapter_is_identity_and_alone_trainable(family: str) -> None:
    base = make_model(family).requires_grad_(False)
    model = create_adapter(base, AdapterSpec(rank=3), 0)
    assert torch.equal(compute_logits(model), compute_logits(base))
    assert {name.rpartition(".")[2] for name in trainable_parameters(model)} == {"a", "b"}
    frozen = {id(p) for p in base.parameters()}
    assert {id(p) for p in model.parameters() if not p.requires_grad} == frozen, "the base's own, not copies"
    assert not any(isinstance(module, LowRank) for module in base.modules()), "the base stays as it is"


def test_adapters_of_one_base_are_independent() -> None:
    base = make_model("tied").requires_grad_(False)
    one, second = (create_adapter(base, AdapterSpec(rank=2), seed) for seed in (0, 1))
    before = compute_logits(base)
    randomise_adapter(one)
    assert torch.equal(compute_logits(second), before) and not torch.allclose(compute_logits(one), before)
    first = {name: layer.a for name, layer in low_rank_layers(one)}
    assert all(not torch.equal(layer.a, first[name]) for name, layer in low_rank_layers(second)), "drawn apart"
    repeated = {name: layer.a for name, layer in low_rank_layers(create_adapter(base, AdapterSpec(rank=2), 0))}
    assert all(torch.equal(repeated[name], first[name]) for name in first), "the seed decides"


@pytest.mark.parametrize("targets", [None, ["q_proj", "v_proj"]])
def test_peft_loads_saved_adapter_with_equal_logits(targets: list[str] | None, tmp_path: Path) -> None:
    base = make_model("biases").requires_grad_(False)
    model = randomise_adapter(create_adapter(base, AdapterSpec(rank=4, alpha=6.0, targets=targets), 0))
    save_adapter(model, tmp_path, "any/base")
    reference = PeftModel.from_pretrained(make_model("biases"), tmp_path)
    torch.testing.assert_close(compute_logits(reference), compute_logits(model), atol=1e-5, rtol=1e-5)
    assert read_adapter(tmp_path).base == "any/base"


@pytest.mark.parametrize("rslora", [False, True])
def test_loads_peft_adapter(rslora: bool, tmp_path: Path) -> None:
    reference = get_peft_model(
        make_model("untied"),
        LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", use_rslora=rslora, init_lora_weights=False),
    )
    reference.save_pretrained(tmp_path)
    expected = compute_logits(reference.eval())
    config = json.loads((tmp_path / CONFIG).read_text()) | {"base_model_name_or_path": "nano"}
    (tmp_path / CONFIG).write_text(json.dumps(config))
    model = load_adapter(make_model("untied"), tmp_path)
    torch.testing.assert_close(compute_logits(model), expected, atol=1e-5, rtol=1e-5)


def test_gradients_against_finite_differences() -> None:
    layer = LowRank(torch.nn.Linear(5, 4).double(), torch.rand(2, 5).double(), torch.rand(4, 2).double(), 0.7)
    inputs = torch.rand(3, 5, dtype=torch.double, requires_grad=True)

    def output(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, {"a": a, "b": b}, (x,))

    assert torch.autograd.gradcheck(output, (inputs, layer.a, layer.b))


def test_bfloat16_base_gives_gradients_of_autocast() -> None:
    full = make_model("tied").requires_grad_(False)
    gradients, logits = [], []
    for base in (full, convert_to_bf16(full, packed=False)):
        model = randomise_adapter(create_adapter(base, AdapterSpec(rank=3), 0))
        with torch.autocast("cpu", torch.bfloat16):
            output = model(input_ids=IDS).logits
            output.float().logsumexp(-1).sum().backward()
        logits.append(output.detach())
        gradients.append([p.grad for p in trainable_parameters(model).values()])
    assert torch.equal(*logits)
    for first, two in zip(*gradients, strict=True):
        torch.testing.assert_close(first, two, atol=2e-2, rtol=2e-2)
        assert first.abs().sum() > 0


def test_merged_model_has_equal_logits(tmp_path: Path) -> None:
    base = load_model(resolve("nano")).requires_grad_(False)
    model = randomise_adapter(create_adapter(base, AdapterSpec(rank=4), 0))
    save_adapter(model, tmp_path / "adapter", "nano")
    save_merged(tmp_path / "adapter", tmp_path / "whole")
    torch.testing.assert_close(
        compute_logits(load_model(resolve(str(tmp_path / "whole")))), compute_logits(model), atol=1e-5, rtol=1e-5
    )


# -- folders that are not what they seem --------------------------------------------------------------------


@pytest.fixture(scope="module")
def adapter_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a small adapter on `tied`."""
    path = tmp_path_factory.mktemp("adapter")
    save_adapter(randomise_adapter(create_adapter(make_model("tied"), AdapterSpec(rank=2), 0)), path, "nano")
    return path


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "another method": ({"peft_type": "IA3"}, "only LORA"),
    "no base": ({"base_model_name_or_path": None}, "names no base"),
    "a base that is no text": ({"base_model_name_or_path": 3}, "names no base"),
    "no rank": ({"r": 0}, "not an integer from 1 to"),
    "a rank that is true": ({"r": True}, "not an integer from 1 to"),
    "a huge rank": ({"r": 10**9}, "not an integer from 1 to"),
    "another rank": ({"r": 3}, "was expected"),
    "no alpha": ({"lora_alpha": "8"}, "not a number above 0"),
    "not a number": ({"lora_alpha": float("nan")}, "not a number above 0"),
    "biases": ({"bias": "all"}, "bias"),
    "magnitudes": ({"use_dora": True}, "use_dora"),
    "ranks by layer": ({"rank_pattern": {"q_proj": 8}}, "rank_pattern"),
    "whole layers": ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
    "a changed base": ({"init_lora_weights": "pissa_niter_16"}, "changed the base"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_refuses_unsupported_adapter_config_in_one_line(fault: str, adapter_folder: Path, tmp_path: Path) -> None:
    changes, message = FAULTS[fault]
    config = json.loads((adapter_folder / CONFIG).read_text()) | changes
    (tmp_path / CONFIG).write_text(json.dumps(config))
    (tmp_path / TENSORS).write_bytes((adapter_folder / TENSORS).read_bytes())
    with pytest.raises(WeightsError, match=message) as error:
        load_adapter(make_model("tied"), tmp_path)
    assert "\n" not in str(error.value)


def drop_first_tensor(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return dict(list(tensors.items())[1:])


TENSOR_FAULTS: dict[str, tuple[Any, str]] = {
    "half a pair": (drop_first_tensor, "was expected"),
    "another model's layer": (lambda t: t | {"base_model.model.x.lora_A.weight": torch.zeros(2, 2)}, "lacks"),
    "something else": (lambda t: t | {"lm_head.weight": torch.zeros(2, 2)}, "lacks"),
    "nothing": (lambda t: {}, "no matrices"),
    "no numbers": (lambda t: {name: tensor * np.nan for name, tensor in t.items()}, "not finite"),
    "turned": (lambda t: {name: tensor.t().contiguous() for name, tensor in t.items()}, "was expected"),
}


@pytest.mark.parametrize("fault", TENSOR_FAULTS)
def test_refuses_mismatched_matrices(fault: str, adapter_folder: Path, tmp_path: Path) -> None:
    change, message = TENSOR_FAULTS[fault]
    (tmp_path / CONFIG).write_bytes((adapter_folder / CONFIG).read_bytes())
    save_file(change(load_file(adapter_folder / TENSORS)), tmp_path / TENSORS)
    with pytest.raises(WeightsError, match=message):
        load_adapter(make_model("tied"), tmp_path)


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_as_weights_errors(data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / CONFIG).write_bytes(data)
        (path / TENSORS).write_bytes(data)
        with pytest.raises(WeightsError):
            load_adapter(make_model("tied"), path)


def test_refuses_unknown_target_layers() -> None:
    with pytest.raises(WeightsError, match="did you mean 'q_proj'"):
        create_adapter(make_model("tied"), AdapterSpec(targets=["q_prj"]), 0)
    with pytest.raises(WeightsError, match="no linear layers"):
        create_adapter(make_model("no linear layers"), AdapterSpec(), 0)
