"""Render conversations with a model's chat template in a child process with time and memory limits.

A template is a program that may come from a stranger. Jinja's sandbox hides Python's internals but does not prevent
endless loops. The process has resource limits and no secrets in its environment.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from agents import chat_template_child
from agents.errors import ChatError

WALL_SECONDS = 30  # the process has 2 s of CPU time: only on a very busy machine does it take this long
CLOCK = datetime(2024, 7, 26)
"""Fixed date for templates that print it, so that a run and its resumption do not differ by their day."""
LIMIT_MESSAGE = (
    f"the chat template needs more than {chat_template_child.CPU_SECONDS} s of work or "
    f"{chat_template_child.MEMORY >> 30} GB of memory: set a plainer chat_template"
)
PASSED_VARIABLES = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "SYSTEMROOT")


class Chat(NamedTuple):
    """A conversation to render with a chat template.

    `texts` alternate user, assistant, user, …, after a system text if `system` is True. `prompt`: end with the prompt
    for a reply. `clock`: date and time for templates that print it. `listed`: contents are lists of parts, the only
    form that templates of some models with vision know.
    """

    texts: tuple[str, ...]
    system: bool
    prompt: bool = True
    clock: datetime = CLOCK
    listed: bool = False

    def variables(self) -> dict[str, Any]:
        """Return the variables for the chat template: messages, add_generation_prompt, date_string and clock."""
        roles = ["system"] * self.system + ["user", "assistant"] * len(self.texts)
        contents = [[{"type": "text", "text": text}] for text in self.texts] if self.listed else self.texts
        messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
        return {"messages": messages, "add_generation_prompt": self.prompt, **time_variables(self.clock)}


class Renderable(Protocol):
    """Hashable conversation to render: `variables` returns what a chat template reads."""

    def variables(self) -> dict[str, Any]: ...


def time_variables(clock: datetime) -> dict[str, str]:
    """Return the variables for templates that print the time: `date_string` and `clock`."""
    # Llama 3.2 takes the date from a variable, Llama 3.3, gpt-oss, Granite and SmolLM3 from strftime_now.
    return {"date_string": f"{clock:%d %b %Y}", "clock": clock.isoformat()}


class TemplateRefusal(Exception):
    """Raised if a chat template refuses a conversation; the message is its reason."""


def get_template(tokenizer: Any) -> str:
    """Return a tokenizer's chat template. Raises ChatError if it has none."""
    try:
        template = tokenizer.get_chat_template() if getattr(tokenizer, "chat_template", None) else None
    except ValueError:  # several templates and no default
        template = None
    if not isinstance(template, str):
        raise ChatError(
            "this tokenizer has no chat template: use an instruction-tuned model, "
            "or set tokenizer.chat_template and save it with tokenizer.save_pretrained"
        )
    return template


class Renderings:
    """Conversations rendered with a tokenizer's chat template in a child process; `text` returns one of them."""

    def __init__(self, tokenizer: Any, chats: Sequence[Renderable], listed: bool = False) -> None:
        """Render the conversations; `listed`: with their contents as lists of parts.

        Raises ChatError without a template or if rendering fails or exceeds its limits.
        """
        template = get_template(tokenizer)
        special = json.dumps(tokenizer.special_tokens_map, default=str, sort_keys=True)
        prepared = tuple(chat._replace(listed=True) if listed and isinstance(chat, Chat) else chat for chat in chats)
        self._texts = dict(zip(chats, _render_in_child(template, special, prepared), strict=True))

    def text(self, chat: Renderable) -> str:
        """Return the text of a rendered conversation. Raises TemplateRefusal if the template refused it."""
        text, reason = self._texts[chat]
        if reason:
            raise TemplateRefusal(reason)
        return text

    def is_same(self, chat: Renderable, other: Renderable) -> bool:
        """Return True if two conversations have the same rendering or refusal."""
        return self._texts[chat] == self._texts[other]


@functools.lru_cache(maxsize=256)
def _render_in_child(template: str, special: str, chats: tuple[Renderable, ...]) -> list[tuple[str, str]]:
    """Render conversations in a child process; return (text, "") or ("", reason for refusal) for each. Cached.

    `special` is the JSON object of the tokenizer's special tokens. Retries once if something else killed the process.
    Raises ChatError if the process cannot start, fails or exceeds its time or memory limit.
    """
    job = {"template": template, "variables": json.loads(special), "chats": [chat.variables() for chat in chats]}
    environment = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
    command = [sys.executable, "-P", str(Path(chat_template_child.__file__))]
    for _ in range(2):
        try:
            child = subprocess.run(
                command, input=json.dumps(job).encode(), capture_output=True, timeout=WALL_SECONDS, env=environment
            )
        except subprocess.TimeoutExpired:
            raise ChatError(LIMIT_MESSAGE) from None
        except OSError as error:
            raise ChatError(f"the chat template cannot be rendered: no child process ({error})") from None
        code, last_line = child.returncode, child.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        if code == 0:
            return [(text, reason) for text, reason in json.loads(child.stdout)]
        if code == -signal.SIGXCPU or last_line == ["MemoryError"]:
            raise ChatError(LIMIT_MESSAGE)
    reason = f"signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"exit code {code}: {''.join(last_line)}"
    raise ChatError(f"the process that renders the chat template was ended twice, by {reason}")
