"""Players behind an OpenAI-compatible endpoint: a role's texts become chat messages, and the reply is parsed.

Servers are not trusted: bodies and replies have a maximum length, and usage is checked or estimated. If no valid reply
arrives in time and within the spend limit, EndpointError ends only the match that needs it, with the reason. A key that
a server repeats is redacted from all its texts.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from agents.conversation import Chat, Conversation
from agents.errors import ContextFull, EndpointError
from agents.players.completions import Answer, UnusableReply, Usage, read_completion
from agents.players.connection import find_proxy_variable, make_http_client, parse_retry_after
from agents.players.spend import EndpointSpec, Spend, plain_url
from agents.reply import to_one_line
from agents.role import Role, Sampling
from agents.stream import ImageReader, Stream
from games.contracts import Act, View
from games.names import nearest

REPLY_LENGTH = 20_000
MAX_WAIT = 60.0  # seconds that a server may ask us to wait
CONNECT_SECONDS = 5.0  # timeout for connecting to a server; its answer may take longer
CHECK_SECONDS = 10.0  # timeout for the list of its models
PAGE_LENGTH = 10_000  # maximum characters read of an error page
ERROR_LENGTH = 250  # maximum characters of an error message
IMAGE_TOKENS = 1_500  # reserved for an image until the server reports its usage
SECRET_LENGTH = 8  # shorter keys (EMPTY, none) are no secrets, and redacting them would hide plain words
BACKOFF = 0.5  # seconds before the second attempt, doubled before each further one
NEWER_LIMIT = "max_completion_tokens"  # required by some models, unknown to some servers
OPTIONAL = ("temperature", "top_p")  # sent if the role sets them; some servers accept only one or none
CONTEXT_FULL = re.compile(
    r"context[ _-]?(length|size|window)|prompt is too long|max_new_tokens` must be", re.IGNORECASE
)
"""Pattern of servers' messages or error codes for a chat that exceeds the model's context."""
RETRY_STATUSES = (408, 409, 429)  # temporary failures, like all statuses from 500 on

KEY_VARIABLE = "OPENAI_API_KEY"
OPENAI = "https://api.openai.com/v1"


class ListedModel(BaseModel):
    """Entry of a server's list of models."""

    id: str


class ModelList(BaseModel):
    """Server's answer to `/models`: the list of its models."""

    data: list[ListedModel]


class Endpoint:
    """OpenAI-compatible server, shared by all matches and models of a run. Errors start with its `name`.

    Creating it raises EndpointError for an invalid url or key or a missing package. `spend` counts its tokens.
    """

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
            raise EndpointError(f"{name}: {self.variable} is not a valid key: a header cannot carry its characters")
        self._key, self.hide_key = key or "none", make_key_hider(key)
        self.spend = Spend(self.spec)
        self.replies = self.waiting = 0
        """Number of answered requests, and of requests in flight."""
        self._limit_name = "max_tokens"
        self._refused_parameters: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        try:
            import aiolimiter
            import openai
        except ImportError:
            raise EndpointError("endpoint players need pip install 'arena-selfplay[endpoint]'") from None
        self._openai, self._limiter_class = openai, aiolimiter.AsyncLimiter

    async def check(self, models: Iterable[str]) -> list[str]:
        """Ask for the server's list of models before anything starts, and return warnings, one line each.

        There is a warning for each model that is not listed, or for a server without a list, which is optional. Raises
        EndpointError if the server does not answer or refuses the key.
        """
        client, _ = self._get_client()
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                response = await client.models.with_raw_response.list()
                listing = ModelList.model_validate_json(bytes(response.http_response.content))
        except self._openai.APIStatusError as error:
            if error.status_code == 401:
                reason = f"refuses the key in {self.variable} (401: {self._shorten(_find_reason(error))})"
                raise EndpointError(f"{self.name}: {self.url} {reason}") from None
            is_redirect = 300 <= error.status_code < 400
            return [self._shorten(f"{self.name}: {self.url}: {self._convert_refusal(error)}")] if is_redirect else []
        except (TimeoutError, self._openai.OpenAIError, UnusableReply, ValidationError) as error:
            if self._is_connection_error(error):
                raise EndpointError(f"{self.name}: {self._describe_failure(error)}") from None
            reason = self._describe_failure(error)
            return [f"{self.name}: {self.url} gives no list of models ({reason}): is it the right server?"]
        known = [listed.id for listed in listing.data]
        missing = [model for model in dict.fromkeys(models) if model not in known]
        return [self._shorten(f"{self.name}: {self.url} lists no model '{m}'{nearest(m, known)}") for m in missing]

    def player(
        self,
        model: str,
        role: Role,
        seed: int,
        recorded: Mapping[int, Answer] | None = None,
        picture: ImageReader | None = None,
    ) -> EndpointPlayer:
        """Return a player for one seat in one match. `model` is the server's model, `role` the prompts and parsing.

        `recorded` holds earlier replies by turn, which are replayed without a request. `picture` returns the bytes of
        the game's images, which are sent if the setting `images` is true.
        """
        return EndpointPlayer(self, model, role, seed, recorded or {}, picture if self.spec.images else None)

    async def ask(self, model: str, chat: Chat, sampling: Sampling, seed: int) -> Answer:
        """Return the model's reply to a chat, with exponential backoff between attempts.

        Raises EndpointError if all attempts fail, and ContextFull if the server reports that the model's context has no
        room for chat and reply.
        """
        rng, wait, reason = random.Random(seed), 0.0, ""
        for attempt in range(self.spec.attempts):
            if attempt:
                await asyncio.sleep(max(wait, BACKOFF * 2 ** (attempt - 1) * (0.5 + rng.random())))
            try:
                return await self._attempt(model, chat, sampling, seed)
            except UnusableReply as error:
                wait, reason = error.wait, self._shorten(str(error))
                if error.final:
                    raise EndpointError(f"{self.name}:{model}: {reason}") from None
                seed = rng.getrandbits(31) if error.reseed else seed
        raise EndpointError(f"{self.name}:{model}: {reason} ({self.spec.attempts} attempts)")

    async def _attempt(self, model: str, chat: Chat, sampling: Sampling, seed: int) -> Answer:
        """Send one request and return the reply. If the server refuses a parameter, drop it and send the request again.

        Reserves the tokens first. Raises EndpointError at a spend limit, ContextFull if the context has no room, and
        UnusableReply for any other failure.
        """
        prompt_tokens = 8 + sum(8 + _estimate_tokens(message["content"]) for message in chat)
        while True:
            client, limiter = self._get_client()
            if limiter:
                await limiter.acquire()
            parameters = self._build_parameters(sampling, seed)
            self.spend.reserve(prompt_tokens, sampling.max_tokens)
            self.waiting += 1
            try:
                async with asyncio.timeout(self.spec.seconds):
                    call = client.chat.completions.with_raw_response.create
                    response = await call(model=model, messages=chat, **parameters)
                self.replies += 1
                return self._read_answer(bytes(response.http_response.content), prompt_tokens, sampling.max_tokens)
            except self._openai.APIStatusError as error:
                self.spend.add(-prompt_tokens, -sampling.max_tokens)  # a refused request costs nothing
                if _is_context_full(error):
                    raise ContextFull(self._shorten(f"context limit: {_find_reason(error)}")) from None
                if not self._adapt_parameters(error, parameters):
                    raise self._convert_refusal(error) from None
            except (TimeoutError, self._openai.OpenAIError) as error:
                raise UnusableReply(self._describe_failure(error)) from None
            finally:
                self.waiting -= 1

    def _build_parameters(self, sampling: Sampling, seed: int) -> dict[str, Any]:
        """Return a request's parameters, without those that the role does not set or the server does not accept."""
        names = sampling.model_fields_set - self._refused_parameters
        parameters = {name: getattr(sampling, name) for name in OPTIONAL if name in names}
        if sampling.stop:
            parameters["stop"] = sampling.stop[:4]
        if self.spec.seed:
            parameters["seed"] = seed
        return {**parameters, self._limit_name: sampling.max_tokens}

    def _adapt_parameters(self, error: Any, parameters: Mapping[str, Any]) -> bool:
        """Record which parameters the server refuses; return True if the request may be sent again without them.

        `temperature` and `top_p` are only dropped if they are 1, the protocol's default.
        """
        reason = _find_reason(error)
        if error.status_code >= 500:
            return False
        if "max_tokens" in parameters and NEWER_LIMIT in reason:
            self._limit_name = NEWER_LIMIT
            return True
        refused = {name for name in OPTIONAL if parameters.get(name) == 1 and name in reason}
        self._refused_parameters |= refused
        return bool(refused)

    def _convert_refusal(self, error: Any) -> UnusableReply:
        """Convert a refusal into an UnusableReply that says whether it is final and how long to wait for a retry."""
        status, wait = error.status_code, parse_retry_after(error.response.headers)
        too_long = f", to wait {wait:.6g} s" if wait > MAX_WAIT else ""
        final = bool(too_long) or (status not in RETRY_STATUSES and status < 500)
        return UnusableReply(
            f"status {status}{self._describe_proxy()}{too_long}: {_find_reason(error)}", final=final, wait=wait
        )

    def _read_answer(self, body: bytes, prompt_tokens: int, max_tokens: int) -> Answer:
        """Parse a body's answer, and replace the reserved tokens by the usage that the server reports, if plausible.

        Raises UnusableReply for a body without a reply.
        """
        choice, reported_usage = read_completion(body)
        usage = reported_usage or Usage(prompt_tokens=prompt_tokens, completion_tokens=max_tokens)
        self.spend.add(usage.prompt_tokens - prompt_tokens, usage.completion_tokens - max_tokens)
        text = self.hide_key(choice.require_text(max_tokens))[:REPLY_LENGTH]
        return Answer(text, choice.finish, usage.completion_tokens)

    def _get_client(self) -> tuple[Any, Any]:
        """Return the client and limiter (or None) of the running event loop; a run may use several loops."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            try:
                http = make_http_client(self._openai, self.url)
            except EndpointError as error:
                raise EndpointError(f"{self.name}: {error}") from None
            headers = {"Accept-Encoding": "identity"}
            self._client = self._openai.AsyncOpenAI(
                api_key=self._key, base_url=self.url, max_retries=0, http_client=http, default_headers=headers,
                timeout=self._openai.Timeout(self.spec.seconds, connect=min(CONNECT_SECONDS, self.spec.seconds)),
            )  # fmt: skip
            rate = self.spec.requests_per_minute
            self._limiter = self._limiter_class(rate, 60) if rate else None
            self._loop = loop
        return self._client, self._limiter

    def _is_connection_error(self, error: BaseException) -> bool:
        """Return True if the request failed because no connection was made."""
        import httpx2

        return isinstance(error.__cause__, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.UnsupportedProtocol)

    def _describe_failure(self, error: BaseException) -> str:
        """Return why a request has no answer, in one line without the key."""
        cause = error.__cause__ if error.__cause__ and not isinstance(error, UnusableReply) else error
        if self._is_connection_error(error):
            reason = self._shorten(str(cause) or "no answer")
            hint = "is a server running there? (set url, or OPENAI_BASE_URL)"
            return f"no connection to {self.url}{self._describe_proxy()} ({reason}): {hint}"
        if isinstance(error, TimeoutError | self._openai.APITimeoutError):
            return f"no reply within {self.spec.seconds:g} s"
        if isinstance(error, ValidationError):
            return "its answer is not a list of models"
        return self._shorten(str(cause) or type(cause).__name__)

    def _describe_proxy(self) -> str:
        variable = find_proxy_variable(self.url)
        return f" through the proxy of {variable}" if variable else ""

    def _shorten(self, text: str) -> str:
        return to_one_line(self.hide_key(text), ERROR_LENGTH)


def _estimate_tokens(content: Any) -> int:
    """Return an estimate of a content's tokens: a third of its bytes, and `IMAGE_TOKENS` per image."""
    if isinstance(content, str):
        return len(content.encode("utf-8", "replace")) // 3
    return sum(_estimate_tokens(part["text"]) if part["type"] == "text" else IMAGE_TOKENS for part in content)


def make_key_hider(key: str) -> Callable[[str], str]:
    """Return a function that replaces the key in a text by "(key)", even if blanks separate its letters.

    Invisible characters count as blanks, so that removing them cannot restore the key. Keys under 8 characters are not
    replaced.
    """
    if len(key) < SECRET_LENGTH:
        return lambda text: text
    pattern = re.compile("[^!-~]*+".join(map(re.escape, key)))
    return lambda text: pattern.sub("(key)", text)


def _is_context_full(error: Any) -> bool:
    """Return True if a server refuses a chat because the model's context is too short for it and the reply."""
    body = error.body if isinstance(error.body, Mapping) else {}
    text = f"{body.get('code')} {body.get('type')} {_find_reason(error)}"[:PAGE_LENGTH]
    return error.status_code in (400, 413, 422) and CONTEXT_FULL.search(text) is not None


def _find_reason(error: Any) -> str:
    """Return a server's reason for a refusal: the message of OpenAI's format, else the answer's text."""
    message = error.body.get("message") if isinstance(error.body, Mapping) else None
    if isinstance(message, str):
        return message
    if location := error.response.headers.get("location"):
        return f"it redirects to {location}, which is not followed: set url"
    return re.sub("<[^<>]*+>", " ", error.response.text[:PAGE_LENGTH]).strip() or str(error.message)


class EndpointPlayer:
    """Player of one seat in one match: renders observations, asks the endpoint, and parses the act."""

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        role: Role,
        seed: int,
        recorded: Mapping[int, Answer],
        picture: ImageReader | None,
    ) -> None:
        self.endpoint, self.model, self.role, self.seed, self.recorded = endpoint, model, role, seed, recorded
        self.streams: list[Stream] = []
        self.stream_keys: list[str] = []
        self.version = 0
        self._conversation = Conversation(role, picture=picture)

    async def act(self, view: View) -> Act:
        """Return the act in the recorded reply to this view, or in the endpoint's.

        Raises EndpointError if there is no reply, and ContextFull if the model's context is full; but EndpointError if
        the context has no room for the first reply.
        """
        chat = self._conversation.ask(view)
        answer = self.recorded.get(view.turn)
        if answer is None:
            try:
                answer = await self.endpoint.ask(self.model, chat, self.role.sampling, (self.seed + view.turn) % 2**31)
            except ContextFull as full:
                if self._conversation.has_replies:
                    raise
                advice = "shorten the role, or lower its sampling.max_tokens"
                raise EndpointError(
                    f"{self.endpoint.name}:{self.model}: no room for a reply ({full}): {advice}"
                ) from None
        self._conversation.record_reply(answer.text)
        # Hide the key again: parsing may have joined parts of it.
        reply, hide_key = self.role.parse(answer.text), self.endpoint.hide_key
        action, public, private = hide_key(reply.game_text), hide_key(reply.public), hide_key(reply.private)
        excused = self.role.excuses(answer.finish)
        return Act(
            action=action,
            raw=answer.text,
            public=public,
            private=private,
            finish=answer.finish,
            tokens=answer.tokens,
            excused=excused,
        )
