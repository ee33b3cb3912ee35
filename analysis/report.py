"""A run as one self-contained HTML page: the viewer's page with the server's answers embedded.

Its texts come from models and strangers; `analysis.view.bundle` makes sure that they cannot run as code.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from analysis.frames import Frames, load
from analysis.view import listing, notes, runs
from analysis.view.bundle import build_page
from analysis.view.curves import Curves
from analysis.view.index import Index
from analysis.view.league import build_league_graph, list_alarms
from analysis.view.match import describe_match
from analysis.view.services import DealFacts, FindMarks
from analysis.view.summary import Theory, summarise
from arena.errors import ConfigError, StoreError
from arena.store.blobs import Blobs, find_media_type

IMAGE_BYTES = 8 << 20
"""Maximum bytes of all images on the page."""
MAX_CHARACTERS, MAX_TURNS = 2000, 100
"""Characters of a text and turns of a match on the page. Browsers fail to open much larger pages."""


def report(
    run: Frames | str | Path,
    theory: Theory | None = None,
    deal_facts: DealFacts | None = None,
    find_marks: FindMarks | None = None,
) -> str:
    """Return a self-contained HTML page of one run, finished or live.

    `theory` maps games to their theory values, `deal_facts` returns what each seat was dealt in a match, and
    `find_marks` the boxes in images that acts name; all are optional. The page embeds the matches'
    images, in order, up to `IMAGE_BYTES` in all. Raises StoreError as `load` does, and ConfigError for several runs.

    >>> page = report("runs/latest")
    >>> page.startswith("<!doctype html>"), "<script src" in page
    (True, False)
    """
    log = run if isinstance(run, Frames) else load(run)
    if len(log.readers) != 1:
        raise ConfigError("a report covers one run: name one, or compare them (arena compare)")
    (name,) = log.readers
    answers = _build_answers(name, log, theory or {}, deal_facts, find_marks)
    answers |= _encode_images(log.readers[name].log.blobs, answers)
    return build_page(name, answers["summary"]["sentence"], {"run": name, "answers": answers})


def _build_answers(
    name: str, log: Frames, theory: Theory, deal_facts: DealFacts | None, find_marks: FindMarks | None
) -> dict[str, Any]:
    """Return the server's answers about the run as JSON values, by path relative to the run, for `build_page`."""
    index = Index(log.readers[name])
    while index.refresh():
        pass
    matches = _choose_matches(log)
    listed = listing.list_matches(index, {}, matches)
    rows = {row["match"]: row | {"place": matches[row["match"]]} for row in listed["rows"]}
    return {
        "": runs.describe_run(name, index) | {"live": False},
        "summary": summarise(log, theory),
        "curves": _read_curves(index, theory),
        "alarms": list_alarms(index.reader.path),
        "league": build_league_graph(index.reader.path),
        "matches": listed | {"rows": [rows[id] for id in matches], "facets": {"game": [], "status": [], "policy": []}},
        "notes": notes.read_notes(index),
        **{
            f"matches/{id}": describe_match(index, id, deal_facts, MAX_CHARACTERS, MAX_TURNS, find_marks)
            | {"family": [], "notes": []}
            for id in matches
        },
    }


def _encode_images(blobs: Blobs, answers: Mapping[str, Any]) -> dict[str, str]:
    """Return the images of the answers' matches as data URLs by path. Skips damaged ones and any over `IMAGE_BYTES`."""
    matches = [answer for path, answer in answers.items() if path.startswith("matches/")]
    messages = [message for match in matches for turn in match["turns"] for message in turn["messages"]]
    images, remaining = dict[str, str](), IMAGE_BYTES
    for name in dict.fromkeys(image["hash"] for message in messages for image in message["images"]):
        with suppress(StoreError, OSError):
            data = blobs.get(name)
            if (media := find_media_type(data)) and len(data) <= remaining:
                images[f"images/{name}"] = f"data:{media};base64,{b64encode(data).decode()}"
                remaining -= len(data)
    return images


def _read_curves(index: Index, theory: Theory) -> Mapping[str, Any]:
    """Return the run's charts with all intervals, which `Curves` reads in several calls."""
    curves = Curves(index, lambda game: theory.get(game, {}))
    curves.charts()
    while (charts := curves.charts())["unread"]:
        pass
    return charts


def _choose_matches(log: Frames) -> dict[str, str]:
    """Return the worst, middle and best paid match of the first and last iteration: match ids with a label each."""
    payoffs = log.seats.dropna(subset=["payoff"])
    learners = payoffs[payoffs["trained"]] if bool(payoffs["trained"].any()) else payoffs
    means = learners.groupby(["iteration", "match"])["payoff"].mean()
    if learners.groupby("match")["payoff"].mean().nunique() < 2:  # zero-sum: rank by the first seat
        means = learners.groupby(["iteration", "match"])["payoff"].first()
    table, matches = means.reset_index(), dict[str, str]()
    for iteration in dict.fromkeys([table["iteration"].min(), table["iteration"].max()]) if len(table) else ():
        ranked = table[table["iteration"] == iteration].sort_values("payoff", kind="stable")["match"].tolist()
        matches |= {ranked[0]: "worst paid", ranked[len(ranked) // 2]: "middle", ranked[-1]: "best paid"}
    return matches
