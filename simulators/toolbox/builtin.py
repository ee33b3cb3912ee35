"""Built-in tools, by name: `calculator` and `python`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from games.python_source import parse_python
from games.slow import offload
from simulators.confine.code import run_python

MAX_CHARACTERS = 400
"""Maximum number of characters of an expression."""
MAX_DIGITS = 300
"""Maximum number of digits of an integer result, so that powers stay cheap."""

OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def calculator(expression: str) -> str:
    """Compute an arithmetic expression with + - * / // % ** and parentheses."""
    if len(expression) > MAX_CHARACTERS:
        raise ValueError(f"an expression has at most {MAX_CHARACTERS} characters")
    try:
        tree = parse_python(expression.strip(), "eval")
    except ValueError:
        raise ValueError("this is not an arithmetic expression") from None
    try:
        return str(_evaluate(tree.body))
    except (RecursionError, MemoryError):
        raise ValueError("this is not an arithmetic expression") from None
    except ZeroDivisionError:
        raise ValueError("division by zero") from None
    except OverflowError:
        raise ValueError("the result is too large") from None


def _evaluate(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _evaluate(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return _apply(op, _evaluate(left), _evaluate(right))
    raise ValueError("only numbers, + - * / // % ** and parentheses are allowed")


def _apply(op: ast.operator, left: float, right: float) -> float:
    is_power = isinstance(op, ast.Pow) and isinstance(left, int) and isinstance(right, int) and right > 0
    # An integer power has about right · log10(left) digits; 0.302 is log10(2), rounded up.
    if is_power and int(left).bit_length() * right * 0.302 > MAX_DIGITS:
        raise OverflowError
    result = OPERATORS[type(op)](left, right)
    if isinstance(result, complex):
        raise ValueError("the result is not a real number")
    if isinstance(result, int) and result.bit_length() * 0.302 > MAX_DIGITS:
        raise OverflowError
    return result


def python(code: str) -> str:
    """Run Python code in an isolated process and return what it prints."""
    return offload(run_python, code).observation()


BUILT_IN: Mapping[str, Callable[..., str]] = {"calculator": calculator, "python": python}
