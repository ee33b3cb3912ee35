"""Words said in runs as texts, and texts as unit vectors: turns, thoughts, whole matches.

A turn's text is its act and what the others heard with it; a thought is what nobody heard; a match is its turns, a line
each, with who took them. MiniLM reads 256 word pieces at a time, so a long text is read in pieces of whole lines and
its vector is their mean, the longer pieces weighing more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from analysis.frames import Frames
from arena.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Unit = Literal["turns", "thoughts", "matches"]
UNITS: tuple[Unit, ...] = ("turns", "thoughts", "matches")
Embedding = Literal["minilm", "hashed"]
"""By meaning, or by words alone: simulators/embedding.py."""
KEYS = {"turns": ["run", "match", "turn"], "thoughts": ["run", "match", "turn"], "matches": ["run", "match"]}
"""What a row of each unit is called by."""
PIECE = 700
"""Characters that are read at once: about 200 word pieces."""


def texts(log: Frames, of: Unit = "turns") -> pd.DataFrame:
    """A row per turn, thought or match that has a text, in the order of the log: its keys, iteration, and `text`.

    Turns and thoughts have their seat, role and policy beside. ConfigError for another unit.

    >>> texts(log).loc[0, ["match", "seat", "text"]].tolist()
    ['0000-0000', 'opener', 'OFFER 1 0 2 | $fair$ [/b]']
    >>> print(texts(log, "matches").loc[0, "text"])
    opener: OFFER 1 0 2 | $fair$ [/b]
    responder: ACCEPT | $fair$ [/b]
    """
    if of not in UNITS:
        raise ConfigError(f"there are no texts of '{of}' (one of: {', '.join(UNITS)})")
    said = ["private"] if of == "thoughts" else ["action", "public"]
    turns = log.frame("turns", ["run", "match", "iteration", "turn", "seat", "role", "policy", *said])
    if of == "thoughts":
        turns["text"] = turns["private"]
    else:
        joined = [_joined(*both) for both in zip(turns["action"], turns["public"], strict=True)]
        turns["text"] = pd.Series(joined, dtype=turns["seat"].dtype, index=turns.index)
    rows = turns.drop(columns=said)
    if of == "matches":
        rows["text"] = rows["seat"] + ": " + rows["text"]
        rows = rows.groupby(["run", "match", "iteration"], sort=False)["text"].agg("\n".join).reset_index()
    return rows[rows["text"].str.strip() != ""].reset_index(drop=True)


def _joined(action: str, public: str) -> str:
    """The act, and what was said with it unless that is the act itself."""
    return " | ".join(dict.fromkeys(part for part in (action, public) if part))


def vectors(said: Sequence[str], embedding: Embedding = "minilm") -> NDArray[np.float32]:
    """Unit vectors [n, d] of texts; ConfigError where what makes them is not installed.

    >>> both = vectors(["I walk away.", "I walk away!"], "hashed")
    >>> both.shape, float(both[0] @ both[1]).__round__(3)
    ((2, 256), 1.0)
    """
    pieces = [list(_pieces(text)) for text in said]
    flat = list(dict.fromkeys(piece for own in pieces for piece in own))
    if not flat:
        return np.zeros((0, 1), np.float32)
    place = {piece: number for number, piece in enumerate(flat)}
    read = _embedded(flat, embedding)
    sums = np.stack([sum(len(piece) * read[place[piece]] for piece in own) for own in pieces])
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    return np.ascontiguousarray(sums / np.where(lengths > 0, lengths, 1), np.float32)


def _embedded(pieces: list[str], embedding: Embedding) -> Any:
    from simulators.embedding import EMBEDDINGS, embed_catalogue

    if embedding not in EMBEDDINGS:
        raise ConfigError(f"there is no embedding '{embedding}' (one of: {', '.join(EMBEDDINGS)})")
    try:
        return embed_catalogue(pieces, embedding)
    except ValueError:
        raise ConfigError("meaning needs sentence-transformers: pip install 'arena-selfplay[analysis,maps]'") from None


def _pieces(text: str) -> Iterator[str]:
    """The text in whole lines, as many as fit; a longer line by its characters. At least one piece, of at least 1."""
    held = ""
    for line in text.splitlines() or [text]:
        if held and len(held) + len(line) >= PIECE:
            yield held
            held = ""
        held = f"{held}\n{line}" if held else line
        while len(held) > PIECE:
            yield held[:PIECE]
            held = held[PIECE:]
    if held or not text.strip():
        yield held or " "


def index(of: NDArray[np.float32]) -> Any:
    """A faiss index over unit vectors [n, d]; ConfigError where faiss is not installed.

    >>> index(vectors(["yes", "no"], "hashed")).search(vectors(["no"], "hashed"), 1)[1].tolist()
    [[1]]
    """
    from simulators.nearest import build

    try:
        return build(of)
    except ValueError:
        raise _without_faiss() from None


def grouped(of: NDArray[np.float32], clusters: int, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """k-means by faiss: which group each of the vectors [n, d] is in [n], and the groups' centres [k, d].

    >>> grouped(vectors(["yes", "no", "yes"], "hashed"), 2)[0].tolist() in ([0, 1, 0], [1, 0, 1])
    True
    """
    from simulators.nearest import kmeans

    try:
        return kmeans(of, clusters, seed)
    except ValueError:
        raise _without_faiss() from None


def _without_faiss() -> ConfigError:
    return ConfigError("maps need faiss: pip install 'arena-selfplay[analysis,maps]'")
