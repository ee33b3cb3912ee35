"""Scripted negotiators: documented behaviour, and exploiters as best responses to their prey."""

import collections
import functools
import itertools
import json
import statistics
from typing import Any

import pytest

from agents.errors import ScriptedPolicyError
from agents.players import negotiators
from agents.players.negotiators import (
    ASPIRATIONS,
    AspirationExploiter,
    AspirationNegotiator,
    RandomExploiter,
    concede,
    list_shares,
)  # fmt: skip
from agents.players.scripted import make_scripted
from agents.players.simple import Random
from games.contracts import View
from games.families.pools import instances, remainder, worth
from games.negotiation import Negotiation

SCRIPTED = {"random": Random, **negotiators.SCRIPTED}
PREY = ("random", "conceder", "hard_liner", "fair_split")


def make_view(game, seat, turn):
    """Return the seat's view."""
    return View.of(game, seat, turn)


def play_match(game, scripted):
    """Play a reset match to its end; return (seat, act, own worth asked or None) of every turn."""
    turns: list[Any] = []
    while not game.ended:
        seat = game.agent_selection
        act = scripted[seat].act(make_view(game, seat, len(turns)))
        share = tuple(map(int, act.split()[1:])) if act.startswith("OFFER") else None
        turns.append((seat, act, worth(game.values[seat], share) if share else None))
        game.step(act)
        assert game.infos[seat]["valid"]
    return turns


@functools.cache
def compute_mean_payoff(name, prey, seat, seeds=200):
    """Return a scripted policy's mean payoff at a seat against a prey over paired seeds."""
    other = "responder" if seat == "opener" else "opener"
    game, earned = Negotiation(), []
    for seed in range(seeds):
        game.reset(seed=seed)
        play_match(game, {seat: SCRIPTED[name](seed), other: SCRIPTED[prey](10_000 + seed)})
        earned.append(game.payoffs()[seat])
    return statistics.fmean(earned)


@pytest.mark.slow
@pytest.mark.parametrize("seat", ["opener", "responder"])
@pytest.mark.parametrize("prey", PREY)
def test_exploiter_earns_most_against_its_prey(prey, seat):
    means = {name: compute_mean_payoff(name, prey, seat) for name in SCRIPTED}
    best = means.pop(f"exploiter:{prey}")
    assert best > max(means.values()), (best, means)


def test_scripted_players_match_the_documented_table():
    assert set(SCRIPTED) == {*PREY, "naive", "novice", "rubinstein", *(f"exploiter:{prey}" for prey in PREY)}


def test_players_are_reproducible_from_their_view():
    for name in SCRIPTED:
        for seed in range(8):
            matches = []
            for _ in range(2):
                game = Negotiation(max_turns=seed + 1)
                game.reset(seed=seed)
                matches.append(play_match(game, {s: SCRIPTED[name](seed + i) for i, s in enumerate(game.seats)}))
            assert matches[0] == matches[1]


def test_player_can_play_several_matches():
    for name in SCRIPTED:
        scripted = {seat: SCRIPTED[name](0) for seat in Negotiation.seats}
        for seed in range(5):
            game = Negotiation()
            game.reset(seed=seed)
            record = play_match(game, scripted)
            if "random" not in name and name not in ("naive", "novice"):
                game.reset(seed=seed)
                assert record == play_match(game, {seat: SCRIPTED[name](0) for seat in game.seats})


def test_random_is_uniform_over_legal_acts():
    game = Negotiation()
    game.reset(seed=0)
    game.step("OFFER 0 0 0")
    legal = game.infos["responder"]["legal"]
    script, n = SCRIPTED["random"](1), 400 * len(legal)
    counts = collections.Counter(script.act(make_view(game, "responder", 1)) for _ in range(n))
    assert set(counts) == set(legal)
    assert all(abs(count - 400) < 100 for count in counts.values())  # five standard deviations


def test_the_conceder_comes_down_in_equal_steps():
    for first, limit in itertools.product((0, 1), (2, 5, 10, 11)):
        expected = [concede(turn, limit - turn) for turn in range(first, limit, 2)]
        steps = [10 - 10 * k / len(expected) for k in range(len(expected))]
        assert expected == pytest.approx(steps)
    for seed in range(50):
        game = Negotiation()
        game.reset(seed=seed)
        requests = [ask for seat, _, ask in play_match(game, {s: SCRIPTED["conceder"](0) for s in game.seats}) if ask]
        assert requests[0] == 10 and game.ended == "deal"
        for actual in (requests[::2], requests[1::2]):
            assert actual == sorted(actual, reverse=True)


@pytest.mark.parametrize(("name", "least"), [("hard_liner", 8), ("fair_split", 5)])
def test_fixed_aspirations_ask_and_accept_no_less(name, least):
    deals = 0
    for seed, prey in itertools.product(range(60), PREY):
        for seat, other in itertools.permutations(Negotiation.seats):
            game = Negotiation()
            game.reset(seed=seed)
            record = play_match(game, {seat: SCRIPTED[name](0), other: SCRIPTED[prey](seed)})
            assert all(ask >= least for who, _, ask in record if who == seat and ask is not None)
            assert not game.report()["deal"] or game.payoffs()[seat] >= least
            deals += bool(game.report()["deal"])
    assert deals > 100


def test_naive_player_splits_and_accepts_with_its_frequencies():
    """A share worth 6 is accepted in 6 of 8 cases, 8 or more always, and splits are uniform."""
    instance = (1, 2, 3), ((1, 3, 1), (4, 0, 2))
    game = Negotiation()
    game.reset(seed=0, options={"instance": instance})
    script = SCRIPTED["naive"](0)
    opened = collections.Counter(script.act(make_view(game, "opener", 0)) for _ in range(2400))
    assert len(opened) == 24 and all(abs(count - 100) < 50 for count in opened.values())
    for left, chance in (("OFFER 1 2 2", 2 / 8), ("OFFER 1 2 0", 6 / 8), ("OFFER 0 0 1", 1.0), ("OFFER 1 2 3", 0.0)):
        game.reset(seed=0, options={"instance": instance})
        game.step(left)
        answers = [script.act(make_view(game, "responder", 1)) for _ in range(2000)]
        assert answers.count("ACCEPT") / 2000 == pytest.approx(chance, abs=0.04)


def test_novice_plays_random_well_formed_acts():
    """It accepts half of all offers whatever their worth, and offers at random."""
    instance = (1, 2, 3), ((1, 3, 1), (4, 0, 2))
    for splits in ("hidden", "shown"):
        game, script = Negotiation(values="public", splits=splits), SCRIPTED["novice"](0)
        game.reset(seed=0, options={"instance": instance})
        opened = {script.act(make_view(game, "opener", 0)) for _ in range(400)}
        offers = {f"OFFER {share}" for share, *_ in game.private("opener").get("splits", ())}
        assert opened == (offers or {f"OFFER {a} {b} {c}" for a in range(2) for b in range(3) for c in range(4)})
        for offer in ("OFFER 1 2 3", "OFFER 0 0 0"):
            game.reset(seed=0, options={"instance": instance})
            game.step(offer)
            answers = [script.act(make_view(game, "responder", 1)) for _ in range(2000)]
            assert answers.count("ACCEPT") / 2000 == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("name", ["naive", "novice"])
@pytest.mark.parametrize("splits", ["hidden", "shown"])
def test_stated_probabilities_match_the_acts(name, splits):
    game = Negotiation(values="public", splits=splits)
    game.reset(seed=5)
    game.step(game.legal("opener")[7])
    view = make_view(game, "responder", 1)
    script: Any = SCRIPTED[name](3)
    chances = script.chances(view)
    counts = collections.Counter(script.act(view) for _ in range(20_000))
    assert sum(chances.values()) == pytest.approx(1.0)
    assert all(counts[act] / 20_000 == pytest.approx(p, abs=0.015) for act, p in chances.items())
    assert set(counts) <= set(chances)


@pytest.mark.parametrize(("breakdown", "asks", "takes"), [(0.0, 5, 5), (0.2, 10 / 1.8, 8 / 1.8), (0.5, 20 / 3, 10 / 3)])
def test_rubinsteins_shares_are_asked_and_accepted(breakdown, asks, takes):
    """The first mover's share of 10, and what the other side accepts at once."""
    for seed in range(50):
        game = Negotiation(breakdown=breakdown)
        game.reset(seed=seed)
        script, values = SCRIPTED["rubinstein"](0), game.values["opener"]
        game.step(script.act(make_view(game, "opener", 0)))
        assert game.offer
        assert worth(values, game.offer) == min(w for s in list_shares(game.pool) if (w := worth(values, s)) >= asks)
        offered = worth(game.values["responder"], remainder(game.pool, game.offer))
        answer = script.act(make_view(game, "responder", 1))
        assert (answer == "ACCEPT") == (offered >= takes)


def test_a_risk_of_breakdown_makes_rubinsteins_bargainers_agree_soon_and_well():
    reports = []
    for seed in range(300):
        game = Negotiation(breakdown=0.2)
        game.reset(seed=seed)
        play_match(game, {seat: SCRIPTED["rubinstein"](0) for seat in game.seats})
        reports.append((game.report(), game.payoffs()))
    deals = [payoffs for report, payoffs in reports if report["deal"]]
    assert len(deals) > 0.9 * len(reports)
    assert sum(min(payoffs.values()) >= 3 for payoffs in deals) > 0.98 * len(deals)
    assert statistics.fmean(float(report["efficiency"]) for report, _ in reports) > 0.85
    assert statistics.fmean(float(report["turns"]) for report, _ in reports) < 3


def test_subgame_perfect_play_needs_public_values():
    game = Negotiation(values="public", breakdown=0.2)
    game.reset(seed=0)
    record = play_match(game, {seat: make_scripted("subgame_perfect", 0, game) for seat in game.seats})
    assert len(record) == 2 and game.report()["equilibrium_distance"] == 0
    with pytest.raises(ScriptedPolicyError, match="subgame_perfect plays negotiation with public values"):
        make_scripted("subgame_perfect", 0, Negotiation())


def list_worlds(pool, own, seat):
    """List every instance that is consistent with this pool and these own values."""
    actual = Negotiation.seats.index(seat)
    return [instance for instance in instances() if instance[0] == pool and instance[1][actual] == own]


def make_games(pool, own, seat, limit):
    for instance in list_worlds(pool, own, seat):
        game = Negotiation(max_turns=limit)
        game.reset(seed=0, options={"instance": instance})
        yield game


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", ASPIRATIONS)
def test_ultimatum_is_the_best_of_all_offers(name):
    for pool, (own, _) in instances()[::300]:
        earned: collections.Counter[Any] = collections.Counter()
        for act in (f"OFFER {a} {b} {c}" for a, b, c in list_shares(pool)):
            for game in make_games(pool, own, "opener", 2):
                game.step(act)
                game.step(AspirationNegotiator(ASPIRATIONS[name]).act(make_view(game, "responder", 1)))
                earned[act] += game.payoffs()["opener"]
        total = 0.0
        for game in make_games(pool, own, "opener", 2):
            play_match(game, {"opener": SCRIPTED[f"exploiter:{name}"](0), "responder": SCRIPTED[name](0)})
            total += game.payoffs()["opener"]
        assert total == max(earned.values())


def compute_best_total(worlds, seat, prey):
    """Return by brute force the most a seat can earn, summed over indistinguishable worlds."""
    totals = []
    for act in worlds[0].infos[seat]["legal"][:-1]:
        total, apart = 0.0, collections.defaultdict(list)
        for world in worlds:
            game = world.clone()
            game.step(act)
            if not game.ended:
                game.step(prey.act(make_view(game, game.agent_selection, game.turns)))
            if game.ended:
                total += game.payoffs()[seat]
            else:
                apart[json.dumps([game.observe(seat), game.infos[seat]])].append(game)
        totals.append(total + sum(compute_best_total(group, seat, prey) for group in apart.values()))
    return max(totals)


@pytest.mark.slow
@pytest.mark.parametrize("name", ASPIRATIONS)
def test_longer_games_are_played_as_well_as_brute_force_can(name):
    by_size = collections.Counter((pool, own) for pool, (own, _) in instances())
    few = [key for key, size in sorted(by_size.items(), key=lambda item: (item[1], item[0])) if size > 2]
    prey = AspirationNegotiator(ASPIRATIONS[name])
    for pool, own in few[:2]:
        games = list(make_games(pool, own, "opener", 4))
        earned = 0.0
        for game in games:
            match = game.clone()
            play_match(match, {"opener": SCRIPTED[f"exploiter:{name}"](0), "responder": prey})
            earned += match.payoffs()["opener"]
        assert earned == compute_best_total(games, "opener", prey)


@pytest.mark.parametrize("name", ASPIRATIONS)
def test_exploiter_belief_only_narrows(name):
    narrowed = 0
    for seed, (seat, other) in itertools.product(range(40), itertools.permutations(Negotiation.seats)):
        game, left = Negotiation(), []
        game.reset(seed=seed)
        players: dict[str, Any] = {
            seat: AspirationExploiter(ASPIRATIONS[name]),
            other: AspirationNegotiator(ASPIRATIONS[name]),
        }
        while not game.ended:
            mover = game.agent_selection
            game.step(players[mover].act(make_view(game, mover, game.turns)))
            left += [players[seat].belief] if mover == seat else []
        assert all(later & earlier == later != 0 for earlier, later in itertools.pairwise(left))
        narrowed += left[-1] != players[seat].all_minds
    assert narrowed > 40


def test_exploiter_of_random_stops_when_waiting_is_worth_less():
    for pool, (own, _) in instances()[::700]:
        replies = len(list_shares(pool)) + 2
        chance = functools.partial(RandomExploiter().expected_gain, pool, own)
        assert chance(1) == 0 and chance(2) == pytest.approx(10 / replies)
        by_hand = (10 + sum(worth(own, remainder(pool, share)) for share in list_shares(pool))) / replies
        assert chance(3) == pytest.approx(by_hand)  # with one turn left it takes what it is offered
        assert all(chance(n) <= chance(n + 1) <= 10 for n in range(1, 12))


@pytest.mark.slow
def test_an_exploiter_survives_a_stranger_and_a_start_in_the_middle():
    for name, seed in itertools.product(ASPIRATIONS, range(40)):
        for prey in SCRIPTED:
            game = Negotiation()
            game.reset(seed=seed)
            game.step("OFFER 1 1 0")
            game.step("OFFER 0 0 0")
            game.step("OFFER 0 1 1")
            play_match(game, {"opener": SCRIPTED[prey](seed), "responder": AspirationExploiter(ASPIRATIONS[name])})
