"""Parse and format the acts of a seat: tool calls, an answer, a question, or stopping.

search(query="…"), open(title="…")  also as <tool_call> JSON; terse: ?words
ANSWER text                         or <answer>text</answer>; terse: =text
QUESTION text PROGRAM program       terse: !program, which is the question too
STOP                                terse: .
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from games.base import IllegalAct, to_one_line
from simulators.search.programs import Program
from simulators.search.questions import word_question
from simulators.search.session import Session
from simulators.tools import Call, Tool, read_calls, run

MAX_ANSWER = 200
"""Maximum number of characters of an answer."""
ANSWER = re.compile(r"\s*ANSWER\b:?\s*(.+)", re.DOTALL | re.IGNORECASE)
TAGGED = re.compile(r"<answer>([^<]*)</answer>")
QUESTION = re.compile(r"\s*+QUESTION\b:?(.+?)\bPROGRAM\b:?(.+)", re.DOTALL)
Kind = Literal["call", "answer", "question", "stop"]


class Act(NamedTuple):
    """Parsed act: `calls` of kind "call", `text` of an answer, or `text` and `program` of a question."""

    kind: Kind
    text: str = ""
    program: str = ""
    calls: Sequence[Call] = ()


def read_act(act: str, terse: bool) -> Act | None:
    """Parse an act: one tool call, an answer, a question, or a stop. Returns None if the text is none of these."""
    if terse:
        return _read_terse(act.strip())
    if act.strip().upper() == "STOP":
        return Act("stop")
    if question := QUESTION.fullmatch(act):
        return Act("question", to_one_line(question[1], 2 * MAX_ANSWER), to_one_line(question[2], 2 * MAX_ANSWER))
    if answer := ANSWER.fullmatch(act) or TAGGED.search(act):
        text = to_one_line(answer[1], MAX_ANSWER)
        return Act("answer", text) if text else None
    calls = read_calls(act, limit=1)
    return Act("call", calls=calls[:1]) if calls else None


def _read_terse(act: str) -> Act | None:
    mark, text = act[:1], to_one_line(act[1:], MAX_ANSWER)
    if act == ".":
        return Act("stop")
    if mark == "?" and text:
        return Act("call", calls=(Call("search", {"query": text}),))
    if mark == "!" and text:
        return Act("question", text, text)
    return Act("answer", text) if mark == "=" and text else None


def write_call(kind: str, text: str, terse: bool) -> str:
    """Format a call (`kind` "search" or "open") with its query or title as an act. Terse acts are always searches."""
    if terse:
        return f"?{text}"
    return f'search(query="{text}")' if kind == "search" else f'open(title="{text}")'


def write_answer(text: str, terse: bool) -> str:
    """Format an answer as an act: `ANSWER text`, or `=text` if terse."""
    return f"={text}" if terse else f"ANSWER {text}"


def write_question(program: Program, terse: bool) -> str:
    """Format a program as a question act: its standard words and itself, or `!program` if terse."""
    return f"!{program.terse}" if terse else f"QUESTION {word_question(program)} PROGRAM {program}"


def make_tools(session: Session) -> list[Tool]:
    """Return a seat's tools: `search`, and `open` unless searches show full pages."""
    return [Tool.of(session.search)] if session.shows_pages else [Tool.of(session.search), Tool.of(session.open)]


def perform(act: Act, session: Session) -> str:
    """Run an act's tool calls in the seat's session and return their results, one per line, as text for the model."""
    return "\n".join(run(make_tools(session), call) for call in act.calls)


def require_kind(act: Act | None, kinds: Sequence[Kind], usage: str) -> Act:
    """Return the act if its kind is in `kinds`. Raises IllegalAct with the text `usage` for others and for None."""
    if act is None or act.kind not in kinds:
        raise IllegalAct(usage)
    return act
