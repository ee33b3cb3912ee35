"""Played customer with a phone: the seat uses the phone's tools, and its statements about the phone are checked.

A tool call is a turn of this seat, and only this seat sees the result.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from games.base import IllegalAct
from simulators.desk.device.settings import read_claims, word_statement
from simulators.desk.goals import format_call
from simulators.desk.phone.caller import Caller
from simulators.desk.played import PlayedCustomer, PlayedSeat
from simulators.desk.speech import Speech
from simulators.played import Faults
from simulators.tools import read_calls, run

MAX_USES = 8
"""Maximum number of a played customer's calls between two texts."""


@dataclass(kw_only=True)
class PlayedCaller(Caller, PlayedCustomer):
    """Customer with a phone whose seat decides what to say and uses the phone's tools."""

    def hear(self, speech: Speech) -> str:
        """Return the script's reply as if the instructions had been followed. The phone itself does not change."""
        phone, self.handset = self.handset, self.handset.copy()
        try:
            return super().hear(speech)
        finally:
            self.handset = phone

    def list_unrequested_writes(self) -> set[str]:
        """Return the empty set: this customer may ask for any repair."""
        return set()


@dataclass
class CallerSeat(PlayedSeat):
    """Seat that plays a customer with a phone."""

    customer: PlayedCaller
    call_count: int = 0
    """Number of tool calls since the seat's last text."""

    def facts(self) -> dict[str, Any]:
        """Return the facts of `PlayedSeat`, the PIN of the SIM card, and the tool calls still to be made (`uses`)."""
        facts = super().facts()
        facts["about"] |= {"PIN": self.customer.handset.pin}
        return {**facts, "uses": list(self.customer.uses)}

    def use(self, text: str, limit: int) -> list[str]:
        """Run up to `limit` calls of the phone's tools in a text. Returns their results; [] if it has no calls.

        Raises IllegalAct for calls after the seat was told to say something.
        """
        calls = read_calls(text, limit)
        if calls and self.call_count > MAX_USES:
            raise IllegalAct("say something to the agent")
        results, tools = list[str](), self.customer.handset.tools()
        for call in calls:
            self.call_count += 1
            if self.call_count > MAX_USES:
                return [*results, "Error: enough calls. Say something to the agent now."]
            results.append(run(tools, call))
            call_text = format_call(call.name, call.arguments)
            self.customer.uses = [use for use in self.customer.uses if use != call_text]
        return results

    def hear(self, text: str) -> tuple[str, dict[str, float]]:
        """Apply the last checked text, as `PlayedSeat.hear` does, and reset the count of tool calls."""
        self.call_count = 0
        return super().hear(text)

    def check(self, text: str) -> Faults:
        """Return the faults of a text as `PlayedSeat.check` does, and those of its statements about the phone.

        Such a statement is wrong if the phone shows something else. The PIN counts as leaked. Due statements about
        settings are withheld if the text has none of them, or if the phone was not changed as instructed.
        """
        checked, phone = super().check(text), self.customer.handset
        wrong = [fact for fact in checked.wrong if fact != phone.pin]
        stated, due = read_claims(self.expand(text)), read_claims(self.template)
        wrong += [word_statement(name, value, phone.service) for name, value in stated if phone.state(name) != value]
        leaked = [*checked.leaked, *["the PIN"] * bool(re.search(rf"\b{phone.pin}\b", self.expand(text)))]
        missing = [name for name, value in due if phone.state(name) != value]
        if not missing and not {name for name, _ in due} & {name for name, _ in stated}:
            missing = [name for name, _ in due]
        withheld = [f"what {name} shows after you did what you were told" for name in missing]
        return Faults(wrong, leaked, [*checked.withheld, *withheld])
