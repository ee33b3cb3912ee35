"""A game of pictures with grounding lessons on labelled colour blocks, and settings to learn them."""

import hashlib
import io
import random
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as Pixels

from agents.weights import resolve
from arena.grounding.training import GroundingLoop
from arena.store.files import CONFIG, write_atomic
from arena.store.run import RunFolder
from games.abilities import GroundingLesson
from games.contracts import Image
from tests.factories.labs import RecordingWatcher
from tests.factories.seeing import COLOURS, SIZE, Colours

CELL = SIZE // 3


class Blocks(Colours):
    """Pictures of one colour to name, and lessons on 3 x 3 cells of colours, some of them empty."""

    lesson_kinds = ("cells", "count", "long", "ragged", "torn", "text")

    def lesson(self, rng: random.Random, kind: str) -> GroundingLesson:
        names = [[rng.choice([*COLOURS, ""]) for _ in range(3)] for _ in range(3)]
        levels = np.full((SIZE, SIZE, 3), 20, np.uint8)
        for row, column in np.ndindex(3, 3):
            if name := names[row][column]:
                levels[row * CELL : (row + 1) * CELL, column * CELL : (column + 1) * CELL] = COLOURS[name]
        levels += np.frombuffer(rng.randbytes(levels.size), np.uint8).reshape(levels.shape) // 16
        file = io.BytesIO()
        Pixels.fromarray(levels).save(file, "PNG")
        data = file.getvalue()
        image = Image(hashlib.sha256(data).hexdigest(), "image/png", SIZE, SIZE)
        labels = tuple(tuple((name or "none",) for name in row) for row in names)
        answer = ""
        if kind == "count":
            answer = str(sum(name == "red" for row in names for name in row))
        if kind == "long":
            labels = ((("unpronounceable",),),)
        if kind == "ragged":
            labels = (labels[0], labels[1][:1])
        if kind == "torn":
            data = data[:-9]
        parts = ("colour", image) if kind != "text" else ("colour",)
        return GroundingLesson(parts, {image.hash: data}, (labels,), answer)


GAME = {"name": f"{__file__}:Blocks", "options": {}}


def make_settings(**changes: Any) -> dict[str, Any]:
    """Return settings of the stage `ground` for a few steps."""
    fields: dict[str, Any] = {
        "policy": "viewer", "kinds": {"cells": 1.0}, "game": GAME, "loss": "tokens", "system": "", "steps": 6,
        "batch": 8, "lessons": 64, "lr": 1e-3, "warmup_steps": 2, "decay": 0.1, "grad_clip": 1.0, "held_out": 8,
        "nonfinite": "stop", "iterations": 3, "model": "nano-vlm", "seed": 7, "bf16": False, "keep": 9,
    }  # fmt: skip
    return fields | changes


def make_grounding(folder: Path, watcher: RecordingWatcher | None = None, **changes: Any) -> GroundingLoop:
    """Return the grounding loop of a folder, new or resumed."""
    folder.mkdir(exist_ok=True)
    write_atomic(folder / CONFIG, "ground: {}\n")
    settings = make_settings(**changes)
    return GroundingLoop(RunFolder.open(folder), resolve(settings["model"]), settings, watcher or RecordingWatcher())
