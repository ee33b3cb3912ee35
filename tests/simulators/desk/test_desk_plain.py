"""An agent that speaks only in plain words solves every desk task without typed codes."""

import pytest

from games.calls import read_calls
from simulators.conformance import view_of
from simulators.desk import Desk
from simulators.desk.speech import read_speech

CONFIRM_PHRASES = {
    "cancel_order": "I will cancel order {order} and refund you. Shall I go ahead?",
    "return_item": "So you want to return {item}, and the money goes to {refund_to}. Is that right?",
    "exchange_item": "I can exchange item {item} for variant {variant} now. Should I?",
    "change_address": "Order {order} will be sent to {address}. Is that correct?",
    "change_payment": "Shall I change the payment method of {number} to {payment}?",
    "resend_order": "I would resend order {order} at no cost. Do you agree?",
    "change_account_address": "The new address in your account will be {address}. Please confirm.",
    "cancel_booking": "Do you want me to cancel booking {booking}?",
    "change_flight": "I'll rebook {booking} onto flight {flight}. Is that okay?",
    "change_fare": "Shall I upgrade booking {booking} to {fare}?",
    "add_bags": "I will add bags to booking {booking}: {bags} of them. Is that fine?",
    "compensate": "May I proceed with the compensation for booking {booking}?",
}
TELL_PHRASES = {
    "refund": "You get a refund of ${}.", "difference": "The difference is {} dollars.",
    "total": "Altogether the order was ${}.", "tracking": "Its tracking code is {}.", "status": "The order is {}.",
    "delivered": "It was delivered on {}.", "price": "The price was ${}.", "day": "Your flight leaves on {}.",
    "bags": "It includes {} bags.", "fare": "It is a {} fare.",
}  # fmt: skip
DENY_PHRASES = {
    "privacy": "I can't tell you about other customers.",
    "not_pending": "I am unable to do that because the order is no longer pending.",
    "not_delivered": "That is not possible: it was not delivered yet.",
    "too_late": "Unfortunately it is too late, so I cannot do it.",
    "final_sale": "Sorry, I can't: it was a final sale.",
    "once": "That is impossible. It was already exchanged or returned, and this can be done only once.",
    "other_product": "I can not swap it for a different product.",
    "out_of_stock": "I won't be able to: that one is sold out.",
    "other_payment": "I am not allowed to. The money goes to the original payment method.",
    "not_lost": "I have to decline; the parcel may still arrive.",
    "departed": "The flight has already departed, so I can't change anything.",
    "not_refundable": "This fare is not refundable, I must refuse.",
    "basic_fare": "With a basic fare that is not permitted.",
    "other_route": "I cannot move you to another route.",
    "full": "I am unable to: that flight has no free seats.",
    "no_downgrade": "You can only go to a higher fare, so I have to deny it.",
    "too_many_bags": "That is not possible, it would be too many bags.",
    "not_late": "I can't pay that: the flight was not late enough.",
}
ASK_PHRASES = {
    "identity": "Could you please tell me your email and your postcode?",
    "number": "Which order or booking is it about?",
}
PROPOSALS = """
Shall I cancel {it}? | Is it OK if I cancel {it}? | Would it be okay to cancel {it}? | May I cancel {it}? |
Can I cancel {it} for you? | I will cancel {it}, ok? | I'm going to cancel {it}. Okay? |
Are you happy for me to cancel {it}? | Are you sure you want to cancel {it}? |
Do I have your permission to cancel {it}? | Please let me know if I should cancel {it}. |
Does that sound good: I cancel {it}? | Could you confirm that I should cancel {it}? |
Can you confirm the cancellation of {it}? | Kindly confirm the cancellation of {it}. |
Would you like to cancel {it}? | Would you like to proceed with the cancellation of {it}? |
Do you agree to the cancellation of {it}? | I'm ready to cancel {it}. Is this correct? |
Order 12345 will be cancelled, cancellation is final. Is that all right with you? |
Do you authorize me to cancel {it}? | So you want to cancel {it}, correct? | You want me to cancel {it}, right? |
Just to confirm: you want to cancel {it}? | Let me confirm: cancel {it}, yes or no? |
I can cancel {it}. Do you wish to continue? | I can cancel {it}. Should I do that? | Ready for me to cancel {it}? |
I can cancel {it} now. Does this work for you? | Want me to cancel {it}?
"""
REFUSALS = """
I can’t do that. | I cannot do that. | I'm unable to. | That isn't possible. | That isn’t possible. |
That is not possible. | I won’t do that. | We don't allow that. | Our policy does not allow that. |
Our policy doesn't permit it. | It is against our policy. | I must deny this request. | I have to refuse. |
I need to decline your request. | I decline. | I refuse. | It's not eligible for a return. | It isn't eligible. |
I am not permitted to do that. | This is forbidden. | It is prohibited. | I'm afraid I couldn't do that. |
Your request is denied. | Your request has been declined. | Your request was rejected. |
No, that is no longer possible. | I am sorry, but this can't be done. | I could not do that. |
I do not have permission to do that. | It cannot be returned. | Returns are not accepted for it. |
I may not do that. | We are not able to do that. | I'm not authorized to do that.
"""
OTHER_SPEECH = """
What can I do for you? | I have cancelled {it}. | I can confirm that {it} was cancelled. |
Which order would you like to cancel? | What would you like me to cancel? |
Would you like to know the cancellation fee? | May I have your email? |
Could you please confirm your order number? | Please confirm your identity first. |
Can I help you with the cancellation?
"""


def to_plain_words(act):
    """Return a typed act in plain words; tool calls stay as they are."""
    verb, _, rest = act.partition(" ")
    match verb:
        case "ASK":
            return f"SAY {ASK_PHRASES[rest]}"
        case "TELL":
            name, _, value = rest.partition(" ")
            return f"SAY {TELL_PHRASES[name].format(value)}"
        case "DENY":
            return f"SAY {DENY_PHRASES[rest]}"
        case "ELSE":
            return "SAY Is there anything else I can do for you?"
        case "CONFIRM":
            (call,) = read_calls(rest)
            number = call.arguments.get("order") or call.arguments.get("booking")
            return f"SAY {CONFIRM_PHRASES[call.name].format(number=number, **call.arguments)}"
    return act


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("domain", ["shop", "airline"])
def test_plain_words_solve_every_task(domain):
    """The oracle chooses the acts; the test says them in plain words."""
    game, acts = Desk(domain=domain, persona="mixed"), set()
    for seed in range(120):
        answer = game.players["oracle"](game, seed)
        game.reset(seed=seed)
        while not game.ended:
            act = answer(view_of(game))
            acts.add(act.partition("(")[0] if act.startswith("CONFIRM") else " ".join(act.split()[:2]))
            assert not to_plain_words(act).startswith(("ASK", "TELL", "DENY", "ELSE", "CONFIRM"))
            game.step(to_plain_words(act))
        report = game.report()
        assert report["success"] and not report["breaches"] and not report["invalid"], (seed, game.render())
    assert {f"TELL {fact}" for fact in game.world.facts} <= acts
    assert {f"CONFIRM {tool}" for tool in game.world.writes} <= acts
    for rule in game.policy:
        speech = read_speech(to_plain_words(f"DENY {rule.name}"), game.world, game.policy)
        assert speech and speech.reasons == {rule.name}


@pytest.mark.parametrize("domain", ["shop", "airline"])
def test_vague_or_other_proposals_get_no_consent(domain):
    """Propose another order, another write, or nothing specific."""
    game = Desk(domain=domain, goals=1)
    for seed in range(300):
        game.reset(seed=seed)
        if game.customer.goal.writes and game.customer.goal.subject != "account":
            break
    other_tool = next(
        tool for tool in game.world.writes if tool not in (game.customer.goal.tool, "change_account_address")
    )
    number = game.customer.goal.subject
    for text in (
        f"Shall I {game.world.verbs[other_tool][0]} {number}?",
        "Shall I go ahead?",
        f"Can I do it with {number}?",
    ):
        game.step(f"SAY {text}")
        assert not game.customer.is_write_pending, text
    verb = game.world.verbs[game.customer.goal.tool][0]
    game.step(f"SAY Shall I {verb} 00000, please?")
    assert not game.customer.is_write_pending
    game.step(f"SAY Shall I {verb} {number}, please?")
    assert game.customer.is_write_pending


def test_parses_proposals_and_refusals_in_many_forms():
    game = Desk(goals=1)
    game.reset(seed=1)

    def parse_all(phrases):
        for phrase in phrases.replace("|\n", "|").split("|"):
            text = phrase.strip().format(it="order 12345")
            speech = read_speech(f"SAY {text}", game.world, game.policy)
            assert speech
            yield text, speech

    assert [
        text for text, speech in parse_all(PROPOSALS) if "cancel_order" not in getattr(speech.proposal, "tools", ())
    ] == []
    assert [text for text, speech in parse_all(REFUSALS) if not speech.denies or speech.proposal] == []
    assert [text for text, speech in parse_all(OTHER_SPEECH) if speech.denies or speech.proposal] == []


def test_asking_to_confirm_data_is_a_question_for_it():
    game = Desk(goals=1)
    game.reset(seed=1)
    for text, name in (("Please confirm your email.", "identity"), ("Can you confirm the order number?", "number")):
        speech = read_speech(f"SAY {text}", game.world, game.policy)
        assert speech and getattr(speech, name) and speech.proposal is None
