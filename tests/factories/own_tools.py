"""Tools as a user writes them; tests name this file."""

import asyncio
import threading
import time
from typing import Literal

import numpy as np

from games.png import encode
from simulators.tools import Content

running = most_running = attempts = 0
LOCK = threading.Lock()
TABLE = threading.Barrier(4)


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def where() -> str:
    """Tell which files there are."""
    import os

    return str(os.path.exists("/etc/passwd"))


async def later(text: str, seconds: float = 0.0) -> str:
    """Return the text after some seconds."""
    await asyncio.sleep(seconds)
    return text


def crowded() -> int:
    """Count how many of these calls run at the same time."""
    global running, most_running
    with LOCK:
        running += 1
        most_running = max(most_running, running)
    time.sleep(0.05)
    with LOCK:
        running -= 1
    return most_running


def meet(number: int) -> int:
    """Return the number when four calls have come together."""
    TABLE.wait(8)
    return number


def flaky() -> str:
    """Hang at every other attempt."""
    global attempts
    attempts += 1
    if attempts % 2:
        time.sleep(5)
    return "at last"


def picture(kind: Literal["png", "text"]) -> Content:
    """Show a picture."""
    return Content("", (encode(np.full((2, 3, 3), 7, np.uint8)) if kind == "png" else b"no picture",))


def find_customer(email: str) -> str:
    """Find a customer, under the name of a tool of the game desk."""
    return email


class Camera:
    """A class whose method shows a picture."""

    def shoot(self) -> Content:
        """Show a picture."""
        return picture("png")


class Notebook:
    """Notes of one match."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> int:
        """Write a note; returns the number of notes."""
        self.notes.append(text)
        return len(self.notes)

    def read(self) -> list[str]:
        """Return all notes."""
        return self.notes


class Untyped:
    """A class whose method has no types."""

    def act(self, thing):
        """Act."""
