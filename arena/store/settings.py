"""Settings of the store: how often a run is committed."""

from arena.parts.spec import Positive, Spec


class CheckpointSpec(Spec):
    """Settings of commits: how often the run is committed, and how many commits are kept."""

    every: Positive = 1
    """Iterations from one checkpoint to the next; the last one always has one."""
    keep: Positive = 2
    """The newest so many stay."""
