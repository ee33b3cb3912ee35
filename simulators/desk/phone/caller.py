"""Scripted customer with a phone: it follows the agent's instructions and reports the phone's display.

It does nothing else with the phone. Some personas may fail at first to find or change a setting, and report that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from simulators.desk.customer import Customer
from simulators.desk.device.handset import Handset
from simulators.desk.device.settings import CLAIMS, SERVICE, SETTINGS
from simulators.desk.device.steps import Step
from simulators.desk.goals import format_call
from simulators.desk.policy import Consent
from simulators.desk.record import SLIP, Outcome
from simulators.desk.speech import Proposal, Speech
from simulators.extractor import Reading
from simulators.person import PERSONAS

LOCKING = Step("sim_lock", SETTINGS["sim_lock"].bad)
"""Step that the phone has no tool for, so it is ignored."""


@dataclass(kw_only=True)
class Caller(Customer):
    """Scripted customer with a phone (`handset`).

    It agrees to any repair of its line. Its goal is fulfilled when the service works.
    """

    handset: Handset
    tries_service: bool = False
    """Whether the agent's last message made it try the service."""
    instructions: list[Step] = field(default_factory=list)
    """All instructions so far, including repeated ones."""
    uses: list[str] = field(default_factory=list)
    """Calls of the phone's tools that the agent's last message requires."""

    def read(self, text: str, has_proposal: bool) -> Reading:
        """Parse a text as `Customer.read` does, including its statements about the phone."""
        base, phone = super().read(text, has_proposal), CLAIMS.understand(text)
        return Reading({**base.facts, **phone.facts}, base.unclear & phone.unclear)

    def hear(self, speech: Speech) -> str:
        """Process the agent's message as `Customer.hear` does.

        Tries the service if told to, or if asked for anything else.
        """
        self.tries_service, self.uses = speech.more or any(step.name == SERVICE for step in speech.steps), []
        return super().hear(speech)

    def follow(self, steps: Sequence[Step]) -> tuple[bool, list[str]]:
        """Do the steps on the phone. Returns (whether any may have helped, one statement per setting).

        A step counts as helpful the first two times. The statements describe the phone's final state, or say that a
        setting was not found.
        """
        useful, found = False, dict[str, bool]()
        for step in steps:
            useful |= self.instructions.count(step) < 2
            found[step.name] = self._follow_step(step)
            self.instructions.append(step)
        return useful, [self._tell(name, is_found) for name, is_found in found.items()]

    def make_consent(self, proposal: Proposal) -> Consent | None:
        """Return the consent to a proposed write on the customer's line; None for any other proposal."""
        if not self._wants(proposal):
            return None
        tool = proposal.write.tool if proposal.write else min(proposal.tools)
        return Consent(tool, self.goal.subject, proposal.write)

    def _wants(self, proposal: Proposal) -> bool:
        if (write := proposal.write) is not None:
            return write.tool in self.verbs and write.arguments == {"line": self.goal.subject}
        return len(proposal.tools) == 1 and proposal.numbers <= {self.goal.subject}

    def _is_fulfilled(self, outcome: Outcome) -> bool:
        return self.tries_service and self.handset.is_working and outcome.told_facts.keys() >= self.goal.facts.keys()

    def _follow_step(self, step: Step) -> bool:
        """Do a step on the phone. The persona may err; returns False if it does not find the setting."""
        name, value = step
        phone, persona = self.handset, PERSONAS[self.record.persona]
        slips = min(1.0, SLIP * persona.slips) if persona.slips > 1 else 0.0
        errs = step not in self.instructions and phone.error_draws.get(name, 1.0) < (
            slips if value else persona.forgets
        )
        if not value:
            self._use("try_service" if name == SERVICE else "show_phone", {})
            return not errs
        if phone.state(name) != value and step != LOCKING and not errs:
            if name == "sim_lock":
                self._use("enter_pin", {"pin": phone.pin})
            else:
                self._use("change_setting", {"setting": name, "value": value})
        return True

    def _tell(self, name: str, is_found: bool) -> str:
        if not is_found:
            return self._say("unknown", name, f"I do not find {SETTINGS[name].name}.")
        return self._say("inform", name, self.handset.report(name))

    def _use(self, tool: str, arguments: dict[str, str]) -> None:
        self.uses.append(format_call(tool, arguments))
        getattr(self.handset, tool)(**arguments)
