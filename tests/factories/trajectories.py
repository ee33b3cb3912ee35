"""Trajectories with given rewards and two sampled tokens per turn."""

from typing import Any

import numpy as np

from agents.stream import Stream
from arena.credit.assign import assign
from arena.credit.batch import CreditedTrajectory, TurnBatch
from arena.credit.settings import CreditSpec
from arena.records import MatchRecord, Seating, Trajectory
from games.contracts import MatchId
from tests.factories.models import VOCABULARY
from tests.factories.records import make_match_record, make_turn, wrap_turns


def make_record(trajectory: Trajectory) -> MatchRecord:
    """Return the record of a finished match with the trajectory's seat only."""
    seating = Seating(trajectory.role, trajectory.policy, trajectory.version, True, "model")
    return make_match_record(
        identity=MatchId.parse(trajectory.match), game=trajectory.game, seed=trajectory.seed,
        seats={trajectory.seat: seating}, turns=trajectory.turns, streams={trajectory.seat: trajectory.streams},
    )  # fmt: skip


def make_trajectory(rewards: list[float], role: str = "opener", policy: str = "shared", match: str = "m") -> Trajectory:
    """Return a trajectory of turns 0, 2, 4, … with two sampled tokens each in one stream."""
    turns = [make_turn(2 * k, {"deal": r} if r else {}, role, policy=policy) for k, r in enumerate(rewards)]
    stream = Stream()
    for turn in turns:
        stream.observe([1, 2, 3])
        stream.append_sampled([5, 6], [-1.0, -2.0], turn.index)
    return wrap_turns(turns, match=match, game="negotiation", streams=(stream,))


def make_token_trajectories(seed: int, count: int = 6) -> list[CreditedTrajectory]:
    """Trajectories whose reward is the share of token 3 among what they say."""
    rng, trajectories = np.random.default_rng(seed), []
    for i in range(count):
        turns, stream = tuple(make_turn(2 * k, {}) for k in range(int(rng.integers(1, 4)))), Stream()
        stream.observe([5, 6, 7])
        for turn in turns:
            stream.observe(rng.integers(8, VOCABULARY, 2).tolist())
            sampled = rng.integers(0, VOCABULARY, int(rng.integers(1, 4))).tolist()
            stream.append_sampled(sampled, [-1.0] * len(sampled), turn.index)
        first = stream.ids[3]
        rewards = np.array([float(first % 2)] + [0.0] * (len(turns) - 1))
        trajectory = wrap_turns(turns, match=f"m{i}", streams=(stream,))
        trajectories.append(CreditedTrajectory(trajectory=trajectory, rewards=rewards, advantages=np.zeros(len(turns))))
    return trajectories


def make_scored_trajectory(
    score: float, seed: int = 0, match: str = "0001-0000", role: str = "buyer", turns: int = 1, **changes: Any
) -> Trajectory:
    """Return a trajectory of `turns` turns of two tokens; the last earns the score, `changes` apply to the first."""
    all_turns, stream = [], Stream()
    for k in range(turns):
        rewards = {"deal": score} if k == turns - 1 else {}
        all_turns.append(make_turn(k, rewards, role, **{"raw": "say: x", **(changes if k == 0 else {})}))
        stream.observe([1])
        stream.append_sampled([5, 6], [-1.0, -2.0], k)
    return wrap_turns(all_turns, match=match, seat=role, role=role, policy="shared", streams=(stream,), seed=seed)


def make_groups(*scores: list[float], **settings: Any) -> list[Trajectory]:
    """Return a group of matches of one deal for each list of scores."""
    seeded_scores = [(seed, score) for seed, own in enumerate(scores) for score in own]
    return [
        make_scored_trajectory(score, seed, f"0001-{i:04d}", **settings)
        for i, (seed, score) in enumerate(seeded_scores)
    ]


def assign_credit(trajectories: list[Trajectory], *rules: Any, **credit: Any) -> list[CreditedTrajectory]:
    """Select trajectories by `rules` and assign credit."""
    return assign(TurnBatch(trajectories), CreditSpec(select=list(rules), **credit))
