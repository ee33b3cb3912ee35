"""Child process that renders chat templates, run by `agents.chat_template`. Imports no other module of Arena.

Reads JSON from standard input, {template, variables, chats: [{messages, add_generation_prompt, clock}, …]}, and writes
a list with [text, ""] or ["", reason] for each chat. Templates can use the same names as in transformers.
"""

import json
import resource
import sys
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

CPU_SECONDS = 2
MEMORY = 1 << 30
MAX_CHARACTERS = 1_000_000


class Generation(Extension):
    """Jinja extension for `{% generation %}`, which marks replies for training; its content is rendered unchanged."""

    tags = {"generation"}  # noqa: RUF012 as Jinja has it

    def parse(self, parser: Parser) -> nodes.Node:
        """Parse the content up to `{% endgeneration %}` into a scope node."""
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)


def tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Return the value as JSON without HTML escapes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message: str) -> None:
    """Raise TemplateError; templates call this to refuse a conversation."""
    raise TemplateError(message)


def main() -> None:
    """Set limits of CPU time and memory, render the chats read from standard input, and write the JSON answers."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))  # sends SIGXCPU, as nothing else does
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    job = json.load(sys.stdin)
    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols], cache_size=0
    )
    sandbox.filters["tojson"] = tojson
    sandbox.globals |= {"raise_exception": raise_exception}
    answers = []
    for chat in job["chats"]:
        try:
            template = sandbox.from_string(job["template"])
            # Not the machine's clock, so that a chat is rendered to the same text on every day.
            fixed = {"strftime_now": datetime.fromisoformat(chat["clock"]).strftime}
            text = template.render(**{"tools": None, "documents": None, **job["variables"], **chat, **fixed})
            answers.append([text, ""] if len(text) <= MAX_CHARACTERS else ["", "it prints too much"])
        except Exception as error:  # noqa: BLE001 a stranger's template may raise anything
            answers.append(["", " ".join(f"{error}".split())[:200] or type(error).__name__])
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
