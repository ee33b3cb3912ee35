"""The recipes for a real model play, imitate and learn; here with a tiny one in its place."""

import json
from pathlib import Path

import pytest

from tests.arena.tiny import arena

FEW = ["iterations=1", "play.matches=4", "learn.token_budget=4096"]
SHOWN = ["matches=8", "minibatches=2"]


@pytest.mark.parametrize(
    ("recipe", "policies", "figures"),
    [
        ("clinic", ["doctor"], {"success", "questions"}),
        ("desk", ["agent"], {"success", "breaches"}),
        ("hanabi", ["shared"], {"score", "lives"}),
        ("negotiation-adapters", ["opener", "responder"], {"deal", "equilibrium_distance"}),
        ("negotiation-long", ["shared"], {"deal", "equilibrium_distance"}),
        ("proposer_solver", ["shared"], {"s", "terms"}),
        ("recommender", ["recommender"], {"score", "joy"}),
    ],
)
def test_a_recipe_for_a_real_model_runs_with_a_tiny_one(
    recipe: str, policies: list[str], figures: set[str], tmp_path: Path
) -> None:
    run, settings = tmp_path / "run", [*FEW, "precision=fp32", "threads=1"]
    for policy in policies:
        settings += [f"policies.{policy}.{what}" for what in ("model=nano", *(f"imitate.{part}" for part in SHOWN))]
    done = arena(
        "run", "selfplay", "--recipe", recipe, "--out", run, *(p for setting in settings for p in ("--set", setting))
    )
    assert done.code == 0, done.err
    (row,) = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert row["matches"] == 4 and figures <= row["report"].keys()
