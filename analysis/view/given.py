"""Functions that the command gives the page, of rooms that the analysis does not import."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from analysis.page.matches import Dealt
from analysis.view.tokens import Pieces

Rows = list[dict[str, Any]]


class Given(NamedTuple):
    """Functions by what they tell; without one the page does without what it tells."""

    dealt: Dealt | None = None
    """The deal of a match."""
    theory: Callable[[str], Mapping[str, float]] | None = None
    """What a game states about itself."""
    judged: Callable[[Path, str, int], Rows] | None = None
    """From a run, an estimator and an iteration to its turns with their advantages."""
    estimators: Callable[[], Sequence[Mapping[str, str]]] | None = None
    """All estimators, with a line on each."""
    pieces: Pieces | None = None
    """Texts of tokens."""
    arena: Sequence[str] = ()
    """How `arena` is begun as a child of this process; () where it cannot be."""
