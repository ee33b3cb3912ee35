"""Apportionment of a whole number in proportion to shares."""

from collections.abc import Sequence


def apportion(count: int, shares: Sequence[float]) -> list[int]:
    """Split `count` in proportion to shares by largest remainders (Hamilton's method). Ties go to earlier shares."""
    quotas = [count * share / sum(shares) for share in shares]
    counts = [int(quota) for quota in quotas]
    by_remainder = sorted(range(len(shares)), key=lambda i: counts[i] - quotas[i])
    for i in by_remainder[: count - sum(counts)]:
        counts[i] += 1
    return counts
