"""What all games share in which everybody chooses at once: hidden choices, open talk, order, rounds, an unknown end."""

import collections
import itertools
import json
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

import games

NAMES = [
    "prisoners_dilemma", "stag_hunt", "battle_of_the_sexes", "chicken", "public_goods", "first_price_auction",
    "second_price_auction",
]  # fmt: skip
ROUNDED = NAMES[:5]


def reset(name, seed=0, **options):
    game = games.make(name, **options)
    game.reset(seed=seed)
    return game


def legal(game):
    return game.infos[game.agent_selection]["legal"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("talk", ["", " | trust me"])
def test_a_choice_is_hidden_until_all_have_chosen_and_talk_is_not(name, talk):
    probe, shown = reset(name), collections.defaultdict(set)
    for choices in itertools.product(legal(probe), repeat=len(probe.seats) - 1):
        game = reset(name, seed=3)
        for seat, act in zip(game.seats, choices, strict=False):
            game.step(act + talk)
            views = [game.observe(other) for other in game.seats if other != seat]
            assert all({"sender": seat, "text": talk.strip()} in view["messages"] for view in views) == bool(talk)
            shown[seat].add(json.dumps([views, game.infos, game.rewards, game.agent_selection]))
    assert set(map(len, shown.values())) == {1} and list(shown) == list(game.seats[:-1])


@pytest.mark.parametrize("name", NAMES)
def test_all_is_open_once_all_have_chosen(name):
    game = reset(name)
    acts = [legal(game)[-1 - i % 2] for i in range(len(game.seats))]
    for act in acts:
        game.step(act)
    for seat in game.seats:
        told = " ".join(m["text"] for m in game.observe(seat)["messages"] if m["sender"] == "referee")
        assert all(act.split()[-1] in told for act in acts)
    assert game.history == [[a if a.isalpha() else int(a.split()[1]) for a in acts]]


@pytest.mark.parametrize("name", ROUNDED)
def test_every_round_another_seat_begins_and_all_choose_once(name):
    game = reset(name, rounds=7)
    for played in range(7):
        assert (game.public()["round"], len(game.public()["history"])) == (played + 1, played)
        order = []
        for _ in game.seats:
            order.append(game.agent_selection)
            game.step("nonsense")  # asked once more, the order stays
            game.step(legal(game)[0])
        assert order[0] == game.seats[played % len(game.seats)] and set(order) == set(game.seats)
        assert all(set(game.infos[seat]["rewards"]) == {"round"} for seat in game.seats)
    assert game.ended == "rounds" and game.report()["rounds"] == 7


@pytest.mark.parametrize("name", NAMES)
def test_an_illegal_end_opens_and_pays_nothing(name):
    game = reset(name, illegal="end", penalty=3, stake=2)
    game.step(legal(game)[-1])
    offender = game.agent_selection
    game.step("what?")
    assert game.ended == "illegal" and game.history == []
    assert game.payoffs() == {seat: -2.0 * (seat == offender) for seat in game.seats}
    assert all(value == 0 for key, value in game.report().items() if key not in ("ended", "turns"))


@pytest.mark.parametrize("name", ROUNDED)
def test_the_unknown_end(name):
    lengths = []
    for seed in range(300):
        game = reset(name, seed, rounds=50, continuation=0.75)
        while not game.ended:
            game.step(legal(game)[0])
        lengths.append(game.report()["rounds"])
    assert statistics.fmean(lengths) == pytest.approx(4, abs=4 * (12 / 300) ** 0.5)  # geometric: variance q / p^2 = 12
    game = reset(name, rounds=50, continuation=0)
    for _ in game.seats:
        game.step(legal(game)[0])
    assert game.ended == "rounds" and game.report()["rounds"] == 1
    assert "0.75" in reset(name, continuation=0.75).rules()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(("chicken", {"rounds": bad}) for bad in (0, -1, 2.0, True, "3", None)),
        *(("stag_hunt", {"continuation": bad}) for bad in (-0.1, 1.1, float("nan"), True, "0.5")),
        *(("public_goods", {"players": bad}) for bad in (2, 7, 3.0, True)),
        *(("public_goods", {"endowment": bad}) for bad in (0, 1.5)),
        *(("public_goods", {"multiplier": bad}) for bad in (-1, float("inf"))),
        *(("first_price_auction", {"players": bad}) for bad in (1, 7)),
        *(("second_price_auction", {"max_value": bad}) for bad in (1, 10.0)),
    ],
)
def test_bad_options_are_named(name, options):
    (option,) = options
    with pytest.raises(ValueError, match=f"^{option} must be "):
        games.make(name, **options)


@given(name=st.sampled_from(NAMES), act=st.text(st.characters(), max_size=30))
def test_any_text_is_either_a_legal_act_or_refused(name, act):
    game = reset(name)
    acts = legal(game)
    game.step(act)
    written = " ".join(act.partition("|")[0].split()).upper()
    assert game.infos[game.seats[0]]["valid"] == (written in acts and act.partition("|")[0].isascii())


@given(data=st.data(), name=st.sampled_from(NAMES), blanks=st.text(" \t", max_size=3))
def test_case_and_blanks_do_not_matter(data, name, blanks):
    game = reset(name)
    act = data.draw(st.sampled_from(legal(game)))
    one, two = data.draw(st.sampled_from([(act, act.lower()), (act.lower(), act), (act.title(), act)]))
    plain = game.clone()
    game.step(blanks + one + blanks)
    plain.step(two)
    assert game.chosen == plain.chosen != {} and game.infos == plain.infos


@pytest.mark.parametrize(
    "act",
    ["BID ١", "BID ²", "BID -1", "BID 1.0", "BID 99999999999999999999", "BID " + "9" * 3900, "ＢＩＤ 1", "BID\u00a01"],
)
def test_only_ascii_numbers_are_read(act):
    game = reset("first_price_auction")
    game.step(act)
    assert game.infos["player_0"]["valid"] is False
