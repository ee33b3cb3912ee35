"""Encoding of rows of data sets as training samples."""

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
    """Samples of some rows, and `too_long`: how many rows were left out because they exceed the policy's context."""

    samples: list[Sample]
    too_long: int


@dataclass(frozen=True)
class RowEncoder:
    """Encoder of a data set's rows as samples for one policy."""

    rows: DataSet
    frame: ChatFrame
    """The policy's chat frame."""
    max_tokens: int
    """The policy's maximum context in tokens."""
    units: UnitSplitter | None = None
    """Splitter of the replies in chats; None keeps them whole."""

    def samples(self, numbers: Sequence[int], source: Source = "logged") -> EncodedRows:
        """Encode the rows `numbers` as samples with behaviour log-probabilities of 0.

        Chats and texts have advantage 1. Texts are split into pieces of at most the context's length. A pair gives two
        samples with the same pair number: the chosen completion with advantage 1 and the rejected one with -1. A
        labelled completion has advantage 1 or -1. For the loss `kto`, it comes with a sample that is out of the loss:
        the same prompt with the completion of the previous row. Raises ConfigError, with file and row, for a row that
        cannot be encoded.
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
            return encode_text(self.frame, row["text"], self.max_tokens)

        streams = [stream for number in numbers for stream in self._encode_row(number, encode) or ()]
        return EncodedRows([make_sample(stream, 1.0, source) for stream in streams], 0)

    def _pairs(self, numbers: Sequence[int], source: Source) -> EncodedRows:
        def encode(row: dict[str, Any]) -> list[Stream]:
            parts = [(row["prompt"], row[name], row.get("tools")) for name in ("chosen", "rejected")]
            return [encode_completion(self.frame, *each, self.rows.folder) for each in parts]

        samples, too_long = list[Sample](), 0
        for pair, number in enumerate(numbers):
            if streams := self._encode_row(number, encode):
                samples += [make_sample(s, sign, source, pair) for s, sign in zip(streams, (1.0, -1.0), strict=True)]
            else:
                too_long += 1
        return EncodedRows(samples, too_long)

    def _labels(self, numbers: Sequence[int], source: Source) -> EncodedRows:
        def encode(row: dict[str, Any]) -> list[Stream]:
            parts = row["prompt"], row["completion"], row.get("tools")
            return [encode_completion(self.frame, *parts, self.rows.folder)]

        encoded = [(number, streams[0]) for number in numbers if (streams := self._encode_row(number, encode))]
        samples = []
        for pair, (number, stream) in enumerate(encoded):
            row, other = self.rows[number], self.rows[encoded[pair - 1][0]]
            samples.append(make_sample(stream, 1.0 if row["label"] else -1.0, source, pair))
            text = other["completion"]
            mismatched = self._encode_row(number, lambda row, text=text: encode({**row, "completion": text}))  # type: ignore[misc]
            if mismatched and len(encoded) > 1:
                samples.append(make_sample(mismatched[0], 0.0, source, pair, is_learned=False))
        return EncodedRows(samples, len(numbers) - len(encoded))

    def _encode_row(self, number: int, encode: Callable[[dict[str, Any]], list[Stream]]) -> list[Stream] | None:
        """Return a row's streams, or None if one exceeds the context. Raises ConfigError for a malformed row."""
        row = self.rows[number]
        try:
            streams = encode(row)
        except ChatRowError as error:
            raise self.rows.make_error(number, str(error)) from None
        return streams if max(map(len, streams)) <= self.max_tokens else None


def make_sample(
    stream: Stream, advantage: float, source: Source = "logged", pair: int | None = None, is_learned: bool = True
) -> Sample:
    """Return a sample of the stream at temperature 1. All its masked tokens get this advantage and pair number."""
    count = stream.sampled_count
    zeros = np.zeros(count, np.float32)
    return Sample(
        stream=stream,
        advantages=np.full(count, advantage, np.float32),
        behaviour=zeros,
        temperature=1.0,
        places=np.array([t for t, sampled in zip(stream.turns, stream.mask, strict=True) if sampled], np.int64),
        learned=np.full(count, is_learned),
        pairs=None if pair is None else np.full(count, pair, np.int64),
        source=source,
    )
