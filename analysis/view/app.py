"""Web application of the viewer: static files and a JSON API, behind the checks of `guard`."""

from __future__ import annotations

import asyncio
import traceback
from asyncio import CancelledError
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from analysis.view import listing, notes, runs, search
from analysis.view.cache import FigureCache
from analysis.view.curves import Curves
from analysis.view.guard import Guard, Json, error_response
from analysis.view.index import Index
from analysis.view.jobs import Jobs
from analysis.view.json_values import MAX_CHARACTERS, MAX_FULL_CHARACTERS
from analysis.view.league import build_league_graph, list_alarms
from analysis.view.match import describe_match, find_row, list_family
from analysis.view.requests import (
    ActPost,
    ControlPost,
    EndPost,
    ForkPost,
    NewMatchPost,
    NotePost,
    NoteRemoval,
    PlayOnPost,
    SqlPost,
    parse,
)
from analysis.view.runs import Library
from analysis.view.seats import RELOAD_SECONDS, Seats
from analysis.view.services import AdvantageCache, Services
from analysis.view.summary import summarise
from analysis.view.tokens import read_tokens
from arena.errors import ConfigError, StoreError, is_debugging
from arena.store.blobs import find_media_type
from arena.store.reader import parse_iteration

Handler = Callable[..., Any]
MEDIA_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
"""Media types of static files by suffix; other files are not served."""
SWEEP_SECONDS = 5.0
"""Seconds between checks for abandoned matches."""


class Viewer:
    """JSON API of the viewer, with one method per path.

    Methods return values that can be converted to JSON, or an image's bytes. A method for GET gets the URL's parameters
    as `query`, one for POST the body's JSON object as `posted`; other arguments come from the path. Unknown runs,
    matches or files raise StoreError, invalid requests ConfigError.
    """

    def __init__(self, library: Library, services: Services) -> None:
        self.library, self.services, self.advantages = library, services, AdvantageCache(services)
        self.jobs, self.seats = Jobs(services.command), Seats(services.command)
        self._curves: dict[Index, Curves] = {}
        self._caches: dict[Index, FigureCache] = {}

    def runs(self, query: Mapping[str, str]) -> Any:
        """Return a row for each run: name, game, progress, whether it is running, and its most relevant figure."""
        return [runs.summarise_run(name, index) for name, index in self.library.runs().items()]

    def changes(self, query: Mapping[str, str]) -> Any:
        """Return a fingerprint of each run by name, which changes whenever the run's files do. The page polls it."""
        return {name: index.fingerprint() for name, index in self.library.runs().items()}

    def run(self, query: Mapping[str, str], run: str) -> Any:
        """Return a run's row of the list, with its settings. Raises StoreError for an unknown run."""
        return runs.describe_run(run, self.library.run(run))

    def flight(self, query: Mapping[str, str], run: str) -> Any:
        """Return the run's matches in progress: `live`, `total`, and the first ones in `matches`."""
        return runs.list_in_flight(self.library.run(run))

    def estimators(self, query: Mapping[str, str]) -> Any:
        """Return the name and one-line description of each advantage estimator; [] if the service is not available."""
        return list(self.services.estimators()) if self.services.estimators else []

    def curves(self, query: Mapping[str, str], run: str) -> Any:
        """Return the run's charts, and as `unread` the number of iterations whose intervals are not computed yet."""
        index = self.library.run(run)
        return self._curves.setdefault(index, Curves(index, self.services.theory)).charts()

    def alarms(self, query: Mapping[str, str], run: str) -> Any:
        """Return the run's alarms: name, subject, and the figure before and after. Cached until the files change."""
        return self._cache(run).get(list_alarms)

    def summary(self, query: Mapping[str, str], run: str) -> Any:
        """Return the run's summary: figures of the first and last iteration. Cached until the files change."""
        index = self.library.run(run)
        index.refresh(0.1)
        theory = (
            {game: self.services.theory(game) for game in index.list_names()["game"]} if self.services.theory else {}
        )
        return self._cache(run).get(summarise, theory)

    def league(self, query: Mapping[str, str], run: str) -> Any:
        """Return the run's league as a graph: nodes, edges, payoff matrix, cycles. Cached until the files change."""
        return self._cache(run).get(build_league_graph)

    def matches(self, query: Mapping[str, str], run: str) -> Any:
        """Return a page of the run's list of matches, filtered and sorted by `query` (`listing.list_matches`).

        If `query` has a `text`, the list has only matches that contain it, and `found` has the search hits.
        """
        index, ids, found = self.library.run(run), None, None
        if query.get("text", "").strip():
            found = search.search_texts(index, query["text"], query.get("by", "text"), query.get("of", "said"))
            ids = found["matches"]
        answer = listing.list_matches(index, query, ids)
        return answer | ({"found": found} if found else {})

    def match(self, query: Mapping[str, str], run: str, match: str) -> Any:
        """Return a match, related matches (`family`) and notes. `whole` in `query` raises the length limit of texts."""
        index = self.library.run(run)
        unread_count = index.refresh(0.0)  # the page then asks again
        description = describe_match(
            index,
            match,
            self.services.deal_facts,
            MAX_FULL_CHARACTERS if query.get("whole") else MAX_CHARACTERS,
            find_marks=self.services.marks,
        )
        match_notes = [note for note in notes.read_notes(index) if note["match"] == match]
        return description | {"family": list_family(index, match), "notes": match_notes, "unread": unread_count}

    def near(self, query: Mapping[str, str], run: str, match: str) -> Any:
        """Return the ids `before` and `after` the match in the list that `query` filters and sorts, if they exist."""
        return listing.find_neighbours(self.library.run(run), query, match)

    def tokens(self, query: Mapping[str, str], run: str, match: str) -> Any:
        """Return a match's tokens by seat, with their logged figures and, if the tokenizer is known, their text."""
        return read_tokens(self.library.run(run), match, self.services.decode)

    def credit(self, query: Mapping[str, str], run: str, match: str) -> Any:
        """Return a match's advantages under the estimator in `query`, or {"waiting": True} until they are computed.

        Raises StoreError for an unknown match, and ConfigError for an unknown estimator.
        """
        index, number = self.library.run(run), parse_iteration(match)
        if number is None or number not in index.iterations():
            raise StoreError("this run does not have this match")
        return self.advantages.advantages(index, match, number, query.get("estimator", ""))

    def notes(self, query: Mapping[str, str], run: str) -> Any:
        """Return the run's notes that contain `query`'s `text`, ignoring case; all notes without a `text`."""
        text = query.get("text", "").casefold()
        return [note for note in notes.read_notes(self.library.run(run)) if text in note["text"].casefold()]

    def note(self, fields: Mapping[str, Any], run: str) -> Any:
        """Add the posted note and return it, or remove the note with the id `remove` and return {}.

        Raises ConfigError for a turn that the match does not have.
        """
        index = self.library.run(run)
        if "remove" in fields:
            notes.remove(index, parse(NoteRemoval, fields).remove)
            return {}
        note = parse(NotePost, fields)
        row = find_row(index, note.match)
        if note.turn is not None and note.turn >= len(row["turns"]):
            raise ConfigError(f"{note.match} has turns 0 to {len(row['turns']) - 1}")
        return notes.add(index, note.match, note.turn, note.text)

    def sql(self, fields: Mapping[str, Any]) -> Any:
        """Run the posted SELECT over the posted runs: return column names, rows, and the total number of rows."""
        request = parse(SqlPost, fields)
        return runs.answer_sql([self.library.run(name) for name in request.runs], request.query)

    def fork(self, fields: Mapping[str, Any], run: str, match: str) -> Any:
        """Start `arena fork` for the match in a child process and return its `job` id."""
        index = self.library.run(run)
        return self.jobs.fork(index, find_row(index, match), parse(ForkPost, fields))

    def control(self, fields: Mapping[str, Any], run: str) -> Any:
        """Stop the run and return its process id, or resume it and return the `job` id."""
        action = self.jobs.stop if parse(ControlPost, fields).do == "stop" else self.jobs.resume
        return action(self.library.run(run))

    def play(self, fields: Mapping[str, Any]) -> Any:
        """Start a match with a human player, in a new game or at a seat of a logged match, and return its `id`."""
        if "match" not in fields:
            return {"id": self.seats.start_new(parse(NewMatchPost, fields), self.library.runs())}
        request = parse(PlayOnPost, fields)
        index = self.library.run(request.run)
        return {"id": self.seats.take_over(index, find_row(index, request.match), request)}

    def list_played(self, query: Mapping[str, str]) -> Any:
        """Return the id and title of each running match with a human player."""
        return self.seats.list_running()

    def end(self, fields: Mapping[str, Any], id: str) -> Any:
        """End a human player's match: at once, or `soon`, unless its page is reloaded within `RELOAD_SECONDS`."""
        seat = self.seats.seat(id)
        seat.expire(RELOAD_SECONDS) if parse(EndPost, fields).soon else seat.end()
        return {}

    def seat(self, query: Mapping[str, str], id: str) -> Any:
        """Return a human player's match: output `lines` starting at `from`, whether it is `open`, and any `error`."""
        begin = query.get("from", "0")
        return self.seats.seat(id).read_since(int(begin) if begin.isdecimal() and len(begin) < 9 else 0)

    def act(self, fields: Mapping[str, Any], id: str) -> Any:
        """Send a human player's action and speech to the match. Raises ConfigError if the match is over."""
        request = parse(ActPost, fields)
        self.seats.seat(id).answer(request.act, request.talk)
        return {}

    def job(self, query: Mapping[str, str], id: str) -> Any:
        """Return the state of a child process: `running`, `answer` or `error`. Raises ConfigError for an unknown id."""
        return self.jobs.state(id)

    def image(self, query: Mapping[str, str], run: str, hash: str) -> Any:
        """Return the bytes of the logged image with this SHA-256. Raises StoreError if missing or damaged."""
        return self.library.run(run).reader.log.blobs.get(hash)

    def seat_image(self, query: Mapping[str, str], id: str, hash: str) -> Any:
        """Return the bytes of an image that a human player was shown. Raises StoreError for any other hash."""
        if (data := self.seats.seat(id).images.get(hash)) is None:
            raise StoreError("there is no such image")
        return data

    def _cache(self, run: str) -> FigureCache:
        index = self.library.run(run)
        return self._caches.setdefault(index, FigureCache(index))


def make_application(view: Viewer, token: str, port: int) -> Guard:
    """Build the viewer's ASGI application: its routes and static files, behind the `Guard` with this token.

    Its shutdown ends the page's child processes and matches with human players.
    """
    run_path, match_path = "/api/runs/{run}", "/api/runs/{run}/matches/{match}"
    get_handlers: dict[str, Handler] = {
        "/api/runs": view.runs, "/api/changes": view.changes, "/api/estimators": view.estimators,
        "/api/runs/{run}": view.run,
        **{f"{run_path}/{handler.__name__}": handler for handler in (
            view.curves, view.alarms, view.summary, view.league, view.matches, view.flight,
        )},
        match_path: view.match,
        **{f"{match_path}/{handler.__name__}": handler for handler in (view.near, view.tokens, view.credit)},
        "/api/runs/{run}/notes": view.notes, "/api/jobs/{id}": view.job, "/api/play/{id}": view.seat,
        "/api/play": view.list_played,
    }  # fmt: skip
    post_handlers: dict[str, Handler] = {
        "/api/runs/{run}/notes": view.note, "/api/sql": view.sql, f"{match_path}/fork": view.fork,
        "/api/runs/{run}/control": view.control, "/api/play": view.play, "/api/play/{id}": view.act,
        "/api/play/{id}/end": view.end,
    }  # fmt: skip
    routes = [
        *(Route(path, _handle_get(handler), methods=["GET"]) for path, handler in get_handlers.items()),
        *(Route(path, _handle_post(handler), methods=["POST"]) for path, handler in post_handlers.items()),
        Route("/api/runs/{run}/images/{hash}", _handle_image(view.image), methods=["GET"]),
        Route("/api/play/{id}/images/{hash}", _handle_image(view.seat_image), methods=["GET"]),
        *(Route(path, _handle_file(data, kind), methods=["GET"]) for path, (data, kind) in _load_static().items()),
    ]

    @asynccontextmanager
    async def alive(app: Starlette) -> AsyncIterator[None]:
        sweeping = asyncio.create_task(_sweep(view.seats))
        yield
        sweeping.cancel()
        view.jobs.close()
        view.seats.close()
        view.advantages.close()

    return Guard(Starlette(routes=routes, lifespan=alive), token, port)


async def _sweep(seats: Seats) -> None:
    """Every `SWEEP_SECONDS` seconds until cancelled, end matches with human players whose pages are closed."""
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        await run_in_threadpool(seats.sweep)


def _handle_get(handler: Handler) -> Handler:
    async def answer(request: Request) -> Response:
        return await _respond(handler, dict(request.query_params), request.path_params)

    return answer


def _handle_post(handler: Handler) -> Handler:
    async def answer(request: Request) -> Response:
        try:
            body = await request.json()
        except (ValueError, RecursionError):
            body = None
        except ClientDisconnect:
            return error_response("the request body is incomplete", 408)
        if not isinstance(body, dict):
            return error_response("the request body must be a JSON object")
        return await _respond(handler, body, request.path_params)

    return answer


def _handle_image(handler: Handler) -> Handler:
    async def answer(request: Request) -> Response:
        try:
            data = await run_in_threadpool(handler, {}, **request.path_params)
        except (StoreError, ConfigError, OSError):
            return error_response("there is no such image", 404)
        if (media := find_media_type(data)) is None:
            return error_response("this image is not a PNG, JPEG or WebP", 415)
        return Response(data, media_type=media)

    return answer


async def _respond(handler: Handler, arguments: Mapping[str, Any], parts: Mapping[str, str]) -> Response:
    try:
        return Json(await run_in_threadpool(handler, arguments, **parts))
    except StoreError as error:
        return error_response(str(error), 404)
    except ConfigError as error:
        return error_response(str(error), 400)
    except CancelledError:  # the server shuts down
        return error_response("the server is shutting down", 503)
    except Exception as error:  # noqa: BLE001 an edited log may fail in any way; the page shows the error
        if is_debugging():
            traceback.print_exc()
        return error_response(f"the request failed: {type(error).__name__}: {error}", 500)


def _handle_file(data: bytes, kind: str) -> Handler:
    async def answer(request: Request) -> Response:
        return Response(data, media_type=kind)

    return answer


def _load_static() -> dict[str, tuple[bytes, str]]:
    """Load the static files, so that no request reaches the disk. Returns content and media type by URL path."""
    contents: dict[str, tuple[bytes, str]] = {}

    def walk(folder: Traversable, path: str) -> None:
        for entry in folder.iterdir():
            if entry.is_dir():
                walk(entry, f"{path}{entry.name}/")
            elif kind := MEDIA_TYPES.get(entry.name.rpartition(".")[2]):
                contents[f"{path}{entry.name}"] = (entry.read_bytes(), kind)

    walk(files("analysis.view") / "static", "/")
    contents["/"] = contents["/index.html"]
    return contents
