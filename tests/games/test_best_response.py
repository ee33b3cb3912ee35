"""What best play earns in `negotiation`: by hand, by walking through the game itself, and beside theory."""

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


def walked(game, seat, script):
    """The same by going through every act of both sides in copies of the game; talks break down in none of them, and
    what that costs is counted instead."""
    if game.ended:
        return game.payoffs()[seat]
    mover = game.agent_selection
    if mover == seat:
        return max(after(game, act, seat, script) for act in game.legal(seat))
    info = game.infos[mover]
    view = View(mover, game.turns, (), info["rules"], info["public"], info["private"], None)
    return sum(p * after(game, act, seat, script) for act, p in script.chances(view).items() if p)


def after(game, act, seat, script):
    """What is to be had once this act was made."""
    risk = game.breakdown if game.turns and act.startswith("OFFER") else 0.0
    copy = game.clone()
    copy.step(act)
    return (1 - risk) * walked(copy, seat, script)


def chances_of(name, seed, game):
    """With which chances a bargainer acts, by view."""
    script: Any = make_scripted(name, seed, game)
    return script.chances


@pytest.mark.slow
@given(
    st.sampled_from(SMALL), st.sampled_from(PANEL), st.sampled_from(Negotiation.seats),
    st.integers(1, 3), st.sampled_from([0.0, 0.2]),
)  # fmt: skip
def test_it_is_the_most_that_any_acts_of_the_game_come_to(instance, name, seat, turns, breakdown):
    game = Negotiation(values="public", max_turns=turns, breakdown=breakdown)
    game.reset(seed=0, options={"instance": instance, "breaks_at": 0} if breakdown else {"instance": instance})
    script = make_scripted(name, 0, game)
    assert game.best_response(seat, chances_of(name, 0, game)) == pytest.approx(walked(game, seat, script))


def test_by_hand():
    """Pool 1 2 3, all worth 10: 4 0 2 to the opener, 1 3 1 to the responder; four turns, talks break down by .2.

    A hard liner accepts 8 or more. To get 8 of 10 the responder needs at least hats (6) and two balls (2): the opener
    is left a book and a ball, 6. To wait brings nothing, as the hard liner never comes down.
    As the responder: the hard liner asks for at least 8, the book and two balls, 4 + 2 * 2. Accepting leaves two hats
    and a ball, 3 * 2 + 1 = 7. Nothing that leaves it 8 is worth more than 7.
    A fair splitter accepts 5: hats (6) for the responder leave the opener everything else, 4 + 6 = 10.
    """
    game = Negotiation(values="public", max_turns=4, breakdown=0.2)
    game.reset(seed=0, options={"instance": ((1, 2, 3), ((4, 0, 2), (1, 3, 1)))})
    assert game.best_response("opener", chances_of("hard_liner", 0, game)) == 6.0
    assert game.best_response("responder", chances_of("hard_liner", 0, game)) == 7.0
    assert game.best_response("opener", chances_of("fair_split", 0, game)) == 10.0


@pytest.mark.parametrize(("turns", "breakdown"), [(2, 0.0), (4, 0.2), (5, 0.1)])
def test_against_subgame_perfect_play_it_is_the_equilibrium(turns, breakdown):
    for seed in range(40):
        game = Negotiation(values="public", max_turns=turns, breakdown=breakdown)
        game.reset(seed=seed)
        chances = chances_of("subgame_perfect", 0, game)
        deals = frontier(game.pool, *game.values.values())
        first, second = subgame_perfect(deals, turns, breakdown)[0].offer
        assert game.best_response("opener", chances) == pytest.approx(first)
        assert game.best_response("responder", chances) == pytest.approx(second)


def test_it_leaves_the_game_as_it_is():
    game = Negotiation(values="public")
    game.reset(seed=3)
    assert game.rng
    before = (game.public(), game.turns, game.rng.bit_generator.state)
    game.best_response("opener", chances_of("naive", 0, game))
    assert (game.public(), game.turns, game.rng.bit_generator.state) == before


def test_a_game_knows_it_and_a_brain_with_a_memory_does_not_say_its_chances():
    from agents.player import Chances
    from games.abilities import BestResponse

    game = Negotiation(values="public")
    game.reset(seed=0)
    assert isinstance(game, BestResponse)
    assert all(isinstance(make_scripted(name, 0, game), Chances) for name in PANEL)
    assert not isinstance(make_scripted("exploiter:fair_split", 0, Negotiation()), Chances)


# -- against one of several ---------------------------------------------------------------------------------


def walked_among(game: Negotiation, seat: str, scripts: list[Any], weights: list[float]) -> float:
    """Sum over members, each weighed by how likely it is to be the one who acted as it did so far.

    By going through every act of the game in copies; nothing is normalised, and nothing is kept.
    """
    if game.ended:
        return sum(weights) * game.payoffs()[seat]
    if game.agent_selection == seat:
        return max(after_among(game, act, seat, scripts, weights) for act in game.legal(seat))
    view = View.of(game, game.agent_selection, game.turns)
    likely: dict[str, list[float]] = {}
    for n, script in enumerate(scripts):
        for act, p in script.chances(view).items():
            likely.setdefault(act, [0.0] * len(scripts))[n] = p * weights[n]
    return sum(after_among(game, act, seat, scripts, found) for act, found in likely.items() if any(found))


def after_among(game: Negotiation, act: str, seat: str, scripts: list[Any], weights: list[float]) -> float:
    risk = game.breakdown if game.turns and act.startswith("OFFER") else 0.0
    copy = game.clone()
    copy.step(act)
    return (1 - risk) * walked_among(copy, seat, scripts, weights)


def played(game: Negotiation, seat: str, own: Any, other: Any) -> float:
    """What a scripted policy earns from another one on average, exactly."""
    if game.ended:
        return game.payoffs()[seat]
    mover, total = game.agent_selection, 0.0
    for act, p in (own if mover == seat else other).chances(View.of(game, mover, game.turns)).items():
        if p:
            copy, risk = game.clone(), game.breakdown if game.turns and act.startswith("OFFER") else 0.0
            copy.step(act)
            total += p * (1 - risk) * played(copy, seat, own, other)
    return total


def among(game: Negotiation, seat: str, names: tuple[str, ...]) -> float:
    return game.best_against_mixture(seat, [chances_of(name, 0, game) for name in names])


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(SMALL), st.lists(st.sampled_from(PANEL), min_size=1, max_size=6, unique=True),
    st.sampled_from(Negotiation.seats), st.integers(1, 3), st.sampled_from([0.0, 0.2]),
)  # fmt: skip
def test_unknown_it_is_the_most_that_any_acts_come_to(instance, names, seat, turns, breakdown):
    game = Negotiation(values="public", splits="shown", max_turns=turns, breakdown=breakdown)
    game.reset(seed=0, options={"instance": instance, "breaks_at": 0} if breakdown else {"instance": instance})
    scripts = [make_scripted(name, 0, game) for name in names]
    most = walked_among(game, seat, scripts, [1 / len(names)] * len(names))
    assert among(game, seat, tuple(names)) == pytest.approx(most)
    if len(names) == 1:
        assert among(game, seat, tuple(names)) == game.best_response(seat, chances_of(names[0], 0, game))


@pytest.mark.slow
@pytest.mark.parametrize("seat", Negotiation.seats)
def test_of_four_turns_a_whole_deal_is_walked_through(seat):
    """Where the opener learns from an answer before it asks again."""
    game = Negotiation(values="public", splits="shown", max_turns=4, breakdown=0.2)
    game.reset(seed=0, options={"instance": ((1, 1, 3), ((4, 0, 2), (1, 3, 2))), "breaks_at": 0})
    scripts = [make_scripted(name, 0, game) for name in PANEL]
    assert among(game, seat, PANEL) == pytest.approx(walked_among(game, seat, scripts, [1 / 6] * 6))


def test_unknown_by_hand():
    """The deal above; the other side is a hard liner (takes 8 or more) or a fair splitter (5 or more), as a coin says.

    With two turns the opener has one offer. All but the hats, 10, is taken by the fair splitter alone: 10 / 2 = 5. A
    book and a ball, 6, is taken by both. So 6, where knowing whom it meets would be worth (6 + 10) / 2 = 8.
    With four turns it asks for all but the hats first: 10 of the fair splitter. Who refuses is the hard liner, whose
    demand leaves 6, if the talks go on (.8): 10 / 2 + .8 * 6 / 2 = 7.4.
    The responder sees by the first demand whom it meets, 8 or 6 of 10: it takes 7 of the one, 8 of the other.
    """
    both = "hard_liner", "fair_split"
    for turns, opener in (2, 6.0), (4, 7.4):
        game = Negotiation(values="public", max_turns=turns, breakdown=0.2)
        game.reset(seed=0, options={"instance": ((1, 2, 3), ((4, 0, 2), (1, 3, 1)))})
        assert among(game, "opener", both) == pytest.approx(opener)
        assert among(game, "responder", both) == pytest.approx(7.5)
        assert among(game, "opener", both) == among(game, "opener", both[::-1])


@pytest.mark.slow
def test_it_is_more_than_any_member_earns_and_less_than_who_knows_whom_it_meets():
    strict = 0
    for seed in range(6):
        game = Negotiation(values="public", splits="shown", max_turns=4, breakdown=0.2)
        game.reset(seed=seed)
        game.breaks_at = 0
        scripts: dict[str, Any] = {name: make_scripted(name, 0, game) for name in PANEL}
        for seat in game.seats:
            most = among(game, seat, PANEL)
            known = sum(game.best_response(seat, script.chances) for script in scripts.values()) / 6
            earned = [sum(played(game, seat, own, other) for other in scripts.values()) / 6 for own in scripts.values()]
            assert max(earned) - 1e-9 <= most <= known + 1e-9
            strict += max(earned) + 0.01 < most < known - 0.01
    assert strict > 2, "else the bound would say nothing"


def test_it_is_given_up_where_there_is_too_much_to_believe(monkeypatch):
    monkeypatch.setattr(bargaining, "MOST_BELIEFS", 3)
    game = Negotiation(values="public", max_turns=6, breakdown=0.2)
    game.reset(seed=0)
    assert math.isnan(among(game, "opener", PANEL))
    assert math.isfinite(among(game, "responder", ("hard_liner",)))
