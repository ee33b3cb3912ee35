"""The templates of roles: Jinja2 without what could run away with time, memory or other people's files.

A role may come from a stranger. Jinja's sandbox keeps templates from Python's internals; here they also lose
what multiplies: macros, imports, recursion, width-taking filters and every method; loops have a budget of
steps, and texts and lists a length. What is left prints facts, branches and loops.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, Undefined, meta, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from agents.names import nearest

MAX_TEXT = 20_000
MAX_STEPS = 5_000
BUDGET = "_steps"

FILTER_NAMES = (
    "abs", "capitalize", "count", "default", "first", "float", "int", "items", "last", "length", "list",
    "lower", "max", "min", "reverse", "round", "sort", "string", "title", "tojson", "trim", "truncate",
    "unique", "upper",
)  # fmt: skip


class BadTemplate(ValueError):
    """A template that cannot be compiled or rendered; its text says why, in one line."""


class _Missing(StrictUndefined):
    """An unknown name, which cannot be used, and what it might have been."""

    @property
    def _undefined_message(self) -> str:
        owner, name = self._undefined_obj, self._undefined_name
        known = [key for key in owner if isinstance(key, str)] if isinstance(owner, Mapping) else []
        return f"there is no '{name}' here{nearest(str(name), known)}"


class _Sandbox(ImmutableSandboxedEnvironment):
    """Facts come before methods (`private.values` is the fact), and there are no methods."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        known = isinstance(obj, LoopContext | Undefined)
        return super().getattr(obj, attribute) if known else self.undefined(obj=obj, name=attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(argument, str):
            return self.getattr(obj, argument)
        return super().getitem(obj, argument)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "+" and not isinstance(left, int | float):
            return self._added(left, right)
        if not isinstance(left, int | float) or not isinstance(right, int | float) or operator == "**":
            raise SecurityError(f"'{operator}' between these values is not allowed")
        if max(abs(left), abs(right)) > 1e12:
            raise SecurityError("numbers above 1e12 are not allowed")
        return super().call_binop(context, operator, left, right)

    def _added(self, left: Any, right: Any) -> Any:
        if len(left) + len(right) > MAX_TEXT:
            raise SecurityError(f"a value longer than {MAX_TEXT} is not allowed")
        return left + right


class _Bounds(NodeTransformer):
    """Sends what could grow through a filter that counts, and refuses what cannot be counted."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        joined = nodes.List(node.nodes, lineno=node.lineno)
        return nodes.Filter(joined, "join", [], [], None, None, lineno=node.lineno)

    def visit_For(self, node: nodes.For) -> nodes.Node:
        if node.recursive:
            raise BadTemplate(f"line {node.lineno}: recursive loops are not allowed")
        self.generic_visit(node)
        node.iter = nodes.Filter(node.iter, "counted", [], [], None, None, lineno=node.lineno)
        return node

    def visit_List(self, node: nodes.List | nodes.Tuple | nodes.Dict) -> nodes.Node:
        # Lists of lists of lists, each twice, are small until they are printed.
        try:
            node.as_const() if getattr(node, "ctx", "load") == "load" else None
        except nodes.Impossible:
            raise BadTemplate(f"line {node.lineno}: lists may hold constants only") from None
        return node

    visit_Tuple = visit_Dict = visit_List

    def _refuse(self, node: nodes.Node) -> nodes.Node:
        raise BadTemplate(f"line {node.lineno}: macros, blocks and imports are not allowed")

    visit_Macro = visit_CallBlock = visit_Block = visit_FilterBlock = visit_AssignBlock = _refuse
    visit_Include = visit_Import = visit_FromImport = visit_Extends = _refuse


@pass_context
def _counted(context: Context, value: Iterable[Any]) -> list[Any]:
    """The items of a loop, taken off the render's budget of steps."""
    budget: list[int] = context[BUDGET]
    items = list(islice(value, budget[0] + 1))
    budget[0] -= len(items)
    if budget[0] < 0:
        raise SecurityError(f"loops of more than {MAX_STEPS} steps are not allowed")
    return items


def _short(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter of Jinja's whose result may not be long: some, repeated, double what they get."""

    @functools.wraps(function)
    def bounded(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        if isinstance(result, str | list) and len(result) > MAX_TEXT:
            raise SecurityError(f"a value longer than {MAX_TEXT} is not allowed")
        return result

    return bounded


def _join(values: Iterable[Any], between: object = "") -> str:
    """The values as one text."""
    texts, separator = [str(value) for value in islice(values, MAX_TEXT)], str(between)
    if sum(map(len, texts)) + len(separator) * len(texts) > MAX_TEXT:
        raise SecurityError(f"a text longer than {MAX_TEXT} characters is not allowed")
    return separator.join(texts)


def _hang(text: str) -> str:
    """A text whose further lines are indented, so that none of them looks like another speaker's."""
    return text.replace("\n", "\n  ")


def _sandbox() -> _Sandbox:
    sandbox = _Sandbox(undefined=_Missing, trim_blocks=True, lstrip_blocks=True)
    kept = {name: _short(FILTERS[name]) for name in FILTER_NAMES}
    sandbox.filters = kept | {"join": _join, "hang": _hang, "counted": _counted}
    sandbox.globals = {"range": sandbox.globals["range"]}
    return sandbox


SANDBOX = _sandbox()


@functools.lru_cache(maxsize=256)
def compiled(text: str, variables: tuple[str, ...]) -> Template:
    """A template that knows these variables; BadTemplate tells its line and what is wrong."""
    try:
        tree = SANDBOX.parse(text)
        unknown = sorted(meta.find_undeclared_variables(tree) - {*variables, *SANDBOX.globals})
        if unknown:
            known = nearest(unknown[0], variables) or f" (known: {', '.join(sorted(variables))})"
            raise BadTemplate(f"unknown variable '{unknown[0]}'{known}")
        return Template.from_code(SANDBOX, SANDBOX.compile(_Bounds().visit(tree)), dict(SANDBOX.globals))
    except TemplateError as error:
        line = getattr(error, "lineno", None)
        raise BadTemplate(f"line {line}: {error.message}" if line else str(error)) from None
    except (RecursionError, SyntaxError, MemoryError, OverflowError) as error:
        raise BadTemplate(f"too deeply nested ({type(error).__name__})") from None


def names_in(text: str) -> set[str]:
    """The variables that a template's text asks for."""
    return meta.find_undeclared_variables(SANDBOX.parse(text))


def rendered(template: Template, values: Mapping[str, Any]) -> str:
    """The template's text, stripped, of at most 20,000 characters; BadTemplate says why there is none."""
    pieces, length = [], 0
    try:
        for piece in template.generate(values, **{BUDGET: [MAX_STEPS]}):
            length += len(piece)
            if length > MAX_TEXT:
                raise BadTemplate(f"it prints more than {MAX_TEXT} characters")
            pieces.append(piece)
    except (TemplateError, TypeError, ValueError, ArithmeticError, RecursionError, LookupError) as error:
        raise BadTemplate(" ".join(str(error).split())) from None
    return "".join(pieces).strip()
