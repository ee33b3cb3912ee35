"""Tests that the committed pictures follow from the numbers beside them and are legible."""

import importlib
import json
from typing import Any

import landing
import pytest

from analysis.panels import MAX_PANELS
from tests.legible import find_overlaps, find_sparse_lines

RESULTS = landing.RESULTS
PICTURES = sorted(path.stem for path in RESULTS.glob("*.png"))


def draw_again(picture: str) -> Any:
    """Draw a picture from its kept numbers."""
    results = json.loads((RESULTS / f"{picture}.json").read_text())
    script = importlib.import_module(picture.partition("-")[0])
    if picture == "verdicts":
        return script.draw(results["rates"])
    if picture == "simulated_scale":
        return script.draw(results["simulated"])
    if picture.startswith("panel"):
        return script.draw(results)
    return script.draw(RESULTS / f"{picture}.json")


def test_every_picture_is_small() -> None:
    pictures = [*RESULTS.glob("*.png"), *(RESULTS.parents[1] / "docs").rglob("*.png")]
    assert {path.name: path.stat().st_size for path in pictures if path.stat().st_size > 100_000} == {}


def test_every_picture_is_shown_on_a_page() -> None:
    docs = RESULTS.parents[1] / "docs"
    text = "\n".join(page.read_text("utf-8") for page in docs.rglob("*.md"))
    assert [name for name in PICTURES if f"benchmarks/results/{name}.png" not in text] == []


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("picture", PICTURES)
def test_a_picture_is_legible(picture: str) -> None:
    figure = draw_again(picture)
    assert find_overlaps(figure) == []
    assert 0 < len(figure.axes) <= MAX_PANELS and not find_sparse_lines(figure, minimum=5)
