"""Overcooked-AI's kitchens: simultaneous acts, the library's points, copies, and the greedy cook."""

import random
from typing import Any

import pytest

import games
from games.adapters.overcooked import ACTS, FACING, Overcooked
from games.conformance.kit import check
from games.contracts import View

pytest.importorskip("overcooked_ai_py.static")
ROOM = "overcooked:cramped_room"


def start_game(name: str = ROOM, seed: int = 0, **options: Any) -> Overcooked:
    game = games.make(name, **options)
    assert isinstance(game, Overcooked)
    game.reset(seed=seed)
    return game


def play_with(game: Overcooked, first: str, second: str = "noop") -> Overcooked:
    acts = [game.players[name](game, seed) for seed, name in enumerate((first, second))]
    while not game.ended:
        seat = game.agent_selection
        game.step(acts[game.seats.index(seat)](View.of(game, seat, game.turns)))
    return game


@pytest.mark.parametrize("start", ["layout", "random"])
def test_kitchens_pass_the_conformance_kit(start: str) -> None:
    findings = check(lambda: games.make(ROOM, horizon=25, start=start), seeds=2, acts=300)
    unchecked = {} if start == "layout" else {"secrets": None}
    assert {finding.name: finding.ok for finding in findings if not finding.ok} == unchecked, findings


def test_acts_are_simultaneous_and_hidden_until_then() -> None:
    game = start_game()
    before = game.public()
    game.step("north")
    assert game.public() == before and game.agent_selection == "cook_2" and game.messages("cook_2") == ()
    game.step("WEST")
    assert game.public()["cooks"] == "cook_1 at 1,1 facing north; cook_2 at 2,1 facing west"
    assert game.public()["steps_left"] == 399
    assert game.public()["kitchen"] == "X X P X X\nO 1 2 . O\nX . . . X\nX D X S X"


def test_soup_made_by_hand_pays_both_cooks() -> None:
    game = start_game(pays=["soup", "shaped"])
    fetch = ["west", "interact", "east", "north", "interact", "west"]  # from 1,1: an onion, then into the pot at 2,0
    for act in ["north", *fetch, *fetch, *fetch[:-1]]:
        game.step(act)
        game.step("stay")
    assert game.public()["pots"] == "2,0: soup of 3 onions, not cooking" and not game.cooperative
    assert game._totals["cook_1"] == {"shaped": 9.0} and game._totals["cook_2"] == {}
    serve_steps = ["interact", "west", "south", "south", "interact", "east", "north", "north"]
    for act in [*serve_steps, *["stay"] * 13, "interact"]:
        game.step(act)
        game.step("stay")
    assert "holding soup of 3 onions, ready" in game.public()["cooks"]
    for act in ["south", "east", "south", "interact"]:
        game.step(act)
        game.step("stay")
    assert game.points == 20 and game._totals["cook_1"] == {"shaped": 17.0, "soup": 20.0}
    assert game._totals["cook_2"] == {"soup": 20.0} and game.messages("cook_2")[-1].text == "cook_1 served a soup."


def test_points_match_the_library_for_interleaved_kitchens(monkeypatch: Any) -> None:
    import numpy as np

    monkeypatch.setattr(np, "Inf", np.inf, raising=False)  # the library's environment class is older than numpy 2
    from overcooked_ai_py.mdp.overcooked_env import OvercookedEnv
    from overcooked_ai_py.mdp.overcooked_mdp import OvercookedGridworld

    our_games = [
        start_game(name, horizon=600) for name in ("overcooked:counter_circuit", ROOM, "overcooked:tutorial_3")
    ]
    expected, generators = [], [[random.Random(7 * n + seat) for seat in (0, 1)] for n in range(3)]
    for _ in range(600):  # three kitchens with different recipes, interleaved
        for game, chances in zip(our_games, generators, strict=True):
            for chance in chances:
                game.step(chance.choice([*ACTS, "interact", "interact"]))
    for n, name in enumerate(("counter_circuit", "cramped_room", "tutorial_3")):
        env = OvercookedEnv.from_mdp(OvercookedGridworld.from_layout_name(name), horizon=600, info_level=0)
        env._mp, info, done = object(), {}, False  # skip motion planning, which is unused here
        chances = [random.Random(7 * n + seat) for seat in (0, 1)]
        while not done:
            _, _, done, info = env.step(
                tuple(ACTS[chance.choice([*ACTS, "interact", "interact"])] for chance in chances)
            )
        expected.append((info["episode"]["ep_sparse_r"], list(info["episode"]["ep_shaped_r_by_agent"])))
        assert str(our_games[n].env.players) == str(env.state.players), name
    assert [(game.report()["points"], list(game.shaped.values())) for game in our_games] == expected
    assert any(sum(shaped) for _, shaped in expected), "no cook earned anything"


def test_expert_serves_soups_and_noop_serves_none() -> None:
    report: Any = play_with(start_game(horizon=200), "expert", "expert").report()
    assert report["points"] >= 60 and report["soups"] == report["points"] / 20 and not report["faults"]
    solo_report: Any = play_with(start_game(horizon=200), "expert").report()
    assert (
        0 < solo_report["points"] < report["points"]
        and play_with(start_game(horizon=20), "noop").payoffs()["cook_1"] == 0
    )


def test_cook_plans_as_the_librarys_greedy_model(monkeypatch: Any) -> None:
    import numpy as np

    monkeypatch.setattr(np, "Inf", np.inf, raising=False)
    from overcooked_ai_py.agents.agent import GreedyHumanModel
    from overcooked_ai_py.planning.planners import NO_COUNTERS_PARAMS, MediumLevelActionManager

    game = start_game(horizon=100)
    library_cook = GreedyHumanModel(
        MediumLevelActionManager(games.adapters.overcooked.load_kitchen("cramped_room"), NO_COUNTERS_PARAMS),
        auto_unstuck=False,
    )
    our_cooks: list[Any] = [game.players["expert"](game, seed) for seed in (0, 1)]
    for cook in our_cooks:
        cook._cook.auto_unstuck = False
    while not game.ended:
        seat = game.seats.index(game.agent_selection)
        act = our_cooks[seat](View.of(game, game.agent_selection, game.turns))
        library_cook.set_agent_index(seat)
        with game._set_recipes():
            assert FACING[library_cook.action(game.env)[0]] == act
        game.step(act)


def test_clone_is_independent_and_keeps_the_pending_act() -> None:
    game = start_game(horizon=30)
    game.step("east")
    twin = game.clone()
    twin.step("stay")
    assert game.public()["steps_left"] == 30 and twin.public()["steps_left"] == 29
    game.step("stay")
    assert game.public() == twin.public() and game.situation("cook_1") == twin.situation("cook_1")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("overcooked:cramped_rom", {}, "did you mean 'cramped_room'?"),
        ("overcooked:../x", {}, "has no kitchen '../x'"),
        (ROOM, {"horizon": 0}, "horizon must be"),
        (ROOM, {"pays": ["soups"]}, "pays must be"),
        (ROOM, {"cook_time": 3}, "has no option 'cook_time'"),
    ],
)
def test_unknown_kitchen_or_option_is_refused_in_one_line(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as refused:
        games.make(name, **options)
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_expert_refuses_kitchens_it_cannot_play() -> None:
    game = start_game("overcooked:tutorial_3")
    with pytest.raises(ValueError, match="only order is three onions"):
        game.players["expert"](game, 0)
