"""Data sets of one kind of row, with validation, and the random order of their rows in training."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from agents.chat_streams import ChatRowError, join_messages, parse_chat
from agents.image_parts import ImageParts
from arena.data.folders import DatasetFolder
from arena.data.lines import LineFile
from arena.errors import ConfigError
from arena.parts.chance import generator

RowKind = Literal["chats", "texts", "pairs", "labels"]
COLUMNS: dict[RowKind, tuple[tuple[str, ...], ...]] = {
    "chats": (("messages",), ("prompt", "completion")),
    "texts": (("text",),),
    "pairs": (("prompt", "chosen", "rejected"),),
    "labels": (("prompt", "completion", "label"),),
}
"""Alternative sets of required columns of each kind of row.

The optional columns are `tools` and, with `messages`, `opening`. Others are ignored.
"""
MAX_HELD_OUT = 1000
"""Maximum number of held-out rows."""


class Rows(Protocol):
    """Rows of a file or folder, as `LineFile` and `DatasetFolder` provide them."""

    sha256: str
    """Hash of the files' contents."""

    def __len__(self) -> int:
        """Return the number of rows, at least 1."""

    def __getitem__(self, number: int) -> dict[str, Any]:
        """Return row `number`, from 0. Raises ConfigError if it is malformed, and StoreError if the file changed."""

    def locate(self, number: int) -> str:
        """Return a row's file and number, for error messages."""

    def close(self) -> None:
        """Close the files."""


class DataSet:
    """Data set whose rows are of one kind: chats, texts, preference pairs or labelled completions."""

    def __init__(self, path: Path) -> None:
        """Open a JSON Lines file, a Parquet file or a folder of the `datasets` library.

        The first row determines the kind. Raises ConfigError or StoreError if the file or that row is invalid.
        """
        is_folder = path.is_dir() or path.suffix == ".parquet"
        self.folder = path if path.is_dir() else path.parent
        """Folder to which image paths in rows are relative."""
        self.rows: Rows = DatasetFolder(path) if is_folder else LineFile(path)
        try:
            self.kind = self._read_kind(0)
        except BaseException:
            self.close()
            raise
        self.sha256 = self.rows.sha256
        """Hash of the rows' files. After `check`, it includes the image files that rows name."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def __getitem__(self, number: int) -> dict[str, Any]:
        """Return row `number`, from 0. Raises ConfigError, with file and row, if it is not of the first row's kind."""
        row = self.rows[number]
        if (kind := find_kind(row)) != self.kind:
            raise self.make_error(
                number, f"{kind or 'a row'} among {self.kind}: expected {_describe_columns(self.kind)}"
            )
        return row

    def check(self, on_row: Callable[[int], None] = lambda number: None) -> None:
        """Validate every row and hash its images. Calls `on_row` with the number of each validated row.

        Raises ConfigError, with file and row, for a malformed one.
        """
        digest, has_files = hashlib.sha256(self.rows.sha256.encode()), False
        for number in range(len(self)):
            images = ImageParts(self.folder)
            try:
                _check(self[number], self.kind, images)
            except ChatRowError as error:
                raise self.make_error(number, str(error)) from None
            for name in images.files:
                digest.update(name.encode())
                has_files = True
            on_row(number)
        self.sha256 = digest.hexdigest() if has_files else self.rows.sha256

    def make_error(self, number: int, reason: str) -> ConfigError:
        """Return a ConfigError about a row, with its file and number."""
        return ConfigError(f"{self.rows.locate(number)}: {reason}")

    def close(self) -> None:
        """Close the files."""
        self.rows.close()

    def _read_kind(self, number: int) -> RowKind:
        if kind := find_kind(self.rows[number]):
            return kind
        raise self.make_error(number, f"expected {', or '.join(map(_describe_columns, COLUMNS))}")


def find_kind(row: dict[str, Any]) -> RowKind | None:
    """Return the kind of a row by its columns; None if none fits. If several fit, it is the one with most columns."""
    kinds = [(len(names), kind) for kind, choices in COLUMNS.items() for names in choices if row.keys() >= {*names}]
    return max(kinds)[1] if kinds else None


def get_chat(row: dict[str, Any]) -> tuple[list[Any], int]:
    """Return the messages of a chat row, and how many of them at the start are not learned. Raises ChatRowError."""
    if "messages" not in row:
        return join_messages(row["prompt"], row["completion"])
    opening = row.get("opening", 0)
    if type(opening) is not int or opening < 0:
        raise ChatRowError("opening: expected a number of messages")
    return row["messages"], opening


def _check(row: dict[str, Any], kind: RowKind, images: ImageParts) -> None:
    """Raise ChatRowError if a row of this kind is malformed. `images` reads and collects its images."""
    if kind == "texts":
        if not isinstance(row["text"], str) or not row["text"]:
            raise ChatRowError("text: expected a non-empty text")
        return
    if kind == "chats":
        parse_chat(get_chat(row)[0], row.get("tools"), images)
        return
    if kind == "labels" and not isinstance(row["label"], bool):
        raise ChatRowError("label: expected true or false")
    for name in ("completion",) if kind == "labels" else ("chosen", "rejected"):
        try:
            parse_chat(join_messages(row["prompt"], row[name])[0], row.get("tools"), images)
        except ChatRowError as error:
            raise ChatRowError(str(error) if name == "completion" else f"prompt with {name}: {error}") from None


def _describe_columns(kind: RowKind) -> str:
    return " or ".join(" with ".join(names) for names in COLUMNS[kind])


class RowOrder:
    """Order in which training visits a data set's rows: a new permutation per epoch, without the held-out rows.

    It depends only on the arguments, so a resumed run repeats it.
    """

    def __init__(self, rows: int, seed: int, held_out: float = 0.0, epochs: int | None = None) -> None:
        """Choose the held-out rows: the share `held_out` of all, at least one unless it is 0, at most `MAX_HELD_OUT`.

        The order ends after `epochs` passes; None repeats without end. Raises ValueError if no row is left to train on.
        """
        self._seed = seed
        count = min(MAX_HELD_OUT, max(1, round(held_out * rows))) if held_out else 0
        if count >= rows:
            raise ValueError(f"held_out: {rows} rows leave nothing to learn from")
        order = generator(seed, 0, "held out").permutation(rows) if count else np.arange(rows)
        self.held_out: list[int] = sorted(order[:count].tolist())
        self._train_rows = np.sort(order[count:])
        self._end = None if epochs is None else epochs * len(self._train_rows)
        self._permutation: tuple[int, np.ndarray] = -1, self._train_rows

    def batches(self, size: int) -> int:
        """Return the number of batches of this size in all epochs. Raises ValueError without `epochs`."""
        if self._end is None:
            raise ValueError("the order has no end")
        return -(-self._end // size)

    def batch(self, k: int, size: int) -> list[int]:
        """Return the row numbers of batch `k`, from 1. A batch may span two epochs; the last may be smaller."""
        end = k * size if self._end is None else min(self._end, k * size)
        return [self._get_row(position) for position in range((k - 1) * size, end)]

    def _get_row(self, position: int) -> int:
        epoch, offset = divmod(position, len(self._train_rows))
        if self._permutation[0] != epoch:
            self._permutation = epoch, generator(self._seed, epoch, "rows").permutation(self._train_rows)
        return int(self._permutation[1][offset])
