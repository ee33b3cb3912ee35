"""Kuhn poker whose steps take as long as a file says: a simulator with a slow tool and known payoffs."""

import os
import time
from pathlib import Path

from games.kuhn_poker import KuhnPoker
from games.slow import offload

VARIABLE = "ARENA_SLOW_STEP"
"""Environment variable with the path of the file that holds a step's seconds; without it no step waits."""


class SlowKuhn(KuhnPoker):
    """Kuhn poker that waits in each step (in a Ray task with `scale.tasks`); acts and payoffs do not depend on it."""

    blocks = True

    def step(self, action: str | None) -> None:
        """Wait, then play."""
        offload(time.sleep, read_step_seconds())
        super().step(action)


def read_step_seconds() -> float:
    """Return the current duration of a step in seconds."""
    path = os.environ.get(VARIABLE)
    try:
        return float(Path(path).read_text()) if path else 0.0
    except (OSError, ValueError):  # being written
        return 0.0
