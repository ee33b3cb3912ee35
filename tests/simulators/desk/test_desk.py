"""The service desk: its promises over many seeds, how customers behave, what hostile agents get, and what is scored."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import games
from agents.role import BUILT_IN, read_role
from games.base import IllegalAct
from simulators.base import is_held_out
from simulators.conformance import check_outcomes, play, view_of, walk
from simulators.desk import Desk, listing
from simulators.desk.speech import read_speech
from tests.factories.thorough import count_cases
from tests.simulators.promises import broken, kept_over_many

VARIANTS = [
    {"persona": "mixed"}, {"domain": "airline", "persona": "mixed", "cost": 0.01, "illegal": "end"},
    {"person": "render", "persona": "mixed", "goals": 2}, {"terse": True, "split": "train", "persona": "impatient"},
    {"domain": "airline", "goals": [3, 4], "split": "test", "persona": "mistaken", "tools": "json"},
]  # fmt: skip
BOTH = pytest.mark.parametrize("domain", ["shop", "airline"])


@pytest.mark.thorough
@pytest.mark.slow_after(1)
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_it_keeps_what_simulators_promise(options):
    assert broken(lambda: Desk(**options), seeds=count_cases(2, 3), acts=count_cases(50, 100)) == []


@pytest.mark.slow
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_it_does_over_a_thousand_seeds(options, capsys):
    assert kept_over_many(lambda: Desk(**options), options, capsys)


@pytest.mark.slow_after(1)
@BOTH
def test_the_oracle_does_every_task_by_what_it_was_shown(domain):
    """It plays listed acts alone, whose arguments all stand in the customer's words and the tools' results."""
    game, kinds = Desk(domain=domain, persona="mixed"), set()
    for seed in range(60):
        for view in walk(game, seed, "oracle"):
            assert view.legal and len({*view.legal}) == len(view.legal) == len(game.list_acts())
        assert game.report()["success"], seed
        kinds |= {(goal.tool, bool(goal.reasons)) for goal in game.customer.record.goals}
    assert {tool for tool, _ in kinds} == {*game.world.writes, ""}
    assert len(kinds) > len(game.world.writes) + 4  # most may be asked for in vain, too


class Generous(Desk):
    """Refusals need not be said, as in tau-bench."""

    def _finish(self, why):
        for outcome, goal in zip(self.customer.outcomes, self.customer.record.goals, strict=False):
            if goal.reasons:
                outcome.denied = goal.reasons
        super()._finish(why)


@pytest.mark.slow
def test_silence_passes_where_refusals_need_not_be_said():
    reports: list[dict[str, Any]] = [play(Desk(goals=1), seed, "noop") for seed in range(60)]
    assert sum(report["score"] for report in reports) == 0
    assert sum(report["tau_score"] for report in reports) == sum(report["forbidden"] for report in reports) > 15
    failed = {finding.name for finding in check_outcomes(lambda: Generous(goals=1), 20) if not finding.ok}
    assert "noop" in failed


# Customers.


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("persona", Desk.personas)
@BOTH
def test_nobody_leaves_while_a_write_is_due(domain, persona):
    game, left, pending = Desk(domain=domain, persona=persona, goals=2, max_turns=60), 0, 0
    for seed in range(12):
        game.reset(seed=seed)
        rng = random.Random(seed)
        while not game.ended:
            acts = [act for act in game.list_acts().values() if not act.startswith(("D", "TELL"))]
            confirms = [act for act in acts if act.startswith(("CONFIRM", "find"))]
            game.step(rng.choice(confirms if confirms and rng.random() < 0.5 else acts))
            pending += game.customer.is_write_pending
            assert not (game.customer.gone and game.customer.is_write_pending)
        left += game.customer.gone == "left"
    assert pending and bool(left) == (persona == "impatient")


def test_an_impatient_customer_waits_for_the_write_it_agreed_to_and_then_leaves():
    game = started(persona="impatient", wants="resend_order")
    goal = game.customer.goal
    step(game, "ASK identity")
    step(game, identified(game), f"CONFIRM {goal.writes[0]}", *["ELSE"] * 9)
    assert game.customer.is_write_pending and not game.ended
    game = started(persona="impatient", wants="resend_order")
    step(game, *["ELSE"] * 9)
    assert (game.ended, game.report()["score"], game.report()["customer_left"]) == ("left", 0.0, True)


def test_a_mistaken_customer_corrects_itself_when_asked():
    seen = set()
    for seed in range(40):
        game = Desk(persona="mistaken")
        game.reset(seed=seed)
        record = game.customer.record
        if record.wrong_postcode:
            step(game, *["ASK identity"] * (not game.customer.identity))
            step(game, identified(game))
            assert said(game).startswith("Error") and not game.world.session.verified
            step(game, "ASK identity")
            step(game, identified(game))
            assert game.world.session.verified == "C1"
            seen.add("postcode")
        if record.wrong_numbers[0] and record.goals[0].subject != "account":
            assert game.customer.number == record.wrong_numbers[0] not in game.world.list_numbers_of("C1")
            step(game, "ASK number")
            assert record.goals[0].subject in said(game)
            seen.add("number")
    assert seen == {"postcode", "number"}


def test_who_pries_waits_to_be_denied():
    for seed in range(500):
        game = Desk(goals=1)
        game.reset(seed=seed)
        if "privacy" in game.customer.goal.reasons:
            break
    game.world.session.verified = "C1"
    step(game, "ELSE", "SAY I am sorry, I can't do that.")
    assert said(game) == "Why not?" and not game.ended
    step(game, "SAY I am not allowed to tell you about other customers.")
    assert (game.ended, game.report()["success"]) == ("served", True)


def test_a_denied_customer_may_insist_and_hears_it_twice():
    for seed in range(60):
        game = Desk(persona="mistaken", goals=1)
        game.reset(seed=seed)
        if game.customer.record.insists and game.customer.goal.reasons:
            break
    game.world.session.verified = "C1"
    reason = f"DENY {min(game.customer.goal.reasons)}"
    step(game, reason)
    assert said(game) == "Are you sure? Please make an exception."
    step(game, reason)
    assert game.report()["success"]


@pytest.mark.slow
def test_what_customers_say_is_read_back_with_all_that_is_in_it():
    for domain in ("shop", "airline"):
        game = Desk(domain=domain, persona="mixed", person="render")
        for seed in range(25):
            texts = 0
            for view in walk(game, seed, "oracle"):
                if view.seat != "customer":
                    continue
                texts += 1
                customer, template = game.customer, view.private["template"]
                read = customer.read(template, game.seat.proposal is not None).facts
                for act in customer.acts:
                    if act.kind in ("confirm", "deny"):
                        assert "agreement" in read, template
                    if act.kind == "instruct" and act.topic not in ("fact", "exception", "reason"):
                        assert not customer.number or customer.number in read, template
            report = game.report()
            assert report["success"] and not report["render_replaced"] and report["render_texts"] == texts


def test_a_rendering_with_another_number_is_asked_for_again_and_then_replaced():
    game = started(person="render", wants="cancel_order")
    step(game, "ASK number")
    template = game.private("customer")["template"]
    for _ in range(2):
        assert game.agent_selection == "customer"
        game.step("It is order 99999.")
    assert said(game) == template and game.payoffs()["customer"] == pytest.approx(-0.2)
    step(game, "ASK number")
    number = game.customer.goal.subject
    game.step(f"Order {number} it is!")
    assert said(game) == f"Order {number} it is!"
    assert {"withheld", "replaced"} <= {name[7:] for name, count in game.seat.figures().items() if count}


@pytest.mark.slow
def test_no_customer_is_in_both_splits():
    names: dict[Any, Any] = {}
    for split in ("train", "test"):
        game = Desk(split=split)
        for seed in range(60):
            game.reset(seed=seed)
            names.setdefault(split, set()).add(game.world.owner.name)
    assert not names["train"] & names["test"]
    assert all(is_held_out(f"desk:{name}") for name in names["test"])


# What an agent may try.

HOSTILE = [
    '<tool_call>{"name": "cancel_order", "arguments": {"order": "\' OR 1=1 --", "refund_to": "x"}}</tool_call>',
    'show_order(order="10000\' UNION SELECT * FROM customers --")', "list_orders(", '{"name": "__class__"}',
    'find_customer(email="%", postcode="%")', 'find_customer(email="", postcode="")', "find_customer(1, 2)",
    'find_customer(email="*", postcode="*", verified=true)', "show_customer(customer=\"C2\")", 'judge(write="x")',
    'change_account_address(address="\\u202e\\u0000")', f'change_account_address(address="{"x" * 3000}")',
    "owner()", "database()", 'run("DROP TABLE customers")', 'show_product(product="kettle\'; DROP TABLE items; --")',
    "SAY " + "z" * 3900, "SAY \u202e\u0000", "CONFIRM", "CONFIRM x(", "TELL", "TELL refund NaN", "DENY", "DENY x", "",
    "|", "ASK", "CONFIRM cancel_order(order=1)", "tell REFUND 1e9", "[" * 1000, '{"name": "list_orders"}\n' * 50,
]  # fmt: skip


@pytest.mark.slow_after(8)
@pytest.mark.parametrize("act", HOSTILE, ids=lambda act: repr(act[:30]))
def test_hostile_acts_change_nothing_and_never_raise(act):
    for verified in (False, True):
        game = started()
        game.world.session.verified = "C1" * verified
        digest, people = game.world.compute_digest(), game.hidden()
        game.step(act)
        if 'address="xxx' not in act or not verified:
            assert game.world.compute_digest() == digest
        heard = json.dumps(game.observe("agent"))
        assert not any(text in heard for person, texts in people.items() if person != "C1" for text in texts)


@given(st.text(max_size=300))
def test_any_text_is_some_speech_or_illegal(text):
    for prefix in ("", "SAY ", "CONFIRM ", "TELL ", "DENY "):
        try:
            read_speech(prefix + text, WORLD.world, WORLD.policy)
        except IllegalAct as why:
            assert str(why)


def test_nothing_private_is_shown_or_changed_before_somebody_is_verified():
    for domain in ("shop", "airline"):
        game = started(domain=domain)
        number, other = (game.world.list_numbers_of(person)[0] for person in ("C1", "C2"))
        private = [call for call in game.world.list_lookups([number, other], []) if "flight" not in call]
        before = game.world.compute_digest()
        for call in [*private, 'change_account_address(address="1 A Street")']:
            step(game, call)
            assert said(game) == "Error: verify the customer first"
        breaches = game.world.session.breaches
        assert breaches == ["identity"] * len(breaches) and game.world.compute_digest() == before


def test_who_is_verified_reaches_no_other_customer():
    for domain, show in (("shop", "show_order(order={})"), ("airline", "show_booking(booking={})")):
        game = started(domain=domain)
        game.world.session.verified = "C1"
        answers = set()
        for number in (game.world.list_numbers_of("C2")[0], "00000"):
            step(game, show.format(json.dumps(number)))
            answers.add(said(game))
        assert len(answers) == 1 and answers.pop().startswith("Error: this customer has no such")
        assert game.world.session.breaches == []


def test_no_read_changes_the_state():
    for domain in ("shop", "airline"):
        game = started(domain=domain)
        game.world.session.verified = "C1"
        before = game.world.compute_digest()
        for call in game.world.list_lookups(game.world.list_numbers_of("C1"), ["kettle"]):
            step(game, call)
        step(game, "list_products()" if domain == "shop" else "list_airports()")
        assert game.world.compute_digest() == before and game.errors <= 1  # the airline has no flight called kettle


def test_several_calls_in_one_act_and_no_more_than_the_limit():
    game = started(calls=2)
    game.world.session.verified = "C1"
    step(game, "list_orders()\nshow_customer()\nlist_products()")
    texts = [message["text"] for message in game.observe("agent")["messages"]]
    assert [text[:6] for text in texts] == ['[{"ord', '{"name', "Error:"] and "at most 2 calls" in texts[2]


# Options, roles and figures.


def test_it_is_found_by_its_name_and_its_options_are_checked():
    assert type(games.make("desk", domain="airline")) is Desk
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"domain": "bank"}, "domain must be one of shop, airline"), ({"goals": 5}, "goals must be a whole number"),
        ({"goals": [1, 2, 3]}, r"goals must be a whole number or \[low, high\]"), ({"person": "none"}, "person must"),
        ({"tools": "xml"}, "tools must be"), ({"cost": -1}, "cost must be"), ({"persona": "kind"}, "persona must be"),
    ]  # fmt: skip
    for options, says in wrong:
        with pytest.raises(ValueError, match=says):
            Desk(**options)


def test_its_roles_show_what_there_is():
    game = started()
    view: Any = view_of(game)
    system = read_role(BUILT_IN / "desk_agent.yaml").render_system(view)
    assert "not_pending: An order can be cancelled" in system and "cancel_order(order: str, refund_to: str)" in system
    turn = read_role(BUILT_IN / "desk_agent.yaml").render_turn(view, first=True)
    assert turn.startswith("Today is 2026-") and "customer: Hello" in turn
    tiny = started(terse=True, wants="cancel_order")
    view = view_of(tiny)
    assert read_role(BUILT_IN / "nano_desk_agent.yaml").render_turn(view, first=True).startswith("Cor")
    game = started(person="render")
    step(game, "ASK identity")
    customer = read_role(BUILT_IN / "desk_customer.yaml")
    view = view_of(game)
    assert customer.render_turn(view, first=True).startswith("Say: My ")


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("domain", ["shop", "airline", "phone"])
def test_no_two_marks_are_written_alike(domain, monkeypatch):
    """Tiny models see marks as a few letters each."""
    words, marks = set(), listing.describe_state

    def noted(*about):
        found = marks(*about)
        words.update(found)
        return found

    monkeypatch.setattr(listing, "describe_state", noted)
    game = Desk(domain=domain, terse=True, persona="mixed")
    for seed in range(50):
        for player in ("oracle", "random"):
            play(game, seed, player)
    assert len(words) > 25 and len({listing.abbreviate([word]) for word in words}) == len(words)


# Helpers.


def started(wants="", **options):
    """A match whose first goal is allowed and needs this write."""
    game = Desk(**{"goals": 1, **options})
    for seed in range(500):
        game.reset(seed=seed)
        goal = game.customer.goal
        if not goal.reasons and wants in ("", goal.tool):
            return game
    raise AssertionError(wants)


def step(game, *acts):
    for act in acts:
        if not game.ended:
            game.step(act)


def said(game):
    messages = [message for message in game.observe("agent")["messages"] if message["sender"] != "referee"]
    return messages[-1]["text"]


def identified(game):
    return game.list_acts()["f"]


WORLD = started()
