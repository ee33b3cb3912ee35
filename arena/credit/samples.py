"""Training samples from credited trajectories: each sampled token gets its turn's advantage."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from agents.scoring import StreamScores
from agents.stream import Stream
from arena.credit.batch import CreditedTrajectory, Floats
from arena.credit.branches import find_pairs
from arena.learn.samples import Sample, Source
from arena.records import POLICY_SOURCES, Trajectory
from games.contracts import TurnSource

IMITATED: tuple[TurnSource, ...] = ("demonstration", "summary")
"""Sources of turns to imitate. By reward, a policy learns from the turns that it wrote itself (`POLICY_SOURCES`)."""


def make_samples(
    credited: Sequence[CreditedTrajectory],
    temperatures: Mapping[str, float],
    sources: Collection[TurnSource] = POLICY_SOURCES,
    version: int | None = None,
) -> list[Sample]:
    """Convert credited trajectories to training samples, one per stream with a token in the loss.

    `temperatures` are by role. Turns from other `sources` are context: they are not in the loss, and the gate does not
    compare them with the sampler. `version` is that of the weights to update; if given, samples mark the tokens that
    these weights sampled (`fresh`). The replies of a match and its branch to the same state get the same pair number.
    Turn boundaries come from the stream's turn ids.
    """
    samples = []
    paired = _number_pairs(credited)
    for number, item in enumerate(credited):
        indices = np.array([turn.index for turn in item.trajectory.turns], np.int64)
        learned = np.ones(len(indices), bool) if item.learned is None else item.learned
        context = [turn.index for turn in item.trajectory.turns if turn.source not in sources]
        fresh = None if version is None else np.array([t.version == version for t in item.trajectory.turns], bool)
        offset = 0
        for stream in item.trajectory.streams:
            mask = np.asarray(stream.mask, bool)
            count = int(mask.sum())
            tokens = None if item.tokens is None else item.tokens[offset : offset + count]
            offset += count
            if context:
                mask, tokens, stream = _move_to_context(stream, mask, tokens, context)
            places = np.searchsorted(indices, np.asarray(stream.turns, np.int64)[mask])
            advantages = item.advantages[places] if tokens is None else tokens
            if learned[places].any():
                samples.append(
                    Sample(
                        stream=stream,
                        advantages=advantages.astype(np.float32),
                        behaviour=np.asarray(stream.logprobs, np.float32)[mask],
                        temperature=temperatures[item.trajectory.role],
                        places=places,
                        learned=learned[places],
                        pairs=paired[number][places] if number in paired else None,
                        source=_get_source(item.trajectory),
                        fresh=None if fresh is None else fresh[places],
                    )
                )
    return samples


def _move_to_context(
    stream: Stream, own: NDArray[np.bool_], tokens: Floats | None, turns: Sequence[int]
) -> tuple[NDArray[np.bool_], Floats | None, Stream]:
    """Exclude the tokens of these turns from the mask, the token advantages and the stream's own mask."""
    mask = own & ~np.isin(stream.turns, turns)
    return mask, None if tokens is None else tokens[mask[own]], replace(stream, mask=mask.tolist())


def _get_source(trajectory: Trajectory) -> Source:
    """Return the samples' source: `replayed` from this run's log, `logged` from another run's, or `played`."""
    return "replayed" if trajectory.source == "recalled" else "logged" if trajectory.source == "replayed" else "played"


def _number_pairs(credited: Sequence[CreditedTrajectory]) -> dict[int, NDArray[np.int64]]:
    """Return, by trajectory index, a pair number per turn, -1 for none. Trajectories without a pair are left out."""
    numbers: dict[int, NDArray[np.int64]] = {}
    for number, pair in enumerate(find_pairs([item.trajectory for item in credited])):
        for index in (pair.first, pair.second):
            no_pairs = np.full(len(credited[index].trajectory.turns), -1, np.int64)
            numbers.setdefault(index, no_pairs)[pair.place] = number
    return numbers


TokenFigures = dict[tuple[str, int], dict[str, list[float]]]
"""Token values by name, for each (match, turn); made by `compute_token_figures`."""


def select_fresh(policy: str, credited: Iterable[CreditedTrajectory]) -> list[CreditedTrajectory]:
    """Return the credited trajectories of a policy, without replayed ones."""
    return [c for c in credited if c.trajectory.policy == policy and c.trajectory.source != "recalled"]


def list_sampled_streams(credited: Sequence[CreditedTrajectory]) -> list[Stream]:
    """Return all streams with a sampled token, trajectory after trajectory."""
    return [stream for item in credited for stream in item.trajectory.streams if stream.sampled_count]


def compute_token_figures(
    credited: Sequence[CreditedTrajectory], before: Sequence[StreamScores], after: Sequence[StreamScores]
) -> TokenFigures:
    """Return token values by match and turn, from the trainer's scores before and after an update.

    `before` and `after` score the streams of `list_sampled_streams`. Each turn has lists with a float32 value per
    sampled token: `ratios` (p after / p before), `gaps` (the trainer's log p before the update minus the sampler's),
    and `advantages` if its trajectory has them per token.
    """
    figures: TokenFigures = {}
    scores = zip(before, after, strict=True)
    for item in credited:
        offset = 0
        for stream in list_sampled_streams([item]):
            mask = np.asarray(stream.mask, bool)
            old, new = (score.logprobs.astype(np.float64) for score in next(scores))
            columns = {"ratios": np.exp(new - old), "gaps": old - np.asarray(stream.logprobs)[mask]}
            if item.tokens is not None:
                columns["advantages"] = item.tokens[offset : offset + len(old)]
            offset += len(old)
            turns = np.asarray(stream.turns)[mask]
            for turn in np.unique(turns).tolist():
                figures[item.trajectory.match, turn] = {
                    name: column[turns == turn].astype(np.float32).tolist() for name, column in columns.items()
                }
    return figures
