"""The interface of players: a player gets a View when it is to move and answers with an Act."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from games.contracts import Act, View

PREFIXES = ("endpoint:", "endpoint@")
"""Prefixes of a model behind an OpenAI-compatible endpoint: endpoint:MODEL, or endpoint@SERVER:MODEL."""


class ScriptedPolicy(Protocol):
    """A scripted policy without weights, at one seat for one match."""

    def act(self, view: View) -> str:
        """The action text that the game reads."""
        ...


@runtime_checkable
class Chances(Protocol):
    """A memoryless scripted policy: it gives the probabilities of its next acts from what it sees now."""

    def chances(self, view: View) -> Mapping[str, float]:
        """Return the probability of each of its acts; they sum to 1."""
        ...


@runtime_checkable
class SumsUp(Protocol):
    """A scripted policy that can sum up its past, for seats with memory `summary`."""

    def summary(self, view: View) -> str:
        """Everything worth keeping of what was seen before this view."""
        ...


class Player(Protocol):
    """A player at a seat, for one match."""

    async def act(self, view: View) -> Act:
        """Answers one view with one act; never raises for what the view's text contains.

        Who never waits for anything may say so, `waits = False`: then nobody watches the clock, which takes time too.
        """
        ...
