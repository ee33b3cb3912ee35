"""Worlds of ScienceWorld in a pool of at most eight child processes, each with a Java machine of about 0.4 GB."""

from __future__ import annotations

import functools
import shutil
import sys
from collections.abc import Mapping
from typing import Any

from games.adapters import scienceworld_child
from games.adapters.child import Child
from games.adapters.foreign import import_library
from games.adapters.pool import Pool
from games.base import to_one_line
from games.names import nearest

MAX_MACHINES = 8
"""Maximum number of Java machines of this process."""
SECONDS = 100.0
"""Timeout of a request, below that of a turn. Loading with the gold path takes up to 16 s."""
JAVA = (
    "-Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -XX:+UnlockExperimentalVMOptions -XX:hashCode=2"
)
"""Java's options: limited memory, no performance data in /tmp, and constant hash codes, which keep objects in order."""
ALL = "all"
UNKNOWN = "No known action matches that input."


def find_tasks(name: str) -> tuple[str, ...]:
    """Return the task of this name, such as `boil`, or all 30 tasks for `all`.

    Raises ValueError, in one line, for an unknown task, or if ScienceWorld or Java is not installed.
    """
    constants = import_library("scienceworld.constants", f"scienceworld:{name}", "ScienceWorld", "scienceworld")
    tasks = tuple(constants.ID2TASK.values())
    if shutil.which("java") is None:
        raise ValueError(f"scienceworld:{to_one_line(name, 80)} needs Java: apt-get install default-jre-headless")
    if name == ALL:
        return tasks
    if name not in tasks:
        hint = nearest(name, tasks) or f" (all, {', '.join(tasks[:3])}, …)"
        raise ValueError(f"ScienceWorld has no task '{to_one_line(name, 80)}'{hint}")
    return (name,)


class World:
    """Variation of a task, with the acts performed so far, which a Java machine of the pool replays when necessary."""

    def __init__(self, task: str, variation: int, simplify: str, listed: bool, acts: tuple[str, ...] = ()) -> None:
        self.task, self.variation, self.simplify, self.listed, self.acts = task, variation, simplify, listed, acts

    def load(self, gold: bool = False) -> dict[str, Any]:
        """Load the world, replay its acts, and return the observation, the task, its splits and the gold path."""
        with POOL.borrow(self) as (machine, _):
            return machine.ask(self._load_request(gold), SECONDS)

    def step(self, act: str) -> dict[str, Any]:
        """Perform an act and return the observation. An act that ScienceWorld does not understand is not recorded."""
        with POOL.borrow(self) as (machine, is_new):
            if is_new:
                machine.ask(self._load_request(), SECONDS)
            answer = machine.ask({"act": act, "listed": self.listed}, SECONDS)
        if self.is_understood(answer):
            self.acts += (act,)
        return answer

    @staticmethod
    def is_understood(answer: Mapping[str, Any]) -> bool:
        """Return whether ScienceWorld understood the act. If not, the world is unchanged."""
        return not str(answer["text"]).startswith(UNKNOWN)

    def copy(self) -> World:
        """Return an independent copy with the same acts. Its first use takes a Java machine from the pool."""
        return World(self.task, self.variation, self.simplify, self.listed, self.acts)

    def close(self) -> None:
        """Return the Java machine to the pool, if the world has one."""
        POOL.release(id(self))

    def _load_request(self, gold: bool = False) -> Mapping[str, Any]:
        request = {"load": self.task, "variation": self.variation, "simplify": self.simplify, "gold": gold}
        return {**request, "acts": list(self.acts), "listed": self.listed}

    def __del__(self) -> None:
        self.close()


def _start_process() -> Child:
    """Start a child process. Its Java machine starts with the first request."""
    return Child(sys.executable, scienceworld_child, "the process of ScienceWorld", {"JAVA_TOOL_OPTIONS": JAVA})


POOL = Pool(_start_process, MAX_MACHINES)


@functools.lru_cache(maxsize=64)
def load_splits(task: str) -> dict[str, list[int]]:
    """Return the variations of a task by split: train, dev and test."""
    world = World(task, 0, "", False)
    loaded: dict[str, list[int]] = world.load()["splits"]
    return loaded


@functools.lru_cache(maxsize=512)
def find_gold_path(task: str, variation: int, simplify: str) -> tuple[str, ...]:
    """Return the acts of ScienceWorld's gold path for a variation, without acts that ScienceWorld itself refuses."""
    world = World(task, variation, simplify, False)
    for act in World(task, variation, simplify, False).load(gold=True)["gold"]:
        world.step(act)
    return world.acts
