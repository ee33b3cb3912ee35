"""Commands that other packages add through entry points of the group `arena.commands`, as the analysis package does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from arena.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.metadata import EntryPoint

    from typer.core import TyperCommand


class CommandGroup(TyperGroup):
    """Command group that adds the plug-in commands after Arena's own. Entry points are read only if needed."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Return the names of all commands: Arena's own, then the plug-ins' in alphabetical order."""
        return list(dict.fromkeys([*super().list_commands(ctx), *sorted(_find_plugins())]))

    def get_command(self, ctx: typer.Context, cmd_name: str) -> TyperCommand | None:  # type: ignore[override]
        """Return Arena's own command of this name, else a plug-in's, else None."""
        if command := super().get_command(ctx, cmd_name):
            return command  # type: ignore[return-value]
        plugin = _find_plugins().get(cmd_name)
        return _load(plugin) if plugin else None


def _find_plugins() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group="arena.commands")}


def _load(plugin: EntryPoint) -> TyperCommand:
    """Return the plug-in's command. If it cannot be loaded, its command raises ConfigError, but `--help` works."""
    try:
        return _make_command(plugin.name, plugin.load())
    except Exception as error:  # noqa: BLE001 another package's code may raise anything
        package, reason = plugin.dist.name if plugin.dist else plugin.value, error

    def unavailable() -> None:
        raise ConfigError(f"arena {plugin.name} comes with {package}, which cannot be loaded: {reason}")

    any_arguments = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    return _make_command(
        plugin.name, unavailable, help=f"Cannot be loaded ({package}).", context_settings=any_arguments
    )


def _make_command(name: str, function: Callable[..., Any], **settings: Any) -> TyperCommand:
    app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    app.command(name, **settings)(function)
    return typer.main.get_command(app)  # type: ignore[return-value]
