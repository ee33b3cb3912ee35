"""Models converted to bfloat16: bit-equal to autocast on the original weights."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from agents import policy
from agents.bf16 import JoinedLinears, can_pack_here, convert_to_bf16, find_group, refresh_copy
from agents.errors import WeightsError
from agents.model_folder import is_bf16, load_tokenizer
from agents.policy import load_frozen, load_module
from agents.precision import Precision
from agents.weights import resolve
from tests.factories.models import CONFIGS, make_model


def compute_logits(model: Any) -> torch.Tensor:
    """Return logits under autocast."""
    device = next(model.parameters()).device
    ids = torch.arange(20, device=device).reshape(2, 10) % 24
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16):
        logits: torch.Tensor = model(input_ids=ids).logits
    return logits


@pytest.mark.parametrize("family", CONFIGS)
def test_converted_model_has_bit_equal_logits(family: str) -> None:
    model = make_model(family)
    before = compute_logits(model)
    converted = convert_to_bf16(model)
    assert torch.equal(compute_logits(converted), before) and torch.equal(compute_logits(model), before)


@pytest.mark.parametrize("family", CONFIGS)
def test_refreshed_copy_follows_its_model(family: str) -> None:
    model = make_model(family)
    converted, before = convert_to_bf16(model), compute_logits(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.25)
    refresh_copy(converted, model)
    assert torch.equal(compute_logits(converted), compute_logits(model)) and not torch.equal(
        compute_logits(converted), before
    )


@pytest.mark.parametrize("packed", [True, False])
def test_linear_layers_are_copied_in_half_the_memory_and_the_rest_is_shared(
    packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not packed:
        monkeypatch.setattr("agents.bf16._can_pack", lambda layer: False)
    model = make_model("tied")
    converted = convert_to_bf16(model)
    assert torch.equal(compute_logits(converted), compute_logits(model))
    linear = {name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    assert {converted.get_submodule(name).weight.dtype for name in linear} == {torch.bfloat16}
    actual, reference = dict(converted.named_parameters()), dict(model.named_parameters())
    rest = {name for name in reference if name.rpartition(".")[0] not in linear}
    assert actual.keys() == rest and all(actual[name] is reference[name] for name in rest)


def test_converting_a_bfloat16_copy_shares_its_weights() -> None:
    """Frozen policies are loaded in bfloat16 and then published."""
    once = convert_to_bf16(make_model("biases"))
    twice = convert_to_bf16(once)
    refresh_copy(twice, once)
    assert torch.equal(compute_logits(once), compute_logits(twice))
    assert twice.model.layers[0].mlp.up_proj.weight is once.model.layers[0].mlp.up_proj.weight


needs_packing = pytest.mark.skipif(not can_pack_here(), reason="matrices are not packed on this processor")


@pytest.mark.parametrize("packed", [pytest.param(True, marks=needs_packing), False])
def test_layers_with_the_same_input_are_joined(packed: bool) -> None:
    """Layers with another input, or single ones, are not."""
    layer = convert_to_bf16(make_model("biases"), packed).model.layers[0]
    attention, mlp = layer.self_attn, layer.mlp
    for layers in ((attention.q_proj, attention.k_proj, attention.v_proj), (mlp.gate_proj, mlp.up_proj)):
        joined, x = find_group(layers), torch.randn(3, layers[0].weight.shape[1])
        assert joined is not None
        assert torch.equal(joined(x), torch.cat([layer(x) for layer in layers], -1))
    assert find_group((attention.o_proj,)) is None
    assert find_group((attention.q_proj, attention.k_proj)) is None
    assert find_group((attention.q_proj, mlp.up_proj)) is None


@needs_packing
def test_joined_parts_work_in_any_call_order() -> None:
    """A model may call its layers in another order, repeatedly, or with different inputs."""
    plain = [torch.nn.Linear(16, out, bias=out == 8) for out in (8, 4, 4)]
    parts = JoinedLinears(plain).parts
    a, b = torch.randn(3, 16), torch.randn(5, 16)
    for i, x in ((2, a), (0, a), (1, b), (1, b), (2, a), (1, a), (0, a)):
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(parts[i](x), plain[i](x))


@needs_packing
def test_joined_product_changes_when_all_parts_are_copied() -> None:
    plain = [torch.nn.Linear(16, 8) for _ in range(2)]
    joined, x = JoinedLinears(plain), torch.randn(3, 16)
    before = joined(x)
    with torch.no_grad():
        for layer in plain:
            layer.weight += 1.0
    joined.parts[1].copy_weights(plain[1])
    assert torch.equal(joined(x), before)
    joined.parts[0].copy_weights(plain[0])
    assert torch.equal(joined(x), JoinedLinears(plain)(x)) and not torch.equal(joined(x), before)


def test_joined_matrices_are_refreshed_in_place() -> None:
    """Recorded steps rely on their addresses."""
    model = make_model("biases")
    converted = convert_to_bf16(model, packed=False)
    layers = converted.model.layers[0].mlp.gate_proj, converted.model.layers[0].mlp.up_proj
    joined, x = find_group(layers), torch.randn(3, layers[0].weight.shape[1])
    assert joined is not None
    before, positions = joined(x), [layer.weight.data_ptr() for layer in layers]
    assert positions[1] - positions[0] == layers[0].weight.nbytes
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight.mul_(2.0)
    refresh_copy(converted, model)
    assert torch.equal(joined(x), torch.cat([layer(x) for layer in layers], -1)) and not torch.equal(joined(x), before)
    assert positions == [layer.weight.data_ptr() for layer in layers]


@pytest.mark.parametrize("moves", [True, False])
def test_bfloat16_weights_are_not_duplicated(moves: bool) -> None:
    """Matrices that an optimiser holds are not moved."""
    model = make_model("biases").bfloat16()
    before = compute_logits(model)
    positions = {name: parameter.data_ptr() for name, parameter in model.named_parameters()}
    converted = convert_to_bf16(model, packed=False, may_move=moves)
    assert torch.equal(compute_logits(converted), before) and torch.equal(compute_logits(model), before)
    actual, its = (one.model.layers[0].self_attn for one in (converted, model))
    assert (find_group((actual.q_proj, actual.k_proj, actual.v_proj)) is not None) == moves
    for layer, source in ((actual.q_proj, its.q_proj), (actual.v_proj, its.v_proj)):
        assert layer.weight.data_ptr() == source.weight.data_ptr()
    assert (positions == {name: parameter.data_ptr() for name, parameter in model.named_parameters()}) != moves


def test_conversion_keeps_requires_grad_of_the_model() -> None:
    """The trainer's weights require gradients; the engine's copy must not."""
    model = make_model("tied")
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    convert_to_bf16(model)
    assert names == [name for name, parameter in model.named_parameters() if parameter.requires_grad]


def save_in_bf16(family: str, folder: Path) -> Any:
    """Save a bfloat16 model to the folder and return it."""
    model = make_model(family).bfloat16()
    model.config = copy.deepcopy(model.config)  # saving notes the dtype in it, and others are made of the same
    model.save_pretrained(folder)
    load_tokenizer(resolve("nano")).save_pretrained(folder)
    return model


@pytest.mark.parametrize("family", CONFIGS)
def test_bfloat16_folder_is_loaded_without_float32_copy(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_in_bf16(family, tmp_path)
    requests: list[bool] = []

    def load(folder: Path, frozen: bool = False, bf16: bool = False) -> Any:
        requests.append(bf16)
        return load_module(folder, frozen, bf16)

    monkeypatch.setattr(policy, "load_module", load)
    model = load_frozen(tmp_path, Precision.BF16, packed=False)
    by_way_of_float32 = convert_to_bf16(load_module(tmp_path, frozen=True), packed=False)
    assert torch.equal(compute_logits(model), compute_logits(by_way_of_float32))
    actual, reference = dict(model.named_parameters()), dict(by_way_of_float32.named_parameters())
    assert actual.keys() == reference.keys() and all(p.dtype == torch.float32 for p in actual.values())
    assert all(torch.equal(p, reference[name]) for name, p in actual.items())
    assert not any(p.requires_grad for p in actual.values())
    assert requests == ([True, False] if family == "capped logits" else [True]), "Gemma's scale is worked out in it"


def test_buffers_are_recomputed_in_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_in_bf16("tied", tmp_path)
    requests: list[bool] = []

    def load(folder: Path, frozen: bool = False, bf16: bool = False) -> Any:
        requests.append(bf16)
        model = load_module(folder, frozen, bf16)
        model.register_buffer("scale", torch.tensor(0.1, dtype=next(model.parameters()).dtype))
        return model

    monkeypatch.setattr(policy, "load_module", load)
    assert load_frozen(tmp_path, Precision.BF16, packed=False).scale.dtype == torch.float32
    assert requests == [True, False]


def test_a_folder_with_one_tensor_in_float32_is_not_held_in_bfloat16(tmp_path: Path) -> None:
    model = save_in_bf16("tied", tmp_path)
    assert is_bf16(tmp_path)
    model.model.norm.float()
    model.save_pretrained(tmp_path)
    assert not is_bf16(tmp_path)


def test_other_precisions_load_as_they_compute(tmp_path: Path) -> None:
    save_in_bf16("tied", tmp_path)
    model = load_frozen(tmp_path, Precision.FP32, packed=False)
    assert type(model.model.layers[0].mlp.up_proj) is torch.nn.Linear
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    true = load_frozen(tmp_path, Precision.BF16_TRUE, packed=False)
    assert {p.dtype for p in true.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("keep", [0, 5, 1000, -1])
def test_damaged_weights_are_one_line(keep: int, tmp_path: Path) -> None:
    save_in_bf16("tied", tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(WeightsError, match="damaged"):
        load_frozen(tmp_path, Precision.BF16, packed=False)


def test_no_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="no model folder"):
        load_frozen(tmp_path / "nowhere", Precision.BF16, packed=False)
