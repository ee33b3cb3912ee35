"""Scoring of policies' replies in finished matches by a reward model, for evaluations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from agents.computing import compute
from arena.credit.rewards.reward_model import find_compatible_weights
from arena.errors import ConfigError
from arena.evaluate.casting import list_casts
from arena.play.contenders import Contender
from arena.records import MatchRecord

if TYPE_CHECKING:
    from arena.learn.reward_model import RewardModel

TOKENS = 4096
"""Maximum tokens of a batch."""


class Rater:
    """Reward model that scores each seat's last stream. Scripted players and endpoints have no stream and no score."""

    def __init__(self, model: str, contenders: Iterable[Contender]) -> None:
        """Find the reward model named `model`. It is loaded at the first match.

        Raises ConfigError if it is not a reward model, or has another tokenizer than a contender with weights.
        """
        folders = {policy.source for cast in list_casts(contenders) for policy in cast.policies.values()}
        try:
            self._folder = find_compatible_weights(model, sorted(folders))
        except ValueError as error:
            raise ConfigError(f"reward model: {error}") from None
        self._model: RewardModel | None = None

    async def __call__(self, record: MatchRecord) -> Mapping[str, float]:
        """Return the score of each seat's last stream. Raises ConfigError for streams with images."""
        return await compute(self._score, record)

    def _score(self, record: MatchRecord) -> dict[str, float]:
        from arena.learn.reward_model import RewardModel  # loads torch

        if self._model is None:
            self._model = RewardModel.load(self._folder)
        streams = {seat: own[-1] for seat, own in record.streams.items() if own}
        try:
            scores = self._model.score([*streams.values()], TOKENS)
        except ValueError as error:
            raise ConfigError(f"reward model: {error}") from None
        return dict(zip(streams, map(float, scores), strict=True))
