"""Commands that other packages offer stand beside ours; an error in loading one names its package."""

from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

from arena.cli import command_plugins
from tests.factories.commands import arena, get_refusal


def register_commands(monkeypatch: pytest.MonkeyPatch, *entries: tuple[str, str]) -> None:
    points = [EntryPoint(name, value, "arena.commands") for name, value in entries]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points if group == "arena.commands" else [])


def wave(to: str) -> None:
    """Wave to somebody."""
    print(f"waves to {to}")


def test_an_offered_command_is_listed_and_called(monkeypatch: pytest.MonkeyPatch) -> None:
    register_commands(monkeypatch, ("wave", f"{__name__}:wave"), ("show", "nowhere:show"))
    assert arena("wave", "everybody").out == "waves to everybody\n"
    assert "Wave to somebody." in arena("--help").out and "A run folder" in arena("show", "--help").out
    assert arena("wav").code == 2


@pytest.mark.parametrize("value", ["no_such_module:wave", f"{__name__}:nothing", "tests.arena.cli.no_python:wave"])
def test_broken_plugin_names_its_package(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    point = EntryPoint("wave", value, "arena.commands")
    if "no_python" in value:
        monkeypatch.setattr(EntryPoint, "load", lambda self: compile("def", "no_python.py", "exec"))
    plugin = SimpleNamespace(name="wave", load=point.load, dist=SimpleNamespace(name="waving"), value=value)
    monkeypatch.setattr(command_plugins, "_find_plugins", lambda: {"wave": plugin})
    for words in (["wave"], ["wave", "--to", "all"], ["wave", "--help"]):
        assert get_refusal(*words).startswith("arena wave comes with waving, which cannot be loaded: ")
    listed = arena("--help")
    assert listed.code == 0 and "Cannot be loaded (waving)." in listed.out and "selfplay" not in listed.err


def test_analysis_offers_sql() -> None:
    assert {"sql"} <= set(command_plugins._find_plugins())
