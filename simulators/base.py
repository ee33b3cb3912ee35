"""Base class of simulators: games with a hidden record, a verifiable outcome and reference players.

The options and the match's seed determine the world. Hidden facts belong to an entity (a patient, a customer, a task).
The train/test split is by entity, so that no entity occurs in both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from games.base import TextGame, choice
from games.contracts import View

Entity = TypeVar("Entity")
MIXED = "mixed"
TEST_SHARE = 5
"""One entity in this many belongs to the test split."""
DRAWS = 10_000
"""Number of unsuccessful draws after which a split counts as empty."""


class SimulatorFault(Exception):
    """Raised for a fault of the simulator itself. The match then fails with this reason instead of scoring 0."""


Script = Callable[[View], str]
"""Scripted player of one seat in one match: a function from views to acts."""
PAYS: Mapping[str, Callable[[float], float]] = {"hard": lambda s: 1.0 - s, "frontier": lambda s: 4.0 * s * (1.0 - s)}
"""Reward of a task's proposer for the solve rate s: decreasing as in SSP, or largest at s = 1/2."""


def silent(game: object, seed: int) -> Script:
    """Return a player that always writes an empty text."""
    return lambda view: ""


class Simulator(TextGame):
    """Base class of text games with a hidden record (a patient's disease, say); a subclass is one domain.

    Options in addition to TextGame's: `split` is "train", "test" or "all"; `persona` is one of `personas` or "mixed"
    (drawn per match), if the domain simulates persons. Invalid values raise ValueError.

    A subclass's report contains `score`, the achieved share of the maximum, in [0, 1], and `success`. Its `players` are
    factories that take the match's game (possibly before its reset) and a seed; at least `noop` (does nothing, mean
    score at most 0.02), `random` (success rate near `floor`) and `oracle` (knows the record, always scores 1).
    """

    rivals = False
    split: Literal["train", "test", "all"]
    personas: ClassVar[tuple[str, ...]] = ()
    """Names of personas; the first is the default."""

    def __init__(
        self, *, split: Literal["train", "test", "all"] = "all", persona: str | None = None, **options: Any
    ) -> None:
        self.split = choice("split", split, "train", "test", "all")
        if persona is not None:
            if not self.personas:
                raise ValueError(f"leave the option `persona` out: {self.name} simulates no person")
            choice("persona", persona, *self.personas, MIXED)
        self.persona = persona if persona or not self.personas else self.personas[0]
        super().__init__(**options)

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Start a match as TextGame does, with `invalid`, the count of illegal acts, at 0."""
        self.invalid = 0
        super().reset(seed, options)

    def report(self) -> dict[str, float | bool | str]:
        """Return TextGame's report and `invalid`, the count of illegal acts. Raises RuntimeError before the end."""
        return {**super().report(), "invalid": self.invalid}

    def _refuse(self, seat: str, action: object, reason: str) -> None:
        self.invalid += 1
        super()._refuse(seat, action, reason)

    @property
    def floor(self) -> float:
        """Expected success rate of the scripted player `random`, in [0, 1]. Every subclass must define it."""
        raise NotImplementedError

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """Return the texts that would reveal each secret (names, synonyms, paraphrases), by a label of the secret.

        Only secrets that the first seat does not know yet are included. None of the texts may occur in the messages and
        facts that this seat sees; the conformance check `leaks` tests that. By default there are no secrets.
        """
        return {}

    def draw_entity(self, draw: Callable[[], Entity], key: Callable[[Entity], str]) -> Entity:
        """Call `draw` until it returns an entity (a patient or task, say) of the game's split, and return that entity.

        `key` returns an entity's identity as text; its hash decides between train and test. With split "all" the first
        entity is returned. Raises SimulatorFault after 10,000 draws.
        """
        for _ in range(DRAWS):
            entity = draw()
            if self.split == "all" or is_held_out(f"{self.name}:{key(entity)}") == (self.split == "test"):
                return entity
        raise SimulatorFault(f"{self.name}: none of {DRAWS} entities is in the split {self.split}")

    def draw_persona(self, rng: np.random.Generator) -> str:
        """Return the name of this match's persona: the option's, or one drawn uniformly if the option is "mixed"."""
        return str(rng.choice(list(self.personas))) if self.persona == MIXED else str(self.persona)


def is_held_out(entity: str) -> bool:
    """Return True if this identity's hash assigns it to the test split: about one in five, on all machines alike."""
    digest = hashlib.blake2b(entity.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % TEST_SHARE == 0
