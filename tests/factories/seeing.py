"""A game of pictures, and a random vision model of a million parameters."""

import hashlib
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image as Pixels

from agents.nano import SHAPE, build_nano_tokenizer
from games.base import IllegalAct, TextGame
from games.contracts import Image, View

IMAGE, SIZE, TOKENS = "<image>", 48, 9
COLOURS = {"red": (220, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 220)}


class Colours(TextGame):
    """Game in which a seat names the colours of pictures, one after the other.

    `change` is added to one level of a pixel; `fault` spoils the pictures' bytes.
    """

    name = "colours"
    seats = ("viewer",)
    metadata: ClassVar[dict[str, Any]] = {"name": "colours_v0"}
    players: Mapping[str, Callable[[Any, int], Callable[[View], str]]] = {
        "namer": lambda game, seed: lambda view: str(game.colours[game.turns])
    }

    def __init__(self, change: int = 0, rounds: int = 2, fault: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.change, self.rounds, self.fault = change, rounds, fault

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        self.colours = [str(rng.choice(list(COLOURS))) for _ in range(self.rounds)]
        self.pictures: dict[str, bytes] = {}
        self.noise = rng.integers(0, 30, (self.rounds, SIZE, SIZE, 3), dtype=np.uint8)
        self.show(0)

    def show(self, number: int) -> None:
        levels = self.noise[number] + np.array(COLOURS[self.colours[number]], np.uint8)
        levels[0, 0, 0] += self.change
        file = io.BytesIO()
        Pixels.fromarray(levels).save(file, "PNG")
        data = {"svg": b"<svg/>", "torn": file.getvalue()[:200]}.get(self.fault, file.getvalue())
        image = Image(hashlib.sha256(data).hexdigest(), "image/png", SIZE, SIZE)
        self.pictures[image.hash] = data
        self.tell("What colour is this?", images=[image])

    def rules(self) -> str:
        return "Name the colour: red, green or blue."

    def public(self) -> dict[str, Any]:
        return {}

    def play(self, seat: str, act: str) -> str:
        if not act.strip():
            raise IllegalAct("say a colour")
        self.pay(seat, "right", float(act.strip() == self.colours[self.turns]))
        if self.turns == self.rounds - 1:
            self.end("seen", "That was all.")
        else:
            self.show(self.turns + 1)
        return act.strip()

    def picture(self, hash: str) -> bytes:
        return b"" if self.fault == "none" else self.pictures[hash]


def save_vision_model(folder: Path, seed: int = 0) -> Path:
    """Write a random SmolVLM of a million parameters, with nano's tokenizer and 9 tokens per image, to a folder."""
    from transformers import SmolVLMConfig, SmolVLMForConditionalGeneration

    tokenizer = build_nano_tokenizer()
    tokenizer.add_tokens([IMAGE], special_tokens=True)
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    text = {"model_type": "llama", "vocab_size": len(tokenizer), **SHAPE, "eos_token_id": end, "pad_token_id": pad}
    vision = {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
        "image_size": SIZE, "patch_size": 8,
    }  # fmt: skip
    config = SmolVLMConfig(
        vision_config=vision, text_config=text, scale_factor=2, image_token_id=tokenizer.convert_tokens_to_ids(IMAGE),
        tie_word_embeddings=False, pad_token_id=pad, eos_token_id=end, initializer_range=0.08,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = SmolVLMForConditionalGeneration(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


ROLE = """\
role: viewer
system: "{{ rules }}"
turn: "{% for message in messages %}{{ message.text }} {% endfor %}"
reply: {format: free}
sampling: {max_tokens: 6, temperature: 1.0}
"""


def make_vision_config(folder: Path, seed: int = 0, build: Callable[[Path, int], object] = save_vision_model) -> str:
    """Write a vision model (by `build`) and a role to a folder, and return the YAML of an experiment with them."""
    build(folder / "model", seed)
    (folder / "roles").mkdir(exist_ok=True)
    (folder / "roles" / "viewer.yaml").write_text(ROLE)
    return f"""\
name: seeing
iterations: 2
threads: 1
roles: {folder / "roles"}
game: {{name: "{__file__}:Colours"}}
policies:
  shared:
    model: {folder / "model"}
    imitate: {{scripted: [namer], matches: 16, epochs: 6, minibatches: 2, lr: 3e-3}}
seats: {{viewer: {{role: viewer, policy: shared}}}}
play: {{matches: 8, in_flight: 8, group: 4}}
learn: {{lr: 1e-3, minibatches: 2, gate_tolerance: 0.001}}
"""
