"""The base class of simulators: games with a hidden record, a verifiable outcome, and their own yardsticks.

The world is a function of the options and the match's seed. What is hidden belongs to an entity (a patient, a
customer, a task); train and test are split by that entity, never by row, so that nobody is met in both.
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
"""Entities drawn before a split counts as empty."""


class SimulatorFault(Exception):
    """A fault of the simulator itself. Raised out of `step` it fails the match with this reason: never a score of 0."""


Answer = Callable[[View], str]
"""A scripted player of one seat in one match: from what it is shown to its act."""


class Simulator(TextGame):
    """A text game with a hidden record; a subclass is a domain.

    Options besides TextGame's: split "train", "test" or "all"; persona, the simulated person's, one of `personas` or
    "mixed" (a part of the record), where there are persons. Anything else raises ValueError.

    Its report holds `score`, the share of what could be had, in [0, 1], and `success`. Its `players` make scripted
    players from the match's own game, which may not be reset yet, and a seed: at least `noop` (does nothing, scores at
    most 0.02), `random` (a success rate near `floor`) and `oracle` (who knows the record: always 1).
    """

    rivals = False
    split: Literal["train", "test", "all"]
    personas: ClassVar[tuple[str, ...]] = ()
    """The first is the default."""

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
        """Starts a match."""
        self.invalid = 0
        super().reset(seed, options)

    def report(self) -> dict[str, float | bool | str]:
        """As of every game, and `invalid`, the acts that could not be played."""
        return {**super().report(), "invalid": self.invalid}

    def _refuse(self, seat: str, action: object, why: str) -> None:
        self.invalid += 1
        super()._refuse(seat, action, why)

    @property
    def floor(self) -> float:
        """The share of matches in which the random player succeeds, as the rules imply it."""
        raise NotImplementedError

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """For every secret that the first seat has not been told by now, the texts that would give it away.

        A name, its synonyms and paraphrases: none may occur in the messages and facts that it sees.
        """
        return {}

    def draw_entity(self, draw: Callable[[], Any], key: Callable[[Any], str]) -> Any:
        """The first entity of the option's split that `draw` gives; `key` names what an entity is, as text."""
        for _ in range(DRAWS):
            entity = draw()
            if self.split == "all" or held_out(f"{self.name}:{key(entity)}") == (self.split == "test"):
                return entity
        raise SimulatorFault(f"{self.name}: none of {DRAWS} entities is in the split {self.split}")

    def draw_persona(self, rng: np.random.Generator) -> str:
        """The persona of this match: the option's, or any of them where it is mixed."""
        return str(rng.choice(list(self.personas))) if self.persona == MIXED else str(self.persona)


def held_out(entity: str) -> bool:
    """Return whether this entity belongs to the test split: about one in five, by a hash that is equal everywhere."""
    digest = hashlib.blake2b(entity.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % TEST_SHARE == 0
