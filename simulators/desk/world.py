"""Base class of the domains: a database of customers and purchases, its tools, and the policy's checks.

Tools protect private data: without a verified customer they show and change nothing, and the attempt is a breach. All
other rules are the agent's duty: a tool obeys, and broken rules are recorded by name.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from games.base import to_one_line
from simulators.confine.sql import Database
from simulators.desk.device.handset import Handset
from simulators.desk.goals import Goal, Write, normalise
from simulators.desk.people import Person, draw_name, draw_person
from simulators.desk.policy import CONFIRMATION, IDENTITY, Fact, Rule, Session
from simulators.tools import Tool

OTHERS = 6
"""Number of customers other than the one at the desk."""
ADDRESS_LENGTH = 80
MAX_GOALS = 4

SCHEMA = """
CREATE TABLE customers (id TEXT PRIMARY KEY, name TEXT, email TEXT, postcode TEXT, address TEXT);
CREATE TABLE payments (id TEXT PRIMARY KEY, customer TEXT, method TEXT);
CREATE TABLE refunds (subject TEXT PRIMARY KEY, payment TEXT, amount REAL);
"""
Diff = dict[tuple[str, str, str], object]
"""New values by (table, key, column). A deleted row has the value None at (table, key, "")."""


class World:
    """Base class of a domain: a seeded database of customers and purchases, its tools, and checks of the policy.

    `owner` is the customer at the desk. Tools obey even against the rules, and `session.breaches` records broken ones.
    """

    domain: ClassVar[str]
    schema: ClassVar[str]
    keys: ClassVar[Mapping[str, str]] = {"customers": "id", "payments": "id", "refunds": "subject"}
    """Primary key of each table."""
    reads: ClassVar[tuple[str, ...]]
    """Names of the methods that are read-only tools; those in `writes` change the database."""
    writes: ClassVar[tuple[str, ...]]
    rules: ClassVar[tuple[Rule, ...]]
    """Rules about writes. `PRIVACY` is a further reason to deny."""
    facts: ClassVar[Mapping[str, Fact]]
    verbs: ClassVar[Mapping[str, tuple[str, ...]]]
    """Normalised phrases (`fold`) for each write tool."""
    subject: ClassVar[str]
    """Kind of numbered object and name of the tools' argument for it: `order`, `booking` or `line`."""
    max_goals: ClassVar[int] = MAX_GOALS
    """Maximum value of the game's option `goals`."""
    guide: ClassVar[str] = ""
    """Further instructions for the agent, about acts that only this domain has; ends with a space."""
    handset: Handset | None = None
    """Phone that only the customer sees and changes; None if the domain has none."""
    instructions: ClassVar[Sequence[str]] = ()
    """Acts that instruct the customer about its phone."""

    def __init__(self, rng: np.random.Generator, others: np.random.Generator, name: str) -> None:
        self.database, self.session = Database(SCHEMA + self.schema), Session()
        self.today = datetime.date(2026, 1, 1) + datetime.timedelta(days=int(rng.integers(365)))
        self.used_numbers: set[str] = set()
        """All drawn numbers: those in use, and those reserved in `unused_numbers`."""
        self.database.connection.execute("BEGIN")
        self.owner = draw_person(rng, 1, name)
        self.fill_catalogue(rng)
        self.add_customer(self.owner)
        self.add_purchases(self.owner, rng)
        self.unused_numbers = [self.draw_number(rng) for _ in range(MAX_GOALS)]
        while (stranger := draw_name(rng)) == name:
            pass
        self.stranger = stranger
        names = {name, stranger}
        for number in range(2, 2 + OTHERS):
            while (other := draw_name(others)) in names:
                pass
            names.add(other)
            person = draw_person(others, number, other)
            self.add_customer(person)
            self.add_purchases(person, others)
        self.database.connection.execute("COMMIT")
        self.initial_rows = self.snapshot()

    # Methods that each domain defines.

    def fill_catalogue(self, rng: np.random.Generator) -> None:
        """Fill the tables that belong to no customer, such as a catalogue. Called before any customer is added."""
        raise NotImplementedError

    def add_purchases(self, person: Person, rng: np.random.Generator) -> None:
        """Add a person's payment methods and purchases to the database."""
        raise NotImplementedError

    def draw_candidates(self, rng: np.random.Generator) -> list[Goal]:
        """Return all possible goals of the customer at the desk, allowed or forbidden, without their `reasons`."""
        raise NotImplementedError

    def list_lookups(self, numbers: Sequence[str], mentions: Sequence[str]) -> list[str]:
        """Return the useful read calls, as text, for a request with these numbers and names (`mentions`)."""
        raise NotImplementedError

    def list_marks(self, write: Write) -> list[str]:
        """Return words ("marks") for the facts on which the rules about a write depend, for tiny models."""
        raise NotImplementedError

    # Methods that a domain with a handset overrides.

    def cause_faults(self, rng: np.random.Generator, count: int) -> Goal | None:
        """Cause `count` faults of the customer's phone or account. Returns the goal to have them repaired.

        Returns None, changing nothing, in domains whose goals come from `draw_candidates`.
        """
        return None

    def list_possible_writes(self, numbers: Sequence[str]) -> list[Write]:
        """Return the writes on these numbers to list for the agent, in addition to the goal's own writes."""
        return []

    def list_further_marks(self, goal: Goal) -> list[str]:
        """Return further words for the agent's knowledge about a goal."""
        return []

    # Tools of all domains.

    def find_customer(self, email: str, postcode: str) -> dict[str, str]:
        """Verify a customer by email and postcode.
        Sets `session.verified_customer` and returns {"verified": name}. Raises ValueError if no customer matches both.
        """
        return self._verify("email", email, postcode)

    def find_customer_by_name(self, name: str, postcode: str) -> dict[str, str]:
        """Verify a customer by full name and postcode.
        Sets `session.verified_customer` and returns {"verified": name}. Raises ValueError if no customer matches both.
        """
        return self._verify("name", name, postcode)

    def show_customer(self) -> dict[str, Any]:
        """Show the verified customer's name, address and payment methods.
        Records an identity breach and raises ValueError if nobody is verified.
        """
        person = self.fetch_row("SELECT name, email, address FROM customers WHERE id = ?", self.require_verified())
        payments = self.fetch_all(
            "SELECT id AS payment, method FROM payments WHERE customer = ? ORDER BY id", self.require_verified()
        )
        return {**(person or {}), "payments": payments}

    def change_account_address(self, address: str) -> dict[str, str]:
        """Change the address in the verified customer's account.
        Records breaches (`record_write`) and returns {"address": text}. Raises ValueError for "".
        """
        customer, address = self.require_verified(), self.clean_address(address)
        self.record_write(Write("change_account_address", {"address": address}))
        self.execute("UPDATE customers SET address = ? WHERE id = ?", address, customer)
        return {"address": address}

    # Helpers of the tools.

    def tools(self) -> list[Tool]:
        """Return the agent's tools: reads first, then writes."""
        return [Tool.of(getattr(self, name)) for name in (*self.reads, *self.writes)]

    def require_verified(self) -> str:
        """Return the verified customer's id. Without one, records an identity breach and raises ValueError."""
        if not self.session.verified_customer:
            self.record_breach(IDENTITY.name)
            raise ValueError("verify the customer first")
        return self.session.verified_customer

    def require_payment(self, payment: str) -> str:
        """Return a payment id's method, such as "gift card". Raises ValueError unless it is the verified customer's."""
        row = self.fetch_row(
            "SELECT method FROM payments WHERE id = ? AND customer = ?", payment, self.require_verified()
        )
        if not row:
            raise ValueError("this customer has no such payment method; see show_customer()")
        return str(row["method"])

    def clean_address(self, address: str) -> str:
        """Return the address as one line of at most `ADDRESS_LENGTH` characters. Raises ValueError if it is empty."""
        if not (line := to_one_line(address, ADDRESS_LENGTH)):
            raise ValueError("the address is empty")
        return line

    def record_breach(self, name: str) -> None:
        """Record the name of a broken rule in the session."""
        self.session.breaches.append(name)

    def record_write(self, write: Write) -> None:
        """Record the rules that a write breaks, consume the consent, and log the write. Call it before writing."""
        session = self.session
        for name in self.find_broken_rules(write):
            self.record_breach(name)
        if session.consent is None or not session.consent.covers(write):
            self.record_breach(CONFIRMATION.name)
        session.consent = None
        session.done.append((write.tool, write.subject))

    def find_broken_rules(self, write: Write) -> list[str]:
        """Return the names of the domain's rules that a write would break now. Does not check identity and consent."""
        return [rule.name for rule in self.rules if write.tool in rule.tools and not rule.holds(self, write.arguments)]

    def store_refund(self, subject: str, payment: str, amount: float) -> dict[str, Any]:
        """Store the refund of an order or booking, replacing an earlier one. Returns its amount and payment id."""
        self.execute("INSERT OR REPLACE INTO refunds VALUES (?, ?, ?)", subject, payment, amount)
        return {"refund": amount, "to": payment}

    def draw_number(self, rng: np.random.Generator) -> str:
        """Draw an unused five-digit number, for an order, booking or line, and reserve it."""
        while (number := str(rng.integers(10_000, 100_000))) in self.used_numbers:
            pass
        self.used_numbers.add(number)
        return number

    def days_ago(self, days: int) -> str:
        """Return the ISO date `days` before today; a negative number gives a future date."""
        return (self.today - datetime.timedelta(days=days)).isoformat()

    def days_since(self, date: str) -> int:
        """Return the number of days from an ISO date to today, negative for a future date."""
        return (self.today - datetime.date.fromisoformat(date)).days

    def _verify(self, column: str, value: str, postcode: str) -> dict[str, str]:
        for person in self.fetch_all("SELECT * FROM customers"):
            if _matches(person[column], value) and _matches(person["postcode"], postcode):
                self.session.verified_customer = person["id"]
                return {"verified": person["name"]}
        raise ValueError(f"there is no customer with this {column} and postcode")

    def list_numbers_of(self, customer: str) -> list[str]:
        """Return the sorted numbers of a customer's orders, bookings or lines, by customer id."""
        raise NotImplementedError

    def add_customer(self, person: Person) -> None:
        """Add a person to the table of customers."""
        self.insert_rows("customers", [(person.id, person.name, person.email, person.postcode, person.address)])

    def add_payments(self, person: Person, rng: np.random.Generator) -> tuple[str, str]:
        """Add a credit card and a gift card to a customer. Returns their payment ids in this order."""
        ids = tuple(f"{kind}_{rng.integers(1000, 10_000)}{person.id.lower()}" for kind in ("card", "gift"))
        methods = ("credit card", "gift card")
        self.insert_rows("payments", [(id, person.id, method) for id, method in zip(ids, methods, strict=True)])
        return ids[0], ids[1]

    # The database.

    def execute(self, sql: str, *values: object) -> None:
        """Execute an SQL statement with parameters. Models never write SQL here."""
        self.database.connection.execute(sql, values)

    def fetch_all(self, sql: str, *values: object) -> list[dict[str, Any]]:
        """Run an SQL query and return all rows as dicts by column."""
        cursor = self.database.connection.execute(sql, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def insert_rows(self, table: str, rows: Sequence[Sequence[object]]) -> None:
        """Insert rows into a table; each row has a value for every column."""
        if rows:
            self.database.connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)

    def fetch_row(self, sql: str, *values: object) -> dict[str, Any] | None:
        """Run an SQL query and return its first row as a dict by column, or None if it has no rows."""
        return next(iter(self.fetch_all(sql, *values)), None)

    def snapshot(self) -> dict[tuple[str, str], dict[str, object]]:
        """Return the rows of all tables that tools can change, as dicts by column, by (table, primary key)."""
        return {
            (table, str(row[key])): row
            for table, key in self.keys.items()
            for row in self.fetch_all(f"SELECT * FROM {table}")
        }

    def find_changes(self) -> Diff:
        """Return the changes of the database since the start, with values normalised (`normalise`)."""
        current, changed = self.snapshot(), Diff()
        for (table, key), row in current.items():
            old = self.initial_rows.get((table, key), {})
            if old != row:
                values = {column: normalise(value) for column, value in row.items()}
                changed |= {(table, key, c): v for c, v in values.items() if c not in old or normalise(old[c]) != v}
        return changed | {(*place, ""): None for place in self.initial_rows.keys() - current.keys()}

    def compute_digest(self) -> str:
        """Return a hash of all rows that tools can change, to detect changes."""
        rows = {" ".join(place): {c: normalise(v) for c, v in row.items()} for place, row in self.snapshot().items()}
        return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()

    @contextlib.contextmanager
    def dry_run(self) -> Iterator[None]:
        """Run the context as the verified owner in a fresh session, then undo all writes and restore the session."""
        session, self.session = self.session, Session(self.owner.id)
        self.execute("SAVEPOINT trial")
        try:
            yield
        finally:
            self.execute("ROLLBACK TO trial")
            self.execute("RELEASE trial")
            self.session = session

    def compute_effect(self, write: Write) -> Diff:
        """Return how the database would differ from the start if the owner made a write now. Undoes the write."""
        with self.dry_run():
            getattr(self, write.tool)(**write.arguments)
            return self.find_changes()


def _matches(stored: str, stated: str) -> bool:
    return "".join(stored.split()).casefold() == "".join(stated.split()).casefold()
