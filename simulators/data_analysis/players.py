"""Scripted players of data analysis: oracle, flawed, random, noop."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from games.contracts import TOOL, View
from simulators.base import Script
from simulators.data_analysis.questions import Question
from simulators.data_analysis.session import ERROR
from simulators.data_analysis.tables import Data, Kind


class Match(Protocol):
    """Attributes of a match that its players use."""

    question: Question
    data: Data
    kind: Kind


def _make_analyst(game: Match, seed: int, flawed: bool) -> Script:
    """Return a player that runs the right code (SQL if there is a database, else Python) and answers its result.

    With `flawed`, half of the time the code omits the last condition or computes another measure, and three times in
    ten the player first runs code that fails.
    """
    rng = np.random.default_rng([seed, 1])
    fails_next, is_wrong = flawed and rng.random() < 0.3, flawed and rng.random() < 0.5

    def act(view: View) -> str:
        nonlocal fails_next
        shown = [message.text for message in view.messages if message.sender == TOOL]
        if shown and not shown[-1].startswith(ERROR):
            return f"answer {_read_value(shown[-1])}"
        code = game.question.wrong_code if is_wrong else game.question.code
        text = f"sql {code.sql}" if code.sql and game.kind == "sqlite" else f"code\n{code.python}"
        is_broken, fails_next = fails_next, False
        return f"{text} )" if is_broken else text

    return act


def _read_value(text: str) -> str:
    """Return the only value in a result, which is JSON from SQL or text from Python."""
    try:
        return str(json.loads(text)["rows"][0][0])
    except (ValueError, KeyError, TypeError, IndexError):
        return text


def _make_random(game: Match, seed: int) -> Script:
    """Return a player that answers with a random label of a group column or a random integer below 10."""
    rng = np.random.default_rng([seed, 1])

    def act(view: View) -> str:
        labels = sorted({str(value) for column in game.data.groups for value in game.data.main.values(column)})
        return f"answer {rng.choice([*labels, *map(str, range(10))])}"

    return act


PLAYERS: Mapping[str, Callable[[Match, int], Script]] = {
    "noop": lambda game, seed: lambda view: "answer ?",
    "random": _make_random,
    "oracle": lambda game, seed: _make_analyst(game, seed, flawed=False),
    "flawed": lambda game, seed: _make_analyst(game, seed, flawed=True),
}
