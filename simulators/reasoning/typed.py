"""Typed tasks: families of tasks that a proposer can write and whose answers a checker can compute.

Each family has the wording and answers of a family of reasoning-gym, so its fixed test set measures learning here. A
task is a short text in normal form with exactly one answer, an integer.
"""

from __future__ import annotations

import functools
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from games.base import whole_number
from simulators.reasoning import expression

MAX_CHARACTERS = 200
"""Maximum number of characters of a proposal."""
NUMBER = re.compile(r"-?\d+", re.ASCII)
Limits = Mapping[str, tuple[int, int, int]]
WHOLE = re.compile(r"[+-]?\d{1,400}(?:\.0*)?", re.ASCII)


@dataclass(frozen=True)
class TypedTask:
    """Well-formed task of a family, with its question and its integer answer."""

    text: str
    """The task in normal form: tasks that differ only in spaces are equal."""
    question: str
    answer: int
    terms: int
    """Number of numbers in the task."""
    digits: int
    """Number of digits of the largest number."""

    @property
    def is_trivial(self) -> bool:
        """True if the answer is one of the numbers in the task."""
        return any(int(number) == self.answer for number in NUMBER.findall(self.text.replace("- ", "")))

    def split_after(self, numbers: int) -> tuple[str, str]:
        """Split the text after its first `numbers` numbers. With 0, the first part is empty."""
        end = list(re.finditer(r"\d+", self.text))[numbers - 1].end() if numbers else 0
        return self.text[:end], self.text[end:]


class Family(ABC):
    """Base class of a kind of task with one integer answer, such as sums. `settings` limit the size of tasks.

    `check` parses a proposal's text to a task, `draw` generates a task. Unknown or invalid settings raise ValueError.
    """

    name: ClassVar[str]
    form: ClassVar[str]
    """Description of a proposal's form, for the proposer."""
    wording: ClassVar[tuple[str, str]]
    """Wording of the question before and after the task."""
    limits: ClassVar[Limits]
    """Default, minimum and maximum of each setting."""

    def __init__(self, **settings: Any) -> None:
        for name in settings:
            if name not in self.limits:
                raise ValueError(f"families: {self.name} has no setting '{name}' (it has {', '.join(self.limits)})")
        self.settings = {
            name: whole_number(f"families: {self.name}.{name}", settings.get(name, default), minimum, maximum)
            for name, (default, minimum, maximum) in self.limits.items()
        }

    def check(self, text: str) -> TypedTask:
        """Parse a proposal to a task. Raises ValueError if it is malformed or exceeds the limits."""
        if len(text) > MAX_CHARACTERS:
            raise ValueError(f"a task has at most {MAX_CHARACTERS} characters")
        normal_form, numbers, answer = self.read(text)
        digits = max(len(str(abs(number))) for number in numbers)
        return TypedTask(normal_form, normal_form.join(self.wording), answer, len(numbers), digits)

    def draw(self, rng: np.random.Generator) -> TypedTask:
        """Draw a random task within the limits."""
        return self.check(self.write(rng))

    @abstractmethod
    def read(self, text: str) -> tuple[str, Sequence[int], int]:
        """Parse a proposal to (normal form, its numbers, answer). Raises ValueError if malformed or too large."""

    @abstractmethod
    def write(self, rng: np.random.Generator) -> str:
        """Draw a random task within the limits and return its text."""


class Chain(Family):
    """Numbers joined by `operators`, without parentheses. All numbers of a drawn task have equally many digits."""

    operators: ClassVar[str]
    limits: ClassVar[Limits] = {"max_terms": (3, 2, 12), "max_digits": (2, 1, 10)}

    def read(self, text: str) -> tuple[str, Sequence[int], int]:
        """Parse a chain to (normal form, numbers, answer). Raises ValueError if malformed or beyond the limits."""
        tokens = expression.tokenise(text)
        for token in tokens:
            if not token.isdigit() and token not in self.allowed_tokens:
                raise ValueError(f"{token!r} does not belong to {self.form}")
        numbers = [int(token) for token in tokens if token.lstrip("-").isdigit()]
        self._check_limits(tokens, numbers)
        return " ".join(tokens), numbers, expression.evaluate(tokens)

    def write(self, rng: np.random.Generator) -> str:
        """Draw a task's text as reasoning-gym does: first the number of terms, then of digits, then each term."""
        terms = int(rng.integers(2, self.settings["max_terms"] + 1))
        digits = int(rng.integers(1, self.settings["max_digits"] + 1))
        numbers = rng.integers(10 ** (digits - 1) if digits > 1 else 0, 10**digits, size=terms)
        signs = rng.choice(list(self.operators), size=terms - 1)
        return "".join(f"{number} {sign} " for number, sign in zip(numbers, signs, strict=False)) + str(numbers[-1])

    @functools.cached_property
    def allowed_tokens(self) -> frozenset[str]:
        """Tokens that a task may contain in addition to unsigned numbers."""
        return frozenset(self.operators)

    def _check_limits(self, tokens: Sequence[str], numbers: Sequence[int]) -> None:
        terms, digits = self.settings["max_terms"], self.settings["max_digits"]
        if not 2 <= len(numbers) <= terms:
            raise ValueError(f"a task has from 2 to {terms} numbers, not {len(numbers)}")
        if any(abs(number) >= 10**digits for number in numbers):
            raise ValueError(f"a number has at most {digits} digits")


class ChainSum(Chain):
    """Sums and differences, such as `8 + 3 - 5`."""

    name, operators = "chain_sum", "+-"
    form = "numbers joined by + and -, such as [8 + 3]"
    wording = ("State the final answer to the following arithmetic problem: ", " =")


class Products(Chain):
    """Products, such as `8 * 3`."""

    name, operators = "products", "*"
    form = "numbers joined by *, such as [8 * 3]"
    wording = ("Solve the following multiplication: ", ". Give only the result as your final answer.")
    limits: ClassVar[Limits] = {"max_terms": (2, 2, 6), "max_digits": (2, 1, 6)}


class BasicArithmetic(Chain):
    """Sums, differences and products with signs and parentheses; multiplication takes precedence."""

    name, operators = "basic_arithmetic", "+-*"
    form = "numbers joined by +, - and *, with parentheses, such as [8 - 2 * 3]"
    wording = ("Calculate ", ".")
    limits: ClassVar[Limits] = {"max_terms": (4, 2, 8), "max_digits": (2, 1, 6)}

    @functools.cached_property
    def allowed_tokens(self) -> frozenset[str]:
        """Operators, parentheses, and a sign before a parenthesis."""
        return frozenset({"+", "-", "*", "(", ")", "-("})

    def read(self, text: str) -> tuple[str, Sequence[int], int]:
        """Parse an expression to (normal form, numbers, answer). Raises ValueError if malformed or too large."""
        tokens = expression.tokenise(text)
        numbers = [int(token) for token in tokens if token.lstrip("-").isdigit()]
        self._check_limits(tokens, numbers)
        return " ".join(tokens), numbers, expression.evaluate(tokens)

    def write(self, rng: np.random.Generator) -> str:
        """Draw a chain's text. Half of the chains with three or more terms get parentheses around some terms."""
        parts = super().write(rng).split(" ")
        if len(parts) > 3 and rng.random() < 0.5:
            terms = (len(parts) + 1) // 2
            first = int(rng.integers(0, terms - 1))
            last = int(rng.integers(first + 1, terms - (first == 0)))
            parts[2 * first], parts[2 * last] = f"( {parts[2 * first]}", f"{parts[2 * last]} )"
        return " ".join(parts)


class Numbers(Family):
    """Base class of lists of positive integers. The answer is the subclass's function `combine` of all of them."""

    combine: ClassVar[Callable[..., int]]
    limits: ClassVar[Limits] = {"max_numbers": (2, 2, 6), "max_value": (100, 2, 100_000)}

    def read(self, text: str) -> tuple[str, Sequence[int], int]:
        """Parse comma-separated integers to (normal form, numbers, answer). Raises ValueError if they are invalid."""
        parts = [part.strip() for part in text.split(",")]
        if not all(part.isascii() and part.isdigit() for part in parts):
            raise ValueError("a task is whole numbers with commas between them")
        max_numbers, max_value = self.settings["max_numbers"], self.settings["max_value"]
        numbers = [int(part) for part in parts]
        if not 2 <= len(numbers) <= max_numbers:
            raise ValueError(f"a task has from 2 to {max_numbers} numbers, not {len(numbers)}")
        if min(numbers) < 1 or max(numbers) > max_value:
            raise ValueError(f"a number is from 1 to {max_value}")
        return ", ".join(map(str, numbers)), numbers, self.combine(*numbers)

    def write(self, rng: np.random.Generator) -> str:
        """Draw numbers within the limits and return them as text, separated by commas."""
        size = int(rng.integers(2, self.settings["max_numbers"] + 1))
        return ", ".join(map(str, rng.integers(1, self.settings["max_value"] + 1, size=size)))


class Gcd(Numbers):
    """The greatest common divisor of a list of numbers."""

    name, combine = "gcd", staticmethod(math.gcd)
    form = "whole numbers with commas between them, such as [12, 18]"
    wording = (
        "Find the Greatest Common Divisor (GCD) of these numbers: ",
        ". Give only the GCD as your final answer.",
    )


class Lcm(Numbers):
    """The least common multiple of a list of numbers."""

    name, combine = "lcm", staticmethod(math.lcm)
    form = "whole numbers with commas between them, such as [12, 18]"
    wording = ("Find the Least Common Multiple (LCM) of these numbers: ", "")


FAMILIES: Mapping[str, type[Family]] = {kind.name: kind for kind in (ChainSum, Products, BasicArithmetic, Gcd, Lcm)}


SPELL_BACKWARD = ("Spell this word backward (example: sun -> nus): ", "")
"""Wording of reasoning-gym's family `spell_backward`. It has no typed family, because its answers are not integers."""


def make_families(option: object) -> dict[str, Family]:
    """Create the families of the option `families`, by name: a name, a list of names, or names with settings.

    Raises ValueError for an unknown family or an invalid setting.
    """
    by_name = {option: {}} if isinstance(option, str) else option
    if isinstance(by_name, list | tuple):
        by_name = {name: {} for name in by_name}
    if not isinstance(by_name, Mapping) or not by_name:
        raise ValueError(f"families must be a name, a list of names, or names with settings, not {option!r}")
    families = {}
    for name, settings in by_name.items():
        if name not in FAMILIES:
            raise ValueError(f"families: there is no family '{name}' of typed tasks; there are {', '.join(FAMILIES)}")
        if not isinstance(settings or {}, Mapping):
            raise ValueError(f"families: the settings of {name} must be names and values, not {settings!r}")
        families[str(name)] = FAMILIES[name](**(settings or {}))
    return families


def strip_wording(family: str, question: str) -> str:
    """Return a reasoning-gym question without the family's wording, or the whole question if its wording differs."""
    wordings = {name: kind.wording for name, kind in FAMILIES.items()} | {"spell_backward": SPELL_BACKWARD}
    before, after = wordings.get(family, ("", ""))
    if not (question.startswith(before) and question.endswith(after)):
        return question
    return question[len(before) : len(question) - len(after)]


def is_same_number(text: str, answer: int) -> bool:
    """Return True if a text is this integer, ignoring a plus sign, leading zeros, commas and ".00"."""
    plain = text.strip().replace(",", "")
    return WHOLE.fullmatch(plain) is not None and int(plain.partition(".")[0]) == answer
