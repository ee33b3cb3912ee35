"""Players behind an OpenAI-compatible endpoint: a role's texts go out as chat messages, a reply comes back.

Nothing that a server returns is trusted: a body has a size, a reply is text of a length, usage is counted in
sane numbers or estimated. What cannot be had in time, in form or within the spend limit raises EndpointError,
which ends the match that asked, with its reason, and no other. A key that a server repeats is cut out of all it
says before anybody else sees it.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents.conversation import Chat, Conversation
from agents.errors import EndpointError
from agents.names import nearest
from agents.players.spend import EndpointSpec, Spend, plain_url
from agents.reply import one_line
from agents.role import Role, Sampling
from agents.stream import Stream
from games.contracts import Act, View

BODY_BYTES = 1_000_000
REPLY_LENGTH = 20_000
LONGEST_WAIT = 60.0  # seconds that a server may ask us to wait
CONNECT_SECONDS = 5.0  # to reach a server; what it answers may take longer
CHECK_SECONDS = 10.0  # for the list of its models
SECRET_LENGTH = 8  # a shorter key (EMPTY, none) hides nothing, and would blot out plain words
BACKOFF = 0.5  # seconds before the second attempt; twice that before each further one
MOST_TOKENS = 10_000_000  # of one call; a server that tells more tells nonsense
NEWER_LIMIT = "max_completion_tokens"  # which some models demand, and some servers do not know
AGAIN = (408, 409, 429)  # and all from 500: statuses that may pass

KEY_VARIABLE = "OPENAI_API_KEY"
OPENAI = "https://api.openai.com/v1"


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


class Listed(BaseModel):
    """One model of a server's list."""

    id: str


class Listing(BaseModel):
    """Answer of a server to `/models`."""

    data: list[Listed]


class Endpoint:
    """One server, shared by all matches and all of its models in a run; errors call it by its `name`."""

    def __init__(self, spec: EndpointSpec | None = None, name: str = "endpoint") -> None:
        self.spec, self.name = spec or EndpointSpec(), name
        url, self.variable = self.spec.url or os.environ.get("OPENAI_BASE_URL"), self.spec.key_variable or KEY_VARIABLE
        try:
            self.url = plain_url(url or OPENAI)
        except ValueError as error:
            raise EndpointError(f"{name}: OPENAI_BASE_URL: {error}") from None
        key = os.environ.get(self.variable, "").strip()
        if not key and (not url or self.spec.key_variable):
            server = ", or a url (OPENAI_BASE_URL) for a server that needs no key" if not url else ""
            raise EndpointError(f"{name}: no key: set {self.variable} in the environment{server}")
        if not (key.isascii() and key.isprintable()):
            raise EndpointError(f"{name}: {self.variable} holds what is no key: characters that a header cannot carry")
        self._key, self.hidden = key or "none", hider(key)
        self.spend = Spend(self.spec)
        self.replies = self.waiting = 0
        """Number of requests that were answered, and of those on their way."""
        self._limit_name = "max_tokens"
        self._loop: asyncio.AbstractEventLoop | None = None
        try:
            import aiolimiter
            import openai
        except ImportError:
            raise EndpointError("endpoint players need pip install 'arena-selfplay[endpoint]'") from None
        self._openai, self._limiter_class = openai, aiolimiter.AsyncLimiter

    async def check(self, models: Iterable[str]) -> list[str]:
        """Ask for the server's list of models, before anything starts; what the user should know, a line each.

        EndpointError where nobody answers or the key is refused; a server need not have such a list.
        """
        client, _ = self._connected()
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                response = await client.models.with_raw_response.list()
                listing = Listing.model_validate_json(bytes(response.http_response.content))
        except self._openai.APIStatusError as error:
            if error.status_code == 401:
                why = f"refuses the key in {self.variable} (401: {self._abbreviated(_refusal(error))})"
                raise EndpointError(f"{self.name}: {self.url} {why}") from None
            return []
        except (TimeoutError, self._openai.OpenAIError, Unusable, ValidationError) as error:
            if self._unreached(error):
                raise EndpointError(f"{self.name}: {self._why(error)}") from None
            return [f"{self.name}: {self.url} gives no list of models ({self._why(error)}): is it the right server?"]
        known = [listed.id for listed in listing.data]
        missing = [model for model in dict.fromkeys(models) if model not in known]
        return [self._abbreviated(f"{self.name}: {self.url} lists no model '{m}'{nearest(m, known)}") for m in missing]

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
            if limiter:
                await limiter.acquire()
            self.spend.reserve(read, sampling.max_tokens)
            self.waiting += 1
            try:
                async with asyncio.timeout(self.spec.seconds):
                    body = await self._call(client, model, chat, sampling, seed)
                self.replies += 1
                return self._settle(body, read, sampling.max_tokens)
            except self._openai.APIStatusError as error:
                self.spend.add(-read, -sampling.max_tokens)  # what was refused costs nothing
                why = f"status {error.status_code}: {self._abbreviated(_refusal(error))}"
                wait = _asked_to_wait(error.response.headers)
                if self._limit_name != NEWER_LIMIT and NEWER_LIMIT in error.message:
                    self._limit_name = NEWER_LIMIT
                elif (error.status_code not in AGAIN and error.status_code < 500) or wait > LONGEST_WAIT:
                    raise EndpointError(f"{self.name}:{model}: {why}") from None
            except (TimeoutError, self._openai.OpenAIError, Unusable) as error:
                why = self._why(error)
            finally:
                self.waiting -= 1
        raise EndpointError(f"{self.name}:{model}: {why} ({self.spec.attempts} attempts)")

    async def _call(self, client: Any, model: str, chat: Chat, sampling: Sampling, seed: int) -> bytes:
        response = await client.chat.completions.with_raw_response.create(
            model=model,
            messages=chat,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            stop=sampling.stop[:4] or self._openai.omit,
            seed=seed if self.spec.seed else self._openai.omit,
            **{self._limit_name: sampling.max_tokens},
        )
        return bytes(response.http_response.content)

    def _settle(self, body: bytes, read: int, most: int) -> Answer:
        """The answer in a body; the reservation gives way to the server's usage, where its numbers are sane."""
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
        said = (choice.message.content or "").encode("utf-8", "replace").decode("utf-8")
        return Answer(
            self.hidden(said)[:REPLY_LENGTH],
            "length" if choice.finish_reason == "length" else "stop",
            usage.completion_tokens,
        )

    def _connected(self) -> tuple[Any, Any]:
        """The client and the limiter, if any, of the running event loop; a run may use several, one after another."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            http = self._openai.DefaultAsyncHttpxClient(follow_redirects=False, event_hooks={"response": [_bound]})
            headers = {"Accept-Encoding": "identity"}
            self._client = self._openai.AsyncOpenAI(
                api_key=self._key, base_url=self.url, max_retries=0, http_client=http, default_headers=headers,
                timeout=self._openai.Timeout(self.spec.seconds, connect=min(CONNECT_SECONDS, self.spec.seconds)),
            )  # fmt: skip
            rate = self.spec.requests_per_minute
            self._limiter = self._limiter_class(rate, 60) if rate else None
            self._loop = loop
        return self._client, self._limiter

    def _unreached(self, error: BaseException) -> bool:
        """Return True if nobody was reached who could have answered."""
        import httpx2

        return isinstance(error.__cause__, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.UnsupportedProtocol)

    def _why(self, error: BaseException) -> str:
        """Return in one line what went wrong with a request that got no answer."""
        cause = error.__cause__ if error.__cause__ and not isinstance(error, Unusable) else error
        if self._unreached(error):
            told = self._abbreviated(str(cause) or "no answer")
            return f"no connection to {self.url} ({told}): is a server running there? (set url, or OPENAI_BASE_URL)"
        if isinstance(error, TimeoutError | self._openai.APITimeoutError):
            return f"no reply within {self.spec.seconds:g} s"
        if isinstance(error, ValidationError):
            return "what it sends is none"
        return self._abbreviated(str(cause) or type(cause).__name__)

    def _abbreviated(self, text: str) -> str:
        return one_line(self.hidden(text), 200)


def hider(key: str) -> Callable[[str], str]:
    """A function that cuts the key out of a text, also where blanks or invisible characters stand between its letters.

    Whatever is cleaned of such characters afterwards has no key to put together again.
    """
    if len(key) < SECRET_LENGTH:
        return lambda text: text
    pattern = re.compile("[^!-~]*+".join(map(re.escape, key)))
    return lambda text: pattern.sub("(key)", text)


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


def _refusal(error: Any) -> str:
    """Return a server's reason for its refusal, where it gives it as OpenAI does."""
    message = error.body.get("message") if isinstance(error.body, Mapping) else None
    return message if isinstance(message, str) else str(error.message)


class EndpointPlayer:
    """One seat's side of one match: renders what it sees, asks the endpoint, reads the act from the reply."""

    def __init__(self, endpoint: Endpoint, model: str, role: Role, seed: int, said: Mapping[int, Answer]) -> None:
        self.endpoint, self.model, self.role, self.seed, self.said = endpoint, model, role, seed, said
        self.streams: list[Stream] = []
        self.stream_keys: list[str] = []
        self.version = 0
        self._conversation = Conversation(role)

    async def act(self, view: View) -> Act:
        """Take one turn."""
        chat = self._conversation.ask(view)
        answer = self.said.get(view.turn)
        if answer is None:
            answer = await self.endpoint.ask(self.model, chat, self.role.sampling, (self.seed + view.turn) % 2**31)
        self._conversation.said(answer.text)
        reply, hidden = self.role.parse(answer.text), self.endpoint.hidden  # what was apart, reading may have joined
        action, public, private = hidden(reply.game_text), hidden(reply.public), hidden(reply.private)
        excused = self.role.excuses(answer.finish)
        return Act(action, answer.text, public, private, answer.finish, answer.tokens, excused=excused)
