"""The map of strategies on a run's page: what kinds of match there are, and how much of each is played when."""

from __future__ import annotations

from typing import Any

from analysis.frames import Frames
from analysis.page import charts
from analysis.page.svg import SERIES
from analysis.page.texts import harmless
from analysis.texts import Embedding
from arena.errors import ConfigError, StoreError

LEVEL = 0.05
"""Of a change that is mentioned."""
EXEMPLAR = 160


def strategies(log: Frames, embedding: Embedding) -> dict[str, Any] | None:
    """Clusters of whole matches by what was said; None where nothing was, or where it cannot be made."""
    from analysis.maps import strategy_map

    try:
        found = strategy_map(log, embedding=embedding)
    except StoreError:
        return None
    except ConfigError:
        if embedding == "minilm":  # which somebody asked for
            raise
        return None
    change = found.change
    rows = found.rows
    table = rows[["x", "y", "cluster"]].astype("float64").to_numpy().tolist()
    places = [(x, y, int(cluster)) for x, y, cluster in table]
    numbers = [int(k) for k in found.shares.index]
    columns = [found.shares[name].astype("float64").tolist() for name in found.shares.columns]
    return {
        "by": "meaning" if embedding == "minilm" else "words",
        "change": change and change.p <= LEVEL and {"iteration": change.iteration, "p": f"{change.p:.3f}"},
        "shares": charts.shares(numbers, columns),
        "cloud": charts.cloud(places),
        "kinds": [
            (place % SERIES + 1, harmless(" / ".join(str(text).splitlines()), EXEMPLAR), f"{size / len(rows):.0%}")
            for place, (text, size) in enumerate(zip(found.clusters["exemplar"], found.clusters["size"], strict=True))
        ],
    }
