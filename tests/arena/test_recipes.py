"""Recipes for a real model play, imitate and learn, here with a tiny model in its place."""

import json
from pathlib import Path

import pytest

from tests.factories.commands import arena

FEW = ["iterations=1", "play.matches=4", "learn.token_budget=4096"]
FEW_IMITATED = ["matches=8", "minibatches=2"]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("recipe", "policies", "figures"),
    [
        ("clinic", ["doctor"], {"success", "questions"}),
        ("desk", ["agent"], {"success", "breaches"}),
        ("hanabi", ["shared"], {"score", "lives"}),
        ("negotiation-adapters", ["opener", "responder"], {"deal", "equilibrium_distance"}),
        ("negotiation-shown", ["shared"], {"deal", "equilibrium_distance"}),
        ("proposer_solver", ["shared"], {"s", "terms"}),
        ("recommender", ["recommender"], {"score", "joy"}),
    ],
)
def test_a_recipe_for_a_real_model_runs_with_a_tiny_one(
    recipe: str, policies: list[str], figures: set[str], tmp_path: Path
) -> None:
    run, settings = tmp_path / "run", [*FEW, "precision=fp32", "threads=1"]
    for policy in policies:
        settings += [
            f"policies.{policy}.{assignment}"
            for assignment in ("model=nano", *(f"imitate.{part}" for part in FEW_IMITATED))
        ]
    result = arena(
        "run", "selfplay", "--recipe", recipe, "--out", run, *(p for setting in settings for p in ("--set", setting))
    )
    assert result.code == 0, result.err
    (row,) = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert row["matches"] == 4 and figures <= row["report"].keys()


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("recipe", ["negotiation", "negotiation-long"])
def test_introductory_recipe_runs_and_its_panel_evaluates_it(recipe: str, tmp_path: Path) -> None:
    """The closing text leads with the panel: every member from both seats beside the best response, then the mean."""
    run, settings = tmp_path / "run", [*FEW, "precision=fp32", "threads=1", "play.group=2", "evaluate.deals=2"]
    settings += [
        f"policies.shared.{assignment}" for assignment in ("model=nano", *(f"imitate.{part}" for part in FEW_IMITATED))
    ]
    result = arena("run", "selfplay", "--recipe", recipe, "--out", run, *(p for s in settings for p in ("--set", s)))
    assert result.code == 0, result.err
    evaluations = [json.loads(line) for line in (run / "panel.jsonl").read_text().splitlines()]
    assert [evaluation["iteration"] for evaluation in evaluations] == [0, 1]
    cells = {(cell["member"], cell["seat"]): cell for cell in evaluations[1]["cells"]}
    assert len(cells) == 12 and all(len(cell["best_response"]) == 2 for cell in cells.values())
    mark = "*" if recipe == "negotiation-long" else ""
    start = result.out.index("against the panel negotiation")
    assert start < result.out.index(f"naive{mark}, responder") < result.out.index("Iteration 1"), result.out
    assert f"subgame_perfect{mark}, opener" in result.out and "conceder*, opener" in result.out
