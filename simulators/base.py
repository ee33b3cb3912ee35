"""Base class of simulators: games with a hidden record, a verifiable outcome and reference players.

The world is a function of the options and the match's seed. Hidden facts belong to an entity (a patient, a customer, a
task). The train/test split is by entity, never by row, so that no entity occurs in both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from games.base import TextGame
from games.contracts import View

MIXED = "mixed"
TEST_SHARE = 5
"""One entity in this many belongs to the test split."""
DRAWS = 10_000
"""Draws after which a split counts as empty."""


class SimulatorFault(Exception):
    """Raised for a fault of the simulator itself. It fails the match with this reason instead of scoring 0."""


Answer = Callable[[View], str]
"""Scripted player of one seat in one match: a function from views to acts."""


class Simulator(TextGame):
    """Base class of text games with a hidden record; a subclass is a domain.

    Options besides TextGame's: split "train", "test" or "all"; persona, one of `personas` or "mixed" (drawn per match),
    if the domain has persons. Anything else raises ValueError.

    The report contains `score`, the achieved share of the maximum, in [0, 1], and `success`. `players` are factories
    that take the match's game (possibly before its reset) and a seed; at least `noop` (does nothing, scores at most
    0.02), `random` (a success rate near `floor`) and `oracle` (knows the record, always scores 1).
    """

    rivals = False
    split: Literal["train", "test", "all"]
    personas: ClassVar[tuple[str, ...]] = ()
    """Names of personas; the first is the default."""

    def __init__(
        self, *, split: Literal["train", "test", "all"] = "all", persona: str | None = None, **options: Any
    ) -> None:
        if split not in ("train", "test", "all"):
            raise ValueError(f'split must be "train", "test" or "all", not {split!r}')
        known = (*self.personas, MIXED) if self.personas else ()
        if persona is not None and persona not in known:
            expected = f"one of {', '.join(known)}" if known else f"left out: {self.name} simulates no person"
            raise ValueError(f"persona must be {expected}, not {persona!r}")
        self.split = split
        self.persona = persona if persona or not self.personas else self.personas[0]
        super().__init__(**options)

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Start a match and reset the count of invalid acts."""
        self.invalid = 0
        super().reset(seed, options)

    def report(self) -> dict[str, float | bool | str]:
        """Return the game's report and `invalid`, the number of illegal acts."""
        return {**super().report(), "invalid": self.invalid}

    def _refuse(self, seat: str, action: object, why: str) -> None:
        self.invalid += 1
        super()._refuse(seat, action, why)

    @property
    def floor(self) -> float:
        """Success rate of the random player implied by the rules."""
        raise NotImplementedError

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """Return, for each secret still unknown to the first seat, the texts that would reveal it: names, synonyms,
        paraphrases.

        None of them may occur in the messages and facts that this seat sees.
        """
        return {}

    def draw_entity(self, draw: Callable[[], Any], key: Callable[[Any], str]) -> Any:
        """Draw entities until one belongs to the split, and return it. `key` returns an entity's identity as text."""
        for _ in range(DRAWS):
            entity = draw()
            if self.split == "all" or held_out(f"{self.name}:{key(entity)}") == (self.split == "test"):
                return entity
        raise SimulatorFault(f"{self.name}: none of {DRAWS} entities is in the split {self.split}")

    def draw_persona(self, rng: np.random.Generator) -> str:
        """Return the persona of this match: the option's, or a random one if it is "mixed"."""
        return str(rng.choice(list(self.personas))) if self.persona == MIXED else str(self.persona)


def held_out(entity: str) -> bool:
    """Return True if this entity belongs to the test split: about one in five, by a hash that is equal on
    all machines.
    """
    digest = hashlib.blake2b(entity.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % TEST_SHARE == 0
