"""Payoffs of best play against a panel, if they can be computed: against a known member, and against the mixture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from agents.player import Chances
from agents.players.scripted import make_scripted
from arena.evaluate.evaluation import make_game
from arena.play.contenders import Contender, ScriptedContender
from arena.play.settings import GameSpec
from arena.store.evaluations import Deals, Evaluation
from games.abilities import BestAgainstMixture, BestResponse


class BestPlay(NamedTuple):
    """Payoffs of best play against a panel on each deal; None for a deal where it is unknown."""

    responses: Mapping[tuple[str, str], Deals]
    """Payoff of a best response to the member, by member and own seat."""
    against_mixture: Mapping[str, Deals]
    """Mean payoff of the best policy that does not know which member it meets, by own seat."""

    @classmethod
    def of(cls, evaluation: Evaluation) -> BestPlay:
        """Take the payoffs of best play from an earlier evaluation with the same deals, members and seats."""
        responses = {(c.member, c.seat): c.best_response for c in evaluation.cells if c.best_response}
        return cls(responses, evaluation.best_against_mixture)


def compute_best_play(pairs: Iterable[tuple[Contender, str]], spec: GameSpec, seeds: Sequence[int]) -> BestPlay:
    """Compute the payoffs of best play for `pairs` of panel member and own seat, on the deals of these seeds.

    Only scripted members with known action probabilities have results, and mixtures only if all members have them.
    """
    by_seat: dict[str, list[Contender]] = {}
    for member, seat in pairs:
        by_seat.setdefault(seat, []).append(member)
    responses = {
        (member.name, seat): found
        for seat, members in by_seat.items()
        for member in members
        if isinstance(member, ScriptedContender) and (found := compute_best_responses(member.name, seat, spec, seeds))
    }
    mixtures = {
        seat: found
        for seat, members in by_seat.items()
        if all(isinstance(member, ScriptedContender) for member in members)
        and (found := compute_best_against_mixture([member.name for member in members], seat, spec, seeds))
    }
    return BestPlay(responses, mixtures)


def compute_best_responses(member: str, seat: str, spec: GameSpec, seeds: Sequence[int]) -> Deals:
    """Return the payoff of a best response to a scripted policy on each deal, None where it is unknown.

    Returns [] if it is unknown on all deals, because the game or the policy does not support it.
    """
    payoffs: Deals = []
    for seed in seeds:
        game = make_game(spec)
        if not isinstance(game, BestResponse):
            return []
        script = make_scripted(member, 0, game)
        if not isinstance(script, Chances):
            return []
        game.reset(seed=seed)
        payoff = float(game.best_response(seat, script.chances))
        payoffs.append(payoff if math.isfinite(payoff) else None)
    return payoffs if any(payoff is not None for payoff in payoffs) else []


def compute_best_against_mixture(members: Sequence[str], seat: str, spec: GameSpec, seeds: Sequence[int]) -> Deals:
    """Return, by deal, the payoff of best play against an unknown one of `members`; [] if a payoff is unknown.

    All members are equally likely.
    """
    payoffs: Deals = []
    for seed in seeds:
        game = make_game(spec)
        if not isinstance(game, BestAgainstMixture):
            return []
        scripts = [make_scripted(member, 0, game) for member in members]
        known = [script.chances for script in scripts if isinstance(script, Chances)]
        if len(known) < len(scripts):
            return []
        game.reset(seed=seed)
        payoff = float(game.best_against_mixture(seat, known))
        if not math.isfinite(payoff):  # further deals may take long, too
            return []
        payoffs.append(payoff)
    return payoffs
