"""OpenAI-compatible API for policies: chat completions, whole or streamed, from an engine.

A model's name is a policy's name. Its replies continue the messages in its chat frame, as in training. `POLICY:ROLE`
adds a role: without a system message, the role's own system text and examples are put first, as for a seat of a new
match. The role's sampling is the default, and the answer has the reply as the role parses it, under `arena`.

Replies are sampled a few tokens at a time, so that long ones do not block others and stop if the client disconnects.
Unsupported parameters are refused with an error in the API's format.
"""

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any
from urllib.parse import urlsplit

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request as Asked
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from agents.engines.base import Engine, Request
from agents.image_parts import ImageParts
from agents.policy import Policy
from agents.role import MIN_TEMPERATURE, Role, Sampling, load_role
from arena.config.experiment import Experiment
from arena.play.making import deal_game
from arena.play.settings import TableSpec
from arena.serve.messages import ChatMessage, Refused, split_turns, write_ids
from games.contracts import Deal, View

BODY_BYTES = 4 << 20
"""Maximum size of a request; with images, `BODY_WITH_IMAGES` for servers of a policy that sees."""
BODY_WITH_IMAGES = 32 << 20
LARGEST = 2**31 - 1
"""Maximum integer in a request, because engines use 32 bits."""
PIECE = 16
"""Tokens sampled between checks for other requests and for disconnected clients."""
MOST_TOKENS = 1024
"""Default maximum tokens of a reply, if neither request nor role sets it."""


Count = Annotated[int, Field(ge=1, le=LARGEST)]
Stop = Annotated[str, Field(max_length=256)]


class ChatRequest(BaseModel):
    """Request for a chat completion. Fields that are not declared here are ignored, except for those of `NEUTRAL`.

    The service refuses these unless they have a value that is listed there.
    """

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    model: str
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=LARGEST)] | None = None
    n: Annotated[int, Field(ge=1, le=16)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=16)] | None = None

    @property
    def stops(self) -> list[str]:
        """Non-empty stop texts, which end a reply and are left out of it."""
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return [text for text in given if text]


NEUTRAL: dict[str, tuple[Any, ...]] = {
    "audio": (None,),
    "continue_final_message": (None, False),
    "frequency_penalty": (None, 0),
    "function_call": (None, "none"),
    "functions": (None, []),
    "ignore_eos": (None, False),
    "logit_bias": (None, {}),
    "logprobs": (None, False),
    "min_p": (None, 0),
    "min_tokens": (None, 0),
    "modalities": (None, ["text"]),
    "presence_penalty": (None, 0),
    "repetition_penalty": (None, 1),
    "response_format": (None, {"type": "text"}),
    "tool_choice": (None, "none", "auto"),
    "tools": (None, []),
    "top_logprobs": (None, 0),
}
"""Unsupported parameters, with the values that have no effect and are accepted."""


@dataclass
class Served:
    """Policy offered by the server as a model, with its limits and roles."""

    policy: Policy
    positions: int
    """Maximum context of its model in tokens."""
    longest: int
    """Characters of the longest token. A text longer than `positions` times that cannot fit."""
    roles: Mapping[str, tuple[Role, TableSpec, str]]
    """Roles by name, each with a table and seat."""


@dataclass
class _Reply:
    """Choice of a completion while it is sampled; `finish` is None until it ends."""

    ids: list[int] = field(default_factory=list)
    text: str = ""
    """Part of the text that cannot change any more."""
    finish: str | None = None


class Service:
    """OpenAI-compatible API over an engine: routes, validation and sampling. `key` is the API key, None for none."""

    def __init__(self, engine: Engine, served: Mapping[str, Served], key: str | None = None) -> None:
        self.engine, self.served, self.key = engine, served, key
        self.started = int(time.time())
        self._count = 0
        self._chance = np.random.SeedSequence()
        self._tokenizing = asyncio.Lock()

    def app(self, hosts: Sequence[str]) -> Starlette:
        """Return the web application. It refuses requests with a Host header that is not in `hosts`."""
        routes = [
            Route("/v1/models", self._models),
            Route("/v1/models/{name:path}", self._model),
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/{path:path}", self._refuse_route, methods=["GET", "POST", "PUT", "DELETE"]),
        ]
        trusted = Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
        return Starlette(routes=routes, middleware=[trusted], exception_handlers={Exception: _failed})

    def names(self) -> list[str]:
        """Return all model names: each policy's, followed by `POLICY:ROLE` for its roles."""
        return [name for own, held in self.served.items() for name in (own, *(f"{own}:{r}" for r in held.roles))]

    # -- routes ------------------------------------------------------------------------------------------

    async def _models(self, asked: Asked) -> Response:
        return self._answered(asked) or JSONResponse(
            {"object": "list", "data": [self._model_entry(name) for name in self.names()]}
        )

    async def _model(self, asked: Asked) -> Response:
        name = asked.path_params["name"]
        if name not in self.names():
            return self._answered(asked) or self._unknown(name).response()
        return self._answered(asked) or JSONResponse(self._model_entry(name))

    async def _refuse_route(self, asked: Asked) -> Response:
        return self._answered(asked) or Refused(f"no such route: {asked.method} {asked.url.path}", 404).response()

    async def _chat(self, asked: Asked) -> Response:
        try:
            if refusal := self._answered(asked):
                return refusal
            request = await self._read(asked)
            async with self._tokenizing:  # in a thread, so that others are answered meanwhile; one at a time
                requests, role = await asyncio.to_thread(self._requests, request)
        except Refused as refused:
            return refused.response()
        except ClientDisconnect:
            return Response(status_code=499)
        head = {"id": f"chatcmpl-{self.started}-{self._count}", "created": int(time.time()), "model": request.model}
        if request.stream:
            return StreamingResponse(
                self._streamed(head, request, requests, role, asked), media_type="text/event-stream"
            )
        replies = [_Reply() for _ in requests]
        async for _ in self._written(request, requests, replies, asked):
            pass
        choices = [
            {
                "index": i,
                "message": {"role": "assistant", "content": reply.text},
                "finish_reason": reply.finish,
                "logprobs": None,
                **_parsed(role, reply.text),
            }
            for i, reply in enumerate(replies)
        ]
        usage = _usage(requests, replies)
        return JSONResponse(head | {"object": "chat.completion", "choices": choices, "usage": usage})

    async def _streamed(
        self, head: dict[str, Any], request: ChatRequest, requests: list[Request], role: Role | None, asked: Asked
    ) -> AsyncIterator[str]:
        """Yield server-sent events: a delta for each new piece of each choice, usage if requested, and [DONE]."""
        head = head | {"object": "chat.completion.chunk"}

        def event(index: int, delta: dict[str, str], finish: str | None = None, **more: Any) -> str:
            choice = {"index": index, "delta": delta, "finish_reason": finish, "logprobs": None, **more}
            return f"data: {json.dumps(head | {'choices': [choice]})}\n\n"

        replies = [_Reply() for _ in requests]
        for index in range(len(replies)):
            yield event(index, {"role": "assistant", "content": ""})
        sent = [0] * len(replies)
        try:
            async for index in self._written(request, requests, replies, asked):
                reply = replies[index]
                if len(reply.text) > sent[index]:
                    yield event(index, {"content": reply.text[sent[index] :]})
                    sent[index] = len(reply.text)
                if reply.finish:
                    yield event(index, {}, reply.finish, **_parsed(role, reply.text))
        except Exception as error:  # noqa: BLE001 the status has been sent already
            yield f"data: {json.dumps(_error(error))}\n\n"
            return
        if (request.stream_options or {}).get("include_usage"):
            yield f"data: {json.dumps(head | {'choices': [], 'usage': _usage(requests, replies)})}\n\n"
        yield "data: [DONE]\n\n"

    # -- sampling ----------------------------------------------------------------------------------------

    async def _written(
        self, request: ChatRequest, requests: list[Request], replies: list[_Reply], asked: Asked
    ) -> AsyncIterator[int]:
        """Sample the replies piece by piece and yield the index of each updated one, until the client disconnects."""
        frame = self.served[request.model.partition(":")[0]].policy.frame
        piece = 0
        try:
            while due := [i for i, reply in enumerate(replies) if reply.finish is None]:
                if await asked.is_disconnected():
                    return
                nexts = [_next(requests[i], replies[i], piece) for i in due]
                for i, completion in zip(due, await self.engine.generate(nexts), strict=True):
                    reply = replies[i]
                    reply.ids += completion.ids
                    if completion.finish == "stop":
                        reply.finish = "stop"
                    elif len(reply.ids) >= requests[i].max_tokens:
                        reply.finish = "length"
                    _settle(reply, frame.decode(reply.ids), request.stops)
                    yield i
                piece += 1
        finally:
            for one in requests:
                self.engine.forget(one.key)

    def _requests(self, request: ChatRequest) -> tuple[list[Request], Role | None]:
        """Return the engine's requests, one per choice, and the role or None. Raises Refused for an invalid request."""
        for name, neutral in NEUTRAL.items():
            if (request.model_extra or {}).get(name) not in neutral:
                raise Refused(f"'{name}' is not supported", param=name, code="unsupported_parameter")
        own, _, part = request.model.partition(":")
        if request.model not in self.names():
            raise self._unknown(request.model)
        held = self.served[own]
        if len(request.messages) > held.positions:
            raise _too_long(f"{len(request.messages)} in number", held.positions)
        if (length := sum(len(message.text) for message in request.messages)) > held.positions * held.longest:
            raise _too_long(f"{length} characters", held.positions)
        role: Role | None = None
        images, is_shown = ImageParts(), any(message.images for message in request.messages)
        if is_shown and not (held.policy.frame.image and self.engine.capabilities.has_vision):
            raise Refused("the policy cannot see images", code="unsupported_value", param="messages")
        system, exchanges, last = split_turns(request.messages, images)
        sampling = Sampling(max_tokens=PIECE)
        examples: list[tuple[str, str]] = []
        seed = self._chance.spawn(1)[0].generate_state(2).tolist() if request.seed is None else [request.seed % 2**64]
        if part:
            role, table, seat = held.roles[part]
            sampling = role.sampling
            if system is None:
                system = role.render_system(_first_view(table, seat, seed[0] % 2**31))
                examples = [(example.see, example.say) for example in role.examples]
        frame = held.policy.frame
        ids, media = write_ids(frame, system or "", examples, exchanges, last, images.pictures)
        most = request.max_completion_tokens or request.max_tokens or (sampling.max_tokens if role else MOST_TOKENS)
        room = held.positions - len(ids)
        if room < 1:
            raise _too_long(f"{len(ids)} tokens", held.positions)
        given = request.temperature
        if given is not None and given < MIN_TEMPERATURE:
            given = 0.0  # greedy, because engines cannot compute smaller temperatures
        self._count += 1
        common: dict[str, Any] = {
            "policy": held.policy.name,
            "ids": tuple(ids),
            "media": tuple(media),
            "max_tokens": min(most, room),
            "temperature": (sampling.temperature if role else 1.0) if given is None else given,
            "top_p": request.top_p or (sampling.top_p if role else 1.0),
            "top_k": max(request.top_k if request.top_k is not None else sampling.top_k if role else 0, 0),
            "stop_ids": frame.stop_ids,
        }
        made = [Request(**common, key=f"served/{self._count}/{i}", seed=(*seed, i)) for i in range(request.n or 1)]
        return made, role

    # -- small parts -------------------------------------------------------------------------------------

    def _answered(self, asked: Asked) -> Response | None:
        """Return a 401 response for a request without the right API key, or None if it may go on."""
        given = asked.headers.get("authorization", "").encode()
        if self.key is None or hmac.compare_digest(given, f"Bearer {self.key}".encode()):
            return None
        return Refused("the API key is missing or wrong", 401, "invalid_api_key").response()

    async def _read(self, asked: Asked) -> ChatRequest:
        """Return the validated body of a chat request. Raises Refused.

        Without an API key, requests that another site's page makes a browser send are refused: they have a foreign
        Origin, or a content type that browsers send without a preflight request.
        """
        origin = asked.headers.get("origin")
        if self.key is None and origin is not None and urlsplit(origin).netloc != asked.headers.get("host"):
            raise Refused(f"a page of {origin[:80]} asks: without a key only this server's own may", 403)
        if asked.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Refused("the body is JSON: say so, with the header content-type: application/json", 415)
        sees = any(held.policy.frame.image for held in self.served.values())
        return await _body(asked, BODY_WITH_IMAGES if sees else BODY_BYTES)

    def _unknown(self, name: str) -> Refused:
        known = ", ".join(self.names())
        return Refused(f"there is no model '{name[:80]}' (there are: {known})", 404, "model_not_found", "model")

    def _model_entry(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self.started, "owned_by": "arena"}


def _failed(asked: Asked, error: Exception) -> Response:
    """Return a response with status 500 that reports an unexpected exception in the API's error format."""
    return JSONResponse(_error(error), 500)


def _error(error: Exception) -> dict[str, Any]:
    message = {"message": f"{type(error).__name__}: {error}", "type": "server_error", "param": None, "code": None}
    return {"error": message}


def _too_long(length: str, positions: int) -> Refused:
    return Refused(
        f"the messages are {length}, and the model's context is {positions} tokens",
        code="context_length_exceeded",
        param="messages",
    )


async def _body(asked: Asked, most: int) -> ChatRequest:
    body = bytearray()
    async for chunk in asked.stream():
        body += chunk
        if len(body) > most:
            raise Refused(f"the body is larger than {most >> 20} MB", 413)
    try:
        return ChatRequest.model_validate_json(bytes(body))
    except ValidationError as error:
        worst = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, worst["loc"]))
        raise Refused(f"{place or 'body'}: {worst['msg']}", param=place or None) from None


def _next(request: Request, reply: _Reply, piece: int) -> Request:
    """Return the engine's request for a reply's next piece: prompt and tokens so far, and a seed of its own."""
    return replace(
        request,
        ids=(*request.ids, *reply.ids),
        max_tokens=min(PIECE, request.max_tokens - len(reply.ids)),
        seed=(*request.seed, piece),
    )


def _settle(reply: _Reply, text: str, stops: Sequence[str]) -> None:
    """Set the reply's text to the final part of `text`: up to a stop text, which ends the reply.

    Of a reply that goes on, incomplete characters and a possible start of a stop text are left out.
    """
    found = [place for stop in stops if (place := text.find(stop)) >= 0]
    if found:
        reply.text, reply.finish = text[: min(found)], "stop"
    elif reply.finish:
        reply.text = text
    else:
        certain = len(text.rstrip("\ufffd"))
        for stop in stops:
            half = next((n for n in range(len(stop) - 1, 0, -1) if text.endswith(stop[:n])), 0)
            certain = min(certain, len(text) - half)
        reply.text = text[: max(certain, len(reply.text))]


def _parsed(role: Role | None, text: str) -> dict[str, Any]:
    """Return {"arena": action, public and private text, and ok} as the role parses the reply; {} without a role."""
    if role is None:
        return {}
    reply = role.parse(text)
    return {"arena": {"action": reply.action, "public": reply.public, "private": reply.private, "ok": reply.ok}}


def _usage(requests: Sequence[Request], replies: Sequence[_Reply]) -> dict[str, int]:
    prompt, written = len(requests[0].ids), sum(len(reply.ids) for reply in replies)
    return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}


def _first_view(table: TableSpec, seat: str, deal: int) -> View:
    """Return a seat's view at the start of a match of the table's game; `deal` is the match's seed."""
    return View.of(deal_game(Deal(table.game.name, table.game.options, deal)), seat)


def roles_of(experiment: Experiment | None, policy: str) -> dict[str, tuple[Role, TableSpec, str]]:
    """Return a policy's roles in a run by name, each as role, a table that has it, and seat. {} without a run."""
    found: dict[str, tuple[Role, TableSpec, str]] = {}
    for table in experiment.all_tables() if experiment else ():
        for seat, held in table.seats.items():
            if held.policy == policy:
                role = load_role(held.role, [experiment.roles] if experiment and experiment.roles else [])
                found.setdefault(role.role, (role, table, seat))
    return found
