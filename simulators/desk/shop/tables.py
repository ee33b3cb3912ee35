"""The shop's tables: what is in them, how they are read, and how they are filled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from simulators.desk.people import Person
from simulators.desk.world import World

RETURN_DAYS = 30
LOST_DAYS = 10
"""The policy's limits; there are orders on both sides of them."""
PRODUCTS = (
    "kettle", "backpack", "raincoat", "desk lamp", "tent", "sweater", "headphones", "blanket", "jacket", "suitcase",
    "teapot", "bicycle helmet", "sleeping bag", "wall clock", "running shoes", "hammock",
)  # fmt: skip
COLOURS, SIZES = ("black", "red", "green"), ("small", "large")
SOLD_OUT = 0.25
"""Share of the variants that are out of stock."""
FINAL = 0.15
"""Share of the items that were sold for good."""
STATES: tuple[tuple[str, int, int], ...] = (
    ("pending", 0, 3), ("pending", 0, 3), ("sent", 2, LOST_DAYS), ("sent", LOST_DAYS + 1, 25),
    ("delivered", 3, RETURN_DAYS), ("delivered", 3, RETURN_DAYS), ("delivered", RETURN_DAYS + 5, 200),
)  # fmt: skip
"""States of orders of the customer at the desk: how they stand, and since how many days, at least and at most."""

SCHEMA = """
CREATE TABLE variants (id TEXT PRIMARY KEY, product TEXT, options TEXT, price REAL, stock INTEGER);
CREATE TABLE orders (id TEXT PRIMARY KEY, customer TEXT, status TEXT, since TEXT, address TEXT, payment TEXT,
                     tracking TEXT, resent INTEGER);
CREATE TABLE items (id TEXT PRIMARY KEY, order_id TEXT, variant TEXT, price REAL, final_sale INTEGER, state TEXT);
"""


class ShopTables(World):
    """Customers, their orders of one or two items, and a catalogue of products in variants."""

    schema = SCHEMA
    keys: ClassVar[Mapping[str, str]] = {**World.keys, "orders": "id", "items": "id"}
    subject = "order"

    def order(self, order: str) -> dict[str, Any] | None:
        """An order's row, for any caller."""
        return self.row("SELECT * FROM orders WHERE id = ?", order)

    def item(self, item: str) -> dict[str, Any] | None:
        """An item's row."""
        return self.row("SELECT * FROM items WHERE id = ?", item)

    def variant(self, variant: str) -> dict[str, Any] | None:
        """A variant's row."""
        return self.row("SELECT * FROM variants WHERE id = ?", variant)

    def items(self, order: str) -> list[dict[str, Any]]:
        """The items of an order, as they are shown."""
        return self.all(
            "SELECT items.id AS item, product, options, items.price, final_sale, state FROM items "
            "JOIN variants ON variants.id = variant WHERE order_id = ? ORDER BY items.id",
            order,
        )

    def total(self, order: str) -> float:
        """Return the price of an order: the sum of its items."""
        return round(float(sum(item["price"] for item in self.items(order))), 2)

    def numbers_of(self, customer: str) -> list[str]:
        """The numbers of a customer's orders."""
        return [row["id"] for row in self.all("SELECT id FROM orders WHERE customer = ? ORDER BY id", customer)]

    # How it is filled.

    def furnish(self, rng: np.random.Generator) -> None:
        """The catalogue: every product in every colour and size."""
        rows: list[tuple[object, ...]] = []
        for product in PRODUCTS:
            price = int(rng.integers(15, 120))
            for options in (f"{colour} {size}" for colour in COLOURS for size in SIZES):
                cost = price + int(rng.integers(0, 40)) / 4
                stock = int(rng.integers(1, 9)) if rng.random() >= SOLD_OUT else 0
                rows.append((f"V{len(rows) + 1:03}", product, options, cost, stock))
        self.fill("variants", rows)

    def people(self, person: Person, rng: np.random.Generator) -> None:
        """Two payment methods and some orders; no product is in two orders of the customer at the desk."""
        card, gift = self.add_payments(person, rng)
        mine = person is self.owner
        states = STATES if mine else tuple(STATES[rng.integers(len(STATES))] for _ in range(2))
        products = list(rng.permutation(PRODUCTS))
        for index in rng.permutation(len(states)):
            status, least, most = states[index]
            order, since = self.fresh_number(rng), self.ago(int(rng.integers(least, most + 1)))
            tracking = f"TR{rng.integers(10**7, 10**8)}" if status != "pending" else "none"
            payment = card if rng.random() < 0.7 else gift
            self.fill("orders", [(order, person.id, status, since, person.address, payment, tracking, 0)])
            for number in range(int(rng.integers(1, 3))):
                variants = self.all("SELECT id, price FROM variants WHERE product = ?", str(products.pop()))
                bought = variants[rng.integers(len(variants))]
                final = int(rng.random() < FINAL)
                self.fill("items", [(f"{order}-{number + 1}", order, bought["id"], bought["price"], final, "kept")])
