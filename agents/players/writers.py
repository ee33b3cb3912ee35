"""Functions that write replies as tokens: sampled by a model, replayed, or by a scripted policy as if sampled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from agents.chat import ChatFrame
from agents.engines.base import Completion, Engine, Request
from agents.errors import ChatError
from agents.player import ScriptedPolicy, Summariser
from agents.role import Role
from agents.tool_formats import read_calls
from games.contracts import View


class Writer(Protocol):
    """Protocol of a function that writes the tokens of a reply to a view or, with `summary`, a summary of the past."""

    async def __call__(self, view: View, request: Request, summary: bool = False) -> Completion: ...


def make_model_writer(engine: Engine) -> Writer:
    """Return a writer that samples replies and summaries from an engine."""

    async def write(view: View, request: Request, summary: bool = False) -> Completion:
        (completion,) = await engine.generate([request])
        return completion

    return write


def make_replay_writer(replies: Mapping[int, Completion], write: Writer | None = None) -> Writer:
    """Return a writer that replays these replies by turn, and asks `write` at other turns.

    Without `write`, other turns raise LookupError.
    """

    async def replay(view: View, request: Request, summary: bool = False) -> Completion:
        if view.turn in replies:
            return replies[view.turn]
        if write is None:
            raise LookupError(f"there is no reply of {view.seat} in turn {view.turn}")
        return await write(view, request, summary)

    return replay


def make_demonstration_writer(script: ScriptedPolicy, role: Role, frame: ChatFrame) -> Writer:
    """Return a writer of a scripted policy's replies as if the model had sampled them, for imitation learning.

    Talk is left out if the reply would exceed the role's token limit. A script without summaries writes empty ones.
    Tool calls are written in the model's own format if the role's reply format is `native`.
    """
    native = role.reply.format == "native" and frame.tools is not None

    async def write(view: View, request: Request, summary: bool = False) -> Completion:
        if summary:
            reply = script_completion(frame, script.summary(view) if isinstance(script, Summariser) else "")
            limit = request.max_tokens
            if len(reply.ids) <= limit:
                return reply
            return Completion(reply.ids[:limit], reply.logprobs[:limit], "length", 0)
        text = script.act(view)
        reply = script_completion(frame, role.write(text), native=native)
        if len(reply.ids) <= request.max_tokens:
            return reply
        return script_completion(frame, role.write(text, talk=False), native=native)

    return write


def script_completion(
    frame: ChatFrame, text: str, finish: Literal["stop", "length"] = "stop", native: bool = False
) -> Completion:
    """Return a text as a sampled completion: its ids, a stop id if `finish` is "stop", and log-probabilities 0.

    With `native`, tool calls that can be parsed are written in the model's own format.
    """
    text_ids = encode_native(frame, text) if native else frame.encode(text)
    ids = (*text_ids, *([frame.stop_id] if finish == "stop" else []))
    return Completion(ids, (0.0,) * len(ids), finish, 0)


def encode_native(frame: ChatFrame, text: str) -> list[int]:
    """Return the ids of a reply, with its tool calls (in plain or the model's format) written in the model's format."""
    for format in (frame.tool_format, "plain"):
        reading = read_calls(format, text)
        if reading.calls and not reading.problem:
            try:
                return frame.write_calls(reading.speech, reading.calls)
            except ChatError:
                break
    return frame.encode(text)
