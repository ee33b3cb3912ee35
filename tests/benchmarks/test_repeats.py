"""Repeated runs are compared bit by bit, and the stored comparisons belong to the stored studies."""

import json

import pytest
import repeats
from reporting import RESULTS


def make_run(curve: list[float], **also: list[float]) -> dict[str, object]:
    return {"curve": curve, "also": also}


@pytest.mark.parametrize(
    ("repeated", "is_equal"),
    [
        (make_run([0.1, 0.3], score=[1.0]), True),
        (make_run([0.1, 0.3]), True),
        (make_run([0.1, 0.3], score=[1.0 + 2**-52]), False),
        (make_run([0.1, 0.1 + 0.2], score=[1.0]), False),
    ],
)
def test_curves_repeat_only_bit_by_bit(repeated: dict[str, object], is_equal: bool) -> None:
    row = repeats.compare_runs(make_run([0.1, 0.3], score=[1.0]), repeated)
    assert row["repeats"] is is_equal and row["repeated"] == repeated["curve"]


def test_stored_comparisons_belong_to_the_stored_studies() -> None:
    records = repeats.read_records()
    rows = json.loads((RESULTS / "repeats.json").read_text())["studies"]
    for name, row in rows.items():
        assert row["recorded"] == records[name]["runs"][0]["curve"], f"{name} was run again: repeat it"
