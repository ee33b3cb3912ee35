"""Measures: values that models compute for credit beforehand, one array per trajectory and name.

| name | per | value |
|---|---|---|
| `old` | sampled token | log-probability under the weights before the update |
| `entropy` | sampled token | entropy in nats of the token's distribution |
| `reference` | sampled token | log-probability under the policy's reference weights |
| `gold` | turn | mean log-probability of the right answer's tokens before the turn (`arena.credit.gold`) |
| `values` | turn | the critic's state value V(s) |
| `action_values` | turn | the critic's value of the reply Q(s, a) |
| `token_values` | sampled token | the critic's value of the state before it |

Tokens are ordered stream after stream, as in `TurnBatch.token_turns`. Only measures that a part needs are computed.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from arena.credit.critics import list_critic_measures
from arena.credit.critics.base import Critic, Measures
from arena.credit.gold import measure_beliefs
from arena.credit.rewards.information_gain import Gold
from arena.policies import Policies
from arena.records import Trajectory


async def measure(
    names: frozenset[str],
    trajectories: Sequence[Trajectory],
    policies: Policies,
    temperatures: Mapping[str, float],
    gold: Gold | None = None,
    critic: Critic | None = None,
) -> Measures:
    """Compute the measures `names`: values of trajectories that models provide for credit assignment.

    Returns by name one array per trajectory, with one entry per sampled token (`old`, `entropy`, `reference`,
    `token_values`) or per turn (`gold`, `values`, `action_values`). `temperatures` are by role. `gold` locates the
    right answer, and is required for the measure `gold`. `critic` predicts the values.
    """
    measures: Measures = {name: [np.zeros(0, np.float32)] * len(trajectories) for name in names}
    by_policy: dict[str, list[int]] = defaultdict(list)
    for i, trajectory in enumerate(trajectories):
        by_policy[trajectory.policy].append(i)
    for policy, members in by_policy.items() if names else ():
        streams = [s for i in members for s in trajectories[i].streams]
        per_stream = [temperatures[trajectories[i].role] for i in members for _ in trajectories[i].streams]
        by_stream: dict[str, list[NDArray[np.float32]]] = {}
        if names & {"old", "entropy"}:
            scores = await policies.trainers[policy].score(streams, per_stream)
            by_stream |= {"old": [s.logprobs for s in scores], "entropy": [s.entropy for s in scores]}
        if "reference" in names:
            by_stream["reference"] = await policies.reference_scores(policy, streams, per_stream)
        if "gold" in names:
            assert gold is not None, "the measure `gold` needs its settings"
            own_trajectories, score = [trajectories[i] for i in members], policies.trainers[policy].score
            beliefs = await measure_beliefs(own_trajectories, policies[policy].frame, score, gold)
            for i, belief in zip(members, beliefs, strict=True):
                measures["gold"][i] = belief
        for name in names & by_stream.keys():
            stream_arrays = iter(by_stream[name])
            for i in members:
                arrays = [next(stream_arrays) for _ in trajectories[i].streams]
                measures[name][i] = np.concatenate(arrays) if arrays else np.zeros(0, np.float32)
    return measures | (
        await critic.predict(trajectories)
        if critic and names & frozenset().union(*list_critic_measures().values())
        else {}
    )
