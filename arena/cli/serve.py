"""`arena serve`: serve policies at an OpenAI-compatible endpoint."""

import os
import socket
from pathlib import Path
from typing import Annotated

import typer

from arena.errors import ConfigError

KEY = "ARENA_SERVE_KEY"
"""Environment variable with the key that clients must send."""


def serve(
    contender: Annotated[str, typer.Argument(help="A run, such as runs/latest@12, or a model or its folder.")],
    policy: Annotated[str, typer.Option(help="Serve only this policy of the run.")] = "",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    engine: Annotated[str, typer.Option(help="Inference engine (arena list engines).")] = "in_process",
) -> None:
    """Serve trained policies to OpenAI clients: chat completions, with or without streaming.

    Model names are POLICY, or POLICY:ROLE for the role's system prompt, sampling and reply format. Other machines need
    --host, and the key in ARENA_SERVE_KEY.

    Example: arena serve runs/latest, then curl http://127.0.0.1:8000/v1/models
    """
    from agents.engines.kinds import check_kind
    from agents.engines.spec import EngineSpec
    from agents.players.connection import is_loopback
    from arena.cli.console import note
    from arena.cli.loop import wait
    from arena.evaluate.casting import Casting
    from arena.evaluate.specs import ContenderLoader
    from arena.play.contenders import ModelContender

    try:
        from agents.connections import make_server
        from arena.serve.service import ServedModel, Service, find_roles
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed: pip install 'arena-selfplay[serve]'") from None
    try:
        spec = EngineSpec(kind=check_kind(engine))
    except ValueError as error:
        raise ConfigError(f"--engine: {error}") from None
    key = os.environ.get(KEY) or None
    if not is_loopback(host) and key is None:
        raise ConfigError(f"--host {host}: other machines can connect there: set {KEY} to a key that they must send")
    listener = _listen(host, port)
    loader = ContenderLoader(announce=note, note=note, engine=spec)
    (loaded,) = wait(loader.load(contender if not policy else f"{contender}:{policy}"))
    if not isinstance(loaded, ModelContender) or not isinstance(loaded.cast, Casting):
        raise ConfigError(f"{contender} has no weights to serve: give a run, a model or its folder")
    served = {
        name or Path(contender).name: ServedModel(
            model,
            min(model.positions, loaded.engine.max_context),
            model.frame.longest_token_length,
            find_roles(loaded.cast.experiment, name),
        )
        for name, model in loaded.cast.policies.items()
    }
    service = Service(loaded.engine, served, key)
    hosts = ["*"] if not is_loopback(host) else ["localhost", "127.0.0.1", "[::1]", host]
    note(f"serving {', '.join(service.names())} at http://{host}:{listener.getsockname()[1]}/v1 (Ctrl-C ends)")
    try:
        wait(
            make_server(service.app(hosts), log_level="warning", lifespan="off").serve(sockets=[listener]),
            by_signal=False,
        )
    finally:
        wait(loader.close())


def _listen(host: str, port: int) -> socket.socket:
    """Open a listening socket. Raises ConfigError if the address or port is not available."""
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise ConfigError(
            f"--host {host} --port {port}: {error.strerror or error}: take another, or --port 0"
        ) from None
