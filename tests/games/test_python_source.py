"""Parsing of Python that a model wrote: bad input raises ValueError, and threads do not disturb each other."""

import ast
import gc
import sys
import threading
import time
import warnings

import pytest

from games.python_source import parse_python

NESTED = "(" * 30 + "a + b * c" + ")" * 30 + " + [1, 2, [3, [4, [x for x in y]]]]"


def test_returns_the_tree_of_an_expression() -> None:
    tree = parse_python("f(a=1)", "eval")
    assert isinstance(tree.body, ast.Call) and tree.body.keywords[0].arg == "a"


def test_returns_the_statements_of_a_program() -> None:
    assert [type(each) for each in parse_python("x = 1\nx").body] == [ast.Assign, ast.Expr]


@pytest.mark.parametrize("source", ["f(", "x = 1", "", "a\0b", "(" * 5000, "-" * 200_000 + "1", "\ud800"])
def test_refuses_other_texts(source: str) -> None:
    with pytest.raises(ValueError):
        parse_python(source, "eval")


def test_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parse_python(r"'\d'", "eval")


def test_threads_that_parse_at_once_all_succeed() -> None:
    """Let other threads run during the garbage collections of a parse, which made Python 3.11 raise SystemError."""
    trees: list[ast.Expression] = []
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()

    def pause(phase: str, info: dict[str, int]) -> None:
        time.sleep(0)

    def parse_many() -> None:
        trees.extend(parse_python(NESTED, "eval") for _ in range(50))

    try:
        sys.setswitchinterval(1e-6)
        gc.set_threshold(50)
        gc.callbacks.append(pause)
        threads = [threading.Thread(target=parse_many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.callbacks.remove(pause)
        gc.set_threshold(*threshold)
        sys.setswitchinterval(interval)
    assert len(trees) == 200
