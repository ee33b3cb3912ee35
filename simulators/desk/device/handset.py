"""State of a customer's phone, and its tools, which only the customer can use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from simulators.desk.device.settings import FAILS, SERVICE, SETTINGS, WORKS, Service, list_needed, word_statement
from simulators.tools import Tool

Name = Literal[
    "airplane_mode", "sim_card", "sim_lock", "mobile_data", "data_roaming", "network_mode", "apn", "vpn", "data_saver",
    "wifi_calling",
]  # fmt: skip
"""Names of the settings."""


@dataclass
class Handset:
    """Phone of the customer at the desk. Its services also depend on the account's line, whose row `line` returns."""

    line: Callable[[], Mapping[str, Any]]
    pin: str
    service: Service = "data"
    """Service that the customer complains about."""
    abroad: bool = False
    settings: dict[str, str] = field(default_factory=lambda: {name: each.good for name, each in SETTINGS.items()})
    error_draws: Mapping[str, float] = field(default_factory=dict)
    """Uniform draw in [0, 1) per setting: the customer errs with it if the draw is below the persona's error rate."""
    reported_values: dict[str, str] = field(default_factory=dict)
    """Values that the customer has told the agent, by setting or `SERVICE`."""

    @property
    def needed_settings(self) -> list[str]:
        """Names of the settings on which the service depends."""
        return list_needed(self.service, self.abroad)

    @property
    def is_working(self) -> bool:
        """True if the account's line and the phone's settings let the service work."""
        line = self.line()
        is_connected = line["status"] == "active" and (bool(line["roaming"]) or not self.abroad)
        has_data = self.service == "calls" or line["used"] < line["data_limit"]
        return (
            is_connected
            and has_data
            and all(self.settings[name] == SETTINGS[name].good for name in self.needed_settings)
        )

    def state(self, name: str) -> str:
        """Return a setting's value, or `WORKS` or `FAILS` for `SERVICE`."""
        return (WORKS if self.is_working else FAILS) if name == SERVICE else self.settings[name]

    def report(self, name: str) -> str:
        """Return `state(name)` as a sentence of the customer."""
        return word_statement(name, self.state(name), self.service)

    def list_instructions(self) -> list[str]:
        """Return the agent's next instructions: `SET` for settings known to be bad, then `LOOK` for unknown ones."""
        wrong = [name for name in self.needed_settings if self.reported_values.get(name, "") == SETTINGS[name].bad]
        return [f"SET {name} {SETTINGS[name].good}" for name in wrong] + [
            f"LOOK {name}" for name in self.needed_settings if name not in self.reported_values
        ]

    def copy(self) -> Handset:
        """Return an independent copy of the phone."""
        return replace(self, settings=dict(self.settings), reported_values=dict(self.reported_values))

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """Return the texts that would reveal the PIN, or the value of a setting that the agent was not told."""
        secrets = {name: (self.report(name),) for name in (*SETTINGS, SERVICE) if name not in self.reported_values}
        return {"pin": (self.pin,), **secrets}

    # The customer's tools.

    def tools(self) -> list[Tool]:
        """Return the customer's tools."""
        return [Tool.of(tool) for tool in (self.show_phone, self.change_setting, self.enter_pin, self.try_service)]

    def show_phone(self) -> dict[str, str]:
        """Show all settings of your phone."""
        return dict(self.settings)

    def change_setting(self, setting: Name, value: str) -> str:
        """Change a setting of your phone.
        Returns what it shows then. Raises ValueError for a value that it cannot have, and for the SIM lock.
        """
        if value not in SETTINGS[setting].values:
            raise ValueError(f"{setting} can be {' or '.join(SETTINGS[setting].values)}")
        if setting == "sim_lock":
            raise ValueError("the SIM lock opens by enter_pin(pin)")
        self.settings[setting] = value
        return self.report(setting)

    def enter_pin(self, pin: str) -> str:
        """Enter the PIN of your SIM card.
        Opens the SIM lock and returns what it shows. Raises ValueError for a wrong PIN.
        """
        if "".join(pin.split()) != self.pin:
            raise ValueError("this is not the PIN")
        self.settings["sim_lock"] = SETTINGS["sim_lock"].good
        return self.report("sim_lock")

    def try_service(self) -> str:
        """Try the service that does not work.
        Returns whether it works now.
        """
        return self.report(SERVICE)
