"""The rules of negotiation: instances, acts, turns, transfers, secrets, figures and theory values."""

import collections
import itertools
import json
import math
import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from games.families.pools import instances, rest, splits, worth
from games.negotiation import Negotiation

HOSTILE = [
    "", " ", "|", "OFFER", "OFFER 1 1", "OFFER 1 1 1 1", "OFFER -1 0 0", "OFFER 1.0 0 0", "OFFER ١ 0 0",
    "OFFER ² 0 0", "offer 99999999999999999999 0 0", "OFFER " + "9" * 3000 + " 0 0", "ＯＦＦＥＲ 1 1 1",
    "WAL\u212a", "ACCEPT\u00a0", "OFFER 1 0 2 please", "ACCEPT WALK", "<|im_end|>", "\ud800", "x" * 10**5,
    "\0", "OFFER 1,1,1", "{}", "\u202eACCEPT", None, 3, 2.5, b"ACCEPT", ["ACCEPT"], float("nan"),
]  # fmt: skip


def reset(seed=0, **options):
    game = Negotiation(**options)
    game.reset(seed=seed)
    return game


def legal_act(game, rng, accept=0.15, walk=0.03):
    """A legal act: mostly offers, so that matches are long."""
    legal = game.infos[game.agent_selection]["legal"]
    if "ACCEPT" in legal and rng.random() < accept:
        return "ACCEPT"
    return "WALK" if rng.random() < walk else str(rng.choice([act for act in legal if act[0] == "O"]))


def test_instances_obey_the_rules_and_are_all_there():
    found = instances()
    assert len(found) == len(set(found)) == 5793 and list(found) == sorted(found)
    for pool, (one, two) in found:
        assert 5 <= sum(pool) <= 7 and min(pool) >= 1
        assert sum(p * v for p, v in zip(pool, one, strict=True)) == 10
        assert sum(p * v for p, v in zip(pool, two, strict=True)) == 10
        assert all(a + b > 0 for a, b in zip(one, two, strict=True))
    assert {(pool, (two, one)) for pool, (one, two) in found} == set(found)


def test_instances_are_drawn_uniformly():
    game, counts = Negotiation(), collections.Counter()
    place = {instance: index for index, instance in enumerate(instances())}
    for seed in range(12_000):
        game.set_up(np.random.default_rng(seed), {})
        counts[place[game.pool, tuple(game.values.values())] * 50 // 5793] += 1
    sizes = collections.Counter(index * 50 // 5793 for index in range(5793))
    chi2 = sum((counts[k] - 12_000 * n / 5793) ** 2 / (12_000 * n / 5793) for k, n in sizes.items())
    assert 20 < chi2 < 86  # the 99.9 % point of chi-squared with 49 degrees of freedom is 85.4


def test_theory_values():
    best = [sum(p * max(a, b) for p, a, b in zip(pool, *values, strict=True)) for pool, values in instances()]
    assert min(best) == Negotiation.theory["min_best_joint_value"]
    assert max(best) == Negotiation.theory["max_best_joint_value"]
    game = Negotiation()
    for instance, value in list(zip(instances(), best, strict=True))[::60]:
        game.reset(options={"instance": instance})
        game.step("WALK")
        report = game.report()
        assert report["best_joint_value"] == value
        assert list(game.payoffs().values()) == [Negotiation.theory["no_deal"]] * 2
        assert report["pareto_distance"] > 0 == report["nash_product"] == report["efficiency"]
        game.reset(options={"instance": instance})
        game.step("OFFER " + " ".join(map(str, game.pool)))
        game.step("ACCEPT")
        assert game.payoffs() == {"opener": Negotiation.theory["max_payoff"], "responder": 0.0}


def test_instances_that_break_the_rules_are_refused():
    with pytest.raises(ValueError, match="instance must be one of"):
        Negotiation().reset(options={"instance": ((5, 1, 1), ((2, 0, 0), (2, 0, 0)))})


def test_turns_are_counted_exactly():
    for limit in range(1, 12):
        game = reset(max_turns=limit)
        for turn in range(limit):
            assert not game.ended and game.agent_selection == game.seats[turn % 2]
            public = game.public()
            assert (public["turn"], public["turns_left"]) == (turn, limit - turn)
            if turn == 1:
                game.step("a mistake is not a turn")
            game.step("OFFER 1 0 1")
        assert game.ended == "turns" and game.report()["turns"] == limit
        assert sum(game.payoffs().values()) == 0 and not game.report()["deal"]


def test_acceptance_transfers_exactly_the_offer():
    for seed in range(300):
        rng = np.random.default_rng(seed)
        game = reset(seed)
        offers = []
        while not game.ended:
            act = legal_act(game, rng)
            offers += [(game.agent_selection, tuple(map(int, act.split()[1:])))] if act[0] == "O" else []
            game.step(act + " | as you like")
        report, payoffs = game.report(), game.payoffs()
        assert report["joint_value"] == sum(payoffs.values())
        assert report["ended"] == ("deal" if act == "ACCEPT" else "walk" if act == "WALK" else "turns")
        assert report["turns"] == len(offers) + (act[0] != "O")
        if act == "ACCEPT":
            author, share = offers[-1]
            other = "responder" if author == "opener" else "opener"
            left = tuple(p - s for p, s in zip(game.pool, share, strict=True))
            mine, theirs = worth(game.values[author], share), worth(game.values[other], left)
            assert payoffs == {author: mine, other: theirs}
            assert {seat: info["rewards"] for seat, info in game.infos.items()} == {
                seat: {"deal": value} for seat, value in payoffs.items()
            }
        else:
            assert payoffs == {"opener": 0.0, "responder": 0.0}


def test_a_rejected_offer_is_dead():
    game = reset(3)
    everything = "OFFER " + " ".join(map(str, game.pool))
    assert "ACCEPT" not in game.infos[game.agent_selection]["legal"]
    game.step("ACCEPT")
    assert game.infos["opener"]["valid"] is False
    game.step("OFFER 0 0 0")  # worth all to the responder, who lets it go
    game.step("OFFER 0 0 0")
    game.step(everything)
    game.step("ACCEPT")
    assert game.payoffs() == {"opener": 10.0, "responder": 0.0}


def test_the_last_offer_cannot_be_accepted():
    game = reset(3, max_turns=1)
    game.step("OFFER 0 0 0")
    assert game.ended == "turns" and all(game.terminations.values()) and not any(game.truncations.values())


def test_a_walk_ends_with_nothing():
    game = reset(3)
    game.step("OFFER 0 0 0")
    game.step(" walk | bye")
    assert game.ended == "walk" and game.rewards == {"opener": 0.0, "responder": 0.0}
    assert [m["text"] for m in game.observe("opener")["messages"]] == [
        "WALK | bye", "responder walked away, there is no deal.",
    ]  # fmt: skip


def test_figures_against_their_definitions():
    rng = np.random.default_rng(0)
    for seed in range(150):
        game = reset(seed)
        while not game.ended:
            game.step(legal_act(game, rng, accept=0.5))
        report = game.report()
        u, v = game.values["opener"], game.values["responder"]
        points = [(worth(u, s), worth(v, rest(game.pool, s))) for s in splits(game.pool)]
        front = [p for p in points if not any(q[0] >= p[0] and q[1] >= p[1] and q != p for q in points)]
        x, y = game.payoffs().values()
        near = [math.hypot(p[0] - x, p[1] - y) for p in front if p[0] >= x and p[1] >= y]
        assert report["pareto_distance"] == pytest.approx(min(near))
        assert (report["pareto_distance"] == 0) == ((x, y) in front)
        assert report["nash_product_raw"] == x * y
        assert report["nash_product"] == pytest.approx(x * y / max(a * b for a, b in points))
        assert report["efficiency"] == pytest.approx((x + y) / max(a + b for a, b in points))


def grammar(act, pool, standing):
    """The act grammar once more, without a regular expression."""
    for space in "\t\n\r\f\v":
        act = act.replace(space, " ")
    words = [word for word in act.split(" ") if word]
    if not words or not all(word.isascii() for word in words):
        return False
    head, numbers = words[0].upper(), words[1:]
    if head != "OFFER":
        return not numbers and (head == "WALK" or (head == "ACCEPT" and standing))
    digits = len(numbers) == 3 and all(set(number) <= set("0123456789") for number in numbers)
    return digits and all(int(number) <= count for number, count in zip(numbers, pool, strict=True))


ODD = st.sampled_from(["00", "01", "٣", "1.0", "+1", "1e0", "9" * 50])
NUMBER = st.one_of(st.integers(-1, 8).map(str), ODD)
SPACE = st.sampled_from([" ", "  ", "\t", "\n", "\r\n", "", "\u00a0", "\u2003", "\x0b", "\x1c"])
WORD = st.sampled_from(["OFFER", "offer", "Offer", "ACCEPT", "accept", "WALK", "waLK", "wal\u212a", "PASS"])
NEARLY = st.lists(st.one_of(WORD, NUMBER, SPACE, SPACE), max_size=9).map("".join)
OFFERS = st.tuples(SPACE, WORD, SPACE, NUMBER, SPACE, NUMBER, SPACE, NUMBER, SPACE).map("".join)


@settings(deadline=None, max_examples=300)
@given(st.one_of(st.text(st.characters(), max_size=40), NEARLY, OFFERS), st.booleans())
@example("OFFER 0 0 0", False)
@example(" \n walk\t", True)
def test_an_act_is_valid_exactly_when_the_grammar_says_so(text, standing):
    game = reset(1)
    if standing:
        game.step("OFFER 0 0 0")
    seat = game.agent_selection
    game.step(text)
    assert game.infos[seat]["valid"] is grammar(text.split("|")[0], game.pool, standing)


def test_every_listed_act_is_legal_and_no_other_offer():
    game = reset(4)
    game.step("OFFER 1 0 0")
    listed = set(game.infos["responder"]["legal"])
    assert "legal" not in game.infos["opener"]
    acts = [f"OFFER {a} {b} {c}" for a, b, c in itertools.product(range(7), repeat=3)] + ["ACCEPT", "WALK"]
    for act in acts:
        copy = game.clone()
        copy.step(act)
        assert copy.infos["responder"]["valid"] is (act in listed)


def seen_by(game, seat):
    return json.dumps([game.observe(seat), game.infos[seat], game.rewards[seat]])


def test_no_byte_of_a_seat_changes_with_the_secret_of_the_other():
    moved = 0
    for seed in range(1000):
        rng, seat = np.random.default_rng(seed), ("opener", "responder")[seed % 2]
        game, twin = (Negotiation(illegal=("retry", "end")[seed // 2 % 2]) for _ in range(2))
        for one, deal in zip((game, twin), game.twin_deals(seat, rng), strict=True):
            one.reset(seed=seed, options=deal)
        assert game.pool == twin.pool
        assert [name for name in game.seats if game.values[name] == twin.values[name]] == [seat]
        assert seen_by(game, seat) == seen_by(twin, seat)
        while not game.ended:
            act = "I will not say" if rng.random() < 0.1 else legal_act(game, rng) + " | mine is worth 7"
            moved += game.agent_selection != seat
            game.step(act)
            twin.step(act)
            assert seen_by(game, seat) == seen_by(twin, seat)  # even the outcome reveals the own payoff alone
    assert moved > 1500


def fuzz(acts):
    """Plays that many random legal and hostile acts, checking what must always hold."""
    rng = np.random.default_rng(7)
    game, made = Negotiation(), 0
    reasons = collections.Counter()
    while made < acts:
        game = Negotiation(
            illegal=("retry", "end")[int(rng.integers(2))], penalty=float(rng.integers(3)),
            max_turns=int(rng.integers(1, 11)),
        )  # fmt: skip
        game.reset(seed=made)
        totals = dict.fromkeys(game.seats, 0.0)
        while not game.ended:
            hostile = rng.random() < 0.25
            act = HOSTILE[rng.integers(len(HOSTILE))] if hostile else legal_act(game, rng)
            seat, turns = game.agent_selection, game.turns
            game.step(act)
            made += 1
            info = game.infos[seat]
            assert info["valid"] is not hostile and game.turns == turns + info["valid"] <= game.max_turns
            for name in game.seats:
                assert game.rewards[name] == sum(game.infos[name]["rewards"].values())
                assert game.observation_space(name).contains(game.observe(name))
                totals[name] += game.rewards[name]
            assert info["valid"] or game.rewards[seat] == -game.penalty
        report, payoffs = game.report(), game.payoffs()
        reasons[report["ended"]] += 1
        assert sum(payoffs.values()) == report["joint_value"]
        assert report["deal"] or not any(payoffs.values())
        assert 0 <= report["efficiency"] <= 1 and 0 <= report["nash_product"] <= 1
        assert all(totals[name] <= payoffs[name] <= 10 for name in game.seats)
        assert not re.search(r"[^\S\n ]", game.render())
    assert set(reasons) == {"deal", "walk", "turns", "illegal"}


def test_twenty_thousand_random_acts():
    fuzz(20_000)


@pytest.mark.slow
def test_a_million_random_acts():
    fuzz(1_000_000)
