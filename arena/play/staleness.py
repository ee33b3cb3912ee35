"""Staleness: how old the replies are that weights learn from, and the gate where hardly any are by those weights.

With `play.ahead` most replies may be by older versions, of which the gate between sampler and trainer can say nothing.
Then the engine writes a few replies again, in places where the policy has just played, and the gate compares those.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from agents.chat import ChatFrame
from agents.engines.base import Engine, Request
from agents.role import Role
from agents.stream import Stream
from arena.credit.batch import Credited
from arena.errors import GateError
from arena.learn.base import Trainer
from arena.learn.gate import require_alike
from arena.learn.ranks import Tally

ENOUGH = 64
"""Tokens by the present weights with which the gate is content."""
REPLIES = 32
"""Number of replies that are written for it otherwise, at most one to a trajectory."""


def lags(credited: Sequence[Credited], version: int, most: int) -> dict[str, float]:
    """Versions by which replies are older than `version`: mean over tokens, highest; and the tokens that are not.

    `across`: the share of trajectories whose turns are of several versions. GateError where a reply is older than by
    `most`, or newer than the weights.
    """
    tokens = Counter[int]()
    for item in credited:
        for turn in item.trajectory.turns:
            tokens[version - turn.version] += turn.tokens
    if wrong := [lag for lag in tokens if not 0 <= lag <= most]:
        raise GateError(
            f"the engine says that version {version - wrong[0]} wrote what version {version} is to learn from, "
            f"and with play.ahead and play.enough it may be {most} older at most"
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
    engine: Engine, trainer: Trainer, frame: ChatFrame, roles: Mapping[str, Role], credited: Sequence[Credited],
    tolerance: float, seed: tuple[int, ...],
) -> int:  # fmt: skip
    """Have the engine write replies that the trainer's present weights score as well; return the tokens compared.

    GateError where they differ; nothing is learned from them.
    """
    requests = list(_requests(frame, roles, credited, seed))
    if not requests:
        return 0
    replies = await engine.generate(requests)
    streams = []
    for request, reply in zip(requests, replies, strict=True):
        engine.forget(request.key)
        streams.append(Stream())
        streams[-1].observe(request.ids)
        streams[-1].wrote(reply.ids, reply.logprobs, 0)
    scores = await trainer.score(streams, [request.temperature for request in requests])
    pairs = zip(scores, replies, strict=True)
    gaps = Tally.of([score.logprobs - np.asarray(reply.logprobs, np.float32) for score, reply in pairs])
    require_alike(requests[0].policy, gaps, tolerance)
    return gaps.count


def _requests(
    frame: ChatFrame, roles: Mapping[str, Role], credited: Sequence[Credited], seed: tuple[int, ...]
) -> Iterator[Request]:
    """Requests for a reply where some of these trajectories began, evenly chosen."""
    chosen = credited[:: max(1, len(credited) // REPLIES)][:REPLIES]
    for number, item in enumerate(chosen):
        contexts, sampling = item.trajectory.contexts(), roles[item.trajectory.role].sampling
        for ids in list(contexts.values())[:1]:
            yield Request(
                item.trajectory.policy, tuple(ids), f"gate/{number}", sampling.max_tokens, sampling.temperature,
                sampling.top_p, sampling.top_k, frame.stop_ids, (*seed, number),
            )  # fmt: skip
