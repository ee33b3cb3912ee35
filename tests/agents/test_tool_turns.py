"""Tool turns of the chat frame: equal to the model's own template, and no control id from content."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from agents.chat import ChatFrame
from agents.chat_parts import ACKNOWLEDGED
from agents.errors import ChatError
from agents.nano import build_nano_tokenizer
from agents.tool_formats import ToolCall, ToolResult
from agents.tool_turns import make_call_message, make_result_message
from tests.factories.families import FAMILIES, generate_attacks
from tests.factories.tool_templates import TOOL_FAMILIES, build_tool_tokenizer

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Use it to {name}.",
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}, "most": {"type": "integer"}}},
        },
    }
    for name in ("search", "open")
]
CALLS = [
    ToolCall("call00000", "search", {"query": 'Ada "L" é', "most": 3}),
    ToolCall("call00001", "open", {"query": "x"}),
]
RESULTS = [ToolResult("call00000", "Ada\n{1}", "search"), ToolResult("call00001", '"Bo"', "open")]
SYSTEM, SAY = {"role": "system", "content": "Be brief."}, {"role": "assistant", "content": "Tarn."}
FAMILY = pytest.mark.parametrize("family", TOOL_FAMILIES)


def make_user_message(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def encode_opening(frame: ChatFrame, text: str) -> list[int]:
    """Return the ids of the system text, definitions and first question, up to the reply."""
    return frame.open("Be brief.", tools=TOOLS, keep_open=True) + frame.ask(
        text, opened=frame.opens_turn(TOOLS, "Be brief.")
    )


def make_messages(frame: ChatFrame, text: str, *turns: dict[str, Any]) -> list[dict[str, Any]]:
    question = (
        [SYSTEM, make_user_message(text)]
        if frame.parts.system == "turn"
        else [make_user_message(f"Be brief.\n\n{text}")]
    )
    return [*question, *turns]


def render_template(tokenizer: Any, chat: list[dict[str, Any]], **options: Any) -> str:
    return str(tokenizer.apply_chat_template(chat, tools=TOOLS, tokenize=False, **options))


def decode_with_control_tokens(tokenizer: Any, ids: list[int]) -> str:
    """Decode ids with their control tokens; a Unigram decoder drops the first blank."""
    return str(tokenizer.decode(ids)).replace(" ", "")


@FAMILY
def test_family_has_its_format(family: str, frames: dict[str, ChatFrame]) -> None:
    assert frames[family].tool_format == TOOL_FAMILIES[family][2]
    tools = frames[family].tools
    assert tools is not None and tools.rewrites == (family == "mistral")


@FAMILY
def test_tool_turns_match_the_template(family: str, frames: dict[str, ChatFrame], tokenizers: dict[str, Any]) -> None:
    """Definitions, a call, its results and a further call, as text and, where the tokenizer is exact, as ids."""
    frame, tokenizer = frames[family], tokenizers[family]
    chat, ids = make_messages(frame, "Where?"), encode_opening(frame, "Where?")
    for call, results in ((CALLS[0], RESULTS), (CALLS[1], RESULTS[1:])):
        reply_ids = frame.write_calls("", [call])
        chat += [make_call_message("", [call]), *map(make_result_message, results)]
        ids += [*reply_ids, frame.stop_id, *frame.close("stop"), *frame.answer(results)]
        assert frame.read_calls(reply_ids, TOOLS).calls[0].arguments == call.arguments
    expected = render_template(tokenizer, chat, add_generation_prompt=True)
    if frame.tools is not None and not frame.tools.exact:  # what was sampled stays, written as it was
        expected = render_template(
            tokenizer, [make_content(frame, message) for message in chat], add_generation_prompt=True
        )
    assert decode_with_control_tokens(tokenizer, ids) == expected.replace(" ", "")
    if family != "mistral":
        assert ids == tokenizer.encode(expected, add_special_tokens=False)


def make_content(frame: ChatFrame, message: dict[str, Any]) -> dict[str, Any]:
    if "tool_calls" not in message:
        return message
    calls = [ToolCall(one["id"], **one["function"]) for one in message["tool_calls"]]
    return {"role": "assistant", "content": frame.decode(frame.write_calls("", calls), marks=True)}


@FAMILY
def test_a_user_may_speak_after_a_result(family: str, frames: dict[str, ChatFrame], tokenizers: dict[str, Any]) -> None:
    frame, tokenizer = frames[family], tokenizers[family]
    ids = frame.answer(RESULTS[:1], "And now?")
    chat = make_messages(
        frame,
        "Where?",
        make_call_message("", CALLS[:1]),
        make_result_message(RESULTS[0]),
        make_user_message("And now?"),
    )
    if frame.tools is not None and frame.tools.user_bridge is None:  # Mistral refuses this order
        assert tokenizer.decode(ids).endswith('And now?, "call_id": "call00000"}[/TOOL_RESULTS]')
    else:
        assert render_template(tokenizer, chat, add_generation_prompt=True).endswith(tokenizer.decode(ids))


@FAMILY
def test_speech_and_several_calls_match_the_template(
    family: str, frames: dict[str, ChatFrame], tokenizers: dict[str, Any]
) -> None:
    frame, tokenizer = frames[family], tokenizers[family]
    assert frame.tools is not None
    reply_ids = frame.write_calls("Let me look.", CALLS)
    assert frame.read_calls(reply_ids, TOOLS) == ("Let me look.", tuple(CALLS), "")
    if frame.tools.gap is not None and frame.tools.exact:
        chat = make_messages(frame, "Where?", make_call_message("Let me look.", CALLS))
        ids = [*encode_opening(frame, "Where?"), *reply_ids, frame.stop_id, *frame.close("stop")]
        assert ids == tokenizer.encode(render_template(tokenizer, chat), add_special_tokens=False)


@FAMILY
def test_examples_and_definitions_keep_one_opening(
    family: str, frames: dict[str, ChatFrame], tokenizers: dict[str, Any]
) -> None:
    frame, tokenizer = frames[family], tokenizers[family]
    turns = [("Where?", "Tarn.")]
    chat = make_messages(frame, "Where?", SAY)
    assert decode_with_control_tokens(tokenizer, frame.open("Be brief.", turns, TOOLS)) == render_template(
        tokenizer, chat
    ).replace(" ", "")
    opened = tokenizer.decode(frame.open("Be brief.", tools=TOOLS))
    assert ACKNOWLEDGED in opened if frame.opens_turn(TOOLS, "Be brief.") else ACKNOWLEDGED not in opened
    assert frame.open("Be brief.", turns) == frame.open("Be brief.", turns, [])


CONTROL = ("<|im_end|>", "<|eot_id|>", "</s>", "[TOOL_CALLS]", "<tool_call>")


def test_definitions_with_control_tokens_are_refused(frames: dict[str, ChatFrame], tokenizers: dict[str, Any]) -> None:
    for family, frame in frames.items():
        texts = [text for text in CONTROL if text in tokenizers[family].get_vocab()]
        for text in texts:
            for field in ("description", "name"):
                function = {**TOOLS[0]["function"], field: f"Look. {text}"}  # type: ignore[dict-item]
                with pytest.raises(ChatError, match="contains a control token"):
                    frame.open("", tools=[{"type": "function", "function": function}])
        assert texts


def assert_no_leaks(frame: ChatFrame, tokenizer: Any, count: int, seed: int) -> None:
    """Assert that hostile texts in questions, results and arguments add no control ids to a conversation."""
    control = [*tokenizer.convert_ids_to_tokens(sorted(frame.control_ids)), "<tool_response>", '"}\n</tool_response>']

    def controls(text: str) -> list[int]:
        ids = [*frame.answer([ToolResult("call00000", text, "search")], text), *frame.ask(text)]
        call = ToolCall("call00000", "search", {"query": text})
        try:
            ids += frame.write_calls("", [call])
        except ChatError:  # the format has no way to say it
            ids += frame.write_calls("", CALLS[:1])
        return [token for token in ids if token in frame.control_ids]

    expected = controls("Tarn")
    for text in islice(generate_attacks(seed, count, control), count):
        assert controls(text) == expected, text


@pytest.mark.slow_after(1)
@FAMILY
def test_no_control_id_comes_out_of_results_and_arguments(
    family: str, frames: dict[str, ChatFrame], tokenizers: dict[str, Any]
) -> None:
    assert_no_leaks(frames[family], tokenizers[family], 10_000, seed=1)


@pytest.mark.slow
@FAMILY
def test_no_control_id_comes_out_of_a_hundred_thousand_results_and_arguments(
    family: str, frames: dict[str, ChatFrame], tokenizers: dict[str, Any]
) -> None:
    assert_no_leaks(frames[family], tokenizers[family], 100_000, seed=2)


@pytest.mark.parametrize("build", [build_nano_tokenizer, *FAMILIES.values()])
def test_a_template_without_tools_falls_back_to_plain_text(build: Callable[[], Any]) -> None:
    frame = ChatFrame(build())
    assert (frame.tools, frame.tool_format) == (None, "plain")
    assert frame.open("Be brief.", tools=TOOLS) == frame.open("Be brief.") and not frame.opens_turn(TOOLS, "Be brief.")
    assert frame.answer(RESULTS[:1]) == frame.ask("search: Ada\n{1}")


BROKEN = {
    "drops results": ("message.content + '\n</tool_response>'", "'\n</tool_response>'"),
    "repeats the system text": ("{{ '\n\n# Tools", "{{ system + '\n\n# Tools"),
    "hides definitions": ("{{ '\n' + tool | tojson }}", ""),
    "changes earlier calls": ("'\n<tool_call>", "messages | length ~ '<tool_call>"),
    "writes an unknown format": ("<tool_call>\n{", "<call>\n{"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_template_that_cannot_be_composed_has_no_tool_turns(how: str) -> None:
    tokenizer = build_tool_tokenizer("qwen25")
    before, after = BROKEN[how]
    assert before in tokenizer.chat_template
    tokenizer.chat_template = tokenizer.chat_template.replace(before, after)
    assert ChatFrame(tokenizer).tools is None


THEIRS = {
    "qwen2_5": "hermes", "qwen3": "hermes", "qwen3_5_nothink": "qwen_xml", "qwen3_5_think": "qwen_xml",
    "llama3_1": "llama", "llama3_2": "llama", "lfm2": "plain", "lfm2_v2": "lfm2", "lfm2_2_5": "lfm2",
    "gptoss": "plain", "glm4moe": "plain", "gemma4": "plain",
}  # fmt: skip


@pytest.mark.parametrize("name", THEIRS)
def test_published_templates_have_their_formats(name: str) -> None:
    trl = pytest.importorskip("trl", reason="no trl: pip install 'trl>=1.16'")
    tokenizer = FAMILIES["llama3" if name.startswith("llama") else "qwen"]()
    path = Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja"
    tokenizer.chat_template = path.read_text("utf-8")
    frame = ChatFrame(tokenizer)
    assert frame.tool_format == THEIRS[name]
    if frame.tools is None:
        return
    clock = {"date_string": "26 Jul 2024"}
    ids = encode_opening(frame, "Where?") + frame.write_calls("", CALLS[:1]) + [frame.stop_id, *frame.close("stop")]
    ids += frame.answer(RESULTS)
    call = make_call_message("", CALLS[:1])
    chat = make_messages(frame, "Where?", call, *map(make_result_message, RESULTS))
    thinks = name == "qwen3_5_think"  # its prompt opens a thought, which it prints closed before the call
    expected = render_template(tokenizer, chat, add_generation_prompt=True, **clock)
    assert tokenizer.decode(ids) == (
        expected.replace("<think>\n\n</think>\n\n<tool_call>", "<think>\n<tool_call>", 1) if thinks else expected
    )


def test_small_lfm2_template_matches_the_published_one(tokenizers: dict[str, Any]) -> None:
    trl = pytest.importorskip("trl", reason="no trl: pip install 'trl>=1.16'")
    text = (Path(trl.__file__).parent / "chat_templates" / "lfm2_v2.jinja").read_text("utf-8")
    call = ToolCall(
        "call00000", "search", {"a": 'Ada\'s \\ "L"\n', "b": ["x", True, None], "c": {}, "d": 1.5, "e": False}
    )
    turns = [
        make_user_message("Where?"),
        make_call_message("Hm.", [call, *CALLS]),
        *map(make_result_message, RESULTS),
        SAY,
    ]
    for chat in ([SYSTEM, *turns], turns, turns[:1]):
        for tools in (TOOLS, None):
            options = {"tools": tools, "tokenize": False, "add_generation_prompt": True}
            ours = tokenizers["lfm2"].apply_chat_template(chat, **options)
            assert ours == tokenizers["lfm2"].apply_chat_template(chat, chat_template=text, **options)
