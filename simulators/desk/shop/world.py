"""The shop's tools: cancel, return, exchange, redirect, pay and resend orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from simulators.desk.goals import Goal, Write
from simulators.desk.policy import Fact
from simulators.desk.shop import goals
from simulators.desk.shop.policy import RULES, is_same_product
from simulators.desk.shop.tables import LOST_DAYS, PRODUCTS, RETURN_DAYS, ShopTables


class Shop(ShopTables):
    """Shop domain of the desk: the tools and rules for orders."""

    domain = "shop"
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
        """List the verified customer's orders.
        Returns dicts with order, status and products. Raises ValueError if no customer is verified.
        """
        orders = self.fetch_all(
            "SELECT id AS 'order', status FROM orders WHERE customer = ? ORDER BY id", self.require_verified()
        )
        return [order | {"products": [item["product"] for item in self.items(order["order"])]} for order in orders]

    def show_order(self, order: str) -> dict[str, Any]:
        """Show an order of the verified customer: items with prices, status, payment method.
        Returns a dict and notes the order as looked up. Raises ValueError unless it is the verified customer's.
        """
        row = self._require_order(order)
        self.session.looked_up.add(order)
        shown = ("id", "status", "since", "address", "payment")
        items = [item | {"final_sale": bool(item["final_sale"])} for item in self.items(order)]
        return {name: row[name] for name in shown} | {"items": items, "total": self.compute_total(order)}

    def track_order(self, order: str) -> dict[str, Any]:
        """Show an order's status, since which day it stands so, and its tracking code.
        Returns a dict of id, status, since and tracking. Raises ValueError unless it is the verified customer's.
        """
        row = self._require_order(order)
        return {name: row[name] for name in ("id", "status", "since", "tracking")}

    def list_products(self) -> list[str]:
        """List all products."""
        return sorted(PRODUCTS)

    def show_product(self, product: str) -> list[dict[str, Any]]:
        """Show a product's variants with prices and stock.
        Returns dicts with variant id, options, price and stock. Raises ValueError for an unknown product.
        """
        variants = self.fetch_all(
            "SELECT id AS variant, options, price, stock FROM variants WHERE product = ? ORDER BY id",
            product.casefold(),
        )
        if not variants:
            raise ValueError("there is no such product; see list_products()")
        return variants

    def cancel_order(self, order: str, refund_to: str) -> dict[str, Any]:
        """Cancel an order and pay its total back to a payment method.
        Records broken rules (`record_write`) and returns {"refund", "to"}. Raises ValueError for unknown or others'
        ids.
        """
        self._require_order(order)
        self.require_payment(refund_to)
        self.record_write(Write("cancel_order", {"order": order, "refund_to": refund_to}))
        self.execute("UPDATE orders SET status = 'cancelled' WHERE id = ?", order)
        return self.store_refund(order, refund_to, self.compute_total(order))

    def return_item(self, order: str, item: str, refund_to: str) -> dict[str, Any]:
        """Take an item back and pay its price back to a payment method.
        Records broken rules (`record_write`) and returns {"refund", "to"}. Raises ValueError for unknown or others'
        ids.
        """
        price = self._require_item(order, item)["price"]
        self.require_payment(refund_to)
        self.record_write(Write("return_item", {"order": order, "item": item, "refund_to": refund_to}))
        self.execute("UPDATE items SET state = 'returned' WHERE id = ?", item)
        return self.store_refund(item, refund_to, price)

    def exchange_item(self, order: str, item: str, variant: str) -> dict[str, Any]:
        """Exchange an item for a variant; the difference in price goes through the order's payment method.
        Records broken rules; returns {"item", "variant", "difference"}. Raises ValueError for unknown or others' ids.
        """
        old = self._require_item(order, item)
        new = self.find_variant(variant)
        if new is None:
            raise ValueError("there is no such variant; see show_product()")
        self.record_write(Write("exchange_item", {"order": order, "item": item, "variant": variant}))
        self.execute(
            "UPDATE items SET state = 'exchanged', variant = ?, price = ? WHERE id = ?", variant, new["price"], item
        )
        return {"item": item, "variant": variant, "difference": round(abs(new["price"] - old["price"]), 2)}

    def change_address(self, order: str, address: str) -> dict[str, Any]:
        """Change where an order is sent.
        Records broken rules (`record_write`) and returns {"order", "address"}. Raises ValueError for an unknown order
        or "".
        """
        self._require_order(order)
        address = self.clean_address(address)
        self.record_write(Write("change_address", {"order": order, "address": address}))
        self.execute("UPDATE orders SET address = ? WHERE id = ?", address, order)
        return {"order": order, "address": address}

    def change_payment(self, order: str, payment: str) -> dict[str, Any]:
        """Change by which payment method an order is paid.
        Records broken rules; returns {"order", "payment", "method"}. Raises ValueError for unknown or others' ids.
        """
        self._require_order(order)
        method = self.require_payment(payment)
        self.record_write(Write("change_payment", {"order": order, "payment": payment}))
        self.execute("UPDATE orders SET payment = ? WHERE id = ?", payment, order)
        return {"order": order, "payment": payment, "method": method}

    def resend_order(self, order: str) -> dict[str, Any]:
        """Send a lost order once more, free of charge.
        Records broken rules (`record_write`) and returns {"order", "sent"}. Raises ValueError for unknown or others'
        ids.
        """
        self._require_order(order)
        self.record_write(Write("resend_order", {"order": order}))
        self.execute("UPDATE orders SET resent = resent + 1 WHERE id = ?", order)
        return {"order": order, "sent": "again"}

    # Helpers of the tools.

    def _require_order(self, order: str) -> dict[str, Any]:
        customer, row = self.require_verified(), self.find_order(order)
        if row is None or row["customer"] != customer:
            raise ValueError("this customer has no such order; see list_orders()")
        return row

    def _require_item(self, order: str, item: str) -> dict[str, Any]:
        self._require_order(order)
        row = self.find_item(item)
        if row is None or row["order_id"] != order:
            raise ValueError("this order has no such item; see show_order(order)")
        return row

    def draw_candidates(self, rng: np.random.Generator) -> list[Goal]:
        return goals.draw_candidates(self, rng)

    def list_lookups(self, numbers: Sequence[str], mentions: Sequence[str]) -> list[str]:
        """Return read calls that help with a request about these orders and products (`mentions`), as text."""
        calls = ["show_customer()", "list_orders()"]
        calls += [f'{tool}(order="{number}")' for tool in ("show_order", "track_order") for number in numbers]
        return calls + [f'show_product(product="{name}")' for name in mentions]

    def list_marks(self, write: Write) -> list[str]:
        """Return words for the facts of the order on which the rules about a write depend.

        They give its status and age, and compare its payment method and items with the write's arguments.
        """
        order = self.find_order(write.subject)
        if order is None:
            return []
        words = [order["status"], "old" if self.days_since(order["since"]) > RETURN_DAYS else "new"]
        words += ["late"] if self.days_since(order["since"]) > LOST_DAYS else []
        if payment := write.arguments.get("refund_to"):
            words.append("paid" if payment == order["payment"] else "other")
        if item := self.find_item(write.arguments.get("item", "")):
            words += ["final"] if item["final_sale"] else []
            words.append(item["state"])
            if variant := self.find_variant(write.arguments.get("variant", "")):
                words.append("same" if is_same_product(self, write.arguments) else "another")
                words.append("stock" if variant["stock"] else "none")
        return words
