"""The map of strategies of a run: what kinds of match there are, and how much of each is played when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from analysis.frames import Frames, load
from analysis.page.texts import harmless
from analysis.texts import Embedding
from arena.errors import ConfigError, StoreError

LEVEL = 0.05
"""Of a change that is mentioned."""
EXEMPLAR = 160


def strategies(run: Frames | Path, embedding: Embedding = "hashed") -> dict[str, Any] | None:
    """Clusters of whole matches by what was said; None where nothing was, or where it cannot be made."""
    from analysis.maps import strategy_map

    log = run if isinstance(run, Frames) else load(run)
    try:
        found = strategy_map(log, embedding=embedding)
    except StoreError:
        return None
    except ConfigError:
        if embedding == "minilm":  # which somebody asked for
            raise
        return None
    change, rows, columns = found.change, found.rows, found.shares.columns
    kinds = zip(found.clusters["exemplar"], found.clusters["size"], strict=True)
    return {
        "by": "meaning" if embedding == "minilm" else "words",
        "change": change and change.p <= LEVEL and {"iteration": change.iteration, "p": f"{change.p:.3f}"},
        "iterations": [int(k) for k in found.shares.index],
        "shares": [found.shares[name].astype("float64").tolist() for name in columns],
        "places": _places(rows[["x", "y", "cluster"]].astype("float64").to_numpy().tolist()),
        "kinds": [
            (harmless(" / ".join(str(text).splitlines()), EXEMPLAR), f"{size / len(rows):.0%}") for text, size in kinds
        ],
    }


def _places(rows: list[list[float]]) -> list[tuple[float, float, int]]:
    """Place of each text in a square of one unit, and its kind; those that would cover each other are one."""
    ends = [(min(column), max(column)) for column in list(zip(*rows, strict=True))[:2]]
    x, y = ([round((row[k] - low) / ((high - low) or 1.0), 2) for row in rows] for k, (low, high) in enumerate(ends))
    return list(dict.fromkeys(zip(x, y, (int(row[2]) for row in rows), strict=True)))
