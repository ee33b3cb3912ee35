"""Best responses in `negotiation`: by hand, by exhaustive search through the game, and compared with theory."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.players.scripted import make_scripted
from games.contracts import View
from games.families import bargaining
from games.families.bargaining import subgame_perfect
from games.families.pools import frontier, instances
from games.negotiation import Negotiation

PANEL = ("subgame_perfect", "nash_bargaining", "conceder", "hard_liner", "fair_split", "naive")
SMALL = [instance for instance in instances() if math.prod(count + 1 for count in instance[0]) <= 18]


def search_best_response(game, seat, script):
    """Compute the best response value by trying every act in copies of the game. Breakdowns enter by their
    probability."""
    if game.ended:
        return game.payoffs()[seat]
    mover = game.agent_selection
    if mover == seat:
        return max(value_after_act(game, act, seat, script) for act in game.legal(seat))
    info = game.infos[mover]
    view = View(mover, game.turns, (), info["rules"], info["public"], info["private"], None)
    return sum(p * value_after_act(game, act, seat, script) for act, p in script.chances(view).items() if p)


def value_after_act(game, act, seat, script):
    """Return the best response value after this act."""
    risk = game.breakdown if game.turns and act.startswith("OFFER") else 0.0
    copy = game.clone()
    copy.step(act)
    return (1 - risk) * search_best_response(copy, seat, script)


def make_chances(name, seed, game):
    """Return the scripted policy's function from views to act probabilities."""
    script: Any = make_scripted(name, seed, game)
    return script.chances


@pytest.mark.slow
@given(
    st.sampled_from(SMALL), st.sampled_from(PANEL), st.sampled_from(Negotiation.seats),
    st.integers(1, 3), st.sampled_from([0.0, 0.2]),
)  # fmt: skip
def test_best_response_matches_exhaustive_search(instance, name, seat, turns, breakdown):
    game = Negotiation(values="public", max_turns=turns, breakdown=breakdown)
    game.reset(seed=0, options={"instance": instance, "breaks_at": 0} if breakdown else {"instance": instance})
    script = make_scripted(name, 0, game)
    assert game.best_response(seat, make_chances(name, 0, game)) == pytest.approx(
        search_best_response(game, seat, script)
    )


def test_best_response_by_hand():
    """Pool 1 2 3, all worth 10: 4 0 2 to the opener, 1 3 1 to the responder; four turns, talks break down by .2.

    A hard liner accepts 8 or more. To get 8 of 10, the responder needs at least hats (6) and two balls (2). The opener
    keeps a book and a ball, 6. Waiting brings nothing, as the hard liner never concedes.
    As the responder: the hard liner asks for at least 8, the book and two balls, 4 + 2 * 2. Accepting leaves two hats
    and a ball, 3 * 2 + 1 = 7. Nothing that leaves it 8 is worth more than 7.
    A fair splitter accepts 5: hats (6) for the responder leave the opener everything else, 4 + 6 = 10.
    """
    game = Negotiation(values="public", max_turns=4, breakdown=0.2)
    game.reset(seed=0, options={"instance": ((1, 2, 3), ((4, 0, 2), (1, 3, 1)))})
    assert game.best_response("opener", make_chances("hard_liner", 0, game)) == 6.0
    assert game.best_response("responder", make_chances("hard_liner", 0, game)) == 7.0
    assert game.best_response("opener", make_chances("fair_split", 0, game)) == 10.0


@pytest.mark.parametrize(("turns", "breakdown"), [(2, 0.0), (4, 0.2), (5, 0.1)])
def test_best_response_to_subgame_perfect_play_is_the_equilibrium(turns, breakdown):
    for seed in range(40):
        game = Negotiation(values="public", max_turns=turns, breakdown=breakdown)
        game.reset(seed=seed)
        chances = make_chances("subgame_perfect", 0, game)
        deals = frontier(game.pool, *game.values.values())
        first, second = subgame_perfect(deals, turns, breakdown)[0].offer
        assert game.best_response("opener", chances) == pytest.approx(first)
        assert game.best_response("responder", chances) == pytest.approx(second)


def test_best_response_leaves_the_game_unchanged():
    game = Negotiation(values="public")
    game.reset(seed=3)
    assert game.rng
    before = (game.public(), game.turns, game.rng.bit_generator.state)
    game.best_response("opener", make_chances("naive", 0, game))
    assert (game.public(), game.turns, game.rng.bit_generator.state) == before


def test_only_memoryless_players_report_act_probabilities():
    from agents.player import Chances
    from games.abilities import BestResponse

    game = Negotiation(values="public")
    game.reset(seed=0)
    assert isinstance(game, BestResponse)
    assert all(isinstance(make_scripted(name, 0, game), Chances) for name in PANEL)
    assert not isinstance(make_scripted("exploiter:fair_split", 0, Negotiation()), Chances)


# -- against a mixture of policies --------------------------------------------------------------------------


def search_mixture_response(game: Negotiation, seat: str, scripts: list[Any], weights: list[float]) -> float:
    """Compute the best response value against a mixture by trying every act in copies of the game.

    Each policy is weighted by its unnormalised likelihood of the acts so far.
    """
    if game.ended:
        return sum(weights) * game.payoffs()[seat]
    if game.agent_selection == seat:
        return max(mixture_value_after_act(game, act, seat, scripts, weights) for act in game.legal(seat))
    view = View.of(game, game.agent_selection, game.turns)
    weights_by_act: dict[str, list[float]] = {}
    for n, script in enumerate(scripts):
        for act, p in script.chances(view).items():
            weights_by_act.setdefault(act, [0.0] * len(scripts))[n] = p * weights[n]
    return sum(
        mixture_value_after_act(game, act, seat, scripts, act_weights)
        for act, act_weights in weights_by_act.items()
        if any(act_weights)
    )


def mixture_value_after_act(game: Negotiation, act: str, seat: str, scripts: list[Any], weights: list[float]) -> float:
    risk = game.breakdown if game.turns and act.startswith("OFFER") else 0.0
    copy = game.clone()
    copy.step(act)
    return (1 - risk) * search_mixture_response(copy, seat, scripts, weights)


def compute_expected_payoff(game: Negotiation, seat: str, own: Any, other: Any) -> float:
    """Return the exact expected payoff of one scripted policy against another."""
    if game.ended:
        return game.payoffs()[seat]
    mover, total = game.agent_selection, 0.0
    for act, p in (own if mover == seat else other).chances(View.of(game, mover, game.turns)).items():
        if p:
            copy, risk = game.clone(), game.breakdown if game.turns and act.startswith("OFFER") else 0.0
            copy.step(act)
            total += p * (1 - risk) * compute_expected_payoff(copy, seat, own, other)
    return total


def best_against(game: Negotiation, seat: str, names: tuple[str, ...]) -> float:
    return game.best_against_mixture(seat, [make_chances(name, 0, game) for name in names])


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(SMALL), st.lists(st.sampled_from(PANEL), min_size=1, max_size=6, unique=True),
    st.sampled_from(Negotiation.seats), st.integers(1, 3), st.sampled_from([0.0, 0.2]),
)  # fmt: skip
def test_mixture_response_matches_exhaustive_search(instance, names, seat, turns, breakdown):
    game = Negotiation(values="public", splits="shown", max_turns=turns, breakdown=breakdown)
    game.reset(seed=0, options={"instance": instance, "breaks_at": 0} if breakdown else {"instance": instance})
    scripts = [make_scripted(name, 0, game) for name in names]
    best_value = search_mixture_response(game, seat, scripts, [1 / len(names)] * len(names))
    assert best_against(game, seat, tuple(names)) == pytest.approx(best_value)
    if len(names) == 1:
        assert best_against(game, seat, tuple(names)) == game.best_response(seat, make_chances(names[0], 0, game))


@pytest.mark.slow
@pytest.mark.parametrize("seat", Negotiation.seats)
def test_mixture_response_matches_exhaustive_search_over_four_turns(seat):
    """With four turns, the opener learns from an answer before its next offer."""
    game = Negotiation(values="public", splits="shown", max_turns=4, breakdown=0.2)
    game.reset(seed=0, options={"instance": ((1, 1, 3), ((4, 0, 2), (1, 3, 2))), "breaks_at": 0})
    scripts = [make_scripted(name, 0, game) for name in PANEL]
    assert best_against(game, seat, PANEL) == pytest.approx(search_mixture_response(game, seat, scripts, [1 / 6] * 6))


def test_mixture_response_by_hand():
    """The deal above against a hard liner (accepts 8 or more) or a fair splitter (5 or more), with equal probability.

    With two turns, the opener has one offer. Only the fair splitter accepts all but the hats, 10: 10 / 2 = 5. Both
    accept a book and a ball, 6. So the value is 6; knowing the opponent it would be (6 + 10) / 2 = 8.
    With four turns, it first asks for all but the hats: 10 from the fair splitter. A refusal reveals the hard liner,
    whose demand leaves 6 if the talks go on (.8): 10 / 2 + .8 * 6 / 2 = 7.4.
    The first demand, 8 or 6 of 10, reveals the opponent to the responder, which gets 7 or 8.
    """
    both = "hard_liner", "fair_split"
    for turns, opener in (2, 6.0), (4, 7.4):
        game = Negotiation(values="public", max_turns=turns, breakdown=0.2)
        game.reset(seed=0, options={"instance": ((1, 2, 3), ((4, 0, 2), (1, 3, 1)))})
        assert best_against(game, "opener", both) == pytest.approx(opener)
        assert best_against(game, "responder", both) == pytest.approx(7.5)
        assert best_against(game, "opener", both) == best_against(game, "opener", both[::-1])


@pytest.mark.slow
def test_mixture_response_lies_between_member_and_informed_values():
    strictly_between = 0
    for seed in range(6):
        game = Negotiation(values="public", splits="shown", max_turns=4, breakdown=0.2)
        game.reset(seed=seed)
        game.breaks_at = 0
        scripts: dict[str, Any] = {name: make_scripted(name, 0, game) for name in PANEL}
        for seat in game.seats:
            best_value = best_against(game, seat, PANEL)
            informed_value = sum(game.best_response(seat, script.chances) for script in scripts.values()) / 6
            payoffs = [
                sum(compute_expected_payoff(game, seat, own, other) for other in scripts.values()) / 6
                for own in scripts.values()
            ]
            assert max(payoffs) - 1e-9 <= best_value <= informed_value + 1e-9
            strictly_between += max(payoffs) + 0.01 < best_value < informed_value - 0.01
    assert strictly_between > 2, "the bounds are never strict"


def test_mixture_response_is_nan_with_too_many_beliefs(monkeypatch):
    monkeypatch.setattr(bargaining, "MAX_BELIEFS", 3)
    game = Negotiation(values="public", max_turns=6, breakdown=0.2)
    game.reset(seed=0)
    assert math.isnan(best_against(game, "opener", PANEL))
    assert math.isfinite(best_against(game, "responder", ("hard_liner",)))
