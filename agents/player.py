"""Interfaces of players and scripted policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from games.contracts import Act, View

PREFIXES = ("endpoint:", "endpoint@")
"""Prefixes of players that are models behind an OpenAI-compatible endpoint: endpoint:MODEL, endpoint@SERVER:MODEL."""


class ScriptedPolicy(Protocol):
    """Protocol of a policy without weights that plays one seat for one match."""

    def act(self, view: View) -> str:
        """Return the seat's next act as text for the game. `view` is what the seat sees now."""
        ...


@runtime_checkable
class Chances(Protocol):
    """Protocol of a memoryless scripted policy that can state the probabilities of its acts."""

    def chances(self, view: View) -> Mapping[str, float]:
        """Return the probability of each act that the policy may choose at this view; they sum to 1."""
        ...


@runtime_checkable
class Summariser(Protocol):
    """Protocol of a scripted policy that can summarise its past, for seats with memory `summary`."""

    def summary(self, view: View) -> str:
        """Return a text that summarises everything the seat saw before this view."""
        ...


class Player(Protocol):
    """Player of one seat in one match: a model, a scripted policy, an agent program or a person."""

    async def act(self, view: View) -> Act:
        """Return the seat's next act. Never raises because of the view's text.

        A player that never awaits may set `waits = False`, so that the orchestrator skips the overhead of a timeout.
        """
        ...
