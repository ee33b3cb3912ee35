"""Worlds of ScienceWorld, and the pool of Java machines in which they live.

There are at most `MOST` machines, of about 0.4 GB each. A world that needs one when all are taken gets that of the
world that was unused the longest, which is rebuilt from its acts at its next step. So no match waits for
another to end.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import os
import shutil
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from games.adapters import scienceworld_child
from games.adapters.child import Child, ChildError
from games.base import one_line

MOST = 8
"""Java machines at once in this process."""
SECONDS = 180.0
"""Limit of a request, of which loading with a solution takes up to 16 s."""
JAVA = "-Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+UnlockExperimentalVMOptions -XX:hashCode=2"
"""Options of Java: bounded memory, and hash codes that keep objects in the same order at every load."""
ALL = "all"
UNKNOWN = "No known action matches that input."


def find_tasks(name: str) -> tuple[str, ...]:
    """Return the tasks of this name, such as `boil`, or all 30 for `all`.

    Raises ValueError, in one line, if there is none, or if ScienceWorld or Java is not installed.
    """
    try:
        tasks = tuple(importlib.import_module("scienceworld.constants").ID2TASK.values())
    except ImportError as error:
        why = f"scienceworld:{one_line(name, 80)} needs ScienceWorld ({one_line(str(error))})"
        raise ValueError(f"{why}: pip install 'arena-selfplay[scienceworld]'") from None
    if shutil.which("java") is None:
        raise ValueError(f"scienceworld:{one_line(name, 80)} needs Java: apt-get install default-jre-headless")
    if name == ALL:
        return tasks
    if name not in tasks:
        near = difflib.get_close_matches(name, tasks, n=1)
        hint = f" — did you mean '{near[0]}'?" if near else f" (all, {', '.join(tasks[:3])}, …)"
        raise ValueError(f"ScienceWorld has no task '{one_line(name, 80)}'{hint}")
    return (name,)


class World:
    """A variation of a task and the acts that were done in it. Copies share nothing but the pool of machines."""

    def __init__(self, task: str, variation: int, simplify: str, listed: bool, acts: tuple[str, ...] = ()) -> None:
        self.task, self.variation, self.simplify, self.listed, self.acts = task, variation, simplify, listed, acts

    def load(self, gold: bool = False) -> dict[str, Any]:
        """Load the world with all its acts done, and return what is seen, the task, the splits and the gold path."""
        with POOL.lent(self) as (machine, _):
            return machine.ask(self._beginning(gold), SECONDS)

    def step(self, act: str) -> dict[str, Any]:
        """Do an act and return what is seen."""
        with POOL.lent(self) as (machine, is_new):
            if is_new:
                machine.ask(self._beginning(), SECONDS)
            answer = machine.ask({"act": act, "listed": self.listed}, SECONDS)
        if self.understood(answer):
            self.acts += (act,)
        return answer

    @staticmethod
    def understood(answer: Mapping[str, Any]) -> bool:
        """Return False if the act before this answer was not understood, and has changed nothing."""
        return not str(answer["text"]).startswith(UNKNOWN)

    def twin(self) -> World:
        """Return a copy, which takes a machine when it is used."""
        return World(self.task, self.variation, self.simplify, self.listed, self.acts)

    def close(self) -> None:
        """Give the machine back."""
        POOL.release(id(self))

    def _beginning(self, gold: bool = False) -> Mapping[str, Any]:
        asked = {"load": self.task, "variation": self.variation, "simplify": self.simplify, "gold": gold}
        return {**asked, "acts": list(self.acts), "listed": self.listed}

    def __del__(self) -> None:
        self.close()


class _Lent:
    """Context in which a world has a machine that nobody takes from it."""

    def __init__(self, pool: Pool, world: World) -> None:
        self.pool, self.world = pool, world

    def __enter__(self) -> tuple[Child, bool]:
        self.machine, is_new = self.pool.take(id(self.world))
        return self.machine, is_new

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # its Java machine may be gone, or half-way through an act
            self.machine.close()
        self.pool.rest(id(self.world))


class Pool:
    """Machines by the worlds that use them, longest unused first, and idle ones."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: dict[int, Child] = {}
        self._idle: list[Child] = []
        self._busy: set[int] = set()
        self._process = os.getpid()

    def lent(self, world: World) -> _Lent:
        """Return a context that yields the world's machine, and whether it has yet to be loaded."""
        return _Lent(self, world)

    def take(self, key: int) -> tuple[Child, bool]:
        """Return a machine for a world, and whether another world was in it before. Raises ChildError."""
        with self._changed:
            if self._process != os.getpid():  # a fork: those machines are the parent's
                self._held, self._idle, self._busy, self._process = {}, [], set(), os.getpid()
            held = self._held.pop(key, None)
            if held is not None and not held.is_alive:
                raise ChildError("the process of ScienceWorld has ended")
            while held is None:
                self._idle = [machine for machine in self._idle if machine.is_alive]
                rested = next((other for other in self._held if other not in self._busy), None)
                if self._idle:
                    machine = self._idle.pop()
                elif len(self._held) < MOST:
                    machine = _start_process()
                elif rested is not None:
                    machine = self._held.pop(rested)
                else:
                    self._changed.wait()
                    continue
                self._held[key] = machine
                self._busy.add(key)
                return machine, True
            self._held[key] = held
            self._busy.add(key)
            return held, False

    def rest(self, key: int) -> None:
        """Mark a world as unused; its machine may be taken."""
        with self._changed:
            self._busy.discard(key)
            self._changed.notify()

    def release(self, key: int) -> None:
        """Make a world's machine idle, if it has one."""
        if key not in self._held:
            return
        with self._changed:
            machine = self._held.pop(key, None)
            self._busy.discard(key)
            if machine is not None and machine.is_alive:
                self._idle.append(machine)
            self._changed.notify()

    @property
    def machines(self) -> list[Child]:
        """All living machines."""
        return [machine for machine in (*self._held.values(), *self._idle) if machine.is_alive]


POOL = Pool()


def _start_process() -> Child:
    """Return a new process; its Java machine starts with the first request."""
    command = [sys.executable, "-P", str(Path(scienceworld_child.__file__))]
    return Child(command, "the process of ScienceWorld", {"JAVA_TOOL_OPTIONS": JAVA})


@functools.lru_cache(maxsize=64)
def splits(task: str) -> dict[str, list[int]]:
    """Return the variations of a task by split: train, dev and test."""
    world = World(task, 0, "", False)
    found: dict[str, list[int]] = world.load()["splits"]
    return found


@functools.lru_cache(maxsize=512)
def gold_path(task: str, variation: int, simplify: str) -> tuple[str, ...]:
    """Return acts that reach the full score, as ScienceWorld plans them, without those that it does not understand."""
    played = World(task, variation, simplify, False)
    for act in World(task, variation, simplify, False).load(gold=True)["gold"]:
        played.step(act)
    return played.acts
