"""The library's nano recipes play and learn; roles with shared weights are scored before either learns."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from arena.config.arms import require_study
from arena.config.layers import compose
from arena.config.sources import recipe_layer
from arena.evaluate.study.plan import Run
from arena.evaluate.study.results import read_curve
from arena.evaluate.study.summary import average_figures
from arena.learn.gradients import Gradients
from arena.learn.trainer import PolicyTrainer
from arena.store.reader import read_metrics
from tests.factories.commands import TINY, arena

SMALL = ["iterations=1", "play.matches=16", "play.in_flight=16", "game.options.worlds=2", "evaluate=null"]
IMITATION = "{scripted: [random, reader], matches: 96, epochs: 2, minibatches: 12, lr: 3e-3}"


def run_recipe(recipe: str, policies: list[str], folder: Path) -> dict[str, Any]:
    """Return the metrics of one iteration of a recipe, made small."""
    settings = [*SMALL, *(f"policies.{policy}.imitate={IMITATION}" for policy in policies)]
    flags = [part for setting in settings for part in ("--set", setting)]
    result = arena("run", "selfplay", "--recipe", recipe, "--out", folder, *flags)
    assert result.code == 0, result.err
    metrics: dict[str, Any] = json.loads((folder / "metrics.jsonl").read_text())
    return metrics


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("recipe", "policies", "figures"),
    [
        ("search-nano", ["solver"], {"score", "recall", "calls"}),
        ("search_planner-nano", ["planner"], {"score", "regret", "best"}),
        ("igpo_search-nano", ["solver"], {"score", "recall"}),
        ("search_selfplay-nano", ["proposer", "solver"], {"accepted", "sound", "s"}),
    ],
)
def test_a_recipe_runs(recipe: str, policies: list[str], figures: set[str], tmp_path: Path) -> None:
    row = run_recipe(recipe, policies, tmp_path / "run")
    assert row["matches"] == 16 and figures <= row["report"].keys()


STUDIES = {
    name: compose([recipe_layer(name)]) for name in ("search_planner-nano", "igpo_search-nano", "search_selfplay-nano")
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arm"), [(name, arm) for name, each in STUDIES.items() for arm in require_study(each).names]
)
def test_every_arm_of_a_study_has_the_figures_of_its_rule(name: str, arm: str, tmp_path: Path) -> None:
    experiment, folder = STUDIES[name], tmp_path / "run"
    spec = require_study(experiment)
    settings = ["iterations=2", "play.matches=16", "play.in_flight=16", "game.options.worlds=2", "checkpoint.every=2"]
    settings += [f"policies.{policy}.imitate={IMITATION}" for policy in experiment.policies]
    settings += ["evaluate.matches=8"] if experiment.evaluate else []
    flags = [part for setting in settings for part in ("--set", setting)]
    result = arena("run", "selfplay", "--recipe", name, "--arm", arm, "--out", folder, *flags)
    assert result.code == 0, result.err
    rows = read_metrics(folder / "metrics.jsonl")
    assert len(read_curve(Run(arm, 0, folder), spec.figure)) == 2
    figures = average_figures(rows, [gauge.figure for gauge in spec.gauges])
    expected = {gauge.figure for gauge in spec.gauges if arm in (spec.arm, gauge.unlike)}
    assert all(figures[figure] is not None for figure in expected), "a gauge has no figure"
    if arm == "frozen_proposer":  # it imitates, but earns nothing later
        assert figures["learn.proposer.advantage_size"] == 0 and (folder / "checkpoints" / "0000").exists()


@pytest.mark.slow
def test_roles_with_shared_weights_are_scored_before_either_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second role's old log-probabilities are of the weights before the first role's update."""
    events: list[tuple[str, str, int]] = []
    score_old, optimise = Gradients.score_old, PolicyTrainer._take_step

    def hash_weights(engine: Any) -> str:
        digest = hashlib.sha256()
        for parameter in engine.module.parameters():
            digest.update(parameter.detach().to(torch.float32).numpy().tobytes())
        return digest.hexdigest()

    def record_scoring(self: Gradients) -> Any:
        tally = score_old(self)
        played = [n for n, sample in self.plan.samples.items() if sample.source == "played"]
        if played:
            assert set(played) <= set(self.old or {}), "a role is left to be scored later"
            roles = {tuple(self.plan.samples[n].stream.ids[:2]) for n in played}
            events.append(("scored", hash_weights(self.engine), len(roles)))
        return tally

    def record_step(self: PolicyTrainer, *args: Any) -> Any:
        outcome = optimise(self, *args)
        events.append(("step", hash_weights(self.optimiser.engine), 0))
        return outcome

    monkeypatch.setattr(Gradients, "score_old", record_scoring)
    monkeypatch.setattr(PolicyTrainer, "_take_step", record_step)
    imitation = ("matches=96", "epochs=4", "minibatches=8")  # enough that the second role has turns
    settings = ["play.matches=16", *(f"policies.shared.imitate.{part}" for part in imitation)]
    more = [part for setting in settings for part in ("--set", setting)]
    result = arena(*TINY, "--iterations", "1", *more, "--out", tmp_path / "run")
    assert result.code == 0, result.err
    (scoring,) = [n for n, event in enumerate(events) if event[0] == "scored"]
    assert events[scoring][2] == 2, "samples of both roles are scored at once"
    steps = events[scoring + 1 :]
    assert len(steps) > 1 and all(event[0] == "step" for event in steps), "nothing is scored between two steps"
    assert events[scoring][1] == events[scoring - 1][1] != steps[0][1], (
        "the scores are of the weights before the first step"
    )
