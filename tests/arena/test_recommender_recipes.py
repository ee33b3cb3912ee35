"""The recommender's nano recipes train the policies they name: the recommender, the user, or both."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.factories.commands import arena

SMALL = ["iterations=1", "play.matches=24", "play.in_flight=24", "checkpoint.every=1", "checkpoint.keep=9"]
IMITATION = "{scripted: [random], matches: 128, epochs: 3, minibatches: 16, lr: 3e-3}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "policies", "more"),
    [
        pytest.param("recommender-nano", ["recommender"], [], marks=pytest.mark.slow),
        ("recommender_user-nano", ["user"], []),
        pytest.param("recommender_both-nano", ["recommender", "user"], [], marks=pytest.mark.slow),
        ("recommender_both-nano", ["shared"], ["--policies", "shared"]),
    ],
)
def test_a_recipe_trains_its_policies(recipe: str, policies: list[str], more: list[str], tmp_path: Path) -> None:
    run, imitated = tmp_path / "run", ["recommender", "user"] if more else policies
    settings = [*SMALL, *(f"policies.{policy}.imitate={IMITATION}" for policy in imitated)]
    flags = [part for setting in settings for part in ("--set", setting)]
    result = arena("run", "selfplay", "--recipe", recipe, *more, "--out", run, *flags)
    assert result.code == 0, result.err
    (row,) = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    user_figures = {"steered", "untrue"} if recipe != "recommender-nano" else set()
    assert row["matches"] == 24 and {"score", "kept", *user_figures} <= row["report"].keys()
    for policy in policies:
        before, after = (
            load_file(run / "checkpoints" / k / "policies" / policy / "model.safetensors") for k in ("0000", "0001")
        )
        assert any(not np.array_equal(before[name], after[name]) for name in before)
