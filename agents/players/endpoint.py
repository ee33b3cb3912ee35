"""Players behind an OpenAI-compatible endpoint: a role's texts go out as chat messages, a reply comes back.

Nothing that a server returns is trusted: a body has a size, a reply is text of a length, usage is counted in
sane numbers or estimated. What cannot be had in time, in form or within the spend limit raises EndpointError,
which ends the match that asked, with its reason, and no other.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents.errors import EndpointError
from agents.memory import plan
from agents.player import PREFIX, Act, View
from agents.players.spend import EndpointSpec, Spend
from agents.reply import one_line
from agents.role import Role, Sampling
from agents.stream import Stream

BODY_BYTES = 1_000_000
REPLY_LENGTH = 20_000
LONGEST_WAIT = 60.0  # seconds that a server may ask us to wait
BACKOFF = 0.5  # seconds before the second attempt; twice that before each further one
MOST_TOKENS = 10_000_000  # of one call; a server that tells more tells nonsense
NEWER_LIMIT = "max_completion_tokens"  # which some models demand, and some servers do not know
AGAIN = (408, 409, 429)  # and all from 500: statuses that may pass

Chat = list[dict[str, str]]


class Unusable(Exception):
    """An answer that cannot be used."""


class Usage(BaseModel):
    """Tokens of one call, as the server tells them."""

    model_config = ConfigDict(strict=True)

    prompt_tokens: Annotated[int, Field(ge=0, le=MOST_TOKENS)]
    completion_tokens: Annotated[int, Field(ge=0, le=MOST_TOKENS)]


class Said(BaseModel):
    """The message of a choice; other fields are ignored."""

    model_config = ConfigDict(strict=True)

    content: str | None = None


class Choice(BaseModel):
    """The only choice that is asked for."""

    model_config = ConfigDict(strict=True)

    message: Said
    finish_reason: str | None = None


class Body(BaseModel):
    """A chat completion, as far as it is read."""

    model_config = ConfigDict(strict=True)

    choices: Annotated[list[Choice], Field(min_length=1)]


@dataclass(frozen=True)
class Answer:
    """A reply and how it ended; `tokens` were written."""

    text: str
    finish: Literal["stop", "length"]
    tokens: int


class Endpoint:
    """One server, shared by all matches and all of its models in a run."""

    def __init__(self, spec: EndpointSpec | None = None, key: str | None = None) -> None:
        self.spec = spec or EndpointSpec()
        self.url = self.spec.url or os.environ.get("OPENAI_BASE_URL") or None
        self.key = key or os.environ.get("OPENAI_API_KEY") or ("none" if self.url else "")
        if not self.key:
            raise EndpointError("endpoint: set OPENAI_API_KEY, or OPENAI_BASE_URL for a server that needs no key")
        self.spend = Spend(self.spec)
        self._limit_name = "max_tokens"
        self._loop: asyncio.AbstractEventLoop | None = None
        try:
            import aiolimiter
            import openai
        except ImportError:
            raise EndpointError("endpoint players need pip install 'arena-selfplay[endpoint]'") from None
        self._openai, self._limiter_class = openai, aiolimiter.AsyncLimiter

    def player(self, model: str, role: Role, seed: int, said: Mapping[int, Answer] | None = None) -> EndpointPlayer:
        """A seat's player in one match; what it `said` before, by turn, it says again without being asked."""
        return EndpointPlayer(self, model, role, seed, said or {})

    async def ask(self, model: str, chat: Chat, sampling: Sampling, seed: int) -> Answer:
        """The model's reply to a chat; EndpointError when none can be had."""
        read = 8 + sum(8 + len(message["content"].encode("utf-8", "replace")) // 3 for message in chat)
        chance, why, wait = random.Random(seed), "", 0.0
        for attempt in range(self.spec.attempts):
            if attempt:
                await asyncio.sleep(max(wait, BACKOFF * 2 ** (attempt - 1) * (0.5 + chance.random())))
            wait = 0.0
            client, limiter = self._connected()
            await limiter.acquire()
            self.spend.reserve(read, sampling.max_tokens)
            try:
                async with asyncio.timeout(self.spec.seconds):
                    body = await self._call(client, model, chat, sampling, seed)
                return self._settle(body, read, sampling.max_tokens)
            except (TimeoutError, self._openai.APITimeoutError):
                why = f"no reply within {self.spec.seconds:g} s"
            except self._openai.APIStatusError as error:
                self.spend.add(-read, -sampling.max_tokens)  # what was refused costs nothing
                why = f"status {error.status_code}: {self._shown(_told(error))}"
                wait = _asked_to_wait(error.response.headers)
                if self._limit_name != NEWER_LIMIT and NEWER_LIMIT in error.message:
                    self._limit_name = NEWER_LIMIT
                elif (error.status_code not in AGAIN and error.status_code < 500) or wait > LONGEST_WAIT:
                    raise EndpointError(f"{PREFIX}{model}: {why}") from None
            except (self._openai.OpenAIError, Unusable) as error:
                cause = error.__cause__ if error.__cause__ and not isinstance(error, Unusable) else error
                why = self._shown(str(cause) or type(cause).__name__)
        raise EndpointError(f"{PREFIX}{model}: {why} ({self.spec.attempts} attempts)")

    async def _call(self, client: Any, model: str, chat: Chat, sampling: Sampling, seed: int) -> bytes:
        response = await client.chat.completions.with_raw_response.create(
            model=model,
            messages=chat,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            stop=sampling.stop[:4] or self._openai.omit,
            seed=seed,
            **{self._limit_name: sampling.max_tokens},
        )
        return bytes(response.http_response.content)

    def _settle(self, body: bytes, read: int, most: int) -> Answer:
        """The answer in a body; the reservation gives way to the usage told, where it is told in sane numbers."""
        try:
            data = json.loads(body)
            choice = Body.model_validate(data).choices[0]
        except (ValueError, RecursionError) as error:
            kind = "not a chat completion" if isinstance(error, ValidationError) else "not JSON"
            raise Unusable(f"the reply is {kind}") from None
        try:
            usage = Usage.model_validate(data.get("usage"))
        except ValidationError:
            usage = Usage(prompt_tokens=read, completion_tokens=most)
        self.spend.add(usage.prompt_tokens - read, usage.completion_tokens - most)
        text = (choice.message.content or "")[:REPLY_LENGTH].encode("utf-8", "replace").decode("utf-8")
        return Answer(text, "length" if choice.finish_reason == "length" else "stop", usage.completion_tokens)

    def _connected(self) -> tuple[Any, Any]:
        """The client and the limiter of the running event loop; a run uses several loops, one after another."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            http = self._openai.DefaultAsyncHttpxClient(follow_redirects=False, event_hooks={"response": [_bound]})
            headers = {"Accept-Encoding": "identity"}
            self._client = self._openai.AsyncOpenAI(
                api_key=self.key, base_url=self.url, timeout=self.spec.seconds, max_retries=0, http_client=http,
                default_headers=headers,
            )  # fmt: skip
            self._limiter = self._limiter_class(self.spec.requests_per_minute, 60)
            self._loop = loop
        return self._client, self._limiter

    def _shown(self, text: str) -> str:
        return one_line(text.replace(self.key, "(key)"), 200)


async def _bound(response: Any) -> None:
    """Puts a limit on what is read of a response's body."""
    import httpx2

    if response.headers.get("content-encoding", "identity") != "identity":
        raise Unusable("the reply is compressed, which was not asked for")

    class Bounded(httpx2.AsyncByteStream):
        def __init__(self, stream: Any) -> None:
            self.stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = BODY_BYTES
            async for chunk in self.stream:
                left -= len(chunk)
                if left < 0:
                    raise Unusable(f"the reply is longer than {BODY_BYTES:,} bytes")
                yield chunk

        async def aclose(self) -> None:
            await self.stream.aclose()

    response.stream = Bounded(response.stream)


def _asked_to_wait(headers: Mapping[str, str]) -> float:
    """The seconds of a Retry-After; 0 for none, and for a date or anything else."""
    try:
        seconds = float(headers.get("retry-after", "0"))
    except ValueError:
        return 0.0
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0


def _told(error: Any) -> str:
    """What a server says of its refusal, where it says it as OpenAI does."""
    message = error.body.get("message") if isinstance(error.body, Mapping) else None
    return message if isinstance(message, str) else str(error.message)


class EndpointPlayer:
    """One seat's side of one match: renders what it sees, asks the endpoint, reads the act from the reply."""

    def __init__(self, endpoint: Endpoint, model: str, role: Role, seed: int, said: Mapping[int, Answer]) -> None:
        self.endpoint, self.model, self.role, self.seed, self.said = endpoint, model, role, seed, said
        self.streams: list[Stream] = []
        self.stream_keys: list[str] = []
        self.version = 0
        self._opening: Chat | None = None
        self._history: list[tuple[str, str]] = []
        self._begun = 0
        """The exchange that the chat begins with: memory `window` lets go of those before it."""

    async def act(self, view: View) -> Act:
        """Take one turn."""
        kept = plan(self.role.memory, len(self._history))
        fresh = self._opening is None or kept is not None
        if self._opening is None or kept is not None:
            self._opening, self._begun = self._opened(view), len(self._history) - (kept or 0)
        see = self.role.render_turn(view, first=fresh)
        chat = [*self._opening, *_chat(self._history[self._begun :]), {"role": "user", "content": see}]
        answer = self.said.get(view.turn)
        if answer is None:
            answer = await self.endpoint.ask(self.model, chat, self.role.sampling, (self.seed + view.turn) % 2**31)
        self._history.append((see, answer.text))
        reply = self.role.parse(answer.text)
        return Act(reply.game_text, answer.text, reply.public, reply.private, answer.finish, answer.tokens)

    def _opened(self, view: View) -> Chat:
        system = self.role.render_system(view)
        opening = [{"role": "system", "content": system}] if system else []
        return opening + _chat([(example.see, example.say) for example in self.role.examples])


def _chat(exchanges: Sequence[tuple[str, str]]) -> Chat:
    pairs = (({"role": "user", "content": see}, {"role": "assistant", "content": say}) for see, say in exchanges)
    return [message for pair in pairs for message in pair]


def model_of(spec: str) -> str:
    """The model that `endpoint:MODEL` names; EndpointError when it names none."""
    model = spec.removeprefix(PREFIX)
    if not model or model != one_line(model, 200):
        raise EndpointError("write endpoint:MODEL, such as endpoint:gpt-4o-mini")
    return model
