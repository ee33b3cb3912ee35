"""Tasks and scorers of reasoning-gym (Stojanovski et al. 2025), as far as they can be trusted.

A family is used only if it generates the same tasks in every process, a known answer scores 1, an empty one less, and
its scorer does not execute model output. `REFUSED` has the reasons against the others, as of version 0.1.25.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import io
import math
import random
import re
import sys
import threading
import typing
import warnings
from collections.abc import Iterator, Mapping
from typing import IO, Any, NamedTuple, Self

import numpy as np
from pydantic import TypeAdapter, ValidationError

from games.base import whole_number
from games.names import nearest
from simulators.base import SimulatorFault, is_held_out

LEVEL = "level"
MAX_SETTING = 1000
"""Largest value of a setting, or ten times its default if that is more."""
MATCH_SETTINGS = ("seed", "size")
"""Settings of a family that the match determines."""

EVALUATES = "its scorer executes replies as Python code"
HASHED = "its tasks depend on string hashing, so the same seed gives different tasks in every process"
UNKNOWN = "its tasks have no known answer"
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("simple_integration", "intermediate_integration"), EVALUATES),
    **dict.fromkeys(
        ("isomorphic_strings", "knight_swap", "polynomial_multiplication", "ransom_note", "word_ladder"), HASHED
    ),
    **dict.fromkeys(("boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"), UNKNOWN),
    "puzzle24": "its scorer does not check whether the given numbers were used",
    "game_of_life_halting": "its scorer accepts any answer",
    "composite": "name the families themselves",
}
NAMES_ONLY = re.compile(r"[\w \n-]*", re.ASCII)
SUMS_ONLY = re.compile(r"(?!.{201})(?!.*\* *\*)[\d+\-*/() ]+", re.ASCII)
READABLE: Mapping[str, re.Pattern[str]] = {
    **dict.fromkeys(("string_insertion", "spiral_matrix", "binary_matrix", "n_queens"), NAMES_ONLY),
    "countdown": SUMS_ONLY,
    "complex_arithmetic": re.compile(r"[\d+\-.ij* ()]{1,100}"),  # its scorer accepts nan
}
"""Answers that may be passed to scorers that call eval or similar; all others count as wrong."""
HUGE = re.compile(r"[eE][+-]?\d{4}|\d{400}")
"""Numbers so large that a scorer would take hours; an answer with one counts as wrong."""
BLANKS = ("?", "nan")
"""Answers without content, which must not score 1."""
READS_FILE = ("spell_backward",)
"""Families whose datasets read a long file when created, and may be reused with another `seed`."""
DRAWS = 100
"""Number of consecutive failed draws after which a family counts as unusable."""
SAMPLES = 100
"""Number of tasks per family from which success rates of random answers are estimated."""
MAX_CACHED = 1024
"""Maximum number of cached tasks of all families."""


class Score(NamedTuple):
    """A scorer's result: the score in [0, 1], and whether the scorer could and may read the answer."""

    value: float
    readable: bool


@dataclasses.dataclass(frozen=True)
class Task:
    """A reasoning-gym question with its known answer; `score` applies the family's scorer."""

    family: str
    question: str
    answer: str
    _entry: Mapping[str, Any] = dataclasses.field(repr=False)
    _dataset: Any = dataclasses.field(repr=False)

    def score(self, answer: str) -> Score:
        """Score an answer with the family's scorer.

        An answer is unreadable and scores 0 if the scorer fails on it, or may not read it (it would execute the answer,
        or a number is huge), so that breaking the scorer never pays. Raises SimulatorFault if the scorer also fails on
        the known answer.
        """
        pattern = READABLE.get(self.family)
        if HUGE.search(answer) or (pattern is not None and not pattern.fullmatch(answer)):
            return Score(0.0, False)
        try:
            return Score(self._apply_scorer(answer), True)
        except Exception as error:  # noqa: BLE001 a third-party scorer may fail in any way
            failed = error
        try:
            if self._apply_scorer(self.answer) == 1.0:
                return Score(0.0, False)
        except Exception as error:  # noqa: BLE001 as above
            failed = error
        raise SimulatorFault(f"the scorer of {self.family} fails: {type(failed).__name__}: {failed}")

    def is_sound(self) -> bool:
        """Return True if the known answer scores 1, and empty answers score less."""
        blank = (self.score(text).value for text in BLANKS)
        return bool(self.answer.strip()) and self.score(self.answer).value == 1.0 and max(blank) < 1.0

    def _apply_scorer(self, answer: str) -> float:
        with isolate_random_state(0):
            value = float(self._dataset.score_answer(answer, copy.deepcopy(dict(self._entry))))
        if not (math.isfinite(value) and 0.0 <= value <= 1.0):
            raise SimulatorFault(f"the scorer of {self.family} gave {value}")
        return value

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return self: tasks are immutable."""
        return self


@contextlib.contextmanager
def isolate_random_state(seed: int) -> Iterator[None]:
    """Seed Python's and NumPy's global random generators within the context and restore them afterwards.

    Discards this thread's prints and warnings. Only one thread at a time can be in the context.
    """
    with _LOCK, contextlib.ExitStack() as quiet:
        before = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed % 2**32)
        quiet.callback(random.setstate, before[0])
        quiet.callback(np.random.set_state, before[1])
        quiet.enter_context(contextlib.redirect_stdout(_DiscardingStream(sys.stdout)))
        quiet.enter_context(contextlib.redirect_stderr(_DiscardingStream(sys.stderr)))
        quiet.enter_context(warnings.catch_warnings(action="ignore"))
        yield


_LOCK = threading.RLock()
_CACHE: dict[tuple[str, str, int], Task | None] = {}
_SHARED: dict[tuple[str, str], Any] = {}
"""Datasets of the families in `READS_FILE`, by family and settings."""


class _DiscardingStream(io.TextIOBase):
    """Text stream that discards the output of the thread that created it, and passes on other threads' output."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream, self._thread = stream, threading.get_ident()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self._thread else self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()


def read_task_option(option: object) -> dict[str, dict[str, Any]]:
    """Validate the option `task` and return the settings by family.

    `option` is a family's name, a list of names, or a mapping of names to settings: those of reasoning-gym's config
    class, and `level`, a step of the family's curriculum that provides all settings not given. Raises ValueError if it
    is invalid, with the nearest match for an unknown name.
    """
    by_name = {option: {}} if isinstance(option, str) else option
    if isinstance(by_name, list | tuple):
        by_name = {name: {} for name in by_name}
    if not isinstance(by_name, Mapping) or not by_name:
        raise ValueError(f"task must be a family's name, a list of them, or families with settings, not {option!r}")
    return {str(family): _validate_settings(str(family), settings or {}) for family, settings in by_name.items()}


def draw_task(family: str, settings: Mapping[str, Any], rng: np.random.Generator) -> Task:
    """Draw a sound task (`Task.is_sound`) with `rng`. Raises SimulatorFault after `DRAWS` failed draws."""
    for _ in range(DRAWS):
        if task := _load_task(family, settings, int(rng.integers(2**31))):
            return task
    raise SimulatorFault(f"none of {DRAWS} tasks of {family} could be scored")


def estimate_chance(families: Mapping[str, Mapping[str, Any]], attempts: int = 1) -> float:
    """Estimate the probability that the random player solves a task, averaged over the families.

    In each of `attempts` tries, the player gives the answer to another task of the family. Samples `SAMPLES` tasks per
    family.
    """
    rng, chances = np.random.default_rng(0), []
    for family, settings in families.items():
        tasks = [draw_task(family, settings, rng) for _ in range(SAMPLES)]
        for n, task in enumerate(tasks):
            others = tasks[:n] + tasks[n + 1 :]
            right = sum(task.score(other.answer).value == 1.0 for other in others) / len(others)
            chances.append(1.0 - (1.0 - right) ** attempts)
    return sum(chances) / len(chances)


def _load_task(family: str, settings: Mapping[str, Any], seed: int) -> Task | None:
    """Return the task of this seed, or None if it is not sound. Raises SimulatorFault if the family cannot create it.

    Cached, because all matches of a group have the same task, and creating and checking it takes milliseconds.
    """
    key = (family, repr(sorted(settings.items())), seed)
    with _LOCK:
        if key in _CACHE:
            return _CACHE[key]
        dataset_class, config_class = _import_library()[0][family]
        try:
            with isolate_random_state(seed):
                if (dataset := _SHARED.get(key[:2])) is None:
                    dataset = dataset_class(config=config_class(**settings, seed=seed, size=1))
                if family in READS_FILE:
                    _SHARED[key[:2]] = dataset
                    dataset.seed = seed
                entry = dataset[0]
        except Exception as error:
            raise SimulatorFault(f"{family} cannot create a task: {type(error).__name__}: {error}") from error
        task = Task(family, str(entry["question"]), str(entry["answer"] or ""), entry, dataset)
        _CACHE[key] = task if task.is_sound() else None
        if len(_CACHE) > MAX_CACHED:
            del _CACHE[next(iter(_CACHE))]
        return _CACHE[key]


def is_test(question: str) -> bool:
    """Return True if a question belongs to the test split, which all games with reasoning-gym's tasks share."""
    return is_held_out(f"reasoning:{question}")


def _import_library() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Import reasoning-gym, which takes seconds. Returns its (dataset, config) classes and its curricula, by family."""
    try:
        from reasoning_gym.factory import CURRICULA, DATASETS
    except ImportError as error:
        raise ValueError(f"tasks come from reasoning-gym: pip install 'arena-selfplay[simulators]' ({error})") from None
    return DATASETS, CURRICULA


def _validate_settings(family: str, options: object) -> dict[str, Any]:
    families = _import_library()[0]
    if family in REFUSED:
        raise ValueError(f"task: {family} cannot be used: {REFUSED[family]}")
    if family not in families:
        hint = nearest(family, families)
        raise ValueError(f"task: reasoning-gym has no family '{family}'{hint}")
    if not isinstance(options, Mapping):
        raise ValueError(f"task: the settings of {family} must be names and values, not {options!r}")
    config_class = families[family][1]
    hints = typing.get_type_hints(config_class)
    settings = _read_level(family, options[LEVEL]) if LEVEL in options else {}
    for name, value in options.items():
        if name != LEVEL:
            settings[name] = _validate_value(family, str(name), value, hints)
            _check_size(family, name, settings[name], getattr(config_class, name, None))
    if family == "basic_arithmetic" and not settings.get("allow_parentheses", True):
        raise ValueError("task: basic_arithmetic without parentheses computes 2 + 3 * 4 from left to right: allow them")
    try:
        config = config_class(**settings)
        if hasattr(config, "validate"):
            config.validate()
    except (AssertionError, TypeError, ValueError) as error:
        raise ValueError(f"task: {family}: {error}") from None
    return settings


def _validate_value(family: str, name: str, value: object, hints: Mapping[str, Any]) -> Any:
    names = [hint for hint in hints if hint not in MATCH_SETTINGS]
    if name not in names:
        hint = nearest(name, names) or f" (it has {', '.join([LEVEL, *names])})"
        raise ValueError(f"task: {family} has no setting '{name}'{hint}")
    try:
        return TypeAdapter(hints[name]).validate_python(list(value) if isinstance(value, tuple) else value)
    except ValidationError as error:
        raise ValueError(f"task: {family}.{name}: {error.errors()[0]['msg']}, not {value!r}") from None


def _check_size(family: str, name: str, value: object, default: object) -> None:
    """Raise ValueError for a number far above the family's default, because the task could take hours or all memory."""
    limit = max([MAX_SETTING, *(10 * abs(number) for number in _list_numbers(default))])
    if any(abs(number) > limit for number in _list_numbers(value)):
        raise ValueError(f"task: {family}.{name}: at most {limit:g}: larger tasks take too long to create")


def _list_numbers(value: object) -> list[float]:
    items = value if isinstance(value, list | tuple) else [value]
    return [item for item in items if isinstance(item, int | float)]


def _read_level(family: str, level: object) -> dict[str, Any]:
    """Return the family's settings at a curriculum step. Raises ValueError if there is no such step."""
    curricula = _import_library()[1]
    if family not in curricula:
        raise ValueError(f"task: {family} has no curriculum: leave out level")
    curriculum = curricula[family]()
    last_level = max(len(attribute.levels) for attribute in curriculum.attributes.values()) - 1
    curriculum.set_global_level(whole_number(f"task: {family}.level", level, least=0, most=last_level))
    config = dataclasses.asdict(curriculum.generate_configuration())
    return {name: value for name, value in config.items() if name not in MATCH_SETTINGS}
