"""A run as one page of HTML that needs nothing else: what was learned, figures, pictures, matches with their credit.

All texts are a model's or a stranger's and can only be read: Jinja2 and markupsafe escape every one, control and bidi
characters are dropped, and the page's own policy (CSP) lets a browser run no script, load nothing and use no style but
the page's, which it knows by its hash.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.alarms import alarms
from analysis.frames import Frames, load
from analysis.page import learned
from analysis.page.charts import trail
from analysis.page.league import league
from analysis.page.learned import Figure
from analysis.page.matches import Dealt, matches
from analysis.page.names import named
from analysis.page.pictures import SHOWN, curves, outcomes
from analysis.page.strategies import strategies
from analysis.page.texts import MOST, harmless, in_words, spread
from analysis.texts import Embedding
from arena.errors import ConfigError
from arena.statistics import ANY, SHARE, Interval, range_of

SETTINGS = 500
"""Settings that are shown; no recipe has as many."""
Theory = Mapping[str, Mapping[str, float]]
"""By game, what it states about itself."""
MARKS = {"better": "better", "worse": "worse", "changed": "", "same": "within noise", "untold": "one match"}
"""What a difference is called."""


def report(
    run: Frames | str | Path, embedding: Embedding = "hashed", theory: Theory | None = None, dealt: Dealt | None = None
) -> str:
    """The page of one run, finished or live; StoreError as `load`.

    The map of strategies is by `embedding`, and left out where faiss is not installed. `theory` is what games state of
    themselves, by name; `dealt` tells a match's deal: the page shows both where they are given.

    >>> page = report("runs/latest")
    >>> page.startswith("<!doctype html>"), "<script" in page
    (True, False)
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    log = run if isinstance(run, Frames) else load(run)
    if len(log.readers) != 1:
        raise ConfigError("a report is of one run: name one, or compare them (arena compare)")
    rooms = Environment(
        loader=PackageLoader("analysis", "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    style = (files("analysis") / "templates" / "report.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return rooms.get_template("report.html").render(
        told=_page_values(log, embedding, theory or {}, dealt),
        style=Markup(style),  # ours, of the package
        style_hash=f"sha256-{digest}",
    )


def _page_values(log: Frames, embedding: Embedding, theory: Theory, dealt: Dealt | None) -> dict[str, Any]:
    """All that the page says, every text harmless."""
    about = {str(name): None if pd.isna(value) else value for name, value in log.runs.iloc[0].items()}
    evaluations = learned.of_run(log)
    found = learned.figures(log, evaluations)
    stated = theory.get(str(log.matches["game"].iloc[0]), {}) if log.matches["game"].nunique() == 1 else {}
    value = stated.get("value")
    learning, settings = learned.learning(log, found), list(_settings(about))
    pictures = list(curves(log, evaluations, stated))
    if not log.matches.empty and (ends := outcomes(log)):
        pictures.insert(SHOWN - 1, ends)
    return {
        **_head(log, about),
        "sentence": learned.sentence(log, found, learned.best_response(evaluations), value),
        "tiles": [_row(figure) for figure in found[: learned.TILES]],
        "rows": [_row(figure) for figure in found[: learned.ROWS]],
        "more": [_row(figure) for figure in found[learned.ROWS : learned.ROWS + MOST]],
        "more_in_all": len(found[learned.ROWS :]),
        "learning": [_metric(key, values) for key, values in learning[:MOST]],
        "learning_in_all": len(learning),
        "alarms": [
            {"name": a.name, "who": harmless(a.who), "before": _interval(a.before), "after": _interval(a.after)}
            for a in alarms(log)
        ],
        "pictures": pictures[:SHOWN],
        "more_pictures": pictures[SHOWN:],
        "league": league(log),
        "strategies": None if log.matches.empty else strategies(log, embedding),
        "shown": list(matches(log, dealt)),
        "settings": settings[:SETTINGS],
        "settings_in_all": len(settings),
    }


def _head(log: Frames, about: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": harmless(about["run"]),
        "iterations": log.matches["iteration"].nunique(),
        "matches": f"{len(log.matches):,}",
        "failed": int((log.matches["status"] == "failed").sum()),
        "turns": f"{len(log.turns):,}",
        "games": [harmless(game) for game in log.matches["game"].unique()[:MOST]],
        "started": f"{about['started']:%Y-%m-%d %H:%M} UTC" if about["started"] else "",
        "arena": harmless(about["arena"] or ""),
    }


def _settings(about: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in about.items():
        if name.startswith("config.") and value is not None:
            yield harmless(name.removeprefix("config.")), harmless(value)


def _row(figure: Figure) -> dict[str, Any]:
    """A figure for its tile and its row."""
    arrow = "≈" if not figure.sure else "▲" if figure.difference.estimate > 0 else "▼"
    return {
        "key": harmless(figure.key),
        "name": harmless(figure.name.words),
        "first": in_words(figure.first.estimate, figure.bounds),
        "first_spread": spread(figure.first, figure.bounds),
        "last": in_words(figure.last.estimate, figure.bounds),
        "last_spread": spread(figure.last, figure.bounds),
        "moved": learned.moved(figure),
        "moved_spread": spread(figure.difference, figure.bounds),
        "arrow": arrow,
        "verdict": figure.verdict,
        "word": MARKS[figure.verdict],
        "trail": trail(figure.trail),
    }


def _metric(key: str, values: Sequence[float]) -> dict[str, Any]:
    """A metric of iterations, which has no interval."""
    bounds = SHARE if range_of(key, values) == SHARE else ANY
    ends = {"first": in_words(values[0], bounds), "last": in_words(values[-1], bounds)}
    return {"key": harmless(key), "name": harmless(named(key).words), **ends, "trail": trail(values)}


def _interval(interval: Interval) -> str:
    return f"{in_words(interval.estimate, ANY)} ({spread(interval, ANY)})"
