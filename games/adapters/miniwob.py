"""MiniWoB++'s web pages as single-agent games (Liu et al. 2018), shown as a list of elements or as a picture."""

from __future__ import annotations

import base64
import importlib
import random
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from games.adapters import miniwob_child
from games.adapters.child import Child
from games.adapters.foreign import SingleAgentGame, import_library, sanitise, shorten
from games.adapters.pool import Pool
from games.base import ACTION_LENGTH, IllegalAct, choice, to_one_line, whole_number
from games.contracts import Image, View
from games.names import nearest
from games.png import Album

REWARD = "reward"
MAX_BROWSERS = 4
"""Maximum number of simultaneous browsers of this process, about 0.9 GB each."""
SECONDS = 100.0
"""Timeout of a request, below that of a turn. A browser starts in 3 to 10 s."""
ACT = re.compile(r"(?:click -?\d{1,9}|type -?\d{1,9} (.{1,200})|press \S{1,20})")
TEXT_INPUTS = ("input_text", "input_password", "input_number", "input_date", "input_time", "textarea", "select")
"""Tags of elements that take text, so that acts cannot be listed. In a `select` the text chooses an option."""
QUOTED = re.compile(r'"([^"]+)"|\b([A-Z][\w@.-]+)')
"""Quoted text or capitalised word in a task."""


def find_task(name: str) -> str:
    """Return `name` if MiniWoB++ has a task of that name, such as `click-button`.

    Raises ValueError, in one line, for an unknown task, or if MiniWoB++ or a browser is missing.
    """
    import_library("miniwob", f"miniwob:{name}", "MiniWoB++", "miniwob")
    if shutil.which("chromedriver") is None:
        raise ValueError(f"miniwob:{to_one_line(name, 80)} needs a browser: apt-get install chromium chromium-driver")
    registry = importlib.import_module("gymnasium").registry
    known = [key.removeprefix("miniwob/").removesuffix("-v1") for key in registry if key.startswith("miniwob/")]
    if name not in known:
        hint = nearest(name, known) or f" (one of {len(known)} is {known[0]})"
        raise ValueError(f"MiniWoB++ has no task '{to_one_line(name, 80)}'{hint}")
    return name


def _start_process() -> Child:
    """Start a child process. Its browser starts with the first request."""
    return Child(sys.executable, miniwob_child, "the process of the browser")


POOL = Pool(_start_process, MAX_BROWSERS)


class Page:
    """Page of a task, with the acts performed so far, which a browser of the pool replays when necessary."""

    def __init__(self, task: str, seed: int, picture: bool, acts: tuple[str, ...] = ()) -> None:
        self.task, self.seed, self.picture, self.acts = task, seed, picture, acts

    def load(self) -> dict[str, Any]:
        """Load the page, repeat its acts, and return the observation."""
        with POOL.borrow(self) as (browser, _):
            return browser.ask(self._load_request(), SECONDS)

    def step(self, act: str) -> dict[str, Any]:
        """Perform an act and return the observation. Its `refused` is the reason if the act is impossible, else ""."""
        with POOL.borrow(self) as (browser, is_new):
            if is_new:
                browser.ask(self._load_request(), SECONDS)
            answer = browser.ask({"act": act, "picture": self.picture}, SECONDS)
        if not answer["refused"]:
            self.acts += (act,)
        return answer

    def close(self) -> None:
        """Return the browser to the pool, if the page has one."""
        POOL.release(id(self))

    def _load_request(self) -> Mapping[str, Any]:
        return {"load": self.task, "seed": self.seed, "acts": list(self.acts), "picture": self.picture}

    def __del__(self) -> None:
        self.close()


class MiniWob(SingleAgentGame):
    """Single-agent game on a web page of the MiniWoB++ task `env`, such as click-button.

    Acts: click REF, type REF TEXT, press KEY, where REF is an element's number in the observation. The page's clock is
    off. Options besides TextGame's: view "text", "picture" (with the elements' numbers) or "both"; max_turns (default
    10). Reward part "reward": the page's own reward without its discount for time; failures pay 0.
    """

    name = "miniwob"
    library = "MiniWoB++"
    blocks = True
    whole_acts = True
    metadata: ClassVar[dict[str, Any]] = {"name": "miniwob_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {REWARD: "the page's own reward, without its discount for time, at least 0"}

    def __init__(
        self, env: str, *, view: Literal["text", "picture", "both"] = "text", max_turns: int = 10, **options: Any
    ) -> None:
        self.view = choice("view", view, "text", "picture", "both")
        self.max_turns = whole_number("max_turns", max_turns, least=1, most=1000)
        self.task = find_task(env)
        super().__init__(env, **options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Load a page with a seed from `rng`, and show it."""
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
        """Return the `task` in words and `turns_left`, the number of remaining acts."""
        return {"task": self._task_text, "turns_left": self.max_turns - self.turns}

    def legal(self, seat: str) -> list[str] | None:
        """Return a click on each element, or None if an element of the page takes text."""
        if any(element["tag"] in TEXT_INPUTS for element in self.elements):
            return None
        return [f"click {element['ref']}" for element in self.elements]

    def picture(self, hash: str) -> bytes:
        """Return the picture with this hash. Raises KeyError if the match has shown none."""
        return self.album.pictures[hash]

    def play(self, seat: str, act: str) -> str:
        """Perform an act on the page and return it in one line. Raises IllegalAct for a malformed or impossible act."""
        word = to_one_line(act, ACTION_LENGTH)
        if not ACT.fullmatch(word):
            raise IllegalAct("write click REF, type REF TEXT or press KEY")
        observation = self.env.step(word)
        if observation["refused"]:
            raise IllegalAct(observation["refused"])
        self.reward = max(float(observation["reward"]), 0.0)
        if observation["done"] or self.turns + 1 >= self.max_turns:
            if self.reward:
                self.pay(seat, REWARD, self.reward)
            self.end("over" if observation["done"] else "turns", "The match is over.")
            self.env.close()
        else:
            self._show(observation)
        return word

    def figures(self) -> dict[str, float | bool | str]:
        """Return the page's `reward`, `success` (whether it is positive), and `faults`."""
        return {**super().figures(), "success": self.reward > 0, REWARD: self.reward}

    def copy_env(self) -> Any:
        """Return a page with the same acts, which are repeated when it is first used."""
        return None if self.env is None else Page(self.env.task, self.env.seed, self.env.picture, self.env.acts)

    def close(self) -> None:
        """Return the page's browser to the pool."""
        if self.env is not None:
            self.env.close()

    def _show(self, observation: Mapping[str, Any]) -> None:
        """Send the agent the page in the form that the option `view` sets."""
        self._task_text, self.reward = sanitise(str(observation["task"])), 0.0
        parents = {element["parent"] for element in observation["elements"]}
        self.elements = [
            element
            for element in observation["elements"]
            if element["text"] or element["value"] or element["ref"] not in parents
        ]
        text = "\n".join(_describe_element(element) for element in self.elements)
        images: tuple[Image, ...] = ()
        if "pixels" in observation:
            pixels = np.frombuffer(base64.b64decode(observation["pixels"]), np.uint8).reshape(observation["shape"])
            images = (self.album.add(pixels),)
        if self.view == "picture":
            text = " ".join(f"{element['ref']} {element['tag']}" for element in self.elements)
        self.tell(shorten(text, ACTION_LENGTH) or "The page is empty.", images=images)


def _describe_element(element: Mapping[str, Any]) -> str:
    """Return one line about an element: its number, kind, text and value."""
    kind = "text" if element["tag"] == "t" else element["tag"].replace("_", " ")
    text, value = to_one_line(sanitise(element["text"])), to_one_line(sanitise(element["value"]))
    focused = " (focused)" if element["focused"] and element["tag"] != "body" else ""
    return f"{element['ref']} {kind}{f' {text}' if text else ''}{f' = {value}' if value else ''}{focused}"


def _random(game: MiniWob, seed: int) -> Callable[[View], str]:
    """Return a player that picks random elements, and clicks them or types a quoted or capitalised word of the task."""
    rng = random.Random(seed)

    def act(view: View) -> str:
        if not game.elements:
            return "press Enter"
        element = rng.choice(game.elements)
        words = ["".join(found) for found in QUOTED.findall(game.public()["task"])] or ["1"]
        takes_text = element["tag"] in TEXT_INPUTS
        return f"type {element['ref']} {rng.choice(words)}" if takes_text else f"click {element['ref']}"

    return act


MiniWob.players = {"noop": lambda game, seed: lambda view: "press Tab", "random": _random}
