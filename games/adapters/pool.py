"""Pool of child processes that hold one world each, lent to more worlds than there are processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from games.adapters.child import Child, ChildError


class _Lent:
    """Context in which a world has a machine that nobody takes from it."""

    def __init__(self, pool: Pool, world: object) -> None:
        self.pool, self.world = pool, world

    def __enter__(self) -> tuple[Child, bool]:
        self.machine, is_new = self.pool.take(id(self.world))
        return self.machine, is_new

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # its process may be gone, or half-way through an act
            self.machine.close()
        self.pool.rest(id(self.world))


class Pool:
    """Processes by the worlds that use them, longest unused first, and idle ones.

    There are at most `most`. A world that needs one when all are taken gets that of the world that was unused the
    longest, which has to load again at its next step. So no match waits for another to end.
    """

    def __init__(self, start: Callable[[], Child], most: int) -> None:
        self._start, self._most = start, most
        self._changed = threading.Condition()
        self._held: dict[int, Child] = {}
        self._idle: list[Child] = []
        self._busy: set[int] = set()
        self._process = os.getpid()

    def lent(self, world: object) -> _Lent:
        """Return a context that yields the world's machine, and whether it has yet to be loaded."""
        return _Lent(self, world)

    def take(self, key: int) -> tuple[Child, bool]:
        """Return a machine for a world, and whether another world was in it before. Raises ChildError."""
        with self._changed:
            if self._process != os.getpid():  # a fork: those machines are the parent's
                self._held, self._idle, self._busy, self._process = {}, [], set(), os.getpid()
            held = self._held.pop(key, None)
            if held is not None and not held.is_alive:
                held.close()  # and with it what the process had started, such as a browser
                raise ChildError("the process has ended")
            while held is None:
                for machine in [each for each in self._idle if not each.is_alive]:
                    machine.close()
                    self._idle.remove(machine)
                rested = next((other for other in self._held if other not in self._busy), None)
                if self._idle:
                    machine = self._idle.pop()
                elif len(self._held) < self._most:
                    machine = self._start()
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
        """Make a world's machine idle, if it has one; end it if it has yet to answer, as after a turn's time limit."""
        if key not in self._held:
            return
        with self._changed:
            machine = self._held.pop(key, None)
            self._busy.discard(key)
            if machine is not None and machine.is_alive and machine.owner is None:
                self._idle.append(machine)
            elif machine is not None:
                machine.close()
            self._changed.notify()

    @property
    def machines(self) -> list[Child]:
        """All living machines."""
        return [machine for machine in (*self._held.values(), *self._idle) if machine.is_alive]
