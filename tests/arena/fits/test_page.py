"""docs/what-fits.md shows the measurements, and the estimates agree with them."""

import json
from pathlib import Path

from fits import TOLERANCE, WORK, estimate_memory, format_table

ROOT = Path(__file__).parents[3]
RESULT = json.loads((ROOT / "benchmarks" / "results" / "fits.json").read_text("utf-8"))


def test_page_shows_the_results() -> None:
    shown = (ROOT / "docs" / "what-fits.md").read_text("utf-8")
    assert format_table(RESULT["rows"]) in shown, "renew it: python benchmarks/fits.py --page"


def test_estimates_are_within_the_stated_bound() -> None:
    """The stored estimates must equal the current formulas', so changing these requires new measurements."""
    measured = {(r["model"], r["phase"], r["adapters"]): r for r in RESULT["rows"]}
    assert RESULT["within"] == TOLERANCE == 0.15 and len(measured) == len(RESULT["rows"]) >= 10
    assert len({row["model"] for row in RESULT["rows"]}) == 3
    for row in RESULT["rows"]:
        assert row["ratio"] == row["estimated_gb"] / row["measured_gb"] and abs(row["ratio"] - 1) <= TOLERANCE, row
    for work in WORK:
        if not work.model.startswith("random"):
            for phase, parts in estimate_memory(work, work.model, RESULT["packs"]).items():
                assert parts == measured[work.model, phase, work.adapters]["parts"], (work, phase)
