"""The rules of negotiation: instances, acts, turns, transfers, secrets, reported measures and theory values."""

import collections
import itertools
import json
import math
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from games.contracts import View
from games.families.bargaining import find_nash_deals, subgame_perfect
from games.families.pools import frontier, instances, remainder, splits, worth
from games.negotiation import Negotiation
from tests.factories.thorough import count_cases

HOSTILE = [
    "", " ", "|", "OFFER", "OFFER 1 1", "OFFER 1 1 1 1", "OFFER -1 0 0", "OFFER 1.0 0 0", "OFFER ١ 0 0",
    "OFFER ² 0 0", "offer 99999999999999999999 0 0", "OFFER " + "9" * 3000 + " 0 0", "ＯＦＦＥＲ 1 1 1",
    "WAL\u212a", "ACCEPT\u00a0", "OFFER 1 0 2 please", "ACCEPT WALK", "<|im_end|>", "\ud800", "x" * 10**5,
    "\0", "OFFER 1,1,1", "{}", "\u202eACCEPT", None, 3, 2.5, b"ACCEPT", ["ACCEPT"], float("nan"),
]  # fmt: skip


def start_game(seed=0, **options):
    game = Negotiation(**options)
    game.reset(seed=seed)
    return game


def draw_legal_act(game, rng, accept=0.15, walk=0.03):
    """Draw a legal act, mostly offers, so that matches are long."""
    legal = game.infos[game.agent_selection]["legal"]
    if "ACCEPT" in legal and rng.random() < accept:
        return "ACCEPT"
    return "WALK" if rng.random() < walk else str(rng.choice([act for act in legal if act[0] == "O"]))


def test_instances_obey_the_rules_and_are_complete():
    known = instances()
    assert len(known) == len(set(known)) == 5793 and list(known) == sorted(known)
    for pool, (first_values, second_values) in known:
        assert 5 <= sum(pool) <= 7 and min(pool) >= 1
        assert sum(p * v for p, v in zip(pool, first_values, strict=True)) == 10
        assert sum(p * v for p, v in zip(pool, second_values, strict=True)) == 10
        assert all(a + b > 0 for a, b in zip(first_values, second_values, strict=True))
    assert {(pool, (second_values, first_values)) for pool, (first_values, second_values) in known} == set(known)


def test_instances_are_drawn_uniformly():
    game = Negotiation()
    counts: collections.Counter[int] = collections.Counter()
    index_by_instance: dict[Any, int] = {instance: index for index, instance in enumerate(instances())}
    for seed in range(12_000):
        game.set_up(np.random.default_rng(seed), {})
        counts[index_by_instance[game.pool, tuple(game.values.values())] * 50 // 5793] += 1
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
        report: dict[str, Any] = game.report()
        assert report["best_joint_value"] == value
        assert list(game.payoffs().values()) == [Negotiation.theory["no_deal"]] * 2
        assert report["pareto_distance"] > 0 == report["nash_product"] == report["efficiency"]
        game.reset(options={"instance": instance})
        game.step("OFFER " + " ".join(map(str, game.pool)))
        game.step("ACCEPT")
        assert game.payoffs() == {"opener": Negotiation.theory["max_payoff"], "responder": 0.0}


def test_refuses_instances_that_break_the_rules():
    with pytest.raises(ValueError, match="instance must be one of"):
        Negotiation().reset(options={"instance": ((5, 1, 1), ((2, 0, 0), (2, 0, 0)))})


def test_turns_are_counted_exactly():
    for limit in range(1, 12):
        game = start_game(max_turns=limit)
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
        game = start_game(seed)
        offers = []
        while not game.ended:
            act = draw_legal_act(game, rng)
            offers += [(game.agent_selection, tuple(map(int, act.split()[1:])))] if act[0] == "O" else []
            game.step(act + " | as you like")
        report, payoffs = game.report(), game.payoffs()
        assert report["joint_value"] == sum(payoffs.values())
        assert report["ended"] == ("deal" if act == "ACCEPT" else "walk" if act == "WALK" else "turns")
        assert report["turns"] == len(offers) + (act[0] != "O")
        if act == "ACCEPT":
            author, share = offers[-1]
            other = "responder" if author == "opener" else "opener"
            remaining_items = tuple(p - s for p, s in zip(game.pool, share, strict=True))
            author_value, other_value = worth(game.values[author], share), worth(game.values[other], remaining_items)
            assert payoffs == {author: author_value, other: other_value}
            assert {seat: info["rewards"] for seat, info in game.infos.items()} == {
                seat: {"deal": value} for seat, value in payoffs.items()
            }
        else:
            assert payoffs == {"opener": 0.0, "responder": 0.0}


def test_rejected_offer_cannot_be_accepted_later():
    game = start_game(3)
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
    game = start_game(3, max_turns=1)
    game.step("OFFER 0 0 0")
    assert game.ended == "turns" and all(game.terminations.values()) and not any(game.truncations.values())


def test_a_walk_ends_with_nothing():
    game = start_game(3)
    game.step("OFFER 0 0 0")
    game.step(" walk | bye")
    assert game.ended == "walk" and game.rewards == {"opener": 0.0, "responder": 0.0}
    assert [m["text"] for m in game.observe("opener")["messages"]] == [
        "WALK | bye", "responder walked away, there is no deal.",
    ]  # fmt: skip


def test_measures_match_their_definitions():
    rng = np.random.default_rng(0)
    for seed in range(150):
        game = start_game(seed)
        while not game.ended:
            game.step(draw_legal_act(game, rng, accept=0.5))
        report = game.report()
        u, v = game.values["opener"], game.values["responder"]
        points = [(worth(u, s), worth(v, remainder(game.pool, s))) for s in splits(game.pool)]
        front = [p for p in points if not any(q[0] >= p[0] and q[1] >= p[1] and q != p for q in points)]
        x, y = game.payoffs().values()
        distances = [math.hypot(p[0] - x, p[1] - y) for p in front if p[0] >= x and p[1] >= y]
        assert report["pareto_distance"] == pytest.approx(min(distances))
        assert (report["pareto_distance"] == 0) == ((x, y) in front)
        assert report["nash_product_raw"] == x * y
        assert report["nash_product"] == pytest.approx(x * y / max(a * b for a, b in points))
        assert report["efficiency"] == pytest.approx((x + y) / max(a + b for a, b in points))


def follows_grammar(act, pool, standing):
    """Return whether the text is a valid act, without using regular expressions."""
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


@settings(deadline=None, max_examples=count_cases(70, 300))
@given(st.one_of(st.text(st.characters(), max_size=40), NEARLY, OFFERS), st.booleans())
@example("OFFER 0 0 0", False)
@example(" \n walk\t", True)
def test_an_act_is_valid_exactly_when_the_grammar_says_so(text, standing):
    game = start_game(1)
    if standing:
        game.step("OFFER 0 0 0")
    seat = game.agent_selection
    game.step(text)
    assert game.infos[seat]["valid"] is follows_grammar(text.split("|")[0], game.pool, standing)


def test_every_listed_act_is_legal_and_no_other_offer():
    game = start_game(4)
    game.step("OFFER 1 0 0")
    listed = set(game.infos["responder"]["legal"])
    assert "legal" not in game.infos["opener"]
    acts = [f"OFFER {a} {b} {c}" for a, b, c in itertools.product(range(7), repeat=3)] + ["ACCEPT", "WALK"]
    for act in acts:
        copy = game.clone()
        copy.step(act)
        assert copy.infos["responder"]["valid"] is (act in listed)


def serialise_view(game, seat):
    return json.dumps([game.observe(seat), game.infos[seat], game.rewards[seat]])


def test_view_does_not_depend_on_the_other_sides_values():
    hidden_moves = 0
    for seed in range(1000):
        rng, seat = np.random.default_rng(seed), ("opener", "responder")[seed % 2]
        game, twin = (Negotiation(illegal=("retry", "end")[seed // 2 % 2]) for _ in range(2))
        for either, deal in zip((game, twin), game.twin_deals(seat, rng) or (), strict=True):
            either.reset(seed=seed, options=deal)
        assert game.pool == twin.pool
        assert [name for name in game.seats if game.values[name] == twin.values[name]] == [seat]
        assert serialise_view(game, seat) == serialise_view(twin, seat)
        while not game.ended:
            act = "I will not say" if rng.random() < 0.1 else draw_legal_act(game, rng) + " | mine is worth 7"
            hidden_moves += game.agent_selection != seat
            game.step(act)
            twin.step(act)
            assert serialise_view(game, seat) == serialise_view(
                twin, seat
            )  # even the outcome reveals only one's own payoff
    assert hidden_moves > 1500


def fuzz_acts(acts):
    """Play `acts` random legal and hostile acts and check the invariants."""
    rng = np.random.default_rng(7)
    game, played_acts = Negotiation(), 0
    reasons: collections.Counter[Any] = collections.Counter()
    while played_acts < acts:
        game = Negotiation(
            illegal=("retry", "end")[int(rng.integers(2))], penalty=float(rng.integers(3)),
            max_turns=int(rng.integers(1, 11)),
        )  # fmt: skip
        game.reset(seed=played_acts)
        totals = dict.fromkeys(game.seats, 0.0)
        while not game.ended:
            hostile = rng.random() < 0.25
            act: Any = HOSTILE[rng.integers(len(HOSTILE))] if hostile else draw_legal_act(game, rng)
            seat, turns = game.agent_selection, game.turns
            game.step(act)
            played_acts += 1
            info = game.infos[seat]
            assert info["valid"] is not hostile and game.turns == turns + info["valid"] <= game.max_turns
            for name in game.seats:
                assert game.rewards[name] == sum(game.infos[name]["rewards"].values())
                assert game.observation_space(name).contains(game.observe(name))
                totals[name] += game.rewards[name]
            assert info["valid"] or game.rewards[seat] == -game.penalty
        report: dict[str, Any] = game.report()
        payoffs = game.payoffs()
        reasons[report["ended"]] += 1
        assert sum(payoffs.values()) == report["joint_value"]
        assert report["deal"] or not any(payoffs.values())
        assert 0 <= report["efficiency"] <= 1 and 0 <= report["nash_product"] <= 1
        assert all(totals[name] <= payoffs[name] <= 10 for name in game.seats)
        assert not re.search(r"[^\S\n ]", game.render())
    assert set(reasons) == {"deal", "walk", "turns", "illegal"}


@pytest.mark.slow
def test_twenty_thousand_random_acts():
    fuzz_acts(20_000)


@pytest.mark.slow
def test_a_million_random_acts():
    fuzz_acts(1_000_000)


# Options: breakdown, public values, random first mover.


def test_defaults_use_no_further_chance_and_rules():
    for seed in range(50):
        game, chance = start_game(seed), np.random.default_rng(seed)
        assert (game.pool, tuple(game.values.values())) == instances()[chance.integers(len(instances()))]
        assert game.rules() == (
            "Two sides divide books, hats and balls; an item's worth is private, all together 10 to each. One act per "
            "turn: OFFER x y z (you take x books, y hats, z balls; the other side the rest), ACCEPT (their last offer) "
            "or WALK (no deal). Talk may follow after |. 10 turns in all; no deal pays 0."
        )
        while not game.ended:
            assert list(game.public()) == ["pool", "items", "offer", "turn", "turns_left"]
            game.step("OFFER 1 1 1")
        assert game.rng.bit_generator.state == chance.bit_generator.state


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"breakdown": 1}, "breakdown must be a number from 0 to below 1, not 1"),
        ({"breakdown": -0.1}, "breakdown must be"),
        ({"breakdown": math.nan}, "breakdown must be"),
        ({"breakdown": "0.1"}, "breakdown must be"),
        ({"values": "open"}, 'values must be "private" or "public", not \'open\''),
        ({"opens": "responder"}, 'opens must be "opener" or "random", not \'responder\''),
    ],
)
def test_refuses_invalid_options(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Negotiation(**options)


def test_breakdown_risk_is_public():
    game = start_game(breakdown=0.1)
    assert game.public()["breakdown"] == 0.1
    assert game.rules().endswith("An offer that answers an offer ends the talks with chance 0.1.")


def test_talks_break_down_only_after_counter_offers():
    for turn in range(1, 8):
        game = Negotiation(max_turns=8, breakdown=0.5)
        game.reset(seed=0, options={"breaks_at": turn})
        while not game.ended:
            game.step("OFFER 0 0 0")
        report = game.report()
        assert report["turns"] == turn + 1 and report["ended"] == ("breakdown" if turn < 7 else "turns")
        assert not report["deal"] and game.payoffs() == {"opener": 0, "responder": 0}
        last = game.seats[turn % 2]
        other = game.next_seat(last)
        texts = [m["text"] for m in game.observe(other)["messages"] if m["sender"] == "referee"]
        assert texts == [
            "The talks broke down, there is no deal." if turn < 7 else "No turns are left, there is no deal."
        ]


def test_breakdown_frequency_matches_the_option():
    answered: collections.Counter[Any] = collections.Counter()
    broken: collections.Counter[Any] = collections.Counter()
    for seed in range(4000):
        game = start_game(seed, breakdown=0.2, max_turns=6)
        while not game.ended:
            turn = game.turns
            game.step("OFFER 1 0 1")
            answered[turn] += 1
            broken[turn] += game.ended == "breakdown"
    assert broken[0] == broken[5] == 0 and answered[0] == answered[1] == 4000
    for turn in range(1, 5):
        n = answered[turn]
        assert abs(broken[turn] - 0.2 * n) < 4 * math.sqrt(0.2 * 0.8 * n)


def test_breakdown_turn_depends_only_on_the_deal():
    for seed in range(200):
        outcomes = set()
        for act in ("OFFER 0 0 0", "OFFER 1 1 1"):
            game = start_game(seed, breakdown=0.3, max_turns=50)
            while not game.ended:
                game.step("no act at all" if act[-1] == "1" and game.turns % 3 == 0 else act)
                game.step(act) if not game.ended else None
            outcomes.add((game.ended, game.turns))
        assert len(outcomes) == 1


def test_first_mover_is_random():
    firsts: collections.Counter[Any] = collections.Counter()
    for seed in range(2000):
        game = start_game(seed, opens="random")
        assert game.seats == ("player_0", "player_1") and game.rules().endswith("Who moves first is drawn.")
        assert [*game.values.values()] == [*start_game(seed).values.values()]  # the same instance as without the option
        first = game.agent_selection
        firsts[first] += 1
        game.step("ACCEPT")
        assert game.infos[first]["valid"] is False and game.agent_selection == first
        game.step("OFFER " + " ".join(map(str, game.pool)))
        assert game.agent_selection == game.next_seat(first)
        game.step("ACCEPT")
        report = game.report()
        assert game.payoffs()[first] == report["payoff_first"] == 10 and report["payoff_second"] == 0
    assert abs(firsts["player_0"] - 1000) < 4 * math.sqrt(500)


def test_public_values_are_shown_to_both():
    for seed in range(20):
        game = start_game(seed, values="public")
        assert game.public()["values"] == {seat: [*own] for seat, own in game.values.items()}
        assert "worth is known to both" in game.rules()
        assert game.private("opener")["values"] == [*game.values["opener"]]
        assert game.perfect_information and game.twin_deals("opener", np.random.default_rng(0)) is None
    assert not start_game(values="public", breakdown=0.1).perfect_information  # chance is hidden


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "breakdown": st.sampled_from([0, 0.05, 0.1, 0.5, 0.99]), "values": st.sampled_from(["private", "public"]),
        "opens": st.sampled_from(["opener", "random"]), "max_turns": st.integers(1, 12),
    },
)  # fmt: skip


@given(OPTIONS, st.integers(0, 2**32), st.integers(0, 2**32))
def test_any_options_give_valid_reproducible_clonable_matches(options, seed, acts):
    def play_until(game, rng, max_turns=math.inf):
        while not game.ended and game.turns < max_turns:
            game.step(draw_legal_act(game, rng, accept=0.1, walk=0.02))
        return game.render(), game.payoffs(), game.ended and game.report()

    expected = play_until(start_game(seed, **options), np.random.default_rng(acts))
    game, rng = start_game(seed, **options), np.random.default_rng(acts)
    play_until(game, rng, max_turns=2)
    twin, state = game.clone(), rng.bit_generator.state
    assert play_until(game, rng) == expected
    rng.bit_generator.state = state
    assert play_until(twin, rng) == expected
    _, payoffs, report = expected
    assert report["deal"] or not any(payoffs.values())
    assert report["ended"] in {"deal", "walk", "turns"} | ({"breakdown"} if options.get("breakdown") else set())
    assert report["turns"] <= game.max_turns and all(0 <= payoff <= 10 for payoff in payoffs.values())
    assert ("equilibrium_payoff_first" in report) == (options.get("values") == "public")
    assert {report["payoff_first"], report["payoff_second"]} == set(payoffs.values())
    assert (report["nash_distance"] == 0) == (report["nash_product"] == 1)


@pytest.mark.parametrize("options", [{"breakdown": 0.3}, {"breakdown": 0.3, "values": "public", "opens": "random"}])
def test_view_does_not_reveal_the_breakdown_turn(options):
    compared, differing = 0, 0
    for seed in range(400):
        rng, seat = np.random.default_rng(seed), Negotiation(**options).seats[seed % 2]
        game, twin = Negotiation(**options), Negotiation(**options)
        for either, deal in zip((game, twin), game.twin_deals(seat, rng) or (), strict=True):
            either.reset(seed=seed, options=deal)
        other = game.next_seat(seat)
        assert game.values[seat] == twin.values[seat] and game.breaks_at != twin.breaks_at
        assert (game.values[other] == twin.values[other]) == ("values" in options)
        while not (game.ended or twin.ended):
            assert serialise_view(game, seat) == serialise_view(twin, seat)
            compared += 1
            act = draw_legal_act(game, rng)
            game.step(act)
            twin.step(act)
        differing += game.ended != twin.ended
    assert compared > 1000 and differing > 50


def play_with(name, game):
    player = game.players[name](game, 0)
    while not game.ended:
        seat = game.agent_selection
        game.step(player(SimpleNamespace(seat=seat, **game.infos[seat])))
        assert game.infos[seat]["valid"]
    return game.report()


@pytest.mark.parametrize("opens", ["opener", "random"])
@pytest.mark.parametrize(("turns", "breakdown"), [(2, 0), (3, 0.1), (10, 0), (10, 0.2), (11, 0.3), (60, 0.15)])
def test_subgame_perfect_play_reaches_the_equilibrium_at_once(turns, breakdown, opens):
    for seed in range(20):
        report = play_with(
            "subgame_perfect", start_game(seed, max_turns=turns, breakdown=breakdown, values="public", opens=opens)
        )
        assert report["ended"] == "deal" and report["turns"] == 2 and report["equilibrium_distance"] == 0
        assert report["pareto_distance"] == 0
        if not breakdown:
            assert max(report["payoff_first"], report["payoff_second"]) == 10


@pytest.mark.parametrize("opens", ["opener", "random"])
@pytest.mark.parametrize(("turns", "breakdown"), [(2, 0), (4, 0.2), (10, 0)])
def test_nash_bargainers_agree_at_once_on_a_nash_deal(turns, breakdown, opens):
    for seed in range(40):
        report = play_with(
            "nash_bargaining", start_game(seed, max_turns=turns, breakdown=breakdown, values="public", opens=opens)
        )
        assert (report["ended"], report["turns"], report["nash_distance"], report["nash_product"]) == ("deal", 2, 0, 1)


def test_nash_bargainer_accepts_its_continuation_value():
    """The Nash deal is (6, 8), so refusing is worth 0.8 * 8 to the responder."""
    game = Negotiation(max_turns=4, breakdown=0.2, values="public")
    game.reset(seed=0, options={"instance": ((1, 4, 1), ((4, 1, 2), (0, 2, 2))), "breaks_at": 0})
    answer = game.players["nash_bargaining"](game, 0)
    assert answer(View.of(game, "opener")) == "OFFER 1 0 1"
    for share, reply in ("OFFER 1 0 1", "ACCEPT"), ("OFFER 1 1 0", "ACCEPT"), ("OFFER 1 1 1", "OFFER 0 4 0"):
        next_game = game.clone()
        next_game.step(share)
        assert answer(View.of(next_game, "responder")) == reply
    for act in ("OFFER 1 4 1", "OFFER 1 4 1", "OFFER 1 4 1"):
        game.step(act)
    assert answer(View.of(game, "responder")) == "ACCEPT", "refuses nothing at the end"


def test_private_view_has_the_value_of_accepting():
    game = Negotiation()
    game.reset(seed=0, options={"instance": ((1, 4, 1), ((4, 1, 2), (0, 2, 2)))})
    assert game.private("opener")["offered"] is game.private("responder")["offered"] is None
    game.step("OFFER 1 1 0")
    assert game.private("responder")["offered"] == 8
    game.step("OFFER 1 1 1")
    assert game.private("opener")["offered"] == 3


def test_equilibrium_with_one_turn_is_no_deal():
    report = play_with("subgame_perfect", start_game(max_turns=1, values="public"))
    assert (report["ended"], report["equilibrium_payoff_first"], report["equilibrium_payoff_second"]) == ("turns", 0, 0)


def search_best_response(game, seat):
    """Return a seat's best expected payoff against subgame-perfect play by brute force in the real game."""
    if game.ended:
        return game.payoffs()[seat]
    mover = game.agent_selection
    player = game.players["subgame_perfect"](game, 0)
    view = SimpleNamespace(seat=mover, **game.infos[mover])
    values = []
    for act in game.infos[mover]["legal"] if mover == seat else [player(view)]:
        next_game, is_counter_offer = game.clone(), game.offer is not None
        next_game.step(act)
        value = search_best_response(next_game, seat)
        values.append(value * (1 - game.breakdown if is_counter_offer and act.startswith("OFFER") else 1))
    return max(values)


@pytest.mark.parametrize(("turns", "breakdown"), [(3, 0.3), (4, 0.1)])
def test_subgame_perfect_play_is_a_best_response_to_itself(turns, breakdown):
    small = [instance for instance in instances() if len(splits(instance[0])) == 16]
    for instance in small[:: len(small) // 3]:
        game = Negotiation(max_turns=turns, breakdown=breakdown, values="public")
        game.reset(seed=0, options={"instance": instance, "breaks_at": 0})  # breakdowns enter by their probability
        report = play_with("subgame_perfect", game.clone())
        for seat, name in zip(game.seats, ("equilibrium_payoff_first", "equilibrium_payoff_second"), strict=True):
            assert search_best_response(game, seat) == pytest.approx(report[name])


def test_theory_means():
    deals = [frontier(pool, *values) for pool, values in instances()]
    best_sum = sum(max(map(sum, pool_deals)) for pool_deals in deals)
    nash = [find_nash_deals(pool_deals) for pool_deals in deals]
    ultimatum = sum(sum(subgame_perfect(pool_deals, 10, 0)[0].offer) for pool_deals in deals)
    assert best_sum / len(deals) == Negotiation.theory["mean_best_joint_value"]
    assert ultimatum / len(deals) == Negotiation.theory["mean_ultimatum_joint_value"]
    mean = sum(sum(map(sum, pool_deals)) / len(pool_deals) for pool_deals in nash) / len(nash)
    assert mean == pytest.approx(Negotiation.theory["mean_nash_joint_value"])


def test_shown_splits_by_hand():
    """In pool 1 2 3 with values 4 0 2 and 1 3 1, the hats always go to the other side. The remaining items are worth
    4, 2, 2, 2 to one side and 1 each to the other, so the book moves last: first (10, 6), then a ball less each."""
    game = Negotiation(values="public", splits="shown")
    game.reset(seed=0, options={"instance": ((1, 2, 3), ((4, 0, 2), (1, 3, 1)))})
    assert game.private("opener")["splits"] == [
        ("1 0 3", 10, 6), ("1 0 2", 8, 7), ("1 0 1", 6, 8), ("1 0 0", 4, 9), ("0 0 0", 0, 10)
    ]  # fmt: skip
    assert [(own, other) for _, own, other in game.private("responder")["splits"]] == [
        (10, 0), (9, 4), (8, 6), (7, 8), (6, 10)
    ]  # fmt: skip


@given(st.sampled_from(instances()))
def test_shown_splits_are_the_undominated_deals(instance):
    game = Negotiation(values="public", splits="shown")
    game.reset(seed=0, options={"instance": instance})
    for seat, other in itertools.permutations(game.seats):
        own_values, other_values = game.values[seat], game.values[other]
        everything = {
            (worth(own_values, s), worth(other_values, remainder(game.pool, s)))
            for s in itertools.product(*(range(n + 1) for n in game.pool))
        }
        undominated = {d for d in everything if not any(e != d and e[0] >= d[0] and e[1] >= d[1] for e in everything)}
        splits_shown = game.private(seat)["splits"]
        assert {(own_worth, other_worth) for _, own_worth, other_worth in splits_shown} == undominated
        for share, own_worth, other_worth in splits_shown:
            quantities = tuple(map(int, share.split()))
            assert (worth(own_values, quantities), worth(other_values, remainder(game.pool, quantities))) == (
                own_worth,
                other_worth,
            )


def test_refuses_shown_splits_with_private_values():
    with pytest.raises(ValueError, match="values must be public"):
        Negotiation(splits="shown")
