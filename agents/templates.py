"""Compile and render the Jinja2 templates of roles, with deterministic limits for untrusted templates.

Jinja's sandbox hides Python's internals. Here templates also have no macros, imports, recursion, methods, or filters
with a width. Everything that a loop, filter, comparison or range visits counts against a rendering's budget of steps,
and texts and lists have a maximum length. What remains can print facts, branch and loop.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from traceback import extract_tb
from typing import Any, cast

from jinja2 import StrictUndefined, Template, TemplateError, Undefined, meta, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from agents.template_lines import strip_tag_lines
from games.names import nearest

MAX_TEXT = 20_000
MAX_STEPS = 100_000
"""Budget of a rendering. A step is a node of a loop's body, a visited value, or `CHARACTERS_PER_STEP` characters:
about a microsecond."""
CHARACTERS_PER_STEP = 50
MAX_RESULT = 1e12
"""Maximum number in a template's constants and calculations."""
MAX_NUMBER = 10_000
"""Maximum number in a filter's arguments, such as the digits of `round`."""
BUDGET = "_steps"

FILTER_NAMES = (
    "abs", "capitalize", "count", "default", "first", "float", "int", "items", "last", "length", "list",
    "lower", "max", "min", "reverse", "round", "sort", "string", "title", "tojson", "trim", "truncate",
    "unique", "upper",
)  # fmt: skip
PER_CHARACTER = frozenset({"list", "max", "min", "reverse", "sort", "title", "unique"})
"""Filters that process each character of a text."""
MAX_INDENT = 16
MAX_DEPTH = 20
"""Maximum nesting of brackets or blocks."""
MAX_OPERATORS = 100
"""Maximum operators in one tag, including brackets and dots. Jinja's parser recurses for many of them."""
OPENERS = frozenset({"if", "for", "filter", "with"})


class BadTemplate(ValueError):
    """Raised for a template that cannot be compiled or rendered; the message is one line."""


class _MissingName(StrictUndefined):
    """Undefined name in a template; using it raises an error that suggests the nearest known name."""

    @property
    def _undefined_message(self) -> str:
        owner, name = self._undefined_obj, self._undefined_name
        known = [key for key in owner if isinstance(key, str)] if isinstance(owner, Mapping) else []
        hint = nearest(str(name), known) or (f" (there are: {', '.join(known)})"[:200] if known else "")
        return f"there is no '{name}' here{hint}"


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja sandbox without methods: `private.values` is the fact of that name, else undefined."""

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
            return self._add(left, right)
        if not isinstance(left, int | float) or not isinstance(right, int | float) or operator == "**":
            raise SecurityError(f"'{operator}' between these values is not allowed")
        if max(abs(left), abs(right)) > MAX_RESULT:
            raise SecurityError("numbers above 1e12 are not allowed")
        return super().call_binop(context, operator, left, right)

    def _add(self, left: Any, right: Any) -> Any:
        if len(left) + len(right) > MAX_TEXT:
            raise SecurityError(f"a value longer than {MAX_TEXT} is not allowed")
        return left + right


class _Bounds(NodeTransformer):
    """Transformer of syntax trees that meters operations of variable cost and refuses those that it cannot meter."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        joined = nodes.List(node.nodes, lineno=node.lineno)
        return nodes.Filter(_meter(joined), "join", [], [], None, None, lineno=node.lineno)

    def visit_For(self, node: nodes.For) -> nodes.Node:
        if node.recursive:
            raise BadTemplate(f"line {node.lineno}: recursive loops are not allowed")
        body = sum(1 for part in (*node.body, node.test or node.target) for _ in part.find_all(nodes.Node))
        self.generic_visit(node)
        cost = nodes.Const(1 + body, lineno=node.lineno)
        node.iter = nodes.Filter(node.iter, "counted", [cost], [], None, None, lineno=node.lineno)
        return node

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:
        self.generic_visit(node)
        if node.node is not None:
            node.node = _meter(node.node, "spelled" if node.name in PER_CHARACTER else "metered")
        return node

    def _meter_operands(self, node: Any) -> nodes.Node:
        """Wrap every operand of a test, comparison, addition or call in a metering filter."""
        self.generic_visit(node)
        for field in ("node", "expr", "left", "right"):
            if field in node.fields and not isinstance(node, nodes.Call):
                setattr(node, field, _meter(getattr(node, field)))
        if "args" in node.fields:
            node.args = [_meter(argument) for argument in node.args]
        return cast(nodes.Node, node)

    visit_Test = visit_Compare = visit_Operand = visit_Add = visit_Call = _meter_operands

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            node.node = _meter(node.node)
        return node

    def visit_Const(self, node: nodes.Const) -> nodes.Node:
        if isinstance(node.value, int | float) and not abs(node.value) <= MAX_RESULT:
            raise BadTemplate(f"line {node.lineno}: numbers above 1e12 are not allowed")
        return node

    def visit_List(self, node: nodes.List | nodes.Tuple | nodes.Dict) -> nodes.Node:
        # Nested lists that repeat a variable are small until they are printed.
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


def _meter(node: nodes.Expr, filter_name: str = "metered") -> nodes.Expr:
    """Wrap a node in the filter `filter_name`, which charges the steps of its value to the rendering's budget."""
    return nodes.Filter(node, filter_name, [], [], None, None, lineno=node.lineno)


def _spend(context: Context, steps: int) -> None:
    budget: list[int] = context[BUDGET]
    budget[0] -= steps
    if budget[0] < 0:
        raise SecurityError(f"it takes more than {MAX_STEPS:,} steps: loop over less")


@pass_context
def _count_items(context: Context, values: Iterable[Any], body: int) -> list[Any]:
    """Return a loop's items as a list, and charge `body` steps per item to the rendering's budget."""
    items = list(islice(values, MAX_STEPS + 1))
    _spend(context, len(items) * body)
    return items


@pass_context
def _meter_value(context: Context, value: Any) -> Any:
    """Charge the steps of a value to the rendering's budget. Returns the value, or a list of an iterator's items."""
    value = list(islice(value, MAX_STEPS + 1)) if isinstance(value, Iterator) else value
    _spend(context, _count_steps(value))
    return value


@pass_context
def _meter_characters(context: Context, value: Any) -> Any:
    """Charge the steps of a value, and one per character of a text, to the rendering's budget. Returns the value."""
    if isinstance(value, str):
        _spend(context, len(value))
    return _meter_value(context, value)


@pass_context
def _range(context: Context, *bounds: int) -> range:
    """Return Python's range, and charge one step per number to the rendering's budget."""
    numbers = range(*bounds)
    _spend(context, len(numbers))
    return numbers


def _count_steps(value: Any) -> int:
    """Return the steps of a value: 1 for itself and each nested value, and 1 per `CHARACTERS_PER_STEP` characters."""
    if isinstance(value, str):
        return 1 + len(value) // CHARACTERS_PER_STEP
    if isinstance(value, Mapping):
        return 1 + sum(_count_steps(key) + _count_steps(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return 1 + sum(map(_count_steps, value))
    return 1 + (len(value) if isinstance(value, range) else 0)


def _limit_filter(function: Callable[..., Any], max_number: int) -> Callable[..., Any]:
    """Wrap a Jinja filter to raise SecurityError for numbers above `max_number` and results longer than `MAX_TEXT`."""
    skipped = 2 if hasattr(function, "jinja_pass_arg") else 1  # the filtered value, and a context before it

    @functools.wraps(function)
    def limited(*arguments: Any, **options: Any) -> Any:
        for option in (*arguments[skipped:], *options.values()):
            if isinstance(option, int | float) and not abs(option) <= max_number:
                raise SecurityError(f"numbers above {max_number:,} are not allowed in filters")
            if isinstance(option, str) and option.count(".") > 8:
                raise SecurityError("names of more than eight parts are not allowed in filters")
        result = function(*arguments, **options)
        if isinstance(result, str | list) and len(result) > MAX_TEXT:
            raise SecurityError(f"a value longer than {MAX_TEXT} is not allowed")
        return result

    return limited


def _join(values: Iterable[Any], between: object = "") -> str:
    """Join values as text. Raises SecurityError if the result has more than `MAX_TEXT` characters."""
    texts, separator = [str(value) for value in islice(values, MAX_TEXT)], str(between)
    if sum(map(len, texts)) + len(separator) * len(texts) > MAX_TEXT:
        raise SecurityError(f"a text longer than {MAX_TEXT} characters is not allowed")
    return separator.join(texts)


def hang(text: str) -> str:
    """Indent all lines of a text but the first, unless indented, so that none looks like a new message."""
    return re.sub("\n(?!  )", "\n  ", text)


def _create_sandbox() -> _Sandbox:
    sandbox = _Sandbox(undefined=_MissingName, optimized=False)  # the optimiser would evaluate without metering
    filters = {
        name: _limit_filter(FILTERS[name], MAX_INDENT if name == "tojson" else MAX_NUMBER) for name in FILTER_NAMES
    }
    counting = {"counted": _count_items, "metered": _meter_value, "spelled": _meter_characters}
    sandbox.filters = filters | {"join": _join, "hang": hang} | counting
    sandbox.globals = {"range": _range}
    return sandbox


SANDBOX = _create_sandbox()


@functools.lru_cache(maxsize=256)
def compile_template(text: str, variables: tuple[str, ...]) -> Template:
    """Compile a template that may use these variables; cached. Raises BadTemplate with the line and the problem."""
    try:
        _check_depth(text)
        unknown, tree = (
            sorted(find_names(text) - {*variables, *SANDBOX.globals}),
            SANDBOX.parse(strip_tag_lines(text, SANDBOX)),
        )
        if unknown:
            known = nearest(unknown[0], variables) or f" (known: {', '.join(sorted(variables))})"
            line = min(name.lineno for name in tree.find_all(nodes.Name) if name.name == unknown[0])
            raise BadTemplate(f"line {line}: unknown variable '{unknown[0]}'{known}")
        return Template.from_code(SANDBOX, SANDBOX.compile(_Bounds().visit(tree)), dict(SANDBOX.globals))
    except BadTemplate:
        raise
    except TemplateError as error:
        at = getattr(error, "lineno", None)
        raise BadTemplate(f"line {at}: {error.message}" if at else str(error)) from None
    except (RecursionError, SyntaxError, MemoryError, OverflowError) as error:
        raise BadTemplate(f"too deeply nested ({type(error).__name__})") from None
    except ValueError:  # Python neither reads nor writes numbers of more than 4,300 digits
        raise BadTemplate("numbers above 1e12 are not allowed") from None


def _check_depth(text: str) -> None:
    """Raise BadTemplate for deep nesting before Jinja's parser recurses. Raises TemplateError for a syntax error.

    RecursionError would be caught, too, but finalisers that run at that moment print errors.
    """
    depth = operators = blocks = 0
    before = ""
    for line, kind, value in SANDBOX.lex(text):
        if kind.endswith("_begin"):
            depth = operators = 0
        elif kind == "operator":
            operators += 1
            depth += (value in "([{") - (value in ")]}")
        elif kind == "name" and before == "block_begin":
            blocks += (value in OPENERS) - value.startswith("end")
        if max(depth, blocks) > MAX_DEPTH or operators > MAX_OPERATORS:
            raise BadTemplate(f"line {line}: too deeply nested (at most {MAX_DEPTH} brackets or blocks, and "
                              f"{MAX_OPERATORS} operators in a tag)")  # fmt: skip
        before = before if kind == "whitespace" else kind


def find_names(text: str) -> set[str]:
    """Return the names of the variables that a template uses without defining them."""
    finder = meta.TrackingCodeGenerator(SANDBOX)
    finder.optimizer = None  # takes cubic time in the number of chained filters
    finder.visit(SANDBOX.parse(text))
    return finder.undeclared_identifiers


def find_items(text: str, name: str) -> set[str] | None:
    """Return the keys of the mapping `name` that a template uses; None if it uses the mapping as a whole."""
    tree = SANDBOX.parse(text)
    items = dict[nodes.Node, str]()
    for dotted in tree.find_all(nodes.Getattr):
        items[dotted.node] = dotted.attr
    for bracketed in tree.find_all(nodes.Getitem):
        if isinstance(bracketed.arg, nodes.Const) and isinstance(bracketed.arg.value, str):
            items[bracketed.node] = bracketed.arg.value
    places = [place for place in tree.find_all(nodes.Name) if place.name == name and place.ctx == "load"]
    return {items[place] for place in places} if all(place in items for place in places) else None


def render_template(template: Template, values: Mapping[str, Any]) -> str:
    """Render a compiled template and return its output, stripped. Raises BadTemplate with the line and the problem.

    The output may have at most 20,000 characters, and the rendering at most `MAX_STEPS` steps.
    """
    pieces, length = [], 0
    try:
        for piece in template.generate(values, **{BUDGET: [MAX_STEPS]}):
            length += len(piece)
            if length > MAX_TEXT:
                raise BadTemplate(f"it prints more than {MAX_TEXT} characters")
            pieces.append(piece)
    except Exception as error:  # noqa: BLE001 an untrusted template may raise anything
        lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == "<template>"]
        prefix = f"line {lines[-1]}: " if lines else ""
        raise BadTemplate(prefix + (" ".join(str(error).split()) or type(error).__name__)) from None
    return "".join(pieces).strip()
