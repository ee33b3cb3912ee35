"""A run folder made without training, with real weights and checkpoints."""

import shutil
from pathlib import Path

from agents.weights import resolve
from arena.config.layers import compose, to_yaml
from arena.config.sources import text_layer
from arena.store.run import RunFolder

SHARED = """\
name: kept
iterations: 9
game: {name: kuhn_poker, options: {illegal: end, penalty: 2}}
policies: {shared: {model: nano}}
seats:
  first: {role: nano_kuhn, policy: shared}
  second: {role: nano_kuhn, policy: shared}
"""
SEPARATE = """\
name: kept
iterations: 9
tables:
- game: {name: negotiation, options: {max_turns: 4}}
  seats: {opener: {role: nano_opener, policy: one}, responder: {role: nano_responder, policy: two}}
- game: {name: tic_tac_toe}
  seats: {first: {role: nano_player, policy: one}, second: {role: nano_player, policy: random}}
policies: {one: {model: nano-1}, two: {model: nano-2}}
"""


def make_checkpointed_run(folder: Path, config: str = SHARED, **weights: str) -> Path:
    """Write a run of `config` with checkpoints: `_3="nano-3"` gives every policy these weights at iteration 3."""
    experiment = compose([text_layer("test", config)])
    run = RunFolder.create(folder, to_yaml(experiment), {})
    for name, model in weights.items():

        def fill(target: Path, model: str = model) -> None:
            for policy in experiment.policies:
                shutil.copytree(resolve(model), target / "policies" / policy)

        run.checkpoint(int(name.removeprefix("_")), fill)
    return folder
