"""The shop: orders of things that can be cancelled, returned, exchanged, sent elsewhere or sent again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from simulators.desk import shop_goals
from simulators.desk.goals import Goal, Write
from simulators.desk.people import Person
from simulators.desk.policy import Fact
from simulators.desk.shop_policy import LOST_DAYS, RETURN_DAYS, RULES, same_product
from simulators.desk.world import World

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
"""Of the orders of the customer at the desk: how they stand, and since how many days, at least and at most."""

SCHEMA = """
CREATE TABLE variants (id TEXT PRIMARY KEY, product TEXT, options TEXT, price REAL, stock INTEGER);
CREATE TABLE orders (id TEXT PRIMARY KEY, customer TEXT, status TEXT, since TEXT, address TEXT, payment TEXT,
                     tracking TEXT, resent INTEGER);
CREATE TABLE items (id TEXT PRIMARY KEY, order_id TEXT, variant TEXT, price REAL, final_sale INTEGER, state TEXT);
"""


class Shop(World):
    """Customers, their orders of one or two items, and a catalogue of products in variants."""

    domain = "shop"
    schema = SCHEMA
    keys: ClassVar[Mapping[str, str]] = {**World.keys, "orders": "id", "items": "id"}
    subject = "order"
    rules = RULES
    reads = (
        "find_customer", "find_customer_by_name", "show_customer", "list_orders", "show_order", "track_order",
        "list_products", "show_product",
    )  # fmt: skip
    writes = (
        "cancel_order", "return_item", "exchange_item", "change_address", "change_payment", "resend_order",
        "change_account_address",
    )  # fmt: skip
    facts: ClassVar[Mapping[str, Fact]] = {
        "refund": Fact("how much I get back", "amount", ("refund", "refunded", "get back", "money back")),
        "difference": Fact("the difference in price", "amount", ("difference", "cheaper", "dearer")),
        "total": Fact("what it cost altogether", "amount", ("total", "altogether", "cost")),
        "tracking": Fact("its tracking code", "code", ("tracking", "code")),
        "status": Fact("how it stands", "word", ("status", "order", "it is"), ("pending", "sent", "delivered")),
        "delivered": Fact("on which day it arrived", "date", ("delivered", "arrived")),
    }
    verbs: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "cancel_order": ("cancel", "cancellation"),
        "return_item": ("return", "send back"),
        "exchange_item": ("exchange", "swap"),
        "change_address": ("delivery address", "shipping address", "sent to", "address of the order"),
        "change_payment": ("payment method", "pay with", "pay by", "paid with", "charged to"),
        "resend_order": ("send again", "sent again", "resend"),
        "change_account_address": ("address in", "account address", "address on"),
    }

    # Tools.

    def list_orders(self) -> list[dict[str, Any]]:
        """List the verified customer's orders."""
        orders = self.all("SELECT id AS 'order', status FROM orders WHERE customer = ? ORDER BY id", self.verified())
        return [order | {"products": [item["product"] for item in self.items(order["order"])]} for order in orders]

    def show_order(self, order: str) -> dict[str, Any]:
        """Show an order of the verified customer: items with prices, status, payment method."""
        found = self._order(order)
        self.session.looked.add(order)
        kept = ("id", "status", "since", "address", "payment")
        items = [item | {"final_sale": bool(item["final_sale"])} for item in self.items(order)]
        return {name: found[name] for name in kept} | {"items": items, "total": self.total(order)}

    def track_order(self, order: str) -> dict[str, Any]:
        """Show an order's status, since which day it stands so, and its tracking code."""
        found = self._order(order)
        return {name: found[name] for name in ("id", "status", "since", "tracking")}

    def list_products(self) -> list[str]:
        """List all products."""
        return sorted(PRODUCTS)

    def show_product(self, product: str) -> list[dict[str, Any]]:
        """Show a product's variants with prices and stock."""
        variants = self.all(
            "SELECT id AS variant, options, price, stock FROM variants WHERE product = ? ORDER BY id",
            product.casefold(),
        )
        if not variants:
            raise ValueError("there is no such product; see list_products()")
        return variants

    def cancel_order(self, order: str, refund_to: str) -> dict[str, Any]:
        """Cancel an order and pay its total back to a payment method."""
        self._order(order)
        self.payment(refund_to)
        self.judge(Write("cancel_order", {"order": order, "refund_to": refund_to}))
        self.run("UPDATE orders SET status = 'cancelled' WHERE id = ?", order)
        return self.refund(order, refund_to, self.total(order))

    def return_item(self, order: str, item: str, refund_to: str) -> dict[str, Any]:
        """Take an item back and pay its price back to a payment method."""
        price = self._item(order, item)["price"]
        self.payment(refund_to)
        self.judge(Write("return_item", {"order": order, "item": item, "refund_to": refund_to}))
        self.run("UPDATE items SET state = 'returned' WHERE id = ?", item)
        return self.refund(item, refund_to, price)

    def exchange_item(self, order: str, item: str, variant: str) -> dict[str, Any]:
        """Exchange an item for a variant; the difference in price goes through the order's payment method."""
        old = self._item(order, item)
        new = self.variant(variant)
        if new is None:
            raise ValueError("there is no such variant; see show_product()")
        self.judge(Write("exchange_item", {"order": order, "item": item, "variant": variant}))
        self.run(
            "UPDATE items SET state = 'exchanged', variant = ?, price = ? WHERE id = ?", variant, new["price"], item
        )
        return {"item": item, "variant": variant, "difference": round(abs(new["price"] - old["price"]), 2)}

    def change_address(self, order: str, address: str) -> dict[str, Any]:
        """Change where an order is sent."""
        self._order(order)
        address = self.clean(address)
        self.judge(Write("change_address", {"order": order, "address": address}))
        self.run("UPDATE orders SET address = ? WHERE id = ?", address, order)
        return {"order": order, "address": address}

    def change_payment(self, order: str, payment: str) -> dict[str, Any]:
        """Change by which payment method an order is paid."""
        self._order(order)
        method = self.payment(payment)
        self.judge(Write("change_payment", {"order": order, "payment": payment}))
        self.run("UPDATE orders SET payment = ? WHERE id = ?", payment, order)
        return {"order": order, "payment": payment, "method": method}

    def resend_order(self, order: str) -> dict[str, Any]:
        """Send a lost order once more, free of charge."""
        self._order(order)
        self.judge(Write("resend_order", {"order": order}))
        self.run("UPDATE orders SET resent = resent + 1 WHERE id = ?", order)
        return {"order": order, "sent": "again"}

    # What tools and rules are made of.

    def _order(self, order: str) -> dict[str, Any]:
        who, found = self.verified(), self.order(order)
        if found is None or found["customer"] != who:
            raise ValueError("this customer has no such order; see list_orders()")
        return found

    def _item(self, order: str, item: str) -> dict[str, Any]:
        self._order(order)
        found = self.item(item)
        if found is None or found["order_id"] != order:
            raise ValueError("this order has no such item; see show_order(order)")
        return found

    def order(self, order: str) -> dict[str, Any] | None:
        """An order's row, whoever asks."""
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
        """What an order cost."""
        return round(float(sum(item["price"] for item in self.items(order))), 2)

    def candidates(self, rng: np.random.Generator) -> list[Goal]:
        """Everything that the owner could ask for."""
        return shop_goals.candidates(self, rng)

    def lookups(self, numbers: Sequence[str], mentions: Sequence[str]) -> list[str]:
        """The reads that may help."""
        calls = ["show_customer()", "list_orders()"]
        calls += [f'{tool}(order="{number}")' for tool in ("show_order", "track_order") for number in numbers]
        return calls + [f'show_product(product="{name}")' for name in mentions]

    def marks(self, write: Write) -> list[str]:
        """The order's status and age, and how what is wanted relates to what there is."""
        order = self.order(write.subject)
        if order is None:
            return []
        words = [order["status"], "old" if self.age(order["since"]) > RETURN_DAYS else "new"]
        words += ["late"] if self.age(order["since"]) > LOST_DAYS else []
        if payment := write.arguments.get("refund_to"):
            words.append("paid" if payment == order["payment"] else "other")
        if item := self.item(write.arguments.get("item", "")):
            words += ["final"] if item["final_sale"] else []
            words.append(item["state"])
            if variant := self.variant(write.arguments.get("variant", "")):
                words.append("same" if same_product(self, write.arguments) else "another")
                words.append("stock" if variant["stock"] else "none")
        return words

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
