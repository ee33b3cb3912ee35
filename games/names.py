"""Suggestions for mistyped names."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return the suggestion " — did you mean 'x'?" for an error message, or "" if no choice is similar.

    Case is ignored. A choice that starts with at least three typed characters also counts as similar.
    """
    by_lower = {choice.lower(): choice for choice in choices}
    typed = name[:64].lower()
    prefixed = [choice for choice in by_lower if len(typed) >= 3 and choice.startswith(typed)]
    similar = get_close_matches(typed, by_lower, n=1) or prefixed
    return f" — did you mean '{by_lower[similar[0]]}'?" if similar else ""
