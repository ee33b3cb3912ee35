"""Settings of the run folder: how often a run is committed."""

from arena.parts.spec import Positive, Spec


class CheckpointSpec(Spec):
    """Settings of checkpoints: their interval and the number to keep."""

    every: Positive = 1
    """Iterations between checkpoints. The last iteration always has one."""
    keep: Positive = 2
    """Number of newest checkpoints to keep."""
