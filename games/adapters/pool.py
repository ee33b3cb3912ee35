"""Pool of child processes with one world each, which more worlds than processes can share.

A world is an environment's state in one match. It can be loaded again in another process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from games.adapters.child import Child, ChildError


class _Borrowed:
    """Context during which no other world can take this world's process."""

    def __init__(self, pool: Pool, world: object) -> None:
        self.pool, self.world = pool, world

    def __enter__(self) -> tuple[Child, bool]:
        self.child, is_new = self.pool.take(id(self.world))
        return self.child, is_new

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # the process may have ended, or be in the middle of an act
            self.child.close()
        self.pool.mark_unused(id(self.world))


class Pool:
    """Pool of at most `max_children` processes.

    If all are taken, a world gets the process of the least recently used world, which has to be loaded again at its
    next step. So no match waits for another to end.
    """

    def __init__(self, start: Callable[[], Child], max_children: int) -> None:
        self._start, self._max_children = start, max_children
        self._changed = threading.Condition()
        self._held: dict[int, Child] = {}  # by world, least recently used first
        self._idle: list[Child] = []
        self._busy: set[int] = set()
        self._pid = os.getpid()

    def borrow(self, world: object) -> _Borrowed:
        """Return a context that yields the world's process, and whether the world must be loaded there first."""
        return _Borrowed(self, world)

    def take(self, key: int) -> tuple[Child, bool]:
        """Return a process for a world, and whether it is new to the world.

        Raises ChildError if the world's process has ended.
        """
        with self._changed:
            if self._pid != os.getpid():  # a fork: those processes are the parent's
                self._held, self._idle, self._busy, self._pid = {}, [], set(), os.getpid()
            process = self._held.pop(key, None)
            if process is not None and not process.is_alive:
                process.close()  # ends its own children too, such as a browser
                raise ChildError("the process has ended")
            while process is None:
                for child in [each for each in self._idle if not each.is_alive]:
                    child.close()
                    self._idle.remove(child)
                unused = next((other for other in self._held if other not in self._busy), None)
                if self._idle:
                    child = self._idle.pop()
                elif len(self._held) < self._max_children:
                    child = self._start()
                elif unused is not None:
                    child = self._held.pop(unused)
                else:
                    self._changed.wait()
                    continue
                self._held[key] = child
                self._busy.add(key)
                return child, True
            self._held[key] = process
            self._busy.add(key)
            return process, False

    def mark_unused(self, key: int) -> None:
        """Mark a world as unused, so that another world may take its process."""
        with self._changed:
            self._busy.discard(key)
            self._changed.notify()

    def release(self, key: int) -> None:
        """Make a world's process idle, if it has one. Kills it if an answer is pending, as after a turn's timeout."""
        if key not in self._held:
            return
        with self._changed:
            child = self._held.pop(key, None)
            self._busy.discard(key)
            if child is not None and child.is_alive and child.owner is None:
                self._idle.append(child)
            elif child is not None:
                child.close()
            self._changed.notify()

    @property
    def children(self) -> list[Child]:
        """All living processes."""
        return [child for child in (*self._held.values(), *self._idle) if child.is_alive]
