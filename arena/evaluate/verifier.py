"""Generative verifier: a policy's probability of `yes` as judgement of a finished match's answer."""

from __future__ import annotations

import math

import numpy as np

from agents.chat import ChatFrame
from agents.policy import Policy, check_readable
from agents.role import Role
from agents.stream import Context, Stream, answer_stream
from arena.errors import ConfigError
from arena.evaluate.casting import Casting
from arena.evaluate.evaluation import find_own_seats, make_game
from arena.play.contenders import Contender, ModelContender
from arena.play.settings import GameSpec
from arena.records import MatchRecord, trajectories
from games.abilities import Judged

YES = "yes"
ASK = "Is the last answer right? Say yes or no."
"""Question for a judge without a seat in the game."""


class Verifier:
    """Scorer of finished matches: the probability that a policy, the judge, calls the answer right.

    For a judge with a seat in the game, the score is the probability of the act `yes` in place of its last act. Any
    other judge reads the conversation of the answering seat, followed by the question `ASK` as a user turn.
    """

    def __init__(self, judge: Contender, contender: Contender, spec: GameSpec, seat: str, judge_seat: str) -> None:
        """Load the judge. `seat` is the answering seat; `judge_seat` is "" if the judge has no seat in the game.

        Raises ConfigError if the judge has no weights or, without a seat, another tokenizer than the contender.
        """
        if not isinstance(judge, ModelContender):
            raise ConfigError(f"--judge {judge.name} has no weights, so it has no probability of yes")
        self._engine, self._seat = judge.engine, judge_seat or seat
        self._policy, role = judge.cast(spec.name, self._seat)
        self._role: Role | None = role if judge_seat else None
        self._positions = judge.max_positions(self._policy)
        if not judge_seat:
            _require_readable(self._policy, contender, spec, seat)

    async def __call__(self, record: MatchRecord) -> float:
        """Return the probability of `yes`; -inf without a turn to judge, or if the match is too long for the judge."""
        stream = self._question(record)
        if stream is None or len(stream) > self._positions:
            return -math.inf
        (logprobs,) = await self._engine.score(self._policy.name, [stream], [1.0])
        return float(np.exp(logprobs.sum(dtype=np.float64)))

    def _question(self, record: MatchRecord) -> Stream | None:
        own = next((one for one in trajectories(record) if one.seat == self._seat), None)
        if own is None or not own.streams or not own.turns:
            return None
        frame: ChatFrame = self._policy.frame
        if self._role:
            contexts = own.contexts()
            context = contexts.get(max(contexts, default=-1))
            return context and answer_stream(context, [], frame.encode(self._role.write(YES)), 0)
        last = own.streams[-1]
        closing = frame.close("length" if own.turns[-1].finish == "length" else "stop")
        context = Context([*last.ids, *closing, *frame.ask(ASK)], last.media)
        return answer_stream(context, [], frame.encode(YES), 0)


def _require_readable(policy: Policy, contender: Contender, spec: GameSpec, seat: str) -> None:
    if not isinstance(contender, ModelContender):
        raise ConfigError(f"--by p_yes: {contender.name} has no weights, so there are no tokens for a judge to read")
    own, _ = contender.cast(spec.name, seat)
    if own.source != policy.source:
        try:
            check_readable(policy.source, own.source)
        except ValueError as error:
            raise ConfigError(f"--judge: {error}") from None


def find_judge_seat(judge: Contender, spec: GameSpec, seat: str) -> str:
    """Return the judge's seat in the game; "" if it has none. `seat` is the answering seat.

    It is the game's judge seat, else the only seat that the judge had in its own run of this game, unless that is
    `seat`.
    """
    game = make_game(spec)
    if isinstance(game, Judged) and game.judge_seat:
        return game.judge_seat
    seats = tuple(game.possible_agents)
    cast = judge.cast if isinstance(judge, ModelContender) else None
    own = [*find_own_seats(judge, spec.name, seats)] if isinstance(cast, Casting) and cast.experiment else []
    return own[0] if len(own) == 1 and own[0] != seat else ""
