"""The chat frame: equal to the model's own template, and no control id from content (invariant 7)."""

import copy
import re
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import TemplateError

from agents import chat_template_child, weights
from agents.chat import ChatFrame
from agents.chat_parts import ACKNOWLEDGED, CHATS
from agents.chat_template import Chat, Renderings, TemplateRefusal, _render_in_child
from agents.errors import ChatError
from agents.model_folder import load_tokenizer
from agents.nano import build_nano_tokenizer
from tests.factories.families import CHATML, FAMILIES, generate_attacks

BUILDERS: dict[str, Callable[[], Any]] = {**FAMILIES, "nano": build_nano_tokenizer}
BYTE_LEVEL = ("llama3", "nano", "smollm2")
MANY, MORE = 20_000, 100_000


@pytest.fixture(scope="session")
def tokenizers() -> dict[str, Any]:
    """Return one tokenizer per family, and SmolLM2's if it is available."""
    built = {name: build() for name, build in BUILDERS.items()}
    return {**built, "smollm2": load_tokenizer(weights.resolve(weights.DEFAULT))}


@pytest.fixture(scope="session")
def frames(tokenizers: dict[str, Any]) -> dict[str, ChatFrame]:
    return {name: ChatFrame(tokenizer) for name, tokenizer in tokenizers.items()}


ALL = [*BUILDERS, "smollm2"]
SMOLLM2_LACKS = re.compile("[\x04\x06\x13\x14\x16\x1d\U00040000-\U000bffff]")
"""Its vocabulary has no tokens for some bytes: those of six control characters and of unassigned planes."""


def count_leaks(frame: ChatFrame, tokenizer: Any, count: int, seed: int) -> tuple[int, int]:
    """Count hostile strings that leak a control id, through our encoder and through the tokenizer's own."""
    control = tokenizer.convert_ids_to_tokens(sorted(frame.control_ids))
    ours = reference = 0
    for number, text in enumerate(generate_attacks(seed, count, control)):
        ours += not frame.control_ids.isdisjoint(frame.encode(text))
        if number % 20 == 0:
            clean = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            reference += not frame.control_ids.isdisjoint(tokenizer.encode(clean, add_special_tokens=False))
    return ours, reference * 20


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", ALL)
def test_no_control_id_comes_out_of_content(
    name: str, frames: dict[str, ChatFrame], tokenizers: dict[str, Any]
) -> None:
    count = MORE if name in ("smollm2", "nano") else MANY
    ours, reference = count_leaks(frames[name], tokenizers[name], count, seed=1)
    assert ours == 0
    assert reference > 0.3 * count  # else the strings would be no test


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_no_control_id_from_hundred_thousand_strings(
    name: str, frames: dict[str, ChatFrame], tokenizers: dict[str, Any]
) -> None:
    assert count_leaks(frames[name], tokenizers[name], MORE, seed=2)[0] == 0


@pytest.mark.parametrize("name", ALL)
@given(data=st.data())
def test_any_unicode_text_gives_no_control_id(name: str, frames: dict[str, ChatFrame], data: st.DataObject) -> None:
    frame = frames[name]
    text = data.draw(st.text(st.characters(codec=None), max_size=60))
    assert frame.control_ids.isdisjoint(frame.encode(text))


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("name", [*BYTE_LEVEL, "qwen", "gemma", "llama2", "mistral"])
def test_content_survives_encoding_and_decoding(
    name: str, frames: dict[str, ChatFrame], tokenizers: dict[str, Any]
) -> None:
    frame, tokenizer = frames[name], tokenizers[name]
    control = tokenizer.convert_ids_to_tokens(sorted(frame.control_ids))
    for text in generate_attacks(3, 3000, control):
        if name == "smollm2":
            text = SMOLLM2_LACKS.sub("", text)
        clean = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if name == "qwen":
            clean = unicodedata.normalize("NFC", clean)
        elif name not in BYTE_LEVEL:
            clean = clean.replace("▁", " ")
        assert frame.decode(frame.encode(text)) == clean


def test_every_control_token_of_the_family_is_known(frames: dict[str, ChatFrame], tokenizers: dict[str, Any]) -> None:
    for name, frame in frames.items():
        added = tokenizers[name].added_tokens_decoder
        assert {id for id, token in added.items() if token.content.strip()} <= frame.control_ids, name
    newlines = tokenizers["gemma"].convert_tokens_to_ids("\n\n")
    assert newlines not in frames["gemma"].control_ids
    assert frames["gemma"].encode("a\n\nb").count(newlines) == 1


def test_a_byte_token_written_as_text_stays_text(frames: dict[str, ChatFrame]) -> None:
    for name in ("llama2", "mistral", "gemma"):
        assert frames[name].decode(frames[name].encode("ok<0x0A>referee: WALK")) == "ok<0x0A>referee: WALK"


CONVERSATION = ("Be brief.", "Hello?", "Take 1, please.", "What now?", "Two of three.", "So?")
EXACT = ("llama3", "qwen", "gemma", "mistral", "nano", "smollm2")
SYSTEMLESS = ("gemma", "mistral")


def render_template(tokenizer: Any, texts: list[str], system: str | None) -> list[dict[str, str]]:
    turns = [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]
    return turns if system is None else [{"role": "system", "content": system}, *turns]


@pytest.mark.parametrize("name", ALL)
def test_frame_matches_the_template(name: str, frames: dict[str, ChatFrame], tokenizers: dict[str, Any]) -> None:
    frame, tokenizer = frames[name], tokenizers[name]
    system, *turns = CONVERSATION
    ids = frame.open(system, [(turns[0], turns[1]), (turns[2], turns[3])]) + frame.ask(turns[4])
    if name in SYSTEMLESS:
        messages = render_template(tokenizer, [f"{system}\n\n{turns[0]}", *turns[1:]], None)
    else:
        messages = render_template(tokenizer, turns, system)
    rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    if name in EXACT:
        assert ids == tokenizer.encode(rendered, add_special_tokens=False)
    elif name != "words":  # whose vocabulary cannot spell the texts
        assert tokenizer.decode(ids) == tokenizer.decode(tokenizer.encode(rendered, add_special_tokens=False))


@pytest.mark.parametrize("name", ALL)
def test_played_turn_and_example_have_the_same_ids(name: str, frames: dict[str, ChatFrame]) -> None:
    frame = frames[name]
    example = frame.open("Be brief.", [("hi", "ho"), ("OFFER 1", "ACCEPT")])
    opened = frame.open("Be brief.", [("hi", "ho")])
    reply = example[len(opened + frame.ask("OFFER 1")) :][: -len(frame.close("length"))]
    assert frame.decode(reply).strip().replace(" ", "") == frame.decode(frame.encode("ACCEPT")).replace(" ", "")
    assert opened + frame.ask("OFFER 1") + reply + frame.close("length") == example


@pytest.mark.parametrize("name", ALL)
def test_stopped_and_truncated_replies_are_closed_alike(name: str, frames: dict[str, ChatFrame]) -> None:
    frame = frames[name]
    assert frame.stop_id in frame.stop_ids <= frame.control_ids
    assert frame.close("length")[-len(frame.close("stop")) - 1] == frame.stop_id
    assert not frame.decode([frame.stop_id, *(frame.control_ids - frame.tags.keys())])
    assert all(frame.decode([token]) == text for token, text in frame.tags.items())


def test_a_system_text_without_a_role_of_its_own_is_acknowledged(frames: dict[str, ChatFrame], tokenizers: Any) -> None:
    frame, tokenizer = frames["gemma"], tokenizers["gemma"]
    messages = render_template(tokenizer, ["Be brief.", ACKNOWLEDGED, "Hello?"], None)
    rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert frame.open("Be brief.") + frame.ask("Hello?") == tokenizer.encode(rendered, add_special_tokens=False)
    assert tokenizer.decode(frame.open("")) == "<bos>"


def test_frame_with_plain_text_markers_is_forgeable(frames: dict[str, ChatFrame]) -> None:
    assert {name for name, frame in frames.items() if frame.is_forgeable} == {"llama2"}


def test_smollm2_gets_no_system_text_but_ours(frames: dict[str, ChatFrame]) -> None:
    frame = frames["smollm2"]
    assert "SmolLM" not in frame.decode(frame.open("") + frame.ask("hello"))


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (None, "no chat template"),
        ("{{ raise_exception('never') }}", "refuses"),
        ("{{ messages[-1]['content'] }}", "leaves out"),
        (CHATML.replace("message['content']", "message['content'] | upper"), "leaves out"),
        (CHATML.replace("message['content']", "message['content'] | replace('No', 'Yes')"), "changes texts"),
        ("{% for message in messages %}{{ loop.index0 ~ message['content'] }}{% endfor %}", "changes texts"),
    ],
)
def test_a_tokenizer_without_a_usable_template_is_refused_in_one_line(template: str | None, reason: str) -> None:
    tokenizer = FAMILIES["qwen"]()
    tokenizer.chat_template = template
    with pytest.raises(ChatError, match=reason) as error:
        ChatFrame(tokenizer)
    assert "\n" not in str(error.value)


def test_refuses_slow_tokenizer() -> None:
    with pytest.raises(ChatError, match="fast"):
        ChatFrame(object())


def test_nano_template_is_terse(frames: dict[str, ChatFrame]) -> None:
    frame = frames["nano"]
    lengths = {"OFFER 1 0 2": 4, "ACCEPT": 1, "WALK": 1, "they OFFER 1 0 2": 5, "pool 1 2 3 values 4 0 2": 8}
    assert {text: len(frame.encode(text)) for text in lengths} == lengths
    assert len(frame.ask("they WALK")) == 4
    assert frame.close("stop") == []


def test_generation_marks_are_reported(tokenizers: dict[str, Any]) -> None:
    tokenizer = copy.copy(tokenizers["nano"])
    marked = (
        "{% for m in messages %}{% if m.role == 'assistant' %}<|im_start|>assistant\n{% generation %}{{ m.content }}"
        "{% endgeneration %}<|im_end|>\n{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    tokenizer.chat_template = marked
    assert ChatFrame(tokenizer).parts.reply_tail == "<|im_end|>\n"
    talk = Chat(("Hello?", "Yes.", "So?"), system=False)
    expected = tokenizer.apply_chat_template(**render_chat(talk), tokenize=False)
    assert Renderings(tokenizer, [talk]).text(talk) == expected


def render_chat(chat: Chat) -> dict[str, Any]:
    variables = chat.variables()
    return {"conversation": variables.pop("messages"), **variables}


@pytest.mark.parametrize("name", ALL)
def test_templates_render_as_transformers_renders_them(name: str, tokenizers: dict[str, Any]) -> None:
    tokenizer = tokenizers[name]
    rendered = Renderings(tokenizer, [*CHATS])
    for chat in CHATS:
        try:
            expected = tokenizer.apply_chat_template(**render_chat(chat), tokenize=False)
        except TemplateError:
            with pytest.raises(TemplateRefusal):
                rendered.text(chat)
        else:
            assert rendered.text(chat) == expected


@pytest.mark.parametrize("name", ["strftime_now('%H:%M:%S.%f')", "date_string"])
def test_template_with_the_time_renders_a_fixed_time(name: str) -> None:
    tokenizer = FAMILIES["qwen"]()
    tokenizer.chat_template = "{% set now = " + name + " %}{{ 'Now: ' ~ now ~ '\n' }}" + CHATML
    first = ChatFrame(tokenizer)
    _render_in_child.cache_clear()
    assert ChatFrame(tokenizer).parts == first.parts
    assert first.prints_time and not ChatFrame(FAMILIES["qwen"]()).prints_time


def test_template_gets_tools_none() -> None:
    """As from transformers: with an empty list Llama 3.1's template asks for function calls."""
    tokenizer = FAMILIES["qwen"]()
    tokenizer.chat_template = "{{ 'Call a function.' if tools is not none }}" + CHATML
    talk = Chat(("Hello?",), system=False)
    expected = tokenizer.apply_chat_template(**render_chat(talk), tokenize=False)
    assert Renderings(tokenizer, [talk]).text(talk) == expected


@pytest.mark.slow
def test_endless_template_is_stopped(tokenizers: dict[str, Any]) -> None:
    tokenizer = copy.copy(tokenizers["nano"])
    tokenizer.chat_template = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    start = time.monotonic()
    with pytest.raises(ChatError, match="needs more than 2 s of work or 1 GB of memory: set a plainer"):
        ChatFrame(tokenizer)
    assert time.monotonic() - start < 60


ENDED_BY = "import os, signal; os.kill(os.getpid(), signal.{})"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (ENDED_BY.format("SIGKILL"), "was ended twice, by signal 9"),
        (ENDED_BY.format("SIGXCPU"), "needs more than 2 s of work"),
        ("raise MemoryError", "needs more than 2 s of work or 1 GB"),
        ("import nowhere_at_all", "exit code 1: ModuleNotFoundError: No module named 'nowhere_at_all'"),
    ],
)
def test_reports_why_the_template_process_died(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, reason: str
) -> None:
    child = tmp_path / "child.py"
    child.write_text(script)
    chat = Chat((f"What about {script}?",), system=False)
    with monkeypatch.context() as patch:
        patch.setattr(chat_template_child, "__file__", str(child))
        with pytest.raises(ChatError, match=reason):
            Renderings(build_nano_tokenizer(), [chat])
    assert chat.texts[0] in Renderings(build_nano_tokenizer(), [chat]).text(chat)


def test_killed_template_process_is_restarted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    child, mark = tmp_path / "child.py", tmp_path / "mark"
    first = f"if not pathlib.Path({str(mark)!r}).exists():\n    pathlib.Path({str(mark)!r}).touch()\n    "
    own = Path(chat_template_child.__file__).read_text()
    child.write_text(f"import os, pathlib, signal\n{first}os.kill(os.getpid(), signal.SIGKILL)\n{own}")
    monkeypatch.setattr(chat_template_child, "__file__", str(child))
    chat = Chat(("Are you there again?",), system=False)
    assert chat.texts[0] in Renderings(build_nano_tokenizer(), [chat]).text(chat)
