"""Stage kind `play`: the loop of play, credit and learning, as in an experiment without stages."""

from collections.abc import Mapping
from typing import Any

from arena.stages.base import StageContext


def play(context: StageContext, /, **settings: Any) -> Mapping[str, Any]:
    """Play, assign credit and learn. Takes any settings of an experiment, which override the shared ones."""
    return settings
