"""The phone company's tables: schema, generated rows, and faults of lines and phones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from simulators.desk.device.handset import Handset
from simulators.desk.device.settings import SETTINGS, THINGS
from simulators.desk.goals import Goal, Write
from simulators.desk.people import Person
from simulators.desk.world import World

FORBIDDEN = 0.25
"""Probability that the policy forbids the repair."""
NAMES = ("private", "work")
MIN_ROAMING_DAYS = 90
"""Age in days from which a line may roam."""
REPAIRS = {"suspended": "resume_line", "used_up": "add_data", "barred": "allow_roaming"}
"""Write that repairs each fault of the account."""
LAST_BILL = 9
"""Days since the last bill."""
DATA = 0.7
"""Share of matches about mobile data; the others are about calls."""

SCHEMA = """
CREATE TABLE lines (id TEXT PRIMARY KEY, customer TEXT, name TEXT, status TEXT, since TEXT, used REAL, data_limit REAL,
                    topped_up INTEGER, roaming INTEGER);
CREATE TABLE bills (line TEXT, day TEXT, amount REAL, paid INTEGER);
"""


class PhoneTables(World):
    """Database of a phone company, and the handset of the customer at the desk, who calls about line `number`."""

    schema = SCHEMA
    keys: ClassVar[Mapping[str, str]] = {**World.keys, "lines": "id"}
    subject, max_goals = "line", 3
    handset: Handset

    def find_line(self, line: str) -> dict[str, Any]:
        """Return the row of any customer's line by its number, or {} if there is none."""
        return self.fetch_row("SELECT * FROM lines WHERE id = ?", line) or {}

    def list_numbers_of(self, customer: str) -> list[str]:
        return [row["id"] for row in self.fetch_all("SELECT id FROM lines WHERE customer = ? ORDER BY id", customer)]

    # Generation of rows and faults.

    def fill_catalogue(self, rng: np.random.Generator) -> None:
        """Do nothing: there is no catalogue."""

    def add_purchases(self, person: Person, rng: np.random.Generator) -> None:
        """Add a person's payment methods, and two lines with three bills each, without faults."""
        self.add_payments(person, rng)
        for name in NAMES:
            number, limit = self.draw_number(rng), int(rng.integers(4, 20))
            data_used = round(float(rng.uniform(0.1, 0.9)) * limit, 1)
            row = (number, person.id, name, "active", self.days_ago(int(rng.integers(10, 900))), data_used, limit)
            self.insert_rows("lines", [(*row, int(rng.random() < 0.3), 1)])
            paid = [int(rng.random() < 0.7), 1, 1]
            amounts = (int(rng.integers(1000, 6000)) / 100 for _ in paid)
            self.insert_rows(
                "bills",
                [(number, self.days_ago(LAST_BILL + 30 * n), next(amounts), done) for n, done in enumerate(paid)],
            )
        if person is self.owner:
            pin, error_draws = self.draw_number(rng), {name: float(rng.random()) for name in SETTINGS}
            self.number = str(rng.choice(self.list_numbers_of(person.id)))
            self.handset = Handset(self.own_line, pin, error_draws=error_draws)

    def own_line(self) -> dict[str, Any]:
        """Return the row of the line about which the customer calls."""
        return self.find_line(self.number)

    def cause_faults(self, rng: np.random.Generator, count: int) -> Goal:
        """Cause `count` faults of the account and the phone. Returns the goal to get the service working again.

        A forbidden goal has one fault of the account, which the agent may not repair. Otherwise the number of the
        account's faults is drawn uniformly.
        """
        phone = self.handset
        phone.service, phone.abroad = "data" if rng.random() < DATA else "calls", bool(rng.random() < 0.5)
        names = ["suspended", *["used_up"] * (phone.service == "data"), *["barred"] * phone.abroad]
        forbidden = bool(rng.random() < FORBIDDEN)
        account_faults = int(rng.integers(0, min(count, len(names)) + 1))
        faults = [str(name) for name in rng.permutation(names)[: 1 if forbidden else account_faults]]
        for name in rng.permutation(phone.needed_settings)[: count - len(faults)]:
            phone.settings[str(name)] = SETTINGS[str(name)].bad
        for name in faults:
            self._break(name, forbidden)
        self.initial_rows = self.snapshot()
        writes = tuple(Write(REPAIRS[name], {"line": self.number}) for name in faults)
        bill = self.fetch_row("SELECT amount FROM bills WHERE line = ? ORDER BY day DESC", self.number) or {}
        thing = THINGS[phone.service]
        return Goal(
            f"get {thing} to work again with {{it}}{', here abroad' * phone.abroad}",
            self.number,
            hint=f"my {self.own_line()['name']} line",
            needs=writes,
            facts={"bill": f"{bill['amount']:.2f}"} if rng.random() < 0.3 and not forbidden else {},
            reasons=frozenset(name for write in writes for name in self.find_broken_rules(write)),
            mentions=(thing,),
        )

    def _break(self, fault: str, forbidden: bool) -> None:
        """Put a fault on the customer's line whose repair the policy allows, or forbids if `forbidden`."""
        number = self.number
        match fault:
            case "suspended":
                self.execute("UPDATE lines SET status = 'suspended' WHERE id = ?", number)
                self.execute("UPDATE bills SET paid = 1 WHERE line = ?", number)
                if forbidden:
                    self.execute(
                        "UPDATE bills SET paid = 0 WHERE line = ? AND day = ?", number, self.days_ago(LAST_BILL)
                    )
            case "used_up":
                self.execute("UPDATE lines SET used = data_limit, topped_up = ? WHERE id = ?", int(forbidden), number)
            case "barred":  # roaming
                since = self.days_ago(MIN_ROAMING_DAYS // 2 if forbidden else 2 * MIN_ROAMING_DAYS)
                self.execute("UPDATE lines SET roaming = 0, since = ? WHERE id = ?", since, number)
