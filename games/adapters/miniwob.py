"""MiniWoB++'s web pages as games of one agent (Liu et al. 2018), told by their elements or shown."""

from __future__ import annotations

import base64
import difflib
import importlib
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from games.adapters import miniwob_child
from games.adapters.child import Child
from games.adapters.foreign import SHARED, ForeignGame, OwnRandom, sanitise, shorten
from games.adapters.pool import Pool
from games.base import ACTION_LENGTH, IllegalAct, choice, to_one_line, whole_number
from games.contracts import Image, View
from games.png import Album

REWARD = "reward"
MAX_BROWSERS = 4
"""Browsers at once in this process, of about 0.9 GB each."""
SECONDS = 100.0
"""Limit of a request, below that of a turn. A browser starts in 3 to 10 s."""
ACT = re.compile(r"(?:click -?\d{1,9}|type -?\d{1,9} (.{1,200})|press \S{1,20})")
TYPED = ("input_text", "input_password", "input_number", "input_date", "input_time", "textarea", "select")
"""Elements that take texts, so that acts cannot be listed; of a `select` the text chooses an option."""
QUOTED = re.compile(r'"([^"]+)"|\b([A-Z][\w@.-]+)')


def find_task(name: str) -> str:
    """Return the task of this name, such as `click-button`.

    Raises ValueError, in one line with the nearest name, if there is none, or if MiniWoB++ or a browser is missing.
    """
    try:
        with OwnRandom(np.random.default_rng(0)).activate():
            importlib.import_module("gymnasium").register_envs(importlib.import_module("miniwob"))
    except ImportError as error:
        why = f"miniwob:{to_one_line(name, 80)} needs MiniWoB++ ({to_one_line(str(error))})"
        raise ValueError(f"{why}: pip install 'arena-selfplay[miniwob]'") from None
    if shutil.which("chromedriver") is None:
        raise ValueError(f"miniwob:{to_one_line(name, 80)} needs a browser: apt-get install chromium chromium-driver")
    registry = importlib.import_module("gymnasium").registry
    known = [key.removeprefix("miniwob/").removesuffix("-v1") for key in registry if key.startswith("miniwob/")]
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" — did you mean '{near[0]}'?" if near else f" (one of {len(known)} is {known[0]})"
        raise ValueError(f"MiniWoB++ has no task '{to_one_line(name, 80)}'{hint}")
    return name


def _start_process() -> Child:
    """Return a new process; its browser starts with the first request, and its files are removed after its end."""
    folder = tempfile.TemporaryDirectory(prefix="arena-miniwob-", ignore_cleanup_errors=True)
    environment = {"TMPDIR": folder.name, "HOME": folder.name}
    return Child(sys.executable, miniwob_child, "the process of the browser", environment, folder)


POOL = Pool(_start_process, MAX_BROWSERS)


class Page:
    """A task's page and the acts done on it. Copies share only the pool of browsers."""

    def __init__(self, task: str, seed: int, picture: bool, acts: tuple[str, ...] = ()) -> None:
        self.task, self.seed, self.picture, self.acts = task, seed, picture, acts

    def load(self) -> dict[str, Any]:
        """Load the page, repeat its acts, and return the observation."""
        with POOL.borrow(self) as (browser, _):
            return browser.ask(self._load_request(), SECONDS)

    def step(self, act: str) -> dict[str, Any]:
        """Do an act and return the observation, with `refused` if it could not be done."""
        with POOL.borrow(self) as (browser, is_new):
            if is_new:
                browser.ask(self._load_request(), SECONDS)
            answer = browser.ask({"act": act, "picture": self.picture}, SECONDS)
        if not answer["refused"]:
            self.acts += (act,)
        return answer

    def close(self) -> None:
        """Give the browser back."""
        POOL.release(id(self))

    def _load_request(self) -> Mapping[str, Any]:
        return {"load": self.task, "seed": self.seed, "acts": list(self.acts), "picture": self.picture}

    def __del__(self) -> None:
        self.close()


class MiniWob(ForeignGame):
    """Game of one agent on a page of MiniWoB++, of the task `env`, such as click-button.

    Acts: click REF, type REF TEXT, press KEY, with the references of the elements that the agent is told. The page's
    clock is off. Options besides TextGame's: view "text", "picture" (with the references) or "both"; max_turns (default
    10). Reward part "reward": the page's own, without its discount for time; failures pay 0.
    """

    name = "miniwob"
    library = "MiniWoB++"
    seats = ("agent",)
    blocks = True
    whole_acts = True
    rivals = False
    stakes = 0.0
    metadata: ClassVar[dict[str, Any]] = {"name": "miniwob_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {REWARD: "the page's own reward, without its discount for time, at least 0"}

    def __init__(
        self, env: str, *, view: Literal["text", "picture", "both"] = "text", max_turns: int = 10, **options: Any
    ) -> None:
        self.view = choice("view", view, "text", "picture", "both")
        self.max_turns = whole_number("max_turns", max_turns, least=1, most=1000)
        if unknown := options.keys() - {*SHARED}:
            raise ValueError(f"miniwob:{env} has no option '{min(unknown)}'")
        self.task = find_task(env)
        super().__init__(env, self.seats, **options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Load the page that `rng` draws, and show it."""
        self.close()
        self.album = Album()
        self.env = Page(self.task, int(rng.integers(2**31)), self.view != "text")
        self._show(self.env.load())

    def rules(self) -> str:
        """Return how to act, as text."""
        return (
            "You use a web page. Each turn write one act: click REF, type REF TEXT, or press KEY. REF is the number "
            "before an element; typing into a list chooses the option of that text."
        )

    def public(self) -> dict[str, Any]:
        """Return the `task` in words and `turns_left`."""
        return {"task": self._wanted, "turns_left": self.max_turns - self.turns}

    def private(self, seat: str) -> dict[str, Any]:
        """Return {}: observations are messages."""
        return {}

    def legal(self, seat: str) -> list[str] | None:
        """Return a click on each element, or None if the page has elements that take texts."""
        if any(element["tag"] in TYPED for element in self.elements):
            return None
        return [f"click {element['ref']}" for element in self.elements]

    def hides_nothing(self) -> bool:
        """Return False: pages do more than they show, so search players may not look ahead."""
        return False

    def picture(self, hash: str) -> bytes:
        """Return a picture of this match. Raises KeyError for another hash."""
        return self.album.pictures[hash]

    def play(self, seat: str, act: str) -> str:
        """Do an act on the page. Raises IllegalAct for one that cannot be read or done."""
        word = to_one_line(act, ACTION_LENGTH)
        if not ACT.fullmatch(word):
            raise IllegalAct("write click REF, type REF TEXT or press KEY")
        seen = self.env.step(word)
        if seen["refused"]:
            raise IllegalAct(seen["refused"])
        self.reward = max(float(seen["reward"]), 0.0)
        if seen["done"] or self.turns + 1 >= self.max_turns:
            if self.reward:
                self.pay(seat, REWARD, self.reward)
            self.end("over" if seen["done"] else "turns", "The match is over.")
            self.env.close()
        else:
            self._show(seen)
        return word

    def figures(self) -> dict[str, float | bool | str]:
        """Return `success`, whether the page paid, its `reward`, and `faults`."""
        return {**super().figures(), "success": self.reward > 0, REWARD: self.reward}

    def copy_env(self) -> Any:
        """Return a page with the same acts, which is built when it is used."""
        return None if self.env is None else Page(self.env.task, self.env.seed, self.env.picture, self.env.acts)

    def close(self) -> None:
        """Give the page's browser back to the pool."""
        if self.env is not None:
            self.env.close()

    def _show(self, seen: Mapping[str, Any]) -> None:
        """Send the agent the page, by the option `view`."""
        self._wanted, self.reward = sanitise(str(seen["task"])), 0.0
        parents = {each["parent"] for each in seen["elements"]}
        self.elements = [
            each for each in seen["elements"] if each["text"] or each["value"] or each["ref"] not in parents
        ]
        told = "\n".join(_describe_element(each) for each in self.elements)
        images: tuple[Image, ...] = ()
        if "pixels" in seen:
            pixels = np.frombuffer(base64.b64decode(seen["pixels"]), np.uint8).reshape(seen["shape"])
            images = (self.album.add(pixels),)
        if self.view == "picture":
            told = " ".join(f"{each['ref']} {each['tag']}" for each in self.elements)
        self.tell(shorten(told, ACTION_LENGTH) or "The page is empty.", images=images)


def _describe_element(element: Mapping[str, Any]) -> str:
    """Return an element as a line: its reference, kind, text and value."""
    kind = "text" if element["tag"] == "t" else element["tag"].replace("_", " ")
    text, value = to_one_line(sanitise(element["text"])), to_one_line(sanitise(element["value"]))
    focused = " (focused)" if element["focused"] and element["tag"] != "body" else ""
    return f"{element['ref']} {kind}{f' {text}' if text else ''}{f' = {value}' if value else ''}{focused}"


def _random(game: MiniWob, seed: int) -> Callable[[View], str]:
    """Return a player that clicks on random elements, and types words that the task quotes or capitalises."""
    chance = random.Random(seed)

    def act(view: View) -> str:
        if not game.elements:
            return "press Enter"
        element = chance.choice(game.elements)
        words = ["".join(found) for found in QUOTED.findall(game.public()["task"])] or ["1"]
        typed = element["tag"] in TYPED
        return f"type {element['ref']} {chance.choice(words)}" if typed else f"click {element['ref']}"

    return act


MiniWob.players = {"noop": lambda game, seed: lambda view: "press Tab", "random": _random}
