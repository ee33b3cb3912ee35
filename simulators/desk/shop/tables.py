"""The shop's tables: schema, queries and generated rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from simulators.desk.people import Person
from simulators.desk.world import World

RETURN_DAYS = 30
LOST_DAYS = 10
"""Limits of the policy, in days. Generated orders exist on both sides of each."""
PRODUCTS = (
    "kettle", "backpack", "raincoat", "desk lamp", "tent", "sweater", "headphones", "blanket", "jacket", "suitcase",
    "teapot", "bicycle helmet", "sleeping bag", "wall clock", "running shoes", "hammock",
)  # fmt: skip
COLOURS, SIZES = ("black", "red", "green"), ("small", "large")
SOLD_OUT = 0.25
"""Share of variants out of stock."""
FINAL = 0.15
"""Share of items sold as final sale."""
STATES: tuple[tuple[str, int, int], ...] = (
    ("pending", 0, 3), ("pending", 0, 3), ("sent", 2, LOST_DAYS), ("sent", LOST_DAYS + 1, 25),
    ("delivered", 3, RETURN_DAYS), ("delivered", 3, RETURN_DAYS), ("delivered", RETURN_DAYS + 5, 200),
)  # fmt: skip
"""Status of each of the customer's orders, and the minimum and maximum number of days since it changed."""

SCHEMA = """
CREATE TABLE variants (id TEXT PRIMARY KEY, product TEXT, options TEXT, price REAL, stock INTEGER);
CREATE TABLE orders (id TEXT PRIMARY KEY, customer TEXT, status TEXT, since TEXT, address TEXT, payment TEXT,
                     tracking TEXT, resent INTEGER);
CREATE TABLE items (id TEXT PRIMARY KEY, order_id TEXT, variant TEXT, price REAL, final_sale INTEGER, state TEXT);
"""


class ShopTables(World):
    """Database of a shop: customers, their orders of one or two items, and a catalogue of product variants."""

    schema = SCHEMA
    keys: ClassVar[Mapping[str, str]] = {**World.keys, "orders": "id", "items": "id"}
    subject = "order"

    def find_order(self, order: str) -> dict[str, Any] | None:
        """Return the row of any customer's order by its number, or None if there is none."""
        return self.fetch_row("SELECT * FROM orders WHERE id = ?", order)

    def find_item(self, item: str) -> dict[str, Any] | None:
        """Return the row of the ordered item with this id, or None if there is none."""
        return self.fetch_row("SELECT * FROM items WHERE id = ?", item)

    def find_variant(self, variant: str) -> dict[str, Any] | None:
        """Return the row of the product variant with this id, or None if there is none."""
        return self.fetch_row("SELECT * FROM variants WHERE id = ?", variant)

    def items(self, order: str) -> list[dict[str, Any]]:
        """Return an order's items as tools show them: dicts with item, product, options, price, final_sale, state."""
        return self.fetch_all(
            "SELECT items.id AS item, product, options, items.price, final_sale, state FROM items "
            "JOIN variants ON variants.id = variant WHERE order_id = ? ORDER BY items.id",
            order,
        )

    def compute_total(self, order: str) -> float:
        """Return the sum of an order's item prices, rounded to cents."""
        return round(float(sum(item["price"] for item in self.items(order))), 2)

    def list_numbers_of(self, customer: str) -> list[str]:
        return [row["id"] for row in self.fetch_all("SELECT id FROM orders WHERE customer = ? ORDER BY id", customer)]

    # Generation of rows.

    def fill_catalogue(self, rng: np.random.Generator) -> None:
        """Add every product in each colour and size, with drawn prices and stock, to the catalogue."""
        rows: list[tuple[object, ...]] = []
        for product in PRODUCTS:
            price = int(rng.integers(15, 120))
            for options in (f"{colour} {size}" for colour in COLOURS for size in SIZES):
                cost = price + int(rng.integers(0, 40)) / 4
                stock = int(rng.integers(1, 9)) if rng.random() >= SOLD_OUT else 0
                rows.append((f"V{len(rows) + 1:03}", product, options, cost, stock))
        self.insert_rows("variants", rows)

    def add_purchases(self, person: Person, rng: np.random.Generator) -> None:
        """Add a person's two payment methods and orders: seven for the customer at the desk, two for anyone else."""
        card, gift = self.add_payments(person, rng)
        is_owner = person is self.owner
        states = STATES if is_owner else tuple(STATES[rng.integers(len(STATES))] for _ in range(2))
        products = list(rng.permutation(PRODUCTS))
        for index in rng.permutation(len(states)):
            status, min_days, max_days = states[index]
            order, since = self.draw_number(rng), self.days_ago(int(rng.integers(min_days, max_days + 1)))
            tracking = f"TR{rng.integers(10**7, 10**8)}" if status != "pending" else "none"
            payment = card if rng.random() < 0.7 else gift
            self.insert_rows("orders", [(order, person.id, status, since, person.address, payment, tracking, 0)])
            for number in range(int(rng.integers(1, 3))):
                variants = self.fetch_all("SELECT id, price FROM variants WHERE product = ?", str(products.pop()))
                variant = variants[rng.integers(len(variants))]
                final = int(rng.random() < FINAL)
                self.insert_rows(
                    "items", [(f"{order}-{number + 1}", order, variant["id"], variant["price"], final, "kept")]
                )
