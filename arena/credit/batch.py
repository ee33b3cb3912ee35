"""Batches of turns: the turns of an iteration's trajectories as flat columns, and statistics over groups.

T is the number of turns, M of trajectories, N of sampled tokens. Turns are ordered by trajectory, then by time; tokens
by trajectory, then by stream.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arena.parts.schedules import Clock
from arena.records import Trajectory, Turn

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
TrajectoryKey = Literal["game", "seed", "role", "policy", "seat", "version", "match"]
"""Keys to group trajectories by; `seed` identifies the deal."""
Key = Literal[TrajectoryKey, "turn"]
"""Keys to group turns by; `turn` is the turn's position within its trajectory."""


@dataclass(frozen=True)
class TurnBatch:
    """An iteration's trajectories with their turns as flat arrays: the input of all parts of credit assignment.

    There are M trajectories, T turns (`turns`, trajectory after trajectory) and N sampled tokens. `owner` maps turns to
    trajectories and `token_turns` tokens to turns. `groups` numbers groups of turns, and `mean_by` and its siblings
    compute statistics over them, from trajectories in `counted` only. `measures` holds values that models computed,
    `memory` the state of estimators.
    """

    trajectories: Sequence[Trajectory]
    clock: Clock = Clock()
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    memory: dict[str, Any] = field(default_factory=dict)
    """State of estimators from iteration to iteration, by estimator name. Plain JSON, saved in the checkpoint."""
    measures: Mapping[str, Sequence[NDArray[np.float32]]] = field(default_factory=dict)
    """Model measurements by name, one array per trajectory; see `arena.credit.measures`."""
    counted: Bools | None = None
    """[M] trajectories that count in group statistics; None means all."""

    def with_counted(self, counted: Bools) -> "TurnBatch":
        """Return a copy whose group statistics use only the trajectories in `counted`, a mask [M]."""
        return self._with(counted=counted)

    def with_memory(self, memory: dict[str, Any]) -> "TurnBatch":
        """Return a copy with `memory` as the state of stateful estimators."""
        return self._with(memory=memory)

    def _with(self, **changes: Any) -> "TurnBatch":
        """Return a copy with changed fields. It keeps the cached columns, which depend on the trajectories only."""
        copy = replace(self, **changes)
        vars(copy).update({name: value for name, value in vars(self).items() if name not in self.__dataclass_fields__})
        return copy

    @property
    def counted_mask(self) -> Bools:
        """Mask [M] of the trajectories that count in group statistics; all True if `counted` is None."""
        return np.ones(len(self.lengths), bool) if self.counted is None else self.counted

    @cached_property
    def lengths(self) -> Ints:
        """Number of turns of each trajectory, [M]."""
        return np.array([len(t.turns) for t in self.trajectories], np.int64)

    @cached_property
    def starts(self) -> Ints:
        """Offsets [M + 1]: trajectory m has the turns with rows `starts[m]` to `starts[m + 1]`, end excluded."""
        return np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)

    @cached_property
    def owner(self) -> Ints:
        """Index of each turn's trajectory, [T]."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @cached_property
    def place(self) -> Ints:
        """Position of each turn within its trajectory, from 0, [T]."""
        return np.arange(len(self.owner)) - self.starts[self.owner]

    @cached_property
    def last(self) -> Bools:
        """Mask [T], True for the last turn of each trajectory."""
        return np.asarray(self.place == self.lengths[self.owner] - 1)

    @cached_property
    def turns(self) -> list[Turn]:
        """All turns of the batch, trajectory after trajectory."""
        return [turn for trajectory in self.trajectories for turn in trajectory.turns]

    def column(self, value: Callable[[Turn], float]) -> Floats:
        """Return `value(turn)` for every turn of the batch, as floats [T]."""
        return np.fromiter((value(turn) for turn in self.turns), np.float64, len(self.owner))

    @cached_property
    def token_turns(self) -> Ints:
        """Row of the turn that sampled each token, [N]; tokens are ordered by trajectory, stream and time."""
        parts = []
        for start, trajectory in zip(self.starts, self.trajectories, strict=False):
            rows = {turn.index: start + k for k, turn in enumerate(trajectory.turns)}
            for stream in trajectory.streams:
                sampled = np.asarray(stream.turns, np.int64)[np.asarray(stream.mask, bool)]
                indices, inverse = np.unique(sampled, return_inverse=True)
                parts.append(np.array([rows[i] for i in indices.tolist()], np.int64)[inverse])
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    @cached_property
    def turn_tokens(self) -> Ints:
        """Number of each turn's sampled tokens, [T]; 0 for a turn without tokens in a stream."""
        return np.bincount(self.token_turns, minlength=len(self.owner)).astype(np.int64)

    def measure(self, name: str) -> Floats:
        """Return a model measurement of the whole batch, one float64 per turn or per sampled token.

        `name` is one of `arena.credit.measures`, such as `entropy`. Raises KeyError if it was not computed.
        """
        if name not in self.measures:
            raise KeyError(f"the measure '{name}' was not computed for this batch")
        arrays = self.measures[name]
        return np.concatenate(arrays).astype(np.float64) if len(arrays) else np.zeros(0)

    def groups(self, by: Sequence[Key]) -> Ints:
        """Return each turn's group number, [T]; turns that agree in all keys `by` share a number.

        Keys are attributes of the trajectory, or `turn`, the position within it. Without keys all turns are one group.
        """
        numbers = self.trajectory_groups([name for name in by if name != "turn"])[self.owner]
        return _renumber(numbers * (int(self.place.max(initial=0)) + 1) + self.place) if "turn" in by else numbers

    def trajectory_groups(self, by: Sequence[Key]) -> Ints:
        """Return a group number per trajectory, [M], equal if all attributes `by` agree; the key `turn` is left out."""
        names = [name for name in by if name != "turn"]
        return self.number_labels([tuple(getattr(t, name) for name in names) for t in self.trajectories])

    @staticmethod
    def number_labels(labels: Sequence[Hashable]) -> Ints:
        """Return a number per label, from 0 in order of first appearance; equal labels get equal numbers."""
        numbers: dict[Hashable, int] = {}
        return np.array([numbers.setdefault(label, len(numbers)) for label in labels], np.int64)

    def sum_by(self, values: Floats, groups: Ints) -> Floats:
        """Return each entry's group sum of `values` (one per turn or per trajectory), over counted trajectories."""
        size = int(groups.max(initial=-1)) + 1
        return np.asarray(np.bincount(groups, values * self._weights(len(values)), size)[groups])

    def mean_by(self, values: Floats, groups: Ints, weights: Floats | None = None) -> Floats:
        """Return the mean of `values` over each entry's group, for every entry.

        The arrays have one entry per turn or one per trajectory. `weights` makes it a weighted mean. Uncounted
        trajectories get the mean of their group but do not affect it; without counted ones it is 0.
        """
        weight = self._weights(len(values)) if weights is None else weights * self._weights(len(values))
        size = int(groups.max(initial=-1)) + 1
        sums = np.bincount(groups, values * weight, size)
        counts = np.bincount(groups, weight, size)
        return (sums / np.where(counts > 0, counts, 1.0))[groups]

    def std_by(self, values: Floats, groups: Ints, weights: Floats | None = None, ddof: int = 0) -> Floats:
        """Return the standard deviation of `values` over each entry's group; 0 if fewer than 1 + `ddof` count.

        Arguments as for `mean_by`; `ddof` is 0 for the population's deviation and 1 for the sample's.
        """
        squares = (values - self.mean_by(values, groups, weights)) ** 2
        variance = self.mean_by(squares, groups, weights)
        if ddof:
            count = self.count_by(groups)
            variance = variance * count / np.maximum(count - ddof, 1)
        return np.sqrt(variance)

    def count_by(self, groups: Ints) -> Floats:
        """Return, for each entry, the number of entries of its group that belong to counted trajectories."""
        size = int(groups.max(initial=-1)) + 1
        return np.bincount(groups, self._weights(len(groups)), size)[groups].astype(np.float64)

    def permute_within(self, rows: Ints, groups: Ints) -> Ints:
        """Return `rows` permuted at random within each group; `groups` has one group number per row."""
        permuted = np.empty_like(rows)
        permuted[np.argsort(groups, kind="stable")] = rows[np.lexsort((self.rng.random(len(rows)), groups))]
        return permuted

    def _weights(self, size: int) -> Floats:
        return (self.counted_mask if size == len(self.lengths) else self.counted_mask[self.owner]).astype(np.float64)

    def totals(self, values: Floats) -> Floats:
        """Return the sum of `values` over each trajectory's turns ([T] to [M])."""
        return np.bincount(self.owner, values, len(self.lengths)).astype(np.float64)

    def returns(self, rewards: Floats, gamma: float = 1.0) -> Floats:
        """Return each turn's discounted return-to-go along its trajectory, [T]: R_k = Σ_{k' ≥ k} γ^(k'-k) r_k'."""
        return self.scan_backward(rewards, np.full(len(rewards), gamma))

    def scan_backward(self, values: Floats, carry: Floats) -> Floats:
        """Return x_k = values_k + carry_k · x_{k+1}, computed backwards along each trajectory; x is 0 after its end.

        `values`, `carry` and the result have one entry per turn. Processes all trajectories at once, one vector
        operation per turn position.
        """
        sums = values.astype(np.float64, copy=True)
        order = np.argsort(self.place, kind="stable")
        bounds = np.searchsorted(self.place[order], np.arange(int(self.place.max(initial=-1)) + 2))
        for k in range(len(bounds) - 3, -1, -1):
            rows = order[bounds[k] : bounds[k + 1]]
            rows = rows[~self.last[rows]]
            sums[rows] += carry[rows] * sums[rows + 1]
        return sums


def _renumber(labels: Ints) -> Ints:
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class CreditedTrajectory:
    """Trajectory with its rewards and advantages, the result of credit assignment.

    `rewards` and `advantages` have one entry per turn, `tokens` one per sampled token or is None. `learned` masks the
    turns in the loss; None means all.
    """

    trajectory: Trajectory
    rewards: Floats
    """[K]"""
    advantages: Floats
    """[K]; means over the turns' tokens if these differ."""
    tokens: Floats | None = None
    """[n] advantages per token, stream after stream, if the estimator or a transform distinguishes tokens."""
    learned: NDArray[np.bool_] | None = None
    """[K] True for turns in the loss; None means all."""
    counted: bool = True
    """False if selection excluded the trajectory from group statistics."""


class TokenAdvantages(NamedTuple):
    """Result of an estimator that distinguishes the tokens of a turn: `values`, one advantage per sampled token."""

    values: Floats
    """[N], in the order of `TurnBatch.token_turns`."""


def spread_to_tokens(batch: TurnBatch, values: Floats) -> Floats:
    """Return each turn's value on each of its sampled tokens ([T] to [N])."""
    return values[batch.token_turns]


def average_over_turns(batch: TurnBatch, values: Floats) -> Floats:
    """Return the mean of token values over each turn ([N] to [T]); 0 for a turn without tokens."""
    sums = np.bincount(batch.token_turns, values, len(batch.owner))
    return sums / np.maximum(batch.turn_tokens, 1)


def standardise_tokens(batch: TurnBatch, values: Floats, by: Sequence[Key]) -> Floats:
    """Standardise token values within the group of their turn: (value - mean) / (deviation + 1e-6), [N].

    `by` are grouping keys as in `TurnBatch.groups`. Statistics are over tokens of counted trajectories. Returns 0 in a
    group without such tokens, or with a deviation below 1e-6.
    """
    groups = batch.groups(by)[batch.token_turns]
    size = int(groups.max(initial=-1)) + 1
    weights = batch.counted_mask[batch.owner[batch.token_turns]].astype(np.float64)
    count = np.maximum(np.bincount(groups, weights, size), 1.0)
    gaps = values - (np.bincount(groups, weights * values, size) / count)[groups]
    spread = np.sqrt(np.bincount(groups, weights * gaps**2, size) / count)[groups]
    return np.where(spread >= 1e-6, gaps / (spread + 1e-6), 0.0)
