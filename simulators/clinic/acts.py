"""Parse and format a doctor's acts, and state their rules."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping

from games.base import IllegalAct
from simulators.clinic.signs import LETTERS, number_of
from simulators.clinic.table import Table

ACT = re.compile(r"\s*(ask|test|diagnose)(?![a-z])\s*(.*?)\s*", re.IGNORECASE | re.DOTALL)
VERBS: Mapping[str, str] = {"a": "ASK", "t": "TEST", "d": "DIAGNOSE"}
USUAL, OFTEN, AT_TIMES = 0.8, 0.3, 0.05
"""Minimum probabilities of HPO's very frequent, frequent and occasional signs."""


def names(kind: str, table: Table) -> tuple[str, ...]:
    """Return the names of symptoms (a), tests (t) or diseases (d)."""
    return table.asked if kind == "a" else table.ordered if kind == "t" else table.names


def code(kind: str) -> str:
    """Return the characters that stand for the names of a kind in terse mode."""
    return string.digits[1:] if kind == "t" else LETTERS


def read_act(text: str, table: Table, terse: bool) -> tuple[str, int]:
    """Return kind and index of an act: a verb and a name or number from 1, or two letters in terse mode.

    Raises IllegalAct if the text is no act.
    """
    if terse:
        return _read_terse("".join(text.split()), table)
    match = ACT.fullmatch(text)
    if match is None:
        raise IllegalAct("write ASK and a symptom, TEST and a test, or DIAGNOSE and a disease")
    kind = match[1][0].lower()
    which = number_of(match[2], names(kind, table))
    if which is None:
        raise IllegalAct(f"{VERBS[kind]} one of those that are listed")
    return kind, which


def _read_terse(text: str, table: Table) -> tuple[str, int]:
    for kind in VERBS:
        if text[:1] == kind.upper() and len(text) == 2 and text[1] in code(kind)[: len(names(kind, table))]:
            return kind, code(kind).index(text[1])
    raise IllegalAct("write A, T or D and a letter or digit that there is")


def written(kind: str, which: int, table: Table, terse: bool) -> str:
    """Format an act in words, or in two letters in terse mode."""
    return f"{kind.upper()}{code(kind)[which]}" if terse else f"{VERBS[kind]} {names(kind, table)[which]}"


def rules(table: Table, terse: bool, pay: str, open_book: bool) -> str:
    """Return the rules; in terse mode only the first and last act of each kind."""
    if terse:
        ends = [(kind, len(names(kind, table)) - 1) for kind in VERBS]
        return " ".join(f"{written(kind, 0, table, True)}-{written(kind, last, table, True)}" for kind, last in ends)
    tests = "; ".join(f"{test} ({', '.join(shown)})" for test, shown in table.tests.items())
    lines = [
        f"You are the doctor in {table.world}: find out which disease the patient has. ASK symptom: the patient "
        "says yes, no or unsure, and may be wrong. TEST name: shows its findings and is never wrong. DIAGNOSE disease "
        f"ends the match. Your budget is of questions and tests together. {pay}",
        f"Symptoms: {', '.join(names('a', table))}.",
        f"Tests: {tests}.",
        f"Diseases: {', '.join(table.names)}.",
    ]
    return "\n".join([*lines, *(_book(table) if open_book else ())])


def _book(table: Table) -> Iterator[str]:
    """Yield the table in words: signs seen usually, often and at times in each disease."""
    signs = (*names("a", table), *table.all_findings)
    yield "Book (usual; often; at times):"
    for disease, name in enumerate(table.names):
        chances = [*table.symptoms[disease], *table.findings[disease]]
        usual = [sign for sign, chance in zip(signs, chances, strict=True) if chance >= USUAL]
        often = [sign for sign, chance in zip(signs, chances, strict=True) if OFTEN <= chance < USUAL]
        times = [sign for sign, chance in zip(signs, chances, strict=True) if AT_TIMES <= chance < OFTEN]
        yield f"{name}: {', '.join(usual)}; {', '.join(often)}; {', '.join(times)}."
