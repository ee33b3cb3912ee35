"""Sampling for best-of-N evaluation: one contender plays each deal several times."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast, get_args

from agents.engines.base import Completion, Engine, Request
from agents.policy import Policy
from agents.role import Cautious, Role, Votes
from arena.errors import ConfigError
from arena.evaluate.evaluation import LIMITS, draw_deal_seeds
from arena.evaluate.selection import Sample
from arena.play.contenders import Contender, ModelContender, play_one
from arena.play.making import make_game
from arena.play.match import MatchPlan
from arena.play.orchestrator import play_counting_failures
from arena.play.settings import GameSpec
from arena.records import MatchRecord
from games.abilities import Answers
from games.base import TextGame
from games.contracts import UNREAD, Game, MatchId

Decoding = Literal["greedy", "cautious", "votes"]
DECODINGS: tuple[Decoding, ...] = get_args(Decoding)
"""Decoding options: the likeliest token at each step (`greedy`), or selection among samples within a match."""
Scorer = Callable[[MatchRecord], Awaitable[float]]
"""Function that returns a judge's score for the answer of a finished match."""


class TokenMeter:
    """Engine wrapper that counts the tokens sampled in each match, including those that decoding discards."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._sampled = Counter[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Sample the replies with the wrapped engine and count their tokens."""
        completions = await self._engine.generate(requests)
        for request, completion in zip(requests, completions, strict=True):
            self._sampled[_match_id(request.key)] += len(completion.ids)
        return completions

    def pop(self, match: str) -> int:
        """Return the number of tokens sampled in a match, and reset it."""
        return self._sampled.pop(match, 0)


def _match_id(key: str) -> str:
    return key.partition("/")[0]


def with_decoding(contender: Contender, decoding: Decoding, samples: int) -> ModelContender:
    """Return the contender with only this decoding option in all its roles.

    A role's own settings of the option apply; by default, `votes` samples `samples` replies. Raises ConfigError for a
    contender without weights, and for `cautious` if the engine reports no entropies.
    """
    if not isinstance(contender, ModelContender):
        raise ConfigError(f"--decoding {decoding}: {contender.name} has no weights to sample from")
    if decoding == "cautious" and not contender.engine.capabilities.records_entropy:
        raise ConfigError("--decoding cautious needs an engine that reports entropies")

    def with_option(game: str, seat: str) -> tuple[Policy, Role]:
        policy, role = contender.cast(game, seat)
        settings = {
            "cautious": role.sampling.cautious or Cautious(),
            "votes": role.sampling.votes or Votes(samples=samples),
        }
        options: dict[str, Any] = {name: rule if name == decoding else None for name, rule in settings.items()}
        if decoding == "greedy":
            options["temperature"] = 0.0
        return policy, role.model_copy(update={"sampling": role.sampling.model_copy(update=options)})

    return replace(contender, cast=with_option)


async def sample_matches(
    lineup: Mapping[str, Contender], seat: str, spec: GameSpec, deals: int, n: int, seed: int,
    scorers: Mapping[str, Scorer], on_finish: Callable[[], None], in_flight: int,
) -> tuple[list[list[Sample]], Counter[str]]:  # fmt: skip
    """Play each deal `n` times with different random draws; return the samples by deal and the failures by reason.

    A sample describes the answer of `seat`; a match that keeps failing has none. Each of `scorers` computes the field
    of a sample that it is named after. Raises ConfigError if a match's report has no success, and PlayError if more
    matches keep failing than finish.
    """
    contender, samples = lineup[seat], dict[tuple[int, int], Sample]()
    meter = TokenMeter(contender.engine) if isinstance(contender, ModelContender) else None
    if meter and isinstance(contender, ModelContender):
        lineup = {**lineup, seat: replace(contender, engine=cast(Engine, meter))}
    seating = {name: player.seating(spec.name, name) for name, player in lineup.items()}
    plans = [
        MatchPlan(
            identity=MatchId(deal, i), game=spec.name, options=dict(spec.options), seed=deal_seed, seats=seating,
            draws=(i,),
        )
        for deal, deal_seed in enumerate(draw_deal_seeds(seed, deals))
        for i in range(n)
    ]  # fmt: skip

    async def play_plan(plan: MatchPlan) -> MatchRecord:
        game = make_game(plan.game, plan.options)
        record = await play_one(plan, lineup, seed, LIMITS, game=game)
        tokens = meter.pop(plan.id) if meter else sum(turn.tokens for turn in record.turns if turn.seat == seat)
        if record.status == "finished":
            scores = {name: await scorer(record) for name, scorer in scorers.items()}
            samples[plan.identity.iteration, plan.identity.deal] = _sample_of(record, game, seat, tokens, scores)
        return replace(record, turns=(), streams={})  # frees memory

    failed = await play_counting_failures(plans, play_plan, on_finish, in_flight)
    return [[samples[deal, i] for i in range(n) if (deal, i) in samples] for deal in range(deals)], failed


def _sample_of(record: MatchRecord, game: Game, seat: str, tokens: int, scores: Mapping[str, float]) -> Sample:
    success = require_success(record.report, record.game)
    score = record.report.get("score", success)
    return Sample(
        answer=find_answer(record, game, seat),
        success=success,
        score=success if isinstance(score, str) or not math.isfinite(score) else float(score),
        payoff=record.payoffs[seat],
        tokens=tokens,
        turns=sum(turn.seat == seat and turn.source not in UNREAD for turn in record.turns),
        **scores,
    )


def require_success(report: Mapping[str, float | bool | str], game: str) -> float:
    """Return `success` of a match's report as a number in [0, 1]. Raises ConfigError if the game reports none."""
    success = report.get("success")
    if success is None or isinstance(success, str) or not 0 <= success <= 1:
        raise ConfigError(f"--best-of: {game} reports no `success`, by which answers are judged")
    return float(success)


def find_answer(record: MatchRecord, game: Game, seat: str) -> str:
    """Return the seat's answer: the game's `final_answer`, else its last legal act in lower case, without talk."""
    if isinstance(game, Answers):
        return game.final_answer(seat)
    acts = [turn.action for turn in record.turns if turn.seat == seat and turn.valid and turn.source not in UNREAD]
    last = acts[-1] if acts else ""
    text = last if isinstance(game, TextGame) and game.whole_acts else last.partition("|")[0]
    return " ".join(text.split()).casefold()
