"""Replay: learning again from trajectories of earlier iterations.

The buffer stores match ids of the run's own log with scores (`arena.credit.selection.compute_scores`). Tokens, rewards
and the sampler's log-probabilities are read from the log again. Replayed trajectories are marked: the gate between
sampler and trainer ignores them. Their behaviour, old and current log-probabilities stay three arrays, so that the
correction of `policy_gradient` can weight them (`uncorrected` does not).

A replay is `replay(memory, log, *, settings)`. `inject` runs before credit, `extra_trajectories` after it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Protocol

import numpy as np
from pydantic import Field

from agents.patterns import Pattern
from arena.credit.batch import CreditedTrajectory, Floats, TrajectoryKey, TurnBatch
from arena.credit.estimators.relative import PROBLEM
from arena.credit.rewards.columns import Regex
from arena.credit.selection import compute_scores
from arena.errors import StoreError
from arena.parts.part_config import Kind, PartConfig, RewardName
from arena.parts.schedules import SCHEDULE
from arena.records import MatchRecord, Trajectory, trajectories
from games.contracts import MatchId

if TYPE_CHECKING:
    from arena.store.reader import LogReader

Keys = Annotated[tuple[TrajectoryKey, ...], Field(strict=False)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Spread = Annotated[float, Field(ge=0)]


class Entry(NamedTuple):
    """Trajectory in the replay buffer, by match and seat, with its task and score. Stored as a JSON list."""

    match: str
    seat: str
    policy: str
    task: str
    """Label of its task: equal values of the keys `by`."""
    score: float

    @property
    def iteration(self) -> int:
        """Iteration that played the match."""
        return MatchId.parse(self.match).iteration


class Recall(NamedTuple):
    """Record of a replayed trajectory in an iteration's metrics: its advantages, and the one that it replaced."""

    match: str
    seat: str
    instead: tuple[str, str] | None
    """Match and seat of the trajectory that it replaces; None if it was added."""
    advantages: list[float]
    """Advantages of its turns; empty if selection dropped it."""


class Replay(Protocol):
    """Interface of replay methods, which learn again from trajectories of earlier iterations.

    `inject` substitutes trajectories before credit assignment, `extra_trajectories` adds some after it.
    """

    def inject(self, batch: TurnBatch, rewards: Floats) -> list[Trajectory]:
        """Return the batch's trajectories in order, some replaced by stored ones. The buffer stays unchanged."""

    def extra_trajectories(
        self, batch: TurnBatch, rewards: Floats, credited: Sequence[CreditedTrajectory]
    ) -> list[CreditedTrajectory]:
        """Store the batch's best trajectories, and return earlier ones with advantages as additional training data."""

    @property
    def has_own_step(self) -> bool:
        """True if the added trajectories get a separate update, after that of the new ones."""


@dataclass(frozen=True)
class Success:
    """ARPO-GUI's buffer: replace the first trajectory of a group of equal failures by an earlier success.

    The buffer keeps the latest `keep` trajectories of each task (equal `by`, role and policy) that scored more than
    `above`. A group (equal `group` and policy) of at least two whose scores have a deviation < `std` and a mean <
    `mean` gets a random success from earlier iterations. Only fresh trajectories enter the buffer. In a group of 8
    failures at 0 a success at 1 has A = +2.475 and the others -.354 with GRPO's deviation (ddof 1). The injected
    trajectory counts in its new group, in statistics too (the selector `replayed` excludes it). Injection comes before
    selection, so that `zero_variance` keeps the group.

    A task is a deal, and deals repeat only with `play.pool`. Without `seed` in `by` the success may be of another deal.
    The released code recomputes old log-probabilities, which hides that the sample is off-policy. So does the default
    here, unless the loss has a correction. Nothing happens while the buffer holds no success. Source: ARPO (Lu et al.
    2025, dvlab), n = 8, FIFO of 8 by task.
    """

    memory: dict[str, Any]
    log: LogReader
    _: KW_ONLY
    by: Keys = ("game", "seed", "role")
    group: Keys = tuple(PROBLEM)
    of: Annotated[str, RewardName()] | None = None
    keep: Count = 8
    above: float = 0.1
    std: Spread = 0.05
    mean: float = 0.2
    has_own_step = False

    def inject(self, batch: TurnBatch, rewards: Floats) -> list[Trajectory]:
        """Return the batch's trajectories, with a random stored success in place of the first of each failed group.

        Groups whose task has no success in the buffer stay unchanged, and so does the buffer. Raises StoreError if the
        log no longer has the success's match.
        """
        score, groups = compute_scores(batch, rewards, self.of), batch.trajectory_groups([*self.group, "policy"])
        failed = (batch.std_by(score, groups) < self.std) & (batch.mean_by(score, groups) < self.mean)
        failed &= batch.count_by(groups) > 1
        firsts = np.unique(groups, return_index=True)[1]
        tasks, substitutes = self._label_tasks(batch), dict[int, Entry]()
        for i in firsts[failed[firsts]].tolist():
            if successes := self.memory.get(tasks[i]):
                substitutes[i] = Entry(*successes[int(batch.rng.integers(len(successes)))])
        injected = list(batch.trajectories)
        for i, old in zip(substitutes, load_recalled(self.log, list(substitutes.values())), strict=True):
            injected[i] = replace(old, seed=injected[i].seed)
        return injected

    def extra_trajectories(
        self, batch: TurnBatch, rewards: Floats, credited: Sequence[CreditedTrajectory]
    ) -> list[CreditedTrajectory]:
        """Store the batch's trajectories that scored more than `above` in the buffer. Returns an empty list."""
        score, tasks = compute_scores(batch, rewards, self.of), self._label_tasks(batch)
        for i in np.flatnonzero(score > self.above).tolist():
            trajectory, successes = batch.trajectories[i], self.memory.setdefault(tasks[i], [])
            successes.append([*Entry(trajectory.match, trajectory.seat, trajectory.policy, tasks[i], float(score[i]))])
            del successes[: -self.keep]
        return []

    def _label_tasks(self, batch: TurnBatch) -> list[str]:
        return _encode_keys(batch, [*self.by, "role", "policy"])


@dataclass(frozen=True)
class SelfImitation:
    """SPEAR: learn good trajectories again, with advantages relative to their task's current median score.

    The buffer keeps trajectories with A > 0 (mean over their turns) for `tolerate` iterations; with `pattern` only
    those with a matching turn. Per task (equal `by` and policy), the mean scores of the last `history` groups are kept;
    their median is the task's current level. Once more than `threshold` buffered trajectories of a policy score above
    their task's level, `size` of them are drawn and replayed, and the policy's buffer is emptied. Each drawn trajectory
    has A = score - level on all turns. With `std`, A is divided by the median deviation of the task's groups + 1e-6.
    `weight` multiplies A, and therefore the loss but not the regularisers; at weight 0 nothing is replayed.

    `step: own` is a separate update after that of the fresh trajectories, as published. Adam divides by the gradient's
    size, so `weight` has little effect there, and the step continues along the first one's momentum. `step: shared`
    puts both into one update. `which: any` is a random control: it replays as many random trajectories of the current
    iteration, at the same times and with the advantages of the drawn ones.

    Source: SPEAR (Qin et al. 2025): coefficient·(1 - cos(πt/T))/2 with T = 200, tolerance at most 10 steps, history of
    10,240, threshold 1.5 × 2,048 samples (script: 1.5 × 32), only with a tool call, one history for all (`by: []`), a
    power of two drawn.
    """

    memory: dict[str, Any]
    log: LogReader
    _: KW_ONLY
    by: Keys = ("game", "role")
    group: Keys = tuple(PROBLEM)
    of: Annotated[str, RewardName()] | None = None
    pattern: Regex | None = None
    tolerate: Annotated[int, Field(ge=0, le=10**9)] = 10
    history: Count = 10_240
    threshold: Annotated[int, Field(ge=0, le=10**9)] = 48
    size: Count = 32
    std: bool = False
    weight: Annotated[PartConfig, SCHEDULE] = PartConfig(SCHEDULE, "cosine", {"start": 0.0, "end": 1.0, "over": 200})
    step: Literal["own", "shared"] = "own"
    which: Literal["better", "any"] = "better"

    @property
    def has_own_step(self) -> bool:
        """True if `step` is `own`: replayed trajectories get a separate update."""
        return self.step == "own"

    def inject(self, batch: TurnBatch, rewards: Floats) -> list[Trajectory]:
        """Return the batch's trajectories unchanged, because this method only adds trajectories."""
        return list(batch.trajectories)

    def extra_trajectories(
        self, batch: TurnBatch, rewards: Floats, credited: Sequence[CreditedTrajectory]
    ) -> list[CreditedTrajectory]:
        """Update buffer and histories, and return stored trajectories that score above their task's current median.

        A policy's trajectories are returned if `weight` is positive and more than `threshold` qualify: up to `size` of
        them, after which its buffer is emptied. `which: any` returns random trajectories of the batch instead.
        """
        score, tasks = compute_scores(batch, rewards, self.of), _encode_keys(batch, [*self.by, "policy"])
        self._remember_groups(batch, score, tasks)
        entries = [Entry(*row) for row in self.memory.get("admitted", [])]
        entries = [e for e in entries if batch.clock.iteration - e.iteration <= self.tolerate]
        entries += self._select_good_entries(batch, score, tasks, credited)
        median = {task: float(np.median(means)) for task, means in self.memory["means"].items()}
        weight, replayed = self.weight(batch.clock), list[CreditedTrajectory]()
        for policy in sorted({e.policy for e in entries}) if weight > 0 else ():
            better = [e for e in entries if e.policy == policy and e.score > median[e.task]]
            if len(better) > self.threshold:
                places = batch.rng.choice(len(better), min(self.size, len(better)), replace=False)
                sampled = [better[i] for i in sorted(places.tolist())]
                sources = sampled if self.which == "better" else self._draw_random_entries(batch, sampled)
                old = load_recalled(self.log, sources, batch.trajectories)
                replayed += [
                    self._make_credited(e, t, median[e.task], weight) for e, t in zip(sampled, old, strict=True)
                ]
                entries = [e for e in entries if e.policy != policy]
        self.memory["admitted"] = [[*e] for e in entries]
        return replayed

    def _remember_groups(self, batch: TurnBatch, score: Floats, tasks: Sequence[str]) -> None:
        """Append each group's mean score and standard deviation to its task's history of the last `history` groups."""
        groups = batch.trajectory_groups([*self.group, *self.by, "policy"])
        firsts = np.unique(groups, return_index=True)[1].tolist()
        for name, values in (("means", batch.mean_by(score, groups)), ("stds", batch.std_by(score, groups))):
            histories = self.memory.setdefault(name, {})
            for i in firsts:
                histories.setdefault(tasks[i], []).append(float(values[i]))
            for history in histories.values():
                del history[: -self.history]

    def _select_good_entries(
        self, batch: TurnBatch, score: Floats, tasks: Sequence[str], credited: Sequence[CreditedTrajectory]
    ) -> list[Entry]:
        """Return entries for trajectories with a positive mean advantage and, if `pattern` is set, a matching turn."""
        pattern = None if self.pattern is None else Pattern(self.pattern)
        good = {(c.trajectory.match, c.trajectory.seat) for c in credited if c.advantages.mean() > _ROUNDING}
        return [
            Entry(trajectory.match, trajectory.seat, trajectory.policy, task, float(value))
            for trajectory, task, value in zip(batch.trajectories, tasks, score, strict=True)
            if (trajectory.match, trajectory.seat) in good
            and (pattern is None or any(turn.raw in pattern for turn in trajectory.turns))
        ]

    def _draw_random_entries(self, batch: TurnBatch, entries: Sequence[Entry]) -> list[Entry]:
        """Return the drawn entries with random trajectories of the batch by the same policy, repeated if necessary."""
        own = [t for t in batch.trajectories if t.policy == entries[0].policy]
        places = batch.rng.choice(len(own), len(entries), replace=len(own) < len(entries))
        return [e._replace(match=own[i].match, seat=own[i].seat) for e, i in zip(entries, places.tolist(), strict=True)]

    def _make_credited(self, entry: Entry, trajectory: Trajectory, median: float, weight: float) -> CreditedTrajectory:
        """Return a trajectory for replay, with `weight` times its current advantage on all turns.

        Its rewards are 0, because they counted when it was played.
        """
        advantage = entry.score - median
        if self.std:
            advantage /= float(np.median(self.memory["stds"][entry.task])) + 1e-6
        count = len(trajectory.turns)
        advantages = np.full(count, weight * advantage)
        return CreditedTrajectory(trajectory=trajectory, rewards=np.zeros(count), advantages=advantages)


def record_recalls(
    played: Sequence[Trajectory],
    injected: Sequence[Trajectory],
    credited: Sequence[CreditedTrajectory],
    added: Sequence[CreditedTrajectory],
) -> list[Recall]:
    """Return records of an iteration's replayed trajectories for its metrics: substitutes first, then additions.

    `played` are the iteration's trajectories, and `injected` the same list after `Replay.inject`. `credited` is the
    result of credit assignment, and `added` that of `Replay.extra_trajectories`.
    """
    advantages_by_seat = {
        (c.trajectory.match, c.trajectory.seat): c.advantages.tolist()
        for c in credited
        if c.trajectory.source == "recalled"
    }
    substitutes = [
        Recall(new.match, new.seat, (original.match, original.seat), advantages_by_seat.get((new.match, new.seat), []))
        for original, new in zip(played, injected, strict=True)
        if new is not original
    ]
    additions = [(c.trajectory, c.advantages.tolist()) for c in added]
    return substitutes + [Recall(one.match, one.seat, None, advantages) for one, advantages in additions]


def apply_recalls(played: Sequence[Trajectory], recalls: Sequence[Recall], log: LogReader) -> list[Trajectory]:
    """Return an iteration's trajectories as credit assignment saw them, with substitutes loaded from the match log.

    Records of added trajectories are ignored. Raises StoreError if the log no longer has a match.
    """
    substitutes = [recall for recall in recalls if recall.instead]
    entries = [Entry(recall.match, recall.seat, "", "", 0.0) for recall in substitutes]
    by_place = dict(zip((tuple(r.instead or ()) for r in substitutes), load_recalled(log, entries), strict=True))
    return [replace(by_place[t.match, t.seat], seed=t.seed) if (t.match, t.seat) in by_place else t for t in played]


def load_recalled(log: LogReader, entries: Sequence[Entry], loaded: Sequence[Trajectory] = ()) -> list[Trajectory]:
    """Return the entries' trajectories, marked as recalled. Reads those that are not in `loaded` from the match log.

    Raises StoreError if the log no longer has a match.
    """
    by_seat = {(t.match, t.seat): t for t in loaded}
    missing = [entry for entry in entries if (entry.match, entry.seat) not in by_seat]
    for iteration in sorted({entry.iteration for entry in missing}):
        for row in log.read(iteration, ids={entry.match for entry in missing if entry.iteration == iteration}):
            by_seat |= {(t.match, t.seat): t for t in trajectories(MatchRecord.from_json(row, log.blobs.get))}
    for entry in missing:
        if (entry.match, entry.seat) not in by_seat:
            raise StoreError(f"{log.folder} has no match {entry.match}, which replay needs: it was removed")
    return [replace(by_seat[entry.match, entry.seat], source="recalled") for entry in entries]


def _encode_keys(batch: TurnBatch, by: Sequence[TrajectoryKey]) -> list[str]:
    """Return for each trajectory its values of the keys `by` as one JSON text, for use as a key in a JSON object."""
    return [json.dumps([getattr(trajectory, name) for name in by]) for trajectory in batch.trajectories]


_ROUNDING = 1e-9

REPLAYS: dict[str, Callable[..., Replay]] = {"success": Success, "self_imitation": SelfImitation}
REPLAY = Kind("replay", REPLAYS)
