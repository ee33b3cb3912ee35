"""Parse and evaluate integer sums, differences and products, without `eval`."""

from __future__ import annotations

import re
from collections.abc import Sequence

TOKEN = re.compile(r"\s*(?:(\d+)|([-+*()]))", re.ASCII)
DEPTH = 20
"""Maximum nesting of parentheses."""


def tokenise(text: str) -> list[str]:
    """Split a text into numbers, operators and parentheses, with signs attached (`-3`, `-(`).

    Raises ValueError if a token is invalid or out of order.
    """
    parts: list[str] = []
    offset, text = 0, text.strip()
    while offset < len(text):
        match = TOKEN.match(text, offset)
        if match is None:
            raise ValueError(f"{text[offset]!r} is no number, operator or parenthesis")
        offset = match.end()
        token = match[1] or match[2]
        if token.isdigit():
            token = str(int(token)) if len(token) <= 400 else token
        opens = not parts or parts[-1] in ("+", "-", "*", "(", "-(")
        signed = bool(parts) and parts[-1] == "-" and (len(parts) == 1 or parts[-2] in ("+", "-", "*", "(", "-("))
        if signed and (token.isdigit() or token == "("):
            parts[-1] = f"-{token}"
        elif opens and token in "+*)":
            raise ValueError(f"a number is missing before {token!r}")
        elif not opens and (token.isdigit() or token == "("):
            raise ValueError(f"an operator is missing before {token!r}")
        elif signed:
            raise ValueError("a sign stands before a number or a parenthesis")
        else:
            parts.append(token)
    return parts


def evaluate(parts: Sequence[str]) -> int:
    """Evaluate tokens to an integer, multiplication first. Raises ValueError if the expression is incomplete."""
    rest = list(reversed(parts))
    result = _read_sum(rest, 0)
    if rest:
        raise ValueError("a parenthesis is closed that was never opened")
    return result


def _read_sum(rest: list[str], depth: int) -> int:
    result = _read_product(rest, depth)
    while rest and rest[-1] in ("+", "-"):
        sign = 1 if rest.pop() == "+" else -1
        result += sign * _read_product(rest, depth)
    return result


def _read_product(rest: list[str], depth: int) -> int:
    result = _read_term(rest, depth)
    while rest and rest[-1] == "*":
        rest.pop()
        result *= _read_term(rest, depth)
    return result


def _read_term(rest: list[str], depth: int) -> int:
    token = rest.pop() if rest else ""
    if token in ("(", "-("):
        if depth >= DEPTH:
            raise ValueError(f"more than {DEPTH} parentheses in each other")
        inner = _read_sum(rest, depth + 1)
        if not rest or rest.pop() != ")":
            raise ValueError("a parenthesis is never closed")
        return -inner if token == "-(" else inner
    if not token.lstrip("-").isdigit():
        raise ValueError("a number is missing at the end" if not token else f"a number is missing before {token!r}")
    return int(token)
