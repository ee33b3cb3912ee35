"""Conversion of a match's identity, messages and token streams to rows of plain values and back."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, get_args

import numpy as np

from agents.stream import MediaSpan, Stream, compute_keys
from games.contracts import CUT, Image, MatchId, Message

Deal = TypeVar("Deal", bound=Hashable)
Row = TypeVar("Row", bound=Mapping[str, Any])


def identity_to_row(match: MatchId) -> dict[str, Any]:
    """Return a match's identity as columns of the log: id, iteration, deal, attempt; for branches, parent and turn."""
    row = {"id": str(match), "iteration": match.iteration, "deal": match.deal, "attempt": match.attempt}
    return row | {"parent": str(match.parent), "parent_turn": match.turn} if match.parent else row


def identity_from_row(row: Mapping[str, Any]) -> MatchId:
    """Return the match identity in a row's columns. Raises ValueError if they contradict the row's `id`."""
    parent = MatchId.parse(row["parent"]) if row.get("parent") else None
    match = MatchId(row["iteration"], row["deal"], row["attempt"], parent, row["parent_turn"] if parent else -1)
    if str(match) != row["id"]:
        raise ValueError(f"its id {str(row['id'])[:80]!r} does not match its columns, {match}")
    return match


def require_source(source: Any, sources: Any) -> Any:
    """Return `source` unchanged. Raises ValueError unless it is a value of `sources`, a Literal type."""
    if source not in get_args(sources):
        raise ValueError(f"its source {str(source)[:80]!r} is none of {', '.join(get_args(sources))}")
    return source


def message_to_row(message: Message) -> dict[str, Any]:
    """Return a message as a dict: sender, text, and any images with their positions in the text.

    Adjacent texts are joined by a space, as in `Message.text`.
    """
    text, images, previous = "", [], None
    for part in message.parts:
        if isinstance(part, Image):
            images.append({"place": len(text), **vars(part)})
        elif part:
            text += f" {part}" if isinstance(previous, str) else part
        previous = part or previous
    row = {"sender": message.sender, "text": text}
    return row | {"images": images} if images else row


def message_from_row(row: Mapping[str, Any]) -> Message:
    """Restore a message from a row of `message_to_row`. Raises ValueError if image positions are not in order."""
    if not (images := row.get("images")):
        return Message(row["sender"], (row["text"],))
    text, parts, end = row["text"], list[str | Image](), 0
    for image in images:
        if not end <= image["place"] <= len(text):
            raise ValueError(f"image positions must ascend from 0 to {len(text)}: {image['place']} does not")
        parts += [text[end : image["place"]], Image(image["hash"], image["media"], image["width"], image["height"])]
        end = image["place"]
    return Message(row["sender"], tuple([part for part in (*parts, text[end:]) if part]))


def stream_to_row(stream: Stream, seat: str) -> dict[str, list[Any]]:
    """Return a stream as lists by name, with log-probabilities and entropies rounded to float32.

    Images are stored by hash, without their bytes. Empty lists of entropies and images are omitted. Raises ValueError
    for lists of different lengths, values that are not finite, and token ids of more than 31 bits.
    """
    if not len(stream.ids) == len(stream.mask) == len(stream.logprobs) == len(stream.turns):
        raise ValueError(f"the lists of {seat}'s stream differ in length")
    logprobs = _round_to_float32(stream.logprobs, f"a log-probability in {seat}'s stream")
    if any(not 0 <= token < 2**31 for token in stream.ids):
        raise ValueError(f"a token id in {seat}'s stream is outside [0, 2^31)")
    row: dict[str, list[Any]] = {
        "ids": [int(token) for token in stream.ids],
        "mask": [bool(sampled) for sampled in stream.mask],
        "logprobs": logprobs,
        "turns": [int(turn) for turn in stream.turns],
    }
    if stream.entropy:
        row["entropy"] = _round_to_float32(stream.entropy, f"an entropy in {seat}'s stream")
    if stream.media:
        row["media"] = [_span_to_row(span) for span in stream.media]
    return row


def stream_from_row(row: Mapping[str, Any], picture: Callable[[str], bytes]) -> Stream:
    """Restore a stream from a row of `stream_to_row`. `picture` returns an image's bytes by its hash.

    Raises ValueError if the lists differ in length, or if images overlap or lie outside the tokens.
    """
    stream = Stream(**{name: values for name, values in row.items() if name != "media"})
    if images := row.get("media"):
        compute_keys(stream.ids, spans := [_span_from_row(image) for image in images])
        stream.media = [replace(span, data=picture(span.hash)) for span in spans]
    return stream


def _span_to_row(span: MediaSpan) -> dict[str, Any]:
    height, width = span.size or (0, 0)
    return {"start": span.start, "length": span.length, "hash": span.hash, "height": height, "width": width}


def _span_from_row(row: Mapping[str, Any]) -> MediaSpan:
    size = (row["height"], row["width"]) if row.get("height") else None
    return MediaSpan(row["start"], row["length"], row["hash"], size=size)


def _round_to_float32(values: Sequence[float], label: str) -> list[float]:
    """Round values to float32. Raises ValueError, naming `label`, for a value that is not finite."""
    with np.errstate(over="ignore"):
        rounded = np.asarray(values, dtype=np.float32)
    if not np.isfinite(rounded).all():
        raise ValueError(f"{label} is not finite")
    return rounded.tolist()  # type: ignore[no-any-return]


def is_zero_sum(outcomes: Iterable[tuple[Mapping[str, float], Mapping[str, Any]]]) -> bool:
    """Return True if payoffs sum to zero in every match, and some payoff is not 0.

    `outcomes` has (payoffs, report) of each match. Matches that were truncated or ended by an illegal act are ignored.
    """
    payoff_rows = [payoffs.values() for payoffs, report in outcomes if report.get("ended") not in ("illegal", *CUT)]
    return all(abs(sum(values)) < 1e-9 for values in payoff_rows) and any(any(values) for values in payoff_rows)
