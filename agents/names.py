"""Names that people type: what they may have meant."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, choices: Iterable[str]) -> str:
    """" — did you mean 'x'?" for the choice most like the name, case apart; "" where none is like it."""
    by_lower = {choice.lower(): choice for choice in choices}
    found = get_close_matches(name[:64].lower(), by_lower, n=1)
    return f" — did you mean '{by_lower[found[0]]}'?" if found else ""
