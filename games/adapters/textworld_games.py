"""Generation of TextWorld's games. A child process compiles each game once; Arena's cache folder stores it."""

from __future__ import annotations

import contextlib
import hashlib
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

from games.adapters import textworld_child
from games.adapters.foreign import import_library
from games.adapters.named import Setting, split_settings
from games.base import flag, to_one_line, whole_number
from games.slow import offload

COMPILE_SECONDS = 100.0
"""Timeout for compiling one game, below that of a turn."""
MAX_CACHED = 500
"""Maximum games in the cache folder, about 0.4 MB each. Beyond it, games unused for an hour are removed."""
HOUR = 3600.0
PLACES = (1, 6, 9, 12)
FLAGS = ("open", "cook", "cut", "drop")
COMPILERS = threading.BoundedSemaphore(2)
"""Limit on concurrent compilations in this process."""


@dataclass(frozen=True)
class Kind:
    """Generator of TextWorld games, with its settings. A number, used as seed, selects one of its games."""

    name: str
    settings: tuple[tuple[str, Setting], ...]

    def to_request(self, number: int, held_out: bool) -> str:
        """Return the child process's request for the game with this number, as JSON without the output folder.

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
MAX_LEVELS = {"coin_collector": 150, "treasure_hunter": 30}
"""Highest level. TextWorld cannot compile games of more than 100 rooms, as coin_collector has from level 151 on."""


def parse_name(name: str) -> Kind:
    """Parse a name such as `w2-o3-q4` or `coin_collector(level=5)` into a generator with its settings.

    Raises ValueError, in one line, for an unknown name or setting, or if TextWorld is not installed.
    """
    generator, name_settings = split_settings(name)
    sizes = re.fullmatch(r"w(\d{1,3})-o(\d{1,3})-q(\d{1,3})", generator)
    if not sizes and generator not in SETTINGS:
        raise ValueError(
            "TextWorld's games are w2-o3-q4 (rooms, objects, acts to the goal), coin_collector(level=1), "
            f"treasure_hunter(level=1) and cooking(recipe=1, take=1, open=true, …), not '{to_one_line(name, 80)}'"
        )
    settings = SETTINGS.get(generator, {})
    if unknown := name_settings.keys() - settings.keys():
        hint = f"; there are: {', '.join(settings)}" if settings else ""
        raise ValueError(f"{generator} has no setting '{min(unknown)}'{hint}")
    settings = settings | name_settings
    if sizes:
        settings = {"rooms": int(sizes[1]), "objects": int(sizes[2]), "quest": int(sizes[3])}
        generator = "custom"
        for key, most in ("rooms", 50), ("objects", 100), ("quest", 50):
            whole_number(key, settings[key], least=1, most=most)
    elif generator == "cooking":
        _check_cooking(settings)
    else:
        whole_number("level", settings["level"], least=1, most=MAX_LEVELS[generator])
    import_library("textworld", f"textworld:{name}", "TextWorld", "textworld")
    return Kind(generator, tuple(settings.items()))


def _check_cooking(settings: dict[str, Setting]) -> None:
    """Raise ValueError for invalid settings of cooking games."""
    recipe = whole_number("recipe", settings["recipe"], least=1, most=5)
    whole_number("take", settings["take"], least=0, most=recipe)
    if settings["go"] not in PLACES:
        raise ValueError(f"go must be one of {', '.join(map(str, PLACES))}, not {settings['go']}")
    for setting in FLAGS:
        flag(setting, settings[setting])


def compile_game(kind: Kind, number: int, held_out: bool) -> Path:
    """Return the path of a game's .z8 file, compiled if it is not cached. Its .json file is in the same folder.

    Raises RuntimeError, in one line, if TextWorld cannot generate or compile the game.
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

    Raises RuntimeError, in one line, if that fails or takes longer than `COMPILE_SECONDS`.
    """
    command = [sys.executable, "-P", str(Path(textworld_child.__file__))]
    with tempfile.TemporaryDirectory(prefix="arena-textworld-") as folder:
        environment = {**os.environ, "HOME": folder, "TMPDIR": folder, "OMP_NUM_THREADS": "1"}
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=folder,
            env=environment, start_new_session=True,
        )  # fmt: skip
        try:
            _, errors = child.communicate(
                json.dumps(json.loads(request) | {"folder": folder}).encode(), COMPILE_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"TextWorld made no game within {COMPILE_SECONDS:.0f} s: {request}") from None
        finally:
            if child.poll() != 0:  # timed out, interrupted or failed; the compiler outlives a killed child
                with contextlib.suppress(OSError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.communicate()
        if child.returncode:
            reason = to_one_line(errors.decode("utf-8", "replace")[-2000:], 300)
            ended = f"its process ended with code {child.returncode}"
            raise RuntimeError(f"TextWorld cannot make the game {request}: {reason or ended}")
        return Path(folder, "game.json").read_bytes(), Path(folder, "game.z8").read_bytes()


@cache
def _folder() -> Path:
    """Return the folder of compiled games in Arena's cache, or a temporary folder if the cache is read-only."""
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
    """Write a game's two files, .z8 last, so that an existing .z8 means a complete game. Removes old games."""
    for target, data in zip((path.with_suffix(".json"), path), files, strict=True):
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(data)
        os.replace(file.name, target)
    with contextlib.suppress(OSError):  # another process may remove the same games
        cached = sorted(path.parent.glob("*.z8"), key=lambda game: game.stat().st_mtime)
        for old in cached[: max(0, len(cached) - MAX_CACHED)]:
            if old.stat().st_mtime < time.time() - HOUR:
                old.unlink()
                old.with_suffix(".json").unlink()
