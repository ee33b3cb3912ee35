"""MPE2's particle worlds in words: positions, colours, messages, copies, and observations of other lengths."""

from typing import Any

import pytest

import games
from games.adapters.mpe2_words import LAYOUTS, describe_vector
from games.adapters.pettingzoo import PettingZooGame
from games.conformance.kit import check

pytest.importorskip("mpe2")


def start_game(name: str, seed: int = 0, **options: Any) -> PettingZooGame:
    game = games.make(f"pettingzoo:mpe2.{name}", **options)
    assert isinstance(game, PettingZooGame)
    game.reset(seed=seed)
    return game


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_worlds_pass_the_conformance_kit(name: str) -> None:
    findings = check(lambda: games.make(f"pettingzoo:mpe2.{name}", max_cycles=6), seeds=2, acts=60)
    assert {finding.name: finding.ok for finding in findings if not finding.ok} == {"secrets": None}, findings


@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_every_observation_has_a_description(name: str) -> None:
    game = start_game(name)
    for _ in range(3 * len(game.seats)):
        seat = game.agent_selection
        assert game.private(seat) and "observation" not in game.private(seat)
        game.step(game.legal(seat)[-1])


def test_speaker_knows_the_goal_and_listener_hears_it() -> None:
    game = start_game("simple_speaker_listener_v4", seed=1)
    world = game.env.unwrapped.world
    goal = world.landmarks.index(world.agents[0].goal_b)
    assert game.private("speaker_0") == {"goal_of_listener": f"landmark_{goal}"}
    assert game.legal("speaker_0") == ["say 0", "say 1", "say 2"]
    game.step(f"say {goal}")
    assert game.legal("listener_0") == ["stay", "left", "right", "down", "up"]
    observation = game.private("listener_0")
    assert observation["heard"] == "nothing", "both act simultaneously"
    listener_position, landmark_position = world.agents[1].state.p_pos, world.landmarks[2].state.p_pos
    assert observation["landmark_2"] == describe_vector((landmark_position - listener_position).tolist())
    game.step("left")
    assert game.private("listener_0")["velocity"].startswith("left")
    game.step("say 0")
    assert game.private("listener_0")["heard"] == f"say {goal}"
    assert game.payoffs()["speaker_0"] == game.payoffs()["listener_0"] < 0


def test_moves_and_talk_form_one_act_where_agents_do_both() -> None:
    game = start_game("simple_reference_v3")
    assert len(game.legal("agent_0")) == 50
    world = game.env.unwrapped.world
    x = float(world.agents[0].state.p_pos[0])
    game.step("right, say 7")
    game.step("stay, say 0")
    assert game.private("agent_1")["heard"] == "say 7"
    game.step("stay, say 0")
    game.step("stay, say 0")
    assert float(world.agents[0].state.p_pos[0]) > x
    goal = world.landmarks.index(world.agents[0].goal_b)
    assert game.private("agent_0")["goal_of_other"] == f"landmark_{goal}"


def test_observation_of_unknown_length_is_shown_as_numbers() -> None:
    game = start_game("simple_spread_v3", num_landmark_neighbors=1)
    assert set(game.private("agent_0")) == {"observation"}


@pytest.mark.parametrize(
    ("vector", "words"), [([1.0, -0.25], "right 1.00, down 0.25"), ([-0.001, 2.0], "up 2.00"), ([0.0, 0.0], "none")]
)
def test_vectors_are_described_in_words(vector: list[float], words: str) -> None:
    assert describe_vector(vector) == words
