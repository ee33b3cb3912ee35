"""Kuhn and Leduc poker, liar's dice, Tiny Hanabi: theory, matches by hand, and hidden cards."""

import itertools

import numpy as np
import pyspiel
import pytest
from open_spiel.python.algorithms import expected_game_score, exploitability
from open_spiel.python.policy import TabularPolicy

import games
from games.kuhn_poker import KuhnPoker
from games.leduc_poker import LeducPoker


def make_kuhn_equilibrium(spiel, a, **changes):
    """Return the Kuhn equilibrium with parameter `a` (see games.kuhn_poker), with some bet probabilities replaced."""
    bets = {
        "0": a, "1": 0, "2": 3 * a, "0pb": 0, "1pb": a + 1 / 3, "2pb": 1,
        "0p": 1 / 3, "1p": 0, "2p": 1, "0b": 0, "1b": 1 / 3, "2b": 1,
    } | changes  # fmt: skip
    policy = TabularPolicy(spiel)
    for information_state, row in policy.state_lookup.items():
        policy.action_probability_array[row] = 1 - bets[information_state], bets[information_state]
    return policy


@pytest.mark.parametrize("a", [0, 1 / 12, 1 / 6, 1 / 3])
def test_kuhn_value_and_equilibria(a):
    spiel = KuhnPoker().spiel
    policy = make_kuhn_equilibrium(spiel, a)
    assert exploitability.nash_conv(spiel, policy) == pytest.approx(0, abs=1e-12)
    values = expected_game_score.policy_value(spiel.new_initial_state(), [policy] * 2)
    theory = games.GAMES["kuhn_poker"].theory["value"]
    assert values == pytest.approx([theory, -theory], abs=1e-12)


@pytest.mark.parametrize("other", [{"0": 0.4}, {"2": 0.0}, {"1pb": 0.5}, {"0p": 0.5}, {"1b": 0.5}])
def test_other_policies_in_kuhn_are_exploitable(other):
    spiel = KuhnPoker().spiel
    assert exploitability.nash_conv(spiel, make_kuhn_equilibrium(spiel, 1 / 3, **other)) > 0.01


def solve_by_cfr_plus(game, iterations):
    """Return the first seat's value of CFR+'s average policy and its distance bound to the game value."""
    solver = pyspiel.CFRPlusSolver(game.spiel)
    for _ in range(iterations):
        solver.evaluate_and_update_policy()
    policy = solver.average_policy()
    value = pyspiel.expected_returns(game.spiel.new_initial_state(), policy, -1, False)[0]
    return value, pyspiel.nash_conv(game.spiel, policy)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("name", "options", "theory", "iterations", "tolerance"),
    [
        ("leduc_poker", {}, "value", 100, 0.03),
        ("liars_dice", {"sides": 3}, "value_3_sides", 600, 1e-4),
        pytest.param("leduc_poker", {}, "value", 1000, 1e-3, marks=pytest.mark.slow),
        pytest.param("liars_dice", {}, "value", 200, 4e-3, marks=pytest.mark.slow),
    ],
)
def test_values_by_counterfactual_regret_minimisation(name, options, theory, iterations, tolerance):
    value, bound = solve_by_cfr_plus(games.make(name, **options), iterations)
    assert bound < tolerance
    assert value == pytest.approx(games.GAMES[name].theory[theory], abs=bound)


def test_tiny_hanabi_needs_the_signal():
    game = games.make("tiny_hanabi")
    payoffs = {}
    for cards in itertools.product(range(2), repeat=2):
        for acts in itertools.product("ABC", repeat=2):
            game.reset(seed=0, options={"chance": list(cards)})
            for act in acts:
                game.step(f"PLAY {act}")
            first_payoff, second_payoff = game.payoffs().values()
            assert first_payoff == second_payoff and f"both get {first_payoff:g}." in game.render()
            payoffs[cards, acts] = first_payoff

    def find_best_mean(answers):
        """Return the best mean payoff over the first seat's plans, given the second seat's best answers."""
        plans = itertools.product("ABC", repeat=2)
        return max(answers(plan) for plan in plans) / 4

    def answer_with_signal(plan):
        """Sum the best payoffs if the second seat knows its own card and the first act."""
        information_sets = {(card, act) for card in range(2) for act in plan}
        options = [
            [sum(payoffs[(c, card), (act, b)] for c in range(2) if plan[c] == act) for b in "ABC"]
            for card, act in information_sets
        ]
        return sum(map(max, options))

    def answer_without_signal(plan):
        """Sum the best payoffs if the second seat knows only its own card."""
        return sum(max(sum(payoffs[(c, card), (plan[c], b)] for c in range(2)) for b in "ABC") for card in range(2))

    theory = games.GAMES["tiny_hanabi"].theory
    assert (
        find_best_mean(answer_with_signal) == theory["best"]
        and find_best_mean(answer_without_signal) == theory["best_without_signal"]
    )
    assert "cards 2 and 1: A 0 0 10, B 4 8 4, C 0 0 0;" in game.rules()


@pytest.mark.parametrize(
    ("line", "pot", "outcome"),
    [
        ("PASS PASS", 2, "higher 1"), ("BET PASS", 3, "first 1"), ("BET BET", 4, "higher 2"),
        ("PASS BET PASS", 3, "second 1"), ("PASS BET BET", 4, "higher 2"),
    ],
)  # fmt: skip
def test_every_line_of_kuhn_by_hand(line, pot, outcome):
    game = games.make("kuhn_poker")
    for deal in itertools.permutations(range(3), 2):
        game.reset(seed=0, options={"chance": list(deal)})
        assert [game.private(seat)["card"] for seat in game.seats] == ["JQK"[card] for card in deal]
        for act in line.split():
            game.step(act)
        winner_rule, chips = outcome.split()
        winner = winner_rule if winner_rule != "higher" else game.seats[deal[1] > deal[0]]
        assert game.payoffs() == {seat: int(chips) if seat == winner else -int(chips) for seat in game.seats}
        assert game.public() == {"acts": line.split(), "pot": pot}
        assert game.observe(game.seats[0])["messages"][-1]["text"] == f"The match is over: {winner} won."


@pytest.mark.parametrize(
    ("deal", "line", "pot", "payoff"),
    [
        ("J1 Q1 K1", "RAISE FOLD", 4, 1),
        ("J1 Q1 K1", "RAISE RAISE FOLD", 8, -3),
        ("J1 Q1 K1", "CALL CALL / CALL CALL", 2, -1),
        ("J1 Q1 J2", "CALL CALL / CALL CALL", 2, 1),  # the pair wins
        ("J1 J2 Q1", "CALL RAISE CALL / RAISE CALL", 14, 0),  # equal cards split the pot
        ("K1 Q1 Q2", "CALL RAISE RAISE CALL / CALL RAISE RAISE CALL", 26, -13),
        ("K1 Q1 J1", "RAISE CALL / CALL RAISE FOLD", 10, -3),
        ("K1 Q1 J1", "CALL RAISE RAISE CALL / RAISE RAISE CALL", 26, 13),
    ],
)
def test_leduc_lines_by_hand(deal, line, pot, payoff):
    game = LeducPoker()
    cards = [2 * "JQK".index(rank) + int(suit) - 1 for rank, suit in deal.split()]
    game.reset(seed=0, options={"chance": cards})
    before, _, after = line.partition(" / ")
    assert game.private("first") == {"card": deal[0]} and game.private("second") == {"card": deal[3]}
    for act in before.split():
        game.step(act)
        assert str(game.state).split("Pot: ")[1].startswith(f"{game.public()['pot']}\n") or game.ended
    referee_texts = [m["text"] for m in game.observe("first")["messages"] if m["sender"] == "referee"]
    if after:
        assert referee_texts[-1] == f"The public card is {deal[6]}." and game.agent_selection == "first"
        assert game.public()["public_card"] == deal[6] and game.public()["round_2"] == []
    for act in after.split():
        game.step(act)
    assert game.ended and game.payoffs() == {"first": payoff, "second": -payoff}
    assert game.public()["round_1"] == before.split() and game.public().get("round_2", []) == after.split()
    assert ("public_card" in game.public()) == bool(after) and game.public()["pot"] == pot


def test_leduc_allows_two_raises_a_round_and_no_free_fold():
    game = games.make("leduc_poker")
    game.reset(seed=0)
    assert game.infos["first"]["legal"] == ["CALL", "RAISE"]
    game.step("RAISE")
    assert game.infos["second"]["legal"] == ["FOLD", "CALL", "RAISE"]
    game.step("RAISE")
    assert game.infos["first"]["legal"] == ["FOLD", "CALL"]


@pytest.mark.parametrize(
    ("rolled", "bids", "winner"),
    [
        ("3 5", "BID 1 5", "first"), ("3 5", "BID 1 4", "second"), ("6 2", "BID 1 4", "first"),
        ("6 4", "BID 2 4", "first"), ("6 6", "BID 2 1", "first"), ("3 3", "BID 1 2,BID 2 3", "second"),
        ("4 6", "BID 1 6,BID 2 6", "first"), ("3 5 3 6", "BID 3 3", "first"), ("3 5 3 6", "BID 3 5", "second"),
    ],
)  # fmt: skip
def test_liars_dice_by_hand(rolled, bids, winner):
    dice = [int(side) for side in rolled.split()]
    half = len(dice) // 2
    game = games.make("liars_dice", dice=half)
    game.reset(seed=0, options={"chance": [side - 1 for side in dice]})
    assert game.private("first") == {"dice": sorted(dice[:half])}
    assert game.private("second") == {"dice": sorted(dice[half:])}
    assert "LIAR" not in game.infos["first"]["legal"]
    for bid in bids.split(","):
        game.step(bid)
    assert game.public() == {"bids": bids.split(",")}
    game.step("LIAR")
    assert game.payoffs() == {seat: 1.0 if seat == winner else -1.0 for seat in game.seats}
    assert game.observe("first")["messages"][-1]["text"].startswith(
        f"The match is over: {winner} won. The dice: first "
    )


def test_a_bid_must_be_higher_in_liars_dice():
    game = games.make("liars_dice", sides=4)
    game.reset(seed=0)
    assert game.infos["first"]["legal"] == [f"BID {count} {side}" for count in (1, 2) for side in (1, 2, 3, 4)]
    game.step("BID 1 3")
    assert game.infos["second"]["legal"] == ["BID 1 4", "BID 2 1", "BID 2 2", "BID 2 3", "BID 2 4", "LIAR"]
    assert "a 4 is wild" in game.rules() and "one die of 4 sides" in game.rules()
    assert "2 dice of 6 sides" in games.make("liars_dice", dice=2).rules()


@pytest.mark.parametrize("name", ["kuhn_poker", "leduc_poker", "liars_dice", "tiny_hanabi"])
def test_twin_deals_differ_only_in_the_hidden_cards(name):
    game, twin = games.make(name), games.make(name)
    for seed in range(200):
        rng = np.random.default_rng(seed)
        me, other = rng.permutation(game.seats).tolist()
        twins = game.twin_deals(me, rng)
        assert twins
        deal, twin_deal = twins
        game.reset(seed=seed, options=deal)
        twin.reset(seed=seed, options=twin_deal)
        assert game.private(me) == twin.private(me) and game.private(other) != twin.private(other)
        while not game.ended:
            assert game.infos[me] == twin.infos[me] and game.observe(me) == twin.observe(me)
            seat = game.agent_selection
            assert game.public() == twin.public() and seat == twin.agent_selection
            if seat == other:
                assert "private" not in game.infos[me]
            act = str(rng.choice(game.infos[seat]["legal"]))
            game.step(act)
            twin.step(act)
        assert twin.ended and game.public() == twin.public()
