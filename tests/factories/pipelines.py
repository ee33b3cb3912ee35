"""A pipeline small enough to run in seconds: three stages that learn Kuhn poker, each from the weights before it."""

from pathlib import Path
from typing import Any

from arena.cli.loop import wait
from arena.config.pipeline import Pipeline, read_pipeline
from arena.config.sources import set_layer, text_layer
from arena.pipelines.running import start_pipeline
from arena.store import checkpoints
from tests.factories.labs import Quiet, log, weight_files

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


def pipeline(*assignments: str) -> Pipeline:
    """`CONFIG` with assignments such as `stages.play.play.iterations=1` applied to it."""
    return read_pipeline([text_layer("test", CONFIG), *map(set_layer, assignments)])


def finished(folder: Path, *assignments: str) -> Path:
    """A pipeline that has run to its end."""
    return wait(start_pipeline(pipeline(*assignments), folder, Quiet()))


def results(folder: Path) -> dict[str, tuple[Any, list[bytes]]]:
    """The match log of each stage, and the bytes of its newest weights and optimiser."""
    found = {}
    for name in STAGES:
        stage = folder / "stages" / name
        found[name] = log(stage), weight_files(stage, checkpoints.newest(stage).iteration, "player")
    return found
