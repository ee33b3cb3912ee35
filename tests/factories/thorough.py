"""Number of cases in a test: few by default, many with ARENA_THOROUGH=1, as `make slow` sets it."""

import os

THOROUGH = bool(os.environ.get("ARENA_THOROUGH"))


def count_cases(usual: int, thorough: int) -> int:
    """Return the number of cases to run. Mark the test `thorough`, unless hypothesis draws its cases."""
    return thorough if THOROUGH else usual
