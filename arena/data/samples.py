"""Training samples from rows of data sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from agents.chat import ChatFrame
from agents.chat_streams import ChatRowError, encode_chat, encode_completion, encode_text
from agents.stream import Stream
from arena.data.rows import DataSet, get_chat
from arena.data.units import UnitSplitter
from arena.learn.samples import Sample, Source


class EncodedRows(NamedTuple):
    """Samples of some rows, and the number of rows left out because they exceed the policy's context."""

    samples: list[Sample]
    too_long: int


@dataclass(frozen=True)
class RowEncoder:
    """Encoder of a data set's rows for one policy, by its chat frame and the length of its context in tokens."""

    rows: DataSet
    frame: ChatFrame
    longest: int
    units: UnitSplitter | None = None
    """Splits the replies of chats."""

    def samples(self, numbers: Sequence[int], source: Source = "logged") -> EncodedRows:
        """Encode rows as samples with log-probabilities 0.

        Chats and texts have advantage 1; texts are cut to the context's length. A pair is two samples with one pair
        number, advantage 1 of the chosen and -1 of the rejected completion. A labelled completion has advantage 1 or
        -1, and beside it a sample out of the loss: the same prompt with the completion before it in `numbers`, for the
        loss `kto`. Raises ConfigError, with file and row, for a row that cannot be encoded.
        """
        encode = {"chats": self._chats, "texts": self._texts, "pairs": self._pairs, "labels": self._labels}
        return encode[self.rows.kind](numbers, source)

    def _chats(self, numbers: Sequence[int], source: Source) -> EncodedRows:
        def encode(row: dict[str, Any]) -> list[Stream]:
            messages, opening = get_chat(row)
            if self.units:
                messages, opening = self.units.split(messages, opening)
            return [encode_chat(self.frame, messages, row.get("tools"), opening, self.rows.folder)]

        streams = [self._encode_row(number, encode) for number in numbers]
        samples = [make_sample(stream, 1.0, source) for each in streams if each for stream in each]
        return EncodedRows(samples, streams.count(None))

    def _texts(self, numbers: Sequence[int], source: Source) -> EncodedRows:
        def encode(row: dict[str, Any]) -> list[Stream]:
            return encode_text(self.frame, row["text"], self.longest)

        streams = [stream for number in numbers for stream in self._encode_row(number, encode) or ()]
        return EncodedRows([make_sample(stream, 1.0, source) for stream in streams], 0)

    def _pairs(self, numbers: Sequence[int], source: Source) -> EncodedRows:
        def encode(row: dict[str, Any]) -> list[Stream]:
            given = [(row["prompt"], row[name], row.get("tools")) for name in ("chosen", "rejected")]
            return [encode_completion(self.frame, *each, self.rows.folder) for each in given]

        samples, too_long = list[Sample](), 0
        for pair, number in enumerate(numbers):
            if streams := self._encode_row(number, encode):
                samples += [make_sample(s, sign, source, pair) for s, sign in zip(streams, (1.0, -1.0), strict=True)]
            else:
                too_long += 1
        return EncodedRows(samples, too_long)

    def _labels(self, numbers: Sequence[int], source: Source) -> EncodedRows:
        def encode(row: dict[str, Any]) -> list[Stream]:
            given = row["prompt"], row["completion"], row.get("tools")
            return [encode_completion(self.frame, *given, self.rows.folder)]

        kept = [(number, own[0]) for number in numbers if (own := self._encode_row(number, encode))]
        samples = []
        for pair, (number, stream) in enumerate(kept):
            row, other = self.rows[number], self.rows[kept[pair - 1][0]]
            samples.append(make_sample(stream, 1.0 if row["label"] else -1.0, source, pair))
            paired = other["completion"]
            crossed = self._encode_row(number, lambda row, paired=paired: encode({**row, "completion": paired}))  # type: ignore[misc]
            if crossed and len(kept) > 1:
                samples.append(make_sample(crossed[0], 0.0, source, pair, is_learned=False))
        return EncodedRows(samples, len(numbers) - len(kept))

    def _encode_row(self, number: int, encode: Callable[[dict[str, Any]], list[Stream]]) -> list[Stream] | None:
        """Return the streams of a row; None if one is longer than the context. ConfigError for a malformed row."""
        row = self.rows[number]
        try:
            streams = encode(row)
        except ChatRowError as error:
            raise self.rows.make_error(number, str(error)) from None
        return streams if max(map(len, streams)) <= self.longest else None


def make_sample(
    stream: Stream, advantage: float, source: Source = "logged", pair: int | None = None, is_learned: bool = True
) -> Sample:
    """Return a sample of the stream's masked tokens, all with this advantage and pair number, at temperature 1."""
    count = stream.sampled_count
    zeros = np.zeros(count, np.float32)
    return Sample(
        stream=stream,
        advantages=np.full(count, advantage, np.float32),
        behaviour=zeros,
        temperature=1.0,
        places=np.array([t for t, own in zip(stream.turns, stream.mask, strict=True) if own], np.int64),
        learned=np.full(count, is_learned),
        pairs=None if pair is None else np.full(count, pair, np.int64),
        source=source,
    )
