"""The desk's policy by hand, rule by rule; what counts as the same change; and plain words as acts."""

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


def world(kind):
    own, others = np.random.default_rng(1), np.random.default_rng(2)
    made = kind(own, others, "Ada Quill")
    made.session.verified = "C1"
    return made


def shop():
    """One customer's order 1 of one item, 1-1, a small black kettle (V001), paid by card, sent 12 days ago."""
    made = world(Shop)
    for statement in (
        "DELETE FROM orders", "DELETE FROM items", "DELETE FROM payments WHERE customer = 'C1'",
        "INSERT INTO payments VALUES ('card', 'C1', 'credit card'), ('gift', 'C1', 'gift card')",
        f"INSERT INTO orders VALUES ('1', 'C1', 'sent', '{made.days_ago(12)}', 'x', 'card', 'TR1', 0)",
        "INSERT INTO items VALUES ('1-1', '1', 'V001', 25.0, 0, 'kept')",
        "UPDATE variants SET stock = 1, price = 25.0", "UPDATE variants SET price = 30.5 WHERE id = 'V002'",
    ):  # fmt: skip
        made.execute(statement)
    made.initial_rows = made.snapshot()
    return made


def airline():
    """One customer's booking 1 on flight F1 in five days, standard fare, 2 bags, paid by card, booked ten days ago."""
    made = world(Airline)
    for statement in (
        "DELETE FROM bookings", "DELETE FROM payments WHERE customer = 'C1'",
        "INSERT INTO payments VALUES ('card', 'C1', 'credit card'), ('gift', 'C1', 'gift card')",
        f"INSERT INTO flights VALUES ('F1', 'Norwick', 'Colby', '{made.days_ago(-5)}', 100.0, 9, 0)",
        f"INSERT INTO flights VALUES ('F2', 'Norwick', 'Colby', '{made.days_ago(-7)}', 130.0, 9, 0)",
        f"INSERT INTO flights VALUES ('F3', 'Norwick', 'Hollis', '{made.days_ago(-7)}', 130.0, 9, 0)",
        f"INSERT INTO flights VALUES ('F4', 'Norwick', 'Colby', '{made.days_ago(-7)}', 130.0, 0, 0)",
        f"INSERT INTO flights VALUES ('F5', 'Norwick', 'Colby', '{made.days_ago(3)}', 130.0, 9, 0)",
        "INSERT INTO bookings VALUES "
        f"('1', 'C1', 'F1', 'standard', '{made.days_ago(10)}', 'booked', 'card', 140.0, 2, 0)",
    ):  # fmt: skip
        made.execute(statement)
    made.initial_rows = made.snapshot()
    return made


CANCEL, BACK = Write("cancel_order", {"order": "1", "refund_to": "card"}), {"order": "1", "item": "1-1"}
RETURN, EXCHANGE = (
    Write("return_item", BACK | {"refund_to": "card"}),
    Write("exchange_item", BACK | {"variant": "V002"}),
)
STATUS = "UPDATE orders SET status = '{}', since = '{}'"


@pytest.mark.parametrize(
    ("write", "status", "age", "change", "broken"),
    [
        (CANCEL, "pending", 1, "", set()),
        (CANCEL, "sent", 1, "", {"not_pending"}),
        (CANCEL, "cancelled", 1, "", {"not_pending"}),
        (CANCEL, "sent", 1, "UPDATE orders SET payment = 'gift'", {"not_pending", "other_payment"}),
        (CANCEL, "pending", 1, "UPDATE orders SET payment = 'gift'", {"other_payment"}),
        (RETURN, "delivered", 30, "", set()),
        (RETURN, "delivered", 31, "", {"too_late"}),
        (RETURN, "sent", 31, "", {"not_delivered"}),
        (RETURN, "delivered", 3, "UPDATE items SET final_sale = 1", {"final_sale"}),
        (RETURN, "delivered", 3, "UPDATE items SET state = 'returned'", {"once"}),
        (RETURN, "delivered", 3, "UPDATE orders SET payment = 'gift'", {"other_payment"}),
        (EXCHANGE, "delivered", 3, "", set()),
        (EXCHANGE, "delivered", 40, "UPDATE items SET state = 'exchanged'", {"too_late", "once"}),
        (EXCHANGE, "delivered", 3, "UPDATE variants SET stock = 0", {"out_of_stock"}),
        (EXCHANGE, "delivered", 3, "UPDATE items SET variant = 'V007'", {"other_product"}),
        (Write("change_address", {"order": "1", "address": "y"}), "pending", 1, "", set()),
        (Write("change_address", {"order": "1", "address": "y"}), "sent", 1, "", {"not_pending"}),
        (Write("change_payment", {"order": "1", "payment": "gift"}), "delivered", 1, "", {"not_pending"}),
        (Write("resend_order", {"order": "1"}), "sent", 11, "", set()),
        (Write("resend_order", {"order": "1"}), "sent", 10, "", {"not_lost"}),
        (Write("resend_order", {"order": "1"}), "delivered", 11, "", {"not_lost"}),
        (Write("change_account_address", {"address": "y"}), "sent", 1, "", set()),
    ],
)
def test_rules_of_the_shop(write, status, age, change, broken):
    made = shop()
    made.execute(STATUS.format(status, made.days_ago(age)))
    if change:
        made.execute(change)
    assert set(made.find_broken_rules(write)) == broken
    made.session.consent = Consent(write.tool, write.subject)
    getattr(made, write.tool)(**write.arguments)  # a tool does what it is told; the breach is noted
    assert set(made.session.breaches) == broken and made.find_changes()


FLIGHT = "UPDATE flights SET day = '{}', delay = {} WHERE id = 'F1'"


@pytest.mark.parametrize(
    ("tool", "arguments", "change", "broken"),
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
def test_rules_of_the_airline(tool, arguments, change, broken):
    made = airline()
    if change:
        made.execute(change.format(made.days_ago(0), made.days_ago(1)))
    assert set(made.find_broken_rules(Write(tool, {"booking": "1", **arguments}))) == broken


def test_a_write_needs_a_yes_of_its_own():
    made = shop()
    made.execute(STATUS.format("pending", made.days_ago(1)))
    made.session.consent = Consent("change_payment", "1")
    made.change_payment("1", "gift")
    made.change_payment("1", "card")  # the yes is used up
    made.session.consent = Consent("change_payment", "1")
    made.change_address("1", "y")  # and is for nothing else
    assert made.session.breaches == ["confirmation"] * 2
    made.session.consent = Consent("change_payment", "1", Write("change_payment", {"order": "1", "payment": "card"}))
    made.change_payment("1", "gift")  # nor for another call of the same tool, where a call was agreed to
    assert made.session.breaches == ["confirmation"] * 3


# What counts as the same change.


def done(made, *writes):
    for write in writes:
        getattr(made, write.tool)(**write.arguments)
    return made.find_changes()


def test_the_same_effect_passes_and_anything_more_or_less_fails():
    made = shop()
    made.execute(STATUS.format("pending", made.days_ago(1)))
    made.initial_rows = made.snapshot()
    address = Write("change_address", {"order": "1", "address": "1 Oak Street"})
    accepted = compute_effects(
        made, [Goal("a", "1", writes=(address,)), Goal("b", "1", writes=(CANCEL,), reasons=frozenset("x"))]
    )
    assert accepted == [[{("orders", "1", "address"): "1 oak street"}], [{}]]
    assert made.session.breaches == [] and made.find_changes() == {}  # trying it left nothing behind

    def after(*writes):
        with made.trial():
            return has_right_rows(done(made, *writes), accepted)

    assert after(address)
    assert after(Write("change_address", {"order": "1", "address": "1  OAK street "}))
    assert after(Write("change_address", {"order": "1", "address": "z"}), address)
    assert not after()
    assert not after(CANCEL)
    assert not after(address, CANCEL)
    assert not after(address, Write("change_account_address", {"address": "q"}))
    assert not after(Write("change_address", {"order": "1", "address": "1 Oak"}))


def test_any_of_several_ways_will_do_but_only_those_that_policy_allows():
    made = shop()
    made.execute(STATUS.format("delivered", made.days_ago(1)))
    made.execute("UPDATE variants SET stock = 0 WHERE id = 'V004'")
    made.initial_rows = made.snapshot()
    ways = tuple(Write("exchange_item", BACK | {"variant": variant}) for variant in ("V002", "V004", "V006"))
    goal = add_reasons(made, Goal("swap", "1", writes=ways))
    accepted = compute_effects(made, [goal])
    assert goal.reasons == frozenset() and len(accepted[0]) == 2
    right = []
    for way in ways:
        with made.trial():
            right.append(has_right_rows(done(made, way), accepted))
    assert right == [True, False, True]
    made.execute("UPDATE variants SET stock = 0")
    assert add_reasons(made, goal).reasons == {"out_of_stock"}


def test_numbers_and_texts_that_mean_the_same_are_the_same():
    assert normalise(25) == normalise(25.0) == normalise(25.001) and type(normalise(25.0)) is int
    assert normalise("1 Oak  street") == normalise("1 OAK Street") and normalise(None) is None
    made = shop()
    before = made.compute_digest()
    made.execute("UPDATE items SET price = 25")
    assert made.compute_digest() == before
    made.execute("UPDATE items SET price = 25.5")
    assert made.compute_digest() != before


def test_told_and_denied():
    fact, no = Goal("ask", "1", facts={"refund": "25.00"}), Goal("x", "1", reasons=frozenset({"too_late", "once"}))
    assert judge_facts([fact, no], [Outcome({"refund": "25.00"}), Outcome(denied=frozenset({"once"}))]) == [True, True]
    assert judge_facts([fact], [Outcome({"refund": "26.00"})]) == [False]
    assert judge_facts([fact], [Outcome({"refund": None})]) == [False]
    assert judge_facts([fact], [Outcome({"refund": "25.00"}, denied=frozenset({"once"}))]) == [False]
    assert judge_facts([no, no], [Outcome(denied=frozenset({"once", "not_lost"})), Outcome()]) == [False, False]
    assert judge_facts([fact, no], [Outcome({"refund": "25.00"})]) == [True, False]


def test_scored_as_tau_bench_does():
    fact, no = Goal("ask", "1", facts={"refund": "1025.00"}), Goal("x", "1", reasons=frozenset({"once"}))
    assert compute_tau_score({}, [[{}]], [no], []) == 1  # who says and does nothing
    assert compute_tau_score({}, [[{}], [{}]], [fact, no], []) == 0
    assert compute_tau_score({}, [[{}]], [fact], ["You get 1,025.00 or 5.00"]) == 1
    assert compute_tau_score({("a", "b", "c"): 1}, [[{}]], [no], []) == 0


@pytest.mark.parametrize("domain", ["shop", "airline"])
def test_tasks_are_about_different_things_and_forbidden_exactly_where_a_rule_is_broken(domain):
    game, forbidden, goals = Desk(domain=domain), 0, 0
    for seed in range(30):
        game.reset(seed=seed)
        drawn = [goal for goal in game.customer.record.goals if PRIVACY.name not in goal.reasons]
        assert len({goal.subject for goal in drawn}) == len(drawn)
        for goal in drawn:
            broken = [set(game.world.find_broken_rules(write)) for write in goal.writes]
            assert goal.reasons == (set().union(*broken) if broken and all(broken) else set())
            assert goal.writes or goal.facts
            forbidden, goals = forbidden + bool(goal.reasons), goals + 1
    assert 0.2 < forbidden / goals < 0.6


# Plain words.

GAME = Desk()
GAME.reset(seed=0)


def read(text, game=GAME):
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
    assert read(text).reasons == reasons


def test_other_speech_in_plain_words():
    assert read("Could you give me your email and postcode, please?").identity
    assert not read("Thank you for your email.").identity
    assert read("Which order is it about?").number and read("What else can I do for you?").more
    asked = read("I will cancel order 12345 and refund 25.00 to your card. Shall I go ahead?")
    assert asked.proposal.tools >= {"cancel_order"} and asked.proposal.numbers == {"12345"} and not asked.identity
    assert read("Your refund is $25.").facts == {"refund": "25.00"}
    assert read("You get back 25.5 in all. The tracking code is tr12345678.").facts == {
        "refund": "25.50", "tracking": "TR12345678",
    }  # fmt: skip
    assert read("The refund is 25.00 or 26.00.").facts == {"refund": None}
    assert read("Is the refund 25.00?").facts == {}
    assert read("It was delivered on 2026-05-04.").facts["delivered"] == "2026-05-04"


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


def test_who_does_whatever_is_asked_fails_where_policy_forbids_it():
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
