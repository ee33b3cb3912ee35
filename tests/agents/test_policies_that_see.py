"""Built-in vision policies: nano-vlm and SmolLM2 with vision, unsampled placeholders, and adapters on both."""

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as Pixels
from transformers import LlamaConfig, LlamaForCausalLM

from agents import nano, nano_vlm, smollm2_eyes, weights
from agents.adapter import create_adapter, load_adapter, save_adapter
from agents.adapter_config import AdapterSpec
from agents.engines.base import Request
from agents.engines.in_process import InProcessEngine
from agents.errors import WeightsError
from agents.model_folder import check_folder, load_model
from agents.policy import load_module, load_tokenizer_and_frame
from agents.published import ModuleWeights
from agents.scoring import StreamScorer, score_with_entropy
from agents.stream import MediaSpan, Stream
from arena.cli.loop import wait
from games.contracts import Image


def make_picture(seed: int, size: int = 48) -> tuple[Image, bytes]:
    """Return a random picture and its bytes."""
    file = io.BytesIO()
    Pixels.fromarray(np.random.default_rng(seed).integers(0, 255, (size, size, 3), dtype=np.uint8)).save(file, "PNG")
    data = file.getvalue()
    return Image(hashlib.sha256(data).hexdigest(), "image/png", size, size), data


def make_stream(folder: Path, text: str = "find red circle", seed: int = 0) -> Stream:
    """Return a stream in which a policy reads a text and a picture."""
    frame = load_tokenizer_and_frame(folder)[1]
    image, data = make_picture(seed)
    stream, ids = Stream(), [*frame.open(""), *frame.ask((text, image))]
    assert frame.image
    span = MediaSpan(ids.index(frame.image.id), frame.image.tokens, image.hash, data)
    stream.observe(ids, [span])
    return stream


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARENA_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def small_policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a small language model with SmolLM2's reserved token, and its vision policy."""
    parent = tmp_path_factory.mktemp("small")
    source, folder = parent / "source", parent / "eyes"
    tokenizer = nano.build_nano_tokenizer()
    tokenizer.add_tokens([smollm2_eyes.IMAGE], special_tokens=True)
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **nano.SHAPE, **ends)).save_pretrained(source)
    tokenizer.save_pretrained(source)
    smollm2_eyes.build_smollm2_eyes(folder, source, 3)
    check_folder(folder)
    return folder


def test_nano_vlm_is_made_by_its_seed(home: Path) -> None:
    first, repeated, second = (weights.resolve(name) for name in ("nano-vlm", "nano-vlm-0", "nano-vlm-1"))
    files = [
        hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest() for folder in (first, repeated, second)
    ]
    assert files[0] == files[1] != files[2]
    assert sum(p.numel() for p in load_module(first).parameters()) == nano_vlm.PARAMETERS
    infos = {info.name: info for info in weights.list_models()}
    assert infos["nano-vlm"].state == infos["nano-vlm-1"].state == "ready"
    with pytest.raises(WeightsError, match="did you mean 'nano-vlm'"):
        weights.resolve("nano-vml")


def test_other_nano_policies_are_unchanged() -> None:
    assert (nano.SIZES["nano"].recipe, nano.SIZES["nano5m"].recipe) == ("61036fdc", "976eb540")
    assert (
        hashlib.sha256(nano.build_nano_tokenizer().backend_tokenizer.to_str().encode()).hexdigest()[:16]
        == "9504d31b061fc450"
    )


def test_the_words_of_scenes_are_single_tokens(home: Path) -> None:
    frame = load_tokenizer_and_frame(weights.resolve("nano-vlm"))[1]
    for word in [*nano_vlm.WORDS.split(), *nano_vlm.LETTERS, *"0123456789"]:
        assert len(frame.encode(word)) == 1 and len(frame.encode(f" {word}")) == 1, word
    for text in ("find red circle", "A1 Ünfamiliar <image>\n", " none  "):
        assert frame.decode(frame.encode(text)) == text and not {*frame.encode(text)} & frame.control_ids
    assert frame.image and frame.image.tokens == 9 and frame.image.id in frame.control_ids


def test_the_placeholder_is_never_sampled(home: Path) -> None:
    """Not even if its logit is the highest; engine and scorer agree on the other probabilities."""
    folder = weights.resolve("nano-vlm")
    model, frame = load_module(folder), load_tokenizer_and_frame(folder)[1]
    assert frame.image
    stream = make_stream(folder)
    with torch.no_grad():
        hidden = model.base_model.text_model(torch.tensor([stream.ids])).last_hidden_state[0, -1]
        model.lm_head.weight[frame.image.id] = 100 * hidden / hidden.norm()

    async def sample() -> Any:
        engine = InProcessEngine(entropy=True)
        await engine.publish("one", 1, ModuleWeights(model))
        request = Request(
            policy="one", ids=tuple(stream.ids), media=tuple(stream.media), key="k", max_tokens=64,
            temperature=1.0, top_p=1.0, top_k=0, stop_ids=frozenset(), seed=(1,),
        )  # fmt: skip
        return (await engine.generate([request]))[0]

    completions = wait(sample())
    assert frame.image.id not in completions.ids and np.isfinite(completions.entropy).all()
    stream.append_sampled(completions.ids, completions.logprobs, 0, completions.entropy)
    (scores,) = score_with_entropy(StreamScorer(model), [stream], [1.0])
    assert scores.logprobs == pytest.approx(completions.logprobs, abs=1e-4)
    assert scores.entropy == pytest.approx(completions.entropy, abs=1e-4)


def test_adding_vision_keeps_the_language_model(small_policies: Path, tmp_path: Path) -> None:
    seeing = load_model(small_policies)
    language = LlamaForCausalLM(LlamaConfig(**seeing.config.text_config.to_diff_dict()))
    language.model.load_state_dict(seeing.model.text_model.state_dict())
    language.tie_weights()
    ids = torch.tensor([[3, 50, 400, 7]])
    with torch.no_grad():
        assert torch.equal(seeing(input_ids=ids).logits, language.eval()(input_ids=ids).logits)
    assert seeing.lm_head.weight is seeing.model.text_model.embed_tokens.weight
    repeated = tmp_path / "again"
    smollm2_eyes.build_smollm2_eyes(repeated, small_policies.parent / "source", 3)
    assert (repeated / "model.safetensors").read_bytes() == (small_policies / "model.safetensors").read_bytes()


def test_adapter_skips_the_vision_encoder_and_round_trips(small_policies: Path, tmp_path: Path) -> None:
    base, stream = load_module(small_policies, frozen=True), make_stream(small_policies)
    frame = load_tokenizer_and_frame(small_policies)[1]
    stream.append_sampled(frame.encode("A"), [0.0], 0)
    model = create_adapter(base, AdapterSpec(rank=2), 1)
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    assert names and all("text_model" in name for name in names)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".b"):
                parameter.normal_()
    save_adapter(model, tmp_path / "adapter", str(small_policies))
    (first,), (second,), (plain,) = (
        score_with_entropy(StreamScorer(m), [stream], [1.0])
        for m in (model, load_adapter(load_module(small_policies, frozen=True), tmp_path / "adapter"), base)
    )
    assert first.logprobs == second.logprobs != plain.logprobs


@pytest.mark.slow
def test_smollm2_with_vision_writes_as_smollm2() -> None:
    folder = weights.resolve(smollm2_eyes.NAME)
    seeing, language = load_model(folder), load_model(weights.resolve(weights.DEFAULT))
    assert sum(p.numel() for p in seeing.parameters()) == smollm2_eyes.PARAMETERS
    frame = load_tokenizer_and_frame(folder)[1]
    ids = torch.tensor([[*frame.open("Be brief."), *frame.ask("What is red?")]])
    assert ids[0].tolist() == [
        *frame.open("Be brief."),
        *load_tokenizer_and_frame(weights.resolve(weights.DEFAULT))[1].ask("What is red?"),
    ]
    with torch.no_grad():
        assert torch.equal(seeing(input_ids=ids).logits, language(input_ids=ids).logits)
