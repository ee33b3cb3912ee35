"""Interfaces that the kinds of the prover implement: a proof in progress, and a source of theorems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from simulators.base import Simulator


class Step(NamedTuple):
    """Effect of an act on a proof."""

    act: str
    """Normal form of the act."""
    refusal: str
    """Reason why the act changed nothing; "" if it changed the proof."""


class Proof(Protocol):
    """Proof of a theorem in progress. `copy.deepcopy` returns an independent copy."""

    family: str
    """Group of similar theorems; the split is by family."""
    hidden_proof: Sequence[str]
    """Acts that prove the theorem from its start."""

    @property
    def is_proved(self) -> bool:
        """Whether no goal is left."""

    @property
    def goal(self) -> str:
        """The goal in focus as text; "" after the proof."""

    def facts(self) -> dict[str, Any]:
        """Return the public facts of this kind, JSON-able, by name."""

    def situation(self) -> str:
        """Return all open goals and lemmas as text, equal for proofs with the same future."""

    def apply(self, act: str) -> Step:
        """Play an act, which may change nothing. Raises ValueError, with the reason, for invalid text."""

    def hint(self) -> str:
        """Return an act that leads along the hidden proof or back to it; "" if none is known."""

    def draw_act(self, rng: np.random.Generator) -> str:
        """Return a random well-formed act, regardless of the goal."""

    def draw_likely_act(self, rng: np.random.Generator) -> str:
        """Return a random act that often changes this proof."""


class Kind(Protocol):
    """Kind of prover: a source of theorems with its rules."""

    def rules(self, terse: bool) -> str:
        """Return the rules as text, in few words if `terse`."""

    def deal(self, game: Simulator, rng: np.random.Generator) -> Proof:
        """Draw a theorem of the game's split and return its proof, not yet begun."""
