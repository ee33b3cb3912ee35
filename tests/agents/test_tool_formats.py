"""Formats of tool calls: written calls round-trip, and hostile texts are parsed safely."""

import json
import re
import time
from keyword import iskeyword
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents import tool_formats
from agents.errors import ChatError
from agents.tool_formats import FORMATS, MAX_CALLS, Format, ToolCall, join_pieces, make_call_id, read_calls, write_calls
from tests.factories.families import FAMILIES
from tests.factories.thorough import count_cases

TOKENIZER = FAMILIES["qwen"]()
MARKUP = (
    *("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "</think>", "<think>", "\n</parameter>\n"),
    *("<|tool_call_start|>", "<|tool_call_end|>", "<|tool_call_start|>[f(x=", ")]", "'", "true", "\n"),
    *("<parameter=x>", "</function>\n</tool_call>", '{"name": "f", "parameters": {}}', "\nf(x=1)", "|", '"', "\\", "é"),
)
TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=12),
    st.lists(st.sampled_from(MARKUP), max_size=3).map("".join),
)
NUMBERS = st.one_of(st.integers(-(10**30), 10**30), st.floats(allow_nan=False, allow_infinity=False))
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=8
)
NAMES = st.from_regex(r"[a-z][a-z_]{0,9}", fullmatch=True).filter(lambda name: not iskeyword(name))
ARGUMENTS = st.dictionaries(NAMES, VALUES, max_size=3)


@st.composite
def draw_several_calls(draw: st.DrawFn) -> list[ToolCall]:
    pairs = draw(st.lists(st.tuples(NAMES, ARGUMENTS), min_size=1, max_size=3))
    return [ToolCall(make_call_id(place), name, arguments) for place, (name, arguments) in enumerate(pairs)]


def make_definitions(calls: list[ToolCall]) -> list[dict[str, Any]]:
    """Return definitions with each argument's type, one tool per call."""
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return [
        {
            "type": "function",
            "function": {
                "name": call.name,
                "parameters": {
                    "properties": {
                        key: {"type": kinds.get(type(value), "null")} for key, value in call.arguments.items()
                    }
                },
            },
        }
        for call in calls
    ]


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("name", [name for name in FORMATS if name != "qwen_xml"])
@settings(max_examples=count_cases(60, 300), deadline=None)
@given(calls=draw_several_calls())
def test_written_calls_round_trip(name: str, calls: list[ToolCall]) -> None:
    try:
        text = join_pieces(write_calls(name, calls))
    except ChatError:
        # The end of a thought would make a thought of what is before. LFM2 has no way to write these two.
        unspeakable = ("</think>", *(("\\x00", "<|tool_call_end|>") if name == "lfm2" else ()))
        assert any(text in repr(calls) for text in unspeakable)
        return
    assert read_calls(name, text) == ("", tuple(calls), "")


@settings(max_examples=count_cases(60, 300), deadline=None)
@given(calls=draw_several_calls())
def test_xml_is_typed_by_the_definitions_or_refused(calls: list[ToolCall]) -> None:
    call = calls[0]
    try:
        text = join_pieces(write_calls("qwen_xml", [call]))
    except ChatError:
        assert "</parameter>" in repr(call) or "</think>" in repr(call)
        return
    assert read_calls("qwen_xml", text, make_definitions([call])) == ("", (call,), "")


@pytest.mark.parametrize("name", FORMATS)
def test_speech_around_calls_is_kept(name: str) -> None:
    calls = (ToolCall(make_call_id(0), "find", {"query": "Ada Lom"}),)
    block = join_pieces(write_calls(name, calls))
    assert read_calls(name, f"Let me look.\n{block}\nOne moment.") == ("Let me look.\nOne moment.", calls, "")
    assert read_calls(name, "ANSWER Tarn") == ("ANSWER Tarn", (), "")
    assert read_calls(name, f"<think>{block}</think>\n{block}")[1:] == (calls, "")
    assert read_calls(name, f"hm {block}</think>\n{block}")[1:] == (calls, "")
    assert read_calls(name, f"<think>\n{block}") == (f"<think>\n{block}", (), "")


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("hermes", '<tool_call>{"name": "f", "arguments": {}}', "does not end in </tool_call>"),
        ("hermes", '<tool_call>{"name": "f", }</tool_call>', "not JSON"),
        ("hermes", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>', "a call is"),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>', "NaN is no number"),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1e999}}</tool_call>', "too large"),
        ("hermes", f'<tool_call>{{"name": "f", "arguments": {{"a": 1{"0" * 60}}}}}</tool_call>', "40 digits"),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1, "a": 2}}</tool_call>', "twice"),
        ("hermes", f'<tool_call>{{"name": "f", "arguments": {{"a": {"[" * 30}{"]" * 30}}}}}</tool_call>', "deep"),
        ("hermes", f"<tool_call>{'[' * 19_000}", "deep"),
        ("mistral", "[TOOL_CALLS] nothing", "not JSON"),
        ("llama", '{"name": "f", "parameters": {', "not JSON"),
        ("llama", '{"name": "f", "parameters": 3}', '"parameters": {…}'),
        ("qwen_xml", "<tool_call>\n<parameter=a>\n1\n</parameter>\n</tool_call>", "begins with <function=NAME>"),
        ("qwen_xml", "<tool_call>\n<function=f>\n<parameter=a>\n1\n</function>\n</tool_call>", "parameter a does not"),
        ("qwen_xml", "<tool_call>\n<function=f>\n", "ends in </function>"),
        ("lfm2", "<|tool_call_start|>[f(a=1)]", "then <|tool_call_end|>"),
        ("lfm2", "<|tool_call_start|>[f(a=1, a=2)]<|tool_call_end|>", "calls are [name(key=value)"),
        ("lfm2", "<|tool_call_start|>[f(1)]<|tool_call_end|>", "calls are [name(key=value)"),
        ("lfm2", "<|tool_call_start|>[f(**{})]<|tool_call_end|>", "calls are [name(key=value)"),
        ("lfm2", "<|tool_call_start|>[f(a=1e999)]<|tool_call_end|>", "calls are [name(key=value)"),
        ("lfm2", "<|tool_call_start|>[f(a=open('x'))]<|tool_call_end|>", "calls are [name(key=value)"),
        ("lfm2", "<|tool_call_start|>[f()()]<|tool_call_end|>", "calls are [name(key=value)"),
        ("lfm2", "<|tool_call_start|>[]<|tool_call_end|>", "calls are [name(key=value)"),
        ("lfm2", f"<|tool_call_start|>[f(a={'[' * 30}{']' * 30})]<|tool_call_end|>", "calls are [name(key=value)"),
    ],
)
def test_a_malformed_call_has_a_reason_and_the_others_are_read(name: str, text: str, reason: str) -> None:
    reading = read_calls(name, text)
    assert reading.calls == () and reason in reading.problem and "\n" not in reading.problem
    after = join_pieces(write_calls(name, [ToolCall(make_call_id(3), "g", {})]))
    if not text.endswith(("{", "[", "}")) or "not JSON" not in reason:
        repeated = read_calls(name, f"{after}\n{text}", first=3)
        assert [call.id for call in repeated.calls] == ["call00003"] and reason in repeated.problem


def test_calls_are_bounded_in_number_and_length() -> None:
    calls = [ToolCall(make_call_id(place), "f", {}) for place in range(40)]
    for name, format in FORMATS.items():
        reading = read_calls(name, join_pieces(format.write(calls)))
        assert len(reading.calls) == MAX_CALLS and f"at most {MAX_CALLS}" in reading.problem
        late = " " * tool_formats.MAX_CHARACTERS + join_pieces(format.write(calls[:1]))
        assert read_calls(name, late).calls == ()


@pytest.mark.parametrize("name", FORMATS)
def test_hostile_texts_are_read_in_little_time(name: str) -> None:
    texts = [
        mark * (20_000 // len(mark)) for mark in (*MARKUP, "<tool_call>{", "[TOOL_CALLS][", "f(x=", "f(x=[)\n", "\t")
    ]
    texts += ["f(" + "(" * 9_000 + ")" * 9_000 + ")", '{"name": "f", "parameters": ' * 700]
    start = time.monotonic()
    for text in texts:
        read_calls(name, text)
    assert time.monotonic() - start < 20


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=300, deadline=None)
@given(text=st.lists(st.one_of(st.sampled_from(MARKUP), st.text(max_size=8)), max_size=8).map("".join))
def test_reading_never_raises(name: str, text: str) -> None:
    reading = read_calls(name, text)
    assert "\n" not in reading.problem


def test_other_spellings_of_a_call_are_read() -> None:
    call = ToolCall("call00000", "f", {"a": 1})
    same = {
        "hermes": '<tool_call> {"arguments": "{\\"a\\": 1}", "name": "f"} </tool_call>',
        "llama": '<|python_tag|>{"type": "function", "name": "f", "parameters": {"a": 1}}',
        "mistral": '[TOOL_CALLS]{"name": "f", "arguments": {"a": 1}, "id": "short"}',
        "plain": "f( a = 1 )",
        "lfm2": "<|tool_call_start|> f(a = 1)\n<|tool_call_end|>",
    }
    assert {name: read_calls(name, text).calls for name, text in same.items()} == dict.fromkeys(same, (call,))
    assert (
        read_calls("mistral", '[TOOL_CALLS] [{"name": "f", "arguments": {}, "id": "abcDEF123"}]').calls[0].id
        == "abcDEF123"
    )
    assert read_calls("plain", '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>').calls == (call,)
    text = '<|tool_call_start|>[f(), a.b(x={"y": [true, None]})]<|tool_call_end|>'
    assert read_calls("lfm2", text)[1][1] == ToolCall("call00001", "a.b", {"x": {"y": [True, None]}})
    assert read_calls("plain", "f(1)\nprint(a=b)\nf(**a)").calls == ()


THEIRS = {
    "hermes": "qwen3_template",
    "qwen_xml": "qwen3_5_template",
    "llama": "llama3_template",
    "lfm2": "lfm2_2_5_template",
}
TEXT_VALUES = st.text(st.characters(codec="utf-8", exclude_characters="<>|"), max_size=9).map(str.strip)


@pytest.mark.parametrize("name", THEIRS)
@given(arguments=st.dictionaries(NAMES, st.one_of(st.integers(-99, 99), st.booleans(), TEXT_VALUES), max_size=3))
def test_transformers_parses_calls_alike(name: str, arguments: dict[str, Any]) -> None:
    reference = pytest.importorskip("trl.chat_template_utils", reason="no trl: pip install 'trl>=1.16'")
    if name == "lfm2":  # its parser there splits texts at quotes, commas and brackets
        arguments = {key: re.sub(r"\W", "", text) if isinstance(text, str) else text for key, text in arguments.items()}
    calls = [ToolCall(make_call_id(0), "find", arguments)]
    text = join_pieces(write_calls(name, calls))
    end = "<|eot_id|>" if name == "llama" else "<|im_end|>"
    tools = make_definitions(calls)
    parsed = TOKENIZER.parse_response(text + end, getattr(reference, THEIRS[name]), prefix="", tools=tools)
    functions = [call["function"] for call in parsed["tool_calls"]]
    assert functions == [
        {"name": call.name, "arguments": call.arguments} for call in read_calls(name, text, tools).calls
    ]


def test_adding_a_format_takes_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example FunctionGemma's marks around Hermes calls."""

    def write(calls: Any) -> tool_formats.Pieces:
        return [("<call>", json.dumps([{"name": call.name, "arguments": call.arguments} for call in calls]))]

    def find(text: str, at: int) -> tool_formats.Found | None:
        start = text.find("<call>", at)
        if start < 0:
            return None
        values, end = json.JSONDecoder().raw_decode(text, start + 6)
        return start, end, [("", value["name"], value["arguments"]) for value in values]

    monkeypatch.setitem(FORMATS, "toy", Format(write, find))
    calls = (ToolCall("call00000", "f", {"a": [1]}), ToolCall("call00001", "g"))
    assert read_calls("toy", "Well: " + join_pieces(write_calls("toy", calls))) == ("Well:", calls, "")


def test_reading_warns_of_nothing(recwarn: pytest.WarningsRecorder) -> None:
    _, calls, problem = read_calls("plain", 'f(x="\\d", y=1 is 1)\nf(x="\\d")')
    assert [dict(call.arguments) for call in calls] == [{"x": "\\d"}] and not problem and not recwarn.list
