"""The simulation of verdicts: a few families reproduce the committed results, which the documentation shows."""

import json
from pathlib import Path
from typing import Any

import pytest
import verdicts

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def measured_verdicts() -> dict[str, dict[str, Any]]:
    return verdicts.compute_rates(list(verdicts.simulate_studies(3, seed=1)))


@pytest.mark.slow
def test_idle_and_saturated_metrics_get_no_verdict(measured_verdicts: dict[str, dict[str, Any]]) -> None:
    for name, of in measured_verdicts.items():
        rates = (of["idle"], of["full"], of["idle or full by mistake"])
        assert rates == ((0.0, 0.0, 0) if name == "five, then ten" else (1.0, 1.0, 0)), name


def test_a_correction_takes_findings_away_and_adds_none(measured_verdicts: dict[str, dict[str, Any]]) -> None:
    alone, shared, strict = (measured_verdicts[kind]["power"][0] for kind in ("alone", "BH", "Holm"))
    assert alone >= shared >= strict > 0 and alone > 0.5


def test_the_whole_procedure_keeps_its_error_rates() -> None:
    """With 1,000 nulls and 1,000 effects, as committed. The old procedure does not."""
    committed = json.loads((ROOT / "benchmarks" / "results" / "verdicts.json").read_text())
    assert committed["families"] * verdicts.FAMILY["null"] == committed["families"] * verdicts.FAMILY["effect"] == 1000
    rates = committed["rates"]
    assert rates["five, then ten"]["null"][1] > 0.05 and rates["five, then ten"]["family"][1] > 0.05
    assert rates["alone"]["null"][1] <= 0.05, "the interval reaches down to the promised rate"
    assert rates["Holm"]["family"][1] <= 0.05 and rates["BH"]["false"] <= 0.05
    for kind in ("alone", "Holm", "BH"):
        of = rates[kind]
        assert (of["idle"], of["full"], of["idle or full by mistake"]) == (1.0, 1.0, 0)


def test_the_documentation_shows_the_table() -> None:
    committed = json.loads((ROOT / "benchmarks" / "results" / "verdicts.json").read_text())
    assert verdicts.format_table(committed["rates"]) in (ROOT / "docs" / "studies.md").read_text()
