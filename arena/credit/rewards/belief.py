"""The stage `belief`: a frozen policy of the run tells before each turn how much it believes in an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from agents.errors import WeightsError
from agents.names import nearest
from agents.policy import check_readable
from agents.stream import answer_stream
from agents.weights import resolve
from arena.credit.asking import AskContext, Seated, asks
from arena.credit.batch import Floats, TurnBatch
from arena.credit.rewards.agreement import with_payoffs
from arena.credit.rewards.columns import Columns
from arena.parts.chosen import AskedPolicy
from arena.records import Trajectory

AT_ONCE = 1024
"""Contexts that are read at once."""


class Believer:
    """Policy of a run that never learns, which reads each turn's context and scores an answer of its own to it."""

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
        """Beliefs of the iteration's trajectories by match and seat."""
        self._figures: dict[int, dict[str, float]] = {}

    async def measure(self, k: int, trajectories: Sequence[Trajectory]) -> list[NDArray[np.float32]]:
        """Return the probability of the answer before each turn of each trajectory; 0 at other seats."""
        if k != self._iteration:
            self._iteration, self._beliefs = k, {}
        mine = [one for one in trajectories if self._seats is None or one.seat in self._seats]
        new = [one for one in mine if (one.match, one.seat) not in self._beliefs]
        for one, found in zip(new, await self._read(new), strict=True):
            self._beliefs[one.match, one.seat] = found
        last = [float(self._beliefs[one.match, one.seat][-1]) for one in mine]
        self._figures[k] = with_payoffs(mine, last)
        nothing = [np.zeros(len(one.turns), np.float32) for one in trajectories]
        return [self._beliefs.get((one.match, one.seat), none) for one, none in zip(trajectories, nothing, strict=True)]

    async def _read(self, trajectories: Sequence[Trajectory]) -> list[NDArray[np.float32]]:
        """Return the beliefs by turn. A turn without tokens has that of the turn before it, or 0."""
        frame = self._asker.frame(self._policy)
        said, places = frame.encode(self._answer), list[tuple[int, int]]()
        streams = []
        for row, one in enumerate(trajectories):
            contexts = one.contexts()
            for place, turn in enumerate(one.turns):
                if turn.index in contexts:
                    places.append((row, place))
                    streams.append(answer_stream(contexts[turn.index], [], said, turn.index))
        found = [np.full(len(one.turns), np.nan, np.float32) for one in trajectories]
        for start in range(0, len(streams), AT_ONCE):
            scores = await self._asker.score(self._policy, streams[start : start + AT_ONCE])
            for (row, place), logprobs in zip(places[start:], scores, strict=False):
                found[row][place] = np.exp(logprobs.sum())
        return [_filled(beliefs) for beliefs in found]

    def report(self, k: int) -> dict[str, float]:
        """Return the mean belief before last turns (`value`) and the payoff, with their agreement."""
        figures = self._figures.pop(k, {})
        self._figures = {j: own for j, own in self._figures.items() if j > k}
        return figures

    def state(self) -> dict[str, Any]:
        """Return {}: all beliefs are of one iteration."""
        return {}


def _filled(beliefs: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return beliefs with NaN replaced by what stands before it, or 0."""
    known = np.maximum.accumulate(np.where(np.isnan(beliefs), -1, np.arange(len(beliefs))))
    return np.where(known < 0, np.float32(0), beliefs[known])


def _check(seated: Seated, *, policy: str, seats: list[str] | None, **settings: Any) -> None:
    """Raise ValueError unless the policy is the run's own, and reads the tokens of the seats' policies as these do."""
    if policy not in seated.frozen:
        raise ValueError(f"'{policy}' is no policy of the run, and an endpoint tells no probabilities")
    for seat in seats or ():
        if seat not in seated.trained:
            raise ValueError(f"no trained policy has the seat '{seat}'{nearest(seat, seated.trained)}")
    try:
        for name in sorted({one for seat in seats or seated.trained for one in seated.models.get(seat, ())}):
            check_readable(resolve(seated.frozen[policy]), resolve(name))
    except WeightsError as error:
        raise ValueError(str(error)) from None


@asks(Believer, lambda *, pays, **settings: f"belief.{pays}", _check)
def belief(
    batch: TurnBatch,
    rewards: Columns,
    *,
    policy: Annotated[str, Field(min_length=1), AskedPolicy()],
    answer: Annotated[str, Field(min_length=1, max_length=200)] = "yes",
    seats: list[str] | None = None,
    pays: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]{0,63}$")] = "process",
) -> dict[str, Floats]:
    """Pay each turn what it adds to the belief of a frozen policy, as a process reward model with images or without.

    P_k is the probability of the `answer`, as the first tokens of the policy's own reply to all that the seat reads
    before turn k. Turn k gets P_{k+1} - P_k, and the last one, after which the seat reads nothing, 0. So they sum to
    P_last - P_0, and staying where the answer seems right earns nothing. Ground the policy with lessons whose prompts
    are those of the seat's role (stage `ground`), such as `segment` of `reach`. `seats` restricts who is paid. Adds the
    reward `pays`.

    Metrics have the mean belief before last turns (`value`) and the payoff with their agreement. Source: the robotic
    process reward model of VLA-RL (Lu et al. 2025), which asks for each moment whether a part of the task is completed
    and pays the answer itself. Zero: a policy that believes the same whatever it reads.
    """
    believed = batch.measure(f"belief.{pays}")
    gains, rows = np.zeros(len(believed)), np.flatnonzero(~batch.last)
    gains[rows] = believed[rows + 1] - believed[rows]
    return {pays: gains}
