"""Load a clinic's table by the option `source`. Simulation only, never advice."""

from __future__ import annotations

import functools
from typing import NamedTuple

from games.base import choice, whole_number
from simulators.clinic import networks, orphanet
from simulators.clinic.signs import MAX_DISEASES, SYMPTOMS
from simulators.clinic.synthetic import invent_table
from simulators.clinic.table import Table

SYNTHETIC, ORPHANET = "synthetic", "orphanet"
PGMPY = {f"pgmpy:{name}": name for name in networks.NETWORKS}
SOURCES = (SYNTHETIC, *PGMPY, ORPHANET)
DISEASES = 20


class Key(NamedTuple):
    """Cache key of a table: everything that determines it."""

    source: str
    seed: int = 0
    diseases: int = DISEASES
    symptoms: int = len(SYMPTOMS)


def make_key(source: str, seed: int, diseases: int | None, symptoms: int | None) -> Key:
    """Validate the options of a table and return its cache key. None means the default of 20 diseases or 44 symptoms.

    Raises ValueError for an unknown source, an invalid size, or a size of a published network, which is fixed.
    """
    choice("source", source, *SOURCES)
    if source in PGMPY:
        if (diseases, symptoms, seed) != (None, None, 0):
            raise ValueError(f"{source} has its own diseases and symptoms: leave out diseases, symptoms and table")
        return Key(source)
    limits = (MAX_DISEASES, len(SYMPTOMS)) if source == SYNTHETIC else (orphanet.MAX_DISEASES, orphanet.MAX_SIGNS)
    return Key(
        source,
        whole_number("table", seed, 0),
        whole_number("diseases", DISEASES if diseases is None else diseases, 2, limits[0]),
        whole_number("symptoms", len(SYMPTOMS) if symptoms is None else symptoms, 8, limits[1]),
    )


@functools.cache
def load_table(key: Key) -> Table:
    """Return the cached table of this key. Raises ValueError if the source's package is not installed."""
    if key.source in PGMPY:
        return networks.build_table(PGMPY[key.source])
    build = invent_table if key.source == SYNTHETIC else orphanet.build_table
    return build(key.seed, key.diseases, key.symptoms)
