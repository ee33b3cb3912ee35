"""The recipe mars_sql-nano: three policies learn in one run, and each arm runs."""

import json
from pathlib import Path

import pytest

from arena.config.arms import require_study
from arena.config.layers import compose
from arena.config.sources import recipe_layer
from tests.factories.commands import arena

RECIPE = "mars_sql-nano"
IMITATION = "{scripted: [flawed], matches: 48, epochs: 1, minibatches: 6, lr: 3e-3}"
ARMS = require_study(compose([recipe_layer(RECIPE)])).names


@pytest.mark.slow
@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_runs(arm: str, tmp_path: Path) -> None:
    settings = ["iterations=1", "play.matches=16", "play.in_flight=16", "evaluate.matches=8", "checkpoint.every=1"]
    imitated = {"writer", "judge"} | ({"grounder"} if arm != "whole_schema" else set())
    settings += [f"policies.{policy}.imitate={IMITATION}" for policy in sorted(imitated)]
    flags = [part for setting in settings for part in ("--set", setting)]
    result = arena("run", "selfplay", "--recipe", RECIPE, "--arm", arm, "--out", tmp_path / "run", *flags)
    assert result.code == 0, result.err
    row = json.loads((tmp_path / "run" / "metrics.jsonl").read_text())
    learned = set(row["learn"])
    assert row["matches"] == 16 and {"success", "errors", "repaired", "link_f1"} <= row["report"].keys()
    assert learned == imitated
