"""The measure `gold`: the policy's log-probability of the right answer before each of its turns."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from agents.chat import ChatFrame
from agents.packing import find_common_prefix
from agents.scoring import StreamScores
from agents.stream import Stream, answer_stream
from arena.credit.rewards.information_gain import Gold
from arena.errors import ConfigError
from arena.records import Trajectory

Score = Callable[[Sequence[Stream], Sequence[float]], Awaitable[list[StreamScores]]]


async def measure_beliefs(
    trajectories: Sequence[Trajectory], frame: ChatFrame, score: Score, gold: Gold
) -> list[NDArray[np.float32]]:
    """Measure the policy's belief in the right answer before each turn.

    Returns one array per trajectory with one belief per turn: the mean log-probability, at temperature 1, of the
    answer's tokens. The context of turn k ends at its first sampled token; `gold.before` and the answer follow as the
    reply's content. `score` computes the log-probabilities, with one forward pass over every turn's context. Works in
    chunks of trajectories, because contexts are much larger than streams. Raises ConfigError if a match report has no
    answer.
    """
    by_trajectory: list[NDArray[np.float32]] = []
    for start in range(0, len(trajectories), _CHUNK_SIZE):
        questions = [
            _build_answer_streams(trajectory, frame, gold) for trajectory in trajectories[start : start + _CHUNK_SIZE]
        ]
        streams = [stream for trajectory_streams in questions for stream in trajectory_streams]
        scored = await score(streams, [1.0] * len(streams))
        means = np.array([scores.logprobs.mean() for scores in scored], np.float32)
        by_trajectory += np.split(means, np.cumsum([len(trajectory_streams) for trajectory_streams in questions])[:-1])
    return by_trajectory


_CHUNK_SIZE = 64


def _build_answer_streams(trajectory: Trajectory, frame: ChatFrame, gold: Gold) -> list[Stream]:
    """Build one stream per turn: context, `gold.before`, and the answer, whose tokens alone count as sampled."""
    answer = get_answer(trajectory.game, trajectory.report, gold)
    ids = frame.encode(gold.before + answer)
    # A token that spans the end of `gold.before` and the start of the answer belongs to the answer.
    opening = list(find_common_prefix([frame.encode(gold.before), ids]))
    contexts = trajectory.contexts()
    answer_ids = ids[len(opening) :]
    return [answer_stream(contexts[turn.index], opening, answer_ids, turn.index) for turn in trajectory.turns]


def get_answer(game: str, report: Mapping[str, float | bool | str], gold: Gold) -> str:
    """Return the right answer, the match report's entry `gold.entry`. Raises ConfigError if it is no text or blank."""
    answer = report.get(gold.entry)
    if not isinstance(answer, str) or not answer.strip():
        texts = ", ".join(name for name, value in report.items() if isinstance(value, str) and name != "ended")
        known = f"its texts: {texts}" if texts else "it has no text"
        raise ConfigError(
            f"credit.stages: information_gain: the report of {game} has no answer in '{gold.entry}' ({known}): "
            "name the entry in `gold`, or leave the stage out"
        )
    return answer
