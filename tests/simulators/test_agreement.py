"""Agreement with a proposal: everyday replies, mixed replies, and texts that do not answer."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulators.agreement import read_agreement
from simulators.desk.customer import EXCEPTION_REQUEST, NO, YES

AGREEMENTS = """
Yes. | Yes please. | Yes, please go ahead. | Yes, I think that is right. | Yes, do it. | OK. | Okay | ok, thanks |
Go ahead. | That's right. | That is correct. | Correct. | sure | Sure thing! | Sure, go ahead | yep | Yup, do it. |
Absolutely. | Of course. | Of course! | Sounds good. | Sounds good to me! | Perfect, thank you. |
That works for me. | That works. | Please do. | Please do so | Please go ahead and cancel it. | Go for it |
Proceed. | Please proceed with the cancellation. | I agree. | I agree to that. | I confirm. |
I confirm the cancellation of order 12345. | Confirmed. | You may proceed. | You have my permission. | Fine. |
Fine by me. | That's fine. | That is fine with me. | All right then. | Alright. | Right. |
Yes, cancel order 12345 please. | Yes cancel it | Yes go ahead and cancel. | Yes! 👍 | YES | yesss | yeah sure |
Yes, that's what I want. | That's exactly what I want. | I'd like that. | I would like you to do that. |
No problem. | No problem, go ahead. | I don't mind. | No objections. | I have no objection. | Sure, why not? |
Why not? | By all means. | Definitely. | Certainly. | Very well. | Very good, thank you. | Great. |
Great, please do that. | Yes, it never came. | Yes, cancel it. I don't need it any more. |
Yes. I did not pay with it. | Sure, how long does it take? | Yes please, when will it arrive? |
Yes. When will I get the money? | Well, yes. | Hmm, okay then. | Oh yes please | Thank you, yes. |
Thanks, please go ahead. | Thank you so much! Yes, please do. | Let's do it. | I do. | I am happy with that. |
I'm okay with that. | Yes, I confirm. Thank you for your help! | Make it so. | Please. | Yes – please do. |
Yes (please). | Agreed! | It's fine. | It is okay. | Yes I'm sure | I am sure, please proceed. |
Okay, please cancel order 12345 and refund me. | yes and thank you | Yes, exactly. | Exactly. | Exactly right. |
Yes, pay with my gift card instead. | Yes, go on. | Yes, everything is correct. | Everything looks good. |
Looks good to me. | k | Do it. | do that please | ok do it | That'll do. | I accept. |
I'd be happy with that, yes. | Yes, of course, don't worry | My email is ann mail example, go ahead. |
Yes, and what is the total? | You can go ahead. | Yes, that's okay | Yes, no rush | Y | Yes, that would be great. |
That would be great. | Yes, thanks. | Yep, that's the one. |
Okay, that sounds good. Please go ahead and process the return. | I'd appreciate that. | Sure, please do so. |
Yes, please process the cancellation. |
Yes, please return the lamp and refund the original payment method. Is there anything else you need from me? |
Okay, let's proceed. | Let's go ahead. | Good, do it | That would be perfect. | I'm good with that |
Yes. If you need anything else, let me know. | Yes, please. Let me know when it's done. |
Yes, please let me know if you need anything else. | I would like to proceed. | I'd like to go ahead |
That's the right address. | You bet! | ok great | okay perfect | Ok sounds good | Not a problem at all. |
It's a yes from me | My answer is yes | I say yes | I said yes | *nods* Yes, please. | **Yes** |
Customer: Yes please. | "Yes." | I don't have a problem with that | I don't see why not | I couldn't agree more |
I do not have any objection. | Yes, if possible today | Let's do that. | Yes, and thank you so much |
Yes, I would like to cancel it. | Yes, I do want to cancel. | Hi, yes. |
Yes, my order is 12345. Please cancel it. | I want that | Yeah, okay, fine. | Yes - go on | yes , please |
Yes, that's the one I meant! | That is what I asked for. | That is exactly what I asked for. | I'm fine with it |
That is okay with me. | Go on then | I think so | Yes, all correct | All correct. |
Yes, cancel it. I do not want it any more. | Yes please do. | I can't wait, go ahead | Okay, no problem |
Yes, I already told you: I need to cancel order 12345 | Sí. Yes.
"""
REFUSALS = """
No. | No, don't | no thanks | No thank you. | nope | Nah | I'd rather not | I would rather not. |
I'd rather you didn't. | please do not go ahead | Please don't. | Don't do it. | Do not proceed. | Don't. |
Never. | Absolutely not. | Definitely not. | Certainly not! | Of course not. | Not now. | Not yet. | Not really. |
No way! | That's not right. | That is not what I asked for. | No, that is not what I asked for. | That's wrong. |
Incorrect. | I disagree. | I don't agree. | I do not want that. | I don't think so. | I refuse. | Stop. |
Please stop! | Never mind. | Forget it. | I changed my mind. | I can't agree to that. | I won't agree |
Leave it as it is. | Hold off. | Go ahead? No. | You may not. | You must not do that. | Hell no |
I did not ask for that. | No. I would like to cancel order 12345. | Please no. | Not that one. | It isn't right. |
Under no circumstances. | That doesn't work for me. | no no no | NOOO | Declined. | I don't. | No, wrong order. |
I am not happy with that. | I said no | Nope, not today | Thanks but no thanks | Not at this time | I'll pass. |
Let's not | I'd say no | Don't you dare | Do nothing | That's not necessary. | There is no need | No need. |
Please hold off | *shakes head* No. | I see, but no | Sorry, no. | I'm afraid not | I am sorry but no |
I'm sorry, I can't agree to this. | Not for me | I'd prefer not to | I would prefer that you do not |
I don't want you to do that | It's a no | I don't want to cancel. | I do not want to return anything | No I don't |
This is not what I want | Do not cancel my order, please | None of that | No, please
"""
UNDECIDED = """
OK, but not the second one | yes, no wait | Yes and no. | Yes, but only the first. | Yes, if it is free. |
If it is free, go ahead. | Only if it is free... then yes | Yes, unless it costs more. | I'm not sure. |
I am not sure about that | Maybe. | Perhaps. | Wait. | Hold on a second. | Let me think. | I don't know. |
Hmm, hard to say. | Yes... actually no. | Yes. No. | No, yes. | Okay, but first tell me the price. |
Sure, as long as it is free | Go ahead. Wait, stop! | I guess so. | It depends. | Yes, do not do it |
Yes, but not now | Yes to the first, no to the second. | OK, not that one though. |
Go ahead once you have checked the price. | OK. What does it cost? | OK, so what is the price? | Yes not |
I agree, except for the address. | sure, not | Yes, don't charge me. | OK, I have a question. |
Fine, however I want a refund | Right, when will it arrive? | Yes I don't want that | Yes, I mean no |
Yes, scratch that | yeah no | Maybe later | If that's what it takes, yes. | I agree but only this time... no wait |
Okay, hold on | Yes, let me check something first | I might | Yes. Show me the total price first. | ok no |
Yes, wait a moment | Go ahead, or rather don't
"""
UNRELATED = """
what would happen if I said yes? | mmh | Nice weather. | I would rather talk about the weather. |
My email is ann mail example. | What? | Can you say that again? | Yes? | OK? | Good morning. | Hello. |
Thank you. | Should I say yes? | Would you go ahead? | Who told you to go ahead? | How much do I get back? |
I want to cancel order 12345. | I would like to cancel order 12345. | It is order 12345. |
Right now I want to know the price. | . | I will say yes tomorrow | I see. | Is that right? | Why? |
I no longer want that | The ok button is broken | Good luck. | Goodbye. | Are you sure? | How do I get a yes |
Did I agree to that? | I do not have the number | I don't care | As you like | If you must. |
Thanks a lot, that is all | Is a yes needed, or shall I wait? | no1 | yesterday | noon | okra
"""


def split_replies(phrases):
    return [text.strip() for text in phrases.replace("|\n", "|").split("|")]


@pytest.mark.parametrize(
    ("phrases", "stance"), [(AGREEMENTS, "inform"), (REFUSALS, "deny"), (UNDECIDED, "unknown"), (UNRELATED, None)],
    ids=["agree", "refuse", "open", "silent"],
)  # fmt: skip
def test_classifies_everyday_replies(phrases, stance):
    assert {text: parsed for text in split_replies(phrases) if (parsed := read_agreement(text)) != stance} == {}


def test_case_and_apostrophes_do_not_matter():
    for phrases in (AGREEMENTS, REFUSALS, UNDECIDED, UNRELATED):
        for text in split_replies(phrases):
            for variant in (text.upper(), text.replace("'", "\u2019"), f"  {text} "):
                assert read_agreement(variant) == read_agreement(text), variant


def test_reply_with_yes_and_no_is_not_agreement():
    rng, yes, no = random.Random(0), split_replies(AGREEMENTS), split_replies(REFUSALS)
    for _ in range(300):
        both = rng.sample([rng.choice(yes), rng.choice(no)], 2)
        assert read_agreement(" ".join(f"{text.rstrip('.!')}." for text in both)) != "inform", both


def test_classifies_scripted_answers():
    assert {read_agreement(text) for text in YES.values()} == {"inform"}
    assert read_agreement(NO) == "deny" and read_agreement(EXCEPTION_REQUEST) is None


@given(
    st.text()
    | st.lists(st.sampled_from([*"yn,.?!*", "yes", "no", "not", "if", "ok", "please", "\ud800"])).map(" ".join)
)
def test_any_text_is_classified(text):
    assert read_agreement(text) in {"inform", "deny", "unknown", None}


@pytest.mark.parametrize(
    "piece", ["yes ", "no, ", "please,", "i do not want ", "w ", "good ", "let me know if there is "]
)
def test_long_text_is_fast(piece):
    started_at = time.process_time()
    read_agreement(piece * 300_000)
    assert time.process_time() - started_at < 0.5
