"""A world: a graph of facts about invented things, a function of its seed and size."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np

from simulators.search.names import invent, invent_terse
from simulators.search.relations import DIGITS, KINDS, MISSING, NUMBERS, RELATIONS

LEAST, MOST = 20, 100_000


class World:
    """Facts of all pages, in a networkx graph: nodes are names, an edge's key is its relation.

    Numbers and the kind are attributes of a node.
    """

    def __init__(self, size: int, seed: int, terse: bool = False) -> None:
        rng = np.random.default_rng([seed, size, terse])
        counts = {kind: max(2, round(size * each.share)) for kind, each in KINDS.items()}
        counts["person"] += size - sum(counts.values())
        self.terse = terse
        self.of_kind: dict[str, list[str]] = (invent_terse if terse else invent)(counts, rng)
        self.graph: Any = nx.MultiDiGraph()
        for kind, names in self.of_kind.items():
            self.graph.add_nodes_from(names, kind=kind)
        self.names: tuple[str, ...] = tuple(self.graph)
        for name, relation in RELATIONS.items():
            self._state(name, self.of_kind[relation.source], relation.target, rng)

    def _state(self, relation: str, sources: list[str], target: str, rng: np.random.Generator) -> None:
        """State a relation, or a number, of most things of a kind; a person's mentor comes before it in the list."""
        missing = rng.random(len(sources)) < MISSING
        if not target:
            low, high = NUMBERS[relation] if not self.terse else DIGITS
            values = rng.integers(low, high + 1, size=len(sources)).tolist()
            for source, value, lacks in zip(sources, values, missing, strict=True):
                if not lacks:
                    self.graph.nodes[source][relation] = str(value)
            return
        targets = self.of_kind[target]
        chance = rng.random(len(sources))
        for place, (source, lacks) in enumerate(zip(sources, missing, strict=True)):
            last = place if relation == "mentor" else len(targets)
            if not lacks and last:
                self.graph.add_edge(source, targets[int(chance[place] * last)], key=relation)

    def kind(self, name: str) -> str:
        """Return the kind of this thing; "" where there is none of the name."""
        return str(self.graph.nodes[name]["kind"]) if name in self.graph else ""

    def value(self, name: str, relation: str) -> str:
        """Return what a relation or number of a thing is; "" where no page says so."""
        if name not in self.graph:
            return ""
        if relation in NUMBERS:
            return str(self.graph.nodes[name].get(relation, ""))
        return next((other for other, keys in self.graph.adj[name].items() if relation in keys), "")

    def subjects(self, name: str, relation: str) -> frozenset[str]:
        """Return the things whose relation is this one."""
        if name not in self.graph:
            return frozenset()
        return frozenset(other for other, keys in self.graph.pred[name].items() if relation in keys)

    def facts(self, name: str) -> dict[str, str]:
        """All that is known of a thing, by relation or number, in the order of `RELATIONS`."""
        found = {relation: self.value(name, relation) for relation in _of_kind(self.kind(name))}
        return {relation: value for relation, value in found.items() if value}


def _of_kind(kind: str) -> list[str]:
    return [name for name, relation in RELATIONS.items() if relation.source == kind]
