"""The protocol of trackers, whether they are installed, and the figures that they show."""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any, Protocol

from arena.errors import ConfigError
from arena.trackers.samples import SampleMatch
from arena.trackers.settings import TrackerName

FOLDER = "trackers"
"""In the run's folder: what trackers in processes of their own write, and what they were sent."""


class Tracker(Protocol):
    """A program's side of one run; what goes wrong it raises."""

    def log(self, iteration: int, figures: Mapping[str, float], samples: list[SampleMatch]) -> None:
        """Show an iteration; none comes twice."""

    def close(self) -> None:
        """Write what is left."""


def check_installed(names: list[TrackerName]) -> None:
    """ConfigError for a tracker whose package is not installed. (A folder that a tracker left here is no package.)"""
    for name in names:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            extra = "train" if name == "tensorboard" else name
            raise ConfigError(
                f"tracker: {name} is not installed: pip install 'arena-selfplay[{extra}]', or leave it out of `tracker`"
            )


def figures_of(row: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, float]]:
    """Each number of a row of metrics, nested names joined by slashes."""
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from figures_of(value, f"{above}{key}/")
        elif isinstance(value, int | float) and key != "iteration":
            yield f"{above}{key}", float(value)
