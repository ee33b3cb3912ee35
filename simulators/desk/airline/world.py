"""The airline's tools: cancel, move, upgrade and pay bookings, add bags, and compensate delays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from simulators.desk.airline import goals
from simulators.desk.airline.policy import COMPENSATION, RULES, is_same_route
from simulators.desk.airline.tables import AIRPORTS, FARES, LATE_MINUTES, UPGRADE, AirlineTables
from simulators.desk.goals import Goal, Write
from simulators.desk.policy import Fact

BAG = 25.0


class Airline(AirlineTables):
    """Airline domain of the desk: the tools and rules for bookings."""

    domain = "airline"
    rules = RULES
    reads = (
        "find_customer", "find_customer_by_name", "show_customer", "list_bookings", "show_booking", "show_flight",
        "search_flights", "list_airports",
    )  # fmt: skip
    writes = (
        "cancel_booking", "change_flight", "change_fare", "add_bags", "change_payment", "compensate",
        "change_account_address",
    )  # fmt: skip
    facts: ClassVar[Mapping[str, Fact]] = {
        "refund": Fact("how much I get back", "amount", ("refund", "refunded", "get back", "money back")),
        "difference": Fact("the difference in price", "amount", ("difference", "cheaper", "dearer")),
        "price": Fact("what it cost", "amount", ("price", "cost")),
        "day": Fact("on which day it flies", "date", ("day", "date", "flies", "leaves")),
        "bags": Fact("how many bags it includes", "number", ("bag", "bags")),
        "fare": Fact("of which fare it is", "word", ("fare",), FARES),
    }
    verbs: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "cancel_booking": ("cancel", "cancellation"),
        "change_flight": ("change the flight", "move", "rebook", "other flight"),
        "change_fare": ("upgrade", "change the fare"),
        "add_bags": ("add bags", "add a bag", "add 1", "add 2", "add 3", "extra bags"),
        "change_payment": ("payment method", "pay for", "pay with", "charged to"),
        "compensate": ("compensation", "compensated", "compensate"),
        "change_account_address": ("address in", "account address", "address on"),
    }

    # Tools.

    def list_bookings(self) -> list[dict[str, Any]]:
        """List the verified customer's bookings.
        Returns dicts with booking, flight, destination and status. Raises ValueError if nobody is verified.
        """
        return self.fetch_all(
            "SELECT bookings.id AS booking, flight, destination, status FROM bookings JOIN flights "
            "ON flights.id = flight WHERE customer = ? ORDER BY bookings.id",
            self.require_verified(),
        )

    def show_booking(self, booking: str) -> dict[str, Any]:
        """Show a booking of the verified customer: flight, fare, price, payment method, bags.
        Returns its row and notes it as looked up. Raises ValueError unless it is the verified customer's.
        """
        row = self._require_booking(booking)
        self.session.looked_up.add(booking)
        del row["customer"]
        return row | {"compensated": bool(row["compensated"])}

    def show_flight(self, flight: str) -> dict[str, Any]:
        """Show a flight: route, day, price, free seats, minutes of delay.
        Returns its row as a dict. Raises ValueError for an unknown flight.
        """
        row = self.find_flight(flight)
        if row is None:
            raise ValueError("there is no such flight; see search_flights(origin, destination)")
        return row

    def search_flights(self, origin: str, destination: str) -> list[dict[str, Any]]:
        """List the flights to come between two airports.
        Returns dicts with flight, day, price and free seats, by day.
        """
        return self.fetch_all(
            "SELECT id AS flight, day, price, free FROM flights WHERE lower(origin) = lower(?) AND "
            "lower(destination) = lower(?) AND day > ? ORDER BY day, id",
            origin, destination, self.today.isoformat(),
        )  # fmt: skip

    def list_airports(self) -> list[str]:
        """List all airports."""
        return sorted(AIRPORTS)

    def cancel_booking(self, booking: str, refund_to: str) -> dict[str, Any]:
        """Cancel a booking and pay its price back to a payment method.
        Records broken rules (`record_write`) and returns {"refund", "to"}. Raises ValueError for unknown or others'
        ids.
        """
        price = self._require_booking(booking)["price"]
        self.require_payment(refund_to)
        self.record_write(Write("cancel_booking", {"booking": booking, "refund_to": refund_to}))
        self.execute("UPDATE bookings SET status = 'cancelled' WHERE id = ?", booking)
        return self.store_refund(booking, refund_to, price)

    def change_flight(self, booking: str, flight: str) -> dict[str, Any]:
        """Move a booking to another flight; the difference in price goes through its payment method.
        Records broken rules; returns {"booking", "flight", "difference"}. Raises ValueError for unknown or others' ids.
        """
        old, new = self._require_booking(booking), self.show_flight(flight)
        self.record_write(Write("change_flight", {"booking": booking, "flight": flight}))
        self.execute("UPDATE bookings SET flight = ?, price = ? WHERE id = ?", flight, new["price"], booking)
        return {"booking": booking, "flight": flight, "difference": round(abs(new["price"] - old["price"]), 2)}

    def change_fare(self, booking: str, fare: str) -> dict[str, Any]:
        """Change a booking's fare: basic, standard or flexible; each step costs 40.
        Records broken rules; returns {"booking", "fare", "difference"}. Raises ValueError for another fare or id.
        """
        old = self._require_booking(booking)
        if fare not in FARES:
            raise ValueError(f"fares are {', '.join(FARES)}")
        self.record_write(Write("change_fare", {"booking": booking, "fare": fare}))
        difference = UPGRADE * (FARES.index(fare) - FARES.index(old["fare"]))
        self.execute("UPDATE bookings SET fare = ?, price = price + ? WHERE id = ?", fare, difference, booking)
        return {"booking": booking, "fare": fare, "difference": abs(difference)}

    def add_bags(self, booking: str, bags: str) -> dict[str, Any]:
        """Add this many bags to a booking, at 25 each.
        Records broken rules; returns {"booking", "added", "cost"}. Raises ValueError for other bags or booking ids.
        """
        self._require_booking(booking)
        if bags not in ("1", "2", "3"):
            raise ValueError("bags must be 1, 2 or 3")
        self.record_write(Write("add_bags", {"booking": booking, "bags": bags}))
        self.execute(
            "UPDATE bookings SET bags = bags + ?, price = price + ? WHERE id = ?", int(bags), BAG * int(bags), booking
        )
        return {"booking": booking, "added": int(bags), "cost": BAG * int(bags)}

    def change_payment(self, booking: str, payment: str) -> dict[str, Any]:
        """Change by which payment method a booking is paid.
        Records broken rules; returns {"booking", "payment", "method"}. Raises ValueError for unknown or others' ids.
        """
        self._require_booking(booking)
        method = self.require_payment(payment)
        self.record_write(Write("change_payment", {"booking": booking, "payment": payment}))
        self.execute("UPDATE bookings SET payment = ? WHERE id = ?", payment, booking)
        return {"booking": booking, "payment": payment, "method": method}

    def compensate(self, booking: str) -> dict[str, Any]:
        """Pay the compensation for a late flight, to the booking's payment method.
        Records broken rules (`record_write`) and returns {"refund", "to"}. Raises ValueError for unknown or others'
        ids.
        """
        row = self._require_booking(booking)
        self.record_write(Write("compensate", {"booking": booking}))
        self.execute("UPDATE bookings SET compensated = 1 WHERE id = ?", booking)
        return self.store_refund(f"{booking} late", row["payment"], COMPENSATION)

    # Helpers of the tools.

    def _require_booking(self, booking: str) -> dict[str, Any]:
        customer, row = self.require_verified(), self.find_booking(booking)
        if row is None or row["customer"] != customer:
            raise ValueError("this customer has no such booking; see list_bookings()")
        return row

    def draw_candidates(self, rng: np.random.Generator) -> list[Goal]:
        return goals.draw_candidates(self, rng)

    def list_lookups(self, numbers: Sequence[str], mentions: Sequence[str]) -> list[str]:
        """Return read calls that help with a request about these bookings, as text.

        `mentions` are an origin and a destination, or ids of flights.
        """
        calls = ["show_customer()", "list_bookings()", *(f'show_booking(booking="{number}")' for number in numbers)]
        calls += [f'show_flight(flight="{name}")' for name in mentions if name not in AIRPORTS]
        towns = [name for name in mentions if name in AIRPORTS]
        return calls + [
            f'search_flights(origin="{a}", destination="{b}")' for a, b in zip(towns[::2], towns[1::2], strict=False)
        ]

    def list_marks(self, write: Write) -> list[str]:
        """Return words for the booking's status, fare, age and flight, and how they relate to the write."""
        booking = self.find_booking(write.subject)
        flight = booking and self.find_flight(booking["flight"])
        if booking is None or flight is None:
            return []
        words = [booking["status"], booking["fare"], "fresh" if self.days_since(booking["booked"]) <= 1 else "old"]
        words += ["gone"] * (self.days_since(flight["day"]) >= 0) + ["late"] * (flight["delay"] >= LATE_MINUTES)
        words += ["paid"] * bool(booking["compensated"])
        if payment := write.arguments.get("refund_to"):
            words.append("own" if payment == booking["payment"] else "other")
        if new := self.find_flight(write.arguments.get("flight", "")):
            words.append("same" if is_same_route(self, write.arguments) else "another")
            words.append("seats" if new["free"] else "full")
        if bags := write.arguments.get("bags"):
            words.append(str(booking["bags"] + int(bags)))
        return words
