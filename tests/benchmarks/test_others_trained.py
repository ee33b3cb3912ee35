"""Learning in an environment of Gymnasium as installed, by the benchmark's experiment."""

from pathlib import Path

import pytest
from others_trained import train


@pytest.mark.slow
def test_policy_learns_the_way_over_the_lake(tmp_path: Path) -> None:
    row = train("frozen_lake", 0, tmp_path / "run")
    assert row["before"][0] < 0.1 and row["difference"][1] > 0.3
