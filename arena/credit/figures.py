"""Per-token values for the credit file: advantages, probability ratios and log-probability gaps."""

from collections.abc import Sequence

import numpy as np

from agents.scoring import StreamScores
from agents.stream import Stream
from arena.credit.credited import Credited

TokenFigures = dict[tuple[str, int], dict[str, list[float]]]
"""By match and turn: `advantages` where a turn's tokens differ in them, `ratios` and `gaps`, each by token, float32."""


def sampled_streams(credited: Sequence[Credited]) -> list[Stream]:
    """Return the streams with sampled tokens, trajectory after trajectory."""
    return [stream for item in credited for stream in item.trajectory.streams if stream.sampled]


def token_figures(
    credited: Sequence[Credited], before: Sequence[StreamScores], after: Sequence[StreamScores]
) -> TokenFigures:
    """Return the values of the trajectories' sampled tokens from the trainer's scores before and after an update.

    A ratio is p after / p before; a gap is the trainer's log p before the update minus the sampler's.
    """
    figures: TokenFigures = {}
    scores = zip(before, after, strict=True)
    for item in credited:
        offset = 0
        for stream in sampled_streams([item]):
            own = np.asarray(stream.mask, bool)
            old, new = (score.logprobs.astype(np.float64) for score in next(scores))
            columns = {"ratios": np.exp(new - old), "gaps": old - np.asarray(stream.logprobs)[own]}
            if item.tokens is not None:
                columns["advantages"] = item.tokens[offset : offset + len(old)]
            offset += len(old)
            turns = np.asarray(stream.turns)[own]
            for turn in np.unique(turns).tolist():
                figures[item.trajectory.match, turn] = {
                    name: column[turns == turn].astype(np.float32).tolist() for name, column in columns.items()
                }
    return figures
