"""The committed pictures, drawn again from the numbers beside them: few panels, legible, no rate out of its range."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import desk
import pytest

from analysis.panels import MOST
from arena.statistics import SHARE
from tests.legible import complaints, joined

RESULTS = Path(desk.__file__).parent / "results"
CLAIMS = sorted(path.stem.removeprefix("claims-") for path in RESULTS.glob("claims-*.json"))
STUDIES = [
    "learning-nano",
    "learning-long",
    "learning-adapters",
    "learning-hanabi",
    "learning-proposer_solver",
    "learning-clinic",
    "learning-before",
    "strength-kuhn",
    "strength-collapse",
    "strength-mars",
    "desk",
]
STUDIES += [
    "panel-negotiation",
    "panel-negotiation-long",
    "finding",
    "forks",
    "proposer",
    "clinic-doctor",
    "clinic-both",
]
STUDIES += ["simulated_scale", "verdicts", "matrix-clinic", "matrix-desk", "matrix-recommender"]
STUDIES += ["recommender-listening", "recommender-population", "recommender-diversity"]


pytestmark = pytest.mark.usefixtures("controls")


def redrawn(study: str) -> tuple[dict[str, Any], Any]:
    """A study's kept numbers, summed up anew, and their picture."""
    kind, _, name = study.partition("-")
    kept = json.loads((RESULTS / f"{study}.json").read_text())
    if kind == "claims":
        script = importlib.import_module("study")
        claim = importlib.import_module(name).CLAIM
        found = script.summed_up(name, claim)
        return found, script.draw(claim, found)
    script = importlib.import_module(kind)
    if kind == "learning":
        kept["summary"] = script.summary(kept["study"], kept["runs"])
        return kept, script.draw(kept)
    if kind == "strength":
        kept, runs = script.read_back(name)
        return kept | {"summary": script.summary(runs)}, script.draw(script.STUDIES[name], runs)
    if kind == "desk":
        kept["summary"] = script.summary(kept["runs"])
        return kept, script.draw(kept)
    if kind == "verdicts":
        return kept, script.draw(kept["rates"])
    if kind == "simulated_scale":
        return kept, script.draw(kept["simulated"])
    if kind == "panel":
        return kept, script.drawn(kept)
    if kind in ("finding", "forks"):
        return kept | {"summary": script.summary(kept["rows"])}, script.draw(kept)
    if kind == "proposer":
        arms = list(dict.fromkeys(run["arm"] for run in kept["runs"]))
        kept["summary"] = script.summary(kept["runs"], arms)
        return kept, script.draw(kept, arms)
    if kind == "clinic":
        kept = script.summed_up(name)
        return kept, script.STUDIES[name][1](kept)
    return kept, script.draw(RESULTS / f"{study}.json")


def plain(found: Any) -> Any:
    """As it is written and read back; no number where there is none."""
    return json.loads(json.dumps(found).replace("NaN", "null"))


def test_every_picture_has_numbers_to_be_drawn_from() -> None:
    recipes = {path.stem for path in RESULTS.glob("study-*.json")}  # which tests/test_claims.py draws
    drawn = {*STUDIES, *recipes, *(f"claims-{name}" for name in CLAIMS)}
    assert {path.stem for path in RESULTS.glob("*.png")} == drawn


def test_every_picture_is_small() -> None:
    kept = [*RESULTS.glob("*.png"), *(RESULTS.parents[1] / "docs").rglob("*.png")]
    assert {path.name: path.stat().st_size for path in kept if path.stat().st_size > 100_000} == {}


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("study", [*STUDIES, *(f"claims-{name}" for name in CLAIMS)])
def test_a_picture_is_drawn_from_what_is_kept_and_can_be_read(study: str) -> None:
    found, figure = redrawn(study)
    kept = json.loads((RESULTS / f"{study}.json").read_text())
    for part in ("summary", "settings", "verdict", "because", "ours"):
        assert plain(found.get(part)) == kept.get(part), f"{study}: --redraw"
    assert complaints(figure) == []
    assert 0 < len(figure.axes) <= MOST and not joined(figure, few=5)
    for axis in figure.axes:
        for bar in axis.collections:  # those of matrices are texts
            (_, low), (_, high) = bar.get_segments()[0]
            assert low <= high
            if axis.get_ylim() == (-0.02, 1.02):
                assert SHARE[0] <= low and high <= SHARE[1]


@pytest.mark.parametrize("study", ["learning-nano", "strength-kuhn", "desk"])
def test_a_control_has_the_same_colour_in_every_picture(study: str) -> None:
    _, figure = redrawn(study)
    (legend,) = figure.legends
    colours = {t.get_text(): h.get_color() for t, h in zip(legend.get_texts(), legend.legend_handles, strict=True)}
    assert colours["zero"] == "tab:grey" and len(set(colours.values())) == len(colours)


def test_redraw_writes_without_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = (RESULTS / "desk.json").read_text()
    (tmp_path / "desk.json").write_text(kept)
    monkeypatch.setattr(desk, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["desk.py", "--redraw"])
    desk.main()
    assert (tmp_path / "desk.json").read_text() == kept
    assert (tmp_path / "desk.png").read_bytes().startswith(b"\x89PNG")
