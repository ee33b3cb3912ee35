"""The airline's tables: schema, queries and generated rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from simulators.desk.people import TOWNS, Person
from simulators.desk.world import World

FARES = ("basic", "standard", "flexible")
MAX_BAGS = 3
LATE_MINUTES = 180
"""Minimum delay in minutes for a compensation."""
AIRPORTS = TOWNS[:10]
UPGRADE = 40.0
"""Price of each step between fares."""
DAYS_AHEAD = 30
"""Days ahead for which flights are sold."""
ALTERNATIVES = 3
"""Number of other flights on each booked route."""

SCHEMA = """
CREATE TABLE flights (id TEXT PRIMARY KEY, origin TEXT, destination TEXT, day TEXT, price REAL, free INTEGER,
                      delay INTEGER);
CREATE TABLE bookings (id TEXT PRIMARY KEY, customer TEXT, flight TEXT, fare TEXT, booked TEXT, status TEXT,
                       payment TEXT, price REAL, bags INTEGER, compensated INTEGER);
"""


class AirlineTables(World):
    """Database of an airline: customers, their bookings, and the flights that they booked or could change to."""

    schema = SCHEMA
    keys: ClassVar[Mapping[str, str]] = {**World.keys, "bookings": "id"}
    subject = "booking"

    def find_booking(self, booking: str) -> dict[str, Any] | None:
        """Return the row of the booking with this number, whoever owns it, or None."""
        return self.fetch_row("SELECT * FROM bookings WHERE id = ?", booking)

    def find_flight(self, flight: str) -> dict[str, Any] | None:
        """Return the row of the flight with this id, or None if there is none."""
        return self.fetch_row("SELECT * FROM flights WHERE id = ?", flight)

    def list_numbers_of(self, customer: str) -> list[str]:
        return [row["id"] for row in self.fetch_all("SELECT id FROM bookings WHERE customer = ? ORDER BY id", customer)]

    # Generation of rows.

    def fill_catalogue(self, rng: np.random.Generator) -> None:
        """Do nothing: flights are added with the bookings."""

    def add_purchases(self, person: Person, rng: np.random.Generator) -> None:
        """Add a person's payment methods and bookings: seven for the customer at the desk, two for anyone else.

        The customer's flights go to different destinations. All other people are booked on flights drawn for this
        customer.
        """
        card, gift = self.add_payments(person, rng)
        if person is self.owner:
            flights = self._add_flights(rng)
        else:
            existing = self.fetch_all("SELECT * FROM flights ORDER BY id")
            flights = [existing[rng.integers(len(existing))] for _ in range(2)]
        for flight in flights:
            age, fare = self.days_since(flight["day"]), FARES[rng.integers(len(FARES))]
            booked = self.days_ago(max(age, 0) + int(rng.integers(0, 2) if rng.random() < 0.3 else rng.integers(3, 60)))
            price = flight["price"] + UPGRADE * FARES.index(fare)
            payment, bags = card if rng.random() < 0.7 else gift, int(rng.integers(0, MAX_BAGS + 1))
            compensated = int(age > 0 and rng.random() < 0.2)
            number = self.draw_number(rng)
            row = (number, person.id, flight["id"], fare, booked, "booked", payment, price, bags, compensated)
            self.insert_rows("bookings", [row])

    def _add_flights(self, rng: np.random.Generator) -> list[dict[str, Any]]:
        """Add flights from one airport to seven others, some in the past. Returns one per route, for bookings."""
        bookable = []
        origin, *others = (str(town) for town in rng.permutation(AIRPORTS))
        for index, destination in enumerate(others[:7]):
            for copy in range(1 + ALTERNATIVES):
                past = copy == 0 and index % 3 == 0
                delay = int(rng.integers(LATE_MINUTES, 400)) if rng.random() < 0.5 else int(rng.integers(0, 60))
                flight = {
                    "id": f"F{100 + 10 * index + copy}", "origin": origin, "destination": destination,
                    "day": self.days_ago(int(rng.integers(1, 60)) if past else -int(rng.integers(2, DAYS_AHEAD))),
                    "price": int(rng.integers(60, 300)) + int(rng.integers(0, 4)) / 4,
                    "free": int(rng.integers(1, 40)) if rng.random() < 0.75 else 0, "delay": delay * past,
                }  # fmt: skip
                self.insert_rows("flights", [tuple(flight.values())])
                bookable += [flight] * (copy == 0)
        return bookable
