"""The service desk: conformance over many seeds, customer behaviour, hostile agents, and scoring."""

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
from tests.simulators.promises import find_failed_checks, passes_over_many_seeds

VARIANTS = [
    {"persona": "mixed"}, {"domain": "airline", "persona": "mixed", "cost": 0.01, "illegal": "end"},
    {"person": "render", "persona": "mixed", "goals": 2}, {"terse": True, "split": "train", "persona": "impatient"},
    {"domain": "airline", "goals": [3, 4], "split": "test", "persona": "mistaken", "tools": "json"},
]  # fmt: skip
DOMAINS = pytest.mark.parametrize("domain", ["shop", "airline"])


@pytest.mark.thorough
@pytest.mark.slow_after(1)
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_passes_the_conformance_kit(options):
    assert find_failed_checks(lambda: Desk(**options), seeds=count_cases(2, 3), acts=count_cases(50, 100)) == []


@pytest.mark.slow
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_passes_the_conformance_kit_over_many_seeds(options, capsys):
    assert passes_over_many_seeds(lambda: Desk(**options), options, capsys)


@pytest.mark.slow_after(1)
@DOMAINS
def test_oracle_solves_every_task_with_listed_acts(domain):
    """The oracle plays only listed acts, whose arguments come from the customer's words and tool results."""
    game, kinds = Desk(domain=domain, persona="mixed"), set()
    for seed in range(60):
        for view in walk(game, seed, "oracle"):
            assert view.legal and len({*view.legal}) == len(view.legal) == len(game.list_acts())
        assert game.report()["success"], seed
        kinds |= {(goal.tool, bool(goal.reasons)) for goal in game.customer.record.goals}
    assert {tool for tool, _ in kinds} == {*game.world.writes, ""}
    assert len(kinds) > len(game.world.writes) + 4  # most writes are also requested where they are forbidden


class SilentRefusals(Desk):
    """Desk that does not require stating refusals, as in tau-bench."""

    def _finish(self, why):
        for outcome, goal in zip(self.customer.outcomes, self.customer.record.goals, strict=False):
            if goal.reasons:
                outcome.denial_reasons = goal.reasons
        super()._finish(why)


@pytest.mark.slow
def test_doing_nothing_passes_if_refusals_need_not_be_stated():
    reports: list[dict[str, Any]] = [play(Desk(goals=1), seed, "noop") for seed in range(60)]
    assert sum(report["score"] for report in reports) == 0
    assert sum(report["tau_score"] for report in reports) == sum(report["forbidden"] for report in reports) > 15
    failed_checks = {finding.name for finding in check_outcomes(lambda: SilentRefusals(goals=1), 20) if not finding.ok}
    assert "noop" in failed_checks


# Customers.


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("persona", Desk.personas)
@DOMAINS
def test_customers_do_not_leave_while_a_write_is_pending(domain, persona):
    game, left_count, pending_count = Desk(domain=domain, persona=persona, goals=2, max_turns=60), 0, 0
    for seed in range(12):
        game.reset(seed=seed)
        rng = random.Random(seed)
        while not game.ended:
            acts = [act for act in game.list_acts().values() if not act.startswith(("D", "TELL"))]
            confirms = [act for act in acts if act.startswith(("CONFIRM", "find"))]
            game.step(rng.choice(confirms if confirms and rng.random() < 0.5 else acts))
            pending_count += game.customer.is_write_pending
            assert not (game.customer.departure and game.customer.is_write_pending)
        left_count += game.customer.departure == "left"
    assert pending_count and bool(left_count) == (persona == "impatient")


def test_impatient_customer_waits_only_for_an_agreed_write():
    game = start_game(persona="impatient", tool="resend_order")
    goal = game.customer.goal
    step_all(game, "ASK identity")
    step_all(game, find_identify_act(game), f"CONFIRM {goal.writes[0]}", *["ELSE"] * 9)
    assert game.customer.is_write_pending and not game.ended
    game = start_game(persona="impatient", tool="resend_order")
    step_all(game, *["ELSE"] * 9)
    assert (game.ended, game.report()["score"], game.report()["customer_left"]) == ("left", 0.0, True)


def test_a_mistaken_customer_corrects_itself_when_asked():
    corrected = set()
    for seed in range(40):
        game = Desk(persona="mistaken")
        game.reset(seed=seed)
        record = game.customer.record
        if record.wrong_postcode:
            step_all(game, *["ASK identity"] * (not game.customer.identity))
            step_all(game, find_identify_act(game))
            assert read_last_message(game).startswith("Error") and not game.world.session.verified_customer
            step_all(game, "ASK identity")
            step_all(game, find_identify_act(game))
            assert game.world.session.verified_customer == "C1"
            corrected.add("postcode")
        if record.wrong_numbers[0] and record.goals[0].subject != "account":
            assert game.customer.number == record.wrong_numbers[0] not in game.world.list_numbers_of("C1")
            step_all(game, "ASK number")
            assert record.goals[0].subject in read_last_message(game)
            corrected.add("number")
    assert corrected == {"postcode", "number"}


def test_prying_customer_waits_for_a_privacy_denial():
    for seed in range(500):
        game = Desk(goals=1)
        game.reset(seed=seed)
        if "privacy" in game.customer.goal.reasons:
            break
    game.world.session.verified_customer = "C1"
    step_all(game, "ELSE", "SAY I am sorry, I can't do that.")
    assert read_last_message(game) == "Why not?" and not game.ended
    step_all(game, "SAY I am not allowed to tell you about other customers.")
    assert (game.ended, game.report()["success"]) == ("served", True)


def test_insisting_customer_needs_a_second_denial():
    for seed in range(60):
        game = Desk(persona="mistaken", goals=1)
        game.reset(seed=seed)
        if game.customer.record.insists and game.customer.goal.reasons:
            break
    game.world.session.verified_customer = "C1"
    reason = f"DENY {min(game.customer.goal.reasons)}"
    step_all(game, reason)
    assert read_last_message(game) == "Are you sure? Please make an exception."
    step_all(game, reason)
    assert game.report()["success"]


@pytest.mark.slow
def test_customer_templates_are_parsed_completely():
    for domain in ("shop", "airline"):
        game = Desk(domain=domain, persona="mixed", person="render")
        for seed in range(25):
            texts = 0
            for view in walk(game, seed, "oracle"):
                if view.seat != "customer":
                    continue
                texts += 1
                customer, template = game.customer, view.private["template"]
                facts = customer.read(template, game.seat.proposal is not None).facts
                for act in customer.acts:
                    if act.kind in ("confirm", "deny"):
                        assert "agreement" in facts, template
                    if act.kind == "instruct" and act.topic not in ("fact", "exception", "reason"):
                        assert not customer.number or customer.number in facts, template
            report = game.report()
            assert report["success"] and not report["render_replaced"] and report["render_texts"] == texts


def test_rendering_with_a_wrong_number_is_retried_then_replaced():
    game = start_game(person="render", tool="cancel_order")
    step_all(game, "ASK number")
    template = game.private("customer")["template"]
    for _ in range(2):
        assert game.agent_selection == "customer"
        game.step("It is order 99999.")
    assert read_last_message(game) == template and game.payoffs()["customer"] == pytest.approx(-0.2)
    step_all(game, "ASK number")
    number = game.customer.goal.subject
    game.step(f"Order {number} it is!")
    assert read_last_message(game) == f"Order {number} it is!"
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


# Hostile agents.

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
        game = start_game()
        game.world.session.verified_customer = "C1" * verified
        digest, hidden_texts = game.world.compute_digest(), game.hidden()
        game.step(act)
        if 'address="xxx' not in act or not verified:
            assert game.world.compute_digest() == digest
        messages = json.dumps(game.observe("agent"))
        assert not any(text in messages for person, texts in hidden_texts.items() if person != "C1" for text in texts)


@given(st.text(max_size=300))
def test_any_text_is_speech_or_illegal(text):
    for prefix in ("", "SAY ", "CONFIRM ", "TELL ", "DENY "):
        try:
            read_speech(prefix + text, GAME.world, GAME.policy)
        except IllegalAct as error:
            assert str(error)


def test_unverified_customers_data_is_neither_shown_nor_changed():
    for domain in ("shop", "airline"):
        game = start_game(domain=domain)
        number, other = (game.world.list_numbers_of(person)[0] for person in ("C1", "C2"))
        private = [call for call in game.world.list_lookups([number, other], []) if "flight" not in call]
        before = game.world.compute_digest()
        for call in [*private, 'change_account_address(address="1 A Street")']:
            step_all(game, call)
            assert read_last_message(game) == "Error: verify the customer first"
        breaches = game.world.session.breaches
        assert breaches == ["identity"] * len(breaches) and game.world.compute_digest() == before


def test_verified_customer_reaches_no_other_customers_data():
    for domain, show in (("shop", "show_order(order={})"), ("airline", "show_booking(booking={})")):
        game = start_game(domain=domain)
        game.world.session.verified_customer = "C1"
        answers = set()
        for number in (game.world.list_numbers_of("C2")[0], "00000"):
            step_all(game, show.format(json.dumps(number)))
            answers.add(read_last_message(game))
        assert len(answers) == 1 and answers.pop().startswith("Error: this customer has no such")
        assert game.world.session.breaches == []


def test_lookups_do_not_change_the_state():
    for domain in ("shop", "airline"):
        game = start_game(domain=domain)
        game.world.session.verified_customer = "C1"
        before = game.world.compute_digest()
        for call in game.world.list_lookups(game.world.list_numbers_of("C1"), ["kettle"]):
            step_all(game, call)
        step_all(game, "list_products()" if domain == "shop" else "list_airports()")
        assert game.world.compute_digest() == before and game.errors <= 1  # the airline has no flight called kettle


def test_several_calls_in_one_act_and_no_more_than_the_limit():
    game = start_game(calls=2)
    game.world.session.verified_customer = "C1"
    step_all(game, "list_orders()\nshow_customer()\nlist_products()")
    texts = [message["text"] for message in game.observe("agent")["messages"]]
    assert [text[:6] for text in texts] == ['[{"ord', '{"name', "Error:"] and "at most 2 calls" in texts[2]


# Options, roles and reports.


def test_desk_is_found_by_name_and_checks_its_options():
    assert type(games.make("desk", domain="airline")) is Desk
    invalid: list[tuple[dict[str, Any], str]] = [
        ({"domain": "bank"}, 'domain must be "shop" or "airline"'), ({"goals": 5}, "goals must be a whole number"),
        ({"goals": [1, 2, 3]}, r"goals must be a whole number or \[low, high\]"), ({"person": "none"}, "person must"),
        ({"tools": "xml"}, "tools must be"), ({"cost": -1}, "cost must be"), ({"persona": "kind"}, "persona must be"),
    ]  # fmt: skip
    for options, message in invalid:
        with pytest.raises(ValueError, match=message):
            Desk(**options)


def test_roles_show_policy_tools_and_messages():
    game = start_game()
    view: Any = view_of(game)
    system = read_role(BUILT_IN / "desk_agent.yaml").render_system(view)
    assert "not_pending: An order can be cancelled" in system and "cancel_order(order: str, refund_to: str)" in system
    turn = read_role(BUILT_IN / "desk_agent.yaml").render_turn(view, first=True)
    assert turn.startswith("Today is 2026-") and "customer: Hello" in turn
    terse_game = start_game(terse=True, tool="cancel_order")
    view = view_of(terse_game)
    assert read_role(BUILT_IN / "nano_desk_agent.yaml").render_turn(view, first=True).startswith("Cor")
    game = start_game(person="render")
    step_all(game, "ASK identity")
    customer = read_role(BUILT_IN / "desk_customer.yaml")
    view = view_of(game)
    assert customer.render_turn(view, first=True).startswith("Say: My ")


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("domain", ["shop", "airline", "phone"])
def test_marks_have_distinct_abbreviations(domain, monkeypatch):
    """Terse prompts abbreviate each mark to a few letters."""
    words, describe_state = set(), listing.describe_state

    def record_marks(*arguments):
        new_marks = describe_state(*arguments)
        words.update(new_marks)
        return new_marks

    monkeypatch.setattr(listing, "describe_state", record_marks)
    game = Desk(domain=domain, terse=True, persona="mixed")
    for seed in range(50):
        for player in ("oracle", "random"):
            play(game, seed, player)
    assert len(words) > 25 and len({listing.abbreviate([word]) for word in words}) == len(words)


# Helpers.


def start_game(tool="", **options):
    """Start a match whose first goal is allowed and needs the write `wants`."""
    game = Desk(**{"goals": 1, **options})
    for seed in range(500):
        game.reset(seed=seed)
        goal = game.customer.goal
        if not goal.reasons and tool in ("", goal.tool):
            return game
    raise AssertionError(tool)


def step_all(game, *acts):
    for act in acts:
        if not game.ended:
            game.step(act)


def read_last_message(game):
    messages = [message for message in game.observe("agent")["messages"] if message["sender"] != "referee"]
    return messages[-1]["text"]


def find_identify_act(game):
    return game.list_acts()["f"]


GAME = start_game()
