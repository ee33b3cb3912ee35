"""Renamed settings: their old keys are refused with the new ones, and those in old run folders are translated.

docs/glossary.md lists every renamed word; a test compares it with this table.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

SETTINGS: Mapping[str, str] = {
    "learn.shown": "learn.demonstrations",
    "learn.demonstrations.brains": "learn.demonstrations.scripted",
    "policies.*.imitate.brains": "policies.*.imitate.scripted",
}
"""From old keys to new ones, which differ in the last step; `*` is any name. Earlier ones are translated first."""


def old_keys(settings: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    """Path and new dotted name of every old key in settings, which may be any value."""
    for old, new in SETTINGS.items():
        for path in _paths(settings, old.split(".")):
            yield path, ".".join((*path[:-1], new.rpartition(".")[2]))


def translated(settings: Any) -> Any:
    """A copy of settings with new keys for old ones; a key that is there under both names is left alone.

    For what an older Arena wrote into a run's folder: what a user writes is refused instead, by `old_keys`.
    """
    for old, new in SETTINGS.items():
        settings = _with_key(settings, old.split("."), new.rpartition(".")[2])
    return settings


def _paths(settings: Any, steps: Sequence[str]) -> Iterator[tuple[str, ...]]:
    if not isinstance(settings, Mapping):
        return
    first, *rest = steps
    for key in settings if first == "*" else [first] if first in settings else []:
        if not rest:
            yield (key,)
        for path in _paths(settings[key], rest) if rest else ():
            yield (key, *path)


def _with_key(settings: Any, steps: Sequence[str], new: str) -> Any:
    if not isinstance(settings, Mapping):
        return settings
    first, *rest = steps
    if not rest:
        return {new if key == first and new not in settings else key: value for key, value in settings.items()}
    return {key: _with_key(value, rest, new) if first in ("*", key) else value for key, value in settings.items()}
