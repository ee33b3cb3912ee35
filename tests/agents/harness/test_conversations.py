"""Streams of conversations: expected ids, forks, rewritten histories, and each sampled token exactly once."""

import hashlib
import json
import random
from typing import Any

import pytest

from agents.chat_messages import ChatMessage, RequestError
from agents.chat_writing import describe_tools
from agents.engines.base import Completion
from agents.harness.conversations import Conversations, describe_drift
from agents.harness.request import AgentRequest, parse
from agents.tool_formats import ToolCall, ToolResult, make_call_id
from tests.factories.agent_programs.tools import TOOLS
from tests.factories.harness import GREETING, load_frame, make_chat_request
from tests.factories.image_files import REFUSED, encode_noise, make_data_url, make_image_part
from tests.factories.tool_templates import TOOL_FAMILIES, build_tool_tokenizer

FAMILIES = [*TOOL_FAMILIES, "nano"]


def make_user_message(text: str) -> dict[str, Any]:
    """Return a user's message."""
    return {"role": "user", "content": text}


class ScriptedConversation:
    """Conversation with given replies."""

    def __init__(self, family: str) -> None:
        self.frame = load_frame(family)
        self.all = Conversations(self.frame, "m/agent")
        self.turn = 0

    def say(self, request: AgentRequest, text: str = "", calls: tuple[ToolCall, ...] = ()) -> tuple[list[int], str]:
        """Reply to a request; return the context of the reply, and why a new stream was opened."""
        placed, reason = self.all.place(request)
        ids = self.frame.write_calls(text, calls) if calls else self.frame.encode(text)
        ids = [*ids, self.frame.stop_id]
        completion = Completion(tuple(ids), (-1.0,) * len(ids), "stop", 0)
        context = list(placed.ids)
        self.all.record(placed, ChatMessage("assistant", text, calls), completion, self.turn)
        self.turn += 1
        return context, reason


@pytest.mark.parametrize("family", FAMILIES)
def test_an_extended_conversation_is_composed_of_the_frames_pieces(family: str) -> None:
    talk, f = ScriptedConversation(family), load_frame(family)
    calls = (ToolCall(make_call_id(0), "add", {"a": 1, "b": "é"}),)
    first, _ = talk.say(
        make_chat_request({"role": "system", "content": "S"}, make_user_message("Go"), tools=TOOLS), "", calls
    )
    system, tools = ("S", TOOLS) if f.tools else (f"S\n\n{describe_tools(TOOLS)}", ())
    opens = f.opens_turn(tools, system)
    assert first == f.open(system, (), tools, opens) + f.ask("Go", opens)
    echo = {
        "id": make_call_id(0),
        "type": "function",
        "function": {"name": "add", "arguments": '{"b":"\\u00e9","a":1}'},
    }
    history = [
        {"role": "system", "content": "S"}, make_user_message("Go"),
        {"role": "assistant", "content": "", "tool_calls": [echo]},
        {"role": "tool", "tool_call_id": make_call_id(0), "content": "r <|im_end|>"},
    ]  # fmt: skip
    second, reason = talk.say(make_chat_request(*history, tools=TOOLS), "Done.")
    reply_ids = [*f.write_calls("", calls), f.stop_id, *f.close("stop")]
    assert second == first + reply_ids + f.answer([ToolResult(make_call_id(0), "r <|im_end|>", "add")]) and not reason
    (stream,) = talk.all.streams
    assert (
        stream.turns.count(0) == len(f.write_calls("", calls)) + 1
        and stream.turns.count(1) == len(f.encode("Done.")) + 1
    )


@pytest.mark.parametrize("family", ["qwen25", "qwen_xml", "llama31"])
def test_stream_matches_the_chat_template(family: str) -> None:
    tokenizer, f, talk = build_tool_tokenizer(family), load_frame(family), ScriptedConversation(family)
    calls = tuple(
        ToolCall(make_call_id(n), "add", {"a": n, "b": "x"}) for n in range(2 if f.tools and f.tools.several else 1)
    )
    listed = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}}
        for call in calls
    ]
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "S"}, make_user_message("Go"),
        {"role": "assistant", "content": "", "tool_calls": listed},
        *({"role": "tool", "tool_call_id": call.id, "content": f"r{call.id}"} for call in calls),
    ]  # fmt: skip
    talk.say(make_chat_request(*messages[:2], tools=TOOLS), "", calls)
    sent = json.loads(json.dumps(messages))
    for one in sent[2]["tool_calls"]:
        one["function"]["arguments"] = json.dumps(one["function"]["arguments"])
    context, _ = talk.say(make_chat_request(*sent, tools=TOOLS), "ok")
    printed = tokenizer.apply_chat_template(messages, tools=TOOLS, tokenize=False, add_generation_prompt=True)
    assert tokenizer.decode(context) == printed
    assert not describe_drift(f, make_chat_request(*sent, tools=TOOLS))


def test_a_fork_repeats_the_ids_as_context_and_opens_a_stream() -> None:
    talk = ScriptedConversation("qwen25")
    talk.say(make_chat_request(GREETING), "One.")
    past = [GREETING, {"role": "assistant", "content": "One."}]
    first, why = talk.say(make_chat_request(*past, make_user_message("a")), "A.")
    assert not why and len(talk.all.streams) == 1
    second, why = talk.say(make_chat_request(*past, make_user_message("b")), "B.")
    assert why == "rewrites the user's message" and len(talk.all.streams) == 2
    common = len(first) - len(load_frame("qwen25").ask("a"))
    assert first[:common] == second[:common]
    assert not any(talk.all.streams[1].mask[:common]), "the first reply is trained once, in its own stream"
    for messages, reason in [
        (
            [*past[:1], {"role": "assistant", "content": "Uno."}, make_user_message("a")],
            "rewrites the assistant's message",
        ),
        ([make_user_message("Other")], "begins another conversation"),
        ([GREETING], "drops or inserts messages"),
    ]:
        assert talk.say(make_chat_request(*messages), "C.")[1] == reason
    assert (
        talk.say(make_chat_request(*past, make_user_message("a"), tools=TOOLS), "D.")[1]
        == "changes the tools' definitions"
    )


@pytest.mark.parametrize("reply", [" <think>hm</think> One.", '\n<think internal="QQ==">\nhm\n</think>\n\nOne.'])
def test_reply_matches_despite_other_blanks_and_tags(reply: str) -> None:
    talk = ScriptedConversation("qwen25")
    placed, _ = talk.all.place(make_chat_request(GREETING))
    ids = [*load_frame("qwen25").encode("\n<think>hm</think>\n  One. \n"), load_frame("qwen25").stop_id]
    known = [*placed.new_ids, *ids]
    completion = Completion(tuple(ids), (0.0,) * len(ids), "stop", 0)
    talk.all.record(placed, ChatMessage("assistant", "<think>hm</think>\n  One."), completion, 0)
    context, reason = talk.say(
        make_chat_request(GREETING, {"role": "assistant", "content": reply}, make_user_message("x"))
    )
    assert not reason and context[: len(known)] == known


@pytest.mark.parametrize("seed", range(8))
def test_random_histories_hold_every_sampled_token_once_in_its_context(seed: int) -> None:
    rng = random.Random(seed)
    talk, requested = ScriptedConversation(rng.choice(FAMILIES)), list[tuple[list[int], int]]()
    histories: list[list[dict[str, Any]]] = [[make_user_message("start")]]
    for turn in range(25):
        history = list(rng.choice(histories[-6:]))
        move = rng.random()
        if move < 0.2 and len(history) > 2:
            history[rng.randrange(0, len(history) - 1)] = make_user_message(f"edit {turn}")
        elif move < 0.3:
            history = [make_user_message(f"new {turn}")]
        elif move < 0.4 and len(history) > 2:
            history = history[-1:]
        context, _ = talk.say(make_chat_request(*history), f"reply {turn}")
        requested.append((context, turn))
        histories.append(
            [*history, {"role": "assistant", "content": f"reply {turn}"}, make_user_message(f"more {turn}")]
        )
    streams = talk.all.streams
    for context, turn in requested:
        (stream,) = [stream for stream in streams if turn in stream.turns]
        begin = stream.turns.index(turn)
        assert stream.ids[:begin] == context
        count = stream.turns.count(turn)
        assert stream.turns[begin : begin + count] == [turn] * count and all(stream.mask[begin : begin + count])
    assert sum(stream.sampled_count for stream in streams) == sum(
        len(encode_reply(talk, turn)) for _, turn in requested
    )


def encode_reply(talk: ScriptedConversation, turn: int) -> list[int]:
    """Return the ids of a turn's reply."""
    return [*talk.frame.encode(f"reply {turn}"), talk.frame.stop_id]


def test_drift_of_templates_is_named() -> None:
    call = {"id": make_call_id(0), "type": "function", "function": {"name": "add", "arguments": "{}"}}
    other = {**call, "id": make_call_id(1)}
    result = [{"role": "tool", "tool_call_id": one["id"], "content": ""} for one in (call, other)]
    several = make_chat_request(GREETING, {"role": "assistant", "tool_calls": [call, other]}, *result, tools=TOOLS)
    named = {family: describe_drift(load_frame(family), several) for family in FAMILIES}
    assert not named["qwen25"] and not named["qwen_xml"]
    assert "a form other than" in named["hermes"] and "several calls" in named["llama31"]
    assert "moves definitions" in named["mistral"] and "no tools" in named["nano"]
    late = make_chat_request(GREETING, {"role": "assistant", "content": "x"}, {"role": "system", "content": "y"})
    assert "system message" in describe_drift(load_frame("qwen25"), late)


def test_a_call_that_the_format_cannot_express_is_refused() -> None:
    call = {"id": "too-long-for-mistral", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "1"}
    with pytest.raises(RequestError, match="nine letters"):
        ScriptedConversation("mistral").all.place(
            make_chat_request(GREETING, {"role": "assistant", "tool_calls": [call]}, result, tools=TOOLS)
        )


def test_images_are_in_streams_once_and_again_in_forks() -> None:
    talk = ScriptedConversation("seeing")
    first, two = (make_image_part(encode_noise(k)) for k in (1, 2))

    def make_request(*contents: Any) -> AgentRequest:
        roles = ("user", "assistant")
        messages = [{"role": roles[i % 2], "content": content} for i, content in enumerate(contents)]
        return parse("chat", json.dumps({"messages": messages}).encode(), sees=True)

    look = [{"type": "text", "text": "Look:"}, first]
    talk.say(make_request(look), "a cat")
    talk.say(make_request(look, "a cat", [two]), "a dog")
    _, reason = talk.say(make_request(look, "a cat", [first, two]), "both")
    assert reason == "rewrites the user's message"
    hashes = [hashlib.sha256(encode_noise(k)).hexdigest() for k in (1, 2)]
    assert [[span.hash for span in stream.media] for stream in talk.all.streams] == [hashes, [hashes[0], *hashes]]
    for stream in talk.all.streams:
        for span in stream.media:
            assert stream.ids[span.start : span.start + 4] == [talk.frame.image.id] * 4  # type: ignore[union-attr]
            assert hashlib.sha256(span.data).hexdigest() == span.hash
    keys = {make_request(content).key for content in ([first], [two], [first, two], [two, first])}
    assert len(keys) == 4


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_hostile_images_are_refused_in_one_line(api: Any, name: str) -> None:
    part, reason = REFUSED[name]
    field = "messages" if api == "chat" else "input"
    body = json.dumps({field: [{"role": "user", "content": [part]}]}).encode()
    with pytest.raises(RequestError) as error:
        parse(api, body, sees=True)
    assert reason in str(error.value) and "\n" not in str(error.value) and error.value.code == "invalid_image"
    with pytest.raises(RequestError, match="cannot see images"):
        parse(api, body)


def test_responses_have_images_in_their_own_form() -> None:
    part = {"type": "input_image", "image_url": make_data_url(encode_noise())}
    body = {"input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}, part]}]}
    (message,) = parse("responses", json.dumps(body).encode(), sees=True).messages
    assert message.parts[0] == "x" and message.text == f"x{message.parts[1].text}"  # type: ignore[union-attr]
    for role in ("system", "assistant"):
        with pytest.raises(RequestError, match="only a user's message may have images"):
            parse("chat", json.dumps({"messages": [{"role": role, "content": [part]}, GREETING]}).encode(), sees=True)
