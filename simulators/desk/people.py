"""Invented people: names, addresses and contact data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FIRST = (
    "Ada", "Bela", "Carl", "Dora", "Emil", "Fanny", "Gregor", "Hanna", "Igor", "Jana", "Kasper", "Lena",
    "Marek", "Nora", "Oskar", "Paula", "Quentin", "Rosa", "Stefan", "Tilda", "Ulrich", "Vera", "Walter",
    "Xenia", "Yann", "Zita", "Anton", "Berta", "Cosmo", "Delia",
)  # fmt: skip
LAST = (
    "Ashford", "Barlow", "Carver", "Dunmore", "Ellery", "Farrow", "Garrick", "Holloway", "Ingram", "Jessop",
    "Kendrick", "Lockwood", "Marlowe", "Norcross", "Ormsby", "Penrose", "Quill", "Radley", "Sedgwick", "Thorne",
    "Underhill", "Vance", "Wetherby", "Yardley", "Amberson", "Birch", "Calloway", "Draper", "Everard",
    "Fenwick", "Gilmour", "Hartley", "Ives", "Jarrow", "Kirby", "Lacey", "Merrick", "Nettle", "Osgood", "Pryor",
)  # fmt: skip
STREETS = (
    "Oak", "Mill", "Church", "Bridge", "Station", "Castle", "Garden", "Harbour", "Market", "Orchard", "River",
    "School",
)  # fmt: skip
TOWNS = (
    "Norwick", "Eastham", "Colby", "Darnley", "Fairhaven", "Glenmoor", "Hollis", "Kingsport", "Larkhill",
    "Milden", "Redcar", "Stanton",
)  # fmt: skip
LETTERS = "ABCDEFGHJKLMNPRSTUVWXY"


@dataclass(frozen=True)
class Person:
    """Name and contact data of a customer, who is verified by postcode and either email or name."""

    id: str
    name: str
    email: str
    postcode: str
    address: str


def draw_name(rng: np.random.Generator) -> str:
    """Draw a first and a last name, one of 1,200 combinations."""
    return f"{FIRST[rng.integers(len(FIRST))]} {LAST[rng.integers(len(LAST))]}"


def draw_person(rng: np.random.Generator, number: int, name: str) -> Person:
    """Draw the contact data of a person with this name and the id `C<number>`; number 1 is the customer at the desk."""
    email = f"{name.replace(' ', '').lower()}{rng.integers(10, 100)}@mail.example"
    return Person(f"C{number}", name, email, draw_postcode(rng), draw_address(rng, 1 if number == 1 else 200))


def draw_address(rng: np.random.Generator, first_number: int = 1) -> str:
    """Draw an address with a house number from `first_number` on: 1 for the customer at the desk, 200 for others."""
    street, town = STREETS[rng.integers(len(STREETS))], TOWNS[rng.integers(len(TOWNS))]
    return f"{first_number + rng.integers(199)} {street} Street {town}"


def draw_postcode(rng: np.random.Generator) -> str:
    """Draw a postcode such as K4 7QD."""
    first, second, third = (LETTERS[rng.integers(len(LETTERS))] for _ in range(3))
    return f"{first}{rng.integers(1, 10)} {rng.integers(1, 10)}{second}{third}"
