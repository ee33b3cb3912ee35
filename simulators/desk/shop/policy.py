"""The shop's policy: rules about changes of orders."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from simulators.desk.policy import Rule
from simulators.desk.shop.tables import LOST_DAYS, RETURN_DAYS, ShopTables


def _require_status(status: str) -> Callable[[ShopTables, Mapping[str, str]], bool]:
    return lambda shop, call: (shop.find_order(call["order"]) or {}).get("status") == status


def _is_in_time(shop: ShopTables, call: Mapping[str, str]) -> bool:
    order = shop.find_order(call["order"])
    return order is not None and (order["status"] != "delivered" or shop.days_since(order["since"]) <= RETURN_DAYS)


def _is_original_payment(shop: ShopTables, call: Mapping[str, str]) -> bool:
    order = shop.find_order(call["order"])
    return order is not None and order["payment"] == call["refund_to"]


def _is_not_final(shop: ShopTables, call: Mapping[str, str]) -> bool:
    return not (shop.find_item(call["item"]) or {}).get("final_sale")


def _is_kept(shop: ShopTables, call: Mapping[str, str]) -> bool:
    return (shop.find_item(call["item"]) or {}).get("state") == "kept"


def is_same_product(shop: ShopTables, call: Mapping[str, str]) -> bool:
    """Return True if the call's `item` and `variant` are variants of the same product."""
    item, new = shop.find_item(call["item"]), shop.find_variant(call["variant"])
    old = item and shop.find_variant(item["variant"])
    return old is not None and new is not None and old["product"] == new["product"]


def _is_in_stock(shop: ShopTables, call: Mapping[str, str]) -> bool:
    return bool((shop.find_variant(call["variant"]) or {}).get("stock"))


def _is_lost(shop: ShopTables, call: Mapping[str, str]) -> bool:
    order = shop.find_order(call["order"])
    return order is not None and order["status"] == "sent" and shop.days_since(order["since"]) > LOST_DAYS


BACK = ("return_item", "exchange_item")
RULES = (
    Rule(
        "not_pending",
        "An order can be cancelled, and its address or payment method changed, only while it is pending.",
        ("not pending", "no longer pending", "already sent", "already been sent", "already shipped", "been shipped",
         "already delivered", "been delivered", "on its way"),
        ("cancel_order", "change_address", "change_payment"), _require_status("pending"),
    ),
    Rule(
        "not_delivered", "Items can be returned or exchanged only after the order was delivered.",
        ("not delivered", "not been delivered", "not yet delivered", "not arrived", "before delivery"),
        BACK, _require_status("delivered"),
    ),
    Rule(
        "too_late", f"Items can be returned or exchanged only within {RETURN_DAYS} days of delivery.",
        ("too late", f"{RETURN_DAYS} days", "thirty days", "too long ago"), BACK, _is_in_time,
    ),
    Rule(
        "final_sale", "Items of a final sale can be neither returned nor exchanged.", ("final sale",), BACK,
        _is_not_final,
    ),
    Rule(
        "once", "An item can be returned or exchanged once.", ("already returned", "already exchanged", "only once"),
        BACK, _is_kept,
    ),
    Rule(
        "other_product", "An item can be exchanged only for another variant of the same product.",
        ("same product", "different product", "another product", "other product"), ("exchange_item",), is_same_product,
    ),
    Rule(
        "out_of_stock", "An item can be exchanged only for what is in stock.",
        ("out of stock", "not in stock", "sold out", "no stock"), ("exchange_item",), _is_in_stock,
    ),
    Rule(
        "other_payment", "Refunds go to the payment method that paid for the order.",
        ("original payment", "same payment", "payment method that paid", "method you paid with", "paid with"),
        ("cancel_order", "return_item"), _is_original_payment,
    ),
    Rule(
        "not_lost", f"An order is sent again only if it was sent more than {LOST_DAYS} days ago and has not arrived.",
        ("not lost", f"{LOST_DAYS} days", "ten days", "may still arrive"), ("resend_order",), _is_lost,
    ),
)  # fmt: skip
