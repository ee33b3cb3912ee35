"""Grounding lessons of a game, encoded as a policy's tokens with their targets."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import isqrt
from typing import Literal

from agents.chat import ChatFrame
from agents.chat_images import find_spans
from agents.errors import ChatError
from agents.stream import MediaSpan, Stream
from arena.errors import ConfigError
from arena.parts.chance import generator
from arena.plain import clean_text
from arena.play.making import make_game
from arena.play.settings import GameSpec
from games.abilities import GroundingLesson, GroundingLessons, Labels, Split
from games.contracts import Image
from games.names import nearest

Loss = Literal["tokens", "words"]


@dataclass(frozen=True)
class Lesson:
    """One lesson as tokens. Targets are pairs of a position in the stream and the token id to predict there."""

    kind: str
    """Kind of lesson, as the game names it."""
    stream: Stream
    """Prompt with images, followed by the answer."""
    labels: tuple[tuple[int, int], ...]
    """Targets at image tokens: the words that they stand for."""
    answer: tuple[tuple[int, int], ...]
    """Targets of the answer: its tokens and the stop token, each at the position before."""


class Lessons:
    """Source of a game's lessons as a policy's tokens. Lessons are drawn by kind and number."""

    def __init__(
        self,
        game: GameSpec,
        kinds: Sequence[str],
        frame: ChatFrame,
        grid: Callable[[MediaSpan], tuple[int, int]],
        loss: Loss,
        system: str,
        positions: int,
    ) -> None:
        """Prepare to draw lessons for a policy with this chat frame.

        `grid` returns the rows and columns of an image's tokens. `system` is the system text before each lesson, and
        `positions` the maximum context. Raises ConfigError if the game has no lessons of these kinds, or the policy has
        no vision.
        """
        self.name, self.frame, self.loss, self.positions = game.name, frame, loss, positions
        self._grid, self._opening = grid, frame.open(system)
        if frame.image is None:
            raise ConfigError("ground: the policy's model has no vision: choose one that sees, such as nano-vlm")
        self._game = _make_game(game)
        self._test_game = self._game
        if isinstance(self._game, Split) and self._game.split == "train":
            self._test_game = _make_game(game.model_copy(update={"options": {**game.options, "split": "test"}}))
        for kind in kinds:
            if kind not in self._game.lesson_kinds:
                known = ", ".join(self._game.lesson_kinds)
                raise ConfigError(
                    f"kinds: {game.name} has no lessons '{kind}'{nearest(kind, self._game.lesson_kinds)} "
                    f"(there are: {known})"
                )
        self._tokens: dict[str, int] = {}

    def draw(self, kind: str, seed: int, number: int, is_held_out: bool = False) -> Lesson:
        """Return the lesson of this kind and number. Held-out ones are of the test split if the others are of `train`.

        Raises ConfigError for a lesson that the policy cannot learn, such as one with a label of several tokens.
        """
        rng = generator(seed, number, "held out" if is_held_out else "lesson", kind)
        game = self._test_game if is_held_out else self._game
        try:
            return self._encode(game.lesson(random.Random(int(rng.integers(2**63))), kind), kind)
        except (ChatError, KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
            reason = clean_text(f"{type(error).__name__}: {error}")[:200]
            raise ConfigError(f"the lesson '{kind}' of {self.name} cannot be read: {reason}") from None

    def _encode(self, lesson: GroundingLesson, kind: str) -> Lesson:
        frame, token = self.frame, self.frame.image
        assert token is not None
        images = [part for part in lesson.parts if isinstance(part, Image)]
        if len(images) != len(lesson.labels):
            raise ValueError(f"{len(lesson.labels)} grids of labels for {len(images)} images")
        ids = [*self._opening, *frame.ask(lesson.parts)]
        spans = find_spans(ids, token, images, lesson.pictures.__getitem__)
        answer_ids = [*frame.encode(lesson.answer), frame.stop_id] if lesson.answer else []
        if len(ids) + len(answer_ids) > self.positions:
            raise ValueError(f"it has {len(ids) + len(answer_ids):,} tokens, more than the model's {self.positions:,}")
        stream = Stream()
        stream.observe(ids, spans)
        stream.observe(answer_ids[:-1])
        labels = [
            pair for span, grid in zip(spans, lesson.labels, strict=True) for pair in self._label_tokens(span, grid)
        ]
        if not labels and (not answer_ids or self.loss == "words"):
            raise ValueError("it has nothing to learn")
        answer = [(len(ids) - 1 + offset, id) for offset, id in enumerate(answer_ids)]
        return Lesson(kind, stream, tuple(labels), tuple(answer))

    def _label_tokens(self, span: MediaSpan, grid: Labels) -> list[tuple[int, int]]:
        shape = self._grid(span)
        if shape[0] == 1:  # the model's images are square, and so is the grid of their tokens
            shape = isqrt(span.length), isqrt(span.length)
        return [
            (span.start + offset, self._encode_label(word))
            for offset, word in enumerate(spread_labels(grid, *shape))
            if word
        ]

    def _encode_label(self, word: str) -> int:
        """Return the token id of a label's word, with a space before it for the loss `words` and without for `tokens`.

        If that form is not a single token, the other one is used. Raises ConfigError if neither is.
        """
        if word not in self._tokens:
            forms = (word, f" {word}") if self.loss == "tokens" else (f" {word}", word)
            single = (ids[0] for form in forms if len(ids := self.frame.encode(form)) == 1)
            token = next(single, None)
            if token is None:
                count = len(self.frame.encode(word))
                raise ConfigError(
                    f"the label '{clean_text(word)[:40]}' of {self.name} is {count} tokens of the policy's: "
                    "a label must be one"
                )
            self._tokens[word] = token
        return self._tokens[word]


def spread_labels(grid: Labels, rows: int, columns: int) -> list[str]:
    """Spread the words of a grid's cells over an image's `rows` x `columns` tokens. Returns each token's word or "".

    Tokens are in row order. The words of a cell go to the tokens within it, in order; its last word also goes to all
    remaining tokens, and surplus words are dropped. Raises ConfigError if a cell has no token, and ValueError if the
    rows of the grid differ in length.
    """
    height, width = len(grid), len(grid[0])
    if any(len(row) != width for row in grid) or not width:
        raise ValueError("the rows of a grid of labels differ in length")
    if height > rows or width > columns:
        raise ConfigError(f"an image has {rows} x {columns} tokens, too few for labels of {height} x {width} cells")
    seen: dict[tuple[int, int], int] = {}
    words = []
    for row, column in product(range(rows), range(columns)):
        cell = (row * height // rows, column * width // columns)
        cell_words, index = grid[cell[0]][cell[1]], seen.get(cell, 0)
        words.append(cell_words[min(index, len(cell_words) - 1)] if cell_words else "")
        seen[cell] = index + 1
    return words


def apportion_batch(kinds: Mapping[str, float], batch: int) -> dict[str, int]:
    """Return how many of a batch's lessons each kind gets, in proportion to its share but at least one.

    Rounds by the method of largest remainders.
    """
    total = sum(kinds.values())
    exact = {kind: share / total * batch for kind, share in kinds.items()}
    counts = {kind: max(1, int(count)) for kind, count in exact.items()}
    for kind in sorted(exact, key=lambda kind: counts[kind] - exact[kind])[: max(0, batch - sum(counts.values()))]:
        counts[kind] += 1
    return counts


def _make_game(game: GameSpec) -> GroundingLessons:
    try:
        lessons_game = make_game(game.name, game.options)
    except ValueError as error:
        raise ConfigError(f"game: {error}") from None
    if not isinstance(lessons_game, GroundingLessons):
        raise ConfigError(f"game: {game.name} has no lessons that ground words in images")
    return lessons_game
