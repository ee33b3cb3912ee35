"""Kuhn poker whose steps take as long as a file says: a simulator with a slow tool, the payoffs known to everybody."""

import os
import time
from pathlib import Path

from games.kuhn_poker import KuhnPoker
from games.slow import slowly

VARIABLE = "ARENA_SLOW_STEP"
"""Names the file with the seconds of a step; without it no step waits."""


class SlowKuhn(KuhnPoker):
    """Kuhn poker that waits within each step, with `scale.tasks` in a Ray task; no act or payoff depends on it."""

    blocks = True

    def step(self, action: str | None) -> None:
        """Wait, then play."""
        slowly(time.sleep, seconds())
        super().step(action)


def seconds() -> float:
    """Return how long a step takes just now."""
    path = os.environ.get(VARIABLE)
    try:
        return float(Path(path).read_text()) if path else 0.0
    except (OSError, ValueError):  # being written
        return 0.0
