"""Requests of agent programs: equal conversations compare equal in any spelling, and invalid ones are refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.chat_messages import ChatMessage, RequestError
from agents.harness.request import parse
from agents.harness.server import parse_rewards
from agents.tool_formats import ToolCall
from tests.factories.agent_programs.tools import TOOLS
from tests.factories.harness import GREETING, make_chat_request

CALL = {"id": "call1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": "é"}'}}


def make_call_chat(arguments: str, content: Any = None, result: Any = "2") -> list[dict[str, Any]]:
    """Return a conversation with a call and its result."""
    call = {**CALL, "function": {"name": "add", "arguments": arguments}}
    reply = {"role": "assistant", "tool_calls": [call], **({} if content == "absent" else {"content": content})}
    return [GREETING, reply, {"role": "tool", "tool_call_id": "call1", "content": result}]


@pytest.mark.parametrize("arguments", ['{"b":"\\u00e9","a":1}', '{ "a" : 1,\n "b" : "é" }', '{"a": 1.0, "b": "é"}'])
@pytest.mark.parametrize("content", [None, "", "absent", " \n", [], [{"type": "text", "text": ""}]], ids=str)
def test_a_rewritten_call_is_the_same_message(arguments: str, content: Any) -> None:
    first = make_chat_request(*make_call_chat('{"a": 1, "b": "é"}'))
    assert (
        make_chat_request(*make_call_chat(arguments, content, [{"type": "text", "text": "2"}])).messages
        == first.messages
    )


def test_both_apis_give_the_same_conversation() -> None:
    items = [
        GREETING,
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Well."}]},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "call1", "name": "add", "arguments": '{"a": 1}'},
        {"type": "function_call", "call_id": "call2", "name": "add", "arguments": ""},
        {"type": "function_call_output", "call_id": "call1", "output": "2"},
        {"type": "function_call_output", "call_id": "call2", "output": "3"},
    ]
    flat = [{"type": "function", "strict": False, **tool["function"]} for tool in TOOLS]
    body = {"model": "m", "instructions": "Be brief.", "input": items, "tools": flat, "include": [], "store": False}
    request = parse("responses", json.dumps(body).encode())
    calls = (ToolCall("call1", "add", {"a": 1}), ToolCall("call2", "add", {}))
    assert request.messages == (
        ChatMessage("system", "Be brief."),
        ChatMessage("user", "Hi"),
        ChatMessage("assistant", "Well.", calls),
        ChatMessage("tool", "2", call_id="call1"),
        ChatMessage("tool", "3", call_id="call2"),
    )
    assert request.tools == make_chat_request(GREETING, tools=TOOLS).tools
    assert parse("responses", b'{"input": "Hi"}').messages == make_chat_request(GREETING).messages


def test_a_repeated_request_has_the_same_key_and_another_seed_has_not() -> None:
    first = make_chat_request(*make_call_chat('{"a": 1}'), tools=TOOLS, stream=True, temperature=0.3)
    assert first.key == make_chat_request(*make_call_chat('{ "a":1 }', ""), tools=TOOLS).key
    assert (
        len(
            {
                make_chat_request(GREETING).key,
                make_chat_request(GREETING, seed=1).key,
                make_chat_request(GREETING, seed=2).key,
                make_chat_request(GREETING, max_tokens=3).key,
            }
        )
        == 4
    )


IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}
REFUSED: dict[str, tuple[dict[str, Any], str | None, str]] = {
    "n": ({"messages": [GREETING], "n": 2}, "unsupported_parameter", "seed"),
    "stop": ({"messages": [GREETING], "stop": ["x"]}, "unsupported_parameter", "stop"),
    "json": (
        {"messages": [GREETING], "response_format": {"type": "json_object"}},
        "unsupported_parameter",
        "response_format",
    ),
    "choice": ({"messages": [GREETING], "tool_choice": "required"}, "unsupported_parameter", "tool_choice"),
    "unknown": ({"messages": [GREETING], "magic": 1}, "unknown_parameter", "magic"),
    "image": ({"messages": [{"role": "user", "content": [IMAGE]}]}, "unsupported_value", "images"),
    "none": ({"messages": []}, None, "messages"),
    "role": ({"messages": [{"role": "judge", "content": ""}]}, None, "judge"),
    "last": ({"messages": [GREETING, {"role": "assistant", "content": "x"}]}, None, "last message"),
    "orphan": (
        {"messages": [GREETING, {"role": "tool", "tool_call_id": "x", "content": ""}]},
        None,
        "must answer a call",
    ),
    "open": ({"messages": [GREETING, {"role": "assistant", "tool_calls": [CALL]}, GREETING]}, None, "call1"),
    "twice": ({"messages": [GREETING, {"role": "assistant", "tool_calls": [CALL, CALL]}]}, None, "one id"),
    "arguments": ({"messages": make_call_chat("{")}, None, "JSON object"),
    "tokens": ({"messages": [GREETING], "max_tokens": 0}, None, "positive"),
    "tools": ({"messages": [GREETING], "tools": [{"type": "web_search"}]}, None, "functions"),
    "seed": ({"messages": [GREETING], "seed": "x"}, None, "integer"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses_invalid_requests_as_openai_does(case: str) -> None:
    body, code, words = REFUSED[case]
    with pytest.raises(RequestError, match=words) as error:
        parse("chat", json.dumps(body).encode())
    assert error.value.code == code and error.value.status == 400 and "\n" not in str(error.value)


SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=4)
WORDS = st.sampled_from(
    ["role", "content", "user", "assistant", "tool", "text", "type", "tool_calls", "function", "name", "arguments",
     "id", "messages", "input", "tools",
     "tool_call_id", "function_call", "function_call_output", "call_id", "output", "{}"]
)  # fmt: skip
JSON = st.recursive(
    SCALARS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=20,
)


@given(st.sampled_from(["chat", "responses"]), JSON | st.fixed_dictionaries({"messages": JSON, "input": JSON}))
def test_arbitrary_json_is_parsed_or_refused(api: Any, data: Any) -> None:
    body = json.dumps(data).encode()
    try:
        assert parse(api, body).messages
    except RequestError as refused:
        assert str(refused)


@given(st.binary(max_size=40))
def test_arbitrary_bytes_are_parsed_or_refused(body: bytes) -> None:
    for parse_body in (lambda: parse("chat", body), lambda: parse_rewards(body)):
        with pytest.raises(RequestError):
            parse_body()


def test_rewards_are_finite_numbers_with_names() -> None:
    assert parse_rewards(b'{"reward": 1}') == {"reward": 1.0}
    assert parse_rewards(b'{"rewards": {"a": 0.5, "b": -1}}') == {"a": 0.5, "b": -1.0}
    for bad in ("true", '"1"', "1e400", "NaN", "null", "1e10", "[]", "9" * 400):
        with pytest.raises(RequestError):
            parse_rewards(f'{{"reward": {bad}}}'.encode())
    for bad in ("{}", '{"": 1}', '{"a b": 1}', "[1]", json.dumps(dict.fromkeys(map("r{}".format, range(17)), 1))):
        with pytest.raises(RequestError):
            parse_rewards(f'{{"rewards": {bad}}}'.encode())
