"""Staleness: the age in versions of the replies that weights learn from, and the gate for stale batches.

With `play.ahead`, most replies may be by older versions, which the gate between sampler and trainer cannot compare.
Then the engine samples a few new replies, in contexts of the iteration's matches, and the gate compares those.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from agents.chat import ChatFrame
from agents.engines.base import Engine, Request
from agents.role import Role
from agents.stream import Stream
from arena.credit.batch import CreditedTrajectory
from arena.errors import GateError
from arena.learn.base import Trainer
from arena.learn.gate import require_agreement
from arena.learn.ranks import Tally

MIN_FRESH_TOKENS = 64
"""Tokens sampled by the current weights that suffice for the gate."""
GATE_REPLIES = 32
"""Maximum number of new replies for the gate if a batch has fewer such tokens, at most one per trajectory."""


def measure_lags(credited: Sequence[CreditedTrajectory], version: int, max_lag: int) -> dict[str, float]:
    """Return metrics of the age of replies, in versions before `version`.

    `lag` is the mean over tokens, `most_lag` the maximum, `fresh` the number of tokens with lag 0, and `across` the
    share of trajectories with turns of several versions. Raises GateError for a reply older than `max_lag` or newer
    than `version`.
    """
    tokens = Counter[int]()
    for item in credited:
        for turn in item.trajectory.turns:
            tokens[version - turn.version] += turn.tokens
    if invalid := [lag for lag in tokens if not 0 <= lag <= max_lag]:
        raise GateError(
            f"version {version} would learn from replies of version {version - invalid[0]}, "
            f"but play.ahead and play.enough allow at most {max_lag} versions before it"
        )
    several = [len({turn.version for turn in item.trajectory.turns}) > 1 for item in credited]
    total = max(1, tokens.total())
    return {
        "lag": sum(lag * count for lag, count in tokens.items()) / total,
        "most_lag": float(max(tokens, default=0)),
        "fresh": float(tokens[0]),
        "across": sum(several) / max(1, len(several)),
    }


async def gate_replies(
    engine: Engine, trainer: Trainer, frame: ChatFrame, roles: Mapping[str, Role],
    credited: Sequence[CreditedTrajectory], tolerance: float, seed: tuple[int, ...],
) -> int:  # fmt: skip
    """Sample a few replies, score them with the trainer's weights, and return the number of tokens compared.

    The contexts are of credited trajectories; without any, returns 0. Raises GateError if the log-probabilities of
    engine and trainer differ by more than the tolerance. The replies are not trained on.
    """
    requests = list(_make_requests(frame, roles, credited, seed))
    if not requests:
        return 0
    replies = await engine.generate(requests)
    streams = []
    for request, reply in zip(requests, replies, strict=True):
        engine.forget(request.key)
        streams.append(Stream())
        streams[-1].observe(request.ids, request.media)
        streams[-1].append_sampled(reply.ids, reply.logprobs, 0)
    scores = await trainer.score(streams, [request.temperature for request in requests])
    pairs = zip(scores, replies, strict=True)
    gaps = Tally.of([score.logprobs - np.asarray(reply.logprobs, np.float32) for score, reply in pairs])
    require_agreement(requests[0].policy, gaps, tolerance)
    return gaps.count


def _make_requests(
    frame: ChatFrame, roles: Mapping[str, Role], credited: Sequence[CreditedTrajectory], seed: tuple[int, ...]
) -> Iterator[Request]:
    """Yield up to `GATE_REPLIES` requests for replies in the first contexts of evenly spaced trajectories."""
    sampled = credited[:: max(1, len(credited) // GATE_REPLIES)][:GATE_REPLIES]
    for number, item in enumerate(sampled):
        contexts, sampling = item.trajectory.contexts(), roles[item.trajectory.role].sampling
        for context in list(contexts.values())[:1]:
            yield Request(
                policy=item.trajectory.policy,
                ids=tuple(context.ids),
                media=tuple(context.media),
                key=f"gate/{number}",
                max_tokens=sampling.max_tokens,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                top_k=sampling.top_k,
                stop_ids=frame.stop_ids,
                seed=(*seed, number),
            )
