"""Fuzz check: no act at any time breaks a game, and illegal acts pay no seat."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from games.abilities import SpielRules
from games.base import STAKE, TextGame
from games.conformance.random_acts import filled, garbage, legal_act, mutated
from games.contracts import ILLEGAL

LONGEST = 20_000
"""Legal acts after which a random match counts as endless."""
WILDNESS = (0.0, 0.02, 0.3)
"""Shares of possibly illegal acts, used by successive matches: some last long, others end early."""
Make = Callable[[], TextGame]


ENOUGH = 0.1
"""Smallest share of legal acts at which a check counts as conclusive."""


class Unchecked(Exception):
    """Raised if a promised property could not be tested. The message says why and what was examined nevertheless."""


class Broken(Exception):
    """Raised if the game breaks a promised property. The message says which, and how to reproduce it (seed and act)."""


def fuzz(make: Make, acts: int) -> str:
    """Play `acts` legal and illegal random acts, check the game after each, and return a summary in one line.

    Raises Broken for a broken promise, and Unchecked if fewer than a tenth of the acts were legal.
    """
    game, played, matches, illegal, groped = make(), 0, 0, 0, 0
    forms: dict[str, list[str]] = {}
    for seed in itertools.count():
        if played >= acts:
            break
        rng, wildness = random.Random(seed), WILDNESS[seed % len(WILDNESS)]
        game.reset(seed=seed)
        matches += 1
        while not game.ended and played < acts:
            where = f"seed {seed}, act {game.turns + 1} of the match"
            act, wild = _next_act(game, rng, wildness, forms)
            illegal += _step(game, act, wild, f"{where}, {act!r:.80}")
            played += 1
            groped += act == "" and wild
            if game.turns > LONGEST:
                raise Broken(f"seed {seed}: the match did not end in {LONGEST} acts")
        if game.ended:
            _settled(game, f"seed {seed}")
        if faults := game.faults:
            raise Broken(f"seed {seed}: the environment itself failed ({len(faults)} times): {faults[0]}")
    unfound = f"; {groped} times no legal act was found among guesses" if groped > played // 20 else ""
    told = f"{played} acts ({illegal} illegal) in {matches} matches{unfound}"
    if played - illegal < ENOUGH * played:
        raise Unchecked(f"hardly any act that was guessed was legal: {told}")
    return told


def _next_act(
    game: TextGame, rng: random.Random, wildness: float, forms: dict[str, list[str]]
) -> tuple[str | None, bool]:
    """Return a random act and whether it may be illegal (a share of `wildness` is).

    `forms` has the act forms that were legal before, by seat; unlisted acts mostly reuse one of them.
    """
    kind, seat = rng.random(), game.agent_selection
    if kind < wildness / 2:
        return garbage(rng), True
    if game.infos[seat]["legal"] is None and seat in forms and rng.random() < 0.95:
        return filled(rng.choice(forms[seat]), game, rng), True
    act = legal_act(game, rng, forms)
    if act is None:
        return "", True
    return (mutated(act, rng), True) if kind < wildness else (act, False)


def _step(game: TextGame, act: str | None, wild: bool, where: str) -> bool:
    """Play one act and check validity, rewards and, every 16 turns, views. Returns True if the act was illegal.

    `wild` says that the act may be illegal, and `where` names it in errors. Raises Broken for a violation.
    """
    seat = game.agent_selection
    try:
        game.step(act)
    except Exception as error:
        raise Broken(f"{where}: raised {error_line(error)}") from error
    valid = game.infos[seat]["valid"]
    if not valid and not wild:
        raise Broken(f"{where}: a legal act was refused: {_last_words(game, seat)}")
    for other in game.seats:
        reward = game.rewards[other]
        if not math.isfinite(reward) or abs(reward - sum(game.infos[other]["rewards"].values())) > 1e-9:
            raise Broken(f"{where}: {other}'s reward {reward} is not finite or not the sum of its parts")
        strangers = game.infos[other]["rewards"].keys() - {*game.reward_parts, ILLEGAL, STAKE}
        if game.reward_parts and strangers:
            raise Broken(f"{where}: {other} was paid '{min(strangers)}', which is not among the game's reward_parts")
        if not valid and (reward > 0 or (other == seat and reward > -game.penalty)):
            raise Broken(f"{where}: an illegal act of {seat} paid {other} {reward:g}")
    if game.turns % 16 == 0:
        for other in game.seats:
            plain([game.infos[other], game.public(), game.private(other)])
            if not game.observation_space(other).contains(game.observe(other)):
                raise Broken(f"{where}: what {other} observes is not in its observation space")
    return not valid


def _last_words(game: TextGame, seat: str) -> str:
    messages = game.messages(seat)
    return messages[-1].text if messages else "without a word"


def _settled(game: TextGame, where: str) -> None:
    """Raise Broken unless an ended match has JSON-able, finite payoffs within the stakes, with sum 0 if zero-sum."""
    payoffs, report = game.payoffs(), game.report()
    plain([payoffs, report])
    if set(payoffs) != set(game.seats) or not all(map(math.isfinite, payoffs.values())):
        raise Broken(f"{where}: the payoffs are not finite, or not one for each seat: {payoffs}")
    lost = report["ended"] == "illegal" and game.stake
    if _zero_sum(game) and not lost and abs(sum(payoffs.values())) > 1e-6:
        raise Broken(f"{where}: the game is zero-sum, but the payoffs are {payoffs}")
    if -min(payoffs.values()) > game.stakes + 1e-6 and _zero_sum(game) and not lost:
        raise Broken(f"{where}: {payoffs} is more than its stakes, {game.stakes:g}")


def _zero_sum(game: TextGame) -> bool:
    """Return True if OpenSpiel declares the rules zero-sum and no draw reward changes that."""
    return isinstance(game, SpielRules) and game.spiel.get_type().utility.name == "ZERO_SUM" and not game.draw


def error_line(error: BaseException) -> str:
    """Return an error's type and message with the innermost file and line, in one line of up to 400 characters."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" ({Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno})" if trace else ""
    return " ".join(f"{type(error).__name__}: {error}{where}".split())[:400]


def plain(thing: Any) -> str:
    """Return the value as JSON, the format of records. Raises TypeError or ValueError for arrays, NaN, own classes."""
    return json.dumps(thing, allow_nan=False)
