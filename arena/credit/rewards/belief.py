"""Credit stage `belief`: rewards for the change of a frozen policy's probability of an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from agents.errors import WeightsError
from agents.policy import check_readable
from agents.stream import answer_stream
from agents.weights import resolve
from arena.credit.asking import AskContext, ExperimentFacts, asks
from arena.credit.batch import Floats, TurnBatch
from arena.credit.rewards.agreement import compare_with_payoffs
from arena.credit.rewards.columns import Columns
from arena.parts.part_config import AskedPolicy
from arena.records import Trajectory
from games.names import nearest

MAX_CONTEXTS = 1024
"""Maximum contexts per scoring call."""


class BeliefMeasurer:
    """Measurer of beliefs: a frozen policy's probability of a fixed answer, given each turn's context."""

    def __init__(
        self,
        context: AskContext,
        state: Mapping[str, Any],
        *,
        policy: str,
        answer: str,
        seats: list[str] | None,
        pays: str,
    ) -> None:
        self._asker, self._policy, self._answer, self._seats = context.asker, policy, answer, seats
        self._iteration = 0
        self._beliefs: dict[tuple[str, str], NDArray[np.float32]] = {}
        """Beliefs of the iteration's trajectories, by match and seat."""
        self._figures: dict[int, dict[str, float]] = {}

    async def measure(self, k: int, trajectories: Sequence[Trajectory]) -> list[NDArray[np.float32]]:
        """Return the probability of the answer before each turn of each trajectory; 0 at other seats."""
        if k != self._iteration:
            self._iteration, self._beliefs = k, {}
        scored = [trajectory for trajectory in trajectories if self._seats is None or trajectory.seat in self._seats]
        new = [trajectory for trajectory in scored if (trajectory.match, trajectory.seat) not in self._beliefs]
        for trajectory, beliefs in zip(new, await self._compute_beliefs(new), strict=True):
            self._beliefs[trajectory.match, trajectory.seat] = beliefs
        last = [float(self._beliefs[trajectory.match, trajectory.seat][-1]) for trajectory in scored]
        self._figures[k] = compare_with_payoffs(scored, last)
        return [self._beliefs.get((t.match, t.seat), np.zeros(len(t.turns), np.float32)) for t in trajectories]

    async def _compute_beliefs(self, trajectories: Sequence[Trajectory]) -> list[NDArray[np.float32]]:
        """Return the belief before each turn. A turn without tokens has that of the turn before it, or 0."""
        frame = self._asker.frame(self._policy)
        answer, places = frame.encode(self._answer), list[tuple[int, int]]()
        streams = []
        for row, trajectory in enumerate(trajectories):
            contexts = trajectory.contexts()
            for place, turn in enumerate(trajectory.turns):
                if turn.index in contexts:
                    places.append((row, place))
                    streams.append(answer_stream(contexts[turn.index], [], answer, turn.index))
        beliefs = [np.full(len(trajectory.turns), np.nan, np.float32) for trajectory in trajectories]
        for start in range(0, len(streams), MAX_CONTEXTS):
            scores = await self._asker.score(self._policy, streams[start : start + MAX_CONTEXTS])
            for (row, place), logprobs in zip(places[start:], scores, strict=False):
                beliefs[row][place] = np.exp(logprobs.sum())
        return [_fill_forward(turn_beliefs) for turn_beliefs in beliefs]

    def report(self, k: int) -> dict[str, float]:
        """End iteration `k` and return the agreement of its beliefs before last turns with payoffs.

        `value` is the mean belief, `payoff` the mean payoff, `agreement` and `correlation` are those of
        `measure_agreement`.
        """
        figures = self._figures.pop(k, {})
        self._figures = {j: later for j, later in self._figures.items() if j > k}
        return figures

    def state(self) -> dict[str, Any]:
        """Return {}: beliefs are not kept between iterations."""
        return {}


def _fill_forward(beliefs: NDArray[np.float32]) -> NDArray[np.float32]:
    """Replace NaN by the last value before it, or 0."""
    known = np.maximum.accumulate(np.where(np.isnan(beliefs), -1, np.arange(len(beliefs))))
    return np.where(known < 0, np.float32(0), beliefs[known])


def _check(facts: ExperimentFacts, *, policy: str, seats: list[str] | None, **settings: Any) -> None:
    """Raise ValueError unless the policy is frozen and has the same token ids as the seats' trained policies."""
    if policy not in facts.frozen:
        raise ValueError(f"'{policy}' is no policy of the run, and an endpoint returns no probabilities")
    for seat in seats or ():
        if seat not in facts.trained:
            raise ValueError(f"no trained policy has the seat '{seat}'{nearest(seat, facts.trained)}")
    try:
        for name in sorted({model for seat in seats or facts.trained for model in facts.models.get(seat, ())}):
            check_readable(resolve(facts.frozen[policy]), resolve(name))
    except WeightsError as error:
        raise ValueError(str(error)) from None


@asks(BeliefMeasurer, lambda *, pays, **settings: f"belief.{pays}", _check)
def belief(
    batch: TurnBatch,
    rewards: Columns,
    *,
    policy: Annotated[str, Field(min_length=1), AskedPolicy()],
    answer: Annotated[str, Field(min_length=1, max_length=200)] = "yes",
    seats: list[str] | None = None,
    pays: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]{0,63}$")] = "process",
) -> dict[str, Floats]:
    """Reward each turn by the change of a frozen policy's belief in an answer: a process reward model, also for images.

    P_k is the probability that the policy, given the seat's context before turn k, begins its reply with `answer`. Turn
    k gets P_{k+1} - P_k, and the last turn 0, because no observation follows it. The rewards sum to P_last - P_0, so
    staying in a state of high belief earns nothing. Train the policy first by the stage `ground`, with lessons in the
    prompts of the seat's role, such as `segment` of `reach`. `seats` restricts the stage to these seats. Adds the
    reward `pays`.

    Metrics are the mean belief before last turns (`value`), the mean payoff, and their agreement. Source: the robotic
    process reward model of VLA-RL (Lu et al. 2025), which asks at each step whether a part of the task is completed,
    and pays the answer itself. Zero if the policy's belief does not depend on what it reads.
    """
    beliefs = batch.measure(f"belief.{pays}")
    gains, rows = np.zeros(len(beliefs)), np.flatnonzero(~batch.last)
    gains[rows] = beliefs[rows + 1] - beliefs[rows]
    return {pays: gains}
