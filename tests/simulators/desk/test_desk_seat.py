"""The customer at a seat of its own, freely played: its words are what counts, and it pays for what is not so."""

import random
from typing import Any

import pytest

from agents.role import BUILT_IN, read_role
from games.families.book import fold
from simulators.conformance import check, play, view_of
from simulators.desk import Desk
from tests.factories.thorough import count_cases

VARIANTS = [{"person": "free", "persona": "mixed"}, {"person": "free", "terse": True, "domain": "airline", "goals": 2}]


@pytest.mark.thorough
@pytest.mark.slow_after(1)
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_it_keeps_what_simulators_promise(options):
    findings = check(lambda: Desk(**options), seeds=count_cases(2, 4), acts=count_cases(50, 100))
    assert [finding for finding in findings if not finding.ok] == []


@pytest.mark.slow
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_it_does_over_a_thousand_seeds(options):
    assert all(finding.ok for finding in check(lambda: Desk(**options), seeds=1000, acts=20_000))


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("domain", ["shop", "airline"])
def test_who_says_what_the_script_would_is_served_like_the_script(domain):
    for seed in range(25):
        free, script = (Desk(domain=domain, person=p, persona="mixed") for p in ("free", "script"))
        reports = [play(game, seed, "oracle") for game in (free, script)]
        assert reports[0]["success"] and reports[1]["success"] and free.payoffs()["customer"] == 1
        assert free.world.compute_digest() == script.world.compute_digest()
        assert not any(reports[0][f"told_{what}"] for what in ("wrong", "secret", "unread"))


def test_its_seat_sees_its_record_and_the_short_words_do():
    """Whoever at the seat says the word that it is shown says what is due, and no more."""
    for terse in (False, True):
        for seed in range(25):
            game = Desk(person="free", terse=terse, persona="mixed", goals=2)
            agent = game.players["oracle"](game, seed)
            game.reset(seed=seed)
            while not game.ended:
                view: Any = view_of(game)
                if view.seat == "customer":
                    assert view.private["answer"] in view.legal and set(view.legal) == set(view.private["record"])
                game.step(agent(view) if view.seat == "agent" else view.private["answer"])
            assert game.report()["success"] and game.payoffs()["customer"] == 1, (seed, game.render())


def test_it_is_understood_in_words_of_its_own():
    game = waiting("ASK identity", volunteers=False)
    person = game.customer.record.person
    game.step(f"Sure: {person.email}, and the postcode is {person.postcode}!")
    assert view_of(game).messages[-1].text.startswith("Sure") and game.payoffs()["customer"] == 0
    assert any(act.startswith("find_customer(") for act in game.legal("agent"))
    game.step(next(act for act in game.legal("agent") or () if act.startswith("find")))
    assert game.world.session.verified == "C1"


def test_who_does_not_tell_who_it_is_has_not_told():
    game = waiting("ASK identity", volunteers=False)
    game.step("I would rather talk about the weather.")
    assert not any(act.startswith("find") for act in game.legal("agent"))
    assert costs(game) == {"unread": -0.1} and game.agent_selection == "agent"


def test_a_yes_is_its_own_yes_and_its_no_a_no():
    game = waiting()
    write = game.customer.goal.writes[0]
    game.step(f"CONFIRM {write}")
    game.step("no")
    assert not game.customer.is_write_pending and costs(game) == {"wrong": -0.1}
    game.step(f"CONFIRM {write}")
    game.step("mmh")
    assert not game.customer.is_write_pending and costs(game) == {"unread": -0.1}
    game.step(f"CONFIRM {write}")
    game.step("Yes, go on.")
    assert game.customer.is_write_pending and costs(game) == {}
    game.step('CONFIRM change_account_address(address="1 Elsewhere")')
    game.step("yes")
    assert game.customer.is_write_pending and costs(game) == {"wrong": -0.1}  # it now awaits what it never wanted
    assert game.world.session.consent.tool == "change_account_address"


@pytest.mark.parametrize(
    ("reply", "granted"),
    [("Yes please.", True), ("OK.", True), ("Go ahead.", True), ("That's right.", True), ("Sure, why not?", True),
     ("Yes, my address is {address}, thank you.", True), ("Definitely not.", False), ("No, don't", False),
     ("OK, but not the second one", False), ("yes, no wait", False), ("please do not go ahead", False),
     ("What would happen if I said yes?", False), ("No way@mail.example", False)],
)  # fmt: skip
def test_agreement_needs_no_exact_words_and_a_mixed_answer_is_none(reply, granted):
    game = waiting()
    game.step(f"CONFIRM {game.customer.goal.writes[0]}")
    game.step(reply.format(address=game.customer.record.person.address))
    assert game.customer.is_write_pending == granted
    assert granted or costs(game)


@pytest.mark.parametrize(
    ("reply", "stays"),
    [("Yes please.", True), ("OK, do it", True), ("OK, and pay me", False), ("Definitely not", False),
     ("That's right, if it is free", False)],
)  # fmt: skip
def test_a_rendered_yes_may_be_any_yes_and_nothing_more(reply, stays):
    game = waiting(person="render")
    game.step(f"CONFIRM {game.customer.goal.writes[0]}")
    game.step(reply)
    assert (game.agent_selection == "agent") == stays and bool(costs(game)) != stays


def test_a_yes_agrees_to_nothing_where_nothing_was_proposed():
    game = waiting("ASK number", person="render")
    game.step(f"Yes. {game.seat.template}")
    assert game.agent_selection == "agent" and costs(game) == {}


def test_numbers_that_it_made_up_and_its_own_data_told_unasked_cost():
    game = waiting("ASK number")
    number, person = game.customer.number, game.customer.record.person
    game.step(f"It is order {number}, or 99999. I live in {person.address}.")
    assert costs(game) == {"wrong": -0.1, "secret": -0.1}
    assert game.report_of_seat() == {"told_wrong": 1, "told_secret": 1, "told_unread": 0}


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("persona", ["impatient", "cooperative"])
def test_nobody_leaves_while_a_write_is_due_whatever_it_says(persona):
    left = pending = 0
    for seed in range(25):
        game, rng = Desk(person="free", persona=persona, goals=2, max_turns=60), random.Random(seed)
        game.reset(seed=seed)
        while not game.ended:
            if game.agent_selection == "customer":
                game.step(rng.choice([*(game.legal("customer") or ()), "yes", "yes", "Goodbye."]))
            else:
                acts = [act for act in game.legal("agent") or () if not act.startswith(("D", "TELL"))]
                first = [act for act in acts if act.startswith(("CONFIRM", "find"))]
                game.step(rng.choice(first if first and rng.random() < 0.5 else acts))
            pending += game.customer.is_write_pending
            assert not (game.customer.gone and game.customer.is_write_pending)
        left += game.customer.gone == "left"
    assert pending and bool(left) == (persona == "impatient")


def test_a_careless_customer_gives_nobody_else_away():
    """What was not said by the seat stays hidden, whoever plays both seats at random."""
    probes = 0
    for seed in range(40):
        game = Desk(person="free", persona="mixed", domain=("shop", "airline")[seed % 2])
        agent, customer = (game.players["random"](game, seed + n) for n in range(2))
        game.reset(seed=seed)
        heard = ""
        while not game.ended:
            view = view_of(game)
            if view.seat == "agent":
                heard += "".join(f" {fold(message.text)} ." for message in view.messages)
                texts = [fold(text) for each in game.hidden().values() for text in each]
                assert not [text for text in texts if f" {text} " in f" {heard} "]
                probes += len(texts)
            game.step((agent if view.seat == "agent" else customer)(view))
    assert probes > 1000


def test_what_it_wants_is_unclear_until_it_is_said():
    game = waiting("ELSE", terse=True)
    game.step("bye")
    assert game.private("agent")["marks"].startswith("Un")
    game.step("e")
    game.step("request")
    assert not game.private("agent")["marks"].startswith("Un")


def test_its_role_shows_the_short_word():
    game = waiting("i", terse=True, volunteers=False)
    role = read_role(BUILT_IN / "nano_desk_customer.yaml")
    view: Any = view_of(game)
    assert role.render_turn(view, first=True) == "identity"


# Helpers.


class Told(Desk):
    """With what the seat's words came to, before the match has ended."""

    def report_of_seat(self):
        return self.seat.figures()


def waiting(*acts, volunteers=None, **options):
    """A match about an order whose goal is allowed, after these acts of the agent."""
    for seed in range(500):
        game = Told(**{"person": "free", "goals": 1, **options})
        game.reset(seed=seed)
        record, goal = game.customer.record, game.customer.goal
        fits = not goal.reasons and goal.tool in ("cancel_order", "resend_order", "change_address")
        if fits and volunteers in (None, record.volunteers) and not (record.forgets_email or record.forgets_numbers[0]):
            for act in acts:
                game.step(act)
            return game
    raise AssertionError("there is no such match")


def costs(game):
    return game.infos["customer"]["rewards"]
