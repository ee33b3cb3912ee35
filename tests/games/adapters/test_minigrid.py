"""MiniGrid and BabyAI: views as text and picture, several acts a turn, the bot, and invalid options."""

from typing import Any

import numpy as np
import pytest

import games
from games.adapters.minigrid import MiniGrid
from games.adapters.minigrid_words import describe
from games.conformance.kit import check
from games.contracts import View
from games.pictures import decode_picture

minigrid = pytest.importorskip("minigrid")


def start_game(name: str = "babyai:GoToLocal-v0", seed: int = 3, **options: Any) -> MiniGrid:
    game = games.make(name, **options)
    assert isinstance(game, MiniGrid)
    game.reset(seed=seed)
    return game


def play_with(game: MiniGrid, player: str, seed: int) -> MiniGrid:
    game.reset(seed=seed)
    act, turn = game.players[player](game, seed), 0
    while not game.ended:
        game.step(act(View.of(game, "agent", turn)))
        turn += 1
    return game


@pytest.mark.parametrize(
    ("name", "options"),
    [("babyai:GoToLocal-v0", {"view": "both", "max_steps": 20}), ("minigrid:LavaGapS5-v0", {"max_steps": 20})],
)
def test_grid_worlds_pass_the_conformance_kit(name: str, options: dict[str, Any]) -> None:
    assert [f for f in check(lambda: games.make(name, **options), seeds=1, acts=60) if f.ok is False] == []


def test_picture_shows_the_view_and_text_does_not() -> None:
    game = start_game(view="picture")
    (message,) = game.messages("agent")
    (image,) = message.images
    assert message.parts == (image,) and (image.width, image.height) == (56, 56)
    pixels = np.asarray(decode_picture(game.picture(image.hash)))
    assert (pixels == game.env.get_pov_render(8)).all()
    assert game.public() == {"mission": game.env.mission, "steps_left": 64} and game.private("agent") == {}
    with pytest.raises(KeyError):
        game.picture("0" * 64)


def test_equal_seeds_give_equal_pictures_and_cells_behind_walls_are_not_drawn() -> None:
    hashes = {start_game(seed=4, view="picture").messages("agent")[0].images[0].hash for _ in range(2)}
    assert len(hashes) == 1
    game = start_game("minigrid:DoorKey-6x6-v0", seed=1, view="picture")
    before = game.env.get_pov_render(8)
    hidden, (_, mask) = [], game.env.gen_obs_grid()
    for cell in np.ndindex(game.env.width, game.env.height):
        view_position = game.env.relative_coords(*cell)
        if view_position is None or not mask[view_position]:
            hidden.append(cell)
    for x, y in hidden:
        game.env.grid.set(x, y, minigrid.core.world_object.Ball("purple"))
    assert hidden and (game.env.get_pov_render(8) == before).all()


def test_acts_after_one_without_effect_are_skipped_and_reported() -> None:
    game = start_game("minigrid:Empty-5x5-v0", view="both")
    assert game.acts == 3 and tuple(game.env.agent_pos) == (1, 1)  # facing east
    game.step("forward, pickup left")
    assert tuple(game.env.agent_pos) == (2, 1) and game.env.agent_dir == 0 and game.env.step_count == 2
    assert game.messages("agent")[-1].text.startswith("pickup has no effect. Not done: left. You see: ")
    game.step("forward done forward")
    assert game.messages("agent")[-1].text.startswith("forward has no effect. You see: ")
    game.step("right")
    game.step("forward forward")
    assert game.ended == "solved" and game.report()["steps"] == 8
    assert game.payoffs() == {"agent": pytest.approx(1 - 0.9 * 8 / 100)}


def test_acts_after_the_end_within_a_turn_are_skipped() -> None:
    game = start_game("minigrid:Empty-5x5-v0", max_steps=1, acts=3)
    game.step("left right right")
    assert game.ended == "turns" and game.report()["steps"] == 1 and game.payoffs() == {"agent": 0.0}


@pytest.mark.parametrize("act", ["", "left left", "jump", "left|", "0", "ｌeft", "left " * 900])
def test_unknown_acts_are_illegal_and_change_nothing(act: str) -> None:
    game = start_game(view="text")
    before = game.situation("agent")
    game.step(act)
    assert game.infos["agent"]["valid"] is (act == "left|") and (game.situation("agent") == before) == (act != "left|")


def test_text_describes_objects_free_cells_and_inventory() -> None:
    cells = np.zeros((7, 7, 3), np.uint8)
    cells[:, :, 0] = 1  # empty
    cells[3, 2] = (5, 0, 0)  # red key, four ahead
    cells[1, 6] = (4, 2, 2)  # locked blue door, two left
    cells[4, 5] = (2, 5, 0)  # wall
    text = describe(cells, None)
    assert text == (
        "You see: locked blue door 2 left; red key 4 ahead. Free cells: 3 ahead, 1 left, 3 right. You carry: nothing."
    )


@pytest.mark.parametrize("level", ["GoToLocal-v0", "PickupLoc-v0", "UnlockLocal-v0"])
def test_expert_solves_levels_and_noop_solves_none(level: str) -> None:
    game = start_game(f"babyai:{level}")
    for seed in range(3):
        finished_game = play_with(game, "expert", seed)
        assert (
            finished_game.report()["solved"]
            and not finished_game.report()["faults"]
            and 0 < finished_game.payoffs()["agent"] <= 1
        )
    assert play_with(game, "noop", 0).payoffs() == {"agent": 0.0}


def test_failing_bot_does_nothing_and_counts_its_faults() -> None:
    report = play_with(start_game("babyai:KeyInBox-v0", max_steps=5), "expert", 1).report()
    assert not report["solved"] and float(report["faults"]) > 0
    assert "expert" not in games.make("minigrid:Empty-5x5-v0").players


def test_clone_is_independent() -> None:
    game = start_game(view="both")
    twin, before = game.clone(), game.situation("agent")
    twin.step("left")
    assert game.situation("agent") == before != twin.situation("agent")
    assert twin.picture(game.messages("agent")[0].images[0].hash)
    game.step("left")
    assert game.messages("agent") == twin.messages("agent")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("babyai:GoToLocl-v0", {}, "did you mean 'GoToLocal-v0'?"),
        ("minigrid:BabyAI-GoToLocal-v0", {}, "MiniGrid has no environment"),
        ("minigrid:Empty-5x5-v0", {"size": 10**9}, "size must be a whole number from 0 to 64"),
        ("minigrid:Empty-5x5-v0", {"size": 1}, "cannot make MiniGrid-Empty-5x5-v0: AssertionError"),
        ("minigrid:Empty-5x5-v0", {"depth": 1}, "unexpected keyword argument 'depth'"),
        ("minigrid:Empty-5x5-v0", {"view": "map"}, 'view must be "text" or "picture" or "both"'),
        ("minigrid:Empty-5x5-v0", {"max_steps": 0}, "max_steps must be a whole number from 1"),
    ],
)
def test_invalid_world_is_refused_in_one_line(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as refused:
        games.make(name, **options)
    assert message in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "options"),
    [("minigrid:Fetch-5x5-N2-v0", {"numObjs": 30}), ("babyai:GoToLocal-v0", {"num_dists": 60})],
)
def test_refuses_worlds_that_cannot_be_laid_out(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no level with these options") as error:
        games.make(name, **options)
    assert "\n" not in str(error.value)
