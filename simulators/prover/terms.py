"""Terms and equations of the rewriting prover, as text and as trees.

A term is a leaf (`a` to `d`, `0`, `1`), or `left+right` or `left*right` with parentheses around every operand that is
not a leaf. Tactics refer to operators by number: their order in the text of the equation, from 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LEAVES = ("a", "b", "c", "d", "0", "1")
OPERATORS = ("+", "*")
MAX_OPERATORS = 12
"""Maximum number of operators in a term. Rules that would exceed it do not apply."""
MAX_CHARACTERS = 200
"""Maximum number of characters of an equation."""
_TOKEN = re.compile(r"\s*([abcd01+*()])")

Term = str | tuple[str, "Term", "Term"]
"""Leaf, or (operator, left operand, right operand)."""
Path = tuple[int, ...]
"""Path from a term's root to a subterm: 1 for each left operand, 2 for each right one."""
Equation = tuple[Term, Term]


def format_term(term: Term) -> str:
    """Return a term as text, without outer parentheses."""
    if isinstance(term, str):
        return term
    operator, left, right = term
    return f"{_format_operand(left)}{operator}{_format_operand(right)}"


def _format_operand(term: Term) -> str:
    return term if isinstance(term, str) else f"({format_term(term)})"


def format_equation(equation: Equation) -> str:
    """Return an equation as text, such as `(a+b)*c = c*(a+b)`."""
    return f"{format_term(equation[0])} = {format_term(equation[1])}"


def format_numbered(equation: Equation) -> str:
    """Return the equation's text with each operator followed by its number: `(a +1 b) *2 c = c *3 (a +4 b)`."""
    parts, number = [], 0
    for char in format_equation(equation):
        number += char in OPERATORS
        parts.append(f" {char}{number} " if char in OPERATORS else char)
    return "".join(parts)


def read_equation(text: str) -> Equation:
    """Parse an equation of bounded size. Raises ValueError, with the reason, for any other text."""
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"an equation has at most {MAX_CHARACTERS} characters")
    sides = text.split("=")
    if len(sides) != 2:
        raise ValueError("an equation is TERM = TERM")
    left, right = (_read_term(side) for side in sides)
    return left, right


def _read_term(text: str) -> Term:
    tokens, offset = [], 0
    text = text.rstrip()
    while offset < len(text):
        token = _TOKEN.match(text, offset)
        if token is None:
            raise ValueError("a term has a to d, 0, 1, +, * and parentheses")
        tokens.append(token[1])
        offset = token.end()
    term, rest = _read_operation(tokens)
    if rest:
        raise ValueError("a term has one operator in each pair of parentheses")
    if count_operators(term) > MAX_OPERATORS:
        raise ValueError(f"a term has at most {MAX_OPERATORS} operators")
    return term


def _read_operation(tokens: list[str]) -> tuple[Term, list[str]]:
    """Parse an operand and, if an operator follows, another operand. Returns (term, remaining tokens)."""
    left, rest = _read_operand(tokens)
    if not rest or rest[0] not in OPERATORS:
        return left, rest
    right, after = _read_operand(rest[1:])
    return (rest[0], left, right), after


def _read_operand(tokens: list[str]) -> tuple[Term, list[str]]:
    if tokens and tokens[0] in LEAVES:
        return tokens[0], tokens[1:]
    if not tokens or tokens[0] != "(":
        raise ValueError("an operand is missing")
    inner, rest = _read_operation(tokens[1:])
    if not rest or rest[0] != ")":
        raise ValueError("a parenthesis is not closed")
    return inner, rest[1:]


def count_operators(term: Term) -> int:
    """Return the number of operators in a term."""
    return 0 if isinstance(term, str) else 1 + count_operators(term[1]) + count_operators(term[2])


def list_operator_paths(term: Term, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of a term's operators in the order of its text."""
    if isinstance(term, str):
        return
    yield from list_operator_paths(term[1], (*path, 1))
    yield path
    yield from list_operator_paths(term[2], (*path, 2))


def find_subterm(term: Term, path: Path) -> Term:
    """Return the subterm at a path, which must exist."""
    for step in path:
        assert not isinstance(term, str)
        term = term[step]
    return term


def replace_subterm(term: Term, path: Path, new: Term) -> Term:
    """Return the term with the subterm at a path replaced by `new`."""
    if not path:
        return new
    assert not isinstance(term, str)
    operator, left, right = term
    if path[0] == 1:
        return operator, replace_subterm(left, path[1:], new), right
    return operator, left, replace_subterm(right, path[1:], new)
