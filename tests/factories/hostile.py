"""Mutations of experiments, roles and `--set` values: what a slip, a fool or an attacker may write into them."""

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
    """No longer than this, TimeoutError where something hangs; 0: no limit."""

    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"it hangs: {seconds} s are over")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@cache
def read_experiments() -> tuple[tuple[str, str], ...]:
    """The shipped experiments, by name."""
    folder = Path(arena.recipes.__path__[0])
    return tuple((path.stem, path.read_text("utf-8")) for path in sorted(folder.glob("*.yaml")))


@cache
def read_roles() -> tuple[tuple[str, str], ...]:
    """The shipped roles, by name."""
    return tuple((path.stem, path.read_text("utf-8")) for path in sorted(BUILT_IN.glob("*.yaml")))


def generate_mutants(sources: tuple[tuple[str, str], ...], rng: random.Random, count: int) -> Iterator[tuple[str, str]]:
    """So many mutated texts, each with the name of what it was."""
    for _ in range(count):
        name, text = rng.choice(sources)
        yield name, mutate_text(text, rng)


def mutate_text(text: str, rng: random.Random) -> str:
    """One text with one to three mutations: of its values, of its keys, or of its characters."""
    if rng.random() < 0.3:
        return _add_noise(text, rng)
    data = copy.deepcopy(_parse(text))
    for _ in range(rng.choice((1, 1, 2, 3))):
        _mutate(data, rng)
    return json.dumps(data, ensure_ascii=rng.random() < 0.5)


def generate_setting(rng: random.Random) -> tuple[str, str]:
    """An experiment's name, and `A.B=C` for `--set`: one of its paths, or one with a slip, and a hostile value."""
    name, text = rng.choice(read_experiments())
    path, value = rng.choice(list(_iterate_places(_parse(text))))
    keys = [str(key) for key in path]
    if rng.random() < 0.2:
        keys[rng.randrange(len(keys))] = rng.choice(["", "x", "0", "lr", "weight", "é"])
    value = _pick_hostile_value(value, rng)
    written = json.dumps(value) if rng.random() < 0.8 else "".join(rng.choice(NOISE) for _ in range(rng.randint(0, 9)))
    return name, f"{'.'.join(keys)}={written}"


@cache
def _parse(text: str) -> Any:
    return strict_yaml.load(text, "a shipped file")


def _iterate_places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every place in the data, inner ones too."""
    if path:
        yield path, data
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield from _iterate_places(value, (*path, key))


def _mutate(data: Any, rng: random.Random) -> None:
    """Changes one place of the data."""
    places = list(_iterate_places(data))
    if not places:
        return
    path, value = rng.choice(places)
    above = data
    for key in path[:-1]:
        above = above[key]
    last, how = path[-1], rng.random()
    if how < 0.1 and isinstance(above, dict):
        del above[last]
    elif how < 0.2 and isinstance(above, dict):
        above[_misspell(str(last), rng)] = above.pop(last)
    elif how < 0.25:
        above[last] = copy.deepcopy(rng.choice(places)[1])
    elif how < 0.3:
        above[last] = [value] if rng.random() < 0.5 else {str(last): value}
    else:
        above[last] = copy.deepcopy(_pick_hostile_value(value, rng))


def _pick_hostile_value(value: Any, rng: random.Random) -> Any:
    """Something else in the place of a value, often of its own kind."""
    if isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < 0.6:
        return rng.choice(NUMBERS)
    if isinstance(value, str) and value and rng.random() < 0.3:
        return _misspell(value, rng)
    return rng.choice(VALUES)


def _misspell(word: str, rng: random.Random) -> str:
    """The word with a character left out, doubled or put in."""
    at = rng.randrange(len(word)) if word else 0
    return rng.choice([word[:at] + word[at + 1 :], word[:at] + word[at : at + 1] * 2 + word[at + 1 :],
                       word[:at] + rng.choice(NOISE) + word[at:], word.upper()])  # fmt: skip


def _add_noise(text: str, rng: random.Random) -> str:
    """The text with a few of its characters left out, changed or doubled."""
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text)) if text else 0
        end = min(len(text), at + rng.choice((1, 1, 2, 20)))
        text = text[:at] + rng.choice(["", rng.choice(NOISE), text[at:end] * 2]) + text[end:]
    return text
