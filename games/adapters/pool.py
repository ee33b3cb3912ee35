"""Pool of child processes that hold one world each, shared by more worlds than there are processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from games.adapters.child import Child, ChildError


class _Borrowed:
    """Context in which a world keeps its process."""

    def __init__(self, pool: Pool, world: object) -> None:
        self.pool, self.world = pool, world

    def __enter__(self) -> tuple[Child, bool]:
        self.child, is_new = self.pool.take(id(self.world))
        return self.child, is_new

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # its process may be gone, or half-way through an act
            self.child.close()
        self.pool.mark_unused(id(self.world))


class Pool:
    """Processes by the worlds that use them, longest unused first, and idle ones.

    There are at most `max_children`. If all are taken, a world gets the process of the world that was unused longest,
    which has to load again at its next step. So no match waits for another to end.
    """

    def __init__(self, start: Callable[[], Child], max_children: int) -> None:
        self._start, self._max_children = start, max_children
        self._changed = threading.Condition()
        self._held: dict[int, Child] = {}
        self._idle: list[Child] = []
        self._busy: set[int] = set()
        self._pid = os.getpid()

    def borrow(self, world: object) -> _Borrowed:
        """Return a context that yields the world's process, and whether the world has yet to be loaded there."""
        return _Borrowed(self, world)

    def take(self, key: int) -> tuple[Child, bool]:
        """Return a process for a world, and whether it is new to the world. Raises ChildError if its own has ended."""
        with self._changed:
            if self._pid != os.getpid():  # a fork: those processes are the parent's
                self._held, self._idle, self._busy, self._pid = {}, [], set(), os.getpid()
            held = self._held.pop(key, None)
            if held is not None and not held.is_alive:
                held.close()  # and its own children, such as a browser
                raise ChildError("the process has ended")
            while held is None:
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
            self._held[key] = held
            self._busy.add(key)
            return held, False

    def mark_unused(self, key: int) -> None:
        """Mark a world as unused, so that another world may take its process."""
        with self._changed:
            self._busy.discard(key)
            self._changed.notify()

    def release(self, key: int) -> None:
        """Make a world's process idle, if it has one. Ends one that has yet to answer, as after a turn's timeout."""
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
