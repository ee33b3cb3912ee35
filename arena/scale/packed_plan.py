"""Serialisation of samples for a rank, as a few arrays over all tokens, which Ray sends without copies.

The log-probabilities and entropies of streams are not sent: learning uses those of the samples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.packing import Pass
from agents.stream import MediaSpan, Stream
from arena.learn.plan import Plan
from arena.learn.samples import Sample

_COLUMNS = ("advantages", "behaviour", "places", "learned", "reference", "pairs", "fresh")
"""Arrays of a sample with one entry per sampled token; the last three may be None."""


@dataclass(frozen=True)
class PackedStreams:
    """Token streams packed into arrays, one after the other."""

    numbers: tuple[int, ...]
    """Number of each stream in the plan."""
    sizes: NDArray[np.int64]
    """Number of tokens of each stream."""
    ids: NDArray[np.int32]
    mask: NDArray[np.bool_]
    turns: NDArray[np.int32]
    media: tuple[tuple[MediaSpan, ...], ...]

    @classmethod
    def of(cls, streams: Mapping[int, Stream]) -> "PackedStreams":
        """Pack streams, given by number."""
        values = streams.values()
        return cls(
            numbers=tuple(streams),
            sizes=np.array([len(stream) for stream in values], np.int64),
            ids=_concatenate([np.array(stream.ids, np.int32) for stream in values], np.int32),
            mask=_concatenate([np.array(stream.mask, np.bool_) for stream in values], np.bool_),
            turns=_concatenate([np.array(stream.turns, np.int32) for stream in values], np.int32),
            media=tuple(tuple(stream.media) for stream in values),
        )

    def unpack(self) -> dict[int, Stream]:
        """Return the streams by number. Their log-probabilities are 0."""
        ends = np.cumsum(self.sizes)[:-1]
        columns = zip(*(np.split(column, ends) for column in (self.ids, self.mask, self.turns)), strict=True)
        return {
            number: Stream(ids.tolist(), mask.tolist(), [0.0] * len(ids), turns.tolist(), media=list(media))
            for number, (ids, mask, turns), media in zip(self.numbers, columns, self.media, strict=False)
        }


@dataclass(frozen=True)
class PackedPlan:
    """One rank's part of an update plan, with its samples as arrays."""

    plan: Plan
    """The plan without its samples."""
    streams: PackedStreams
    counts: NDArray[np.int64]
    """Number of sampled tokens of each sample."""
    columns: dict[str, tuple[NDArray[np.bool_], NDArray[Any]]]
    """For each field of a sample: a mask of the samples that have it, and their concatenated values."""
    others: tuple[tuple[float, Any], ...]
    """Temperature and source of each sample."""


def pack_plan(plan: Plan) -> PackedPlan:
    """Pack one rank's plan."""
    samples = list(plan.samples.values())
    columns = {}
    for name in _COLUMNS:
        arrays = [getattr(sample, name) for sample in samples]
        present = [array for array in arrays if array is not None]
        columns[name] = np.array([array is not None for array in arrays], np.bool_), _concatenate(present, np.float32)
    return PackedPlan(
        plan=replace(plan, samples={}),
        streams=PackedStreams.of({number: sample.stream for number, sample in plan.samples.items()}),
        counts=np.array([len(sample.advantages) for sample in samples], np.int64),
        columns=columns,
        others=tuple((sample.temperature, sample.source) for sample in samples),
    )


def unpack_plan(packed: PackedPlan) -> Plan:
    """Restore the plan of a packed plan, with its samples."""
    fields: list[dict[str, Any]] = [{} for _ in packed.counts]
    for name, (present, joint) in packed.columns.items():
        parts = iter(np.split(joint, np.cumsum(packed.counts[present])[:-1]))
        for values, is_given in zip(fields, present, strict=True):
            values[name] = next(parts) if is_given else None
    streams = packed.streams.unpack().items()
    samples = {
        number: Sample(stream=stream, temperature=temperature, source=source, **values)
        for (number, stream), values, (temperature, source) in zip(streams, fields, packed.others, strict=True)
    }
    return replace(packed.plan, samples=samples)


def pack_scoring(
    streams: Sequence[Stream], temperatures: Sequence[float], share: Sequence[Pass]
) -> tuple[PackedStreams, dict[int, float], Sequence[Pass]]:
    """Return the arguments of `Rank.score` for a `share` of the passes: its streams, their temperatures, the share."""
    numbers = sorted({i for step in share for i in step.index})
    return PackedStreams.of({i: streams[i] for i in numbers}), {i: temperatures[i] for i in numbers}, share


def _concatenate(arrays: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    """Concatenate arrays; without any, return an empty array of this dtype."""
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype)
