"""Texts of experiments for tests of settings."""

from pathlib import Path

from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.sources import text_layer

MAZE = """\
name: here
game: {name: maze, options: {size: 3, max_turns: 9}}
seats: {walker: {role: nano_player, policy: p}}
policies: {p: {model: nano}}
iterations: 1
"""


def make_sampling_experiment(folder: Path, rule: str) -> Experiment:
    """Return an experiment whose trained seat has a role with this sampling rule."""
    (folder / "odd.yaml").write_text(f"role: odd\nreply: {{format: free}}\nsampling: {rule}\n")
    text = (
        f"name: here\ngame: {{name: kuhn_poker}}\nroles: {folder}\nseats: {{first: {{role: odd, policy: p}}, "
        "second: {role: nano_kuhn, policy: random}}\npolicies: {p: {model: nano}}\niterations: 1\n"
    )
    return compose([text_layer("here", text)])
