"""Parse and format a doctor's acts, and write the rules of the game."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping

from games.base import IllegalAct
from simulators.clinic.signs import LETTERS, find_index
from simulators.clinic.table import Table

ACT = re.compile(r"\s*(ask|test|diagnose)(?![a-z])\s*(.*?)\s*", re.IGNORECASE | re.DOTALL)
VERBS: Mapping[str, str] = {"a": "ASK", "t": "TEST", "d": "DIAGNOSE"}
USUAL, OFTEN, AT_TIMES = 0.8, 0.3, 0.05
"""Minimum probabilities of very frequent, frequent and occasional signs in the Human Phenotype Ontology."""


def list_names(kind: str, table: Table) -> tuple[str, ...]:
    """Return the names that acts of a kind can mention: symptoms for "a", tests for "t", diseases for "d"."""
    return table.symptom_names if kind == "a" else table.test_names if kind == "t" else table.names


def list_codes(kind: str) -> str:
    """Return the one-character codes of a kind in terse mode: the nth code stands for the nth name.

    They are 1 to 9 for tests ("t"), else the letters a to z and A to Z.
    """
    return string.digits[1:] if kind == "t" else LETTERS


def read_act(text: str, table: Table, terse: bool) -> tuple[str, int]:
    """Parse an act to its kind ("a" ask, "t" test, "d" diagnose) and the index of its symptom, test or disease.

    The text has a name, or a number from 1; in terse mode it is a code such as `Ab` or `T1`. The returned index counts
    from 0. Raises IllegalAct for other texts.
    """
    if terse:
        return _read_terse("".join(text.split()), table)
    match = ACT.fullmatch(text)
    if match is None:
        raise IllegalAct("write ASK and a symptom, TEST and a test, or DIAGNOSE and a disease")
    kind = match[1][0].lower()
    index = find_index(match[2], list_names(kind, table))
    if index is None:
        raise IllegalAct(f"{VERBS[kind]} one of those that are listed")
    return kind, index


def _read_terse(text: str, table: Table) -> tuple[str, int]:
    for kind in VERBS:
        if text[:1] == kind.upper() and len(text) == 2 and text[1] in list_codes(kind)[: len(list_names(kind, table))]:
            return kind, list_codes(kind).index(text[1])
    raise IllegalAct("write A, T or D and a letter or digit that there is")


def format_act(kind: str, index: int, table: Table, terse: bool) -> str:
    """Format an act in words, such as `ASK fever`, or in terse mode as a code, such as `Ab`. `index` counts from 0."""
    return f"{kind.upper()}{list_codes(kind)[index]}" if terse else f"{VERBS[kind]} {list_names(kind, table)[index]}"


def rules(table: Table, terse: bool, pay: str, open_book: bool) -> str:
    """Return the rules of the game: acts, all names, and `pay`, a sentence on rewards. `open_book` adds the table.

    In terse mode the rules are only the codes of the first and last act of each kind.
    """
    if terse:
        ends = [(kind, len(list_names(kind, table)) - 1) for kind in VERBS]
        return " ".join(
            f"{format_act(kind, 0, table, True)}-{format_act(kind, last, table, True)}" for kind, last in ends
        )
    tests = "; ".join(f"{test} ({', '.join(findings)})" for test, findings in table.tests.items())
    lines = [
        f"You are the doctor in {table.world}: find out which disease the patient has. ASK symptom: the patient "
        "says yes, no or unsure, and may be wrong. TEST name: shows its findings and is never wrong. DIAGNOSE disease "
        f"ends the match. Your budget is of questions and tests together. {pay}",
        f"Symptoms: {', '.join(list_names('a', table))}.",
        f"Tests: {tests}.",
        f"Diseases: {', '.join(table.names)}.",
    ]
    return "\n".join([*lines, *(_describe_diseases(table) if open_book else ())])


def _describe_diseases(table: Table) -> Iterator[str]:
    """Yield a heading, then a line per disease with its usual, common and occasional signs."""
    signs = (*list_names("a", table), *table.all_findings)
    yield "Book (usual; often; at times):"
    for disease, name in enumerate(table.names):
        chances = [*table.symptoms[disease], *table.findings[disease]]
        usual = [sign for sign, chance in zip(signs, chances, strict=True) if chance >= USUAL]
        often = [sign for sign, chance in zip(signs, chances, strict=True) if OFTEN <= chance < USUAL]
        times = [sign for sign, chance in zip(signs, chances, strict=True) if AT_TIMES <= chance < OFTEN]
        yield f"{name}: {', '.join(usual)}; {', '.join(often)}; {', '.join(times)}."
