"""Common rules of simultaneous games: hidden choices, open talk, order, rounds, and a random end."""

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
REPEATED = NAMES[:5]


def start_game(name, seed=0, **options):
    game = games.make(name, **options)
    game.reset(seed=seed)
    return game


def list_legal_acts(game):
    return game.infos[game.agent_selection]["legal"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("talk", ["", " | trust me"])
def test_choice_is_hidden_until_all_have_chosen_but_talk_is_not(name, talk):
    probe, states_by_seat = start_game(name), collections.defaultdict(set)
    for choices in itertools.product(list_legal_acts(probe), repeat=len(probe.seats) - 1):
        game = start_game(name, seed=3)
        for seat, act in zip(game.seats, choices, strict=False):
            game.step(act + talk)
            views = [game.observe(other) for other in game.seats if other != seat]
            assert all({"sender": seat, "text": talk.strip()} in view["messages"] for view in views) == bool(talk)
            states_by_seat[seat].add(json.dumps([views, game.infos, game.rewards, game.agent_selection]))
    assert set(map(len, states_by_seat.values())) == {1} and list(states_by_seat) == list(game.seats[:-1])


@pytest.mark.parametrize("name", NAMES)
def test_choices_are_revealed_once_all_have_chosen(name):
    game = start_game(name)
    acts = [list_legal_acts(game)[-1 - i % 2] for i in range(len(game.seats))]
    for act in acts:
        game.step(act)
    for seat in game.seats:
        text = " ".join(m["text"] for m in game.observe(seat)["messages"] if m["sender"] == "referee")
        assert all(act.split()[-1] in text for act in acts)
    assert game.history == [[a if a.isalpha() else int(a.split()[1]) for a in acts]]


@pytest.mark.parametrize("name", REPEATED)
def test_starting_seat_rotates_and_all_choose_once_per_round(name):
    game = start_game(name, rounds=7)
    for round_number in range(7):
        assert (game.public()["round"], len(game.public()["history"])) == (round_number + 1, round_number)
        order = []
        for _ in game.seats:
            order.append(game.agent_selection)
            game.step("nonsense")  # the referee asks again; the order stays
            game.step(list_legal_acts(game)[0])
        assert order[0] == game.seats[round_number % len(game.seats)] and set(order) == set(game.seats)
        assert all(set(game.infos[seat]["rewards"]) == {"round"} for seat in game.seats)
    assert game.ended == "rounds" and game.report()["rounds"] == 7


@pytest.mark.parametrize("name", NAMES)
def test_illegal_end_reveals_and_pays_nothing(name):
    game = start_game(name, illegal="end", penalty=3, stake=2)
    game.step(list_legal_acts(game)[-1])
    offender = game.agent_selection
    game.step("what?")
    assert game.ended == "illegal" and game.history == []
    assert game.payoffs() == {seat: -2.0 * (seat == offender) for seat in game.seats}
    assert all(value == 0 for key, value in game.report().items() if key not in ("ended", "turns"))


@pytest.mark.parametrize("name", REPEATED)
def test_continuation_makes_the_length_geometric(name):
    lengths = []
    for seed in range(300):
        game = start_game(name, seed, rounds=50, continuation=0.75)
        while not game.ended:
            game.step(list_legal_acts(game)[0])
        lengths.append(game.report()["rounds"])
    assert statistics.fmean(lengths) == pytest.approx(4, abs=4 * (12 / 300) ** 0.5)  # geometric: variance q / p^2 = 12
    game = start_game(name, rounds=50, continuation=0)
    for _ in game.seats:
        game.step(list_legal_acts(game)[0])
    assert game.ended == "rounds" and game.report()["rounds"] == 1
    assert "0.75" in start_game(name, continuation=0.75).rules()


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
    game = start_game(name)
    acts = list_legal_acts(game)
    game.step(act)
    written = " ".join(act.partition("|")[0].split()).upper()
    assert game.infos[game.seats[0]]["valid"] == (written in acts and act.partition("|")[0].isascii())


@given(data=st.data(), name=st.sampled_from(NAMES), blanks=st.text(" \t", max_size=3))
def test_case_and_blanks_do_not_matter(data, name, blanks):
    game = start_game(name)
    act = data.draw(st.sampled_from(list_legal_acts(game)))
    written, plain_act = data.draw(st.sampled_from([(act, act.lower()), (act.lower(), act), (act.title(), act)]))
    reference = game.clone()
    game.step(blanks + written + blanks)
    reference.step(plain_act)
    assert game.choices == reference.choices != {} and game.infos == reference.infos


@pytest.mark.parametrize(
    "act",
    ["BID ١", "BID ²", "BID -1", "BID 1.0", "BID 99999999999999999999", "BID " + "9" * 3900, "ＢＩＤ 1", "BID\u00a01"],
)
def test_only_ascii_numbers_are_read(act):
    game = start_game("first_price_auction")
    game.step(act)
    assert game.infos["player_0"]["valid"] is False
