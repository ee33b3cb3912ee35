"""Possible goals of the shop's customers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from simulators.desk.goals import ACCOUNT, Goal, Write
from simulators.desk.people import draw_address
from simulators.desk.shop.tables import PRODUCTS, ShopTables

PAYMENTS = ("credit card", "gift card")


def draw_candidates(shop: ShopTables, rng: np.random.Generator) -> list[Goal]:
    """Return all goals that the customer at the desk could have: on its account, then on each order."""
    goals = []
    for order in shop.fetch_all("SELECT * FROM orders WHERE customer = ? ORDER BY id", shop.owner.id):
        hint = f"my order with the {shop.items(order['id'])[0]['product']}"
        for goal in (*_draw_order_goals(shop, order, rng), *_draw_item_goals(shop, order, rng)):
            goals.append(replace(goal, subject=order["id"], hint=hint))
    address = draw_address(rng)
    account = Goal(
        f"change the address in my account to {address}", ACCOUNT,
        writes=(Write("change_account_address", {"address": address}),),
    )  # fmt: skip
    return [account, *goals]


def _draw_order_goals(shop: ShopTables, order: dict[str, Any], rng: np.random.Generator) -> Iterator[Goal]:
    number, total = order["id"], f"{shop.compute_total(order['id']):.2f}"
    payment, ask = _draw_payment(shop, order, rng)
    cancel = Write("cancel_order", {"order": number, "refund_to": payment})
    facts = _draw_facts(rng, {"refund": total})
    yield Goal(f"cancel {{it}} and have the money back on {ask}", writes=(cancel,), facts=facts, details=PAYMENTS)
    address = draw_address(rng)
    moved = Write("change_address", {"order": number, "address": address})
    yield Goal(f"have {{it}} sent to {address}", writes=(moved,))
    other = _find_other_payment(shop, order["payment"])
    paid = Write("change_payment", {"order": number, "payment": other["id"]})
    yield Goal(f"pay for {{it}} with my {other['method']} instead", writes=(paid,), details=PAYMENTS)
    yield Goal("have {it} sent again because it never came", writes=(Write("resend_order", {"order": number}),))
    facts = {"status": order["status"], "total": total}
    facts |= {"tracking": order["tracking"]} if order["status"] != "pending" else {}
    facts |= {"delivered": order["since"]} if order["status"] == "delivered" else {}
    names = list(rng.permutation(sorted(facts)))[: int(rng.integers(1, 3))]
    yield Goal("ask about {it}", facts={str(name): facts[str(name)] for name in names})


def _draw_item_goals(shop: ShopTables, order: dict[str, Any], rng: np.random.Generator) -> Iterator[Goal]:
    number = order["id"]
    for item in shop.items(number):
        product = item["product"]
        payment, ask = _draw_payment(shop, order, rng)
        back = Write("return_item", {"order": number, "item": item["item"], "refund_to": payment})
        facts = _draw_facts(rng, {"refund": f"{item['price']:.2f}"})
        ask = f"return the {product} of {{it}} and have the money back on {ask}"
        yield Goal(ask, writes=(back,), facts=facts, mentions=(product,), details=PAYMENTS)
        yield _draw_exchange(shop, number, item, rng)


def _draw_exchange(shop: ShopTables, number: str, item: dict[str, Any], rng: np.random.Generator) -> Goal:
    """Draw a goal to exchange an item: for one variant of this or another product, or for any colour of a size."""
    product, wanted = item["product"], item["product"]
    if rng.random() < 0.2:
        products = [name for name in sorted(PRODUCTS) if name != product]
        wanted = products[rng.integers(len(products))]
    variants = shop.fetch_all("SELECT * FROM variants WHERE product = ? ORDER BY id", wanted)
    variants = [variant for variant in variants if (wanted, variant["options"]) != (product, item["options"])]
    variant_row = variants[rng.integers(len(variants))]
    size = variant_row["options"].split()[1]
    if wanted == product and rng.random() < 0.3:
        targets = [variant for variant in variants if variant["options"].endswith(size)]
        ask, facts = f"exchange the {product} of {{it}} for a {size} one in any colour that you have", {}
    else:
        targets, ask = [variant_row], f"exchange the {product} of {{it}} for the {wanted} in {variant_row['options']}"
        facts = _draw_facts(rng, {"difference": f"{abs(variant_row['price'] - item['price']):.2f}"})
    calls = tuple(
        Write("exchange_item", {"order": number, "item": item["item"], "variant": variant["id"]}) for variant in targets
    )
    mentions = tuple(dict.fromkeys((product, wanted)))
    return Goal(ask, writes=calls, facts=facts, mentions=mentions, details=(size, variant_row["options"]))


def _draw_payment(shop: ShopTables, order: dict[str, Any], rng: np.random.Generator) -> tuple[str, str]:
    """Draw the payment method of a refund as (payment id, wording): in one of four cases not the original one."""
    if rng.random() < 0.75:
        return order["payment"], "whatever I paid with"
    other = _find_other_payment(shop, order["payment"])
    return other["id"], f"my {other['method']}, which I did not pay with"


def _find_other_payment(shop: ShopTables, payment: str) -> dict[str, Any]:
    row = shop.fetch_row("SELECT * FROM payments WHERE customer = ? AND id != ?", shop.owner.id, payment)
    assert row is not None
    return row


def _draw_facts(rng: np.random.Generator, facts: dict[str, str]) -> dict[str, str]:
    """Return `facts` with probability 1/2, else {}."""
    return facts if rng.random() < 0.5 else {}
