"""Relation programs: formal questions, evaluated on the world's facts or on facts read.

    Geskeil Beirdrel > mentor > birthplace          a chain; `^author` goes backwards, a number can only be last
    count Geskeil Beirdrel > ^author                number of results
    larger people: Klivael | Targael > ^seat        which of two has more (`smaller`: less)

Hops are the steps of a chain; a comparison has the longer chain's steps and one for the number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from simulators.search.relations import BY_CODE, NUMBERS, RELATIONS, Facts

Form = Literal["chain", "count", "larger", "smaller"]
NAME = re.compile(r"\w[\w '-]{0,79}")
MAX_STEPS = 8
MAX_CHARACTERS = 1_000
"""Maximum number of characters of a program."""


@dataclass(frozen=True)
class Chain:
    """Path from a thing (`start`) along relations (`steps`), `^relation` backwards; a number can only be last."""

    start: str
    steps: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " > ".join([self.start, *self.steps])


@dataclass(frozen=True)
class Program:
    """A formal question: a chain to follow or count, or two chains whose ends are compared by a number."""

    form: Form
    chains: tuple[Chain, ...]
    number: str = ""
    """Number by which a comparison compares, such as "people"."""

    def __deepcopy__(self, memo: object) -> Program:
        """Return the same object: a program is immutable."""
        return self

    @property
    def hops(self) -> int:
        """Number of consecutive facts that an answer needs: the longer chain's steps, and one for a comparison."""
        return max(len(chain.steps) for chain in self.chains) + bool(self.number)

    def __str__(self) -> str:
        if self.form in ("chain", "count"):
            return f"{'count ' if self.form == 'count' else ''}{self.chains[0]}"
        return f"{self.form} {self.number}: {self.chains[0]} | {self.chains[1]}"

    @property
    def terse(self) -> str:
        """The program in one-letter codes: `gc M B` (a chain), `#gc ^A` (count), `+N gc , mx` (larger)."""
        chains = [" ".join([chain.start, *(_encode_step(step) for step in chain.steps)]) for chain in self.chains]
        mark = {"chain": "", "count": "#", "larger": "+", "smaller": "-"}[self.form]
        return f"{mark}{RELATIONS[self.number].code + ' ' if self.number else ''}{' , '.join(chains)}"


def _encode_step(step: str) -> str:
    return "^" * (step[0] == "^") + RELATIONS[step.removeprefix("^")].code


def parse(text: str) -> Program:
    """Parse a program in words, such as `NAME > mentor > birthplace`. Raises ValueError with a one-line problem."""
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"a program has at most {MAX_CHARACTERS:,} characters, not {len(text):,}")
    text = " ".join(text.split())
    if match := re.fullmatch(r"(larger|smaller) (\w+) ?:([^|]+)\|([^|]+)", text):
        form, number, *sides = match.groups()
        if number not in NUMBERS:
            raise ValueError(f"things are compared by {', '.join(NUMBERS)}, not by {number}")
        return Program("larger" if form == "larger" else "smaller", tuple(map(_parse_chain, sides)), number)
    if text.startswith("count "):
        return _make_count(_parse_chain(text.removeprefix("count ")))
    return Program("chain", (_parse_chain(text),))


def parse_terse(text: str) -> Program:
    """Parse a program in one-letter codes, such as `gc M B`. Raises ValueError with a one-line problem."""
    text = text[:MAX_CHARACTERS].strip()
    if match := re.fullmatch(r"([+-])([A-Z]) ([^,]+),([^,]+)", text):
        sign, code, *sides = match.groups()
        if BY_CODE.get(code) not in NUMBERS:
            raise ValueError(f"{code} is no number")
        return Program("larger" if sign == "+" else "smaller", tuple(map(_parse_terse_chain, sides)), BY_CODE[code])
    if text.startswith("#"):
        return _make_count(_parse_terse_chain(text[1:]))
    return Program("chain", (_parse_terse_chain(text),))


def _make_count(chain: Chain) -> Program:
    if not chain.steps or not chain.steps[-1].startswith("^"):
        raise ValueError("what is counted ends in a step backwards, such as ^author")
    return Program("count", (chain,))


def _parse_chain(text: str) -> Chain:
    start, *steps = (part.strip() for part in text.split(">"))
    if not NAME.fullmatch(start):
        raise ValueError("a program begins with the name of a thing, then > and a relation")
    return _check_chain(Chain(start, tuple(steps)))


def _parse_terse_chain(text: str) -> Chain:
    start, *codes = text.split() or [""]
    if not NAME.fullmatch(start):
        raise ValueError("a program begins with the name of a thing")
    unknown = next((code for code in codes if code.removeprefix("^") not in BY_CODE), None)
    if unknown is not None:
        raise ValueError(f"there is no relation {unknown[:20]}")
    return _check_chain(Chain(start, tuple("^" * (code[0] == "^") + BY_CODE[code.removeprefix("^")] for code in codes)))


def _check_chain(chain: Chain) -> Chain:
    """Return the chain. Raises ValueError if it is too long or a step does not fit the kind of thing before it."""
    if len(chain.steps) > MAX_STEPS:
        raise ValueError(f"a program has at most {MAX_STEPS} steps, not {len(chain.steps)}")
    kind = ""
    for step in chain.steps:
        relation = RELATIONS.get(step.removeprefix("^"))
        if relation is None:
            raise ValueError(f"there is no relation {step[:40] or '(none)'}; there are {', '.join(RELATIONS)}")
        backwards = step.startswith("^")
        source, target = (relation.target, relation.source) if backwards else (relation.source, relation.target)
        if not source:
            raise ValueError(f"{step[:40]} goes backwards from a number, which is no thing")
        if kind not in ("", source):
            raise ValueError(f"{step[:40]} is of a {source}, not of a {kind if kind != 'number' else 'number'}")
        kind = target or "number"
    return chain


def find_ends(chain: Chain, facts: Facts) -> frozenset[str]:
    """Return the values at the end of a chain: several after backward steps, none if facts are missing."""
    names = frozenset([chain.start]) if facts.kind(chain.start) or chain.steps else frozenset()
    for step in chain.steps:
        names = frozenset(
            end
            for name in names
            for end in (facts.subjects(name, step[1:]) if step[0] == "^" else [facts.value(name, step)])
            if end
        )
    return names


def evaluate(program: Program, facts: Facts) -> frozenset[str]:
    """Evaluate a program on these facts and return all its answers as texts, none if facts are missing.

    A count needs a unique thing to count from, and a comparison unique ends with different numbers; else there is no
    answer.
    """
    if program.form == "chain":
        return find_ends(program.chains[0], facts)
    if program.form == "count":
        *before, last = program.chains[0].steps
        ends = find_ends(Chain(program.chains[0].start, tuple(before)), facts)
        return frozenset([str(len(facts.subjects(name, last[1:]))) for name in ends]) if len(ends) == 1 else frozenset()
    found = [find_ends(chain, facts) for chain in program.chains]
    if any(len(each) != 1 for each in found):
        return frozenset()
    names = [next(iter(each)) for each in found]
    values = [facts.value(name, program.number) for name in names]
    if not all(value.isdigit() for value in values) or int(values[0]) == int(values[1]):
        return frozenset()
    first = (int(values[0]) > int(values[1])) == (program.form == "larger")
    return frozenset([names[0] if first else names[1]])


def find_evidence(program: Program, facts: Facts) -> frozenset[str]:
    """Return the titles of the pages that state the facts behind a program's answer."""
    pages: set[str] = set()
    for chain in program.chains:
        names = frozenset([chain.start])
        for step in chain.steps:
            if step[0] == "^":
                names = frozenset(each for name in names for each in facts.subjects(name, step[1:]))
                pages |= names or {name for name in [chain.start] if program.form == "count"}
            else:
                pages |= {name for name in names if facts.value(name, step)}
                names = frozenset(facts.value(name, step) for name in names) - {""}
        pages |= names if program.number else set()
    return frozenset(pages)
