"""Acts of the analyst: a cell of Python, a statement of SQL, or the answer."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Verb = Literal["code", "sql", "answer"]
MARKED = re.compile(
    r"```[ \t]*(?P<fence>python|py|sql)[ \t]*\n(?P<block>.*?)(?:```|\Z)"
    r"|<(?P<tag>code|sql|answer)>(?P<inner>.*?)(?:</(?P=tag)>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
WORDED = re.compile(r"\s*(code|sql|answer)\b:?[ \t]*(.*)", re.DOTALL | re.IGNORECASE)
FENCE = re.compile(r"\A\s*```[ \t]*(python|py|sql)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)
MAX_ANSWER_LENGTH = 200


class Act(NamedTuple):
    """Parsed act: its verb and its text."""

    verb: Verb
    text: str


def read_act(reply: str) -> Act | None:
    """Parse the first act in a reply. Returns None if there is none.

    An act is a fence (```` ```python ````, ```` ```sql ````) or a tag (`<code>`, which may contain a fence, `<sql>`,
    `<answer>`) anywhere in the reply; without these, a reply that begins with `code`, `sql` or `answer`.
    """
    if found := MARKED.search(reply):
        name, text = found["fence"] or found["tag"], found["block"] or found["inner"] or ""
    elif found := WORDED.match(reply):
        name, text = found[1], found[2]
    else:
        return None
    name = name.lower()
    if name == "code" and (fenced := FENCE.match(text)):
        name, text = (fenced[1] or "code").lower(), fenced[2]
    if name == "answer":
        lines = text.strip().splitlines()
        text = lines[0][:MAX_ANSWER_LENGTH] if lines else ""
    verb: Verb = "sql" if name == "sql" else "answer" if name == "answer" else "code"
    return Act(verb, text.strip("\n") if verb == "code" else text.strip()) if text.strip() else None
