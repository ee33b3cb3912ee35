"""Tasks of users: one seat reads a task and answers once. A user's function, or the seat's agent program, scores it."""

from __future__ import annotations

import functools
import inspect
import json
import math
import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from games.adapters.loading import file_of, import_member
from games.base import ACTION_LENGTH, IllegalAct, TextGame, flag
from games.contracts import View
from games.plain_files import read_plain

AGENT = "agent"
FILE_BYTES = 10**9
MAX_DRAWN = 2**31
REWARD = "reward"


class Tasks(TextGame):
    """Answer a task once. The observation is the task's text, and the answer is free text.

    Options besides TextGame's:

    - file: a file of JSON Lines, each with a text `task`, of which a match draws one; without it, the task is a random
      number
    - reward: path/to/file.py:function, which takes the row and the answer, and returns a number or a dict of named
      rewards; without it, the seat's agent program posts the reward
    """

    name = "tasks"
    metadata: ClassVar[dict[str, Any]] = {"name": "tasks_v0", "render_modes": ["ansi"]}
    seats = (AGENT,)
    whole_acts = True

    def __init__(self, *, file: str = "", reward: str = "", talk: bool = False, **settings: Any) -> None:
        super().__init__(talk=flag("talk", talk), **settings)
        if not isinstance(file, str) or not isinstance(reward, str):
            raise ValueError("file and reward are texts")
        self.rows = read_tasks(os.path.expanduser(file), _read_mtime(file)) if file else ()
        self.function = load_reward(reward) if reward else None
        self._row: Mapping[str, Any] = {}
        self._posted: Mapping[str, float] = {}

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw a task and send it to the seat."""
        self._posted = {}
        if self.rows:
            self._row = self.rows[int(rng.integers(len(self.rows)))]
        else:
            number = int(rng.integers(MAX_DRAWN))
            self._row = {"task": f"Task {number}", "number": number}
        self.tell(self._row["task"], AGENT)

    def rules(self) -> str:
        """Return the rules: answer the task, in a text of limited length."""
        return f"Answer the task. An answer is a text of up to {ACTION_LENGTH:,} characters."

    def public(self) -> dict[str, Any]:
        """Return {}: the task is a message."""
        return {}

    def take_rewards(self, seat: str, rewards: Mapping[str, float]) -> None:
        """Set the rewards to pay for the answer. Raises ValueError if a function decides them."""
        if self.function:
            raise ValueError("the game's `reward` function decides the rewards")
        self._posted = dict(rewards)

    def play(self, seat: str, act: str) -> str:
        """Score the answer and end the match. An error of the user's function makes the match fail."""
        if not act.strip():
            raise IllegalAct("the answer is empty")
        rewards = self._posted
        if self.function:
            result = self.function(dict(self._row), act)
            rewards = result if isinstance(result, Mapping) else {REWARD: result}
        for part, value in rewards.items():
            if isinstance(value, bool | int | float | np.number) and isinstance(part, str) and math.isfinite(value):
                self.pay(seat, part, float(value))
            else:
                raise ValueError(f"the reward {part!r} is {str(value)[:80]}: a reward is a finite number")
        self.end("answered", "The task is answered.")
        return act


def _repeater(game: Tasks, seed: int) -> Callable[[View], str]:
    """Return a player that answers with the task's own text."""
    return lambda view: view.messages[-1].text


Tasks.players = {"repeater": _repeater}


def load_reward(name: str) -> Callable[[dict[str, Any], str], Any]:
    """Import the function at `path/to/file.py:function` and return it. Raises ValueError if there is none."""
    path = file_of(name)
    if path is None:
        raise ValueError(f"reward: write path/to/file.py:function, not {name[:80]!r}")
    function: Callable[[dict[str, Any], str], Any] = import_member(
        path, name.rpartition(":")[2], inspect.isfunction, "function", "functions"
    )
    return function


@functools.lru_cache(maxsize=8)
def read_tasks(path: str, mtime: int) -> tuple[Mapping[str, Any], ...]:
    """Return the rows of a JSON Lines file, cached by path and `mtime`.

    Raises ValueError, with file and line, for a row that is not an object with a text `task`.
    """
    try:
        lines = read_plain(path, FILE_BYTES).decode().split("\n")  # not splitlines: JSON texts may hold U+2028
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"file: {path}: {getattr(error, 'strerror', None) or error}") from None
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"file: {path}:{number}: no JSON: {str(error)[:100]}") from None
        if not isinstance(row, dict) or not isinstance(row.get("task"), str) or not row["task"].strip():
            raise ValueError(f'file: {path}:{number}: expected an object with a text "task"')
        rows.append(row)
    if not rows:
        raise ValueError(f"file: {path} has no tasks")
    return tuple(rows)


def _read_mtime(path: str) -> int:
    try:
        return os.stat(os.path.expanduser(path)).st_mtime_ns
    except OSError:
        return 0
