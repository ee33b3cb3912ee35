"""README's picture: it shows the committed results, is self-contained, small, and legible in light and dark."""

import json
import re
from xml.etree import ElementTree

import landing
import pytest

from tests.factories.contrast import compute_contrast

PICTURE = landing.PICTURE.read_text("utf-8")


def test_the_picture_is_drawn_from_what_is_kept() -> None:
    assert landing.draw_picture() == PICTURE, "renew it: python benchmarks/landing.py"


def test_its_figures_are_those_of_the_results() -> None:
    results = json.loads((landing.RESULTS / "panel-negotiation.json").read_text())
    own = [run["payoff"] for run in results["runs"] if run["arm"] == results["arm"]]
    ends = [sum(run[when][0] for run in own) / len(own) for when in ("before", "after")]
    first, *_ = landing.make_rows(results)
    assert [first.before, first.after] == pytest.approx(ends) and "{:.1f} → {:.1f}".format(*ends) in PICTURE
    assert first.best and first.after < first.best < 10
    cells = [c["after"][0] for run in results["runs"] if run["arm"] == results["arm"] for c in run["cells"].values()]
    assert sum(row.after for row in landing.make_rows(results) if row.kind == "name") / 6 == pytest.approx(
        sum(cells) / len(cells)
    )


def test_every_line_is_labelled_and_no_half_is_flat() -> None:
    texts = [node.text for node in ElementTree.fromstring(PICTURE).iter() if node.tag.endswith("text")]
    assert {"before", "after", "best response", "no advantages", "random advantages", "equilibrium"} <= {*texts}
    kuhn = json.loads((landing.RESULTS / "strength-kuhn.json").read_text())
    learned = [run["curve"] for run in kuhn["runs"] if run["arm"] == "mars"]
    assert all(run["60"]["nash_conv"] < 0.5 * run["0"]["nash_conv"] for run in learned)


def test_it_is_small_and_loads_nothing() -> None:
    assert len(PICTURE.encode()) < 100_000
    assert not re.search(r"url\(|@import|<script|<image|href|\bon\w+=", PICTURE)
    assert set(re.findall(r"https?://[^\"]+", PICTURE)) == {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_its_texts_have_the_contrast_of_wcag_aa(theme: int) -> None:
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", re.findall(r"svg \{(.*?)\}", landing.STYLE, re.S)[theme]))
    assert {name for name in ("ink", "soft", "blue") if compute_contrast(colours[name], colours["card"]) < 4.5} == set()
    assert compute_contrast(colours["grey"], colours["card"]) >= 3
