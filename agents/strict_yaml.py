"""A small, strict subset of YAML 1.2 with one-line errors that name the place.

Plain scalars follow the core schema of YAML 1.2: only true/false are booleans, 1e-5 is a number, `no` and 12:30 are
strings. Anchors, aliases, tags and merge keys are refused. Keys are unique strings. Depth, number of values and size
are bounded. Errors have the form `file:line: field: problem and remedy`.
"""

import math
import os
import re
import types
import typing
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from games.names import nearest
from games.plain_files import open_plain

MAX_BYTES = 1_000_000
MAX_DEPTH = 32
MAX_VALUES = 20_000
FieldPath = Sequence[str | int]
UNION_MEMBER = re.compile(r"(constrained-|function-|nullable|literal\[).*|is-instance.*")
"""Pattern of pydantic's names for members of a union, which are not fields."""

FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
WORDS = (("", None), ("~", None), ("null", None), ("true", True), ("false", False))
CONSTANTS = {spell(word): value for word, value in WORDS for spell in (str, str.title, str.upper)}
INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
KEY = re.compile(r"[\s{-]*([A-Za-z_][\w-]{0,63})\s*(:|$)")


class YamlError(ValueError):
    """Raised for an invalid YAML text; the message is one line, `file:line: [field:] problem`."""


class _Fault(Exception):
    """Raised for a fault in a YAML text: line (from 0), field path and message."""

    def __init__(self, line: int, path: FieldPath, problem: str) -> None:
        self.line, self.path, self.problem = line, tuple(path), problem


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a file. Raises YamlError if it cannot be read, is larger than 1 MB or not UTF-8."""
    try:
        with open_plain(path, 1 << 60) as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise YamlError(escape_line(f"{path}: cannot be read: {getattr(error, 'strerror', error)}")) from None
    if len(data) > MAX_BYTES:
        raise YamlError(_format_error(str(path), 0, (), "the file is larger than 1 MB"))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start)
        key_path = _guess_key(data.decode("utf-8", "replace"), line)
        problem = f"byte 0x{error.object[error.start]:02x} is not UTF-8: save the file as UTF-8"
        raise YamlError(_format_error(str(path), line, key_path, problem)) from None


def load(text: str, source: str) -> Any:
    """Return the value of a YAML text: dicts with string keys, lists, str, int, finite float, bool or None.

    `source` names the text in messages. Raises YamlError if the text is invalid.
    """
    try:
        return _read_value(_compose(text), ())
    except _Fault as fault:
        path = fault.path or _guess_key(text, fault.line)
        raise YamlError(_format_error(source, fault.line, path, fault.problem)) from None


def dump(value: Any, source: str) -> str:
    """Return a YAML text from which `load` reads the same value. Raises YamlError, naming `source`, if none exists."""
    try:
        text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    except yaml.YAMLError:  # an object that is not plain data
        text = ""
    if not text or load(text, source) != value:
        problem = "YAML cannot hold these values: keep to texts, numbers, lists and mappings"
        raise YamlError(_format_error(source, None, (), problem))
    return text


def explain(
    error: ValidationError, text: str, source: str, model: type[BaseModel] | None = None, at: FieldPath = ()
) -> str:
    """Describe a YAML text's most important validation error in one line: `source:line: field: problem`.

    `model` is the validated class, for suggestions of field names. An empty `text` leaves out the line. `at` is the
    path of the validated value in the text.
    """
    worst, more = select_error(error), error.error_count() - 1
    path = (*at, *worst["loc"])
    line, depth = _locate(text, path)
    deep = depth + (worst["type"] == "missing") if text else len(path)
    field = [step for n, step in enumerate(path[:deep] or path[:1]) if not n or not UNION_MEMBER.fullmatch(str(step))]
    problem = _describe_error(worst, model) + (f" (and {more} more)" if more else "")
    return _format_error(source, line - 1 if text else None, field, problem)


def format_problem(text: str, source: str, path: FieldPath, problem: str) -> str:
    """Return the problem of the field at a path of keys and indices in one line: `source:line: field: problem`.

    An empty `text` leaves out the line.
    """
    return _format_error(source, _locate(text, path)[0] - 1 if text else None, path, problem)


def select_error(error: ValidationError) -> ErrorDetails:
    """Return the validation error to report: an unknown key, which often causes a missing one, or else the first."""
    errors = error.errors(include_url=False)
    return next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])


def escape_line(text: str, limit: int = 400) -> str:
    """Return the text with unprintable characters escaped, cut to `limit` characters, for an error message."""
    truncated = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in truncated)


class _Loader(yaml.SafeLoader):
    """PyYAML's parser with our limits, checked while it composes nodes so that no text can exhaust memory."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.path: list[str | int] = []
        self.values = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        key = isinstance(parent, yaml.MappingNode) and index is None
        inside = parent is not None and not key
        if inside:
            self.path.append(index.value if isinstance(index, yaml.ScalarNode) else index)
        self._check(self.peek_event(), key)  # type: ignore[no-untyped-call]
        node = super().compose_node(parent, index)
        if inside:
            self.path.pop()
        return typing.cast(yaml.Node, node)

    def _check(self, event: yaml.Event, key: bool) -> None:
        line, path = _line_number(event), self.path
        self.values += 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _Fault(line, path, "anchors (&) and aliases (*) are not allowed: write it out")
        if getattr(event, "tag", None):
            raise _Fault(line, path, "tags (!) are not allowed: write a plain value, or quote it")
        if key and not isinstance(event, yaml.ScalarEvent):
            raise _Fault(line, path, "a key must be a text (a template {{ … }} needs quotes or a | block)")
        if len(path) > MAX_DEPTH:
            raise _Fault(line, path[:3], f"nested deeper than {MAX_DEPTH} levels")
        if self.values > MAX_VALUES:
            raise _Fault(line, path, f"more than {MAX_VALUES} values")


class _Dumper(yaml.SafeDumper):
    """PyYAML's writer; it quotes strings that `load` or a YAML 1.1 reader would take for another type."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return True: never write aliases, which `load` refuses."""
        return True

    def represent_text(self, text: str) -> yaml.Node:
        """Return the YAML node of a string, in double quotes if PyYAML would write unusual line ends unescaped."""
        is_safe = text.replace("\n", "").isprintable() and isinstance(_parse_plain(text), str)
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_safe else '"')


_Dumper.add_representer(str, _Dumper.represent_text)


@lru_cache(maxsize=1)  # error messages locate fields in the text that was just read
def _compose(text: str) -> yaml.Node:
    """Parse a text's only document into PyYAML nodes, which callers must not change; cached. Raises _Fault."""
    if len(text) > MAX_BYTES:
        raise _Fault(0, (), "the text is larger than 1 MB")
    if bad := FORBIDDEN.search(text):
        line = text.count("\n", 0, bad.start())
        raise _Fault(line, (), f"character U+{ord(bad[0]):04X} is not allowed: remove it")
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        raise _convert_syntax_error(error, loader.path) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # ValueError: "\UFFFFFFFF", %YAML 9….1
        raise _Fault(loader.line, loader.path, f"cannot be read as YAML ({error})") from None
    if node is None or (isinstance(node, yaml.ScalarNode) and not node.value and not node.style):
        raise _Fault(0, (), "the text is empty: nothing but blanks and comments")
    return node


HINTS = {
    "mapping values are not allowed": "a second `: ` in one value: quote it, or check the indentation",
    "found character '\\t'": "a tab: indent with spaces",
    "found unexpected end of stream": "a quote that opens here is never closed",
    "could not find expected ':'": "expected `key: value`, found no `:`",
    "but found another document": "more than one document: remove the `---` between them",
    "expected <block end>": "does not fit its surroundings: check the indentation and the quotes",
    "cannot start any token": "a text that begins with this character needs quotes",
}


def _convert_syntax_error(error: yaml.MarkedYAMLError, path: FieldPath) -> _Fault:
    """Convert PyYAML's syntax error into a fault, in our wording if `HINTS` has one for it."""
    problem = str(error.problem or "cannot be read as YAML")
    hint = next((fix for sign, fix in HINTS.items() if sign in problem), "")
    begun_above = "end of stream" in problem or "':'" in problem
    mark = (begun_above and error.context_mark) or error.problem_mark
    if not hint or "character" in hint:
        hint = ": ".join(filter(None, (problem, hint)))
    return _Fault(mark.line if mark else 0, path, hint)


def _read_value(node: yaml.Node, path: tuple[str | int, ...]) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return [_read_value(item, (*path, i)) for i, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        return _read_mapping(node, path)
    return _read_scalar(node, path)


def _read_mapping(node: yaml.MappingNode, path: tuple[str | int, ...]) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for key_node, value_node in node.value:
        line, key = _line_number(key_node), _read_scalar(key_node, path)
        if not isinstance(key, str):
            raise _Fault(line, path, f"the key {key_node.value or 'null'} is not a text: put it in quotes")
        if key in mapping:
            raise _Fault(line, (*path, key), f"written twice, first in line {lines[key] + 1}: remove one")
        mapping[key], lines[key] = _read_value(value_node, (*path, key)), line
    return mapping


def _read_scalar(node: yaml.Node, path: FieldPath) -> str | int | float | bool | None:
    text, line = str(node.value), _line_number(node)
    if getattr(node, "style", None):
        return _join_surrogates(text, line, path)
    value = _parse_plain(text)
    if isinstance(value, float) and not math.isfinite(value):
        raise _Fault(line, path, f"{escape_line(text, 40)} is not a finite number: give one, or quote it")
    return value


def _parse_plain(text: str) -> str | int | float | bool | None:
    """Return the value of an unquoted YAML scalar by the core schema; NaN for any number that is not finite."""
    if text in CONSTANTS:
        return CONSTANTS[text]
    if len(text) > 400:  # surely not meant as a number, and slow to parse as one
        return text
    if INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if FLOAT.fullmatch(text):
        return float(text)
    return math.nan if NOT_FINITE.fullmatch(text) else text


def _join_surrogates(text: str, line: int, path: FieldPath) -> str:
    """Return a quoted text with escaped surrogate pairs joined. Raises _Fault for lone surrogates and NUL."""
    if any("\ud800" <= char <= "\udfff" for char in text):
        try:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            problem = "half of a surrogate pair is no character: remove the \\u escape"
            raise _Fault(line, path, problem) from None
    if "\0" in text:
        raise _Fault(line, path, "the character NUL is not allowed: remove the \\0 escape")
    return text


def _format_error(source: str, line: int | None, path: FieldPath, problem: str) -> str:
    at = source if line is None else f"{source}:{line + 1}"
    field = escape_line("".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in path).lstrip("."), 80)
    return escape_line(": ".join(part for part in (at, field, problem) if part), 1000)


def _line_number(part: yaml.Node | yaml.Event) -> int:
    return part.start_mark.line if part.start_mark else 0


def _guess_key(text: str, line: int) -> FieldPath:
    """Guess the key of a broken line from the text above it, because the parser stopped earlier; () if unknown."""
    lines = text[:MAX_BYTES].split("\n")[: line + 1]
    keys = (KEY.match(text_line) for text_line in reversed(lines[-1000:]))
    return next(((key[1],) for key in keys if key), ())


def _locate(text: str, path: FieldPath) -> tuple[int, int]:
    """Return (line number from 1 of the deepest existing part of the path, number of steps to it)."""
    try:
        node = _compose(text)
    except _Fault:
        return 1, 0
    line = _line_number(node)
    for steps, step in enumerate(path):
        children = _list_children(node)
        if step not in children:
            return line + 1, steps
        line, node = children[step]
    return line + 1, len(path)


def _list_children(node: yaml.Node) -> dict[str | int, tuple[int, yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        return {key.value: (_line_number(key), value) for key, value in node.value}
    items = node.value if isinstance(node, yaml.SequenceNode) else []
    return {index: (_line_number(item), item) for index, item in enumerate(items)}


def _describe_error(error: ErrorDetails, model: type[BaseModel] | None) -> str:
    """Describe one field's validation error, with a suggestion if there is a similar name."""
    if error["type"] == "missing":
        return "missing: this field is required"
    if error["type"] == "extra_forbidden":
        known = _list_fields(model, error["loc"][:-1])
        listed = f" (known: {', '.join(known)})" if known else ""
        return f"unknown field{nearest(str(error['loc'][-1]), known) or listed}"
    value = error["input"]
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    is_printable = isinstance(value, str | int | float | None) and error["type"] not in ("value_error", "part_error")
    hint = nearest(value, re.findall("'(.*?)'", message)) if isinstance(value, str) else ""
    if error["type"] == "string_type" and isinstance(value, int | float):  # such as 08, or true
        hint = ": put it in quotes"
    return f"{message}, not {escape_line(repr(value), 60)}{hint}" if is_printable else message


def _list_fields(model: Any, path: FieldPath) -> list[str]:
    """Return the field names of the pydantic model at a path below `model`; [] if there is none."""
    for step in path:
        fields = getattr(model, "model_fields", {})
        model = _find_model(fields[step].annotation) if step in fields else model
    return list(getattr(model, "model_fields", {}))


def _find_model(annotation: Any) -> Any:
    """Return the first pydantic model in an annotation such as dict[str, Model] or Model | None; None without one."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation if issubclass(annotation, BaseModel) else None
    return next(filter(None, map(_find_model, typing.get_args(annotation))), None)
