"""Rewrite rules of the prover: the laws of a commutative semiring, each in one direction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from simulators.prover.terms import (
    MAX_OPERATORS,
    Equation,
    Path,
    Term,
    count_operators,
    find_subterm,
    list_operator_paths,
    replace_subterm,
)

Rule = Callable[[str, Term, Term], Term | None]
"""Function from (operator, left operand, right operand) to the new term; None if the rule does not apply."""


def _commute(operator: str, left: Term, right: Term) -> Term:
    return operator, right, left


def _associate_left(operator: str, left: Term, right: Term) -> Term | None:
    if isinstance(right, str) or right[0] != operator:
        return None
    return operator, (operator, left, right[1]), right[2]


def _associate_right(operator: str, left: Term, right: Term) -> Term | None:
    if isinstance(left, str) or left[0] != operator:
        return None
    return operator, left[1], (operator, left[2], right)


def _distribute(operator: str, left: Term, right: Term) -> Term | None:
    if operator != "*" or isinstance(right, str) or right[0] != "+":
        return None
    return "+", ("*", left, right[1]), ("*", left, right[2])


def _factor(operator: str, left: Term, right: Term) -> Term | None:
    if operator != "+" or isinstance(left, str) or isinstance(right, str):
        return None
    if left[0] != "*" or right[0] != "*" or left[1] != right[1]:
        return None
    return "*", left[1], ("+", left[2], right[2])


def _apply_zero(operator: str, left: Term, right: Term) -> Term | None:
    if right != "0":
        return None
    return left if operator == "+" else "0"


def _apply_one(operator: str, left: Term, right: Term) -> Term | None:
    return left if operator == "*" and right == "1" else None


RULES: Mapping[str, Rule] = {
    "comm": _commute, "left": _associate_left, "right": _associate_right, "dist": _distribute, "fact": _factor,
    "zero": _apply_zero, "one": _apply_one,
}  # fmt: skip
DESCRIPTIONS: Mapping[str, str] = {
    "comm": "x+y to y+x, x*y to y*x", "left": "x+(y+z) to (x+y)+z, or *", "right": "(x+y)+z to x+(y+z), or *",
    "dist": "x*(y+z) to (x*y)+(x*z)", "fact": "(x*y)+(x*z) to x*(y+z)", "zero": "x+0 to x, x*0 to 0", "one": "x*1 to x",
}  # fmt: skip


def rewrite(equation: Equation, rule: str, number: int) -> Equation | None:
    """Apply a rule at the operator with this number and return the equation; None if it does not apply there."""
    left, right = equation
    count = count_operators(left)
    if not 1 <= number <= count + count_operators(right):
        return None
    side, position = (0, number) if number <= count else (1, number - count)
    return _rewrite_side(equation, side, rule, list(list_operator_paths(equation[side]))[position - 1])


def _rewrite_side(equation: Equation, side: int, rule: str, path: Path) -> Equation | None:
    subterm = find_subterm(equation[side], path)
    assert not isinstance(subterm, str)
    new = RULES[rule](*subterm)
    if new is None or new == subterm:
        return None
    term = replace_subterm(equation[side], path, new)
    if count_operators(term) > MAX_OPERATORS:
        return None
    return (term, equation[1]) if side == 0 else (equation[0], term)


def list_successors(equation: Equation, sides: tuple[int, ...] = (0, 1)) -> Iterator[tuple[str, Equation]]:
    """Yield each tactic `RULE NUMBER` that applies to these sides of the equation, with the resulting equation."""
    number = 0
    for side in (0, 1):
        for path in list_operator_paths(equation[side]):
            number += 1
            for rule in RULES if side in sides else ():
                if (after := _rewrite_side(equation, side, rule, path)) is not None:
                    yield f"{rule} {number}", after


def apply_lemma(equation: Equation, lemma: Equation) -> Equation | None:
    """Replace the first occurrence of the lemma's left side by its right side and return the equation, or None.

    Occurrences are searched in the left side first, and each term before its parts.
    """
    for side in (0, 1):
        for path in _list_paths(equation[side]):
            if find_subterm(equation[side], path) == lemma[0]:
                term = replace_subterm(equation[side], path, lemma[1])
                if count_operators(term) > MAX_OPERATORS:
                    return None
                return (term, equation[1]) if side == 0 else (equation[0], term)
    return None


def _list_paths(term: Term, path: Path = ()) -> Iterator[Path]:
    yield path
    if not isinstance(term, str):
        yield from _list_paths(term[1], (*path, 1))
        yield from _list_paths(term[2], (*path, 2))
