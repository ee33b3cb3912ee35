"""Parts of a match as rows of plain values, and back: its identity, messages, streams."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, get_args

import numpy as np

from agents.stream import Stream
from games.contracts import CUT, Image, MatchId, Message

Deal = TypeVar("Deal", bound=Hashable)
Row = TypeVar("Row", bound=Mapping[str, Any])


def identity_row(match: MatchId) -> dict[str, Any]:
    """A match's identity in the log's columns; what only a branch has only where it is one."""
    row = {"id": str(match), "iteration": match.iteration, "deal": match.deal, "attempt": match.attempt}
    return row | {"parent": str(match.parent), "parent_turn": match.turn} if match.parent else row


def identity_of(row: Mapping[str, Any]) -> MatchId:
    """The identity in a row's columns; ValueError where the printed id is another one."""
    parent = MatchId.parse(row["parent"]) if row.get("parent") else None
    turn = row["parent_turn"] if parent else None
    match = MatchId(row["iteration"], row["deal"], row["attempt"], parent, turn)
    if str(match) != row["id"]:
        raise ValueError(f"its id {str(row['id'])[:80]!r} is not that of {match}")
    return match


def known(source: Any, sources: Any) -> Any:
    """The source of a match or turn itself, where it is one of the literals; ValueError otherwise."""
    if source not in get_args(sources):
        raise ValueError(f"its source {str(source)[:80]!r} is none of {', '.join(get_args(sources))}")
    return source


def message_row(message: Message) -> dict[str, Any]:
    """A message's words, and beside them, where it has any, its images with the place of each among the words.

    Of texts that follow each other one remains, as `Message.text` has them, with a blank between.
    """
    words, images, before = "", [], None
    for part in message.parts:
        if isinstance(part, Image):
            images.append({"place": len(words), **vars(part)})
        elif part:
            words += f" {part}" if isinstance(before, str) else part
        before = part or before
    row = {"sender": message.sender, "text": words}
    return row | {"images": images} if images else row


def message(row: Mapping[str, Any]) -> Message:
    """The message of a row; ValueError for one that is none."""
    if not (images := row.get("images")):
        return Message(row["sender"], (row["text"],))
    words, parts, end = row["text"], list[str | Image](), 0
    for image in images:
        if not end <= image["place"] <= len(words):
            raise ValueError(f"images stand in order among {len(words)} characters, not at {image['place']}")
        parts += [words[end : image["place"]], Image(image["hash"], image["media"], image["width"], image["height"])]
        end = image["place"]
    return Message(row["sender"], tuple([part for part in (*parts, words[end:]) if part]))


def stream_row(stream: Stream, seat: str) -> dict[str, list[Any]]:
    """A stream's lists, log-probabilities and entropies rounded to float32; ValueError for what no schema has room for.

    Entropies only where they were kept.
    """
    if not len(stream.ids) == len(stream.mask) == len(stream.logprobs) == len(stream.turns):
        raise ValueError(f"the lists of {seat}'s stream differ in length")
    logprobs = _float32(stream.logprobs, f"a log-probability in {seat}'s stream")
    if any(not 0 <= token < 2**31 for token in stream.ids):
        raise ValueError(f"a token id in {seat}'s stream is not one of 31 bits")
    row: dict[str, list[Any]] = {
        "ids": [int(token) for token in stream.ids],
        "mask": [bool(sampled) for sampled in stream.mask],
        "logprobs": logprobs,
        "turns": [int(turn) for turn in stream.turns],
    }
    if stream.entropy:
        row["entropy"] = _float32(stream.entropy, f"an entropy in {seat}'s stream")
    return row


def _float32(values: Sequence[float], what: str) -> list[float]:
    """The values rounded to float32; ValueError for one that is not finite."""
    with np.errstate(over="ignore"):
        rounded = np.asarray(values, dtype=np.float32)
    if not np.isfinite(rounded).all():
        raise ValueError(f"{what} is not finite")
    return rounded.tolist()  # type: ignore[no-any-return]


def zero_sum(outcomes: Iterable[tuple[Mapping[str, float], Mapping[str, Any]]]) -> bool:
    """Return True if payoffs, each with its match's report, cancel out in every match that went to its own end.

    And some payoff is not 0.
    """
    paid = [payoffs.values() for payoffs, report in outcomes if report.get("ended") not in ("illegal", *CUT)]
    return all(abs(sum(values)) < 1e-9 for values in paid) and any(any(values) for values in paid)
