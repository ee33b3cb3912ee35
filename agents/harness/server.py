"""OpenAI-compatible server on this machine for a run's agent programs, with a secret key for each match."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Literal

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from agents.chat_messages import RequestError
from agents.connections import make_server, read_body
from agents.harness import answers
from agents.harness.player import HarnessPlayer
from agents.harness.request import parse
from agents.harness.session import Session
from agents.tool_values import NAME
from games.untrusted_json import DECODER

BODY_BYTES, BODY_WITH_IMAGES = 4 << 20, 32 << 20
"""Maximum bytes of a request, and of a request to a policy with vision."""
CONNECTIONS = 4096
FILES = 1 << 16
"""Number of files that the process may open, if its hard limit permits. A match needs about six."""
MAX_NOTES = 20
"""Maximum number of lines about agent programs that are shown to the user."""
MAX_REWARDS = 16
CLOSE_SECONDS = 5.0
"""Timeout of waiting for killed programs when the server closes."""
HOST = "127.0.0.1"

Handler = Callable[[Session, HttpRequest], Awaitable[Response]]


class HarnessServer:
    """OpenAI-compatible server for the agent programs of all matches, which listens between `open` and `close`."""

    def __init__(self, note: Callable[[str], None] = lambda line: None) -> None:
        """Create the server without opening it. `note` shows a line to the user."""
        self.url = ""
        """Base URL of the API."""
        self._show, self._shown_notes = note, set[str]()
        self._sessions: dict[str, Session] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._serving: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Listen on a free port of this machine. Does nothing if the server is open. Call it within the event loop."""
        if self._serving:
            return
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
        if soft != resource.RLIM_INFINITY and soft < limit:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        listening = socket.create_server((HOST, 0))
        self.url = f"http://{HOST}:{listening.getsockname()[1]}/v1"
        self._server = make_server(self._create_app(), CONNECTIONS, log_level="critical", lifespan="off")
        self._server.capture_signals = contextlib.nullcontext  # type: ignore[assignment, method-assign]  # signals are the run's
        self._serving = asyncio.create_task(self._server.serve(sockets=[listening]))

    async def close(self) -> None:
        """Wait for killed programs to end, at most `CLOSE_SECONDS`, and stop listening."""
        if self._ending:
            await asyncio.wait(self._ending, timeout=CLOSE_SECONDS)
        if self._serving:
            self._server.should_exit = self._server.force_exit = True
            await self._serving
            self._serving = None

    def admit(self, session: Session) -> str:
        """Register a match's session, and return the secret key for its program's requests."""
        key = f"arena-{secrets.token_urlsafe(32)}"
        self._sessions[key] = session
        return key

    def dismiss(self, player: HarnessPlayer) -> None:
        """End the session and program of a player whose match is over."""
        self._sessions = {key: session for key, session in self._sessions.items() if session is not player.session}
        if ending := player.close():
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    def note(self, line: str) -> None:
        """Show a line to the user once. Shows at most `MAX_NOTES` lines."""
        if line not in self._shown_notes and len(self._shown_notes) < MAX_NOTES:
            self._shown_notes.add(line)
            self._show(line)

    # -- routes ----------------------------------------------------------------------------------------------------

    def _create_app(self) -> Starlette:
        routes = [
            Route("/v1/chat/completions", self._route(self._chat), methods=["POST"]),
            Route("/v1/responses", self._route(self._responses), methods=["POST"]),
            Route("/v1/models", self._route(self._models)),
            Route("/v1/arena/reward", self._route(self._reward), methods=["POST"]),
            Route("/{path:path}", self._route(self._refuse_route), methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
        ]
        return Starlette(routes=routes)

    def _route(self, handler: Handler) -> Callable[[HttpRequest], Awaitable[Response]]:
        """Wrap a handler: find the session by the request's key, and answer errors in the API's format."""

        async def handle(request: HttpRequest) -> Response:
            try:
                return await handler(self._find_session(request), request)
            except RequestError as refused:
                return JSONResponse(answers.format_error(refused), refused.status)
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception as error:  # noqa: BLE001 the player raises it in the match
                failed = RequestError(f"the match failed: {type(error).__name__}", 500, "server_error")
                return JSONResponse(answers.format_error(failed), failed.status)

        return handle

    def _find_session(self, request: HttpRequest) -> Session:
        kind, _, key = request.headers.get("authorization", "").partition(" ")
        session = self._sessions.get(key.strip()) if kind.lower() == "bearer" else None
        if session is None:
            raise RequestError("the API key is missing or belongs to no current match", 401, "invalid_api_key")
        return session

    async def _chat(self, session: Session, request: HttpRequest) -> Response:
        return await self._answer(session, request, "chat")

    async def _responses(self, session: Session, request: HttpRequest) -> Response:
        return await self._answer(session, request, "responses")

    async def _answer(self, session: Session, request: HttpRequest, api: Literal["chat", "responses"]) -> Response:
        body = await read_body(request, BODY_WITH_IMAGES if session.sees else BODY_BYTES)
        parsed = await asyncio.to_thread(parse, api, body, session.sees)
        answer = await session.answer(parsed)
        if parsed.streams:
            return StreamingResponse(iter([*answers.format_events(parsed, answer)]), media_type="text/event-stream")
        return JSONResponse(answers.format_body(parsed, answer))

    async def _models(self, session: Session, request: HttpRequest) -> Response:
        model = {"id": session.policy, "object": "model", "created": 0, "owned_by": "arena"}
        return JSONResponse({"object": "list", "data": [model]})

    async def _reward(self, session: Session, request: HttpRequest) -> Response:
        rewards = parse_rewards(await read_body(request, BODY_BYTES))
        session.reward(rewards)
        return JSONResponse({"rewards": rewards})

    async def _refuse_route(self, session: Session, request: HttpRequest) -> Response:
        raise RequestError(f"no such route: {request.method} {request.url.path[:200]}", 404)


def parse_rewards(body: bytes) -> Mapping[str, float]:
    """Parse `{"reward": 0.5}` or `{"rewards": {"name": 0.5}}`. Raises RequestError for anything else."""
    data = None
    with suppress(ValueError, RecursionError):
        data = DECODER.decode(body.decode())
    fields = data if isinstance(data, dict) else {}
    rewards = fields.get("rewards") if "rewards" in fields else {"reward": fields.get("reward")}
    if not isinstance(rewards, dict) or not 0 < len(rewards) <= MAX_REWARDS:
        raise RequestError('expected {"reward": NUMBER} or {"rewards": {"NAME": NUMBER}}', param="rewards")
    for name, value in rewards.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not abs(value) <= 1e9 or not NAME.fullmatch(name):  # also refuses NaN
            raise RequestError("a reward has a name and a finite number of at most 1e9", param="rewards")
    return {name: float(value) for name, value in rewards.items()}
