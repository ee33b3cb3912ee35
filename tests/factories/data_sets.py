"""Data sets for tests, and experiments that learn from them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.sources import set_layer, text_layer

SOURCE = """\
name: taught
iterations: 4
threads: 1
policies: {doctor: {model: nano}}
source: {data: DATA, batch: 8}
learn: {loss: likelihood, regularisers: {kl: {weight: 0}}}
tracker: []
"""
LOSSES = {"pairs": "{dpo: {reference: initial}}", "labels": "kto"}


def make_chats(count: int) -> list[dict[str, Any]]:
    """Return chats of one exchange, of different lengths."""
    return [
        {
            "messages": [
                {"role": "user", "content": f"take {i % 3}"},
                {"role": "assistant", "content": " ".join(["offer", str(i % 3), *["and"] * (i % 4)])},
            ]
        }
        for i in range(count)
    ]


def make_pairs(count: int) -> list[dict[str, Any]]:
    """Return preference pairs in which an offer is better than a refusal."""
    return [
        {"prompt": f"take {i % 3}", "chosen": f"offer {i % 3} 0", "rejected": ["walk", "no deal"][i % 2]}
        for i in range(count)
    ]


def make_labels(count: int) -> list[dict[str, Any]]:
    """Return labelled completions, of which offers are desirable."""
    return [
        {"prompt": f"take {i % 3}", "completion": f"offer {i} 0" if i % 2 else f"walk {i}", "label": bool(i % 2)}
        for i in range(count)
    ]


def write_rows(path: Path, rows: Iterable[Any]) -> Path:
    """Write rows to a JSON Lines file, texts as they are, and return its path."""
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def make_data_experiment(data: Path, kind: str = "chats", *assignments: str) -> Experiment:
    """Return an experiment in which a nano policy learns from a data set of this kind."""
    layers = [text_layer("test", SOURCE.replace("DATA", str(data)))]
    if kind in LOSSES:
        layers += [set_layer(f"learn.loss={LOSSES[kind]}"), set_layer("learn.aggregate=turn_mean")]
    return compose([*layers, *map(set_layer, assignments)])
