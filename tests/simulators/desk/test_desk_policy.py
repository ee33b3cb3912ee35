"""The desk's policy by hand, rule by rule; equality of changes; and acts in plain words."""

import numpy as np
import pytest

from simulators.desk import Desk
from simulators.desk.airline.world import Airline
from simulators.desk.goals import Goal, Write, normalise
from simulators.desk.policy import PRIVACY, Consent
from simulators.desk.record import Outcome
from simulators.desk.shop.world import Shop
from simulators.desk.speech import canonical_fact, read_speech
from simulators.desk.tasks import add_reasons, compute_effects, compute_tau_score, has_right_rows, judge_facts


def make_world(kind):
    rng, other_rng = np.random.default_rng(1), np.random.default_rng(2)
    new_world = kind(rng, other_rng, "Ada Quill")
    new_world.session.verified_customer = "C1"
    return new_world


def make_shop():
    """Return a shop with order 1 of item 1-1, a small black kettle (V001), paid by card and sent 12 days ago."""
    world = make_world(Shop)
    for statement in (
        "DELETE FROM orders", "DELETE FROM items", "DELETE FROM payments WHERE customer = 'C1'",
        "INSERT INTO payments VALUES ('card', 'C1', 'credit card'), ('gift', 'C1', 'gift card')",
        f"INSERT INTO orders VALUES ('1', 'C1', 'sent', '{world.days_ago(12)}', 'x', 'card', 'TR1', 0)",
        "INSERT INTO items VALUES ('1-1', '1', 'V001', 25.0, 0, 'kept')",
        "UPDATE variants SET stock = 1, price = 25.0", "UPDATE variants SET price = 30.5 WHERE id = 'V002'",
    ):  # fmt: skip
        world.execute(statement)
    world.initial_rows = world.snapshot()
    return world


def make_airline():
    """Return an airline with booking 1: flight F1 in five days, standard fare, 2 bags, paid by card ten days ago."""
    world = make_world(Airline)
    for statement in (
        "DELETE FROM bookings", "DELETE FROM payments WHERE customer = 'C1'",
        "INSERT INTO payments VALUES ('card', 'C1', 'credit card'), ('gift', 'C1', 'gift card')",
        f"INSERT INTO flights VALUES ('F1', 'Norwick', 'Colby', '{world.days_ago(-5)}', 100.0, 9, 0)",
        f"INSERT INTO flights VALUES ('F2', 'Norwick', 'Colby', '{world.days_ago(-7)}', 130.0, 9, 0)",
        f"INSERT INTO flights VALUES ('F3', 'Norwick', 'Hollis', '{world.days_ago(-7)}', 130.0, 9, 0)",
        f"INSERT INTO flights VALUES ('F4', 'Norwick', 'Colby', '{world.days_ago(-7)}', 130.0, 0, 0)",
        f"INSERT INTO flights VALUES ('F5', 'Norwick', 'Colby', '{world.days_ago(3)}', 130.0, 9, 0)",
        "INSERT INTO bookings VALUES "
        f"('1', 'C1', 'F1', 'standard', '{world.days_ago(10)}', 'booked', 'card', 140.0, 2, 0)",
    ):  # fmt: skip
        world.execute(statement)
    world.initial_rows = world.snapshot()
    return world


CANCEL_ORDER, ITEM = Write("cancel_order", {"order": "1", "refund_to": "card"}), {"order": "1", "item": "1-1"}
RETURN_ITEM, EXCHANGE_ITEM = (
    Write("return_item", ITEM | {"refund_to": "card"}),
    Write("exchange_item", ITEM | {"variant": "V002"}),
)
STATUS_UPDATE = "UPDATE orders SET status = '{}', since = '{}'"


@pytest.mark.parametrize(
    ("write", "status", "age", "change", "broken_rules"),
    [
        (CANCEL_ORDER, "pending", 1, "", set()),
        (CANCEL_ORDER, "sent", 1, "", {"not_pending"}),
        (CANCEL_ORDER, "cancelled", 1, "", {"not_pending"}),
        (CANCEL_ORDER, "sent", 1, "UPDATE orders SET payment = 'gift'", {"not_pending", "other_payment"}),
        (CANCEL_ORDER, "pending", 1, "UPDATE orders SET payment = 'gift'", {"other_payment"}),
        (RETURN_ITEM, "delivered", 30, "", set()),
        (RETURN_ITEM, "delivered", 31, "", {"too_late"}),
        (RETURN_ITEM, "sent", 31, "", {"not_delivered"}),
        (RETURN_ITEM, "delivered", 3, "UPDATE items SET final_sale = 1", {"final_sale"}),
        (RETURN_ITEM, "delivered", 3, "UPDATE items SET state = 'returned'", {"once"}),
        (RETURN_ITEM, "delivered", 3, "UPDATE orders SET payment = 'gift'", {"other_payment"}),
        (EXCHANGE_ITEM, "delivered", 3, "", set()),
        (EXCHANGE_ITEM, "delivered", 40, "UPDATE items SET state = 'exchanged'", {"too_late", "once"}),
        (EXCHANGE_ITEM, "delivered", 3, "UPDATE variants SET stock = 0", {"out_of_stock"}),
        (EXCHANGE_ITEM, "delivered", 3, "UPDATE items SET variant = 'V007'", {"other_product"}),
        (Write("change_address", {"order": "1", "address": "y"}), "pending", 1, "", set()),
        (Write("change_address", {"order": "1", "address": "y"}), "sent", 1, "", {"not_pending"}),
        (Write("change_payment", {"order": "1", "payment": "gift"}), "delivered", 1, "", {"not_pending"}),
        (Write("resend_order", {"order": "1"}), "sent", 11, "", set()),
        (Write("resend_order", {"order": "1"}), "sent", 10, "", {"not_lost"}),
        (Write("resend_order", {"order": "1"}), "delivered", 11, "", {"not_lost"}),
        (Write("change_account_address", {"address": "y"}), "sent", 1, "", set()),
    ],
)
def test_rules_of_the_shop(write, status, age, change, broken_rules):
    world = make_shop()
    world.execute(STATUS_UPDATE.format(status, world.days_ago(age)))
    if change:
        world.execute(change)
    assert set(world.find_broken_rules(write)) == broken_rules
    world.session.consent = Consent(write.tool, write.subject)
    getattr(world, write.tool)(**write.arguments)  # tools carry out forbidden writes and record the breach
    assert set(world.session.breaches) == broken_rules and world.find_changes()


FLIGHT_UPDATE = "UPDATE flights SET day = '{}', delay = {} WHERE id = 'F1'"


@pytest.mark.parametrize(
    ("tool", "arguments", "change", "broken_rules"),
    [
        ("cancel_booking", {"refund_to": "card"}, "", {"not_refundable"}),
        ("cancel_booking", {"refund_to": "card"}, "UPDATE bookings SET fare = 'flexible'", set()),
        ("cancel_booking", {"refund_to": "card"}, "UPDATE bookings SET booked = '{1}'", set()),
        ("cancel_booking", {"refund_to": "gift"}, "UPDATE bookings SET booked = '{1}'", {"other_payment"}),
        ("change_flight", {"flight": "F2"}, "", set()),
        ("change_flight", {"flight": "F3"}, "", {"other_route"}),
        ("change_flight", {"flight": "F4"}, "", {"full"}),
        ("change_flight", {"flight": "F5"}, "", {"full"}),
        ("change_flight", {"flight": "F2"}, "UPDATE bookings SET fare = 'basic'", {"basic_fare"}),
        ("change_flight", {"flight": "F2"}, "UPDATE flights SET day = '{0}' WHERE id = 'F1'", {"departed"}),
        ("change_fare", {"fare": "flexible"}, "", set()),
        ("change_fare", {"fare": "basic"}, "", {"no_downgrade"}),
        ("add_bags", {"bags": "1"}, "", set()),
        ("add_bags", {"bags": "2"}, "", {"too_many_bags"}),
        ("change_payment", {"payment": "gift"}, "UPDATE bookings SET status = 'cancelled'", {"departed"}),
        ("compensate", {}, "", {"not_late"}),
        ("compensate", {}, "UPDATE flights SET delay = 180", set()),
        ("compensate", {}, "UPDATE bookings SET compensated = 1", {"not_late", "once"}),
    ],
)
def test_rules_of_the_airline(tool, arguments, change, broken_rules):
    world = make_airline()
    if change:
        world.execute(change.format(world.days_ago(0), world.days_ago(1)))
    assert set(world.find_broken_rules(Write(tool, {"booking": "1", **arguments}))) == broken_rules


def test_every_write_needs_its_own_consent():
    world = make_shop()
    world.execute(STATUS_UPDATE.format("pending", world.days_ago(1)))
    world.session.consent = Consent("change_payment", "1")
    world.change_payment("1", "gift")
    world.change_payment("1", "card")  # the consent is used up
    world.session.consent = Consent("change_payment", "1")
    world.change_address("1", "y")  # the consent was for another tool
    assert world.session.breaches == ["confirmation"] * 2
    world.session.consent = Consent("change_payment", "1", Write("change_payment", {"order": "1", "payment": "card"}))
    world.change_payment("1", "gift")  # the consent was for another call of the same tool
    assert world.session.breaches == ["confirmation"] * 3


# Equality of changes.


def execute_writes(world, *writes):
    for write in writes:
        getattr(world, write.tool)(**write.arguments)
    return world.find_changes()


def test_only_exactly_the_expected_changes_pass():
    world = make_shop()
    world.execute(STATUS_UPDATE.format("pending", world.days_ago(1)))
    world.initial_rows = world.snapshot()
    address = Write("change_address", {"order": "1", "address": "1 Oak Street"})
    accepted = compute_effects(
        world, [Goal("a", "1", writes=(address,)), Goal("b", "1", writes=(CANCEL_ORDER,), reasons=frozenset("x"))]
    )
    assert accepted == [[{("orders", "1", "address"): "1 oak street"}], [{}]]
    assert world.session.breaches == [] and world.find_changes() == {}  # the trial was rolled back

    def passes_after(*writes):
        with world.dry_run():
            return has_right_rows(execute_writes(world, *writes), accepted)

    assert passes_after(address)
    assert passes_after(Write("change_address", {"order": "1", "address": "1  OAK street "}))
    assert passes_after(Write("change_address", {"order": "1", "address": "z"}), address)
    assert not passes_after()
    assert not passes_after(CANCEL_ORDER)
    assert not passes_after(address, CANCEL_ORDER)
    assert not passes_after(address, Write("change_account_address", {"address": "q"}))
    assert not passes_after(Write("change_address", {"order": "1", "address": "1 Oak"}))


def test_any_allowed_alternative_passes():
    world = make_shop()
    world.execute(STATUS_UPDATE.format("delivered", world.days_ago(1)))
    world.execute("UPDATE variants SET stock = 0 WHERE id = 'V004'")
    world.initial_rows = world.snapshot()
    alternatives = tuple(Write("exchange_item", ITEM | {"variant": variant}) for variant in ("V002", "V004", "V006"))
    goal = add_reasons(world, Goal("swap", "1", writes=alternatives))
    accepted = compute_effects(world, [goal])
    assert goal.reasons == frozenset() and len(accepted[0]) == 2
    results = []
    for write in alternatives:
        with world.dry_run():
            results.append(has_right_rows(execute_writes(world, write), accepted))
    assert results == [True, False, True]
    world.execute("UPDATE variants SET stock = 0")
    assert add_reasons(world, goal).reasons == {"out_of_stock"}


def test_equivalent_numbers_and_texts_are_equal():
    assert normalise(25) == normalise(25.0) == normalise(25.001) and type(normalise(25.0)) is int
    assert normalise("1 Oak  street") == normalise("1 OAK Street") and normalise(None) is None
    world = make_shop()
    before = world.compute_digest()
    world.execute("UPDATE items SET price = 25")
    assert world.compute_digest() == before
    world.execute("UPDATE items SET price = 25.5")
    assert world.compute_digest() != before


def test_judges_told_facts_and_denials():
    fact, forbidden = (
        Goal("ask", "1", facts={"refund": "25.00"}),
        Goal("x", "1", reasons=frozenset({"too_late", "once"})),
    )
    assert judge_facts(
        [fact, forbidden], [Outcome({"refund": "25.00"}), Outcome(denial_reasons=frozenset({"once"}))]
    ) == [
        True,
        True,
    ]
    assert judge_facts([fact], [Outcome({"refund": "26.00"})]) == [False]
    assert judge_facts([fact], [Outcome({"refund": None})]) == [False]
    assert judge_facts([fact], [Outcome({"refund": "25.00"}, denial_reasons=frozenset({"once"}))]) == [False]
    assert judge_facts(
        [forbidden, forbidden], [Outcome(denial_reasons=frozenset({"once", "not_lost"})), Outcome()]
    ) == [
        False,
        False,
    ]
    assert judge_facts([fact, forbidden], [Outcome({"refund": "25.00"})]) == [True, False]


def test_tau_score_follows_tau_bench():
    fact, forbidden = Goal("ask", "1", facts={"refund": "1025.00"}), Goal("x", "1", reasons=frozenset({"once"}))
    assert compute_tau_score({}, [[{}]], [forbidden], []) == 1  # saying and doing nothing
    assert compute_tau_score({}, [[{}], [{}]], [fact, forbidden], []) == 0
    assert compute_tau_score({}, [[{}]], [fact], ["You get 1,025.00 or 5.00"]) == 1
    assert compute_tau_score({("a", "b", "c"): 1}, [[{}]], [forbidden], []) == 0


@pytest.mark.parametrize("domain", ["shop", "airline"])
def test_goals_are_distinct_and_forbidden_iff_a_rule_is_broken(domain):
    game, forbidden, goals = Desk(domain=domain), 0, 0
    for seed in range(30):
        game.reset(seed=seed)
        drawn_goals = [goal for goal in game.customer.record.goals if PRIVACY.name not in goal.reasons]
        assert len({goal.subject for goal in drawn_goals}) == len(drawn_goals)
        for goal in drawn_goals:
            broken_rules = [set(game.world.find_broken_rules(write)) for write in goal.writes]
            assert goal.reasons == (set().union(*broken_rules) if broken_rules and all(broken_rules) else set())
            assert goal.writes or goal.facts
            forbidden, goals = forbidden + bool(goal.reasons), goals + 1
    assert 0.2 < forbidden / goals < 0.6


# Plain words.

GAME = Desk()
GAME.reset(seed=0)


def parse(text, game=GAME):
    return read_speech(f"SAY {text}", game.world, game.policy)


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        ("I'm sorry, I cannot cancel it because it has already been shipped.", {"not_pending"}),
        ("Unfortunately that is not possible: the 30 days are over, it is too late.", {"too_late"}),
        ("I am unable to do that. Refunds go to the original payment method.", {"other_payment"}),
        ("I can't, it was a final sale.", {"final_sale"}),
        ("That one is out of stock, so an exchange is not possible.", {"out_of_stock"}),
        ("I am not allowed to talk about other customers.", {"privacy"}),
        ("I can't do that.", set()),
        ("It has already been shipped.", set()),
    ],
)
def test_denials_in_plain_words(text, reasons):
    assert parse(text).reasons == reasons


def test_other_speech_in_plain_words():
    assert parse("Could you give me your email and postcode, please?").identity
    assert not parse("Thank you for your email.").identity
    assert parse("Which order is it about?").number and parse("What else can I do for you?").more
    proposal_speech = parse("I will cancel order 12345 and refund 25.00 to your card. Shall I go ahead?")
    assert (
        proposal_speech.proposal.tools >= {"cancel_order"}
        and proposal_speech.proposal.numbers == {"12345"}
        and not proposal_speech.identity
    )
    assert parse("Your refund is $25.").facts == {"refund": "25.00"}
    assert parse("You get back 25.5 in all. The tracking code is tr12345678.").facts == {
        "refund": "25.50", "tracking": "TR12345678",
    }  # fmt: skip
    assert parse("The refund is 25.00 or 26.00.").facts == {"refund": None}
    assert parse("Is the refund 25.00?").facts == {}
    assert parse("It was delivered on 2026-05-04.").facts["delivered"] == "2026-05-04"


def test_values_of_facts():
    assert canonical_fact("amount", "$25") == canonical_fact("amount", "25.0") == "25.00"
    assert canonical_fact("amount", "1e3") is None and canonical_fact("number", "03") == "3"
    assert canonical_fact("code", "tr1") == "TR1" and canonical_fact("word", "Sent") == "sent"


@pytest.mark.slow
def test_a_match_in_plain_words():
    for seed in range(300):
        game = Desk(goals=1)
        game.reset(seed=seed)
        goal = game.customer.goal
        if goal.tool == "cancel_order" and not goal.reasons and goal.facts:
            break
    game.step("SAY Hello! May I have your email and postcode, please?")
    game.step(game.list_acts()["f"])
    game.step(f"SAY I can cancel order {goal.subject} for you. Shall I go ahead?")
    assert game.world.session.consent == Consent("cancel_order", goal.subject)
    game.step(str(goal.writes[0]))
    game.step(f"SAY Done. Your refund is ${goal.facts['refund']}.")
    assert game.report()["success"], game.render()


def test_granting_a_forbidden_request_fails():
    for seed in range(300):
        game = Desk(goals=1)
        game.reset(seed=seed)
        goal = game.customer.goal
        if goal.tool == "cancel_order" and goal.reasons == {"not_pending"} and not goal.facts:
            break
    game.step("ASK identity")
    game.step(game.list_acts()["f"])
    game.step(f"CONFIRM {goal.writes[0]}")
    assert game.customer.is_write_pending  # the customer wants it
    game.step(str(goal.writes[0]))
    game.step("ELSE")
    report = game.report()
    assert (game.ended, report["success"], report["rows"], report["told"]) == ("served", False, False, 0.0)
    assert (report["breaches"], report["breach_not_pending"], report["tau_score"]) == (1, 1, 0.0)
