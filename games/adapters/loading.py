"""Loading of games from outside this package: from other libraries, files and installed packages, by names such as

openspiel:oh_hell(players=4)    pettingzoo:connect_four_v3    textarena:TicTacToe-v0
minigrid:DoorKey-5x5-v0         babyai:GoToLocal-v0             textworld:coin_collector(level=5)
gymnasium:FrozenLake-v1         gem:game:Minesweeper-v0-easy    overcooked:cramped_room
scienceworld:boil               verifiers:wordle                openenv:http://127.0.0.1:8000
tau2:airline                    miniwob:click-button
path/to/file.py:ClassName       my_game (an entry point of group `arena.games`)
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from games.adapters.modules import REFUSED
from games.names import nearest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from games.base import TextGame

GROUP = "arena.games"
USER_MODULE_PREFIX = "arena_file_"
"""Prefix of the module names of users' own files."""
# prefix: (game class, its option for the rest of the name, function that raises ValueError for a bad name)
LIBRARIES = {
    "openspiel": ("games.adapters.openspiel:AnyOpenSpiel", "game", "games.families.openspiel:load"),
    "pettingzoo": ("games.adapters.pettingzoo:PettingZooGame", "env", "games.adapters.pettingzoo:load"),
    "textarena": ("games.adapters.textarena:TextArenaGame", "env", "games.adapters.textarena:find_environment"),
    "minigrid": ("games.adapters.minigrid:MiniGrid", "env", "games.adapters.minigrid_worlds:find_minigrid"),
    "babyai": ("games.adapters.babyai:BabyAI", "env", "games.adapters.minigrid_worlds:find_babyai"),
    "textworld": ("games.adapters.textworld:TextWorld", "env", "games.adapters.textworld_games:parse_name"),
    "gymnasium": ("games.adapters.gymnasium:GymnasiumGame", "env", "games.adapters.gymnasium:find_environment"),
    "gem": ("games.adapters.gem:GemGame", "env", "games.adapters.gem:find_environment"),
    "openenv": ("games.adapters.openenv:OpenEnv", "env", "games.adapters.openenv:check_name"),
    "scienceworld": (
        "games.adapters.scienceworld:ScienceWorld",
        "env",
        "games.adapters.scienceworld_worlds:find_tasks",
    ),
    "verifiers": ("games.adapters.verifiers:Verifiers", "env", "games.adapters.verifiers:parse_name"),
    "miniwob": ("games.adapters.miniwob:MiniWob", "env", "games.adapters.miniwob:find_task"),
    "tau2": ("games.adapters.tau2:Tau2", "domain", "games.adapters.tau2:check_domain"),
    "overcooked": ("games.adapters.overcooked:Overcooked", "env", "games.adapters.overcooked:find_kitchen"),
}


@dataclass(frozen=True)
class SavedGameFile:
    """Copy of a game's source file in a run folder, which is loaded instead of the original."""

    path: Path
    """Path of the copy."""
    refused: str = ""
    """Reason why it may not be loaded, or "" if it may."""


_SAVED: dict[Path, SavedGameFile] = {}
_PLAYERS: set[str] = set()
_DATA: dict[str, str] = {}


def file_of(name: str) -> Path | None:
    """Return the resolved path of the Python file in a name like `path/to/file.py:name`, or None for any other name.

    The path is unique for each file, because links and `..` are resolved. The file need not exist.
    """
    path = name.rpartition(":")[0]
    return Path(os.path.realpath(os.path.expanduser(path))) if path.endswith(".py") and "\0" not in path else None


def use_saved_copy(path: Path, saved: SavedGameFile) -> None:
    """Load the source file `path` from its saved copy from now on. Has no effect if it already has a loadable copy."""
    if path not in _SAVED or _SAVED[path].refused:
        _SAVED[path] = saved


def reset() -> None:
    """Undo `use_saved_copy`, `use_saved_data` and `refuse`, so that everything loads from its original location."""
    _SAVED.clear()
    REFUSED.clear()
    _DATA.clear()


def refuse(module: str, reason: str) -> None:
    """Refuse to import games from a module from now on. Imports raise ValueError with this reason."""
    REFUSED[module] = reason


def use_saved_data(text: str, path: str) -> None:
    """Replace game options equal to `text` by `path`, a saved copy of a data file, from now on.

    Has no effect if `text` already has a saved copy.
    """
    _DATA.setdefault(text, path)


def replace_data_paths(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a game's options with the paths of data files replaced as set by `use_saved_data`."""
    return {name: _DATA.get(value, value) if isinstance(value, str) else value for name, value in options.items()}


def import_object(import_path: str) -> Any:
    """Import and return the object at `import_path`, written `module:name`."""
    module, _, name = import_path.partition(":")
    return getattr(importlib.import_module(module), name)


def find_foreign_game(name: str) -> Callable[..., TextGame] | None:
    """Return the factory of a game from outside this package, or None if `name` has none of this module's forms.

    Raises ValueError with the reason if `name` has such a form but the game cannot be found or loaded.
    """
    prefix, colon, rest = name.partition(":")
    if colon and prefix in LIBRARIES:
        game_class, option, finder = LIBRARIES[prefix]
        if not rest:
            raise ValueError(f"'{prefix}:' needs the name of a game after it")
        import_object(finder)(rest)
        return functools.partial(import_object(game_class), **{option: rest})
    if path := file_of(name):
        return _load_from_file(path, name.rpartition(":")[2])
    if name.endswith(".py"):
        raise ValueError(f"name the class in the file: {name}:ClassName")
    if name in (entries := find_entry_points()):
        return _load_from_package(entries[name])
    return None


@functools.cache
def find_entry_points() -> Mapping[str, EntryPoint]:
    """Return the entry points of installed packages' games by game name. Cached, because reading them is slow."""
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _load_from_package(entry: EntryPoint) -> Callable[..., TextGame]:
    try:
        candidate = entry.load()
    except Exception as error:  # noqa: BLE001 a package of others may fail in any way
        raise ValueError(f"the game {entry.name} ({entry.value}) cannot be loaded: {error_line(error)}") from None
    return _to_factory(candidate, f"{entry.name} ({entry.value})")


def _load_from_file(path: Path, class_name: str) -> Callable[..., TextGame]:
    return _to_factory(import_member(path, class_name, _can_create_game, "class", "classes"), f"{path}:{class_name}")


def _can_create_game(candidate: Any) -> bool:
    """Return whether an object is a class or a function `env`, which creates environments in PettingZoo's modules."""
    return inspect.isclass(candidate) or (inspect.isfunction(candidate) and candidate.__name__ == "env")


def import_member(path: Path, name: str, is_wanted: Callable[[Any], bool], kind: str, kinds: str) -> Any:
    """Import a user's file and return its object called `name`, which must satisfy `is_wanted`.

    `path` comes from `file_of`; `kind` and `kinds` are the singular and plural for such objects in the error. Raises
    ValueError, with the nearest name, if there is no such object, or with the reason if the file cannot be imported.
    """
    module = _load_file(path)
    if is_wanted(found := getattr(module, name, None)):
        return found
    candidates = [n for n, thing in vars(module).items() if is_wanted(thing) and thing.__module__ == module.__name__]
    hint = nearest(name, candidates) or f" (its {kinds}: {', '.join(candidates) or 'none'})"
    raise ValueError(f"{path} has no {kind} '{name}'{hint}")


def _load_file(path: Path) -> ModuleType:
    """Import the file or its saved copy. Raises ValueError if the copy may not be loaded."""
    saved = _SAVED.get(path, SavedGameFile(path))
    if saved.refused:
        raise ValueError(saved.refused)
    return _import_file(saved.path)


class _SourceOnlyLoader(importlib.machinery.SourceFileLoader):
    """Source loader that neither reads nor writes cached bytecode, which could come from somebody else."""

    def get_code(self, fullname: str) -> CodeType:
        """Compile the source file, ignoring cached bytecode."""
        return self.source_to_code(self.get_data(self.path), self.path)


@functools.cache
def _import_file(path: Path) -> ModuleType:
    """Import the file once, under a module name unique to its path. Raises ValueError if it is missing or fails."""
    import hashlib

    if not os.path.isfile(path):
        raise ValueError(f"there is no file {path}")
    name = f"{USER_MODULE_PREFIX}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    loader = _SourceOnlyLoader(name, str(path))
    spec = importlib.machinery.ModuleSpec(name, loader, origin=str(path))
    spec.has_location = True
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        loader.exec_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 a user's file may fail in any way
        del sys.modules[name]
        raise ValueError(f"{path} cannot be imported: {error_line(error, path)}") from None
    return module


def _to_factory(candidate: Any, label: str) -> Callable[..., TextGame]:
    """Return a factory of text games for an imported class or function.

    A TextGame subclass is returned unchanged, and the names of its scripted players are recorded. A PettingZoo AECEnv
    class or a function is wrapped by PettingZooGame. Raises ValueError, naming `label`, for anything else.
    """
    from pettingzoo import AECEnv

    from games.base import TextGame

    if inspect.isclass(candidate) and issubclass(candidate, TextGame):
        _PLAYERS.update(candidate.players)
        return candidate
    if inspect.isfunction(candidate) or (inspect.isclass(candidate) and issubclass(candidate, AECEnv)):
        from games.adapters.pettingzoo import PettingZooGame

        return functools.partial(PettingZooGame, candidate)
    raise ValueError(f"{label} is neither a games.base.TextGame nor a PettingZoo AECEnv class nor a function env()")


def list_loaded_players() -> frozenset[str]:
    """Return the names of the scripted players of all games loaded from files and packages so far."""
    return frozenset(_PLAYERS)


def error_line(error: BaseException, path: Path | None = None) -> str:
    """Return an error's type and message in one line of at most 300 characters.

    It starts with the line number, if the error has one (as SyntaxError) or its traceback passes through `path`.
    """
    line, trace = getattr(error, "lineno", None), error.__traceback__
    while trace is not None:
        if path is not None and trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    position = f"line {line}: " if line else ""
    return " ".join(f"{position}{type(error).__name__}: {_error_text(error)}".split())[:300]


def _error_text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 even str() of a user's exception may fail
        return "(no text: it raises another exception)"


def describe_foreign_error(error: BaseException) -> str:
    """Return one line with file, line number and message of an exception raised by a game from outside this package.

    Returns "" if the exception comes from Arena's own code.
    """
    frames = list(traceback.walk_tb(error.__traceback__))
    modules = [str(frame.f_globals.get("__name__", "")) for frame, _ in frames]
    packages = {entry.module.partition(".")[0] for entry in find_entry_points().values()} - {"simulators"}
    foreign_frames = [frame for frame, module in zip(frames, modules, strict=True)
           if module.startswith(USER_MODULE_PREFIX) or module.partition(".")[0] in packages]  # fmt: skip
    if not foreign_frames and any(module.startswith("games.adapters.") for module in modules[:-1]):
        foreign_frames = frames[-1:] if modules[-1].partition(".")[0] not in ("games", "agents", "arena") else []
    if not foreign_frames:
        return ""
    frame, line = foreign_frames[-1]
    return f"{frame.f_code.co_filename}, line {line}: {error_line(error)}"
