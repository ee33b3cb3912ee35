"""Scripted players of the game `frames`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from games.contracts import View
from simulators.base import Script, silent
from simulators.vision.clips import WINDOW, Clip
from simulators.vision.drawing import pick
from simulators.vision.frames_acts import format_clock


class Match(Protocol):
    """Attributes of a `frames` match that its players read."""

    clip: Clip
    chosen_intervals: list[tuple[int, int]]
    shown_frames: set[int]
    is_timed: bool
    is_looked_up: bool


GUESS = "output answer: 7"
QUARTERS = 4


def _make_oracle(game: Match, seed: int) -> Script:
    """Return a player that looks up an asked time, shows the event, and answers."""

    def act(view: View) -> str:
        event = game.clip.target_event
        if game.is_timed and not game.is_looked_up:
            return f"get frame number at time {format_clock(event.second)}"
        if not game.chosen_intervals:
            return f"choose frames between {event.start} and {event.start + WINDOW - 1}"
        return f"output answer: {event.digit}"

    return act


def _make_finder(game: Match, seed: int) -> Script:
    """Return a player that infers from shown frames when the lamp changes, in ever shorter intervals.

    If the question names a time, it plays as the oracle.
    """
    oracle = _make_oracle(game, seed)

    def act(view: View) -> str:
        if game.is_timed:
            return oracle(view)
        if any(map(game.clip.target_event.holds, game.shown_frames)):
            return oracle(view) if game.chosen_intervals else GUESS
        if view.public["turns_left"] == 1:
            return GUESS
        first, last = game.clip.find_gap(game.shown_frames)
        return f"choose frames between {first} and {last}"

    return act


def _make_uniform(game: Match, seed: int) -> Script:
    """Return a player that looks at 32 frames, evenly spread, and guesses if the event is not among them."""

    def act(view: View) -> str:
        quarters_seen = len(game.chosen_intervals)
        if quarters_seen == QUARTERS or view.public["turns_left"] == 1:
            is_seen = any(map(game.clip.target_event.holds, game.shown_frames))
            return f"output answer: {game.clip.target_event.digit}" if is_seen else GUESS
        first, last = (game.clip.length * part // QUARTERS for part in (quarters_seen, quarters_seen + 1))
        return f"choose frames between {first} and {last - 1}"

    return act


def _make_random(game: Match, seed: int) -> Script:
    """Return a player that chooses random frames, or none, before it says a random digit."""
    rng = np.random.default_rng([seed, 1])

    def act(view: View) -> str:
        if view.public["turns_left"] > 1 and rng.integers(2):
            first, last = sorted(rng.integers(view.public["frames"], size=2).tolist())
            return f"choose frames between {first} and {last}"
        return f"output answer: {rng.integers(10)}"

    return act


def _make_hasty(game: Match, seed: int) -> Script:
    """Return a player that chooses frames once, in short forms, and says a digit that it sees, or a random one.

    In half of its matches it is careful. In the others it does not look up times, and chooses an interval next to the
    one in which the lamp changes.
    """
    rng = np.random.default_rng([seed, 2])
    is_careful = bool(rng.integers(2))

    def act(view: View) -> str:
        clip = game.clip
        if game.chosen_intervals:
            seen_events = [
                event for event in (clip.target_event, *clip.events) if any(map(event.holds, game.shown_frames))
            ]
            return str(seen_events[0].digit if seen_events else rng.integers(10))
        if game.is_timed and is_careful:
            second = clip.target_event.second
            return f"frame {clip.frame_at(second)}" if game.is_looked_up else format_clock(second)
        edges = [0, *sorted(game.shown_frames), clip.length - 1]
        gap = edges.index(clip.find_gap(game.shown_frames)[0])
        if not is_careful:
            gap = pick(rng, [neighbour for neighbour in (gap - 1, gap + 1) if 0 <= neighbour < len(edges) - 1])
        return f"{edges[gap]} {edges[gap + 1]}"

    return act


PLAYERS: Mapping[str, Callable[[Match, int], Script]] = {
    "noop": silent,
    "random": _make_random,
    "oracle": _make_oracle,
    "blind": lambda game, seed: lambda view: GUESS,
    "finder": _make_finder,
    "uniform": _make_uniform,
    "hasty": _make_hasty,
}
"""`finder` reads the shown frames, `uniform` is a baseline that ignores the question, `hasty` a flawed demonstrator."""
