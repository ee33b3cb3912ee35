"""The stage `reward_model`: a trained reward model scores the conversations of trained policies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from os.path import expanduser, isdir, isfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from agents.computing import compute
from agents.errors import ChatError, WeightsError
from agents.model_folder import hash_file as file_hash
from agents.weights import resolve
from arena.credit.asking import AskContext, ExperimentFacts, asks
from arena.credit.batch import Floats, TurnBatch
from arena.credit.rewards.agreement import RewardHackingAlarm, compare_with_payoffs
from arena.credit.rewards.columns import Columns
from arena.errors import ConfigError, PlayError, StoreError
from arena.parts.paths import Anchor, absolute
from arena.records import Trajectory
from arena.store import checkpoints
from arena.store.files import CONFIG
from games.names import nearest

if TYPE_CHECKING:
    from arena.learn.reward_model import RewardModel

WEIGHTS = "reward_model"
"""Name of a reward model's weights in the checkpoints of its training."""


def _make_absolute(model: str) -> str:
    return absolute(model) if isdir(expanduser(model)) else model


ModelFolder = Annotated[str, Field(min_length=1), Anchor(_make_absolute), AfterValidator(_make_absolute)]
"""Folder of a reward model or of its training."""


class Scorer:
    """Measurer of the stage `reward_model`: scores each seat's last stream of a match. Loads the model at first use."""

    def __init__(
        self,
        context: AskContext,
        state: Mapping[str, Any],
        *,
        model: str,
        seats: list[str] | None,
        pays: str,
        window: int,
    ) -> None:
        self._context, self._folder, self._seats, self._pays = context, find_weights(model), seats, pays
        self._alarm = RewardHackingAlarm(window, True, state.get("trend", {}))
        self._hash: str = state.get("weights", "")
        self._model: RewardModel | None = None
        self._iteration = 0
        self._scores: dict[tuple[str, str], float] = {}
        """Scores of the iteration's trajectories by match and seat."""
        self._figures: dict[int, dict[str, float]] = {}
        """Metrics by iteration: a later one may be measured before an earlier one is reported."""

    async def measure(self, k: int, trajectories: Sequence[Trajectory]) -> list[NDArray[np.float32]]:
        """Return each trajectory's rewards by turn: the score on the last turn. A seat without tokens gets 0."""
        if k != self._iteration:
            self._iteration, self._scores = k, {}
        scored = [trajectory for trajectory in trajectories if self._seats is None or trajectory.seat in self._seats]
        new = [
            trajectory
            for trajectory in scored
            if trajectory.streams and (trajectory.match, trajectory.seat) not in self._scores
        ]
        if new:
            scores = await compute(self._score, new)
            self._scores |= {
                (trajectory.match, trajectory.seat): float(s) for trajectory, s in zip(new, scores, strict=True)
            }
        self._figures[k] = compare_with_payoffs(
            scored, [self._scores.get((trajectory.match, trajectory.seat)) for trajectory in scored]
        )
        rewards = [np.zeros(len(trajectory.turns), np.float32) for trajectory in trajectories]
        for trajectory, reward in zip(trajectories, rewards, strict=True):
            reward[-1] = self._scores.get((trajectory.match, trajectory.seat), 0.0)
        return rewards

    def report(self, k: int) -> dict[str, float]:
        """Return the iteration's figures, and warn the user if the score rises while the payoff falls."""
        figures = self._figures.pop(k, {})
        self._figures = {j: later for j, later in self._figures.items() if j > k}
        if warning := self._alarm.add(figures.get("value"), figures.get("payoff"), figures.get("agreement")):
            self._context.note(f"iteration {k}: reward model of {self._pays}: {warning}")
        return figures | {"alarm": float(self._alarm.is_raised)}

    def state(self) -> dict[str, Any]:
        """Return the alarm's state and the hash of the model's weights."""
        return {"trend": self._alarm.state(), "weights": self._hash}

    def _score(self, trajectories: Sequence[Trajectory]) -> Any:
        """Return the scores. Raises StoreError if the model is not the run's, PlayError for a stream with images."""
        from arena.learn.reward_model import RewardModel

        if self._model is None:
            weights_hash = sha256(
                "".join(map(file_hash, sorted(self._folder.glob("*.safetensors")))).encode()
            ).hexdigest()
            if self._hash not in ("", weights_hash):
                raise StoreError(f"the reward model in {self._folder} changed since this run began: restore it")
            self._hash, self._model = weights_hash, RewardModel.load(self._folder, self._context.bf16)
        try:
            return self._model.score(
                [trajectory.streams[-1] for trajectory in trajectories], self._context.token_budget
            )
        except ValueError as error:
            raise PlayError(f"credit.stages: reward_model: {error}") from None


def find_compatible_weights(model: str, policies: Iterable[Path]) -> Path:
    """Return a reward model's weights folder after checking that its token ids are those of the policies.

    `policies` are model folders. Raises ValueError if `model` is no reward model or has other token ids, and
    ConfigError and StoreError as `find_weights` does.
    """
    from agents.policy import check_readable
    from arena.learn.reward_model import is_reward_model

    folder = find_weights(model)
    try:
        if not is_reward_model(folder):
            raise ValueError(f"{model} is no reward model: its config.json is not of a sequence classification model")
        for policy_folder in policies:
            check_readable(folder, policy_folder)
    except (WeightsError, ChatError) as error:
        raise ValueError(str(error)) from None
    return folder


def find_weights(model: str) -> Path:
    """Return a reward model's weights folder; `model` is a model folder or the folder of a training run.

    Raises ConfigError if it is neither, and StoreError if the training run has no intact checkpoint.
    """
    path = Path(expanduser(model))
    if isfile(path / CONFIG):
        return checkpoints.newest(path).policy(WEIGHTS)
    try:
        return resolve(model)
    except WeightsError as error:
        raise ConfigError(f"reward_model: {error}") from None


def _check(facts: ExperimentFacts, *, model: str, seats: list[str] | None, **settings: Any) -> None:
    """Raise ValueError unless the seats are trained and the model shares its token ids with their policies."""
    for seat in seats or ():
        if seat not in facts.trained:
            raise ValueError(f"no trained policy has the seat '{seat}'{nearest(seat, facts.trained)}")
    names = sorted({model for seat in seats or facts.trained for model in facts.models.get(seat, ())})
    try:
        find_compatible_weights(model, map(resolve, names))
    except WeightsError as error:
        raise ValueError(str(error)) from None


@asks(Scorer, lambda *, pays, **settings: f"reward_model.{pays}", _check)
def reward_model(
    batch: TurnBatch,
    rewards: Columns,
    *,
    model: ModelFolder,
    seats: list[str] | None = None,
    pays: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]{0,63}$")] = "learned",
    window: Annotated[int, Field(ge=4, le=1000)] = 10,
) -> dict[str, Floats]:
    """Score a seat's conversation with a trained reward model, as a reward on the seat's last turn.

    `model` is a folder in the layout of transformers' sequence classification with one label, as TRL saves it, or the
    folder of a pipeline's stage `reward_model`. It reads the token ids of the seat's last stream, which is the whole
    conversation unless memory drops messages, so it needs the policy's tokenizer and chat format. `seats` restricts the
    stage to these seats. Adds the reward `pays`; scale it, and set the game's own to 0, by `credit.weights`.

    Metrics are the mean score (`value`), the mean payoff, and their agreement; with the KL in `learn` they show
    over-optimisation. The run warns if over `window` iterations the score rises while the payoff falls (Mann-Kendall,
    both at 5 %).

    Zero for a new model, whose head is zero.
    """
    return {pays: batch.measure(f"reward_model.{pays}")}
