"""Templates for external training: unchanged text, and marks on the sampled parts."""

import json
from pathlib import Path
from typing import Any

import pytest
from jinja2 import TemplateError

from agents.chat import ChatFrame, fingerprint
from agents.nano import build_nano_tokenizer
from agents.tool_formats import ToolCall
from agents.training_template import build_frame_template, mark_template, mark_tool_template
from tests.factories.families import CHATML, FAMILIES, STRIPPING
from tests.factories.models import make_tiny_llama
from tests.factories.tool_templates import TOOL_FAMILIES, build_tool_tokenizer

SYSTEM = {"role": "system", "content": "Be brief. It's \\ \U0001f600"}
PLAIN = [
    {"role": "user", "content": "Hello?"},
    {"role": "assistant", "content": "Take 1."},
    {"role": "user", "content": "So?"},
    {"role": "assistant", "content": " No."},
]
THOUGHT = [PLAIN[0], {"role": "assistant", "content": "<think>Hm.</think>Take 1."}, *PLAIN[2:]]
TOOLS = [PLAIN[0], {"role": "tool", "content": "3"}, {"role": "user", "content": "So?"}]
CONVERSATIONS = [PLAIN, [SYSTEM, *PLAIN], [SYSTEM, *THOUGHT], PLAIN[:3], PLAIN[:1], [SYSTEM], TOOLS]


def make_tokenizer(name: str) -> Any:
    if name == "nano":
        return build_nano_tokenizer()
    tokenizer = FAMILIES["qwen" if name in ("stripping", "chatml") else name]()
    if name in ("stripping", "chatml"):
        tokenizer.chat_template = STRIPPING if name == "stripping" else CHATML
    return tokenizer


def decode_masked(tokenizer: Any, messages: list[dict[str, str]], template: str) -> tuple[list[int], str]:
    """Return the ids of a conversation and the text that the mask covers."""
    options = {"return_dict": True, "return_assistant_tokens_mask": True}
    ids = tokenizer.apply_chat_template(messages, chat_template=template, **options)
    pairs = zip(ids["input_ids"], ids["assistant_masks"], strict=True)
    return ids["input_ids"], tokenizer.decode([token for token, mask in pairs if mask])


@pytest.mark.parametrize("name", [*FAMILIES, "nano", "stripping", "chatml"])
def test_marks_do_not_change_the_rendering(name: str) -> None:
    tokenizer = make_tokenizer(name)
    frame = ChatFrame(tokenizer)
    template = mark_template(tokenizer, frame)
    for messages in CONVERSATIONS:
        for prompted in (True, False):
            options = {"tokenize": False, "add_generation_prompt": prompted}
            try:
                expected = tokenizer.apply_chat_template(messages, **options)
            except (TemplateError, UnboundLocalError, IndexError):
                continue
            assert tokenizer.apply_chat_template(messages, chat_template=template, **options) == expected
    identity = fingerprint(tokenizer, frame)
    tokenizer.chat_template = template
    assert fingerprint(tokenizer, ChatFrame(tokenizer)) == identity
    assert mark_template(tokenizer, frame) == template, "marked once"


@pytest.mark.parametrize("name", ["llama3", "nano", "stripping", "chatml"])
def test_marks_cover_replies_and_their_end(name: str) -> None:
    tokenizer = make_tokenizer(name)
    frame = ChatFrame(tokenizer)
    template = mark_template(tokenizer, frame)
    for messages in (PLAIN, [SYSTEM, *PLAIN]):
        second = "No." if frame.parts.trims else " No."
        assert decode_masked(tokenizer, messages, template)[1] == f"Take 1.{frame.stop}{second}{frame.stop}"
    assert decode_masked(tokenizer, PLAIN[:3], template)[1] == f"Take 1.{frame.stop}"


@pytest.mark.parametrize("name", ["llama3", "qwen", "nano", "stripping", "chatml"])
def test_frame_template_matches_policy_context(name: str) -> None:
    """Including thoughts of earlier replies that the model's own template drops."""
    tokenizer = make_tokenizer(name)
    frame = ChatFrame(tokenizer)
    assert frame.rewrites_thoughts is (name in ("qwen", "stripping"))
    template = build_frame_template(frame)
    assert template
    for system in ("Be brief.", ""):
        messages = [*([{"role": "system", "content": system}] if system else []), *THOUGHT]
        ids, text = decode_masked(tokenizer, messages, template)
        expected_ids = frame.open(system)
        for user, reply in zip(THOUGHT[::2], THOUGHT[1::2], strict=True):
            # sampled, a tag is its own token
            reply_ids = tokenizer.encode(reply["content"], add_special_tokens=False)
            expected_ids += [*frame.ask(user["content"]), *reply_ids, frame.stop_id, *frame.close("stop")]
        assert ids == expected_ids
        assert text == "".join(f"{reply['content']}{frame.stop}" for reply in THOUGHT[1::2])


def test_no_template_without_a_system_turn() -> None:
    for name in ("gemma", "llama2", "mistral"):
        tokenizer = make_tokenizer(name)
        assert build_frame_template(ChatFrame(tokenizer)) is None
        assert mark_template(tokenizer, ChatFrame(tokenizer)) == tokenizer.chat_template


DEFINITIONS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "find", "description": "Find.", "parameters": {"type": "object"}}}
]
CALL = {"id": "call00000", "type": "function", "function": {"name": "find", "arguments": {"query": "Ada"}}}
WITH_TOOLS: list[dict[str, Any]] = [
    {"role": "user", "content": "Where?"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "name": "find", "tool_call_id": "call00000", "content": "Tarn"},
    {"role": "assistant", "content": "ANSWER Tarn"},
]


@pytest.mark.parametrize("family", TOOL_FAMILIES)
def test_calls_are_marked_as_sampled(family: str) -> None:
    tokenizer = build_tool_tokenizer(family)
    frame = ChatFrame(tokenizer)
    template = mark_tool_template(tokenizer, frame)
    assert template
    chat = [*([SYSTEM] if frame.parts.system == "turn" else []), *WITH_TOOLS]
    options = {"tools": DEFINITIONS, "tokenize": False}
    expected = tokenizer.apply_chat_template(chat, **options)
    assert tokenizer.apply_chat_template(chat, chat_template=template, **options) == expected
    ids = tokenizer.apply_chat_template(
        chat, tools=DEFINITIONS, chat_template=template, return_dict=True, return_assistant_tokens_mask=True
    )
    pairs = zip(ids["input_ids"], ids["assistant_masks"], strict=True)
    marked = [token for token, mask in pairs if mask]
    call = frame.write_calls("", [ToolCall("call00000", "find", {"query": "Ada"})])
    if frame.tools and frame.tools.exact and family != "mistral":
        assert marked == [*call, frame.stop_id, *frame.encode("ANSWER Tarn"), frame.stop_id]
    assert marked.count(frame.stop_id) == 2
    plain = tokenizer.apply_chat_template(PLAIN, chat_template=template, tokenize=False)
    assert plain == tokenizer.apply_chat_template(PLAIN, tokenize=False)


@pytest.mark.slow
@pytest.mark.parametrize("family", TOOL_FAMILIES)
def test_trl_learns_from_calls_and_answers_alone(family: str, tmp_path: Path) -> None:
    """By TRL's tokenisation and collation of a chat with calls: its labels are the marked tokens."""
    trl = pytest.importorskip("trl", reason="no trl: pip install 'trl>=1.16'")
    datasets = pytest.importorskip("datasets", reason="no datasets: pip install datasets")
    tokenizer = build_tool_tokenizer(family)
    frame = ChatFrame(tokenizer)
    marked = mark_tool_template(tokenizer, frame)
    chat = [*([SYSTEM] if frame.parts.system == "turn" else []), *WITH_TOOLS]
    rows = [{"messages": chat, "tools": json.dumps(DEFINITIONS)}] * 2
    encoded = tokenizer.apply_chat_template(
        chat, tools=DEFINITIONS, chat_template=marked, return_dict=True, return_assistant_tokens_mask=True
    )
    tokenizer.chat_template = marked
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token or frame.stop
    config = trl.SFTConfig(
        output_dir=str(tmp_path), assistant_only_loss=True, max_steps=1, bf16=False, use_cpu=True, report_to=[],
        save_strategy="no", per_device_train_batch_size=2,
    )  # fmt: skip
    model = make_tiny_llama(vocabulary=len(tokenizer))
    data = datasets.Dataset.from_list(rows)
    trainer = trl.SFTTrainer(model=model, args=config, train_dataset=data, processing_class=tokenizer)
    batch = next(iter(trainer.get_train_dataloader()))
    expected = [id if mask else -100 for id, mask in zip(encoded["input_ids"], encoded["assistant_masks"], strict=True)]
    for ids, labels in zip(batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True):
        assert ids == encoded["input_ids"] and labels == expected
    assert trainer.train().training_loss > 0
