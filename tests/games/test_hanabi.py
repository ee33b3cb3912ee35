"""Hanabi: OpenSpiel's scores, hints compared with an independent model, and hidden own cards."""

import json
from collections import Counter
from typing import Any

import numpy as np
import pyspiel
import pytest

import games
from games.hanabi import COLOURS, Hanabi

SHAPES = {  # (colours, ranks, hand size, hint tokens) of MARS's mini and simple and the standard game
    ("mini", 2): (2, 2, 3, 3), ("simple", 2): (3, 2, 5, 8), ("full", 2): (5, 5, 5, 8), ("full", 3): (5, 5, 5, 8),
    ("full", 4): (5, 5, 4, 8), ("full", 5): (5, 5, 4, 8),
}  # fmt: skip
TABLES = pytest.mark.parametrize(("size", "players"), SHAPES)
LETTERS = "RYGWB"


def shuffle_deck(size, rng):
    """Return a shuffled deck of OpenSpiel's card numbers: per colour three 1s, one highest rank, two of each other."""
    colours, ranks, *_ = SHAPES[size, 2]
    copies = [3] + [2] * (ranks - 2) + [1]
    deck = [colour * ranks + rank for colour in range(colours) for rank in range(ranks) for _ in range(copies[rank])]
    return rng.permutation(deck).tolist()


def card_name(card, ranks):
    return f"{LETTERS[card // ranks]}{card % ranks + 1}"


class Model:
    """Independent model of Hanabi: the deck positions in each hand and what hints revealed about them."""

    def __init__(self, deck, size, players):
        self.colours, self.ranks, self.hand, _ = SHAPES[size, players]
        self.deck, self.players, self.next = deck, players, players * self.hand
        self.used_up = 0
        self.hands = [list(range(p * self.hand, (p + 1) * self.hand)) for p in range(players)]
        self.possible = {n: (LETTERS[: self.colours], "12345"[: self.ranks]) for n in range(len(deck))}

    def card(self, position):
        return card_name(self.deck[position], self.ranks)

    def find_used_position(self, act, player):
        """Return the deck position that a PLAY or DISCARD uses, or None for a hint."""
        return None if act.startswith("HINT") else self.hands[player][int(act.split()[1]) - 1]

    def parse_hint(self, act, player):
        """Return a hint's target player, its sign, and whether that is a colour; None for other acts."""
        verb, *addressee, sign = act.split()
        if verb != "HINT":
            return None
        target = int(addressee[0][-1]) if addressee else 1 - player
        return target, sign if sign.isdigit() else sign[0], not sign.isdigit()

    def apply(self, act, player):
        """Apply an act; return the card that was used, or the slots that the hint marks."""
        if hint := self.parse_hint(act, player):
            target, sign, is_colour = hint
            for position in self.hands[target]:
                colours, ranks = self.possible[position]
                candidates = colours if is_colour else ranks
                candidates = sign if sign in self.card(position) else candidates.replace(sign, "")
                self.possible[position] = (candidates, ranks) if is_colour else (colours, candidates)
            return [slot for slot, position in enumerate(self.hands[target], 1) if sign in self.card(position)]
        position = self.find_used_position(act, player)
        self.used_up += 1
        self.hands[player].remove(position)
        if self.next < len(self.deck):
            self.hands[player].append(self.next)
            self.next += 1
        return self.card(position)


def list_known(game):
    """Return the public `list_known` with "?" expanded to all colours and ranks."""
    everything = LETTERS[: game.colours] + "12345"[: game.ranks]
    hands = game.public()["known"].values()
    return [[everything if card == "?" else card for card in hand] for hand in hands]


def to_spiel_action(act, game, player):
    """Return OpenSpiel's action number; its action space lists discards, plays, colour hints, rank hints."""
    verb, *addressee, argument = act.split()
    if verb != "HINT":
        return int(argument) - 1 + (game.hand if verb == "PLAY" else 0)
    players = len(game.seats)
    target_offset = (game.seats.index(addressee[0]) - player) % players - 1 if addressee else 0
    base = 2 * game.hand
    if not argument.isdigit():
        return base + target_offset * game.colours + list(COLOURS.values()).index(argument)
    return base + (players - 1) * game.colours + target_offset * game.ranks + int(argument) - 1


def choose_act(style, info, hand, model, rng):
    """Draw a legal act. "careful" plays only fitting cards if it can; "reckless" always plays a card."""
    plays = [act for act in info["legal"] if act.startswith("PLAY")]
    if style == "careful":
        playable = [f"{firework[0]}{int(firework[1]) + 1}" for firework in info["public"]["fireworks"].split()]
        fitting = [f"PLAY {slot}" for slot, position in enumerate(hand, 1) if model.card(position) in playable]
        return str(rng.choice(fitting or [act for act in info["legal"] if act not in plays] or plays))
    return str(rng.choice(info["legal"] if style == "any" else plays))


@pytest.mark.slow_after(2)
@TABLES
def test_scores_and_hints_match_openspiel_and_the_model(size, players):
    colours, ranks, hand, tokens = SHAPES[size, players]
    spiel = pyspiel.load_game(
        "hanabi",
        {
            "players": players, "colors": colours, "ranks": ranks, "hand_size": hand,
            "max_information_tokens": tokens, "max_life_tokens": 3,
        },
    )  # fmt: skip
    game, rng = Hanabi(size=size, players=players), np.random.default_rng(players)
    end_reasons, scores, used_counts = set(), set(), []
    for match in range(60 if size == "full" else 500):
        deck = shuffle_deck(size, rng)
        model, spiel_state, dealt_count = Model(deck, size, players), spiel.new_initial_state(), 0
        style = ("any", "careful", "reckless")[match % 3]
        game.reset(seed=match, options={"chance": deck})
        while True:
            while spiel_state.is_chance_node():
                spiel_state.apply_action(deck[dealt_count])
                dealt_count += 1
            assert spiel_state.returns() == list(game.payoffs().values())
            assert bool(game.ended) == spiel_state.is_terminal()
            if game.ended:
                break
            seat, player = game.agent_selection, spiel_state.current_player()
            assert seat == game.seats[player]
            info = game.infos[seat]
            assert {to_spiel_action(act, game, player) for act in info["legal"]} == set(spiel_state.legal_actions())
            others = {s: [model.card(n) for n in model.hands[p]] for p, s in enumerate(game.seats) if p != player}
            assert info["private"] == {"hands": others}
            assert list_known(game) == [["".join(model.possible[n]) for n in hand] for hand in model.hands]
            assert info["public"]["deck"] == len(deck) - dealt_count
            act = choose_act(style, info, model.hands[player], model, rng)
            outcome = model.apply(act, player)
            spiel_state.apply_action(to_spiel_action(act, game, player))
            game.step(act.lower())
            line = game.observe(seat)["messages"][0]["text"]
            assert (
                f"It was {outcome}" in line
                if isinstance(outcome, str)
                else line.endswith(f": {' '.join(map(str, outcome))}.")
            )
            if act.startswith("PLAY"):
                score = sum(int(firework[1]) for firework in game.public()["fireworks"].split())
                assert ("it fits" in line) == (
                    score > sum(int(firework[1]) for firework in info["public"]["fireworks"].split())
                )
        end_reasons.add(game.ended)
        report = game.report()
        assert report["score"] == spiel_state.returns()[0] and report["share"] == float(report["score"]) / game.best
        assert (report["lives"] == 0) == (game.ended == "lives")
        assert game.public()["lives"] == report["lives"]
        scores.add(float(report["score"]))
        used_counts.append(model.used_up)
    assert {"lives", "deck"} <= end_reasons and min(scores) == 0 and 0.75 * game.best <= max(scores) <= game.best
    assert game.best == game.theory[f"best_{size}"]
    # Upper bound: besides hints, which do not score, at most this many acts are possible.
    max_used = len(deck) - players * hand + players
    assert max(used_counts) <= max_used and game.best == min(colours * ranks, max_used)


@pytest.mark.slow_after(2)
@TABLES
def test_unseen_cards_do_not_change_a_seats_view(size, players):
    """Play the same acts with two decks that differ in one own card and one other unseen card."""
    game, twin_game = (Hanabi(size=size, players=players) for _ in range(2))
    rng, compared = np.random.default_rng(7), 0
    stops: Counter[Any] = Counter()
    matches = {"mini": 500, "simple": 400}.get(size, 100 // players)
    for match in range(matches):
        deck = shuffle_deck(size, rng)
        player = int(rng.integers(players))
        model = Model(deck, size, players)
        own_position, other_position = rng.choice(model.hands[player]), rng.integers(model.next, len(deck))
        twin_deck = deck.copy()
        twin_deck[own_position], twin_deck[other_position] = deck[other_position], deck[own_position]
        game.reset(seed=match, options={"chance": deck})
        twin_game.reset(seed=match, options={"chance": twin_deck})
        seat = game.seats[player]
        while not game.ended:
            assert game.agent_selection == twin_game.agent_selection
            mover = game.seats.index(game.agent_selection)
            assert json.dumps(game.observe(seat)) == json.dumps(twin_game.observe(seat))
            assert json.dumps(game.infos[seat]) == json.dumps(twin_game.infos[seat])
            assert json.dumps([game.public(), game.private(seat)]) == json.dumps(
                [twin_game.public(), twin_game.private(seat)]
            )
            assert game.rewards == twin_game.rewards
            compared += 1
            act = str(rng.choice(game.infos[game.agent_selection]["legal"]))
            hint = model.parse_hint(act, mover)
            own_positions = {own_position, other_position} & set(model.hands[player])
            if hint and hint[0] == player:
                cards = [(card_name(deck[n], game.ranks), card_name(twin_deck[n], game.ranks)) for n in own_positions]
                if any((hint[1] in a) != (hint[1] in b) for a, b in cards):
                    stops["hint"] += 1
                    break
            if model.find_used_position(act, mover) in (own_position, other_position):
                stops["used"] += 1
                break
            model.apply(act, mover)
            if any(other_position in hand for p, hand in enumerate(model.hands) if p != player):
                stops["drawn by another"] += 1
                break
            game.step(act)
            twin_game.step(act)
        else:
            stops["never"] += 1
    assert compared > 2 * matches and stops["hint"] and stops["used"]


@pytest.mark.parametrize(
    ("size", "copies"), [("mini", [3, 1]), ("simple", [3, 1]), ("full", [3, 2, 2, 2, 1])]
)  # MARS: three 1s and one 2 per colour
def test_deck_has_the_standard_counts(size, copies):
    game = Hanabi(size=size)
    state = game.spiel.new_initial_state()
    dealt_cards: Counter[Any] = Counter()
    total = sum(copies) * game.colours
    chances = state.chance_outcomes()
    counts = {card: round(chance * total) for card, chance in chances}
    assert counts == {c * game.ranks + r: copies[r] for c in range(game.colours) for r in range(game.ranks)}
    for seed in range(200):
        game.reset(seed=seed)
        dealt_cards[game.private("player_0")["hands"]["player_1"][0]] += 1
    assert set(dealt_cards) == {
        f"{colour}{rank}" for colour in LETTERS[: game.colours] for rank in range(1, game.ranks + 1)
    }


R1, R2, Y1, Y2 = range(4)


def play_match(deck, *acts):
    game = games.make("hanabi")
    game.reset(seed=0, options={"chance": deck})
    for act in acts:
        game.step(act)
        assert game.infos[game.seats[0]]["valid"] is not False and game.infos[game.seats[1]]["valid"] is not False
    return game


def test_a_perfect_mini_match_by_hints():
    game = play_match([R1, Y1, R1, R2, Y2, Y1, R1, Y1])
    assert game.theory["best_mini"] == 4
    game.step("HINT 2")  # to player_1: slots 1 and 2
    assert game.public()["known"]["player_1"] == ["RY2", "RY2", "RY1"]
    game.step("HINT YELLOW")  # to player_0: slot 2
    assert game.public()["known"]["player_0"] == ["R12", "Y12", "R12"]
    assert game.public()["hints"] == 1
    scores = []
    for act in ["PLAY 1", "PLAY 1", "PLAY 1", "PLAY 1"]:
        game.step(act)
        assert set(game.rewards.values()) == {1.0}
        scores.append(game.payoffs()["player_0"])
    assert scores == [1, 2, 3, 4] and game.public()["hints"] == 3  # a finished colour restores a hint token
    assert game.report() == {"ended": "complete", "turns": 6, "score": 4.0, "share": 1.0, "lives": 3.0}


def test_a_perfect_simple_match():
    """R1 R2 Y1 Y2 G1 G2 are cards 0 to 5; only four of the six can be played."""
    deck = [0, 2, 0, 2, 0, 1, 3, 4, 4, 2, 5, 4]
    game = games.make("hanabi", size="simple")
    game.reset(seed=0, options={"chance": deck})
    for act in ["PLAY 1", "PLAY 1", "PLAY 1", "PLAY 1"]:  # R1, R2, Y1, Y2
        game.step(act)
    assert game.report() == {"ended": "deck", "turns": 4, "score": 4.0, "share": 1.0, "lives": 3.0}
    assert game.theory["best_simple"] == 4


def test_losing_the_last_life_resets_the_score():
    game = play_match([R1, R2, Y2, Y1, R1, R1, Y1, Y1], "PLAY 1", "PLAY 2", "PLAY 2")
    assert game.payoffs() == {"player_0": 1.0, "player_1": 1.0} and game.public()["lives"] == 1
    assert game.public()["discards"] == ["R1", "Y2"]
    game.step("PLAY 2")
    assert game.rewards == {"player_0": -1.0, "player_1": -1.0}
    assert game.payoffs() == {"player_0": 0.0, "player_1": 0.0}
    assert game.report() == {"ended": "lives", "turns": 4, "score": 0.0, "share": 0.0, "lives": 0.0}


def test_player_count_depends_on_size():
    for options in (
        {"size": "tiny"},
        {"size": ["mini"]},
        {"players": 3},
        {"size": "full", "players": 6},
        {"players": 1},
        {"players": True},
    ):
        with pytest.raises(ValueError, match=r"size must be|players \(in"):
            games.make("hanabi", **options)
    assert games.make("hanabi", size="full", players=4).seats == tuple(f"player_{n}" for n in range(4))


def test_talk_is_dropped_unless_allowed():
    for talk in (False, True):
        game = games.make("hanabi", talk=talk)
        game.reset(seed=0)
        game.step("play 1 | your first card is red")
        assert ("red" in game.observe("player_1")["messages"][0]["text"]) == talk
