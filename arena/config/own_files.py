"""Copies of a run's own files (roles, games, parts, data) in its folder, and trust in a folder's code and servers.

With the copies a run folder is complete, and later edits of the originals do not change the run. Games and parts are
code. Code in a run folder is imported, and its servers get the user's keys, only if a run with the same files and
servers was started on this machine before, or if the user passes `--trust` once.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from os.path import isfile
from pathlib import Path
from typing import Any

from agents.players.endpoint import KEY_VARIABLE
from agents.players.spend import EndpointSpec
from agents.role import list_roles
from agents.weights import home
from arena.config.experiment import Experiment
from arena.errors import ConfigError, StoreError
from arena.play.making import SEAT_TOOLS
from arena.play.settings import GameSpec, TableSpec
from arena.store.files import explain_errors, join_inside, make_folder, write_atomic
from arena.store.manifest import fingerprint
from arena.store.reader import FolderReader
from games.adapters import loading
from games.adapters.loading import file_of
from games.adapters.modules import find_child_module, parse_module
from games.plain_files import read_plain
from simulators.toolbox.mcp_server import REFUSED

MAX_FILE_BYTES = 4 * 10**9
"""Maximum size in bytes of a file that is copied into a run folder."""
FILES = "files"
"""Key of a run's environment: for each file name in the config, its copy's path, its hash and its original path."""


def read_named_files(experiment: Experiment) -> tuple[dict[str, bytes], dict[str, dict[str, str]]]:
    """Read the files that the experiment names (roles, games, parts, data), to copy them into a new run folder.

    Returns the contents by path within the folder, and the record for the environment's key `FILES`. Writes nothing.
    """
    copies: dict[str, bytes] = {}
    known: dict[str, dict[str, str]] = {}
    for kind, name, source in _list_named_files(experiment):
        if name not in known:
            with explain_errors(source, "reading"):
                data = read_plain(source, MAX_FILE_BYTES)
            place = _find_free_path(f"{kind}/{source.name}", data, copies)
            copies[place] = data
            known[name] = {"copy": place, "sha256": hash_bytes(data), "from": str(source)}
    return copies, known


def admit_code(run: Path, config: Any, trust: bool = False) -> None:
    """Make the loader import the code that a run's config names from the run folder, and refuse untrusted code.

    `config` is the raw config, because composing it already loads code. `trust` trusts the code from now on.
    """
    known = _read_recorded_files(run)
    for path in _list_code_files(config):
        _load_code_from(run, path, known, trust)
    _admit_modules(run, config, trust)


def with_own_roles(run: Path, experiment: Experiment, trust: bool = False) -> Experiment:
    """Return the experiment with roles from the run folder, and make the loader use the folder's other copies.

    `trust` trusts the copied code from now on. Raises ConfigError if a copy was edited, StoreError if one is missing.
    """
    known = _read_recorded_files(run)
    for record in known.values():
        copy = join_inside(run, record["copy"])
        with explain_errors(copy, "reading"):
            if hash_bytes(read_plain(copy)) != record["sha256"]:
                raise ConfigError(f"{copy} was edited since its run began: restore it, or start a new run")
    for path in _list_part_files(experiment):
        _load_code_from(run, path, known, trust)
    for game in _list_games(experiment):
        _load_game_from(run, game, known, trust)
    _admit_modules(run, _plain_games(experiment), trust)
    for address in _list_tool_servers(experiment):
        if trust:
            _trust([_digest("harness", address)])
        REFUSED.pop(address, None)
        if _digest("harness", address) not in _read_trusted():
            REFUSED[address] = f"{run} would ask the MCP server {address[:200]!r}: to allow that, pass --trust"
    roles = {name: str(run / record["copy"]) for name, record in known.items() if record["copy"].startswith("roles/")}
    if not roles:
        return experiment
    tables = [_with_roles(table, roles) for table in experiment.all_tables()]
    return experiment.with_tables(tables).model_copy(update={"roles": None})


def require_own_tools(run: Path, experiment: Experiment, options: Mapping[str, Any]) -> None:
    """Raise StoreError if a logged match's options have tools that the run's experiment does not.

    Tools run programs, and an edited log could name any program.
    """
    known = [game.options.get(SEAT_TOOLS) for game in _list_games(experiment)]
    if options.get(SEAT_TOOLS) and options[SEAT_TOOLS] not in known:
        raise StoreError(f"{run}: its log names tools that its experiment does not")


def list_edited_files(run: Path) -> list[str]:
    """Return a note for each original file that was edited since the run began. The run uses its own copy."""
    notes = []
    for name, record in _read_recorded_files(run).items():
        source = Path(record["from"])
        if source.is_file() and hash_bytes(source.read_bytes()) != record["sha256"]:
            notes.append(f"{name} was edited since {run} began; the run uses its own copy, {run / record['copy']}")
    return notes


def resolve_game_name(name: str, *experiments: Experiment | None) -> str:
    """Return the name of a user's game, PATH/FILE.py:CLASS, with the path by which the experiments name it.

    The first experiment with a game of that file and class counts. Returns `name` if there is none.
    """
    known = (game.name for experiment in experiments if experiment for game in _list_games(experiment))
    same = (other for other in known if Path(other).name == Path(name).name) if ".py:" in name else ()
    return next(iter(same), name)


def trust_experiment(experiment: Experiment, servers: Iterable[EndpointSpec]) -> None:
    """Record the experiment's code, agent programs and endpoint `servers` as trusted on this machine."""
    paths = [*filter(None, (file_of(game.name) for game in _list_games(experiment))), *_list_part_files(experiment)]
    files = {hash_bytes(path.read_bytes()) for path in paths if path.is_file()}
    _trust(files | {*_hash_modules(_plain_games(experiment)).values()} | _list_peers(experiment, servers).keys())


def trust_code(config: Any) -> None:
    """Record the code files that a config names anywhere, which need not be valid, as trusted on this machine."""
    _trust(hash_bytes(path.read_bytes()) for path in _list_code_files(config) if path.is_file())


def hash_sources(experiments: Iterable[Experiment], config: Any) -> dict[str, str]:
    """Return the SHA-256 by path of the files that experiments name, and of a config's code files and data sets."""
    paths = [path for experiment in experiments for _, _, path in _list_named_files(experiment)]
    files = dict.fromkeys(map(Path.absolute, [*paths, *_list_code_files(config), *_list_data_files(config)]))
    return {str(path): _hash_file(path) for path in files}


def require_unchanged(run: Path, hashes: Mapping[str, str]) -> None:
    """Raise ConfigError if a file in `hashes`, as `hash_sources` returned them, was edited since."""
    for name, known in hashes.items():
        if _hash_file(Path(name)) != known:
            raise ConfigError(f"{name} was edited since {run} began: restore it, or start a new run")


def _hash_file(path: Path) -> str:
    with explain_errors(path, "reading"):
        return str(fingerprint(path)["sha256"])


def admit_experiment(
    run: Path, experiment: Experiment, servers: Iterable[EndpointSpec], recorded: Experiment, trust: bool = False
) -> None:
    """Raise ConfigError if a run folder names an untrusted agent program, or a server, which would get a key.

    Programs of `experiment` and its endpoint `servers` that the folder's `recorded` experiment lacks come from the
    user's command, so they are trusted. If nothing is refused, or with `trust`, all of them are recorded as trusted.
    """
    peers = _list_peers(experiment, servers)
    from_folder = peers.keys() & _list_peers(recorded, recorded.servers().values()).keys()
    for digest, action in peers.items():
        if digest in from_folder and not trust and digest not in _read_trusted():
            raise ConfigError(f"{run} would {action}: to allow that, pass --trust")
    _trust(peers)


def hash_bytes(data: bytes) -> str:
    """Return the SHA-256 of the data in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def _trust(digests: Iterable[str]) -> None:
    known = _read_trusted()
    if new := set(digests) - known:
        make_folder(_get_trust_file().parent)
        write_atomic(_get_trust_file(), "".join(f"{each}\n" for each in sorted(known | new)))


def _read_trusted() -> set[str]:
    """Return the digests of files, modules and servers that the user trusts."""
    try:
        return set(_get_trust_file().read_text("ascii").split())
    except (OSError, ValueError):
        return set()


def _get_trust_file() -> Path:
    return home() / "trusted"


def _digest(kind: str, text: str) -> str:
    """Return the trust digest of a `server`, `harness` or `module`."""
    return hash_bytes(f"{kind} {text}".encode())


def _list_peers(experiment: Experiment, servers: Iterable[EndpointSpec]) -> dict[str, str]:
    """Describe a run's use of each server, agent program and MCP server, by trust digest."""
    peers = {}
    for server in servers:
        url, variable = server.url or "OpenAI, or OPENAI_BASE_URL", server.key_variable or KEY_VARIABLE
        peers[_digest("server", f"{server.url} {server.key_variable}")] = f"ask {url} with the key in {variable}"
    seats = [seat for table in experiment.all_tables() for seat in table.seats.values()]
    for command in sorted({seat.harness for seat in seats if seat.harness} | _list_tool_servers(experiment)):
        peers[_digest("harness", command)] = f"run the agent program {command[:200]!r}"
    return peers


def _list_tool_servers(experiment: Experiment) -> set[str]:
    """Return the commands and URLs of the MCP servers of seats' tools."""
    by_game = [game.options.get(SEAT_TOOLS) for game in _list_games(experiment)]
    all_tools = [tool for seats in by_game if isinstance(seats, Mapping) for tools in seats.values() for tool in tools]
    return {str(tool["mcp"]) for tool in all_tools if isinstance(tool, Mapping) and tool.get("mcp")}


def _admit_modules(run: Path, config: Any, trust: bool) -> None:
    """Make the loader refuse untrusted modules that the config's games refer to; `trust` trusts them."""
    for module, known in _hash_modules(config).items():
        if trust:
            _trust([known])
        if known not in _read_trusted():
            loading.refuse(module, f"{run} would run the code of the module {module}: read it, then pass --trust")


def _hash_modules(config: Any) -> dict[str, str]:
    """Return the trust digest by module name, for every text in the config that could name a module of a game.

    Those are `pettingzoo:package.module` and `gymnasium:module:Name-v0`, with or without the library's name, and
    what `verifiers:` and `openenv:` run.
    """
    texts = list(_list_texts(config))
    names = [name for text in texts if "." in (name := text.rpartition("pettingzoo:")[2])]
    modules = (parse_module(text).rpartition("gymnasium:")[2] for text in texts)
    names += [module for module in modules if module and all(part.isidentifier() for part in module.split("."))]
    names += [module for text in texts if (module := find_child_module(text))]
    return {name: _digest("module", name) for name in names}


def _plain_games(experiment: Experiment) -> list[Any]:
    return [game.model_dump(mode="json") for game in _list_games(experiment)]


def _load_game_from(run: Path, game: GameSpec, known: Mapping[str, Mapping[str, str]], trust: bool) -> None:
    """Make the loader import a game file, and read its data files, from the run folder; refuse untrusted code."""
    path = file_of(game.name)
    if path is None:
        return
    _load_code_from(run, path, known, trust)
    for option in _list_data_options(game):
        if option in known:
            loading.use_saved_data(option, str(join_inside(run, known[option]["copy"]).absolute()))


def _load_code_from(run: Path, path: Path, known: Mapping[str, Mapping[str, str]], trust: bool) -> None:
    record = known.get(str(path))
    copy = join_inside(run, record["copy"]).absolute() if record else path
    digests = {hash_bytes(copy.read_bytes())} if copy.is_file() else set[str]()
    if trust:
        _trust(digests)
    reason = "" if digests <= _read_trusted() else f"{run} would run the code of {copy}: read it, then pass --trust"
    loading.use_saved_copy(path, loading.SavedGameFile(copy, reason))


def _list_named_files(experiment: Experiment) -> Iterator[tuple[str, str, Path]]:
    """Yield kind (`roles`, `games`, `data` or `parts`), name in the config, and path of each named file."""
    roles = list_roles([experiment.roles] if experiment.roles else [])
    for table in experiment.all_tables():
        for seat in table.seats.values():
            yield "roles", seat.role, roles[seat.role] if seat.role in roles else Path(seat.role)
    for game in _list_games(experiment):
        if path := file_of(game.name):
            yield "games", str(path), path
            for option in _list_data_options(game):
                if Path(option).is_absolute() and isfile(option):
                    yield "data", option, Path(option)
    for path in _list_part_files(experiment):
        yield "parts", str(path), path


def _list_games(experiment: Experiment) -> list[GameSpec]:
    """Return all games of play, of the evaluation and of its panel."""
    games = [table.game for table in experiment.all_tables()]
    if (evaluate := experiment.evaluate) is None:
        return games
    panel_game = evaluate.panel.game if evaluate.panel else None
    of_panel = [GameSpec(name=panel_game.name, options=panel_game.options or {})] if panel_game else []
    return [*games, *of_panel, *evaluate.held_out]


def _list_part_files(experiment: Experiment) -> list[Path]:
    """Return the user's code files other than games: estimators, losses and other parts, and scripted players."""
    games = {file_of(game.name) for game in _list_games(experiment)}
    return [path for path in _list_code_files(experiment.model_dump(mode="json")) if path not in games]


def _list_code_files(config: Any) -> list[Path]:
    """Return the distinct paths of all `file.py:name` texts in a config, which may be incomplete or invalid."""
    return list(dict.fromkeys(filter(None, map(file_of, _list_texts(config)))))


def _list_data_files(value: Any) -> Iterator[Path]:
    """Yield the files of data sets in a nested config: below each absolute path under a key `data`."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key == "data" and isinstance(item, str) and Path(item).is_absolute():
                path = Path(item)
                yield from (file for file in sorted(path.rglob("*")) if file.is_file()) if path.is_dir() else [path]
            else:
                yield from _list_data_files(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _list_data_files(item)


def _list_texts(value: Any) -> Iterator[str]:
    """Yield every text in a nested config, keys of mappings included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from (*_list_texts(key), *_list_texts(item))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _list_texts(item)


def _list_data_options(game: GameSpec) -> list[str]:
    """Return the option values of a user's game file that look like paths of data files; [] for other games."""
    texts = [value for value in game.options.values() if isinstance(value, str) and Path(value).suffix]
    return [text for text in texts if file_of(game.name) and "\0" not in text and len(text) < 1000]


def _find_free_path(place: str, data: bytes, copies: Mapping[str, bytes]) -> str:
    """Return `place`, or else the first of `name-2`, `name-3`, ... that is free in `copies` or holds equal `data`."""
    path, number = Path(place), 1
    while copies.get(place, data) != data:
        number += 1
        place = str(path.with_name(f"{path.stem}-{number}{path.suffix}"))
    return place


def _with_roles(table: TableSpec, roles: Mapping[str, str]) -> TableSpec:
    seats = {seat: s.model_copy(update={"role": roles.get(s.role, s.role)}) for seat, s in table.seats.items()}
    return table.model_copy(update={"seats": seats})


def _read_recorded_files(run: Path) -> dict[str, dict[str, str]]:
    """Return `copy`, `sha256` and `from` of the run's copied files, by name. Raises StoreError if malformed."""
    files: Any = FolderReader(run).environment().get(FILES, {})
    keys = ("copy", "sha256", "from")
    if not isinstance(files, dict) or not all(
        isinstance(record, dict) and all(isinstance(record.get(key), str) for key in keys) for record in files.values()
    ):
        raise StoreError(f"{run}: its environment does not say which files are its own: restore environment.json")
    return files
