"""Mutated experiments, roles and `--set` values, as a typing mistake or an attacker may write them."""

import copy
import json
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import arena.recipes
from agents import strict_yaml
from agents.role import BUILT_IN

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 7, 10**9, 10**19, 10**40, -(10**40), 2**63, -(2**31), 10**400,
    0.0, -0.0, 0.5, 1.5, -3.0, 1e-308, 5e-324, 1e308, -1e308, 1e30, 1e-30,
    "", " ", "x", "~nobody", "~/x", "~nobody/x.yaml", "true", "null", "1e999", "-inf", "nan",
    "0x10", "é🙂\u202e", "x" * 5000,
    "../..", "/", ".", "a/b.yaml",
    "a.py:B", "openspiel:", "openspiel:chess(", "pettingzoo:x", "textarena:x", "endpoint:", "endpoint:m", "mcts:0",
    "mcts:-1", "mcts:" + "9" * 50, "exploiter:", "exploiter:exploiter:random",
    "random", "self", "past", "fixed", "mars",
    "{{ 1 }}", "{% for i in range(9) %}", "{{ private.x.y }}", "{{ '1e999'|float|int }}", "|", "\\", "a: b", "- a",
    [], {}, [[]], [{}], {"": 1}, {"a": None}, [5, -3], [1, 2, 3], [None], ["x"] * 200, {"x": {"y": {"z": [1]}}},
    {"linear": {"start": 1, "end": 1e308, "over": 1}}, {"constant": {"value": "x"}}, {"mars": 5},
    {"mars": {"gamma": 1e308}},
    {"steps": {"values": [], "every": 1}}, {"kl": None}, {"weighted_sum": {"of": []}}, [{"play": "self"}],
]  # fmt: skip
NUMBERS = [0, 1, -1, 2, 5, 100, 10**6, 10**9, 10**12, 10**40, 0.1, 1.5, -0.5, 1e6, 1e308, 1e-308]
NOISE = "\t\n\r\0\x1b\u202e\u0085é{}[]:,#&*!|>'\"%@`-?<=~.0xe \\"


@contextmanager
def limit_seconds(seconds: int) -> Iterator[None]:
    """Raise TimeoutError after this many seconds; 0 means no limit."""

    def raise_timeout(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"it hangs: {seconds} s are over")

    previous = signal.signal(signal.SIGALRM, raise_timeout)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


@cache
def read_experiments() -> tuple[tuple[str, str], ...]:
    """Return the names and texts of the shipped experiments."""
    folder = Path(arena.recipes.__path__[0])
    return tuple((path.stem, path.read_text("utf-8")) for path in sorted(folder.glob("*.yaml")))


@cache
def read_roles() -> tuple[tuple[str, str], ...]:
    """Return the names and texts of the shipped roles."""
    return tuple((path.stem, path.read_text("utf-8")) for path in sorted(BUILT_IN.glob("*.yaml")))


def generate_mutants(sources: tuple[tuple[str, str], ...], rng: random.Random, count: int) -> Iterator[tuple[str, str]]:
    """Yield `count` mutated texts, each with the name of its source."""
    for _ in range(count):
        name, text = rng.choice(sources)
        yield name, mutate_text(text, rng)


def mutate_text(text: str, rng: random.Random) -> str:
    """Return the text with one to three mutations of its values, keys or characters."""
    if rng.random() < 0.3:
        return _add_noise(text, rng)
    data = copy.deepcopy(_parse(text))
    for _ in range(rng.choice((1, 1, 2, 3))):
        _mutate(data, rng)
    return json.dumps(data, ensure_ascii=rng.random() < 0.5)


def generate_setting(rng: random.Random) -> tuple[str, str]:
    """Return an experiment's name and a `--set` assignment of a hostile value to a path that may be misspelt."""
    name, text = rng.choice(read_experiments())
    path, value = rng.choice(list(_iterate_places(_parse(text))))
    keys = [str(key) for key in path]
    if rng.random() < 0.2:
        keys[rng.randrange(len(keys))] = rng.choice(["", "x", "0", "lr", "weight", "é"])
    value = _pick_hostile_value(value, rng)
    raw_value = (
        json.dumps(value) if rng.random() < 0.8 else "".join(rng.choice(NOISE) for _ in range(rng.randint(0, 9)))
    )
    return name, f"{'.'.join(keys)}={raw_value}"


@cache
def _parse(text: str) -> Any:
    return strict_yaml.load(text, "a shipped file")


def _iterate_places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the path and value of every node of the data."""
    if path:
        yield path, data
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield from _iterate_places(value, (*path, key))


def _mutate(data: Any, rng: random.Random) -> None:
    """Change one node of the data."""
    positions = list(_iterate_places(data))
    if not positions:
        return
    path, value = rng.choice(positions)
    parent = data
    for key in path[:-1]:
        parent = parent[key]
    last, kind = path[-1], rng.random()
    if kind < 0.1 and isinstance(parent, dict):
        del parent[last]
    elif kind < 0.2 and isinstance(parent, dict):
        parent[_misspell(str(last), rng)] = parent.pop(last)
    elif kind < 0.25:
        parent[last] = copy.deepcopy(rng.choice(positions)[1])
    elif kind < 0.3:
        parent[last] = [value] if rng.random() < 0.5 else {str(last): value}
    else:
        parent[last] = copy.deepcopy(_pick_hostile_value(value, rng))


def _pick_hostile_value(value: Any, rng: random.Random) -> Any:
    """Return a replacement for a value, often of its own type."""
    if isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < 0.6:
        return rng.choice(NUMBERS)
    if isinstance(value, str) and value and rng.random() < 0.3:
        return _misspell(value, rng)
    return rng.choice(VALUES)


def _misspell(word: str, rng: random.Random) -> str:
    """Return the word with a character dropped, doubled or inserted."""
    position = rng.randrange(len(word)) if word else 0
    before, after = word[:position], word[position + 1 :]
    doubled = word[position : position + 1] * 2
    return rng.choice(
        [before + after, before + doubled + after, before + rng.choice(NOISE) + word[position:], word.upper()]
    )


def _add_noise(text: str, rng: random.Random) -> str:
    """Return the text with a few characters dropped, changed or doubled."""
    for _ in range(rng.randint(1, 4)):
        position = rng.randrange(len(text)) if text else 0
        end = min(len(text), position + rng.choice((1, 1, 2, 20)))
        text = text[:position] + rng.choice(["", rng.choice(NOISE), text[position:end] * 2]) + text[end:]
    return text
