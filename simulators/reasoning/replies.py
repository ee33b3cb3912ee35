"""Parse replies with reasoning: find the final answer, or the code to run before it.

Answer formats: the whole reply (`plain`), `\\boxed{…}` (`boxed`) or `<answer>…</answer>` (`tag`). Code formats, all
from models' training: ```` ```python ```` fences (`fence`; SimpleTIR, R1-Code-Interpreter), `<code>…</code>` (`code`;
ReTool; a fence inside is removed), or a call of a tool named python in any format of `games.calls` (`tool_call`;
ARTIST, Hermes). Any text is parsed in linear time.
"""

from __future__ import annotations

import json
import re
from typing import Literal, NamedTuple, get_args

from games.calls import read_calls

AnswerFormat = Literal["plain", "boxed", "tag"]
CodeFormat = Literal["fence", "code", "tool_call"]
ANSWERS: tuple[str, ...] = get_args(AnswerFormat)
CODES: tuple[str, ...] = get_args(CodeFormat)

SHOWN_ANSWER = {"plain": "the answer", "boxed": "the answer in \\boxed{…}", "tag": "the answer in <answer>…</answer>"}
SHOWN_CODE = {
    "fence": "```python\n…\n```",
    "code": "<code>…</code>",
    "tool_call": '<tool_call>{"name": "python", "arguments": {"code": "…"}}</tool_call>',
}
MARKS = {"fence": ("```python", "```"), "code": ("<code>", "</code>"), "tool_call": ("<tool_call>", "</tool_call>")}
NUMERAL = re.compile(r"[+-]?(\d{1,400}|\d{1,3}(?:,\d{3}){1,130})(?:\.(\d{1,400}))?", re.ASCII)
FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)


class Block(NamedTuple):
    """Code block in a reply. `start` is the offset of its opening mark."""

    start: int
    text: str


def find_final_answer(text: str, form: str) -> str | None:
    """Return the last answer in a text, stripped, or None. `form` is "plain" (the whole text), "boxed" or "tag"."""
    if form == "plain":
        answer: str | None = text
    elif form == "boxed":
        answer = _find_boxed(text)
    else:
        end = text.rfind("</answer>")
        start = text.rfind("<answer>", 0, max(end, 0))
        answer = text[start + len("<answer>") : end] if start >= 0 else None
    return (answer or "").strip() or None


def normalise(answer: str) -> str:
    """Normalise an answer: lower case, single spaces, no final full stops.

    Equal numbers give equal texts: `+07`, `7.0` and `7.` give `7`, and `1,000` gives `1000`.
    """
    plain = " ".join(answer.split()).casefold().rstrip(". ")
    if (number := NUMERAL.fullmatch(plain)) is None:
        return plain
    integer, fraction = number[1].replace(",", "").lstrip("0") or "0", (number[2] or "").rstrip("0")
    value = f"{integer}.{fraction}" if fraction else integer
    return f"-{value}" if plain.startswith("-") and value != "0" else value


def write_answer(answer: str, form: str) -> str:
    """Format an answer as a reply in the format "plain", "boxed" or "tag"."""
    return {"plain": answer, "boxed": f"\\boxed{{{answer}}}", "tag": f"<answer>{answer}</answer>"}[form]


def find_first_block(text: str, form: str) -> Block | None:
    """Return the first block of code in a reply, or None. `form` is "fence", "code" or "tool_call".

    For "tool_call", the block's text is the whole reply. An unclosed block extends to the end of the reply, because
    sampling may have stopped at the closing mark.
    """
    opening, closing = MARKS[form]
    if form == "tool_call":
        calls = [call for call in read_calls(text, limit=1)[:1] if call.name == "python" or opening in text]
        return Block(max(text.find(opening), 0), text) if calls else None
    start = text.find(opening)
    if start < 0:
        return None
    begin = start + len(opening)
    end = text.find(closing, begin)
    inner = text[begin : end if end >= 0 else len(text)]
    if form == "code" and (fenced := FENCE.search(inner)):
        inner = fenced[1]
    return Block(start, inner.strip("\n")) if inner.strip() else None


def write_code(code: str, form: str) -> str:
    """Format Python code as a reply in the format "fence", "code" or "tool_call"."""
    opening, closing = MARKS[form]
    if form == "tool_call":
        return opening + json.dumps({"name": "python", "arguments": {"code": code}}) + closing
    return f"{opening}\n{code}\n{closing}"


def _find_boxed(text: str) -> str | None:
    """Return the content of the last \\boxed{…} with balanced braces, or None."""
    opening, end = "\\boxed{", len(text)
    while (start := text.rfind(opening, 0, end)) >= 0:
        depth = 1
        # Search up to the later, unbalanced box: a box that is not closed before it contains it and is unbalanced too.
        for index in range(start + len(opening), end):
            depth += {"{": 1, "}": -1}.get(text[index], 0)
            if depth == 0:
                return text[start + len(opening) : index]
        end = start
    return None
