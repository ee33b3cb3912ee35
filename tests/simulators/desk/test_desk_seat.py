"""The customer as a freely played seat: its words count, and false statements are penalised."""

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
def test_passes_the_conformance_kit(options):
    findings = check(lambda: Desk(**options), seeds=count_cases(2, 4), acts=count_cases(50, 100))
    assert [finding for finding in findings if not finding.ok] == []


@pytest.mark.slow
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_passes_the_conformance_kit_over_many_seeds(options):
    assert all(finding.ok for finding in check(lambda: Desk(**options), seeds=1000, acts=20_000))


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("domain", ["shop", "airline"])
def test_free_customer_that_follows_the_script_is_served_equally(domain):
    for seed in range(25):
        free, script = (Desk(domain=domain, person=p, persona="mixed") for p in ("free", "script"))
        reports = [play(game, seed, "oracle") for game in (free, script)]
        assert reports[0]["success"] and reports[1]["success"] and free.payoffs()["customer"] == 1
        assert free.world.compute_digest() == script.world.compute_digest()
        assert not any(reports[0][f"told_{kind}"] for kind in ("wrong", "secret", "unread"))


def test_suggested_answers_suffice():
    """A customer that always gives the suggested answer succeeds without penalties."""
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


def test_free_wording_is_understood():
    game = start_game("ASK identity", volunteers=False)
    person = game.customer.record.person
    game.step(f"Sure: {person.email}, and the postcode is {person.postcode}!")
    assert view_of(game).messages[-1].text.startswith("Sure") and game.payoffs()["customer"] == 0
    assert any(act.startswith("find_customer(") for act in game.legal("agent"))
    game.step(next(act for act in game.legal("agent") or () if act.startswith("find")))
    assert game.world.session.verified_customer == "C1"


def test_customer_without_identity_is_not_identified():
    game = start_game("ASK identity", volunteers=False)
    game.step("I would rather talk about the weather.")
    assert not any(act.startswith("find") for act in game.legal("agent"))
    assert get_penalties(game) == {"unread": -0.1} and game.agent_selection == "agent"


def test_yes_and_no_are_taken_at_their_word():
    game = start_game()
    write = game.customer.goal.writes[0]
    game.step(f"CONFIRM {write}")
    game.step("no")
    assert not game.customer.is_write_pending and get_penalties(game) == {"wrong": -0.1}
    game.step(f"CONFIRM {write}")
    game.step("mmh")
    assert not game.customer.is_write_pending and get_penalties(game) == {"unread": -0.1}
    game.step(f"CONFIRM {write}")
    game.step("Yes, go on.")
    assert game.customer.is_write_pending and get_penalties(game) == {}
    game.step('CONFIRM change_account_address(address="1 Elsewhere")')
    game.step("yes")
    assert game.customer.is_write_pending and get_penalties(game) == {
        "wrong": -0.1
    }  # it agreed to a write that it did not want
    assert game.world.session.consent.tool == "change_account_address"


@pytest.mark.parametrize(
    ("reply", "is_granted"),
    [("Yes please.", True), ("OK.", True), ("Go ahead.", True), ("That's right.", True), ("Sure, why not?", True),
     ("Yes, my address is {address}, thank you.", True), ("Definitely not.", False), ("No, don't", False),
     ("OK, but not the second one", False), ("yes, no wait", False), ("please do not go ahead", False),
     ("What would happen if I said yes?", False), ("No way@mail.example", False)],
)  # fmt: skip
def test_parses_agreement_in_any_words_and_refuses_mixed_answers(reply, is_granted):
    game = start_game()
    game.step(f"CONFIRM {game.customer.goal.writes[0]}")
    game.step(reply.format(address=game.customer.record.person.address))
    assert game.customer.is_write_pending == is_granted
    assert is_granted or get_penalties(game)


@pytest.mark.parametrize(
    ("reply", "is_accepted"),
    [("Yes please.", True), ("OK, do it", True), ("OK, and pay me", False), ("Definitely not", False),
     ("That's right, if it is free", False)],
)  # fmt: skip
def test_rendered_yes_may_be_worded_freely_without_additions(reply, is_accepted):
    game = start_game(person="render")
    game.step(f"CONFIRM {game.customer.goal.writes[0]}")
    game.step(reply)
    assert (game.agent_selection == "agent") == is_accepted and bool(get_penalties(game)) != is_accepted


def test_yes_without_a_proposal_agrees_to_nothing():
    game = start_game("ASK number", person="render")
    game.step(f"Yes. {game.seat.template}")
    assert game.agent_selection == "agent" and get_penalties(game) == {}


def test_invented_numbers_and_unasked_data_are_penalised():
    game = start_game("ASK number")
    number, person = game.customer.number, game.customer.record.person
    game.step(f"It is order {number}, or 99999. I live in {person.address}.")
    assert get_penalties(game) == {"wrong": -0.1, "secret": -0.1}
    assert game.report_of_seat() == {"told_wrong": 1, "told_secret": 1, "told_unread": 0}


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("persona", ["impatient", "cooperative"])
def test_customer_never_leaves_while_a_write_is_pending(persona):
    left_count = pending_count = 0
    for seed in range(25):
        game, rng = Desk(person="free", persona=persona, goals=2, max_turns=60), random.Random(seed)
        game.reset(seed=seed)
        while not game.ended:
            if game.agent_selection == "customer":
                game.step(rng.choice([*(game.legal("customer") or ()), "yes", "yes", "Goodbye."]))
            else:
                acts = [act for act in game.legal("agent") or () if not act.startswith(("D", "TELL"))]
                preferred = [act for act in acts if act.startswith(("CONFIRM", "find"))]
                game.step(rng.choice(preferred if preferred and rng.random() < 0.5 else acts))
            pending_count += game.customer.is_write_pending
            assert not (game.customer.departure and game.customer.is_write_pending)
        left_count += game.customer.departure == "left"
    assert pending_count and bool(left_count) == (persona == "impatient")


def test_random_play_reveals_no_other_persons_data():
    """With both seats played at random, texts of other persons stay hidden."""
    probes = 0
    for seed in range(40):
        game = Desk(person="free", persona="mixed", domain=("shop", "airline")[seed % 2])
        agent, customer = (game.players["random"](game, seed + n) for n in range(2))
        game.reset(seed=seed)
        seen_text = ""
        while not game.ended:
            view = view_of(game)
            if view.seat == "agent":
                seen_text += "".join(f" {fold(message.text)} ." for message in view.messages)
                texts = [fold(text) for person_texts in game.hidden().values() for text in person_texts]
                assert not [text for text in texts if f" {text} " in f" {seen_text} "]
                probes += len(texts)
            game.step((agent if view.seat == "agent" else customer)(view))
    assert probes > 1000


def test_request_is_unclear_until_stated():
    game = start_game("ELSE", terse=True)
    game.step("bye")
    assert game.private("agent")["marks"].startswith("Un")
    game.step("e")
    game.step("request")
    assert not game.private("agent")["marks"].startswith("Un")


def test_role_shows_the_suggested_answer():
    game = start_game("i", terse=True, volunteers=False)
    role = read_role(BUILT_IN / "nano_desk_customer.yaml")
    view: Any = view_of(game)
    assert role.render_turn(view, first=True) == "identity"


# Helpers.


class DeskWithSeatReport(Desk):
    """Desk that also reports on the seat's words before the match has ended."""

    def report_of_seat(self):
        return self.seat.figures()


def start_game(*acts, volunteers=None, **options):
    """Start a match with an allowed goal about an order, and play these acts of the agent."""
    for seed in range(500):
        game = DeskWithSeatReport(**{"person": "free", "goals": 1, **options})
        game.reset(seed=seed)
        record, goal = game.customer.record, game.customer.goal
        is_suitable = not goal.reasons and goal.tool in ("cancel_order", "resend_order", "change_address")
        if (
            is_suitable
            and volunteers in (None, record.volunteers)
            and not (record.forgets_email or record.forgets_numbers[0])
        ):
            for act in acts:
                game.step(act)
            return game
    raise AssertionError("there is no such match")


def get_penalties(game):
    return game.infos["customer"]["rewards"]
