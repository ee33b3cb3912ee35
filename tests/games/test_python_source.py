"""Parsing of Python that a model wrote: bad input raises ValueError, and threads take turns."""

import ast
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from games.python_source import parse_python


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


def test_parses_again_after_an_error_of_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    parse, errors = ast.parse, [SystemError("AST constructor recursion depth mismatch")] * 2

    def parse_third_time(source: str, mode: str) -> ast.AST:
        if errors:
            raise errors.pop()
        return parse(source, mode=mode)

    monkeypatch.setattr(ast, "parse", parse_third_time)
    assert isinstance(parse_python("1", "eval").body, ast.Constant) and not errors
    errors += [SystemError("again")] * 100
    with pytest.raises(ValueError, match="cannot be parsed now"):
        parse_python("1", "eval")


def test_threads_parse_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    parse, active, counts = ast.parse, list[str](), list[int]()

    def parse_slowly(source: str, mode: str) -> ast.AST:
        active.append(source)
        counts.append(len(active))
        time.sleep(0.01)
        active.remove(source)
        return parse(source, mode=mode)

    monkeypatch.setattr(ast, "parse", parse_slowly)
    with ThreadPoolExecutor(4) as pool:
        trees = list(pool.map(lambda n: parse_python(f"{n}", "eval"), range(12)))
    assert len(trees) == 12 and counts == [1] * 12
