"""Chats and texts of data sets as streams: expected ids, masks, and one-line errors for malformed rows."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.chat import ChatFrame
from agents.chat_streams import ChatRowError, encode_chat, encode_completion, encode_text
from agents.nano import build_nano_tokenizer
from agents.stream import Stream
from agents.tool_formats import ToolCall, ToolResult
from arena.store.reader import RunReader
from tests.factories.commands import arena
from tests.factories.families import FAMILIES
from tests.factories.labs import make_experiment, run_lab
from tests.factories.tool_templates import TOOL_FAMILIES, build_tool_tokenizer

CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello?"},
    {"role": "assistant", "content": "Take 1."},
    {"role": "user", "content": "So?"},
    {"role": "assistant", "content": " No."},
]
DEFINITIONS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "find", "description": "Find.", "parameters": {"type": "object"}}}
]
CALL = {"type": "function", "function": {"name": "find", "arguments": '{"query": "Ada"}'}}
WITH_TOOLS: list[dict[str, Any]] = [
    *CHAT[:2],
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "name": "find", "content": "Tarn"},
    {"role": "assistant", "content": "ANSWER Tarn"},
]
NANO = ChatFrame(build_nano_tokenizer())


def decode_sampled(stream: Stream) -> list[int]:
    return [token for token, own in zip(stream.ids, stream.mask, strict=True) if own]


@pytest.mark.parametrize("name", [*FAMILIES, "nano"])
def test_stream_matches_frame(name: str) -> None:
    frame = NANO if name == "nano" else ChatFrame(FAMILIES[name]())
    first, second = [[*frame.encode(text), frame.stop_id] for text in ("Take 1.", " No.")]
    stream = encode_chat(frame, CHAT)
    observed = frame.open("Be brief.") + frame.ask("Hello?")
    assert stream.ids == [*observed, *first, *frame.close("stop"), *frame.ask("So?"), *second]
    assert decode_sampled(stream) == first + second
    assert [turn for turn, own in zip(stream.turns, stream.mask, strict=True) if own] == (
        [0] * len(first) + [1] * len(second)
    )
    assert decode_sampled(encode_completion(frame, CHAT[:4], CHAT[4:])) == second
    assert encode_completion(frame, CHAT[:4], CHAT[4:]).ids == stream.ids
    text = encode_completion(frame, "Hello?", "Take 1.")
    assert text.ids == encode_chat(frame, CHAT[1:3]).ids and decode_sampled(text) == first


@pytest.mark.parametrize("family", TOOL_FAMILIES)
def test_calls_are_sampled_and_results_observed(family: str) -> None:
    """Missing call ids are numbered, and arguments may be JSON text."""
    frame = ChatFrame(build_tool_tokenizer(family))
    call = frame.write_calls("", [ToolCall("call00000", "find", {"query": "Ada"})])
    result = frame.answer([ToolResult("call00000", "Tarn", "find")])
    stream = encode_chat(frame, WITH_TOOLS, json.dumps(DEFINITIONS))
    expected = [*call, frame.stop_id, *frame.encode("ANSWER Tarn"), frame.stop_id]
    assert decode_sampled(stream) == expected
    full = frame.open("Be brief.", (), DEFINITIONS, opens := frame.opens_turn(DEFINITIONS, "Be brief."))
    full += [*frame.ask("Hello?", opens), *call, frame.stop_id, *frame.close("stop"), *result]
    assert stream.ids == [*full, *expected[len(call) + 1 :]]


def test_tags_in_replies_are_tokens_and_control_tokens_never_are() -> None:
    frame = ChatFrame(FAMILIES["qwen"]())
    tag = next(token for token, text in frame.tags.items() if text == "<think>")
    thought = encode_chat(frame, [CHAT[1], {"role": "assistant", "content": "<think>Hm.</think> 1 <|im_end|>"}])
    assert decode_sampled(thought)[0] == tag and decode_sampled(thought).count(frame.stop_id) == 1
    stream = encode_chat(frame, [{"role": "user", "content": "<think>"}, CHAT[2]])
    assert tag not in stream.ids
    assert frame.decode(frame.encode_reply("a<think>b</think>")) == "a<think>b</think>"


@given(st.text(max_size=40))
def test_reply_text_round_trips(text: str) -> None:
    assert NANO.decode(NANO.encode_reply(text)) == NANO.decode(NANO.encode(text))
    stream = encode_chat(NANO, [CHAT[1], {"role": "assistant", "content": text}])
    assert decode_sampled(stream)[-1] == NANO.stop_id and set(decode_sampled(stream)[:-1]).isdisjoint(NANO.control_ids)


def test_an_empty_reply_is_its_end() -> None:
    assert decode_sampled(encode_chat(NANO, [CHAT[1], {"role": "assistant", "content": ""}])) == [NANO.stop_id]


def test_long_text_is_split_so_each_token_is_predicted_once() -> None:
    text = "Take 1 hat. " * 20
    ids = NANO.encode_document(text)
    assert ids[-1] in NANO.stop_ids and NANO.decode(ids) == text
    streams = encode_text(NANO, text, 16)
    assert max(map(len, streams)) == 16 and not any(stream.mask[0] for stream in streams)
    assert [token for stream in streams for token in decode_sampled(stream)] == ids[1:]
    assert all(first.ids[-1] == second.ids[0] for first, second in pairwise(streams))


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        (None, "messages: expected a list"),
        ([], "messages: expected a list"),
        (["hi"], "messages[0]: expected an object"),
        ([{"role": "robot", "content": "hi"}], "messages[0].role: unknown role 'robot'"),
        ([CHAT[1]], "the last message must be the assistant's"),
        ([CHAT[2]], "messages[0].role: a reply must follow"),
        ([*CHAT[1:3], CHAT[2]], "messages[2].role: a reply must follow"),
        ([CHAT[1], CHAT[0], CHAT[2]], "messages[1].role: only the first message may be the system's"),
        ([CHAT[1], {"role": "tool", "content": "3"}, CHAT[2]], "messages[1].role: a tool's result must follow"),
        ([CHAT[1], {"role": "assistant", "content": 3}], "messages[1].content: expected a list"),
        ([{"role": "user", "content": [{"type": "image_url"}]}, CHAT[2]], "messages[0].content: the policy cannot"),
        ([CHAT[1], {"role": "assistant", "tool_calls": [{"function": {"name": "a b"}}]}], "expected a function's name"),
        ([CHAT[1], {"role": "assistant", "tool_calls": [3]}], "messages[1].tool_calls[0]: only calls of functions"),
        ([CHAT[1], {"role": "assistant", "tool_calls": "x"}], "messages[1].tool_calls: expected a list"),
    ],
)
def test_malformed_chats_are_refused_in_one_line(messages: Any, reason: str) -> None:
    with pytest.raises(ChatRowError) as error:
        encode_chat(NANO, messages)
    assert reason in str(error.value) and "\n" not in str(error.value)


def test_malformed_definitions_and_completions_are_refused() -> None:
    for tools, reason in (
        ("{", "tools: expected JSON"),
        ([3], "tools[0]: only functions"),
        ("3", "tools: expected a list"),
    ):
        with pytest.raises(ChatRowError, match=reason.replace("[", r"\[")):
            encode_chat(NANO, CHAT, tools)
    for prompt, completion, reason in (([], CHAT[2:3], "prompt"), (CHAT[:2], [], "completion"), (None, "x", "prompt")):
        with pytest.raises(ChatRowError, match=f"{reason}: expected a text or a list"):
            encode_completion(NANO, prompt, completion)
    with pytest.raises(ChatRowError, match="no reply of the assistant to learn"):
        encode_chat(NANO, CHAT, opening=5)


def test_exported_chats_give_the_streams_of_the_run(tmp_path: Path) -> None:
    """For a nano policy whose replies re-encode to the same tokens."""
    run = tmp_path / "run"
    run_lab(run, make_experiment("iterations=1", "play.matches=6", "play.group=1"))
    assert arena("export", run, "--as", "chats", "--to", tmp_path / "chats").code == 0
    log = {row["id"]: row for row in RunReader(run).matches()}
    compared = 0
    for line in (tmp_path / "chats" / "chats.jsonl").read_text().splitlines():
        row = json.loads(line)
        (logged,) = log[row["match"]]["streams"][row["seat"]]
        stream = encode_chat(NANO, row["messages"], row.get("tools"), row["opening"])
        turns = [turn for turn in log[row["match"]]["turns"] if turn["seat"] == row["seat"]]
        if all(turn["finish"] == "stop" for turn in turns):
            assert NANO.decode(stream.ids) == NANO.decode(logged["ids"])
            compared += (stream.ids, stream.mask) == (logged["ids"], logged["mask"])
    assert compared
