"""Public goods: rounds by hand, dominance and the social optimum by enumeration."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from games.public_goods import PublicGoods


def play_round(game, gifts):
    """Play one round and return the payoffs in the seats' order."""
    game.reset(seed=0)
    for gift in gifts:
        game.step(f"GIVE {gift}")
    return list(game.payoffs().values())


def test_rounds_by_hand():
    game = PublicGoods(players=4, multiplier=2, rounds=2)
    game.reset(seed=0)
    for gift in (10, 0, 5, 1):  # player_0 first: the pot of 16 becomes 32, 8 to each
        game.step(f"GIVE {gift}")
    assert game.rewards == {"player_0": 8, "player_1": 18, "player_2": 13, "player_3": 17}
    for gift in (10, 10, 10, 10):
        game.step(f"give  {gift}")
    assert list(game.payoffs().values()) == [28, 38, 33, 37]
    assert game.report() == {"ended": "rounds", "turns": 8, "rounds": 2, "given": 56 / 80}
    assert game.public()["history"] == [[10, 0, 5, 1], [10, 10, 10, 10]]


def test_gifts_are_recorded_by_seat():
    game = PublicGoods(rounds=2)
    game.reset(seed=0)
    for gift in (1, 2, 3, 5, 6, 4):  # the second round begins with player_1
        game.step(f"GIVE {gift}")
    assert game.history == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(("players", "multiplier"), [(3, 1.5), (3, 2.9), (4, 1.01)])
def test_giving_nothing_dominates_and_giving_all_is_optimal(players, multiplier):
    game = PublicGoods(players=players, endowment=2, multiplier=multiplier, rounds=1)
    table = {gifts: play_round(game, gifts) for gifts in itertools.product(range(3), repeat=players)}
    for gifts, round_payoffs in table.items():
        for seat, gift in enumerate(gifts):
            if gift:
                without_gift = (*gifts[:seat], 0, *gifts[seat + 1 :])
                assert table[without_gift][seat] > round_payoffs[seat]
    best = max(map(sum, table.values()))
    assert sum(table[(2,) * players]) == pytest.approx(best)
    assert best > sum(table[(0,) * players]) + 0.01


def test_a_multiplier_above_the_number_of_players_ends_the_dilemma():
    game = PublicGoods(endowment=2, multiplier=3.1, rounds=1)
    for others in itertools.product(range(3), repeat=2):
        payoffs = [play_round(game, (gift, *others))[0] for gift in range(3)]
        assert payoffs == sorted(payoffs) and payoffs[0] < payoffs[2]


def test_theory_values_at_the_defaults():
    game = PublicGoods(rounds=1)
    assert play_round(game, (0, 0, 0)) == [PublicGoods.theory["equilibrium_payoff"]] * 3
    assert play_round(game, (10, 10, 10)) == [PublicGoods.theory["best_mean_payoff"]] * 3


@given(
    data=st.data(), players=st.integers(3, 6), endowment=st.integers(1, 30), multiplier=st.floats(0, 10),
    rounds=st.integers(1, 3),
)  # fmt: skip
def test_coins_are_conserved_except_for_the_multiplier(data, players, endowment, multiplier, rounds):
    game = PublicGoods(players=players, endowment=endowment, multiplier=multiplier, rounds=rounds)
    game.reset(seed=0)
    while not game.ended:
        legal = game.infos[game.agent_selection]["legal"]
        assert legal == [f"GIVE {n}" for n in range(endowment + 1)]
        game.step(data.draw(st.sampled_from(legal)))
    total_gifts = sum(map(sum, game.history))
    total = players * endowment * rounds + (multiplier - 1) * total_gifts
    assert sum(game.payoffs().values()) == pytest.approx(total) and min(game.payoffs().values()) >= 0
