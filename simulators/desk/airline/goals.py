"""Possible goals of the airline's customers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from simulators.desk.airline.tables import FARES, AirlineTables
from simulators.desk.goals import Goal, Write
from simulators.desk.people import draw_address

PAYMENTS = ("credit card", "gift card")


def draw_candidates(air: AirlineTables, rng: np.random.Generator) -> list[Goal]:
    """Return all goals that the customer at the desk could have: on its account, then on each booking."""
    address = draw_address(rng)
    goals = [
        Goal(
            f"change the address in my account to {address}",
            writes=(Write("change_account_address", {"address": address}),),
        )
    ]
    for booking in air.fetch_all("SELECT * FROM bookings WHERE customer = ? ORDER BY id", air.owner.id):
        flight = air.find_flight(booking["flight"])
        assert flight is not None
        hint = f"my booking to {flight['destination']}"
        for goal in _draw_goals(air, booking, flight, rng):
            goals.append(replace(goal, subject=booking["id"], hint=hint))
    return goals


def _draw_goals(
    air: AirlineTables, booking: dict[str, Any], flight: dict[str, Any], rng: np.random.Generator
) -> Iterator[Goal]:
    number, price = booking["id"], f"{booking['price']:.2f}"
    other = air.fetch_row("SELECT * FROM payments WHERE customer = ? AND id != ?", air.owner.id, booking["payment"])
    assert other is not None
    to, ask = booking["payment"], "whatever I paid with"
    if rng.random() < 0.25:
        to, ask = other["id"], f"my {other['method']}, which I did not pay with"
    cancel = Write("cancel_booking", {"booking": number, "refund_to": to})
    facts = {"refund": price} if rng.random() < 0.5 else {}
    yield Goal(f"cancel {{it}} and have the money back on {ask}", writes=(cancel,), facts=facts, details=PAYMENTS)
    yield _draw_change(air, number, booking, flight, rng)
    fare = FARES[rng.integers(len(FARES))]
    if fare != booking["fare"]:
        raised = Write("change_fare", {"booking": number, "fare": fare})
        yield Goal(f"upgrade {{it}} to the {fare} fare", writes=(raised,), details=FARES)
    bags = str(rng.integers(1, 4))
    added = Write("add_bags", {"booking": number, "bags": bags})
    yield Goal(f"add {bags} more to the bags of {{it}}", writes=(added,))
    paid = Write("change_payment", {"booking": number, "payment": other["id"]})
    yield Goal(f"pay for {{it}} with my {other['method']} instead", writes=(paid,), details=PAYMENTS)
    late = Write("compensate", {"booking": number})
    yield Goal("have a compensation for {it} because it was late", writes=(late,), mentions=(flight["id"],))
    answers = {"price": price, "day": flight["day"], "bags": str(booking["bags"]), "fare": booking["fare"]}
    names = [str(name) for name in rng.permutation(sorted(answers))[: int(rng.integers(1, 3))]]
    yield Goal("ask about {it}", facts={name: answers[name] for name in names}, mentions=(flight["id"],))


def _draw_change(
    air: AirlineTables, number: str, booking: dict[str, Any], flight: dict[str, Any], rng: np.random.Generator
) -> Goal:
    """Draw a goal to change to another day on the same route or, with probability 0.2, to another route."""
    flights = air.fetch_all("SELECT * FROM flights WHERE id != ? ORDER BY id", flight["id"])
    ends = ("origin", "destination")
    same = [
        other
        for other in flights
        if all(other[end] == flight[end] for end in ends) and air.days_since(other["day"]) < 0
    ]
    others = [
        other for other in flights if other["destination"] != flight["destination"] and air.days_since(other["day"]) < 0
    ]
    choice = others if rng.random() < 0.2 else same
    new = choice[rng.integers(len(choice))]
    equivalent = [each for each in choice if all(each[name] == new[name] for name in (*ends, "day"))]
    writes = tuple(Write("change_flight", {"booking": number, "flight": each["id"]}) for each in equivalent)
    difference = abs(new["price"] - booking["price"])
    facts = {"difference": f"{difference:.2f}"} if rng.random() < 0.5 and len(equivalent) == 1 else {}
    ask = f"move {{it}} to a flight from {new['origin']} to {new['destination']} on {new['day']}"
    return Goal(ask, writes=writes, facts=facts, mentions=(new["origin"], new["destination"]), details=(new["day"],))
