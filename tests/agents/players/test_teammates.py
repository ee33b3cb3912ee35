"""Scripted Hanabi players: they follow the rules, use only their hints, and play as documented."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import games
from agents.players.teammates import GAMES, SCRIPTED, bold_teammate, sure_teammate, trusting_teammate
from games.contracts import View

SIZES = [("mini", 2), ("simple", 2), ("full", 2), ("full", 5)]


def play_match(names: list[str], seed: int, size: str = "mini", players: int = 2) -> dict[str, Any]:
    """Play a match of these policies in turn, assert that acts are legal, and return its report."""
    game = games.make("hanabi", size=size, players=players)
    game.reset(seed=seed)
    scripts = {seat: SCRIPTED[names[n % len(names)]](0) for n, seat in enumerate(game.possible_agents)}
    while not game.ended:
        seat = game.agent_selection
        game.step(scripts[seat].act(copy.deepcopy(View.of(game, seat, game.turns))))
        assert game.infos[seat]["valid"]
    return dict(game.report())


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(SIZES), st.lists(st.sampled_from(sorted(SCRIPTED)), min_size=2, max_size=5), st.integers(0, 999))
def test_all_acts_are_legal_in_every_size(size: tuple[str, int], names: list[str], seed: int) -> None:
    assert SCRIPTED.keys() == GAMES.keys()
    assert play_match(names, seed, *size)["score"] >= 0


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(SIZES), st.integers(0, 999))
def test_certain_player_loses_no_life(size: tuple[str, int], seed: int) -> None:
    report = play_match(["sure_teammate"], seed, *size)
    assert report["lives"] == 3 and report["score"] > 0


def test_bold_player_keeps_its_last_life() -> None:
    reports = [play_match(["bold_teammate"], seed) for seed in range(40)]
    assert min(report["lives"] for report in reports) == 1


def make_view(
    own: list[str], partner: dict[str, str], fireworks: str = "R0 Y0", lives: int = 3, hints: int = 3
) -> View:
    """Return player_0's view: the hints on its cards, and the partner's cards with their hints."""
    game = games.make("hanabi")
    game.reset(seed=0)
    known = {"player_0": own, "player_1": [*partner.values()]}
    public = {"fireworks": fireworks, "hints": hints, "lives": lives, "deck": 2, "discards": [], "known": known}
    hands = {"hands": {"player_1": [card[:2] for card in partner]}}
    discards = [f"DISCARD {n}" for n in (1, 2, 3)] if hints < 3 else []
    hint_texts = [f"HINT {what}" for what in ("RED", "YELLOW", "1", "2")] if hints else []
    return View("player_0", 0, (), "", public, hands, (*discards, "PLAY 1", "PLAY 2", "PLAY 3", *hint_texts))


NEW = {"R1": "?", "Y2": "?", "Y2 too": "?"}


@pytest.mark.parametrize(
    ("rule", "seen", "act"),
    [
        # At the beginning every 1 fits, whatever its colour; a red card may be a 2.
        (sure_teammate, make_view(["?", "RY1", "R12"], NEW), "PLAY 2"),
        # With red begun a 1 may be of no use: it makes the other sure of its R2 instead, for which both colour and
        # rank are needed, and one is known.
        (sure_teammate, make_view(["?", "RY1", "?"], {"Y2": "?", "R2": "R12", "R1": "?"}, "R1 Y0"), "HINT 2"),
        # Nothing can be made sure: the first card of which nothing was told goes, or if none may go, a hint is spent.
        (
            sure_teammate,
            make_view(["RY1", "?", "?"], {"R1": "?", "R1 too": "?", "Y2": "?"}, "R1 Y0", hints=2),
            "DISCARD 2",
        ),
        (sure_teammate, make_view(["RY1", "?", "?"], {"R1": "?", "R1 too": "?", "Y2": "?"}, "R1 Y0"), "HINT RED"),
        # A red card was hinted at: it may be R1. A yellow one cannot fit once yellow is complete, and of the red 1
        # nothing makes sure at once.
        (trusting_teammate, make_view(["?", "R12", "?"], NEW), "PLAY 2"),
        (trusting_teammate, make_view(["?", "Y12", "?"], {"R1": "?", "Y2": "?", "Y1": "?"}, "R0 Y2"), "HINT RED"),
        (bold_teammate, make_view(["?", "?", "?"], NEW), "PLAY 1"),
        (bold_teammate, make_view(["Y12", "?", "?"], NEW, "R0 Y2"), "PLAY 2"),
        (bold_teammate, make_view(["?", "?", "?"], NEW, lives=1), "HINT 1"),
    ],
)
def test_acts_match_worked_examples(rule: Any, seen: View, act: str) -> None:
    assert rule(seen) == act
