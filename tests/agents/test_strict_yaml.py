"""The strict YAML loader: plain scalars, one-line errors, and no other exceptions."""

import json
import random
import re
import string
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents.strict_yaml import (
    MAX_BYTES,
    MAX_DEPTH,
    YamlError,
    dump,
    explain,
    format_problem,
    load,
    read_text,
    select_error,
)
from games.names import nearest
from tests.factories.thorough import count_cases

FUZZ = settings(max_examples=count_cases(170, 700), deadline=None)


def get_fault(text: str) -> str:
    with pytest.raises(YamlError) as error:
        load(text, "f.yaml")
    message = str(error.value)
    assert message.isprintable() and len(message) < 1200
    return message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"), ("yes", "yes"), ("on", "on"), ("off", "off"), ("y", "y"), ("true", True),
        ("False", False),
        ("12:30", "12:30"), ("190:20:30", "190:20:30"), ("1e-5", 1e-5), ("1E5", 1e5), ("-2.5e+3", -2500.0),
        (".5", 0.5), ("1.", 1.0), ("007", 7), ("0o17", 15), ("0x1F", 31), ("-3", -3), ("+3", 3),
        ("1_000", "1_000"), ("0b1", "0b1"), ("2001-01-01", "2001-01-01"), ("~", None), ("null", None),
        ("=", "="), ("<<", "<<"), ("'12'", "12"), ('"true"', "true"), ("1e", "1e"), ("1.2.3", "1.2.3"),
        ("٣", "٣"), ("--- 1", 1), ("[]", []), ("{}", {}), ("{a: }", {"a": None}), ("''", ""),
        (r'"\ud83d\ude00"', "😀"), ("|\n  a: b\n  c", "a: b\nc"), (">-\n  a\n  b", "a b"),
    ],
)  # fmt: skip
def test_plain_scalars_follow_yaml_1_2(text: str, value: Any) -> None:
    loaded = load(text, "f.yaml")
    assert loaded == value and type(loaded) is type(value)


BOMB = "a: &a [1,1,1]\n" + "".join(f"{b}: &{b} [*{a},*{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2", "f.yaml:4: b.c: written twice, first in line 3"),
        ("a: 1\n'a': 2", "f.yaml:2: a: written twice"),
        (BOMB, "f.yaml:1: a: anchors (&) and aliases (*)"),
        ("x:\n  y: *a", "f.yaml:2: x.y: anchors (&) and aliases (*)"),
        ("a: {b: {<<: *c}}", "f.yaml:1: a.b.<<: anchors"),
        ("a: !!python/object/apply:os.system [ls]", "f.yaml:1: a: tags (!)"),
        ("a: !secret x", "f.yaml:1: a: tags (!)"),
        ("a:\n  - " + "[" * 500, "f.yaml:2: a[0][0]: nested deeper than 32"),
        ("a: " + "{a: " * 500, "f.yaml:1: a.a.a: nested deeper than 32"),
        ("? " * 500, "f.yaml:1: a key must be a text"),
        ("a: {{ x }}", "f.yaml:1: a: a key must be a text (a template"),
        ("a: {% if x %}", "f.yaml:1: a: found character '%' that cannot start any token: a text that begins"),
        ("a:\n\tb: 1", "f.yaml:2: a: a tab: indent with spaces"),
        ("ok: 1\na: b: c", "f.yaml:2: a: a second `: `"),
        ("ok: 1\na: 'x\nb: 2", "f.yaml:2: a: a quote that opens here is never closed"),
        ("a: 1\nb\nc: 1", "f.yaml:2: b: expected `key: value`, found no `:`"),
        ("a:\n  b: 1\n c: 2", "f.yaml:3: c: does not fit its surroundings"),
        ("a: [1, 2", "f.yaml:1: a: expected ',' or ']'"),
        ("a: 1\n---\nb: 1", "f.yaml:2: a: more than one document"),
        ("a: x\0y", "f.yaml:1: a: character U+0000 is not allowed"),
        ("ok: 1\na: x\ud800", "f.yaml:2: a: character U+D800 is not allowed"),
        ("a: \x1b[0m", "f.yaml:1: a: character U+001B is not allowed"),
        (r'a: "\0"', "f.yaml:1: a: the character NUL"),
        (r'a: "\ud800"', "f.yaml:1: a: half of a surrogate pair"),
        (r'a: "\UFFFFFFFF"', "f.yaml:1: a: cannot be read as YAML"),
        ("%YAML " + "9" * 5000 + ".1\n---\na: 1", "f.yaml:1: cannot be read as YAML"),
        ("a: .inf", "f.yaml:1: a: .inf is not a finite number"),
        ("a: [1, .NaN]", "f.yaml:1: a[1]: .NaN is not a finite number"),
        ("a: 1e999", "f.yaml:1: a: 1e999 is not a finite number"),
        ("a:\n  1: x", "f.yaml:2: a: the key 1 is not a text"),
        ("true: x", "f.yaml:1: true: the key true is not a text"),
        ("a: [" + "1," * 30_000 + "]", "f.yaml:1: a[19997]: more than 20000 values"),
        ("a: " + "x" * MAX_BYTES, "f.yaml:1: a: the text is larger than 1 MB"),
        ("", "f.yaml:1: the text is empty"), ("# a\n\n", "f.yaml:1: the text is empty"),
        ("---\n...\n", "f.yaml:1: the text is empty"),
    ],
)  # fmt: skip
def test_errors_are_one_line_with_file_line_and_field(text: str, message: str) -> None:
    assert get_fault(text).startswith(message)


def test_nesting_is_allowed_up_to_the_limit() -> None:
    assert load("[" * MAX_DEPTH + "]" * MAX_DEPTH, "f")
    get_fault("[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2))


def test_the_source_cannot_break_the_line() -> None:
    with pytest.raises(YamlError, match=r"^--set a=\[\\n:1: "):
        load("[", "--set a=[\n")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"ok: 1\na: \xff\n", ":2: a: byte 0xff is not UTF-8"),
        ("a: é".encode("latin-1"), ":1: a: byte 0xe9 is not UTF-8"),
        ("a: 1".encode("utf-16"), ":1: byte 0xff is not UTF-8"),
        (b"\xef\xbb\xbfok: 1\na: \xfe", ":2: a: byte 0xfe is not UTF-8"),
        (b"a: " + b"x" * MAX_BYTES, ":1: the file is larger than 1 MB"),
        (b"", ":1: the text is empty"),
    ],
)
def test_refuses_binary_files(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(data)
    with pytest.raises(YamlError) as error:
        load(read_text(path), str(path))
    assert str(error.value).startswith(f"{path}{message}")


def test_refuses_unreadable_files(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path / "none.yaml", "No such file"),
        (tmp_path, "Is a directory"),
        ("a\0b", "null byte"),
    ):
        with pytest.raises(YamlError, match=f"cannot be read: .*{message}"):
            load(read_text(path), str(path))
    (tmp_path / "bom.yaml").write_bytes(b"\xef\xbb\xbfa: 1")
    assert load(read_text(tmp_path / "bom.yaml"), "bom.yaml") == {"a": 1}


class Leaf(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    rate: Annotated[float, Field(gt=0)] = 1.0
    kind: Literal["all", "window"] = "all"


class Root(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    name: str
    leaf: Leaf = Leaf()
    leaves: list[Leaf] = []
    table: dict[Annotated[str, Field(pattern="^[a-z]+$")], Leaf | None] = {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: x\nlaef: {}", "f.yaml:2: laef: unknown field — did you mean 'leaf'?"),
        ("nmae: x", "f.yaml:1: nmae: unknown field — did you mean 'name'? (and 1 more)"),
        ("name: x\nqqq: 1", "f.yaml:2: qqq: unknown field (known: name, leaf, leaves, table)"),
        (
            "name: x\nleaves:\n- rate: 1\n- rte: 2",
            "f.yaml:4: leaves[1].rte: unknown field — did you mean 'rate'?",
        ),
        ("name: x\ntable:\n  a:\n    rat: 2", "f.yaml:4: table.a.rat: unknown field — did you mean 'rate'?"),
        ("name: x\nleaf:\n  rate: '1'", "f.yaml:3: leaf.rate: should be a valid number, not '1'"),
        ("name: x\nleaf:\n  rate: true", "f.yaml:3: leaf.rate: should be a valid number, not True"),
        ("name: x\nleaf:\n  rate: 0", "f.yaml:3: leaf.rate: should be greater than 0, not 0"),
        (
            "name: x\nleaf:\n  kind: windw",
            "f.yaml:3: leaf.kind: should be 'all' or 'window', not 'windw' — did you",
        ),
        ("name: 12:30\nleaf: 3", "f.yaml:2: leaf: should be a valid dictionary or instance of Leaf, not 3"),
        ("name: 5", "f.yaml:1: name: should be a valid string, not 5"),
        ("leaf: {}", "f.yaml:1: name: missing: this field is required"),
        ("name: x\ntable:\n  B1: ~", "f.yaml:3: table.B1: String should match pattern"),
    ],
)
def test_validation_errors_are_one_line_with_file_line_and_field(text: str, message: str) -> None:
    with pytest.raises(ValidationError) as error:
        Root.model_validate(load(text, "f.yaml"))
    line = explain(error.value, text, "f.yaml", Root)
    assert line.startswith(message) and line.isprintable()
    assert explain(error.value, text, "f.yaml").startswith(message.split(":")[0])


def test_settings_without_a_text_have_no_line() -> None:
    with pytest.raises(ValidationError) as error:
        Root.model_validate({"name": 3})
    assert (
        explain(error.value, "", "--set name=3")
        == "--set name=3: name: should be a valid string, not 3: put it in quotes"
    )
    assert select_error(error.value)["loc"] == ("name",)


def test_line_of_finds_the_field_or_its_nearest_parent() -> None:
    text = "# head\na: 1\nb:\n  - x\n  - y: 2\n    z: 3\n"
    paths: list[tuple[str | int, ...]] = [(), ("a",), ("b",), ("b", 1), ("b", 1, "z"), ("b", 7), ("c",)]
    assert [format_problem(text, "f", path, "bad").split(":")[1] for path in paths] == list("2235632")
    assert format_problem("[", "f", ("a",), "bad") == "f:1: a: bad"


def test_suggests_nearest_name() -> None:
    assert nearest("negotation", ["chess", "negotiation"]) == " — did you mean 'negotiation'?"
    assert nearest("NANO", ["Nano"]) == " — did you mean 'Nano'?"
    assert nearest("zzz", ["chess"]) == nearest("x" * 10**6, ["chess"]) == nearest("a", []) == ""


def assert_only_yaml_errors(text: str) -> None:
    try:
        value = load(text, "f.yaml")
    except YamlError as error:
        assert str(error).startswith("f.yaml:") and str(error).isprintable()
    else:
        json.dumps(value, allow_nan=False).encode()


SNIPPETS = [
    *"{}[],:-?|>&*!%@`'\"#\n\r\t\0~\\ \x85\u2028\ufeff", "- ", ": ", "? ", "<<: ", "*a ", "&a ", "!!str ",
    "!<", "---\n", "...\n", "%YAML 1.1\n", "%TAG ! x\n", '"\\u', '"\\ud8', "\\x", "1e9", "12:30", "0x",
    ".inf", "  ", "    ", "|2-\n", ">+\n", "a: 1\n", "a:\n", "\ud800", "{{ x }}", "9" * 5000, "[" * 40,
]  # fmt: skip
SOUP = st.lists(st.sampled_from(SNIPPETS) | st.text(max_size=3), max_size=30).map("".join)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
TREES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)


@FUZZ
@given(st.text() | SOUP | st.text(st.characters()))
@example("a: " + "[" * 20_000)
def test_text_never_raises_anything_else(text: str) -> None:
    assert_only_yaml_errors(text)


@FUZZ
@given(data=st.binary(max_size=60) | SOUP.map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_bytes_never_raise_anything_else(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.yaml"
    path.write_bytes(data)
    try:
        load(read_text(path), str(path))
    except YamlError as error:
        assert str(error).startswith(f"{path}:") and str(error).isprintable()


@pytest.mark.slow
@FUZZ
@given(TREES, st.integers(0, 400), st.integers(0, 8), st.sampled_from(["", *SNIPPETS]), st.booleans())
def test_mutated_documents_never_raise_anything_else(tree: Any, at: int, cut: int, put: str, flow: bool) -> None:
    text = yaml.safe_dump(tree, default_flow_style=flow, allow_unicode=True)
    assert_only_yaml_errors(text[:at] + put + text[at + cut :])


@given(TREES)
def test_json_is_read_as_it_was_written(tree: Any) -> None:
    text = json.dumps(tree)
    try:
        assert load(text, "f.yaml") == tree
    except YamlError as error:  # what may not stand in a text here, and keys too long for one line
        assert "NUL" in str(error) or "surrogate" in str(error) or "found no `:`" in str(error)


LOOKALIKES = [
    "0908", "08", "1e3", "3e8", "0o17", "0x1F", "1_000", "0b1", ".5", "1.", "+3", "1:30", "2024-01-01", ".inf", ".nan",
    "on", "off", "yes", "no", "y", "null", "~", "true", "True", "", "=", "<<", "-", "---", "...", "- a", "? a", "a: b",
    "a #b", "#", "!a", "&a", "*a", "%a", "@a", "`a", "{", "[", "'", '"', "|", ">", " a", "a ", "a\n", "\na", "a\n\n b",
    "\t", "a\tb", "a\r\nb", "\x85", "a\u2028b", "\ufeffa", "\x7f", "\xa0", "é", "😀", "a" * 130, "x " * 200,
]  # fmt: skip
"""Texts that YAML could take for something else."""
TEXTS = st.sampled_from(LOOKALIKES) | st.from_regex(r"[-+]?[0-9._]+([eE:x][-+0-9a-f]*)?", fullmatch=True) | st.text()
WRITABLE = st.recursive(
    PLAIN | TEXTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=8
)


@pytest.mark.parametrize("text", LOOKALIKES)
def test_a_text_is_written_so_that_it_is_read_as_that_text(text: str) -> None:
    value = {"a": text, text: [text, {"b": text}]}
    assert load(dump(value, "it"), "it") == value == yaml.safe_load(dump(value, "it"))


@given(WRITABLE)
def test_a_value_is_written_so_that_it_is_read_back_or_refused(value: Any) -> None:
    try:
        assert load(dump(value, "it"), "it") == value
    except YamlError as error:
        assert re.search("NUL|surrogate|cannot hold", str(error))


def test_a_value_is_written_out_as_often_as_it_occurs() -> None:
    shared = ["1"]
    assert load(dump([shared, shared], "it"), "it") == [shared, shared]


@pytest.mark.parametrize(
    "value", [{"a": "\0"}, {"a": "\ud800"}, {"a": [float("nan")]}, {"a": 10**500}, {1: 2}, {"a": (1,)}]
)
def test_refuses_to_write_unreadable_values(value: Any) -> None:
    with pytest.raises(YamlError):
        dump(value, "it")


@pytest.mark.slow
def test_a_hundred_thousand_documents_are_read_or_refused_in_time() -> None:
    """Prints the rate: `pytest -m slow -s tests/agents/test_strict_yaml.py`."""
    rng = random.Random(0)
    seeds = [path.read_text() for path in Path("agents/roles").glob("*.yaml")] + [BOMB, "a: [1, {b: c}]\n"]
    worst, begun, refused = 0.0, time.perf_counter(), 0
    for _ in range(100_000):
        text = rng.choice(seeds)[: rng.randrange(1, 400)] if rng.random() < 0.7 else ""
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(text) + 1)
            put = rng.choice([*SNIPPETS, rng.choice(string.printable), chr(rng.randrange(0x110000))])
            text = text[:at] + put + text[at + rng.randrange(4) :]
        start = time.perf_counter()
        try:
            load(text, "f.yaml")
        except YamlError:
            refused += 1
        worst = max(worst, time.perf_counter() - start)
    print(f"\n100000 documents, {refused} refused, {time.perf_counter() - begun:.0f} s, slowest {worst:.3f} s")


@pytest.mark.slow
@pytest.mark.parametrize("unit", [*SNIPPETS, "a: ", "- 1\n", "[1,", "{a: ", "x ", "\\x41", "# x\n", "a\n "])
@pytest.mark.parametrize("head", ["", "a: ", "a: '", 'a: "', "a: |\n  "])
def test_a_megabyte_of_anything_is_read_or_refused(head: str, unit: str) -> None:
    assert_only_yaml_errors(head + unit * ((MAX_BYTES - 20) // len(unit)))
