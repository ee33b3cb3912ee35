"""The airline's policy: rules about changes of bookings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulators.desk.airline.tables import FARES, LATE_MINUTES, MAX_BAGS, AirlineTables
from simulators.desk.policy import Rule

COMPENSATION = 120.0


def _find_booking_and_flight(air: AirlineTables, call: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    booking = air.find_booking(call["booking"]) or {}
    return booking, air.find_flight(booking.get("flight", "")) or {}


def _is_upcoming(air: AirlineTables, call: Mapping[str, str]) -> bool:
    booking, flight = _find_booking_and_flight(air, call)
    return booking.get("status") == "booked" and "day" in flight and air.days_since(flight["day"]) < 0


def _is_refundable(air: AirlineTables, call: Mapping[str, str]) -> bool:
    booking, _ = _find_booking_and_flight(air, call)
    return bool(booking) and (booking["fare"] == "flexible" or air.days_since(booking["booked"]) <= 1)


def _is_changeable(air: AirlineTables, call: Mapping[str, str]) -> bool:
    return _find_booking_and_flight(air, call)[0].get("fare") != "basic"


def is_same_route(air: AirlineTables, call: Mapping[str, str]) -> bool:
    """Return True if the call's `flight` has the same origin and destination as the flight of its `booking`."""
    _, old = _find_booking_and_flight(air, call)
    new = air.find_flight(call["flight"]) or {}
    return bool(old) and all(old[end] == new.get(end) for end in ("origin", "destination"))


def _has_seats(air: AirlineTables, call: Mapping[str, str]) -> bool:
    new = air.find_flight(call["flight"]) or {}
    return bool(new.get("free")) and air.days_since(new["day"]) < 0


def _is_upgrade(air: AirlineTables, call: Mapping[str, str]) -> bool:
    return FARES.index(call["fare"]) > FARES.index(_find_booking_and_flight(air, call)[0]["fare"])


def _is_within_bag_limit(air: AirlineTables, call: Mapping[str, str]) -> bool:
    return int(_find_booking_and_flight(air, call)[0]["bags"]) + int(call["bags"]) <= MAX_BAGS


def _is_original_payment(air: AirlineTables, call: Mapping[str, str]) -> bool:
    return _find_booking_and_flight(air, call)[0].get("payment") == call["refund_to"]


def _is_late(air: AirlineTables, call: Mapping[str, str]) -> bool:
    return int(_find_booking_and_flight(air, call)[1].get("delay", 0)) >= LATE_MINUTES


def _is_uncompensated(air: AirlineTables, call: Mapping[str, str]) -> bool:
    return not _find_booking_and_flight(air, call)[0].get("compensated")


RULES = (
    Rule(
        "departed", "Only bookings that stand, before the day they fly, can be cancelled or changed in any way.",
        ("departed", "already flown", "already left", "in the past", "already cancelled"),
        ("cancel_booking", "change_flight", "change_fare", "add_bags", "change_payment"), _is_upcoming,
    ),
    Rule(
        "not_refundable",
        "A booking can be cancelled only if its fare is flexible, or if it was booked today or yesterday.",
        ("not refundable", "non refundable", "not flexible", "24 hours"), ("cancel_booking",), _is_refundable,
    ),
    Rule(
        "basic_fare", "The flight of a basic fare cannot be changed.", ("basic fare", "basic"),
        ("change_flight",), _is_changeable,
    ),
    Rule(
        "other_route", "A flight can be changed only to one of the same route.",
        ("same route", "different route", "another route", "other route"), ("change_flight",), is_same_route,
    ),
    Rule(
        "full", "A flight can be changed only to one to come that has free seats.",
        ("full", "no seats", "no free seats", "sold out"), ("change_flight",), _has_seats,
    ),
    Rule(
        "no_downgrade", "A fare can be changed only to a higher one (basic, standard, flexible).",
        ("downgrade", "higher fare", "lower fare"), ("change_fare",), _is_upgrade,
    ),
    Rule(
        "too_many_bags", f"A booking has at most {MAX_BAGS} bags.",
        ("too many bags", f"{MAX_BAGS} bags", "three bags"),
        ("add_bags",), _is_within_bag_limit,
    ),
    Rule(
        "other_payment", "Refunds go to the payment method that paid for the booking.",
        ("original payment", "same payment", "payment method that paid", "method you paid with"),
        ("cancel_booking",), _is_original_payment,
    ),
    Rule(
        "not_late",
        f"A compensation of {COMPENSATION:g} is paid for flights that were {LATE_MINUTES} minutes late or more.",
        ("not late", "late enough", f"{LATE_MINUTES} minutes", "three hours"), ("compensate",), _is_late,
    ),
    Rule(
        "once", "A compensation is paid once.", ("already paid", "already compensated", "only once"),
        ("compensate",), _is_uncompensated,
    ),
)  # fmt: skip
