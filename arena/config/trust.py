"""Trust in a run's folder: whether its code is run here, and its servers are asked with the user's keys.

Without asking, only for what a run of the user's own began with on this machine; else the user says `--trust`, once.
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from agents.players.endpoint import KEY_VARIABLE
from agents.players.spend import EndpointSpec
from agents.weights import home
from arena.errors import ConfigError
from arena.store.files import make_folder, write_atomic


def digest(data: bytes) -> str:
    """The digest of some bytes."""
    return hashlib.sha256(data).hexdigest()


def remember(digests: Iterable[str]) -> None:
    """Trust these digests from now on."""
    known = trusted()
    if new := set(digests) - known:
        make_folder(_file().parent)
        write_atomic(_file(), "".join(f"{each}\n" for each in sorted(known | new)))


def trusted() -> set[str]:
    """The digests that the user has trusted."""
    try:
        return set(_file().read_text("ascii").split())
    except (OSError, ValueError):
        return set()


def remember_servers(servers: Iterable[EndpointSpec]) -> None:
    """The user began a run that asks these servers, or let one."""
    remember(map(_of_server, servers))


def admit_servers(
    run: Path, asked: Mapping[str, EndpointSpec], kept: Mapping[str, EndpointSpec], trust: bool = False
) -> None:
    """ConfigError where a run would ask a server of its folder's choice, with a key of its choice; then remembered."""
    for name, server in asked.items():
        own = name in kept and _of_server(kept[name]) == _of_server(server)  # else it is what the user says just now
        if own and not trust and _of_server(server) not in trusted():
            where, variable = server.url or "OpenAI, or OPENAI_BASE_URL", server.key_variable or KEY_VARIABLE
            raise ConfigError(f"{run} would ask {where} with the key in {variable}: if it may, say --trust")
    remember_servers(asked.values())


def _of_server(server: EndpointSpec) -> str:
    return digest(f"server {server.url} {server.key_variable}".encode())


def _file() -> Path:
    return home() / "trusted"
