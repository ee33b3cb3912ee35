"""Session of an agent program: its requests in one match, answered by the policy and recorded as turns of its seat."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from agents.chat import ChatFrame
from agents.chat_messages import ChatMessage, RequestError
from agents.engines.base import Completion, Request
from agents.errors import ChatError
from agents.harness.conversations import Continuation, Conversations, describe_drift
from agents.harness.request import AgentRequest
from agents.players.writers import Writer
from agents.role import Role
from agents.stream import Stream, compute_keys
from agents.tool_formats import Reading, ToolCall
from games.contracts import View

MAX_CONCURRENT = 16
"""Maximum concurrent requests of a match; further ones wait."""
MAX_REPEATS = 16
"""Maximum repetitions of one request."""
OVER = RequestError("the match is over", 401, "invalid_api_key")


@dataclass(frozen=True)
class Answer:
    """The policy's answer to a request."""

    number: int
    """Index among the session's answers."""
    raw: str
    """Text exactly as sampled."""
    text: str
    """Text without tool calls."""
    calls: tuple[ToolCall, ...]
    finish: Literal["stop", "length"]
    prompt_tokens: int
    completion_tokens: int
    version: int


@dataclass
class _CachedAnswer:
    """Cached answer to a request, and the number of repetitions of the request."""

    answer: asyncio.Task[Answer]
    repeats: int = 0


@dataclass
class PendingTurn:
    """Request that has been assigned a turn of the match. `answer` will hold its answer, or the error that ended it."""

    turn: int
    answer: asyncio.Future[Answer] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def fail(self, error: BaseException) -> None:
        """End the request with an error, which the player raises."""
        if isinstance(error, Exception):
            self.answer.set_exception(error)
            self.answer.exception()  # so that asyncio does not report it if the match has already ended
        else:
            self.answer.cancel()

    @property
    def has_failed(self) -> bool:
        """True if the request ended with an error."""
        return self.answer.done() and (self.answer.cancelled() or self.answer.exception() is not None)


class Session:
    """Requests of one match's agent program, and the conversations in which they are answered.

    A request takes a turn while the seat is to move (between `begin` and `end`), and waits otherwise. A reply's seed
    depends on the context's ids and the request's `seed`, so concurrent requests get the same replies in any order.
    """

    def __init__(
        self,
        role: Role,
        frame: ChatFrame,
        policy: str,
        key: str,
        seed: tuple[int, ...],
        write: Writer,
        positions: int,
        note: Callable[[str], None],
        score: Callable[[Mapping[str, float]], None],
        sees: bool = False,
    ) -> None:
        """Create the session. `role` to `positions` are as for `ChatPlayer`.

        `note` shows a line to the user, once per run. `score` pays rewards that the program posts, and raises
        ValueError if the game takes none. `sees` allows images in requests.
        """
        self.sees = sees
        self.role, self.frame, self.policy, self.seed, self.write = role, frame, policy, seed, write
        self.positions, self._note, self.score = positions, note, score
        self.conversations = Conversations(frame, key)
        self.pending: list[PendingTurn] = []
        """Requests since `begin`, in the order of their turns."""
        self.news = asyncio.Event()
        """Set when a request has taken a turn or failed, or the program has acted."""
        self._cache: dict[bytes, _CachedAnswer] = {}
        self._draws: dict[bytes, int] = {}
        self._view: View | None = None
        self._is_open, self._slots = asyncio.Event(), asyncio.Semaphore(MAX_CONCURRENT)
        self._rendering = asyncio.Lock()
        self._answers = self._calls = 0
        self._is_over = False

    @property
    def streams(self) -> list[Stream]:
        """The conversations' streams, in the order of their first turns."""
        return self.conversations.streams

    # -- the player's side -----------------------------------------------------------------------------------------

    def begin(self, view: View) -> None:
        """Let requests take turns, from the view's turn on."""
        self._view, self.pending = view, []
        self._is_open.set()

    def release_slot(self) -> None:
        """Allow one more concurrent request, because one has become a turn of the match."""
        self._slots.release()

    def end(self) -> None:
        """Let requests wait until the seat is to move again."""
        self._is_open.clear()

    def close(self) -> None:
        """Refuse further requests and cancel those in progress, because the match is over."""
        self._is_over = True
        for known in self._cache.values():
            known.answer.cancel()

    # -- the program's side ----------------------------------------------------------------------------------------

    async def answer(self, request: AgentRequest) -> Answer:
        """Answer a request. A repetition gets the same answer. Raises RequestError if it cannot be answered."""
        if self._is_over:
            raise OVER
        key = hashlib.sha256(request.key.encode()).digest()
        if known := self._cache.get(key):
            known.repeats += 1
            if known.repeats > MAX_REPEATS:
                raise RequestError(
                    f"this request was answered {MAX_REPEATS} times already: for another answer, change its `seed`"
                )
        else:
            known = self._cache[key] = _CachedAnswer(asyncio.create_task(self._answer(request)))
            known.answer.add_done_callback(lambda task: self._forget_failed(key, task))
        try:
            return await asyncio.shield(known.answer)
        except asyncio.CancelledError:
            if self._is_over and known.answer.cancelled():
                raise OVER from None
            raise

    def reward(self, rewards: Mapping[str, float]) -> None:
        """Pay rewards that the program posts. Raises RequestError if the game takes none, or if the match is over."""
        if self._is_over:
            raise OVER
        try:
            self.score(rewards)
        except ValueError as error:
            raise RequestError(str(error), param="rewards") from None

    def _forget_failed(self, key: bytes, task: asyncio.Task[Answer]) -> None:
        """Remove a failed request from the cache, so that a repetition is tried again."""
        if task.cancelled() or task.exception():
            self._cache.pop(key, None)

    async def _answer(self, agent_request: AgentRequest) -> Answer:
        characters = sum(len(message.text) for message in agent_request.messages)
        if characters > self.positions * self.frame.longest_token_length:
            raise self._make_length_error(agent_request, f"{characters:,} characters")
        await self._render_tools(agent_request)
        await self._slots.acquire()
        try:
            while not self._is_open.is_set():
                await self._is_open.wait()
            continuation, reason = self.conversations.place(agent_request)
            request = self._build_request(agent_request, continuation)
        except BaseException:
            self._slots.release()
            raise
        self._note_request(agent_request, continuation, reason)
        assert self._view
        pending = PendingTurn(self._view.turn + len(self.pending))
        self.pending.append(pending)
        self.news.set()
        continuation.conversation.is_busy = True
        try:
            completion = await self.write(self._view._replace(turn=pending.turn), request)
            answer = self._record(continuation, completion, pending.turn)
        except BaseException as error:
            pending.fail(error)
            self.news.set()
            raise
        finally:
            continuation.conversation.is_busy = False
        pending.answer.set_result(answer)
        return answer

    async def _render_tools(self, request: AgentRequest) -> None:
        """Render the tools' definitions in a thread, to fill a cache: the chat template runs in a child process.

        Raises RequestError if the chat template cannot print them.
        """
        if request.tools and self.frame.tools and not any(m.role == "assistant" for m in request.messages):
            system = "".join(message.text for message in request.messages if message.role == "system")
            try:
                async with self._rendering:
                    await asyncio.to_thread(self.frame.opens_turn, request.tools, system)
            except ChatError as error:
                raise RequestError(str(error), param="tools") from None

    def _build_request(self, request: AgentRequest, continuation: Continuation) -> Request:
        """Return the engine's request. Raises RequestError if the context has no room for a reply."""
        sampling, ids, media = self.role.sampling, continuation.ids, continuation.media
        room = self.positions - len(ids)
        if room < 1:
            raise self._make_length_error(request, f"{len(ids):,} tokens")
        digest = hashlib.sha256(
            np.asarray(compute_keys(ids, media), np.int64).tobytes() + str(request.seed).encode()
        ).digest()
        draw = self._draws[digest] = self._draws.get(digest, -1) + 1
        return Request(
            policy=self.policy,
            ids=ids,
            media=media,
            key=continuation.conversation.key,
            max_tokens=min(request.max_tokens or sampling.max_tokens, sampling.max_tokens, room),
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            stop_ids=self.frame.stop_ids,
            seed=(*self.seed, *np.frombuffer(digest[:16], np.uint32).tolist(), draw),
        )

    def _make_length_error(self, request: AgentRequest, length: str) -> RequestError:
        return RequestError(
            f"this model's maximum context length is {self.positions:,} tokens, and the messages have {length}",
            code="context_length_exceeded",
            param="messages" if request.api == "chat" else "input",
        )

    def _record(self, continuation: Continuation, completion: Completion, turn: int) -> Answer:
        """Append the reply to the conversation's stream, and return it as an answer."""
        request, raw = continuation.request, self.frame.decode(completion.ids, marks=True)
        reading = Reading(raw)
        if request.tools and request.reads_calls:
            reading = self.frame.read_calls(completion.ids, request.tools, self._calls)
        if reading.problem or not reading.calls or len({call.id for call in reading.calls}) < len(reading.calls):
            reading = Reading(raw)
        self._calls += len(reading.calls)
        calls = reading.calls if request.is_parallel else reading.calls[:1]
        message = ChatMessage("assistant", reading.speech.strip(), calls)
        self.conversations.record(continuation, message, completion, turn)
        self._answers += 1
        count = len(completion.ids)
        prompt = len(continuation.conversation.stream) - count
        finish, text = completion.finish, reading.speech
        return Answer(self._answers, raw, text, calls, finish, prompt, count, completion.version)

    def _note_request(self, request: AgentRequest, continuation: Continuation, reason: str) -> None:
        """Show the user notes on the program's request, each kind once per run."""
        name = f"policy '{self.policy}', role {self.role.role}"
        if request.sampling:
            kinds = " and ".join(request.sampling)
            self._note(f"{name}: the agent program's {kinds} is ignored: the role's sampling applies")
        if reason:
            self._note(f"{name}: a request of the agent program {reason}, which opens a new stream")
        if template := describe_drift(self.frame, request):
            self._note(f"{name}: template drift: the chat template {template}")
        if request.max_tokens and request.max_tokens > self.role.sampling.max_tokens:
            limit = self.role.sampling.max_tokens
            self._note(f"{name}: the agent program asks for longer replies than the role's max_tokens, {limit}")


def dump_arguments(call: ToolCall) -> str:
    """Return a call's arguments as JSON text, as in OpenAI's API."""
    return json.dumps(dict(call.arguments), ensure_ascii=False)
