"""Base class of the domains: a database of customers and purchases, its tools, and the policy's checks.

Tools protect private data: without a verified customer they show and change nothing, and trying is a breach. All other
rules are the agent's duty: a tool obeys, and breaches are recorded by name.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from games.base import one_line
from simulators.confine.sql import Database
from simulators.desk.goals import Goal, Write, canonical
from simulators.desk.people import Person, draw_name, draw_person
from simulators.desk.policy import CONFIRMATION, IDENTITY, Fact, Rule, Session
from simulators.tools import Tool

OTHERS = 6
"""Number of customers besides the one at the desk."""
ADDRESS_LENGTH = 80
MOST_GOALS = 4

SCHEMA = """
CREATE TABLE customers (id TEXT PRIMARY KEY, name TEXT, email TEXT, postcode TEXT, address TEXT);
CREATE TABLE payments (id TEXT PRIMARY KEY, customer TEXT, method TEXT);
CREATE TABLE refunds (subject TEXT PRIMARY KEY, payment TEXT, amount REAL);
"""
Diff = dict[tuple[str, str, str], object]
"""New value by (table, key, column); None by (table, key, "") for a deleted row."""


class World:
    """Base class of a domain, with the customers and the common tools."""

    domain: ClassVar[str]
    schema: ClassVar[str]
    keys: ClassVar[Mapping[str, str]] = {"customers": "id", "payments": "id", "refunds": "subject"}
    """Primary key of each table."""
    reads: ClassVar[tuple[str, ...]]
    writes: ClassVar[tuple[str, ...]]
    rules: ClassVar[tuple[Rule, ...]]
    """Rules about writes. PRIVACY is another reason to deny."""
    facts: ClassVar[Mapping[str, Fact]]
    verbs: ClassVar[Mapping[str, tuple[str, ...]]]
    """Folded phrases for each write tool."""
    subject: ClassVar[str]
    """Kind of thing with numbers, `order` or `booking`, also the name of the tools' argument."""

    def __init__(self, rng: np.random.Generator, others: np.random.Generator, name: str) -> None:
        self.database, self.session = Database(SCHEMA + self.schema), Session()
        self.today = datetime.date(2026, 1, 1) + datetime.timedelta(days=int(rng.integers(365)))
        self.numbers: set[str] = set()
        """Order or booking numbers in use, and the unused ones in `free`."""
        self.database.connection.execute("BEGIN")
        self.owner = draw_person(rng, 1, name)
        self.furnish(rng)
        self.add(self.owner)
        self.people(self.owner, rng)
        self.free = [self.fresh_number(rng) for _ in range(MOST_GOALS)]
        while (stranger := draw_name(rng)) == name:
            pass
        self.stranger = stranger
        names = {name, stranger}
        for number in range(2, 2 + OTHERS):
            while (other := draw_name(others)) in names:
                pass
            names.add(other)
            person = draw_person(others, number, other)
            self.add(person)
            self.people(person, others)
        self.database.connection.execute("COMMIT")
        self.first = self.snapshot()

    # What a domain writes.

    def furnish(self, rng: np.random.Generator) -> None:
        """Fill the tables that belong to no customer."""
        raise NotImplementedError

    def people(self, person: Person, rng: np.random.Generator) -> None:
        """Fill the tables with a person's purchases."""
        raise NotImplementedError

    def candidates(self, rng: np.random.Generator) -> list[Goal]:
        """Return all possible goals of the owner, allowed or forbidden."""
        raise NotImplementedError

    def lookups(self, numbers: Sequence[str], mentions: Sequence[str]) -> list[str]:
        """Return helpful read calls for a request with these numbers and names, as text."""
        raise NotImplementedError

    def marks(self, write: Write) -> list[str]:
        """Return short words for the facts that the rules use for a write, for models without pretraining."""
        raise NotImplementedError

    # Tools that are the same everywhere.

    def find_customer(self, email: str, postcode: str) -> dict[str, str]:
        """Verify a customer by email and postcode."""
        return self._verify("email", email, postcode)

    def find_customer_by_name(self, name: str, postcode: str) -> dict[str, str]:
        """Verify a customer by full name and postcode."""
        return self._verify("name", name, postcode)

    def show_customer(self) -> dict[str, Any]:
        """Show the verified customer's name, address and payment methods."""
        person = self.row("SELECT name, email, address FROM customers WHERE id = ?", self.verified())
        payments = self.all(
            "SELECT id AS payment, method FROM payments WHERE customer = ? ORDER BY id", self.verified()
        )
        return {**(person or {}), "payments": payments}

    def change_account_address(self, address: str) -> dict[str, str]:
        """Change the address in the verified customer's account."""
        customer, address = self.verified(), self.clean(address)
        self.judge(Write("change_account_address", {"address": address}))
        self.run("UPDATE customers SET address = ? WHERE id = ?", address, customer)
        return {"address": address}

    # What tools are made of.

    def tools(self) -> list[Tool]:
        """Return all tools, reads first."""
        return [Tool.of(getattr(self, name)) for name in (*self.reads, *self.writes)]

    def verified(self) -> str:
        """Return the verified customer's id. Records a breach and raises ValueError if there is none."""
        if not self.session.verified:
            self.breach(IDENTITY.name)
            raise ValueError("verify the customer first")
        return self.session.verified

    def payment(self, payment: str) -> str:
        """Return the method of a payment id of the verified customer. Raises ValueError for another id."""
        row = self.row("SELECT method FROM payments WHERE id = ? AND customer = ?", payment, self.verified())
        if not row:
            raise ValueError("this customer has no such payment method; see show_customer()")
        return str(row["method"])

    def clean(self, address: str) -> str:
        """Return the address as stored. Raises ValueError if it is empty."""
        if not (line := one_line(address, ADDRESS_LENGTH)):
            raise ValueError("the address is empty")
        return line

    def breach(self, name: str) -> None:
        """Record a breach of the policy."""
        self.session.breaches.append(name)

    def judge(self, write: Write) -> None:
        """Record the breaches of a write before it is done, and use up the customer's consent."""
        session = self.session
        for name in self.broken(write):
            self.breach(name)
        if session.granted is None or not session.granted.covers(write):
            self.breach(CONFIRMATION.name)
        session.granted = None
        session.done.append((write.tool, write.subject))

    def broken(self, write: Write) -> list[str]:
        """Return the names of the rules that a write would break now."""
        return [rule.name for rule in self.rules if write.tool in rule.tools and not rule.holds(self, write.arguments)]

    def refund(self, subject: str, payment: str, amount: float) -> dict[str, Any]:
        """Record a refund and return the tool's result."""
        self.run("INSERT OR REPLACE INTO refunds VALUES (?, ?, ?)", subject, payment, amount)
        return {"refund": amount, "to": payment}

    def fresh_number(self, rng: np.random.Generator) -> str:
        """Draw an unused number."""
        while (number := str(rng.integers(10_000, 100_000))) in self.numbers:
            pass
        self.numbers.add(number)
        return number

    def ago(self, days: int) -> str:
        """Return the date this many days before today."""
        return (self.today - datetime.timedelta(days=days)).isoformat()

    def age(self, date: str) -> int:
        """Return the days since a date, negative for a future date."""
        return (self.today - datetime.date.fromisoformat(date)).days

    def _verify(self, column: str, value: str, postcode: str) -> dict[str, str]:
        for person in self.all("SELECT * FROM customers"):
            if _same(person[column], value) and _same(person["postcode"], postcode):
                self.session.verified = person["id"]
                return {"verified": person["name"]}
        raise ValueError(f"there is no customer with this {column} and postcode")

    def numbers_of(self, customer: str) -> list[str]:
        """Return the numbers of a customer's orders or bookings."""
        raise NotImplementedError

    def add(self, person: Person) -> None:
        """Add a customer."""
        self.fill("customers", [(person.id, person.name, person.email, person.postcode, person.address)])

    def add_payments(self, person: Person, rng: np.random.Generator) -> tuple[str, str]:
        """Add a customer's credit card and gift card, and return their ids."""
        ids = tuple(f"{kind}_{rng.integers(1000, 10_000)}{person.id.lower()}" for kind in ("card", "gift"))
        methods = ("credit card", "gift card")
        self.fill("payments", [(id, person.id, method) for id, method in zip(ids, methods, strict=True)])
        return ids[0], ids[1]

    # The database.

    def run(self, sql: str, *values: object) -> None:
        """Execute a statement of this package."""
        self.database.connection.execute(sql, values)

    def all(self, sql: str, *values: object) -> list[dict[str, Any]]:
        """Return all rows of a query of this package."""
        cursor = self.database.connection.execute(sql, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def fill(self, table: str, rows: Sequence[Sequence[object]]) -> None:
        """Insert rows."""
        if rows:
            self.database.connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)

    def row(self, sql: str, *values: object) -> dict[str, Any] | None:
        """Return the first row of a query of this package, or None."""
        return next(iter(self.all(sql, *values)), None)

    def snapshot(self) -> dict[tuple[str, str], dict[str, object]]:
        """Return every row that a tool can change, by table and key."""
        return {
            (table, str(row[key])): row
            for table, key in self.keys.items()
            for row in self.all(f"SELECT * FROM {table}")
        }

    def changes(self) -> Diff:
        """Return the differences from the start."""
        now, changed = self.snapshot(), Diff()
        for (table, key), row in now.items():
            old = self.first.get((table, key), {})
            if old != row:
                values = {column: canonical(value) for column, value in row.items()}
                changed |= {(table, key, c): v for c, v in values.items() if c not in old or canonical(old[c]) != v}
        return changed | {(*place, ""): None for place in self.first.keys() - now.keys()}

    def digest(self) -> str:
        """Return a hash of everything that a tool can change; reads leave it unchanged."""
        rows = {" ".join(place): {c: canonical(v) for c, v in row.items()} for place, row in self.snapshot().items()}
        return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()

    @contextlib.contextmanager
    def trial(self) -> Iterator[None]:
        """Verify the owner within the context, and undo all writes and records afterwards."""
        session, self.session = self.session, Session(self.owner.id)
        self.run("SAVEPOINT trial")
        try:
            yield
        finally:
            self.run("ROLLBACK TO trial")
            self.run("RELEASE trial")
            self.session = session

    def effect(self, write: Write) -> Diff:
        """Return the changes of a write of the owner from the present state, without keeping them."""
        with self.trial():
            getattr(self, write.tool)(**write.arguments)
            return self.changes()


def _same(stored: str, given: str) -> bool:
    return "".join(stored.split()).casefold() == "".join(given.split()).casefold()
