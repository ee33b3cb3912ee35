"""Table of the desk's domains, and the seat of a domain's customer."""

from __future__ import annotations

from collections.abc import Mapping

from simulators.desk.airline.world import Airline
from simulators.desk.customer import Customer
from simulators.desk.phone.caller import Caller
from simulators.desk.phone.seat import CallerSeat, PlayedCaller
from simulators.desk.phone.world import Phone
from simulators.desk.played import PlayedCustomer, PlayedSeat
from simulators.desk.record import Record
from simulators.desk.seat import Seat
from simulators.desk.shop.world import Shop
from simulators.desk.world import World
from simulators.person import Speech

WORLDS: Mapping[str, type[World]] = {"shop": Shop, "airline": Airline, "phone": Phone}


def make_seat(world: World, record: Record, person: Speech) -> Seat:
    """Create the seat of a match's customer, with the scripted customer in `customer`.

    `person` determines whether a script or the seat words its statements.
    """
    arguments = record, world.session, world.facts, world.subject, world.verbs
    if world.handset:
        if person == "played":
            return CallerSeat(PlayedCaller(*arguments, handset=world.handset), person)
        return Seat(Caller(*arguments, handset=world.handset), person)
    return PlayedSeat(PlayedCustomer(*arguments), person) if person == "played" else Seat(Customer(*arguments), person)
