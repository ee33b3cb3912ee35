"""A run as one page of HTML that needs nothing else: the viewer's own, with the answers in it that it would ask for.

All texts are a model's or a stranger's and can only be read (`analysis.view.bundle`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis.frames import Frames, load
from analysis.page.matches import Dealt, telling
from analysis.page.strategies import strategies
from analysis.page.summary import Theory, summary
from analysis.texts import Embedding
from analysis.view import listing, notes, runs, whole
from analysis.view.bundle import one_file
from analysis.view.curves import Curves
from analysis.view.index import Index
from analysis.view.match import match
from arena.errors import ConfigError

TEXT, TURNS = 2000, 100
"""Characters of a text that are shown, and turns of a match: nobody reads a page of more, and no browser opens it."""


def report(
    run: Frames | str | Path, embedding: Embedding = "hashed", theory: Theory | None = None, dealt: Dealt | None = None
) -> str:
    """The page of one run, finished or live; StoreError as `load`.

    The map of strategies is by `embedding`, and left out where faiss is not installed. `theory` is what games state of
    themselves, by name; `dealt` tells a match's deal: the page shows both where they are given.

    >>> page = report("runs/latest")
    >>> page.startswith("<!doctype html>"), "<script src" in page
    (True, False)
    """
    log = run if isinstance(run, Frames) else load(run)
    if len(log.readers) != 1:
        raise ConfigError("a report is of one run: name one, or compare them (arena compare)")
    (name,) = log.readers
    answers = _answers(name, log, embedding, theory or {}, dealt)
    return one_file(name, answers["summary"]["sentence"], {"run": name, "answers": answers})


def _answers(name: str, log: Frames, embedding: Embedding, theory: Theory, dealt: Dealt | None) -> dict[str, Any]:
    """Answers by what the page asks of its run."""
    index = Index(log.readers[name])
    while index.refresh():
        pass
    chosen = telling(log)
    listed = listing.listed(index, {}, chosen)
    rows = {row["match"]: row | {"place": chosen[row["match"]]} for row in listed["rows"]}
    return {
        "": runs.about(name, index) | {"live": False},
        "summary": summary(log, theory),
        "curves": _curves(index, theory),
        "alarms": whole.rung(index.reader.path),
        "league": whole.league(index.reader.path),
        "strategies": None if log.matches.empty else strategies(log, embedding),
        "matches": listed | {"rows": [rows[id] for id in chosen], "facets": {"game": [], "status": [], "policy": []}},
        "notes": notes.notes(index),
        **{f"matches/{id}": match(index, id, dealt, TEXT, TURNS) | {"family": [], "notes": []} for id in chosen},
    }


def _curves(index: Index, theory: Theory) -> Mapping[str, Any]:
    """All curves with all their intervals."""
    curves = Curves(index, lambda game: theory.get(game, {}))
    curves.charts()
    while (told := curves.charts())["unread"]:
        pass
    return told
