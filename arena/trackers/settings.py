"""The `tracker` setting of an experiment, and a check that the chosen trackers are installed."""

from importlib.util import find_spec
from typing import Annotated, Literal

from pydantic import AfterValidator

from arena.errors import ConfigError

TrackerName = Literal["tensorboard", "trackio", "wandb"]
"""Name of a tracker's Python package. A new one also needs a module `arena.trackers.NAME_run` with a class `Run`."""


def _require_unique(names: list[TrackerName]) -> list[TrackerName]:
    if len(set(names)) < len(names):
        raise ValueError("a tracker is listed twice: list each once")
    return names


TrackerNames = Annotated[list[TrackerName], AfterValidator(_require_unique)]


def check_installed(names: list[TrackerName]) -> None:
    """Raise ConfigError if the Python package of one of these trackers is not installed."""
    for name in names:
        spec = find_spec(name)
        if spec is None or spec.origin is None:  # a data folder called `wandb` is found, but has no origin
            extra = "train" if name == "tensorboard" else name
            raise ConfigError(
                f"tracker: {name} is not installed: pip install 'arena-selfplay[{extra}]', or leave it out of `tracker`"
            )
