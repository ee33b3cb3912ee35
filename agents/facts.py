"""Format a game's facts in the syntax of role templates."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

MAX_CHARACTERS = 300
"""Maximum length of a formatted value; the rest is cut."""


def format_facts(scope: str, facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line per fact, such as `public.pool = [3, 2, 1]`, named as in templates. Long values are cut.

    >>> list(format_facts("public", {"offer": None, "pool": (3, 2)}))
    ['public.offer = none', 'public.pool = [3, 2]']
    """
    for name, value in facts.items():
        text = format_literal(value)
        yield f"{scope}.{name} = {text if len(text) <= MAX_CHARACTERS else f'{text[:MAX_CHARACTERS]} …'}"


def format_literal(value: Any) -> str:
    """Return a value as a Jinja literal: none, true, 3, "text", [1, 2] or {"a": 1}. Other types become strings."""
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{format_literal(key)}: {format_literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(format_literal, value)) + "]"
    return json.dumps(value, ensure_ascii=False, default=str)
