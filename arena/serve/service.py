"""OpenAI-compatible API for policies: chat completions from an engine, streamed or not.

The model `POLICY` replies to the messages in the policy's chat frame, as in training. The model `POLICY:ROLE` plays a
role: without a system message in the request, the role's system text and examples come first, as at a seat of a new
match. The role's sampling settings are the defaults. Each choice has the reply as parsed by the role, under `arena`.

Replies are sampled a few tokens at a time, so that long ones do not block others, and sampling stops if the client
disconnects. Unsupported parameters are refused with an error in the API's format.
"""

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from agents.chat_messages import ChatMessage, RequestError
from agents.chat_writing import find_image_spans, write_chat
from agents.connections import read_body
from agents.engines.base import Engine, Request
from agents.harness.answers import format_error
from agents.image_parts import ImageParts
from agents.policy import Policy
from agents.role import MIN_TEMPERATURE, Role, load_role
from arena.config.experiment import Experiment
from arena.play.making import deal_game
from arena.play.settings import TableSpec
from arena.serve.chat_request import NEUTRAL, ChatRequest, parse_messages, parse_request
from games.contracts import Deal, View

MAX_BODY = 4 << 20
"""Maximum bytes of a request."""
MAX_BODY_WITH_IMAGES = 32 << 20
"""Maximum bytes of a request if a served policy has vision."""
CHUNK_TOKENS = 16
"""Tokens sampled between checks for other requests and for disconnected clients."""
DEFAULT_MAX_TOKENS = 1024
"""Default maximum tokens of a reply, if neither request nor role sets it."""


@dataclass
class ServedModel:
    """Policy that the server offers as a model, with its limits and roles."""

    policy: Policy
    positions: int
    """Maximum context in tokens."""
    longest_token_length: int
    """Characters of the longest token. Texts of more than `positions` times that many characters are refused early."""
    roles: Mapping[str, tuple[Role, TableSpec, str]]
    """Roles by name, each with a table and a seat at which the policy plays it."""


@dataclass
class _Reply:
    """Choice of a completion that is being sampled."""

    ids: list[int] = field(default_factory=list)
    text: str = ""
    """Text so far that later tokens cannot change."""
    finish: str | None = None
    """Finish reason, `stop` or `length`; None until the reply ends."""


class Service:
    """OpenAI-compatible API over an engine. Clients must send the API key `key`, unless it is None."""

    def __init__(self, engine: Engine, served: Mapping[str, ServedModel], key: str | None = None) -> None:
        self.engine, self.models, self.key = engine, served, key
        self.started = int(time.time())
        self._count = 0
        self._seeds = np.random.SeedSequence()
        self._tokenizing = asyncio.Lock()

    def app(self, hosts: Sequence[str]) -> Starlette:
        """Return the ASGI application. It refuses requests whose Host header is not in `hosts`."""
        routes = [
            Route("/v1/models", self._list_models),
            Route("/v1/models/{name:path}", self._describe_model),
            Route("/v1/chat/completions", self._complete_chat, methods=["POST"]),
            Route("/{path:path}", self._refuse_route, methods=["GET", "POST", "PUT", "DELETE"]),
        ]
        trusted = Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
        return Starlette(routes=routes, middleware=[trusted], exception_handlers={Exception: _respond_to_failure})

    def names(self) -> list[str]:
        """Return all model names: `POLICY` for each policy, followed by `POLICY:ROLE` for each of its roles."""
        return [
            name
            for policy, model in self.models.items()
            for name in (policy, *(f"{policy}:{role}" for role in model.roles))
        ]

    # -- routes ------------------------------------------------------------------------------------------

    async def _list_models(self, http: HttpRequest) -> Response:
        return self._check_key(http) or JSONResponse(
            {"object": "list", "data": [self._model_entry(name) for name in self.names()]}
        )

    async def _describe_model(self, http: HttpRequest) -> Response:
        name = http.path_params["name"]
        if name not in self.names():
            return self._check_key(http) or _respond_to_refusal(self._make_unknown_model_error(name))
        return self._check_key(http) or JSONResponse(self._model_entry(name))

    async def _refuse_route(self, http: HttpRequest) -> Response:
        error = RequestError(f"no such route: {http.method} {http.url.path}", 404)
        return self._check_key(http) or _respond_to_refusal(error)

    async def _complete_chat(self, http: HttpRequest) -> Response:
        try:
            if refusal := self._check_key(http):
                return refusal
            request = await self._read_request(http)
            async with self._tokenizing:  # one at a time, in a thread, so that other requests are answered meanwhile
                requests, role = await asyncio.to_thread(self._make_requests, request)
        except RequestError as error:
            return _respond_to_refusal(error)
        except ClientDisconnect:
            return Response(status_code=499)
        head = {"id": f"chatcmpl-{self.started}-{self._count}", "created": int(time.time()), "model": request.model}
        if request.stream:
            return StreamingResponse(self._stream(head, request, requests, role, http), media_type="text/event-stream")
        replies = [_Reply() for _ in requests]
        async for _ in self._sample(request, requests, replies, http):
            pass
        choices = [
            {
                "index": i,
                "message": {"role": "assistant", "content": reply.text},
                "finish_reason": reply.finish,
                "logprobs": None,
                **_parse_reply(role, reply.text),
            }
            for i, reply in enumerate(replies)
        ]
        usage = _count_usage(requests, replies)
        return JSONResponse(head | {"object": "chat.completion", "choices": choices, "usage": usage})

    async def _stream(
        self, head: dict[str, Any], request: ChatRequest, requests: list[Request], role: Role | None, http: HttpRequest
    ) -> AsyncIterator[str]:
        """Yield server-sent events: a delta per sampled chunk of each choice, the usage if requested, and [DONE]."""
        head = head | {"object": "chat.completion.chunk"}

        def event(index: int, delta: dict[str, str], finish: str | None = None, **more: Any) -> str:
            choice = {"index": index, "delta": delta, "finish_reason": finish, "logprobs": None, **more}
            return f"data: {json.dumps(head | {'choices': [choice]})}\n\n"

        replies = [_Reply() for _ in requests]
        for index in range(len(replies)):
            yield event(index, {"role": "assistant", "content": ""})
        sent_lengths = [0] * len(replies)
        try:
            async for index in self._sample(request, requests, replies, http):
                reply = replies[index]
                if len(reply.text) > sent_lengths[index]:
                    yield event(index, {"content": reply.text[sent_lengths[index] :]})
                    sent_lengths[index] = len(reply.text)
                if reply.finish:
                    yield event(index, {}, reply.finish, **_parse_reply(role, reply.text))
        except Exception as error:  # noqa: BLE001 the status has been sent already
            yield f"data: {json.dumps(_error_to_json(error))}\n\n"
            return
        if (request.stream_options or {}).get("include_usage"):
            yield f"data: {json.dumps(head | {'choices': [], 'usage': _count_usage(requests, replies)})}\n\n"
        yield "data: [DONE]\n\n"

    # -- sampling ----------------------------------------------------------------------------------------

    async def _sample(
        self, request: ChatRequest, requests: list[Request], replies: list[_Reply], http: HttpRequest
    ) -> AsyncIterator[int]:
        """Sample the replies chunk by chunk, yielding each updated reply's index. Stops if the client disconnects."""
        frame = self.models[request.model.partition(":")[0]].policy.frame
        chunk = 0
        try:
            while due := [i for i, reply in enumerate(replies) if reply.finish is None]:
                if await http.is_disconnected():
                    return
                next_requests = [_make_next_request(requests[i], replies[i], chunk) for i in due]
                for i, completion in zip(due, await self.engine.generate(next_requests), strict=True):
                    reply = replies[i]
                    reply.ids += completion.ids
                    if completion.finish == "stop":
                        reply.finish = "stop"
                    elif len(reply.ids) >= requests[i].max_tokens:
                        reply.finish = "length"
                    _update_text(reply, frame.decode(reply.ids), request.stops)
                    yield i
                chunk += 1
        finally:
            for engine_request in requests:
                self.engine.forget(engine_request.key)

    def _make_requests(self, request: ChatRequest) -> tuple[list[Request], Role | None]:
        """Return the engine's requests, one per choice, and the role or None. Raises RequestError."""
        model, role_name = self._check_request(request), request.model.partition(":")[2]
        frame = model.policy.frame
        images = ImageParts() if frame.image and self.engine.capabilities.has_vision else None
        messages = parse_messages(request.messages, images)
        length = sum(len(message.text) for message in messages)
        if length > model.positions * model.longest_token_length:
            raise _make_length_error(f"{length} characters", model.positions)
        role: Role | None = None
        examples: list[tuple[str, str]] = []
        seed = self._seeds.spawn(1)[0].generate_state(2).tolist() if request.seed is None else [request.seed % 2**64]
        if role_name:
            role, table, seat = model.roles[role_name]
            if messages[0].role != "system":
                system = role.render_system(_first_view(table, seat, seed[0] % 2**31))
                messages.insert(0, ChatMessage("system", system))
                examples = [(example.see, example.say) for example in role.examples]
        ids = [token for piece, _ in write_chat(frame, messages, examples=examples) for token in piece]
        media = find_image_spans(frame, ids, messages, images.pictures.__getitem__) if images else []
        remaining = model.positions - len(ids)
        if remaining < 1:
            raise _make_length_error(f"{len(ids)} tokens", model.positions)
        default = role.sampling.max_tokens if role else DEFAULT_MAX_TOKENS
        max_tokens = request.max_completion_tokens or request.max_tokens or default
        self._count += 1
        common: dict[str, Any] = {
            "policy": model.policy.name,
            "ids": tuple(ids),
            "media": tuple(media),
            "max_tokens": min(max_tokens, remaining),
            "stop_ids": frame.stop_ids,
            **_sampling_settings(request, role),
        }
        engine_requests = [
            Request(**common, key=f"served/{self._count}/{i}", seed=(*seed, i)) for i in range(request.n or 1)
        ]
        return engine_requests, role

    def _check_request(self, request: ChatRequest) -> ServedModel:
        """Return the requested model. Raises RequestError for unsupported parameters, or too many messages."""
        for name, neutral in NEUTRAL.items():
            if (request.model_extra or {}).get(name) not in neutral:
                raise RequestError(f"'{name}' is not supported", param=name, code="unsupported_parameter")
        if request.model not in self.names():
            raise self._make_unknown_model_error(request.model)
        model = self.models[request.model.partition(":")[0]]
        if len(request.messages) > model.positions:
            raise _make_length_error(f"{len(request.messages)} in number", model.positions)
        return model

    # -- authentication -------------------------------------------------------------------------------------

    def _check_key(self, http: HttpRequest) -> Response | None:
        """Return a 401 response if the request lacks the right API key, else None."""
        authorization = http.headers.get("authorization", "").encode()
        if self.key is None or hmac.compare_digest(authorization, f"Bearer {self.key}".encode()):
            return None
        return _respond_to_refusal(RequestError("the API key is missing or wrong", 401, "invalid_api_key"))

    async def _read_request(self, http: HttpRequest) -> ChatRequest:
        """Return the validated body of a chat request. Raises RequestError.

        Without an API key, cross-site requests by browsers are refused: those with a foreign Origin header, or with a
        content type for which browsers send no preflight request.
        """
        origin = http.headers.get("origin")
        if self.key is None and origin is not None and urlsplit(origin).netloc != http.headers.get("host"):
            raise RequestError(f"cross-site request from {origin[:80]}: refused without an API key", 403)
        if http.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise RequestError("the header content-type must be application/json", 415)
        has_vision = any(model.policy.frame.image for model in self.models.values())
        return parse_request(await read_body(http, MAX_BODY_WITH_IMAGES if has_vision else MAX_BODY))

    def _make_unknown_model_error(self, name: str) -> RequestError:
        known = ", ".join(self.names())
        return RequestError(f"there is no model '{name[:80]}' (there are: {known})", 404, "model_not_found", "model")

    def _model_entry(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self.started, "owned_by": "arena"}


def _respond_to_failure(http: HttpRequest, error: Exception) -> Response:
    """Return an unexpected exception as a response with status 500 in the API's error format."""
    return JSONResponse(_error_to_json(error), 500)


def _error_to_json(error: Exception) -> dict[str, Any]:
    return format_error(RequestError(f"{type(error).__name__}: {error}", 500))


def _respond_to_refusal(error: RequestError) -> Response:
    return JSONResponse(format_error(error), error.status)


def _make_length_error(length: str, positions: int) -> RequestError:
    return RequestError(
        f"the messages are {length}, and the model's context is {positions} tokens",
        code="context_length_exceeded",
        param="messages",
    )


def _make_next_request(request: Request, reply: _Reply, chunk: int) -> Request:
    """Return the engine's request for a reply's next chunk: it continues the tokens so far, with a separate seed."""
    return replace(
        request,
        ids=(*request.ids, *reply.ids),
        max_tokens=min(CHUNK_TOKENS, request.max_tokens - len(reply.ids)),
        seed=(*request.seed, chunk),
    )


def _update_text(reply: _Reply, text: str, stops: Sequence[str]) -> None:
    """Update the reply's text from `text`, the decoded tokens so far. A stop text ends the reply before it.

    If the reply continues, incomplete characters and a possible start of a stop text at the end are left out.
    """
    positions = [position for stop in stops if (position := text.find(stop)) >= 0]
    if positions:
        reply.text, reply.finish = text[: min(positions)], "stop"
    elif reply.finish:
        reply.text = text
    else:
        safe_length = len(text.rstrip("\ufffd"))
        for stop in stops:
            overlap = next((n for n in range(len(stop) - 1, 0, -1) if text.endswith(stop[:n])), 0)
            safe_length = min(safe_length, len(text) - overlap)
        reply.text = text[: max(safe_length, len(reply.text))]


def _parse_reply(role: Role | None, text: str) -> dict[str, Any]:
    """Return {"arena": the reply as parsed by the role}, or {} without a role."""
    if role is None:
        return {}
    reply = role.parse(text)
    return {"arena": {"action": reply.action, "public": reply.public, "private": reply.private, "ok": reply.ok}}


def _count_usage(requests: Sequence[Request], replies: Sequence[_Reply]) -> dict[str, int]:
    prompt, completion = len(requests[0].ids), sum(len(reply.ids) for reply in replies)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _sampling_settings(request: ChatRequest, role: Role | None) -> dict[str, Any]:
    """Return the request's temperature, top_p and top_k. The role's fill missing ones, else those of plain sampling."""
    temperature = request.temperature
    if temperature is None:
        temperature = role.sampling.temperature if role else 1.0
    elif temperature < MIN_TEMPERATURE:
        temperature = 0.0  # greedy, because engines cannot compute smaller temperatures
    top_k = request.top_k if request.top_k is not None else role.sampling.top_k if role else 0
    return {
        "temperature": temperature,
        "top_p": request.top_p or (role.sampling.top_p if role else 1.0),
        "top_k": max(top_k, 0),
    }


def _first_view(table: TableSpec, seat: str, deal: int) -> View:
    """Return a seat's view at the start of a match of the table's game, dealt with the seed `deal`."""
    return View.of(deal_game(Deal(table.game.name, table.game.options, deal)), seat)


def find_roles(experiment: Experiment | None, policy: str) -> dict[str, tuple[Role, TableSpec, str]]:
    """Return a policy's roles in a run by name, each with a table and seat at which it plays them; {} without a run."""
    roles: dict[str, tuple[Role, TableSpec, str]] = {}
    for table in experiment.all_tables() if experiment else ():
        for seat, seat_spec in table.seats.items():
            if seat_spec.policy == policy:
                role = load_role(seat_spec.role, [experiment.roles] if experiment and experiment.roles else [])
                roles.setdefault(role.role, (role, table, seat))
    return roles
