"""Slides of the game `pages`: a deck of invented reports with titles and four labelled numbers in small print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, Self

import numpy as np

from games.png import Pixels
from simulators.base import is_held_out
from simulators.search.retrieval import Index
from simulators.vision.boards import Board, draw_boards
from simulators.vision.boxes import SCALE, Box, read_box
from simulators.vision.drawing import DIGIT_HEIGHT, DIGIT_WIDTH, REDUCTION, crop, draw_ground, pick, put_digit
from simulators.vision.glyphs import put_text

WIDTH, HEIGHT = 288, 216
"""Size of a page in pixels. Large print has three times the size of small print, so an overview shows it in full."""
VIEW_WIDTH, VIEW_HEIGHT = WIDTH // REDUCTION, HEIGHT // REDUCTION
"""Size of a page's overview, and maximum size of a shown part."""
MARGIN, TITLE_ROWS, FIRST_ROW, ROW_HEIGHT = 9, (9, 39), 74, 36
VALUE_COLUMNS = range(170, 255, REDUCTION)
"""Possible left edges of a value. Like the rows of values, they are 2 modulo 3, so that an overview shows no stroke."""
PITCH = 9
"""Distance between the two digits of a value."""
FIRMS, EDITIONS = 25, 2
"""Number of firms in a deck, and of slides per firm and topic, which differ in their year and values."""
YEARS = range(2021, 2041)
VALUES = range(10, 100)
LABELS: Mapping[str, tuple[str, ...]] = {
    "harvest": ("apples", "pears", "plums", "wheat", "barley", "hops"),
    "staff": ("cooks", "drivers", "clerks", "guards", "nurses", "porters"),
    "sales": ("north", "south", "east", "west", "online", "export"),
    "energy": ("solar", "wind", "gas", "coal", "water", "wood"),
    "fleet": ("vans", "trams", "trucks", "boats", "bikes", "buses"),
    "stock": ("paper", "glass", "steel", "cotton", "timber", "rubber"),
    "costs": ("rent", "wages", "fuel", "repairs", "taxes", "travel"),
    "visits": ("monday", "tuesday", "thursday", "friday", "saturday", "sunday"),
    "claims": ("fire", "theft", "storm", "flood", "hail", "frost"),
    "courses": ("maths", "music", "chess", "drama", "french", "latin"),
}
"""Labels by topic."""
ROWS = 4
"""Number of labelled values on a slide."""
ONSETS, VOWELS, ENDINGS = "bdfgklmnprstvz", "aeiou", ("ck", "lm", "nd", "rn", "st", "x")
TRADES = ("foods", "trams", "mills", "works", "farms")


class Slide(NamedTuple):
    """Content of a slide."""

    firm: str
    topic: str
    year: int
    labels: tuple[str, ...]
    values: tuple[int, ...]
    columns: tuple[int, ...]
    """Left edge of each value in pixels."""
    seed: int
    """Seed of the background's grain."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the page."""
        return WIDTH, HEIGHT

    @property
    def caption(self) -> str:
        """Text indexed for searches; viewers never see it."""
        return f"{self.firm} {self.topic} {self.year} {' '.join(self.labels)}"

    def value_box(self, row: int) -> Box:
        """Return the box of a value on its page."""
        top, left = FIRST_ROW + row * ROW_HEIGHT, self.columns[row]
        return left, top, left + PITCH + DIGIT_WIDTH, top + DIGIT_HEIGHT

    def question(self, row: int) -> str:
        """Return the question for a value."""
        return f"How much is {self.labels[row]} in {self.firm}, {self.topic} {self.year}?"

    def rivals(self, row: int) -> list[int]:
        """Return the rows that a hasty player might confuse with this one: only itself, as labels differ."""
        return [row]

    def write_zoom(self, row: int) -> str:
        """Return the act that shows a value with a margin of a few pixels."""
        left, top, right, bottom = self.value_box(row)
        edges = ((left - 3, WIDTH), (top - 3, HEIGHT), (right + 3, WIDTH), (bottom + 3, HEIGHT))
        return "bbox " + " ".join(str(edge * SCALE // size) for edge, size in edges)

    def parse_box(self, words: str) -> Box | None:
        """Parse four numbers in thousandths of the page as a box in pixels; None for other words."""
        return read_box(words, WIDTH, HEIGHT)

    def draw(self) -> Pixels:
        """Draw the page, [216, 288, 3]."""
        pixels = draw_ground(np.random.default_rng(self.seed), HEIGHT, WIDTH)
        for row, line in zip(TITLE_ROWS, (self.firm, f"{self.topic} {self.year}"), strict=True):
            put_text(pixels, line, row, MARGIN, REDUCTION)
        for row, (label, value) in enumerate(zip(self.labels, self.values, strict=True)):
            left, top, *_ = self.value_box(row)
            put_text(pixels, label, top - 5, MARGIN, REDUCTION)
            for number, digit in enumerate(divmod(value, 10)):
                put_digit(pixels, digit, top, left + number * PITCH)
        return pixels


class Question(NamedTuple):
    """Question about one value of a slide."""

    slide: Slide | Board
    row: int

    @property
    def label(self) -> str:
        """Label of the value."""
        return self.slide.labels[self.row]

    @property
    def value(self) -> int:
        """Right answer."""
        return self.slide.values[self.row]

    def is_shown_by(self, box: Box) -> bool:
        """Return True if a box on the slide's page shows the whole value at full size."""
        left, top, right, bottom = self.slide.value_box(self.row)
        width, height = (edge // REDUCTION for edge in self.slide.size)
        is_full = box[2] - box[0] <= width and box[3] - box[1] <= height
        return is_full and box[0] <= left and box[1] <= top and right <= box[2] and bottom <= box[3]

    def __str__(self) -> str:
        return self.slide.question(self.row)


@lru_cache(maxsize=256)
def render(slide: Slide | Board) -> Pixels:
    """Draw a slide's page, [height, width, 3]. The cached array is read-only."""
    pixels = slide.draw()
    pixels.flags.writeable = False
    return pixels


def crop_page(pixels: Pixels, box: Box) -> Pixels:
    """Return a part of a page at full size, or scaled down to the size of an overview if it is larger."""
    left, top, right, bottom = box
    height, width = (edge // REDUCTION for edge in pixels.shape[:2])
    return crop(pixels, box, min(bottom - top, height), min(right - left, width))


@dataclass(frozen=True, eq=False)
class Deck:
    """Slides in random order, with a search index of their captions. Copies of a match share a deck."""

    slides: tuple[Slide | Board, ...]
    values: Sequence[int]
    """Possible values on a slide, all equally likely."""

    @cached_property
    def index(self) -> Index:
        """Search index of the captions."""
        return Index([slide.caption for slide in self.slides], "hashed")

    def __deepcopy__(self, memo: object) -> Self:
        return self


@lru_cache(maxsize=8)
def load_deck(world: int, split: str, has_objects: bool = False) -> Deck:
    """Return the deck of a world's split: 500 slides, two of each firm and topic.

    The splits "train" and "test" share no firm. With `has_objects`, the slides are boards of objects.
    """
    rng = np.random.default_rng([world, ("all", "train", "test").index(split)])
    slides: list[Slide | Board] = [*(draw_boards(rng, split) if has_objects else _draw_slides(rng, split))]
    mixed = [slides[number] for number in rng.permutation(len(slides)).tolist()]
    return Deck(tuple(mixed), range(10) if has_objects else VALUES)


def _draw_slides(rng: np.random.Generator, split: str) -> Iterator[Slide]:
    """Return the printed slides of a split."""
    firms: dict[str, None] = {}
    while len(firms) < FIRMS:
        name = f"{_draw_name(rng)} {pick(rng, TRADES)}"
        if split == "all" or is_held_out(f"pages:{name}") == (split == "test"):
            firms[name] = None
    return (slide for firm in firms for topic in LABELS for slide in _draw_editions(rng, firm, topic))


def _draw_name(rng: np.random.Generator) -> str:
    """Return an invented name of seven or eight letters."""
    return "".join(pick(rng, ONSETS) + pick(rng, VOWELS) for _ in range(3)) + pick(rng, ENDINGS)


def _draw_editions(rng: np.random.Generator, firm: str, topic: str) -> Iterator[Slide]:
    """Yield the slides of a firm and topic, which have the same labels in different rows, years and values."""
    labels = [LABELS[topic][number] for number in rng.permutation(len(LABELS[topic]))[:ROWS]]
    for year in rng.permutation(np.array(YEARS))[:EDITIONS].tolist():
        row_labels = tuple(labels[number] for number in rng.permutation(ROWS))
        values = tuple(rng.choice(np.array(VALUES), ROWS, replace=False).tolist())
        columns = tuple(pick(rng, VALUE_COLUMNS) for _ in row_labels)
        yield Slide(firm, topic, year, row_labels, values, columns, int(rng.integers(2**31)))
