"""Scripted players of games with numbers: worked examples, and how they fare against each other."""

import itertools
import statistics

import pytest

import games
from agents.players.bidders import GAMES, SCRIPTED, bid_probability
from tests.factories.seated import make_view, play_match

PAIRS = list(itertools.product(range(1, 11), repeat=2))
HAGGLERS = ("truthful_haggler", "conceding_haggler", "hard_haggler")


def play_scripted(game, names, deal=None, seed=0, **options):
    """Play a match of these scripted policies, given in seat order, to its end."""
    table = games.make(game, **options)
    table.reset(seed=seed, options=deal)
    play_match(table, {seat: SCRIPTED[name](0) for seat, name in zip(table.seats, names, strict=True)})
    return table


def compute_mean_payoff(game, first, two):
    """Return the first bidder's mean payoff over all pairs of values."""
    matches = [
        play_scripted(game, (first, two), {"values": pair}, seed) for seed, pair in enumerate(PAIRS)
    ]  # ties go both ways
    return statistics.fmean(table.payoffs()["player_0"] for table in matches)


def test_bids_match_worked_examples():
    for players, value, shaded in ((2, 10, 5), (2, 7, 4), (3, 9, 6), (3, 10, 7), (4, 8, 6), (6, 1, 1)):
        game = games.make("first_price_auction", players=players)
        game.reset(options={"values": [value] * players})
        bids = {name: SCRIPTED[name](0).act(make_view(game)) for name in SCRIPTED if game.name in GAMES[name]}
        assert bids == {
            "truthful_bidder": f"BID {value}", "shading_bidder": f"BID {shaded}", "greedy_bidder": "BID 1",
        }  # fmt: skip


def test_truth_is_best_in_second_price_auctions():
    bidders = [name for name in SCRIPTED if "second_price_auction" in GAMES[name]]
    for bidder in bidders:
        earned = {name: compute_mean_payoff("second_price_auction", name, bidder) for name in bidders}
        assert earned["truthful_bidder"] == max(earned.values())


def test_shading_is_best_in_first_price_auctions():
    earned = {
        name: compute_mean_payoff("first_price_auction", name, "shading_bidder")
        for name in SCRIPTED
        if "bidder" in name
    }
    assert earned["truthful_bidder"] == 0 < earned["greedy_bidder"] < earned["shading_bidder"]


@pytest.mark.parametrize("opens", ["seller", "buyer"])
@pytest.mark.parametrize("limit", [2, 3, 8, 9])
def test_hagglers_never_lose_and_conceders_miss_no_gain(opens, limit):
    for names in itertools.product(HAGGLERS, repeat=2):
        for cost, value in PAIRS:
            game = play_scripted("haggle", names, {"cost": cost, "value": value}, opens=opens, max_turns=limit)
            assert min(game.payoffs().values()) >= 0
            if names == ("conceding_haggler",) * 2:
                assert game.report()["deal"] == (value >= cost)


def test_hagglers_worked_by_hand():
    deal = {"cost": 3, "value": 8}
    assert play_scripted("haggle", ("truthful_haggler",) * 2, deal).payoffs() == {"seller": 0, "buyer": 5}
    assert play_scripted("haggle", ("hard_haggler", "truthful_haggler"), deal).payoffs() == {"seller": 4, "buyer": 1}
    assert play_scripted("haggle", ("hard_haggler",) * 2, deal).report()["ended"] == "turns"  # 7 wanted, 4 offered
    game = games.make("haggle")
    game.reset(options=deal)
    requests = []
    while not game.ended:
        act = SCRIPTED["conceding_haggler"](0).act(make_view(game))
        requests.append(act)
        game.step(act)
    assert requests == ["PRICE 10", "PRICE 1", "PRICE 7", "PRICE 4", "PRICE 5", "ACCEPT"]


def test_tough_bidders_gain_more_from_conceders_and_deal_less():
    def outcome(*names):
        matches = [play_scripted("haggle", names, {"cost": cost, "value": value}) for cost, value in PAIRS]
        seller = statistics.fmean(game.payoffs()["seller"] for game in matches if game.report()["deal"])
        return seller, sum(game.report()["deal"] for game in matches)

    hard, soft = outcome("hard_haggler", "conceding_haggler"), outcome("conceding_haggler", "conceding_haggler")
    assert hard[0] > soft[0] and hard[1] < soft[1]


@pytest.mark.parametrize(
    ("proposer", "responder", "paid"),
    [
        ("fair", "fair", (5, 5)), ("greedy", "fair", (0, 0)), ("fair", "greedy", (5, 5)), ("greedy", "greedy", (9, 1)),
    ],
)  # fmt: skip
def test_splitters_match_worked_examples(proposer, responder, paid):
    game = play_scripted("ultimatum", (f"{proposer}_splitter", f"{responder}_splitter"))
    assert tuple(game.payoffs().values()) == paid


def test_splitters_of_odd_and_tiny_pies():
    assert play_scripted("ultimatum", ("fair_splitter", "fair_splitter"), pie=7).payoffs() == {
        "proposer": 4,
        "responder": 3,
    }
    assert play_scripted("ultimatum", ("greedy_splitter", "fair_splitter"), pie=1).report()["deal"]


@pytest.mark.parametrize(
    ("names", "paid"),
    [
        (("free_rider", "contributor", "contributor"), (60, 30, 30)),
        (("free_rider",) * 3, (30, 30, 30)),
        (("contributor",) * 3, (45, 45, 45)),
        (("conditional_contributor", "free_rider", "free_rider"), (25, 35, 35)),
        (("contributor", "conditional_contributor", "contributor"), (45, 45, 45)),
        # gifts of 10, 10, 0; then 10, 5, 0; then 10, 5, 0
        (("contributor", "conditional_contributor", "free_rider"), (25, 35, 55)),
    ],
)
def test_public_goods_worked_by_hand(names, paid):
    assert tuple(play_scripted("public_goods", names).payoffs().values()) == paid


def list_rolls(dice, sides=6):
    return [list(roll) for roll in itertools.product(range(sides), repeat=dice)]


@pytest.mark.parametrize(("dice", "sides"), [(1, 6), (2, 4)])
def test_probability_that_a_bid_is_true(dice, sides):
    for own, hint in itertools.product(list_rolls(dice, sides), (0, 3, -1)):
        game = games.make("liars_dice", dice=dice, sides=sides)
        game.reset(options={"chance": own * 2})
        every = game.infos["first"]["legal"]
        game.step(every[hint])  # after the highest bid LIAR alone is legal
        view = make_view(game)
        for bid in every:
            count, face = map(int, bid.split()[1:])
            tables = [[die + 1 for die in own + roll] for roll in list_rolls(dice, sides)]
            true = [sum(die in (face, sides) for die in table) >= count for table in tables]
            assert bid_probability(view, bid) == pytest.approx(statistics.fmean(true))


def test_dice_worked_by_hand():
    game = games.make("liars_dice")
    game.reset(options={"chance": [2, 5]})  # a three and a six, which is wild
    assert SCRIPTED["plain_dealer"](0).act(make_view(game)) == "BID 1 3"
    assert SCRIPTED["bluffer"](0).act(make_view(game)) == "BID 1 1"
    game.step("BID 1 3")
    assert SCRIPTED["plain_dealer"](0).act(make_view(game)) == "BID 1 4"  # as sure as any; LIAR would be wrong for sure
    game.step("BID 2 1")
    assert [SCRIPTED[name](0).act(make_view(game)) for name in ("plain_dealer", "bluffer")] == ["LIAR", "LIAR"]


@pytest.mark.parametrize("dice", [1, 2])
def test_the_plain_dealer_beats_the_bluffer_from_either_seat(dice):
    deals = [first + two for first, two in itertools.product(list_rolls(dice), repeat=2)]
    for seat, names in (("first", ("plain_dealer", "bluffer")), ("second", ("bluffer", "plain_dealer"))):
        earned = [
            play_scripted("liars_dice", names, {"chance": deal}, dice=dice).payoffs()[seat]
            for deal in deals[:: dice**3]
        ]
        assert statistics.fmean(earned) > 0.1, (seat, statistics.fmean(earned))


def test_the_table_of_bidders():
    assert all(make.__doc__ for make in SCRIPTED.values()) and set(GAMES) == set(SCRIPTED)
    assert all(name in games.GAMES for game in GAMES.values() for name in game)
