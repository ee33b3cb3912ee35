"""Sizes counted from a model's settings, and refusals of invalid settings."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from agents import nano, nano_vlm, smollm2, smollm2_eyes
from agents.errors import WeightsError
from agents.model_folder import load_model
from agents.weights import resolve
from arena.fits.shape import _time_limit, count_shape, read_shape

SMALL = {
    "model_type": "qwen2", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 200,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
}  # fmt: skip


def write_model_folder(path: Path, **changed: Any) -> Path:
    path.mkdir(exist_ok=True)
    settings = {key: value for key, value in {**SMALL, **changed}.items() if value is not ...}
    (path / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    return path


def test_built_in_models_are_counted_without_their_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ARENA_HOME", str(tmp_path))
    for name, parameters in (
        ("nano", nano.SIZES["nano"].parameters),
        ("nano-7", nano.SIZES["nano"].parameters),
        ("nano5m", nano.SIZES["nano5m"].parameters),
        (smollm2.NAME, smollm2.PARAMETERS),
        ("nano-vlm-7", nano_vlm.PARAMETERS),
        (smollm2_eyes.NAME, smollm2_eyes.PARAMETERS),
    ):
        shape, files = read_shape(name)
        assert shape.parameters == parameters and files == 4 * parameters
        assert shape.tied == (not name.startswith(nano_vlm.NAME))
    assert not list(tmp_path.iterdir())


def test_count_equals_that_of_the_loaded_model() -> None:
    path = resolve("nano")
    shape, files = read_shape(str(path))
    model = load_model(path)
    assert shape.parameters == sum(p.numel() for p in model.parameters())
    linear = [m for n, m in model.named_modules() if n.endswith("_proj")]
    assert shape.linear == sum(m.weight.numel() for m in linear)
    assert shape.edges == sum(m.in_features + m.out_features for m in linear)
    assert files == sum(p.stat().st_size for p in path.glob("*.safetensors")) > 4 * shape.parameters


def test_untied_head_file_and_adapter(tmp_path: Path) -> None:
    tied, _ = read_shape(str(write_model_folder(tmp_path / "a", tie_word_embeddings=True)))
    untied, _ = read_shape(str(write_model_folder(tmp_path / "b", tie_word_embeddings=False) / "config.json"))
    assert tied.tied and not untied.tied and untied.parameters == tied.parameters + 200 * 64
    assert tied.other_weights == untied.other_weights, "the embedding, norms, biases"
    adapter = {"peft_type": "LORA", "base_model_name_or_path": str(tmp_path / "a"), "r": 4, "lora_alpha": 8}
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "adapter_config.json").write_text(json.dumps(adapter))
    (tmp_path / "c" / "adapter_model.safetensors").write_bytes(b"x")
    assert read_shape(str(tmp_path / "c"))[0] == tied
    itself = {**adapter, "base_model_name_or_path": str(tmp_path / "c")}
    (tmp_path / "c" / "adapter_config.json").write_text(json.dumps(itself))
    with pytest.raises(WeightsError, match="on another adapter"):
        read_shape(str(tmp_path / "c"))


def test_model_without_linear_layers_is_counted() -> None:
    """GPT-2 uses another layer class, which is never held in bfloat16 and gets no adapters."""
    shape = count_shape({**SMALL, "model_type": "gpt2"}, "here")
    assert shape.linear == shape.edges == 0 and shape.parameters > 2 * 12 * 64**2


def test_only_active_experts_count() -> None:
    mixed = {**SMALL, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    shape = count_shape(mixed, "here")
    assert shape.inner == 2 * 96 and shape.parameters > 8 * 2 * 3 * 64 * 96


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_hidden_layers": 10**12}, "num_hidden_layers is 1000000000000"),
        ({"num_hidden_layers": -1}, "num_hidden_layers is -1"),
        ({"num_hidden_layers": "two"}, 'num_hidden_layers is "two"'),
        ({"num_hidden_layers": True}, "num_hidden_layers is true"),
        ({"num_hidden_layers": ...}, "there is no num_hidden_layers"),
        ({"hidden_size": ...}, "there is no hidden_size"),
        ({"hidden_size": 1e300}, "hidden_size is 1e+300"),
        ({"hidden_size": float("inf")}, "hidden_size is inf"),
        ({"hidden_size": float("nan")}, "hidden_size is nan"),
        ({"vocab_size": 10**10}, "vocab_size is 10000000000"),
        ({"num_experts": 10**7}, "num_experts is 10000000"),
        ({"num_experts": 4096, "num_hidden_layers": 1000}, "experts are too many"),
        ({"num_attention_heads": 0}, "cannot be loaded"),
        ({"num_attention_heads": "four"}, "cannot be loaded"),
        ({"intermediate_size": None}, "cannot be loaded"),
        ({"model_type": ...}, "has no model_type"),
        ({"model_type": "no-such-kind"}, "cannot be loaded"),
        ({"model_type": ["llama"]}, "has no model_type"),
        ({"pads": [[]] * 600_000}, "has more than 500,000 parts"),
        ({"_attn_implementation": "somebody/kernel"}, "chooses code"),
        ({"model_type": "vit"}, "cannot be loaded"),
    ],
)
def test_absurd_settings_are_refused_quickly_in_one_line(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    start = time.monotonic()
    with pytest.raises(WeightsError) as error:
        read_shape(str(write_model_folder(tmp_path / "m", **changed)))
    assert message in str(error.value) and "\n" not in str(error.value)
    assert time.monotonic() - start < 30


def test_counting_has_a_time_limit() -> None:
    """A model's settings could request a table of arbitrary size."""
    with pytest.raises(TimeoutError, match=r"takes over 0\.1 s, too long"), _time_limit(0.1):
        while True:
            pass


def test_special_files_are_refused_without_waiting(tmp_path: Path) -> None:
    def read_error(make: Any) -> str:
        path = tmp_path / f"m{len(list(tmp_path.iterdir()))}"
        path.mkdir()
        make(path / "config.json")
        with pytest.raises(WeightsError) as error:
            read_shape(str(path))
        return str(error.value)

    assert "is no regular file" in read_error(os.mkfifo)
    assert "is no regular file" in read_error(lambda path: path.symlink_to("/dev/zero"))
    assert "Is a directory" in read_error(Path.mkdir)
    assert "cannot be read" in read_error(lambda path: path.symlink_to(path))
    assert "larger than" in read_error(lambda path: (path.touch(), os.truncate(path, 1 << 40)))
    assert "nested too deeply" in read_error(lambda path: path.write_text('{"a":' * 10**5 + "1" + "}" * 10**5))
    assert "no JSON object" in read_error(lambda path: path.write_text("[1]"))


def test_links_count_as_their_targets(tmp_path: Path) -> None:
    path = write_model_folder(tmp_path / "m")
    (path / "real").write_bytes(b"12345")
    (path / "model-1.safetensors").symlink_to("real")
    (path / "model-2.safetensors").symlink_to("model-2.safetensors")
    (path / "model-3.safetensors").symlink_to("/dev/zero")
    os.mkfifo(path / "model-4.safetensors")
    assert read_shape(str(path))[1] == 5


@pytest.mark.parametrize("name", ["nanoo", "./none", "/none/at/all", "x" * 300, "a\0b", "~nobody/none"])
def test_unknown_model_gives_one_line(name: str) -> None:
    with pytest.raises(WeightsError, match="no model"):
        read_shape(name)


def test_failed_hub_download_gives_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    def fail(*arguments: Any) -> str:
        raise LocalEntryNotFoundError("there is no network\nand more")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)
    with pytest.raises(WeightsError, match=r"could not be fetched from the hub \(there is no network\)$"):
        read_shape("somebody/something")
