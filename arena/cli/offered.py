"""Commands of other packages: each entry point of the group `arena.commands` adds one.

The analysis does, so that its commands are listed with ours and nothing here depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from arena.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.metadata import EntryPoint

    from typer.core import TyperCommand

GROUP = "arena.commands"


class Commands(TyperGroup):
    """Our commands, then those that are offered; they are looked for only where ours do not answer."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """The names of all."""
        return list(dict.fromkeys([*super().list_commands(ctx), *sorted(_offered())]))

    def get_command(self, ctx: typer.Context, cmd_name: str) -> TyperCommand | None:  # type: ignore[override]
        """Ours of this name, or else an offered one."""
        if own := super().get_command(ctx, cmd_name):
            return own  # type: ignore[return-value]
        offer = _offered().get(cmd_name)
        return _loaded(offer) if offer else None


def _offered() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _loaded(offer: EntryPoint) -> TyperCommand:
    """The command, or one that only says why it cannot be had: help lists all, so none may stop it."""
    try:
        return _command(offer.name, offer.load())
    except Exception as error:  # noqa: BLE001 somebody else's code, which may fail in any way
        return _unavailable(offer, error)


def _unavailable(offer: EntryPoint, error: Exception) -> TyperCommand:
    """Stand in for a command whose code cannot be loaded: always a ConfigError that names its package."""
    package = offer.dist.name if offer.dist else offer.value

    def unavailable() -> None:
        raise ConfigError(f"arena {offer.name} comes with {package}, which cannot be loaded: {error}")

    anything = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    return _command(offer.name, unavailable, help=f"Cannot be loaded ({package}).", context_settings=anything)


def _command(name: str, function: Callable[..., Any], **settings: Any) -> TyperCommand:
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    alone.command(name, **settings)(function)
    return typer.main.get_command(alone)  # type: ignore[return-value]
