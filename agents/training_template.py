"""Chat templates for training with other libraries: replies are marked with `{% generation %}`.

TRL's `assistant_only_loss` and transformers' `return_assistant_tokens_mask` read these marks. A mark covers a reply and
its end token, which are the tokens that a policy samples.
"""

from __future__ import annotations

import re
from typing import Any

from agents.chat import ChatFrame
from agents.chat_template import get_template

MARKED = re.compile(r"\{%-?\s*generation\s*-?%\}")


def build_frame_template(frame: ChatFrame) -> str | None:
    """Return a chat template that renders a conversation exactly as the policy read it, including earlier thoughts.

    Replies are marked with `{% generation %}`. Returns None if the model's template has no system turn, because the
    policy's context then depends on its examples.
    """
    parts = frame.parts
    if parts.system != "turn":
        return None
    after = parts.reply_tail.partition(frame.stop)[2] if frame.stop in parts.reply_tail else parts.reply_tail
    no_system = parts.system_head + parts.system_tail
    return _build_template(frame, parts.prompt, frame.stop, after, no_system, marked=True, verbatim=True)


def mark_template(tokenizer: Any, frame: ChatFrame) -> str:
    """Return the tokenizer's chat template with generation marks wherever `frame` renders the same text.

    The rendered text never changes. A template that already has marks, or has no system turn, is returned unchanged.
    """
    template, parts = get_template(tokenizer), frame.parts
    if MARKED.search(template) or parts.system != "turn":
        return template
    before, stop, after = parts.reply_tail.partition(frame.stop)
    arguments = (frame, parts.reply_head, before + stop if stop else "", after if stop else before, parts.default)
    return (
        f"{{%- set framed -%}}{_build_template(*arguments, marked=False)}{{%- endset -%}}"
        f"{{%- set rendered %}}{template}{{% endset -%}}"
        f"{{%- if framed == rendered -%}}{_build_template(*arguments, marked=True)}"
        "{%- else -%}{{ rendered }}{%- endif -%}"
    )


def mark_tool_template(tokenizer: Any, frame: ChatFrame) -> str | None:
    """Return the tokenizer's chat template with generation marks around replies, in conversations with tools too.

    It renders the conversation before and after each reply and marks the difference. The rendered text never changes. A
    reply stays unmarked if it changes the text before it. Returns None if replies are marked already, or end without a
    stop token.
    """
    template = get_template(tokenizer).removesuffix("\n")
    if MARKED.search(template) or frame.stop not in frame.parts.reply_tail:
        return None
    stop = _quote(frame.stop)
    return (
        f"{{%- macro printed(messages, add_generation_prompt) %}}{template}{{% endmacro -%}}"
        "{%- set whole = printed(messages, add_generation_prompt) -%}{%- set done = namespace(count=0) -%}"
        "{%- for message in messages -%}{%- if message['role'] == 'assistant' -%}"
        "{%- set before = printed(messages[:loop.index0], true) -%}"
        "{%- set after = printed(messages[:loop.index], false) -%}"
        "{%- if whole.startswith(before) and after.startswith(before) and whole.startswith(after) -%}"
        f"{{%- set reply = after[before | length:].split({stop})[:-1] | join({stop}) ~ {stop} -%}}"
        "{{- whole[done.count:before | length] -}}{%- generation -%}{{- reply -}}{%- endgeneration -%}"
        "{%- set done.count = (before ~ reply) | length -%}{%- endif -%}{%- endif -%}{%- endfor -%}"
        "{{- whole[done.count:] -}}"
    )


def _build_template(
    frame: ChatFrame, reply_head: str, stop: str, after: str, no_system: str, *, marked: bool, verbatim: bool = False
) -> str:
    """Return a chat template of system, user and assistant turns with the given texts around replies.

    `no_system` opens conversations without a system turn. `verbatim` prevents replies from being stripped.
    """
    parts = frame.parts
    head, user_head = _quote(parts.system_head), _quote(parts.user_head)
    content = "message['content'] | trim" if parts.trims else "message['content']"
    reply_content = "message['content']" if verbatim else content
    reply = f"{{{{- ({reply_content}) ~ {_quote(stop)} -}}}}"
    if marked:
        reply = f"{{%- generation -%}}{reply}{{%- endgeneration -%}}"
    return (
        "{%- if not messages or messages[0]['role'] != 'system' -%}"
        f"{{{{- {_quote(no_system)} -}}}}"
        "{%- endif -%}{%- for message in messages -%}{%- if message['role'] == 'system' -%}"
        f"{{{{- {head} ~ ({content}) ~ {_quote(parts.system_tail)} -}}}}"
        "{%- elif message['role'] == 'assistant' -%}"
        f"{{{{- {_quote(reply_head)} -}}}}{reply}{{{{- {_quote(after)} -}}}}"
        "{%- else -%}"
        f"{{{{- {user_head} ~ ({content}) -}}}}"
        "{%- endif -%}{%- endfor -%}{%- if messages and messages[-1]['role'] != 'assistant' -%}"
        f"{{{{- {_quote(parts.prompt)} if add_generation_prompt else {_quote(parts.user_tail)} -}}}}"
        "{%- endif -%}"
    )


def _quote(text: str) -> str:
    """Return the text as a Jinja string literal."""
    escaped = text.encode("unicode_escape").decode().replace("'", "\\'")
    return f"'{escaped}'"
