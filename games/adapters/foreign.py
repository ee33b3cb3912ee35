"""Base class of games that wrap an environment of another library, with private random state and recorded faults."""

from __future__ import annotations

import contextlib
import copy
import importlib
import io
import random
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from games.base import TextGame, to_one_line
from games.conformance.openness import shows_everything

_NUMPY: Any = np.random
"""numpy.random without static types, because its stubs lack some functions."""
_HIDES_NOTHING: dict[tuple[Any, ...], bool] = {}
SHARED = ("illegal", "penalty", "stake", "talk")
"""TextGame's options; all others go to the wrapped environment."""


class OwnRandom:
    """A match's private state of Python's and numpy's global random generators, for wrapped environments."""

    def __init__(self, rng: np.random.Generator) -> None:
        seed = int(rng.integers(2**32))
        self._python = random.Random(seed).getstate()
        self._numpy = _NUMPY.MT19937()
        self._numpy.state = np.random.RandomState(seed).get_state(legacy=False)

    @contextlib.contextmanager
    def activate(self) -> Iterator[None]:
        """Make this match's generator states global within the context, then restore the previous ones.

        Also silences stdout and stderr, so that `--json` output stays valid JSON.
        """
        python, numpy, generator = random.getstate(), np.random.get_state(legacy=False), _NUMPY.get_bit_generator()
        random.setstate(self._python)
        _NUMPY.set_bit_generator(self._numpy)  # takes a hundredth of the time of set_state
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                yield
        finally:
            self._python, self._numpy = random.getstate(), _NUMPY.get_bit_generator()
            random.setstate(python)
            _NUMPY.set_bit_generator(generator)
            if numpy["has_gauss"]:  # a cached normal number, which set_bit_generator would lose
                np.random.set_state(numpy)

    def __deepcopy__(self, memo: dict[int, Any]) -> OwnRandom:
        """Return an independent copy. Python's state is replaced, never changed, so copies may share it."""
        return self.__copy__()

    def __copy__(self) -> OwnRandom:
        twin = object.__new__(OwnRandom)
        twin._python, twin._numpy = self._python, copy.deepcopy(self._numpy)
        return twin


def import_library(module: str, name: str, library: str, extra: str) -> Any:
    """Import a module of another library, silently and without effect on the global random generators.

    Raises ValueError, in one line with the name of the game and the extra to install, if it cannot be imported.
    """
    try:
        with OwnRandom(np.random.default_rng(0)).activate():
            return importlib.import_module(module)
    except ImportError as error:
        reason = f"{to_one_line(name, 90)} needs {library} ({to_one_line(str(error))})"
        raise ValueError(f"{reason}: pip install 'arena-selfplay[{extra}]'") from None


def split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of the wrapped environment among a game's options, and TextGame's options."""
    settings = {name: value for name, value in options.items() if name not in SHARED}
    return settings, {name: value for name, value in options.items() if name in SHARED}


class ForeignGame(TextGame):
    """Base class of text games that wrap an environment of another library, stored in `env`.

    Set `stake` (default 1) to the largest loss that the environment can give a seat, so that ending the match by
    an illegal act never pays. `faults` collects the environment's exceptions.
    """

    library: str
    stakes = 1.0
    has_trials: ClassVar[bool] = False
    """Whether trial matches may show that nothing is hidden, although `perfect_information` is False."""

    def __init__(self, env: str, seats: tuple[str, ...], **options: Any) -> None:
        if unknown := options.keys() - {*SHARED}:
            raise ValueError(f"{self.name}:{env} has no option '{min(unknown)}'")
        self.title, self.seats = env, seats
        self.env: Any = None
        self.faults: list[str] = []
        """Unexpected exceptions of the environment since this object was created, one line each."""
        super().__init__(**options)

    def rules(self) -> str:
        """Return the environment's name, its library and the seats as text. The environment explains how to act."""
        return f"{self.title}, by the rules of {self.library}. Seats: {', '.join(self.seats)}."

    def public(self) -> dict[str, Any]:
        """Return `turn`, the number of acts so far. Each seat learns everything else privately from the environment."""
        return {"turn": self.turns}

    def figures(self) -> dict[str, float | bool | str]:
        """Return `faults`, the number of the environment's exceptions since this object was created."""
        return {"faults": len(self.faults)}

    def record_fault(self, error: Exception) -> str:
        """Append an exception of the environment to `faults`. Returns its type and message in one line."""
        self.faults.append(f"{type(error).__name__}: {to_one_line(str(error))}")
        return self.faults[-1]

    def hides_nothing(self) -> bool:
        """Return whether no seat has hidden information: declared, or found by trial matches (`openness`), cached."""
        if self.perfect_information or not self.has_trials:
            return self.perfect_information
        key = (type(self), self.title, repr(getattr(self, "settings", "")), self.seats)
        if key not in _HIDES_NOTHING:
            _HIDES_NOTHING[key] = shows_everything(self)
        return _HIDES_NOTHING[key]

    def copy_env(self) -> Any:
        """Return an independent copy of the environment. Override it if `deepcopy` fails or loses state."""
        return copy.deepcopy(self.env)

    def clone(self) -> Self:
        """Return an independent copy of the running match, with the environment copied by `copy_env`."""
        return copy.deepcopy(self, {id(self.env): self.copy_env()})


class SingleAgentGame(ForeignGame):
    """Base class of games that wrap an environment of one agent, which loses nothing by giving up."""

    seats = ("agent",)
    rivals = False
    stakes = 0.0

    def __init__(self, env: str, **options: Any) -> None:
        super().__init__(env, self.seats, **options)


def sanitise(text: str) -> str:
    """Remove control, bidi and invisible characters and trailing blanks. Keeps line breaks, which boards need."""
    lines = (line if line.isprintable() else _drop_unprintable(line) for line in text.splitlines())
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def _drop_unprintable(line: str) -> str:
    return "".join(char for char in line.expandtabs(4) if unicodedata.category(char)[0] != "C")


def shorten(text: str, limit: int) -> str:
    """Cut a text to at most `limit` characters, with a note of how many characters were left out."""
    if len(text) <= limit:
        return text
    length = limit - 60
    return f"{text[:length]}\n[… {len(text) - length:,} further characters are left out]"
