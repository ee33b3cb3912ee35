"""Suggestions for mistyped names."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, choices: Iterable[str]) -> str:
    """A suggestion for an error, " — did you mean 'x'?", or "" where no choice is similar (ignoring case)."""
    by_lower = {choice.lower(): choice for choice in choices}
    near = get_close_matches(name[:64].lower(), by_lower, n=1)
    return f" — did you mean '{by_lower[near[0]]}'?" if near else ""
