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
from simulators.desk.device.handset import Handset
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
    """Base class of a domain: a seeded database of customers and purchases, its tools, and checks of the policy.

    `owner` is the customer at the desk. Tools obey even against the rules; `session.breaches` records what they break.
    """

    domain: ClassVar[str]
    schema: ClassVar[str]
    keys: ClassVar[Mapping[str, str]] = {"customers": "id", "payments": "id", "refunds": "subject"}
    """Primary key of each table."""
    reads: ClassVar[tuple[str, ...]]
    """Names of the methods that are read-only tools; those in `writes` change the database."""
    writes: ClassVar[tuple[str, ...]]
    rules: ClassVar[tuple[Rule, ...]]
    """Rules about writes. PRIVACY is another reason to deny."""
    facts: ClassVar[Mapping[str, Fact]]
    verbs: ClassVar[Mapping[str, tuple[str, ...]]]
    """Folded phrases for each write tool."""
    subject: ClassVar[str]
    """Kind of thing with numbers, `order` or `booking`, also the name of the tools' argument."""
    most_goals: ClassVar[int] = MOST_GOALS
    """Maximum of the option `goals`."""
    guide: ClassVar[str] = ""
    """Further rules for the agent, about acts that only this domain has; ends with a blank."""
    handset: Handset | None = None
    """Phone that only the customer sees and changes, in domains where it has one."""
    instructions: ClassVar[Sequence[str]] = ()
    """Acts that tell the customer what to do on its phone."""

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
        """Fill the tables that belong to no customer, such as the catalogue. Called before any customer is added."""
        raise NotImplementedError

    def people(self, person: Person, rng: np.random.Generator) -> None:
        """Add a person's payment methods and purchases to the database."""
        raise NotImplementedError

    def candidates(self, rng: np.random.Generator) -> list[Goal]:
        """Return all goals that the customer at the desk could have, allowed or forbidden, without their `reasons`."""
        raise NotImplementedError

    def lookups(self, numbers: Sequence[str], mentions: Sequence[str]) -> list[str]:
        """Return the read calls, as text, that show what a request with these numbers and names is about."""
        raise NotImplementedError

    def marks(self, write: Write) -> list[str]:
        """Return short words for the facts on which the rules about a write depend, for models without pretraining."""
        raise NotImplementedError

    # What a domain with a handset writes.

    def trouble(self, rng: np.random.Generator, count: int) -> Goal | None:
        """Break `count` things of the customer's and return its goal; None where goals are drawn of `candidates`."""
        return None

    def possible(self, numbers: Sequence[str]) -> list[Write]:
        """Return the writes on these numbers that are listed for the agent besides a goal's writes."""
        return []

    def known(self, goal: Goal) -> list[str]:
        """Return further marks of what the agent was shown and told about a goal."""
        return []

    # Tools that are the same everywhere.

    def find_customer(self, email: str, postcode: str) -> dict[str, str]:
        """Verify a customer by email and postcode.
        Sets `session.verified` and returns {"verified": name}. Raises ValueError if nobody matches both.
        """
        return self._verify("email", email, postcode)

    def find_customer_by_name(self, name: str, postcode: str) -> dict[str, str]:
        """Verify a customer by full name and postcode.
        Sets `session.verified` and returns {"verified": name}. Raises ValueError if nobody matches both.
        """
        return self._verify("name", name, postcode)

    def show_customer(self) -> dict[str, Any]:
        """Show the verified customer's name, address and payment methods.
        Records an identity breach and raises ValueError if nobody is verified.
        """
        person = self.row("SELECT name, email, address FROM customers WHERE id = ?", self.verified())
        payments = self.all(
            "SELECT id AS payment, method FROM payments WHERE customer = ? ORDER BY id", self.verified()
        )
        return {**(person or {}), "payments": payments}

    def change_account_address(self, address: str) -> dict[str, str]:
        """Change the address in the verified customer's account.
        Records breaches (`judge`) and returns {"address": text}. Raises ValueError for "".
        """
        customer, address = self.verified(), self.clean(address)
        self.judge(Write("change_account_address", {"address": address}))
        self.run("UPDATE customers SET address = ? WHERE id = ?", address, customer)
        return {"address": address}

    # What tools are made of.

    def tools(self) -> list[Tool]:
        """Return the domain's tools for the agent: reads first, then writes."""
        return [Tool.of(getattr(self, name)) for name in (*self.reads, *self.writes)]

    def verified(self) -> str:
        """Return the verified customer's id. Without one, records an identity breach and raises ValueError."""
        if not self.session.verified:
            self.breach(IDENTITY.name)
            raise ValueError("verify the customer first")
        return self.session.verified

    def payment(self, payment: str) -> str:
        """Return a payment id's method, such as "gift card". Raises ValueError unless it is the verified customer's."""
        row = self.row("SELECT method FROM payments WHERE id = ? AND customer = ?", payment, self.verified())
        if not row:
            raise ValueError("this customer has no such payment method; see show_customer()")
        return str(row["method"])

    def clean(self, address: str) -> str:
        """Return the address in one line of at most 80 characters. Raises ValueError if it is empty."""
        if not (line := one_line(address, ADDRESS_LENGTH)):
            raise ValueError("the address is empty")
        return line

    def breach(self, name: str) -> None:
        """Record the name of a broken rule in the session."""
        self.session.breaches.append(name)

    def judge(self, write: Write) -> None:
        """Record all rules that a write breaks, use up the consent, and log the write. Call before writing."""
        session = self.session
        for name in self.broken(write):
            self.breach(name)
        if session.granted is None or not session.granted.covers(write):
            self.breach(CONFIRMATION.name)
        session.granted = None
        session.done.append((write.tool, write.subject))

    def broken(self, write: Write) -> list[str]:
        """Return the names of the domain's rules that a write would break now; identity and consent are not checked."""
        return [rule.name for rule in self.rules if write.tool in rule.tools and not rule.holds(self, write.arguments)]

    def refund(self, subject: str, payment: str, amount: float) -> dict[str, Any]:
        """Store a refund for a subject, replacing an earlier one, and return {"refund": amount, "to": payment id}."""
        self.run("INSERT OR REPLACE INTO refunds VALUES (?, ?, ?)", subject, payment, amount)
        return {"refund": amount, "to": payment}

    def fresh_number(self, rng: np.random.Generator) -> str:
        """Draw an unused five-digit order or booking number and reserve it."""
        while (number := str(rng.integers(10_000, 100_000))) in self.numbers:
            pass
        self.numbers.add(number)
        return number

    def ago(self, days: int) -> str:
        """Return the ISO date this many days before today; negative days give a future date."""
        return (self.today - datetime.timedelta(days=days)).isoformat()

    def age(self, date: str) -> int:
        """Return the days from an ISO date to today, negative for a future date."""
        return (self.today - datetime.date.fromisoformat(date)).days

    def _verify(self, column: str, value: str, postcode: str) -> dict[str, str]:
        for person in self.all("SELECT * FROM customers"):
            if _same(person[column], value) and _same(person["postcode"], postcode):
                self.session.verified = person["id"]
                return {"verified": person["name"]}
        raise ValueError(f"there is no customer with this {column} and postcode")

    def numbers_of(self, customer: str) -> list[str]:
        """Return the order or booking numbers of a customer id, sorted."""
        raise NotImplementedError

    def add(self, person: Person) -> None:
        """Insert a person into the table of customers."""
        self.fill("customers", [(person.id, person.name, person.email, person.postcode, person.address)])

    def add_payments(self, person: Person, rng: np.random.Generator) -> tuple[str, str]:
        """Add a credit card and a gift card to a customer, and return their payment ids in this order."""
        ids = tuple(f"{kind}_{rng.integers(1000, 10_000)}{person.id.lower()}" for kind in ("card", "gift"))
        methods = ("credit card", "gift card")
        self.fill("payments", [(id, person.id, method) for id, method in zip(ids, methods, strict=True)])
        return ids[0], ids[1]

    # The database.

    def run(self, sql: str, *values: object) -> None:
        """Execute an SQL statement with parameters. Models never write SQL here."""
        self.database.connection.execute(sql, values)

    def all(self, sql: str, *values: object) -> list[dict[str, Any]]:
        """Run an SQL query and return all rows as dicts by column."""
        cursor = self.database.connection.execute(sql, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def fill(self, table: str, rows: Sequence[Sequence[object]]) -> None:
        """Insert rows into a table; each row has a value for every column."""
        if rows:
            self.database.connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)

    def row(self, sql: str, *values: object) -> dict[str, Any] | None:
        """Run an SQL query and return its first row as a dict by column, or None without rows."""
        return next(iter(self.all(sql, *values)), None)

    def snapshot(self) -> dict[tuple[str, str], dict[str, object]]:
        """Return the rows of all tables that tools can change, by (table, primary key)."""
        return {
            (table, str(row[key])): row
            for table, key in self.keys.items()
            for row in self.all(f"SELECT * FROM {table}")
        }

    def changes(self) -> Diff:
        """Return the changes of the database since the start; values are in normal form (`canonical`)."""
        now, changed = self.snapshot(), Diff()
        for (table, key), row in now.items():
            old = self.first.get((table, key), {})
            if old != row:
                values = {column: canonical(value) for column, value in row.items()}
                changed |= {(table, key, c): v for c, v in values.items() if c not in old or canonical(old[c]) != v}
        return changed | {(*place, ""): None for place in self.first.keys() - now.keys()}

    def digest(self) -> str:
        """Return a hash of all rows that tools can change. Reads leave it unchanged."""
        rows = {" ".join(place): {c: canonical(v) for c, v in row.items()} for place, row in self.snapshot().items()}
        return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()

    @contextlib.contextmanager
    def trial(self) -> Iterator[None]:
        """Run the context as the verified owner in a fresh session, then undo all writes and restore the session."""
        session, self.session = self.session, Session(self.owner.id)
        self.run("SAVEPOINT trial")
        try:
            yield
        finally:
            self.run("ROLLBACK TO trial")
            self.run("RELEASE trial")
            self.session = session

    def effect(self, write: Write) -> Diff:
        """Return how the database would differ from its start after a write of the owner now. The write is undone."""
        with self.trial():
            getattr(self, write.tool)(**write.arguments)
            return self.changes()


def _same(stored: str, given: str) -> bool:
    return "".join(stored.split()).casefold() == "".join(given.split()).casefold()
