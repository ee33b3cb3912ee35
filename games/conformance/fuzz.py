"""Fuzz check: play legal, illegal and malformed acts; none may break the game, and no illegal act may pay a seat."""

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
from games.conformance.random_acts import draw_garbage, draw_legal_act, fill_form, mutate
from games.contracts import ILLEGAL

MAX_MATCH_LENGTH = 20_000
"""Number of legal acts after which a random match counts as endless."""
WILDNESS = (0.0, 0.02, 0.3)
"""Shares of possibly illegal acts, which successive matches use in turn: some last long, others end early."""
GameFactory = Callable[[], TextGame]


MIN_LEGAL_SHARE = 0.1
"""Minimum share of legal acts for a check to be conclusive."""


class Inconclusive(Exception):
    """Raised if a requirement could not be tested. The message has the reason and the test done instead."""


class BrokenPromise(Exception):
    """Raised if the game breaks a requirement. The message has the seed and act to reproduce it."""


def fuzz(make: GameFactory, acts: int) -> str:
    """Play `acts` legal and illegal random acts, check the game after each, and return a summary in one line.

    Raises BrokenPromise if a check fails, and Inconclusive if fewer than a tenth of the acts were legal.
    """
    game, act_count, matches, illegal, failed_searches = make(), 0, 0, 0, 0
    forms: dict[str, list[str]] = {}
    for seed in itertools.count():
        if act_count >= acts:
            break
        rng, wildness = random.Random(seed), WILDNESS[seed % len(WILDNESS)]
        game.reset(seed=seed)
        matches += 1
        while not game.ended and act_count < acts:
            place = f"seed {seed}, act {game.turns + 1} of the match"
            act, may_be_illegal = _draw_act(game, rng, wildness, forms)
            illegal += _check_step(game, act, may_be_illegal, f"{place}, {act!r:.80}")
            act_count += 1
            failed_searches += act == "" and may_be_illegal
            if game.turns > MAX_MATCH_LENGTH:
                raise BrokenPromise(f"seed {seed}: the match did not end in {MAX_MATCH_LENGTH} acts")
        if game.ended:
            _check_end(game, f"seed {seed}")
        if faults := game.faults:
            raise BrokenPromise(f"seed {seed}: the environment itself failed ({len(faults)} times): {faults[0]}")
    note = f"; {failed_searches} times no guessed act was legal" if failed_searches > act_count // 20 else ""
    summary = f"{act_count} acts ({illegal} illegal) in {matches} matches{note}"
    if act_count - illegal < MIN_LEGAL_SHARE * act_count:
        raise Inconclusive(f"hardly any guessed act was legal: {summary}")
    return summary


def _draw_act(
    game: TextGame, rng: random.Random, wildness: float, forms: dict[str, list[str]]
) -> tuple[str | None, bool]:
    """Draw an act, and return it with whether it may be illegal. A share `wildness` of acts is mutated or garbage.

    `forms` holds, by seat, forms of acts that were legal before. A game without listed acts gets one of them filled in
    most of the time.
    """
    kind, seat = rng.random(), game.agent_selection
    if kind < wildness / 2:
        return draw_garbage(rng), True
    if game.infos[seat]["legal"] is None and seat in forms and rng.random() < 0.95:
        return fill_form(rng.choice(forms[seat]), game, rng), True
    act = draw_legal_act(game, rng, forms)
    if act is None:
        return "", True
    return (mutate(act, rng), True) if kind < wildness else (act, False)


def _check_step(game: TextGame, act: str | None, may_be_illegal: bool, place: str) -> bool:
    """Play one act and check validity, rewards and, every 16 turns, views. Returns True if the act was illegal.

    `place` describes the act in error messages. Raises BrokenPromise if a check fails.
    """
    seat = game.agent_selection
    try:
        game.step(act)
    except Exception as error:
        raise BrokenPromise(f"{place}: raised {error_line(error)}") from error
    valid = game.infos[seat]["valid"]
    if not valid and not may_be_illegal:
        raise BrokenPromise(f"{place}: a legal act was refused: {_last_message(game, seat)}")
    for other in game.seats:
        reward = game.rewards[other]
        if not math.isfinite(reward) or abs(reward - sum(game.infos[other]["rewards"].values())) > 1e-9:
            raise BrokenPromise(f"{place}: {other}'s reward {reward} is not finite or not the sum of its parts")
        unknown = game.infos[other]["rewards"].keys() - {*game.reward_parts, ILLEGAL, STAKE}
        if game.reward_parts and unknown:
            raise BrokenPromise(
                f"{place}: {other} was paid '{min(unknown)}', which is not among the game's reward_parts"
            )
        if not valid and (reward > 0 or (other == seat and reward > -game.penalty)):
            raise BrokenPromise(f"{place}: an illegal act of {seat} paid {other} {reward:g}")
    if game.turns % 16 == 0:
        for other in game.seats:
            to_json([game.infos[other], game.public(), game.private(other)])
            if not game.observation_space(other).contains(game.observe(other)):
                raise BrokenPromise(f"{place}: what {other} observes is not in its observation space")
    return not valid


def _last_message(game: TextGame, seat: str) -> str:
    messages = game.messages(seat)
    return messages[-1].text if messages else "without a word"


def _check_end(game: TextGame, place: str) -> None:
    """Raise BrokenPromise unless an ended match has finite payoffs, of sum 0 and within the stakes if zero-sum."""
    payoffs, report = game.payoffs(), game.report()
    to_json([payoffs, report])
    if set(payoffs) != set(game.seats) or not all(map(math.isfinite, payoffs.values())):
        raise BrokenPromise(f"{place}: the payoffs are not finite, or not one for each seat: {payoffs}")
    stake_lost = report["ended"] == "illegal" and game.stake
    if _is_zero_sum(game) and not stake_lost and abs(sum(payoffs.values())) > 1e-6:
        raise BrokenPromise(f"{place}: the game is zero-sum, but the payoffs are {payoffs}")
    if -min(payoffs.values()) > game.stakes + 1e-6 and _is_zero_sum(game) and not stake_lost:
        raise BrokenPromise(f"{place}: a loss in {payoffs} is greater than the game's stakes, {game.stakes:g}")


def _is_zero_sum(game: TextGame) -> bool:
    """Return True if OpenSpiel declares the rules zero-sum and draws have no reward."""
    return isinstance(game, SpielRules) and game.spiel.get_type().utility.name == "ZERO_SUM" and not game.draw


def error_line(error: BaseException) -> str:
    """Return an error's type and message with the innermost file and line, in one line of up to 400 characters."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" ({Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno})" if trace else ""
    return " ".join(f"{type(error).__name__}: {error}{place}".split())[:400]


def to_json(value: Any) -> str:
    """Return the value as JSON text, like the match log. Raises TypeError or ValueError if JSON cannot express it."""
    return json.dumps(value, allow_nan=False)
