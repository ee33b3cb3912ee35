"""The library's nano recipes play, are credited and learn; roles that share weights are scored before either learns."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from arena.learn.gradients import Gradients
from arena.learn.trainer import PolicyTrainer
from tests.factories.commands import Told, arena

SMALL = ["iterations=1", "play.matches=16", "play.in_flight=16", "game.options.worlds=2", "evaluate=null"]
SHOWN = "{scripted: [random, reader], matches: 96, epochs: 2, minibatches: 12, lr: 3e-3}"


def run(recipe: str, policies: list[str], folder: Path, *more: str) -> tuple[Told, dict[str, Any]]:
    """One iteration of a recipe, made small; what it said and its metrics."""
    settings = [*SMALL, *(f"policies.{policy}.imitate={SHOWN}" for policy in policies)]
    laid = [part for setting in settings for part in ("--set", setting)]
    done = arena("run", "selfplay", "--recipe", recipe, *more, "--out", folder, *laid)
    assert done.code == 0, done.err
    (row,) = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return done, row


@pytest.mark.parametrize(
    ("recipe", "policies", "figures"),
    [
        ("search-nano", ["solver"], {"score", "recall", "calls"}),
        ("search_planner-nano", ["planner"], {"score", "regret", "best"}),
        ("igpo_search-nano", ["solver"], {"score", "recall"}),
    ],
)
def test_a_recipe_runs(recipe: str, policies: list[str], figures: set[str], tmp_path: Path) -> None:
    _, row = run(recipe, policies, tmp_path / "run")
    assert row["matches"] == 16 and figures <= row["report"].keys()


def test_roles_that_share_weights_are_scored_before_either_is_learned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second role's old log-probabilities are those of the weights before the first role's update."""
    events: list[tuple[str, str, int]] = []
    score_old, optimise = Gradients.score_old, PolicyTrainer._optimise

    def weights(engine: Any) -> str:
        digest = hashlib.sha256()
        for parameter in engine.module.parameters():
            digest.update(parameter.detach().to(torch.float32).numpy().tobytes())
        return digest.hexdigest()

    def scored(self: Gradients) -> Any:
        tally = score_old(self)
        played = [n for n, sample in enumerate(self.plan.samples) if sample.source == "played"]
        if played:
            assert set(played) <= set(self.old), "a role is left to be scored later"
            roles = {tuple(self.plan.samples[n].stream.ids[:3]) for n in played}
            events.append(("scored", weights(self.engine), len(roles)))
        return tally

    def stepped(self: PolicyTrainer, *args: Any) -> Any:
        taken = optimise(self, *args)
        events.append(("step", weights(self.optimiser.engine), 0))
        return taken

    monkeypatch.setattr(Gradients, "score_old", scored)
    monkeypatch.setattr(PolicyTrainer, "_optimise", stepped)
    _, row = run("search_selfplay-nano", ["proposer", "solver"], tmp_path / "run", "--policies", "shared")
    assert row["matches"] == 16 and {"accepted", "sound", "s"} <= row["report"].keys()
    (at,) = [n for n, event in enumerate(events) if event[0] == "scored"]
    assert events[at][2] == 2, "samples of both roles are scored at once"
    assert all(event[0] == "step" for event in events[at + 1 :]) and len(events) > at + 2
    before = events[at - 1][1]
    assert events[at][1] == before and events[at + 1][1] != before
