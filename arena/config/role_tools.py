"""Tools that roles define, and that the seats with these roles get."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.errors import RoleError
from agents.role import list_roles, read_role
from arena.config.experiment import Experiment
from arena.errors import ConfigError
from arena.play.settings import SeatSpec, TableSpec
from games.adapters.loading import file_of
from simulators.toolbox.sources import parse


def with_role_tools(experiment: Experiment) -> Experiment:
    """Return the experiment with the tools of its roles at each seat without `tools`, with absolute paths.

    A role that cannot be loaded is ignored here; `resolve_tables` reports it. Raises ConfigError for invalid tools.
    """
    tables = experiment.tables or (
        [TableSpec(game=experiment.game, seats=experiment.seats)] if experiment.game and experiment.seats else []
    )
    try:
        roles = list_roles([experiment.roles] if experiment.roles else [])
    except RoleError:
        return experiment
    new_seats = [{seat: _with_tools(spec, roles) for seat, spec in table.seats.items()} for table in tables]
    if all(seats == table.seats for seats, table in zip(new_seats, tables, strict=True)):
        return experiment
    changed = [table.model_copy(update={"seats": seats}) for seats, table in zip(new_seats, tables, strict=True)]
    return experiment.with_tables(changed)


def read_role_tools(name: str, roles: Mapping[str, Path]) -> list[Any]:
    """Return the tools of a role, with absolute paths; [] for a role that has none or cannot be loaded.

    `roles` maps known roles to their files. Raises ConfigError for invalid tools.
    """
    path = roles.get(name, Path(name))
    try:
        role = read_role(path) if os.path.isfile(path) else None
    except RoleError:
        return []
    tools = [_with_absolute_paths(tool, path.resolve().parent) for tool in role.tools] if role else []
    try:
        for tool in tools:
            parse(tool)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    return tools


def _with_tools(seat: SeatSpec, roles: Mapping[str, Path]) -> SeatSpec:
    tools = read_role_tools(seat.role, roles) if seat.tools is None else []
    return seat.model_copy(update={"tools": tools}) if tools else seat


def _with_absolute_paths(tool: Any, folder: Path) -> Any:
    """Return the tool with file names relative to `folder` made absolute."""
    if isinstance(tool, str):
        return os.path.join(folder, tool) if file_of(tool) else tool
    tool = dict(tool)
    if isinstance(tool.get("function"), str):
        tool["function"] = _with_absolute_paths(tool["function"], folder)
    if isinstance(tool.get("mcp"), str) and "://" not in tool["mcp"]:
        try:
            words = shlex.split(tool["mcp"])
        except ValueError:
            return tool
        tool["mcp"] = shlex.join(os.path.join(folder, word) if (folder / word).is_file() else word for word in words)
    return tool
