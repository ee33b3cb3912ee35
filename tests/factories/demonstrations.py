"""A lab whose responder plays at random, and the texts of its demonstrations."""

from pathlib import Path

from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.layers import compose, to_yaml
from arena.config.sources import set_layer, text_layer
from arena.lab import Lab
from arena.learn.samples import Sample
from arena.store.run import RunFolder
from tests.factories.babble import FRAME
from tests.factories.labs import RecordingWatcher

CONFIG = """\
name: mixed
iterations: 2
threads: 1
game: {name: negotiation, options: {illegal: retry, max_turns: 4, talk: false}}
policies: {shared: {model: nano}}
seats:
  opener: {role: nano_opener, policy: shared}
  responder: {role: nano_responder, policy: random}
play: {matches: 6, in_flight: 4}
learn: {lr: 1e-3, minibatches: 2, regularisers: {}, gate_tolerance: 0.01}
"""


def make_experiment(*assignments: str) -> Experiment:
    """Return `CONFIG` with assignments such as `iterations=1`."""
    return compose([text_layer("test", CONFIG), *map(set_layer, assignments)])


def open_lab(folder: Path, *assignments: str, watcher: RecordingWatcher | None = None) -> Lab:
    """Return a lab with a new run folder, before its first iteration."""
    experiment = make_experiment(*assignments)
    return wait(Lab.open(RunFolder.create(folder, to_yaml(experiment), {}), experiment, watcher or RecordingWatcher()))


def decode_turns(sample: Sample) -> list[str]:
    """Return the text of each of the sample's own turns."""
    stream = sample.stream
    turns = sorted({turn for turn in stream.turns if turn >= 0})
    return [FRAME.decode([i for i, t in zip(stream.ids, stream.turns, strict=True) if t == turn]) for turn in turns]
