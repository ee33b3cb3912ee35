"""Trajectories made by hand: turns with given rewards, two sampled tokens each."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from agents.stream import Stream
from arena.credit.assign import assign
from arena.credit.batch import CreditedTrajectory, TurnBatch
from arena.credit.settings import CreditSpec
from arena.records import MatchRecord, Seating, Trajectory, Turn
from games.contracts import MatchId
from tests.factories.models import VOCABULARY


def make_turn(index: int, rewards: dict[str, float], **changes: Any) -> Turn:
    """A valid turn of the opener, but for what is changed."""
    fields: dict[str, Any] = {
        "index": index, "seat": "opener", "role": "opener", "policy": "shared", "version": 1, "messages": (),
        "raw": "x", "public": "", "private": "", "action": "x", "valid": True, "rewards": rewards,
        "finish": "stop", "tokens": 2, "seconds": 0.0,
    }  # fmt: skip
    return Turn(**{**fields, **changes})


def wrap_turns(turns: Sequence[Turn], **changes: Any) -> Trajectory:
    """A trained opener's trajectory without streams, but for what is changed."""
    fields: dict[str, Any] = {
        "match": "m", "game": "g", "seat": "opener", "role": "opener", "policy": "shared", "version": 1,
        "trained": True, "streams": (),
    }  # fmt: skip
    return Trajectory(turns=tuple(turns), **{**fields, **changes})


def make_record(one: Trajectory) -> MatchRecord:
    """The record of a finished match in which the trajectory's seat is the only one."""
    return MatchRecord(
        identity=MatchId.parse(one.match), game=one.game, options={}, seed=one.seed,
        seats={one.seat: Seating(one.role, one.policy, one.version, True, "model")}, status="finished", reason="",
        payoffs={}, report={}, turns=one.turns, streams={one.seat: one.streams}, started="now", seconds=1,
    )  # fmt: skip


def make_trajectory(rewards: list[float], role: str = "opener", policy: str = "shared", match: str = "m") -> Trajectory:
    """Turns 0, 2, 4, …, each with two sampled tokens in one stream."""
    turns = tuple(make_turn(2 * k, {"deal": r} if r else {}, seat=role, role=role) for k, r in enumerate(rewards))
    stream = Stream()
    for one in turns:
        stream.observe([1, 2, 3])
        stream.append_sampled([5, 6], [-1.0, -2.0], one.index)
    return wrap_turns(turns, match=match, game="negotiation", seat=role, role=role, policy=policy, streams=(stream,))


def make_token_trajectories(seed: int, count: int = 6) -> list[CreditedTrajectory]:
    """Trajectories whose reward is the share of token 3 among what they say."""
    rng, found = np.random.default_rng(seed), []
    for i in range(count):
        turns, stream = tuple(make_turn(2 * k, {}) for k in range(int(rng.integers(1, 4)))), Stream()
        stream.observe([5, 6, 7])
        for one in turns:
            stream.observe(rng.integers(8, VOCABULARY, 2).tolist())
            said = rng.integers(0, VOCABULARY, int(rng.integers(1, 4))).tolist()
            stream.append_sampled(said, [-1.0] * len(said), one.index)
        first = stream.ids[3]
        rewards = np.array([float(first % 2)] + [0.0] * (len(turns) - 1))
        one_ = Trajectory(
            match=f"m{i}",
            game="g",
            seat="opener",
            role="opener",
            policy="shared",
            version=1,
            trained=True,
            turns=turns,
            streams=(stream,),
        )
        found.append(CreditedTrajectory(trajectory=one_, rewards=rewards, advantages=np.zeros(len(turns))))
    return found


def make_scored_trajectory(
    score: float, seed: int = 0, match: str = "0001-0000", role: str = "buyer", turns: int = 1, **changes: Any
) -> Trajectory:
    """`turns` turns of two tokens each; the last earns the score, `changes` are the first's."""
    plain: dict[str, Any] = {
        "seat": role, "role": role, "policy": "shared", "version": 1, "messages": (), "raw": "say: x",
        "public": "", "private": "", "action": "x", "valid": True, "finish": "stop", "tokens": 2, "seconds": 0.0,
    }  # fmt: skip
    found, stream = [], Stream()
    for k in range(turns):
        earned = {"deal": score} if k == turns - 1 else {}
        found.append(Turn(index=k, rewards=earned, **{**plain, **(changes if k == 0 else {})}))
        stream.observe([1])
        stream.append_sampled([5, 6], [-1.0, -2.0], k)
    return Trajectory(
        match=match,
        game="g",
        seat=role,
        role=role,
        policy="shared",
        version=1,
        trained=True,
        turns=tuple(found),
        streams=(stream,),
        seed=seed,
    )


def make_groups(*scores: list[float], **settings: Any) -> list[Trajectory]:
    """A group of matches for each list of scores, a deal each."""
    numbered = [(seed, score) for seed, own in enumerate(scores) for score in own]
    return [
        make_scored_trajectory(score, seed, f"0001-{i:04d}", **settings) for i, (seed, score) in enumerate(numbered)
    ]


def assign_credit(found: list[Trajectory], *rules: Any, **credit: Any) -> list[CreditedTrajectory]:
    """The trajectories after selection by `rules` and credit."""
    return assign(TurnBatch(found), CreditSpec(select=list(rules), **credit))
