"""Settings of trackers: the programs that show a run, beside its own record."""

from typing import Annotated, Literal

from pydantic import AfterValidator

TrackerName = Literal["tensorboard", "trackio", "wandb"]


def _once_each(names: list[TrackerName]) -> list[TrackerName]:
    """The names; ValueError where one stands twice."""
    if len(set(names)) < len(names):
        raise ValueError("a tracker is named twice: name each once")
    return names


TrackerNames = Annotated[list[TrackerName], AfterValidator(_once_each)]
