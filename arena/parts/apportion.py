"""Apportionment of a whole number by shares."""

from collections.abc import Sequence


def apportion(count: int, shares: Sequence[float]) -> list[int]:
    """Return how many of `count` each share gets, by largest remainder (Hamilton's method); the first wins ties."""
    quotas = [count * share / sum(shares) for share in shares]
    counts = [int(quota) for quota in quotas]
    by_remainder = sorted(range(len(shares)), key=lambda i: counts[i] - quotas[i])
    for i in by_remainder[: count - sum(counts)]:
        counts[i] += 1
    return counts
