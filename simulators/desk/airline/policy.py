"""The airline's policy: rules about changes of bookings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulators.desk.airline.tables import FARES, LATE, MOST_BAGS, AirlineTables
from simulators.desk.policy import Rule

COMPENSATION = 120.0


def _booking_and_flight(air: AirlineTables, call: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    booking = air.booking(call["booking"]) or {}
    return booking, air.flight(booking.get("flight", "")) or {}


def _to_come(air: AirlineTables, call: Mapping[str, str]) -> bool:
    booking, flight = _booking_and_flight(air, call)
    return booking.get("status") == "booked" and "day" in flight and air.age(flight["day"]) < 0


def _refundable(air: AirlineTables, call: Mapping[str, str]) -> bool:
    booking, _ = _booking_and_flight(air, call)
    return bool(booking) and (booking["fare"] == "flexible" or air.age(booking["booked"]) <= 1)


def _changeable(air: AirlineTables, call: Mapping[str, str]) -> bool:
    return _booking_and_flight(air, call)[0].get("fare") != "basic"


def same_route(air: AirlineTables, call: Mapping[str, str]) -> bool:
    """Return True if the call's `flight` has the origin and destination of the flight that its `booking` is for."""
    _, old = _booking_and_flight(air, call)
    new = air.flight(call["flight"]) or {}
    return bool(old) and all(old[end] == new.get(end) for end in ("origin", "destination"))


def _seats(air: AirlineTables, call: Mapping[str, str]) -> bool:
    new = air.flight(call["flight"]) or {}
    return bool(new.get("free")) and air.age(new["day"]) < 0


def _upward(air: AirlineTables, call: Mapping[str, str]) -> bool:
    return FARES.index(call["fare"]) > FARES.index(_booking_and_flight(air, call)[0]["fare"])


def _bags(air: AirlineTables, call: Mapping[str, str]) -> bool:
    return int(_booking_and_flight(air, call)[0]["bags"]) + int(call["bags"]) <= MOST_BAGS


def _original(air: AirlineTables, call: Mapping[str, str]) -> bool:
    return _booking_and_flight(air, call)[0].get("payment") == call["refund_to"]


def _late(air: AirlineTables, call: Mapping[str, str]) -> bool:
    return int(_booking_and_flight(air, call)[1].get("delay", 0)) >= LATE


def _unpaid(air: AirlineTables, call: Mapping[str, str]) -> bool:
    return not _booking_and_flight(air, call)[0].get("compensated")


RULES = (
    Rule(
        "departed", "Only bookings that stand, before the day they fly, can be cancelled or changed in any way.",
        ("departed", "already flown", "already left", "in the past", "already cancelled"),
        ("cancel_booking", "change_flight", "change_fare", "add_bags", "change_payment"), _to_come,
    ),
    Rule(
        "not_refundable",
        "A booking can be cancelled only if its fare is flexible, or if it was booked today or yesterday.",
        ("not refundable", "non refundable", "not flexible", "24 hours"), ("cancel_booking",), _refundable,
    ),
    Rule(
        "basic_fare", "The flight of a basic fare cannot be changed.", ("basic fare", "basic"),
        ("change_flight",), _changeable,
    ),
    Rule(
        "other_route", "A flight can be changed only to one of the same route.",
        ("same route", "different route", "another route", "other route"), ("change_flight",), same_route,
    ),
    Rule(
        "full", "A flight can be changed only to one to come that has free seats.",
        ("full", "no seats", "no free seats", "sold out"), ("change_flight",), _seats,
    ),
    Rule(
        "no_downgrade", "A fare can be changed only to a higher one (basic, standard, flexible).",
        ("downgrade", "higher fare", "lower fare"), ("change_fare",), _upward,
    ),
    Rule(
        "too_many_bags", f"A booking has at most {MOST_BAGS} bags.",
        ("too many bags", f"{MOST_BAGS} bags", "three bags"),
        ("add_bags",), _bags,
    ),
    Rule(
        "other_payment", "Refunds go to the payment method that paid for the booking.",
        ("original payment", "same payment", "payment method that paid", "method you paid with"),
        ("cancel_booking",), _original,
    ),
    Rule(
        "not_late", f"A compensation of {COMPENSATION:g} is paid for flights that were {LATE} minutes late or more.",
        ("not late", "late enough", f"{LATE} minutes", "three hours"), ("compensate",), _late,
    ),
    Rule(
        "once", "A compensation is paid once.", ("already paid", "already compensated", "only once"),
        ("compensate",), _unpaid,
    ),
)  # fmt: skip
