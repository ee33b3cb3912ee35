"""Grounding lessons of the visual worlds."""

import random

import pytest

import games
from games.abilities import GroundingLessons


@pytest.mark.parametrize("name", ["frames", "pages", "reach", "rooms", "rooms3d", "transform", "zoom"])
def test_refuses_unknown_lessons(name: str) -> None:
    game = games.make(name)
    assert isinstance(game, GroundingLessons)
    with pytest.raises(ValueError, match=f"no lesson 'x'; there are: {', '.join(game.lesson_kinds)}"):
        game.lesson(random.Random(0), "x")
