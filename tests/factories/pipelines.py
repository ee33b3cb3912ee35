"""Pipelines small enough to run in seconds: three stages that learn Kuhn poker, or one of each kind of stage."""

import random
from pathlib import Path
from typing import Any

from arena.cli.loop import wait
from arena.config.pipeline import Pipeline, read_pipeline
from arena.config.recipe import compose_recipe
from arena.config.sources import set_layer, text_layer
from arena.pipelines.running import start_pipeline
from arena.store import checkpoints
from arena.store.contents import METRICS
from arena.store.reader import read_metrics
from arena.store.stages import find_begun_stages
from tests.factories.children import ChildFault, run_arena_child
from tests.factories.labs import RecordingWatcher, read_log, read_weight_files

CONFIG = """\
name: chain
seed: 3
threads: 1
precision: fp32
tracker: []
game: {name: kuhn_poker, options: {illegal: end, talk: false, penalty: 2}}
policies:
  player:
    model: nano
    imitate: {scripted: [random], matches: 24, epochs: 2, minibatches: 4, lr: 3e-3}
seats:
  first: {role: nano_kuhn, policy: player}
  second: {role: nano_kuhn, policy: player}
play: {matches: 8}
learn: {lr: 1e-3, regularisers: {kl: {weight: 0.01}}}
checkpoint: {keep: 1}
stages:
  - name: first
    play: {iterations: 2}
  - play:
      iterations: 2
      learn: {lr: 5e-4}
  - name: last
    play:
      iterations: 2
      policies: {old: {model: "stage:first:player", train: false}}
      seats: {second: {policy: old}}
"""
STAGES = ("01-first", "02-play", "03-last")
STUDY = (
    """\
evaluate: {games: [{name: kuhn_poker, options: {illegal: end, talk: false, penalty: 2}}], against: [random], matches: 8}
study:
  replicates: nothing
  claim: the first stage helps
  published: nothing
  family: cards
  figure: evaluation.payoff
  also: [payoff.first]
  arm: all
  arms:
    slow: ["stages.last.play.learn.lr=1e-9"]
  each: ["policies.player.model=nano-{seed}"]
  verdict: {better_than: [slow]}
"""
    + CONFIG
)
"""`CONFIG` with a study of an arm that learns nothing in the last stage."""
ALL_STAGES = (
    CONFIG[: CONFIG.index("stages:")].replace("matches: 8", "matches: 12, group: 4")
    + """\
stages:
  - play: {iterations: 2}
  - sft: {policy: player, data: "stage:play", batch: 16}
  - reward_model: {policy: player, log: "stage:play", within: game, epochs: 2, batch: 4, iterations: 2}
  - dpo: {policy: player, data: "stage:play", batch: 2, held_out: 0.2}
  - name: rl
    play:
      iterations: 2
      policies: {player: {reference: "stage:sft"}}
      credit: {stages: [{reward_model: {model: "stage:reward_model"}}]}
  - offline: {log: "stage:rl", iterations: 1}
  - distil: {teacher: "stage:sft", iterations: 1, estimate: exact}
  - average: {policy: player, models: ["stage:sft", "stage:distil"]}
  - expert_iteration: {iterations: 1, best: 0.5, group: 4}
"""
)
"""A pipeline in which stages learn from matches, rows, weights and a reward model of earlier ones."""


def make_pipeline(*assignments: str) -> Pipeline:
    """Return `CONFIG` with assignments such as `stages.play.play.iterations=1`."""
    return read_pipeline([text_layer("test", CONFIG), *map(set_layer, assignments)])


def compose_pipeline(text: str = STUDY) -> Pipeline:
    """Return the pipeline of a file's text, as a study composes it."""
    pipeline = compose_recipe([text_layer("chain.yaml", text)])
    assert isinstance(pipeline, Pipeline)
    return pipeline


def run_pipeline(folder: Path, *assignments: str) -> Path:
    """Run a pipeline to its end and return its folder."""
    return wait(start_pipeline(make_pipeline(*assignments), folder, RecordingWatcher()))


def read_results(folder: Path) -> dict[str, tuple[Any, Any, list[bytes]]]:
    """Return each stage's match log, metrics without times, and bytes of its newest weights and optimiser.

    A stage that averages weights has no log, metrics or optimiser.
    """
    results: dict[str, tuple[Any, Any, list[bytes]]] = {}
    for stage in find_begun_stages(folder):
        newest = checkpoints.newest(stage)
        (policy,) = (path.name for path in (newest.folder / "policies").iterdir())
        if not (newest.folder / "policies" / policy / "optimizer.safetensors").exists():
            results[stage.name] = [], [], [(newest.folder / "policies" / policy / "model.safetensors").read_bytes()]
            continue
        metrics = [{k: v for k, v in row.items() if k not in TIMES} for row in read_metrics(stage / METRICS)]
        results[stage.name] = read_log(stage), metrics, read_weight_files(stage, newest.iteration, policy)
    return results


def count_steps(config: Path, folder: Path) -> int:
    """Run a pipeline in `folder / "run"`, in a new process, and return the number of its durable steps."""
    start = ["run", "selfplay", "--config", config, "--out", folder / "run", "--json"]
    result = run_arena_child(folder, *start, fault=ChildFault(count_steps=folder / "steps"))
    assert result.code == 0, result
    return int((folder / "steps").read_text())


def check_killed_pipeline(
    config: Path, expected: Path, steps: range, tmp_path: Path, rng: random.Random, again: bool
) -> None:
    """Assert that a pipeline ends as expected that is killed at one of these steps and, if `again`, after resuming."""
    folder = tmp_path / "run"
    start = ["run", "selfplay", "--config", config, "--out", folder, "--json"]
    killed = run_arena_child(tmp_path / "child", *start, fault=ChildFault(kill_at_step=rng.choice(steps)))
    assert killed.code == -9, killed
    for fault in [*([ChildFault(kill_at_step=rng.randint(1, 60))] if again else []), None]:
        arguments = ["resume", folder, "--json"] if (folder / "config.yaml").exists() else start
        result = run_arena_child(tmp_path / "again", *arguments, fault=fault)
    assert result.code == 0, result
    assert read_results(folder) == read_results(expected)


TIMES = ("seconds", "matches_per_second", "tokens_per_second")
"""Metrics that differ between runs."""
