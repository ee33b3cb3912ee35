"""Hanabi: OpenSpiel's scores in words; hints as an independent model has them; nobody sees the own cards."""

import json
from collections import Counter
from typing import Any

import numpy as np
import pyspiel
import pytest

import games
from games.hanabi import COLOURS

SHAPES = {  # colours, ranks, hand, hint tokens: MARS's mini and simple, the standard game
    ("mini", 2): (2, 2, 3, 3), ("simple", 2): (3, 2, 5, 8), ("full", 2): (5, 5, 5, 8), ("full", 3): (5, 5, 5, 8),
    ("full", 4): (5, 5, 4, 8), ("full", 5): (5, 5, 4, 8),
}  # fmt: skip
TABLES = pytest.mark.parametrize(("size", "players"), SHAPES)
LETTERS = "RYGWB"


def deck_of(size, rng):
    """A shuffled deck as OpenSpiel's card numbers: three 1s, one of the highest, two of the others, per colour."""
    colours, ranks, *_ = SHAPES[size, 2]
    copies = [3] + [2] * (ranks - 2) + [1]
    deck = [colour * ranks + rank for colour in range(colours) for rank in range(ranks) for _ in range(copies[rank])]
    return rng.permutation(deck).tolist()


def name(card, ranks):
    return f"{LETTERS[card // ranks]}{card % ranks + 1}"


class Model:
    """Who holds which places of the deck and what each was hinted, kept by the rules alone."""

    def __init__(self, deck, size, players):
        self.colours, self.ranks, self.hand, _ = SHAPES[size, players]
        self.deck, self.players, self.next = deck, players, players * self.hand
        self.used_up = 0
        self.hands = [list(range(p * self.hand, (p + 1) * self.hand)) for p in range(players)]
        self.possible = {n: (LETTERS[: self.colours], "12345"[: self.ranks]) for n in range(len(deck))}

    def card(self, place):
        return name(self.deck[place], self.ranks)

    def used(self, act, player):
        """The place in the deck that a PLAY or DISCARD uses; None for a hint."""
        return None if act.startswith("HINT") else self.hands[player][int(act.split()[1]) - 1]

    def hinted(self, act, player):
        """Whom a hint is for, the sign in it, and whether it is a colour; None for another act."""
        verb, *whom, what = act.split()
        if verb != "HINT":
            return None
        to = int(whom[0][-1]) if whom else 1 - player
        return to, what if what.isdigit() else what[0], not what.isdigit()

    def apply(self, act, player):
        """What the referee has to say of cards: the one used, or the slots that a hint shows."""
        if hint := self.hinted(act, player):
            to, sign, colour = hint
            for place in self.hands[to]:
                colours, ranks = self.possible[place]
                of = colours if colour else ranks
                of = sign if sign in self.card(place) else of.replace(sign, "")
                self.possible[place] = (of, ranks) if colour else (colours, of)
            return [slot for slot, place in enumerate(self.hands[to], 1) if sign in self.card(place)]
        place = self.used(act, player)
        self.used_up += 1
        self.hands[player].remove(place)
        if self.next < len(self.deck):
            self.hands[player].append(self.next)
            self.next += 1
        return self.card(place)


def known(game):
    """The public `known`, written out where it is short for everything."""
    everything = LETTERS[: game.colours] + "12345"[: game.ranks]
    told = game.public()["known"].values()
    return [[everything if card == "?" else card for card in hand] for hand in told]


def their_action(act, game, player):
    """OpenSpiel's number of an act, by the layout of its action space: discards, plays, colours, ranks."""
    verb, *whom, what = act.split()
    if verb != "HINT":
        return int(what) - 1 + (game.hand if verb == "PLAY" else 0)
    players = len(game.seats)
    away = (game.seats.index(whom[0]) - player) % players - 1 if whom else 0
    base = 2 * game.hand
    if not what.isdigit():
        return base + away * game.colours + list(COLOURS.values()).index(what)
    return base + (players - 1) * game.colours + away * game.ranks + int(what) - 1


def chosen(style, info, hand, model, rng):
    """A random legal act; careful: what fits, else no play; reckless: always a play."""
    plays = [act for act in info["legal"] if act.startswith("PLAY")]
    if style == "careful":
        wanted = [f"{top[0]}{int(top[1]) + 1}" for top in info["public"]["fireworks"].split()]
        fits = [f"PLAY {slot}" for slot, place in enumerate(hand, 1) if model.card(place) in wanted]
        return str(rng.choice(fits or [act for act in info["legal"] if act not in plays] or plays))
    return str(rng.choice(info["legal"] if style == "any" else plays))


@pytest.mark.slow_after(2)
@TABLES
def test_scores_and_hints_are_those_of_openspiel_and_of_the_rules(size, players):
    colours, ranks, hand, tokens = SHAPES[size, players]
    spiel = pyspiel.load_game(
        "hanabi",
        {
            "players": players, "colors": colours, "ranks": ranks, "hand_size": hand,
            "max_information_tokens": tokens, "max_life_tokens": 3,
        },
    )  # fmt: skip
    game, rng = games.make("hanabi", size=size, players=players), np.random.default_rng(players)
    ends, scores, used = set(), set(), []
    for match in range(60 if size == "full" else 500):
        deck = deck_of(size, rng)
        model, theirs, dealt = Model(deck, size, players), spiel.new_initial_state(), 0
        style = ("any", "careful", "reckless")[match % 3]
        game.reset(seed=match, options={"chance": deck})
        while True:
            while theirs.is_chance_node():
                theirs.apply_action(deck[dealt])
                dealt += 1
            assert theirs.returns() == list(game.payoffs().values())
            assert bool(game.ended) == theirs.is_terminal()
            if game.ended:
                break
            seat, player = game.agent_selection, theirs.current_player()
            assert seat == game.seats[player]
            info = game.infos[seat]
            assert {their_action(act, game, player) for act in info["legal"]} == set(theirs.legal_actions())
            others = {s: [model.card(n) for n in model.hands[p]] for p, s in enumerate(game.seats) if p != player}
            assert info["private"] == {"hands": others}
            assert known(game) == [["".join(model.possible[n]) for n in hand] for hand in model.hands]
            assert info["public"]["deck"] == len(deck) - dealt
            act = chosen(style, info, model.hands[player], model, rng)
            said = model.apply(act, player)
            theirs.apply_action(their_action(act, game, player))
            game.step(act.lower())
            line = game.observe(seat)["messages"][0]["text"]
            assert (
                f"It was {said}" in line if isinstance(said, str) else line.endswith(f": {' '.join(map(str, said))}.")
            )
            if act.startswith("PLAY"):
                score = sum(int(top[1]) for top in game.public()["fireworks"].split())
                assert ("it fits" in line) == (score > sum(int(top[1]) for top in info["public"]["fireworks"].split()))
        ends.add(game.ended)
        report = game.report()
        assert report["score"] == theirs.returns()[0] and report["share"] == report["score"] / game.best
        assert (report["lives"] == 0) == (game.ended == "lives")
        assert game.public()["lives"] == report["lives"]
        scores.add(report["score"])
        used.append(model.used_up)
    assert {"lives", "deck"} <= ends and min(scores) == 0 and 0.75 * game.best <= max(scores) <= game.best
    assert game.best == game.theory[f"best_{size}"]
    # No more can be had: beside hints, which leave the score alone, there are at most as many acts as this.
    most = len(deck) - players * hand + players
    assert max(used) <= most and game.best == min(colours * ranks, most)


@pytest.mark.slow_after(2)
@TABLES
def test_an_unseen_card_changes_nothing_in_a_seats_view_until_the_rules_show_it(size, players):
    """Two decks that differ in a card of the own hand and another unseen one, under the same acts."""
    one, two = (games.make("hanabi", size=size, players=players) for _ in range(2))
    rng, compared = np.random.default_rng(7), 0
    stops: Counter[Any] = Counter()
    matches = {"mini": 500, "simple": 400}.get(size, 100 // players)
    for match in range(matches):
        deck = deck_of(size, rng)
        player = int(rng.integers(players))
        model = Model(deck, size, players)
        mine, other = rng.choice(model.hands[player]), rng.integers(model.next, len(deck))
        twin = deck.copy()
        twin[mine], twin[other] = deck[other], deck[mine]
        one.reset(seed=match, options={"chance": deck})
        two.reset(seed=match, options={"chance": twin})
        seat = one.seats[player]
        while not one.ended:
            assert one.agent_selection == two.agent_selection
            mover = one.seats.index(one.agent_selection)
            assert json.dumps(one.observe(seat)) == json.dumps(two.observe(seat))
            assert json.dumps(one.infos[seat]) == json.dumps(two.infos[seat])
            assert json.dumps([one.public(), one.private(seat)]) == json.dumps([two.public(), two.private(seat)])
            assert one.rewards == two.rewards
            compared += 1
            act = str(rng.choice(one.infos[one.agent_selection]["legal"]))
            hint = model.hinted(act, mover)
            places = {mine, other} & set(model.hands[player])
            if hint and hint[0] == player:
                cards = [(name(deck[n], one.ranks), name(twin[n], one.ranks)) for n in places]
                if any((hint[1] in a) != (hint[1] in b) for a, b in cards):
                    stops["hint"] += 1
                    break
            if model.used(act, mover) in (mine, other):
                stops["used"] += 1
                break
            model.apply(act, mover)
            if any(other in hand for p, hand in enumerate(model.hands) if p != player):
                stops["drawn by another"] += 1
                break
            one.step(act)
            two.step(act)
        else:
            stops["never"] += 1
    assert compared > 2 * matches and stops["hint"] and stops["used"]


@pytest.mark.parametrize(
    ("size", "copies"), [("mini", [3, 1]), ("simple", [3, 1]), ("full", [3, 2, 2, 2, 1])]
)  # MARS: three 1s and one 2 per colour
def test_the_deck(size, copies):
    game = games.make("hanabi", size=size)
    state = game.spiel.new_initial_state()
    seen: Counter[Any] = Counter()
    total = sum(copies) * game.colours
    chances = state.chance_outcomes()
    counts = {card: round(chance * total) for card, chance in chances}
    assert counts == {c * game.ranks + r: copies[r] for c in range(game.colours) for r in range(game.ranks)}
    for seed in range(200):
        game.reset(seed=seed)
        seen[game.private("player_0")["hands"]["player_1"][0]] += 1
    assert set(seen) == {f"{colour}{rank}" for colour in LETTERS[: game.colours] for rank in range(1, game.ranks + 1)}


R1, R2, Y1, Y2 = range(4)


def played(deck, *acts):
    game = games.make("hanabi")
    game.reset(seed=0, options={"chance": deck})
    for act in acts:
        game.step(act)
        assert game.infos[game.seats[0]]["valid"] is not False and game.infos[game.seats[1]]["valid"] is not False
    return game


def test_a_perfect_mini_match_by_hints():
    game = played([R1, Y1, R1, R2, Y2, Y1, R1, Y1])
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
    assert scores == [1, 2, 3, 4] and game.public()["hints"] == 3  # finished colours give hints back
    assert game.report() == {"ended": "complete", "turns": 6, "score": 4.0, "share": 1.0, "lives": 3.0}


def test_a_perfect_simple_match():
    """Three colours of two ranks: R1 R2 Y1 Y2 G1 G2 are 0 to 5, and only four of the six can be played."""
    deck = [0, 2, 0, 2, 0, 1, 3, 4, 4, 2, 5, 4]
    game = games.make("hanabi", size="simple")
    game.reset(seed=0, options={"chance": deck})
    for act in ["PLAY 1", "PLAY 1", "PLAY 1", "PLAY 1"]:  # R1, R2, Y1, Y2
        game.step(act)
    assert game.report() == {"ended": "deck", "turns": 4, "score": 4.0, "share": 1.0, "lives": 3.0}
    assert game.theory["best_simple"] == 4


def test_the_last_life_takes_the_score_back():
    game = played([R1, R2, Y2, Y1, R1, R1, Y1, Y1], "PLAY 1", "PLAY 2", "PLAY 2")
    assert game.payoffs() == {"player_0": 1.0, "player_1": 1.0} and game.public()["lives"] == 1
    assert game.public()["discards"] == ["R1", "Y2"]
    game.step("PLAY 2")
    assert game.rewards == {"player_0": -1.0, "player_1": -1.0}
    assert game.payoffs() == {"player_0": 0.0, "player_1": 0.0}
    assert game.report() == {"ended": "lives", "turns": 4, "score": 0.0, "share": 0.0, "lives": 0.0}


def test_options():
    for bad in (
        {"size": "tiny"},
        {"size": ["mini"]},
        {"players": 3},
        {"size": "full", "players": 6},
        {"players": 1},
        {"players": True},
    ):
        with pytest.raises(ValueError, match=r"size must be|players \(in"):
            games.make("hanabi", **bad)
    assert games.make("hanabi", size="full", players=4).seats == tuple(f"player_{n}" for n in range(4))


def test_words_beside_the_hints_are_not_heard_unless_allowed():
    for talk in (False, True):
        game = games.make("hanabi", talk=talk)
        game.reset(seed=0)
        game.step("play 1 | your first card is red")
        assert ("red" in game.observe("player_1")["messages"][0]["text"]) == talk
