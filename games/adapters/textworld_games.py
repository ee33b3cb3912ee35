"""Cache of TextWorld's generated games. A child process compiles each game once; Arena's cache folder keeps it."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

import numpy as np

from games.adapters import textworld_child
from games.adapters.foreign import OwnRandom
from games.adapters.named import Setting, split_settings
from games.base import flag, to_one_line, whole_number
from games.slow import offload

SECONDS = 100.0
"""Time limit in seconds for compiling one game, below that of a turn."""
MAX_KEPT = 500
"""Number of games in the cache folder, about 0.4 MB each. Beyond it, games unused for an hour are removed."""
HOUR = 3600.0
PLACES = (1, 6, 9, 12)
FLAGS = ("open", "cook", "cut", "drop")
COMPILERS = threading.BoundedSemaphore(2)
"""Limit on concurrent compilations in this process."""


@dataclass(frozen=True)
class Kind:
    """Generator of TextWorld games with its settings. A number selects one of its games."""

    name: str
    settings: tuple[tuple[str, Setting], ...]

    def to_request(self, number: int, held_out: bool) -> str:
        """Return the child process's request for the game with this number, as JSON. It lacks the output folder.

        Held-out cooking games use TextWorld's test foods, others its training foods.
        """
        settings = dict(self.settings)
        if self.name == "cooking":
            settings |= {"recipe_seed": 0, "split": "test" if held_out else "train"}
        return json.dumps({"kind": self.name, "settings": settings, "seed": number}, sort_keys=True)


SETTINGS: dict[str, dict[str, Setting]] = {
    "coin_collector": {"level": 1},
    "treasure_hunter": {"level": 1},
    "cooking": {"recipe": 1, "take": 0, "go": 1, **dict.fromkeys(FLAGS, False)},
}
"""Settings with their defaults, by generator."""
MOST = {"coin_collector": 150, "treasure_hunter": 30}
"""Highest level. TextWorld cannot compile games of more than 100 rooms, as coin_collector has from level 151 on."""


def parse_name(name: str) -> Kind:
    """Parse a name such as `w2-o3-q4` or `coin_collector(level=5)` into a generator with its settings.

    Raises ValueError, in one line, for an unknown name or setting, or if TextWorld is not installed.
    """
    kind, given = split_settings(name)
    sizes = re.fullmatch(r"w(\d{1,3})-o(\d{1,3})-q(\d{1,3})", kind)
    if not sizes and kind not in SETTINGS:
        raise ValueError(
            "TextWorld's games are w2-o3-q4 (rooms, objects, acts to the goal), coin_collector(level=1), "
            f"treasure_hunter(level=1) and cooking(recipe=1, take=1, open=true, …), not '{to_one_line(name, 80)}'"
        )
    settings = SETTINGS.get(kind, {})
    if unknown := given.keys() - settings.keys():
        has = f"; there are: {', '.join(settings)}" if settings else ""
        raise ValueError(f"{kind} has no setting '{min(unknown)}'{has}")
    settings = settings | given
    if sizes:
        settings = {"rooms": int(sizes[1]), "objects": int(sizes[2]), "quest": int(sizes[3])}
        kind = "custom"
        for key, most in ("rooms", 50), ("objects", 100), ("quest", 50):
            whole_number(key, settings[key], least=1, most=most)
    elif kind == "cooking":
        _check_cooking(settings)
    else:
        whole_number("level", settings["level"], least=1, most=MOST[kind])
    _require_textworld(name)
    return Kind(kind, tuple(settings.items()))


def _check_cooking(settings: dict[str, Setting]) -> None:
    """Raise ValueError for invalid settings of cooking games."""
    recipe = whole_number("recipe", settings["recipe"], least=1, most=5)
    whole_number("take", settings["take"], least=0, most=recipe)
    if settings["go"] not in PLACES:
        raise ValueError(f"go must be one of {', '.join(map(str, PLACES))}, not {settings['go']}")
    for name in FLAGS:
        flag(name, settings[name])


def _require_textworld(name: str) -> None:
    """Import TextWorld, which takes a second. Raises ValueError, naming the extra to install, if that fails."""
    try:
        with OwnRandom(np.random.default_rng(0)).activate():
            importlib.import_module("textworld")
    except ImportError as error:
        why = f"textworld:{to_one_line(name, 80)} needs TextWorld ({to_one_line(str(error))})"
        raise ValueError(f"{why}: pip install 'arena-selfplay[textworld]'") from None


def compile_game(kind: Kind, number: int, held_out: bool) -> Path:
    """Return the path of a game's .z8 file, with its .json in the same folder. Compiles it if it is not in the cache.

    Raises RuntimeError, in one line, if TextWorld cannot compile the game.
    """
    request = kind.to_request(number, held_out)
    digest = hashlib.sha256(f"{version('textworld')} {request}".encode()).hexdigest()[:24]
    path = _folder() / f"{digest}.z8"
    if not path.exists():
        with COMPILERS:
            if not path.exists():
                _save(path, offload(build, request))
    with contextlib.suppress(OSError):
        os.utime(path)
    return path


def build(request: str) -> tuple[bytes, bytes]:
    """Generate and compile a game in a child process, and return the contents of its .json and .z8 files.

    Raises RuntimeError, in one line, if that fails or takes longer than `SECONDS`.
    """
    command = [sys.executable, "-P", str(Path(textworld_child.__file__))]
    with tempfile.TemporaryDirectory(prefix="arena-textworld-") as folder:
        environment = {**os.environ, "HOME": folder, "TMPDIR": folder, "OMP_NUM_THREADS": "1"}
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=folder,
            env=environment, start_new_session=True,
        )  # fmt: skip
        try:
            _, said = child.communicate(json.dumps(json.loads(request) | {"folder": folder}).encode(), SECONDS)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"TextWorld made no game within {SECONDS:.0f} s: {request}") from None
        finally:
            if child.poll() is None:  # timed out or interrupted
                os.killpg(child.pid, signal.SIGKILL)
                child.communicate()
        if child.returncode:
            why = to_one_line(said.decode("utf-8", "replace")[-2000:], 300)
            raise RuntimeError(f"TextWorld cannot make the game {request}: {why}")
        return Path(folder, "game.json").read_bytes(), Path(folder, "game.z8").read_bytes()


@cache
def _folder() -> Path:
    """Return the folder of compiled games in Arena's cache, or a temporary one if the cache is read-only."""
    home = Path(os.path.expanduser(os.environ.get("ARENA_HOME") or "~/.cache/arena")).absolute()
    folder = home / "textworld"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return Path(_temporary_folder().name)


@cache
def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="arena-textworld-")


def _save(path: Path, files: tuple[bytes, bytes]) -> None:
    """Write a game's two files, .z8 last, so that a present .z8 means a complete game. Removes old games."""
    for target, data in zip((path.with_suffix(".json"), path), files, strict=True):
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(data)
        os.replace(file.name, target)
    with contextlib.suppress(OSError):  # another process may remove the same games
        kept = sorted(path.parent.glob("*.z8"), key=lambda game: game.stat().st_mtime)
        for old in kept[: max(0, len(kept) - MAX_KEPT)]:
            if old.stat().st_mtime < time.time() - HOUR:
                old.unlink()
                old.with_suffix(".json").unlink()
