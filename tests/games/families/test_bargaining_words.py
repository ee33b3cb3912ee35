"""A negotiation in words: an example worked by hand, hidden values, and every way to end."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from games.families.bargaining_words import describe_share, singular
from games.families.pools import instances
from games.negotiation import Negotiation

POOL = (1, 2, 3)
INSTANCE = POOL, ((1, 3, 1), (4, 3, 0))  # 1 + 6 + 3 = 10, 4 + 6 + 0 = 10
"""The book is worth 1 and 4 to the two sides, each hat 3 and 3, each ball 1 and 0. If the first side takes the balls
(3) and the other the book (4), the hats can be divided to (9, 4), (6, 7) or (3, 10). If the first side takes the book
as well: (10, 0), (7, 3) or (4, 6). The best sum is 13. The products are 36, 42 and 30, so Nash's deal is (6, 7)."""


def start_game(instance=INSTANCE, **options):
    game = Negotiation(**options)
    game.reset(seed=0, options={"instance": instance})
    return game


def test_shares_are_described_in_words():
    items = ("books", "hats", "balls")
    assert (
        describe_share((1, 2, 0), items) == "1 book and 2 hats"
        and describe_share((1, 1, 1), items) == "1 book, 1 hat and 1 ball"
    )
    assert describe_share((0, 0, 0), items) == "nothing" and describe_share((0, 0, 3), items) == "3 balls"
    assert describe_share((2, 1, 1), items, ", ") == "2 books, 1 hat, 1 ball"
    names = ("boxes", "dresses", "glass", "bus", "gold", "dishes", "s", "houses", "watches", "quizes")
    assert [singular(name) for name in names] == [
        "box", "dress", "glass", "bus", "gold", "dish", "s", "house", "watch", "quiz",
    ]  # fmt: skip


def test_introduction_explains_pool_values_and_turns():
    introduction = start_game(values="public", max_turns=4, breakdown=0.2).introduction("opener")
    assert "You and another side divide 1 book, 2 hats and 3 balls." in introduction
    assert "Worth to you, each: book 1, hat 3, ball 1; all together 10." in introduction
    assert "Worth to them, each: book 4, hat 3, ball 0." in introduction
    assert "OFFER 0 2 0 asks for 2 hats, worth 6 of 10 to you, and leaves them 1 book and 3 balls." in introduction
    assert (
        "4 turns in all, yours is the first. An offer that answers an offer ends the talks with chance 0.2."
        in introduction
    )
    assert "Talk may follow after |" in introduction and "Talk" not in start_game(talk=False).introduction("opener")
    private_introduction = start_game().introduction("responder")
    assert (
        "theirs is the first" in private_introduction
        and "you are not told" in private_introduction
        and "ball 1" not in private_introduction
    )


def test_introduction_lists_efficient_splits_if_shown():
    """In the example, all but the book is worth 9 and leaves 4; one hat fewer, 6 and 7; no hats, 3 and 10."""
    introduction = start_game(values="public", splits="shown").introduction("opener")
    (line,) = [line for line in introduction.splitlines() if line.startswith("Nothing is wasted by")]
    assert line == (
        "Nothing is wasted by OFFER 1 2 3, 10 to you and 0 to them; OFFER 0 2 3, 9 to you and 4 to them; "
        "OFFER 0 1 3, 6 to you and 7 to them; OFFER 0 0 3, 3 to you and 10 to them."
    )
    assert "wasted" not in start_game(values="public").introduction("opener")


def test_standing_offer_in_words():
    game = start_game(values="public", breakdown=0.2, max_turns=3)
    assert game.in_words("opener") == "No offer lies on the table yet. 3 turns left, this one included."
    game.step("OFFER 1 2 0")
    assert game.in_words("responder") == (
        "They would take 1 book and 2 hats; you would get 3 balls, worth 0 of 10 to you; theirs would be worth 7 to "
        "them. 2 turns left, this one included. Another offer ends the talks with chance 0.2."
    )
    game.breaks_at = 0
    game.step("OFFER 1 0 0")
    assert game.in_words("opener") == (
        "They would take 1 book; you would get 2 hats and 3 balls, worth 9 of 10 to you; theirs would be worth 4 to "
        "them. This is the last turn: ACCEPT, or there is no deal."
    )


def test_acts_in_words():
    game = start_game()
    assert game.act_in_words("OFFER 1 2 0") == "They want 1 book and 2 hats."
    assert game.act_in_words("accept ") == "They accept." and game.act_in_words("WALK") == "They walk away."
    assert game.act_in_words("OFFER 1 2") == game.act_in_words("") == game.act_in_words("OFFER 1 2 0\x1b") == ""


def test_epilogue_by_hand():
    """With two turns it is an ultimatum: subgame-perfect play gives the first side 10 and the other 0."""
    game = start_game(values="public", max_turns=2)
    game.step("OFFER 0 1 3")
    game.step("ACCEPT")
    rows, verdict = game.epilogue(["responder"])
    assert rows == [
        ("", "they", "you", "sum"),
        ("got", "1 hat, 3 balls", "1 book, 1 hat", ""),
        ("value per item", "book 1, hat 3, ball 1", "book 4, hat 3, ball 0", ""),
        ("value", "6", "7", "13"),
        ("best joint value", "", "", "13"),
        ("Nash bargaining", "6", "7", "13"),
        ("subgame-perfect", "10", "0", "10"),
    ]
    assert verdict == (
        "You got 7 of 10; Nash would have given you 7, the other side 6; "
        "subgame-perfect play would have given you 0, the other side 10."
    )
    _, observer_verdict = game.epilogue([])
    assert observer_verdict.startswith("opener got 6 of 10, responder 7; Nash would have given opener 6, responder 7; ")
    assert game.epilogue(["opener", "responder"])[1] == observer_verdict


def test_tied_nash_deals_are_both_listed():
    """Only the hat is worth something to both, 1 each, so either side may get it: (10, 9) or (9, 10)."""
    game = start_game(((3, 1, 1), ((3, 1, 0), (0, 1, 9))))
    game.step("WALK")
    rows, verdict = game.epilogue(["opener"])
    assert rows[4] == ("Nash bargaining", "10 or 9", "9 or 10", "19")
    assert "Nash would have given you 10 or 9, the other side 9 or 10." in verdict


@pytest.mark.parametrize(
    ("acts", "options", "reason", "standing_offer"),
    [
        (["OFFER 0 2 0", "WALK"], {}, "No deal: they walked away.", "you would get 2 hats, worth 6 of 10; they would"),
        (["OFFER 0 2 0", "OFFER 1 2 0", "WALK"], {}, "No deal: you walked away.", "they would get 1 book and 2 hats, "),
        (["WALK"], {}, "No deal: you walked away.", ""),
        (["OFFER 0 2 0", "OFFER 1 2 0"], {"max_turns": 2}, "No deal: no turns were left.", "they would get 1 book and"),
        (["OFFER 0 2 0", "OFFER 1 2 0"], {"breakdown": 0.999}, "No deal: the talks broke down.", "you would get 3 bal"),
        (["OFFER 0 2 0", "x"], {"illegal": "end"}, "No deal: they made no legal act.", "you would get 2 hats, worth 6"),
        (["x", "x"], {}, "No deal: you made no legal act.", ""),
    ],
)
def test_failed_talks_state_reason_and_standing_offer(acts, options, reason, standing_offer):
    game = start_game(**options)
    game.breaks_at = 1 if "breakdown" in options else 0
    for act in acts:
        game.step(act)
    assert game.ended
    rows, verdict = game.epilogue(["opener"])
    assert (
        verdict.startswith(reason) and standing_offer in verdict and ("On the table" in verdict) == bool(standing_offer)
    )
    assert verdict.endswith("You got 0 of 10; Nash would have given you 6, the other side 7.")
    assert [row for row in rows if row[0] == "value"] == [("value", "0", "0", "0")]
    assert [row[0] for row in rows[1:2]] == ["on the table" if standing_offer else "value per item"]


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 10**6), max_size=6), st.sampled_from(["private", "public"]),
       st.sampled_from(["opener", "random"]))  # fmt: skip
def test_any_match_can_be_described_and_its_numbers_agree(seed, moves, values, opens):
    game = Negotiation(values=values, opens=opens, max_turns=4)
    game.reset(seed=seed)
    for move in moves:
        if not game.ended:
            seat = game.agent_selection
            legal = game.legal(seat)
            assert game.introduction(seat) and game.in_words(seat)
            game.step(legal[move % len(legal)])
    if not game.ended:
        game.step("WALK")
    nobody: list[str] = []
    for people in (nobody, game.seats[:1], game.seats[1:], game.seats):
        rows, verdict = game.epilogue(people)
        assert len({len(row) for row in rows}) == 1 and "\n\n" not in verdict
        table, report = {row[0]: row[1:] for row in rows}, game.report()
        assert list(map(float, table["value"][:2])) == [report["payoff_first"], report["payoff_second"]]
        assert float(table["value"][2]) == report["joint_value"]
        assert float(table["best joint value"][2]) == report["best_joint_value"]
        assert ("subgame-perfect" in table) == (values == "public")


@pytest.mark.parametrize("seat", ["opener", "responder"])
def test_no_seat_is_told_the_others_values(seat):
    rng = np.random.default_rng(3)
    for _ in range(200):
        descriptions = []
        twins = Negotiation().twin_deals(seat, rng)
        assert twins
        for options in twins:
            game = start_game(options["instance"])
            if seat == "responder":
                game.step("OFFER 1 0 1")
            descriptions.append((game.introduction(seat), game.in_words(seat)))
        assert descriptions[0] == descriptions[1]


def test_every_instance_has_a_legal_example():
    for instance in instances()[::50]:
        game = start_game(instance)
        for seat in game.seats:
            example = game.introduction(seat).split("in this order: ")[1].split(" asks for")[0]
            assert example in game.legal("opener")
