"""A run's own files: roles, games and parts of files, and games' data, copied into its folder and found there first.

So that copying the folder copies the run, and no later edit of a file changes what a run plays. Games and parts are
code: what came with a run's folder is imported only if a run of these very bytes was begun here, or the user says so.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agents.role import list_roles
from arena.config.experiment import Experiment
from arena.config.trust import digest, trusted
from arena.config.trust import remember as remember_digests
from arena.errors import ConfigError, StoreError
from arena.play.settings import GameSpec, SeatSpec, TableSpec
from arena.store.files import explained, inside
from arena.store.reader import RunReader
from games.adapters import loading
from games.adapters.loading import file_of
from games.plain_files import read_plain

LARGEST = 4 * 10**9
"""Bytes of a file of which a run keeps a copy."""
FILES = "files"
"""Key of a run's environment: by what the config calls a file, where its copy lies, its hash, and what it was."""


def gather(experiment: Experiment) -> tuple[dict[str, bytes], dict[str, dict[str, str]]]:
    """Files to copy into the folder of a new run, by path within it, and their record for its environment."""
    copies: dict[str, bytes] = {}
    known: dict[str, dict[str, str]] = {}
    for kind, name, source in _named(experiment):
        if name not in known:
            with explained(source, "reading"):
                data = read_plain(source, LARGEST)
            place = _free(f"{kind}/{source.name}", data, copies)
            copies[place] = data
            known[name] = {"copy": place, "sha256": digest(data), "from": str(source)}
    return copies, known


def admit(run: Path, config: Any, trust: bool = False) -> None:
    """Have all code that a run's config names come from its folder, and not unasked; before the config is composed."""
    known = _known(run)
    for path in _code_files(config):
        _keep_code(run, path, known, trust)
    _admit_modules(run, config, trust)


def with_own_roles(run: Path, experiment: Experiment, trust: bool = False) -> Experiment:
    """The experiment with the run's own roles in place of their names; its games are found in the folder, too.

    ConfigError when a copy is gone or was edited.
    """
    known = _known(run)
    for about in known.values():
        copy = inside(run, about["copy"])
        with explained(copy, "reading"):
            if digest(read_plain(copy)) != about["sha256"]:
                raise ConfigError(f"{copy} was edited since its run began: restore it, or start a new run")
    for path in _part_files(experiment):
        _keep_code(run, path, known, trust)
    for game in _games(experiment):
        _keep(run, game, known, trust)
    _admit_modules(run, _plain_games(experiment), trust)
    roles = {name: str(run / about["copy"]) for name, about in known.items() if about["copy"].startswith("roles/")}
    if not roles:  # of an older Arena
        return experiment
    tables = [_with_roles(table, roles) for table in experiment.all_tables()]
    return experiment.with_tables(tables).model_copy(update={"roles": None})


def edited(run: Path) -> list[str]:
    """Lines on files that were edited since the run began, outside of its folder: the run plays its own copy."""
    lines = []
    for name, about in _known(run).items():
        source = Path(about["from"])
        if source.is_file() and digest(source.read_bytes()) != about["sha256"]:
            lines.append(f"{name} was edited since {run} began, which plays its own copy, {run / about['copy']}")
    return lines


def same_game(name: str, *experiments: Experiment | None) -> str:
    """Return a run's name for the game of a file that the user names, wherever its copies lie; else the name itself.

    Of several runs' experiments the first that has such a game counts.
    """
    known = (game.name for experiment in experiments if experiment for game in _games(experiment))
    own = (called for called in known if Path(called).name == Path(name).name) if ".py:" in name else ()
    return next(iter(own), name)


def remember(experiment: Experiment) -> None:
    """The user began a run with these files of games and parts: their bytes need no asking from now on."""
    paths = [*filter(None, (file_of(game.name) for game in _games(experiment))), *_part_files(experiment)]
    remember_digests(digest(path.read_bytes()) for path in paths if path.is_file())
    remember_digests(_modules(_plain_games(experiment)).values())


def _admit_modules(run: Path, config: Any, trust: bool) -> None:
    """Have no module imported for a game, as `pettingzoo:package.module` asks, that nobody agreed to."""
    for module, known in _modules(config).items():
        if trust:
            remember_digests([known])
        if known not in trusted():
            loading.refuse(module, f"{run} would run the code of the module {module}: look at it, then say --trust")


def _modules(config: Any) -> dict[str, str]:
    """All that could be the name of one, with the digest under which it is remembered."""
    names = (text.rpartition("pettingzoo:")[2] for text in _texts(config))
    return {name: digest(f"module {name}".encode()) for name in names if "." in name}


def _plain_games(experiment: Experiment) -> list[Any]:
    return [game.model_dump(mode="json") for game in _games(experiment)]


def _keep(run: Path, game: GameSpec, known: Mapping[str, Mapping[str, str]], trust: bool) -> None:
    """Have the game of a file, and data that it is given, come from the run's folder; and not unasked."""
    path = file_of(game.name)
    if path is None:
        return
    _keep_code(run, path, known, trust)
    for option in _data(game):
        if option in known:
            loading.keep_data(option, str(inside(run, known[option]["copy"]).absolute()))


def _keep_code(run: Path, path: Path, known: Mapping[str, Mapping[str, str]], trust: bool) -> None:
    about = known.get(str(path))
    own = inside(run, about["copy"]).absolute() if about else path
    bytes_of = {digest(own.read_bytes())} if own.is_file() else set[str]()
    if trust:
        remember_digests(bytes_of)
    why = "" if bytes_of <= trusted() else f"{run} would run the code of {own}: read it, then say --trust"
    loading.keep(path, loading.Kept(own, why))


def _named(experiment: Experiment) -> Iterator[tuple[str, str, Path]]:
    """Kind, name in the config and place of every file that the experiment names."""
    roles = list_roles([experiment.roles] if experiment.roles else [])
    for table in experiment.all_tables():
        for seat in table.seats.values():
            yield "roles", seat.role, roles[seat.role] if seat.role in roles else Path(seat.role)
    for game in _games(experiment):
        if path := file_of(game.name):
            yield "games", str(path), path
            for option in _data(game):
                if Path(option).is_absolute() and Path(option).is_file():
                    yield "data", option, Path(option)
    for path in _part_files(experiment):
        yield "parts", str(path), path


def _games(experiment: Experiment) -> list[GameSpec]:
    """All that it plays or is judged by."""
    games = [table.game for table in experiment.all_tables()]
    if (asked := experiment.evaluate) is None:
        return games
    judged = asked.panel.game if asked.panel else None
    by_panel = [GameSpec(name=judged.name, options=judged.options or {})] if judged else []
    return [*games, *by_panel, *asked.held_out]


def _part_files(experiment: Experiment) -> list[Path]:
    """The files of estimators, losses and other parts, and of players."""
    games = {file_of(game.name) for game in _games(experiment)}
    return [path for path in _code_files(experiment.model_dump(mode="json")) if path not in games]


def _code_files(config: Any) -> list[Path]:
    """The files of all that is named as file.py:name in a config, which need not be a whole or a right one."""
    return list(dict.fromkeys(filter(None, map(file_of, _texts(config)))))


def _texts(value: Any) -> Iterator[str]:
    """Every key and every text."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from (*_texts(key), *_texts(item))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _data(game: GameSpec) -> list[str]:
    """Options of a file's game that name a file."""
    texts = [value for value in game.options.values() if isinstance(value, str) and Path(value).suffix]
    return [text for text in texts if file_of(game.name) and "\0" not in text and len(text) < 1000]


def _free(place: str, data: bytes, copies: Mapping[str, bytes]) -> str:
    """The place, or one beside it where a file of other bytes has it."""
    path, number = Path(place), 1
    while copies.get(place, data) != data:
        number += 1
        place = str(path.with_name(f"{path.stem}-{number}{path.suffix}"))
    return place


def _with_roles(table: TableSpec, roles: Mapping[str, str]) -> TableSpec:
    seats = {seat: SeatSpec(role=roles.get(s.role, s.role), policy=s.policy) for seat, s in table.seats.items()}
    return table.model_copy(update={"seats": seats})


def _known(run: Path) -> dict[str, dict[str, str]]:
    found: Any = RunReader(run).environment().get(FILES, {})
    texts = ("copy", "sha256", "from")
    if not isinstance(found, dict) or not all(
        isinstance(about, dict) and all(isinstance(about.get(text), str) for text in texts) for about in found.values()
    ):
        raise StoreError(f"{run}: its environment does not say which files are its own: restore environment.json")
    return found
