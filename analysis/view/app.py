"""The page's server: its files, and what it asks for as JSON. Everything is checked by `guard` before."""

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

from analysis.page.strategies import strategies
from analysis.page.summary import summary
from analysis.view import listing, notes, runs, search
from analysis.view.answers import Json, complaint
from analysis.view.credit import Judges
from analysis.view.curves import Curves
from analysis.view.given import Given
from analysis.view.guard import Guard
from analysis.view.index import Index
from analysis.view.jobs import Jobs
from analysis.view.library import Library
from analysis.view.match import family, row_of
from analysis.view.match import match as one_match
from analysis.view.plain import LONGEST, WHOLE
from analysis.view.posted import (
    ActPost,
    ControlPost,
    EndPost,
    ForkPost,
    NewMatchPost,
    NotePost,
    NoteRemoval,
    PlayOnPost,
    SqlPost,
    read,
)
from analysis.view.seats import LEFT, Seats
from analysis.view.tokens import tokens
from analysis.view.whole import Whole, league, rung
from arena.errors import ConfigError, StoreError, debugging
from arena.store.reader import iteration_of

Ask = Callable[..., Any]
KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
"""Kinds of the page's own files, by their ending; others are not served."""
SWEPT = 5.0
"""Seconds between two looks for matches that nobody plays any more."""


class Viewer:
    """The answers of the page's server, each a method: from a request's parts to what JSON can hold."""

    def __init__(self, library: Library, given: Given) -> None:
        self.library, self.given, self.judges = library, given, Judges(given)
        self.jobs, self.seats = Jobs(given.arena), Seats(given.arena)
        self._curves: dict[Index, Curves] = {}
        self._wholes: dict[Index, Whole] = {}

    def runs(self, query: Mapping[str, str]) -> Any:
        """All runs, a line each."""
        return [runs.line(name, index) for name, index in self.library.runs().items()]

    def changes(self, query: Mapping[str, str]) -> Any:
        """Give each run's fingerprint, which changes whenever its files do."""
        return {name: index.fingerprint() for name, index in self.library.runs().items()}

    def run(self, query: Mapping[str, str], run: str) -> Any:
        """Describe a run: its head and its settings."""
        return runs.about(run, self.library.run(run))

    def flight(self, query: Mapping[str, str], run: str) -> Any:
        """Its matches that are being played."""
        return runs.in_flight(self.library.run(run))

    def estimators(self, query: Mapping[str, str]) -> Any:
        """All estimators that can be chosen."""
        return list(self.given.estimators()) if self.given.estimators else []

    def curves(self, query: Mapping[str, str], run: str) -> Any:
        """Its curves."""
        index = self.library.run(run)
        return self._curves.setdefault(index, Curves(index, self.given.theory)).charts()

    def alarms(self, query: Mapping[str, str], run: str) -> Any:
        """Its alarms."""
        return self._whole(run).figures(rung)

    def summary(self, query: Mapping[str, str], run: str) -> Any:
        """Outcome of a run: its figures at first and at last."""
        index = self.library.run(run)
        index.refresh(0.1)
        stated = {game: self.given.theory(game) for game in index.names()["game"]} if self.given.theory else {}
        return self._whole(run).figures(summary, stated)

    def strategies(self, query: Mapping[str, str], run: str) -> Any:
        """Its matches by what was said in them."""
        return self._whole(run).figures(strategies)

    def league(self, query: Mapping[str, str], run: str) -> Any:
        """Its league as a graph."""
        return self._whole(run).figures(league)

    def matches(self, query: Mapping[str, str], run: str) -> Any:
        """A page of its matches."""
        index, ids, found = self.library.run(run), None, None
        if query.get("text", "").strip():
            found = search.searched(index, query["text"], query.get("by", "text"), query.get("of", "said"))
            ids = found["matches"]
        answer = listing.listed(index, query, ids)
        return answer | ({"found": found} if found else {})

    def match(self, query: Mapping[str, str], run: str, match: str) -> Any:
        """A match."""
        index = self.library.run(run)
        unread = index.refresh(0.0)  # of which the page asks again, as it does for the list that it is in
        told = one_match(index, match, self.given.dealt, WHOLE if query.get("whole") else LONGEST)
        own = [note for note in notes.notes(index) if note["match"] == match]
        return told | {"family": family(index, match), "notes": own, "unread": unread}

    def near(self, query: Mapping[str, str], run: str, match: str) -> Any:
        """The matches before and after it in a list."""
        return listing.neighbours(self.library.run(run), query, match)

    def tokens(self, query: Mapping[str, str], run: str, match: str) -> Any:
        """A match's tokens."""
        return tokens(self.library.run(run), match, self.given.pieces)

    def credit(self, query: Mapping[str, str], run: str, match: str) -> Any:
        """A match's advantages under another estimator."""
        index, number = self.library.run(run), iteration_of(match)
        if number is None or number not in index.iterations():
            raise StoreError("this run has no such match")
        return self.judges.advantages(index, match, number, query.get("estimator", ""))

    def notes(self, query: Mapping[str, str], run: str) -> Any:
        """A run's notes, those with a text in them."""
        wanted = query.get("text", "").casefold()
        return [note for note in notes.notes(self.library.run(run)) if wanted in note["text"].casefold()]

    def note(self, posted: Mapping[str, Any], run: str) -> Any:
        """Keep a note, or take one back."""
        index = self.library.run(run)
        if "remove" in posted:
            notes.remove(index, read(NoteRemoval, posted).remove)
            return {}
        note = read(NotePost, posted)
        row = row_of(index, note.match)
        if note.turn is not None and note.turn >= len(row["turns"]):
            raise ConfigError(f"{note.match} has turns 0 to {len(row['turns']) - 1}")
        return notes.add(index, note.match, note.turn, note.text)

    def sql(self, posted: Mapping[str, Any]) -> Any:
        """Answer a SELECT over some runs."""
        asked = read(SqlPost, posted)
        return runs.asked([self.library.run(name) for name in asked.runs], asked.query)

    def fork(self, posted: Mapping[str, Any], run: str, match: str) -> Any:
        """Begin forks of a match."""
        index = self.library.run(run)
        return self.jobs.fork(index, row_of(index, match), read(ForkPost, posted))

    def control(self, posted: Mapping[str, Any], run: str) -> Any:
        """Stop a run, or resume it."""
        act = self.jobs.stop if read(ControlPost, posted).do == "stop" else self.jobs.resume
        return act(self.library.run(run))

    def play(self, posted: Mapping[str, Any]) -> Any:
        """Begin a match in which a person sits, or take a seat of a logged one."""
        if "match" not in posted:
            return {"id": self.seats.new(read(NewMatchPost, posted), self.library.runs())}
        asked = read(PlayOnPost, posted)
        index = self.library.run(asked.run)
        return {"id": self.seats.from_match(index, row_of(index, asked.match), asked)}

    def played(self, query: Mapping[str, str]) -> Any:
        """The matches that people play."""
        return self.seats.running()

    def end(self, posted: Mapping[str, Any], id: str) -> Any:
        """End a person's match, or let it end soon: its page is left, and may be about to come back."""
        seat = self.seats.seat(id)
        seat.expire(LEFT) if read(EndPost, posted).soon else seat.end()
        return {}

    def seat(self, query: Mapping[str, str], id: str) -> Any:
        """Lines of a person's match from a number on."""
        begin = query.get("from", "0")
        return self.seats.seat(id).since(int(begin) if begin.isdecimal() and len(begin) < 9 else 0)

    def act(self, posted: Mapping[str, Any], id: str) -> Any:
        """A person's act."""
        asked = read(ActPost, posted)
        self.seats.seat(id).answer(asked.act, asked.talk)
        return {}

    def job(self, query: Mapping[str, str], id: str) -> Any:
        """State of a child that was begun."""
        return self.jobs.state(id)

    def image(self, query: Mapping[str, str], run: str, hash: str) -> Any:
        """The bytes of an image that a seat was shown."""
        return self.library.run(run).reader.log.blobs.get(hash)

    def _whole(self, run: str) -> Whole:
        index = self.library.run(run)
        return self._wholes.setdefault(index, Whole(index))


def application(view: Viewer, token: str, port: int) -> Guard:
    """The ASGI application, guarded."""
    run, one = "/api/runs/{run}", "/api/runs/{run}/matches/{match}"
    asked: dict[str, Ask] = {
        "/api/runs": view.runs, "/api/changes": view.changes, "/api/estimators": view.estimators,
        "/api/runs/{run}": view.run,
        **{f"{run}/{ask.__name__}": ask for ask in (
            view.curves, view.alarms, view.summary, view.strategies, view.league, view.matches, view.flight,
        )},
        one: view.match, **{f"{one}/{ask.__name__}": ask for ask in (view.near, view.tokens, view.credit)},
        "/api/runs/{run}/notes": view.notes, "/api/jobs/{id}": view.job, "/api/play/{id}": view.seat,
        "/api/play": view.played,
    }  # fmt: skip
    posted: dict[str, Ask] = {
        "/api/runs/{run}/notes": view.note, "/api/sql": view.sql, f"{one}/fork": view.fork,
        "/api/runs/{run}/control": view.control, "/api/play": view.play, "/api/play/{id}": view.act,
        "/api/play/{id}/end": view.end,
    }  # fmt: skip
    routes = [
        *(Route(path, _reading(ask), methods=["GET"]) for path, ask in asked.items()),
        *(Route(path, _writing(ask), methods=["POST"]) for path, ask in posted.items()),
        Route("/api/runs/{run}/images/{hash}", _picture(view.image), methods=["GET"]),
        *(Route(path, _file(data, kind), methods=["GET"]) for path, (data, kind) in _static().items()),
    ]

    @asynccontextmanager
    async def alive(app: Starlette) -> AsyncIterator[None]:
        sweeping = asyncio.create_task(_sweep(view.seats))
        yield
        sweeping.cancel()
        view.jobs.close()
        view.seats.close()
        view.judges.close()

    return Guard(Starlette(routes=routes, lifespan=alive), token, port)


async def _sweep(seats: Seats) -> None:
    """End abandoned matches, for as long as the server lives."""
    while True:
        await asyncio.sleep(SWEPT)
        await run_in_threadpool(seats.sweep)


def _reading(ask: Ask) -> Ask:
    async def answer(request: Request) -> Response:
        return await _answered(ask, dict(request.query_params), request.path_params)

    return answer


def _writing(ask: Ask) -> Ask:
    async def answer(request: Request) -> Response:
        try:
            body = await request.json()
        except (ValueError, RecursionError):
            body = None
        except ClientDisconnect:
            return complaint("the body did not come", 408)
        if not isinstance(body, dict):
            return complaint("a JSON object is expected")
        return await _answered(ask, body, request.path_params)

    return answer


def _picture(ask: Ask) -> Ask:
    async def answer(request: Request) -> Response:
        try:
            data = await run_in_threadpool(ask, {}, **request.path_params)
        except (StoreError, OSError):
            return complaint("there is no such image", 404)
        return Response(data, media_type="application/octet-stream")  # the page says what it is

    return answer


async def _answered(ask: Ask, given: Mapping[str, Any], parts: Mapping[str, str]) -> Response:
    try:
        return Json(await run_in_threadpool(ask, given, **parts))
    except StoreError as error:
        return complaint(str(error), 404)
    except ConfigError as error:
        return complaint(str(error), 400)
    except CancelledError:  # the server ends
        return complaint("the server ends", 503)
    except Exception as error:  # noqa: BLE001 a log that was edited may fail in any way: the page shows how
        if debugging():
            traceback.print_exc()
        return complaint(f"this cannot be answered: {type(error).__name__}: {error}", 500)


def _file(data: bytes, kind: str) -> Ask:
    async def answer(request: Request) -> Response:
        return Response(data, media_type=kind)

    return answer


def _static() -> dict[str, tuple[bytes, str]]:
    """The page's files by path, all in memory: no path of a request reaches the disk."""
    found: dict[str, tuple[bytes, str]] = {}

    def walk(folder: Traversable, path: str) -> None:
        for each in folder.iterdir():
            if each.is_dir():
                walk(each, f"{path}{each.name}/")
            elif kind := KINDS.get(each.name.rpartition(".")[2]):
                found[f"{path}{each.name}"] = (each.read_bytes(), kind)

    walk(files("analysis.view") / "static", "/")
    found["/"] = found["/index.html"]
    return found
