"""Training examples of reward models from the rows of a data set, encoded when they are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, overload

import numpy as np

from agents.chat import ChatFrame
from agents.chat_streams import ChatRowError, encode_completion
from arena.data.rows import DataSet
from arena.errors import ConfigError
from arena.reward_models.examples import Example, Examples, Objective, check_examples, split_groups

MAX_HELD_OUT = 1000
"""Maximum number of held-out examples."""


class RowExamples(Sequence[Example]):
    """Sequence of the examples in the rows `numbers` of a data set of pairs or labelled completions."""

    def __init__(self, rows: DataSet, frame: ChatFrame, numbers: np.ndarray) -> None:
        self._rows, self._frame, self._numbers = rows, frame, numbers

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> Example: ...

    @overload
    def __getitem__(self, index: slice) -> RowExamples: ...

    def __getitem__(self, index: int | slice) -> Example | RowExamples:
        """Return an example, or the examples of a slice. Raises ConfigError, with file and row, for a malformed row."""
        if isinstance(index, slice):
            return RowExamples(self._rows, self._frame, self._numbers[index])
        number = int(self._numbers[index])
        try:
            return _make_example(self._rows[number], self._frame)
        except ChatRowError as error:
            raise self._rows.make_error(number, str(error)) from None


def read_row_examples(
    path: Path,
    frame: ChatFrame,
    max_tokens: int,
    objective: Objective,
    held_out: float,
    rng: np.random.Generator,
    note: Callable[[str], None],
) -> Examples:
    """Read training and held-out examples from a data set. The share `held_out` of the prompts is held out.

    At most `MAX_HELD_OUT` held-out examples are kept. Every row is validated. Rows longer than `max_tokens` tokens are
    left out and counted in a note. Raises ConfigError for a malformed row, with its file and number, and if the rows do
    not fit the objective.
    """
    rows, kind = DataSet(path), "pairs" if objective == "bradley_terry" else "labels"
    if rows.kind != kind:
        raise ConfigError(f"{path}: its rows are {rows.kind}, but the loss {objective} learns from {kind}")
    all_examples, short_rows, prompts = RowExamples(rows, frame, np.arange(len(rows))), list[int](), list[bytes]()
    for number, example in enumerate(all_examples):
        if max(map(len, example.streams)) <= max_tokens:
            short_rows.append(number)
            prompts.append(sha256(repr(rows[number]["prompt"]).encode("utf-8", "replace")).digest()[:8])
    if left_out := len(rows) - len(short_rows):
        note(f"{path}: {left_out} of {len(rows)} rows are longer than {max_tokens:,} tokens and left out")
    train_indices, held_out_indices = split_groups(prompts, held_out, rng)
    numbers = np.array(short_rows, np.int64)
    held_out_rows = numbers[held_out_indices][rng.permutation(len(held_out_indices))[:MAX_HELD_OUT]]
    sides = (RowExamples(rows, frame, numbers[train_indices]), RowExamples(rows, frame, np.sort(held_out_rows)))
    return check_examples(Examples(*sides, rows.rows.sha256), objective)


def _make_example(row: dict[str, Any], frame: ChatFrame) -> Example:
    """Return the example of a row. Raises ChatRowError if it is malformed."""

    def stream(name: str) -> Any:
        return encode_completion(frame, row["prompt"], row[name], row.get("tools"))

    if "label" in row and "completion" in row:
        if not isinstance(row["label"], bool):
            raise ChatRowError("label: expected true or false")
        return Example((stream("completion"),), float(row["label"]))
    chosen, rejected, margin = stream("chosen"), stream("rejected"), row.get("margin", 0.0)
    if chosen.ids == rejected.ids:
        raise ChatRowError("rejected: the same as chosen")
    if isinstance(margin, bool) or not isinstance(margin, int | float) or not math.isfinite(margin):
        raise ChatRowError("margin: expected a number")
    return Example((chosen, rejected), float(margin))
