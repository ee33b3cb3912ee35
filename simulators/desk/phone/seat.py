"""Played customer with a phone: the seat has the phone's tools, and its reports of the phone are checked.

A call is a turn of this seat, and its result is for this seat alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from games.base import IllegalAct
from simulators.desk.device.settings import claims, statement
from simulators.desk.goals import written
from simulators.desk.phone.caller import Caller
from simulators.desk.played import PlayedCustomer, PlayedSeat
from simulators.desk.speech import Speech
from simulators.played import Checked
from simulators.tools import read_calls, run

MOST_USES = 8
"""Calls that a played customer may make before it must say something."""


@dataclass(kw_only=True)
class PlayedCaller(Caller, PlayedCustomer):
    """Customer with a phone whose seat decides what to say, and uses the phone itself."""

    def hear(self, speech: Speech) -> str:
        """Return what the script would say after it did what it was told; the phone itself stays as it is."""
        phone, self.handset = self.handset, self.handset.copy()
        try:
            return super().hear(speech)
        finally:
            self.handset = phone

    def unwanted(self) -> set[str]:
        """Return no requests: it may ask for any repair."""
        return set()


@dataclass
class CallerSeat(PlayedSeat):
    """Seat that plays a customer with a phone."""

    customer: PlayedCaller
    used: int = 0
    """Calls since it last said something."""

    def facts(self) -> dict[str, Any]:
        """Return what a played customer sees, the PIN of its SIM card, and the calls that are due (`uses`)."""
        facts = super().facts()
        facts["about"] |= {"PIN": self.customer.handset.pin}
        return {**facts, "uses": list(self.customer.uses)}

    def use(self, text: str, limit: int) -> list[str]:
        """Run the calls in a text with the phone's tools and return their results; [] if it calls none.

        Raises IllegalAct for calls after the seat was told to say something.
        """
        calls = read_calls(text, limit)
        if calls and self.used > MOST_USES:
            raise IllegalAct("say something to the agent")
        results, tools = list[str](), self.customer.handset.tools()
        for call in calls:
            self.used += 1
            if self.used > MOST_USES:
                return [*results, "Error: enough calls. Say something to the agent now."]
            results.append(run(tools, call))
            done = written(call.name, call.arguments)
            self.customer.uses = [use for use in self.customer.uses if use != done]
        return results

    def hear(self, text: str) -> tuple[str, dict[str, float]]:
        """Let the text that was checked last take effect."""
        self.used = 0
        return super().hear(text)

    def check(self, text: str) -> Checked:
        """Return the faults of a text as PlayedSeat does.

        What it says of its phone is wrong if the phone does not show it; the PIN is leaked; and what the agent asked
        for is withheld if the text does not speak of it, or if the phone was not changed as it was told.
        """
        checked, phone = super().check(text), self.customer.handset
        wrong = [fact for fact in checked.wrong if fact != phone.pin]
        said, due = claims(self.expanded(text)), claims(self.template)
        wrong += [statement(name, value, phone.service) for name, value in said if phone.state(name) != value]
        leaked = [*checked.leaked, *["the PIN"] * bool(re.search(rf"\b{phone.pin}\b", self.expanded(text)))]
        missing = [name for name, value in due if phone.state(name) != value]
        if not missing and not {name for name, _ in due} & {name for name, _ in said}:
            missing = [name for name, _ in due]
        withheld = [f"what {name} shows after you did what you were told" for name in missing]
        return Checked(wrong, leaked, [*checked.withheld, *withheld])
