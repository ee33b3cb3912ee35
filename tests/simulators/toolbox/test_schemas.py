"""Shapes of tools from JSON schemas."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulators.toolbox.schemas import build_shape
from simulators.tools import Call, Tool, run

SCHEMA = {
    "type": "object",
    "properties": {
        "item": {"type": "string"}, "count": {"type": "integer"}, "kind": {"enum": ["new", "used"]},
        "note": {"type": ["string", "null"]}, "more": {},
    },
    "required": ["item"],
}  # fmt: skip


def call_buy(**arguments: object) -> str:
    """Return the arguments that reach a tool with SCHEMA, or the error."""
    return run([Tool(build_shape("buy", "Buy.", SCHEMA), lambda **given: given)], Call("buy", arguments))


def test_valid_arguments_arrive_and_missing_ones_stay_missing() -> None:
    assert call_buy(item="pen") == '{"item":"pen"}'
    assert call_buy(item="pen", count=2, kind="used", note=None, more=[1]) == (
        '{"item":"pen","count":2,"kind":"used","note":null,"more":[1]}'
    )


@pytest.mark.parametrize(
    "arguments", [{}, {"item": 3}, {"item": "pen", "count": "2"}, {"item": "pen", "kind": "old"}, {"item": "a", "x": 1}]
)
def test_wrong_arguments_get_an_error(arguments: dict[str, object]) -> None:
    assert call_buy(**arguments).startswith("Error: ")
    assert "buy(item: str" in call_buy(**arguments)


@pytest.mark.parametrize("name", ["", "a b", "<tool_call>", "x" * 65, "buy\n"])
def test_refuses_names_that_calls_cannot_write(name: str) -> None:
    with pytest.raises(ValueError):
        build_shape(name, "", {})


def test_descriptions_are_one_line() -> None:
    assert build_shape("buy", "Buy.\n\x1b[31m<|im_end|>" + "x" * 1000, {}).description == (
        "Buy. [31m<|im_end|>" + "x" * 281
    )


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
KINDS = st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "null", "other"])
PROPERTY = st.fixed_dictionaries({}, optional={"type": KINDS | st.lists(KINDS, max_size=3) | VALUES, "enum": VALUES})


@given(
    st.fixed_dictionaries(
        {}, optional={"type": VALUES | st.just("object"), "properties": st.dictionaries(st.text(max_size=8), PROPERTY),
                      "required": st.lists(st.text(max_size=8), max_size=3) | VALUES},
    ),
    st.dictionaries(st.text(max_size=8), VALUES, max_size=4),
)  # fmt: skip
def test_any_schema_is_refused_or_validates_any_arguments(
    schema: dict[str, object], arguments: dict[str, object]
) -> None:
    try:
        shape = build_shape("act", "Act.", schema)
    except ValueError:
        return
    assert isinstance(run([Tool(shape, lambda **given: "fine")], Call("act", arguments)), str)
