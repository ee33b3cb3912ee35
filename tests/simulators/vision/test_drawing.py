"""Pictures: reproducible bytes, file sizes that do not depend on the content, and safe parsing of boxes."""

import hashlib
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import games
from games.png import BLOCK, encode
from simulators import conformance
from simulators.base import Simulator
from simulators.vision.boxes import read_box
from simulators.vision.drawing import FORMS, crop, draw_digit_mask, draw_mask, reduce
from tests.simulators.vision.probes import decode_pixels


@pytest.mark.parametrize("size", [(1, 1), (16, 16), (48, 48), (3, 70), (200, 150)])
def test_decoding_inverts_encoding(size: tuple[int, int]) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (*size, 3), dtype=np.uint8)
    assert (decode_pixels(encode(pixels)) == pixels).all()


def test_encoding_is_reproducible_and_has_fixed_length() -> None:
    black, noise = np.zeros((150, 150, 3), np.uint8), np.random.default_rng(1).integers(0, 256, (150, 150, 3), np.uint8)
    assert BLOCK < 150 * 451, "fits into one block"
    assert len(encode(black)) == len(encode(noise))
    assert hashlib.sha256(encode(black)).hexdigest()[:16] == "ecdf8eced5e0f86b"
    data = encode(noise)
    start = data.index(b"IDAT") + 4
    assert len(zlib.decompress(data[start : data.index(b"IEND") - 8])) == 150 * 451


@pytest.mark.parametrize(
    ("name", "options", "count", "expected"),
    [
        ("zoom", {}, 2, "0c0a510d7bc52455"),
        ("transform", {}, 2, "e5d02021c82a2201"),
        ("frames", {}, 16, "e06f40738f01e085"),
        ("pages", {}, 2, "39f2bb61ef6dcd32"),
        ("rooms", {}, 2, "4fda0d37d0e48abd"),
        ("rooms3d", {}, 4, "624d1564cdc56687"),
        ("reach", {}, 5, "296301ca9e984bfd"),
        ("reach", {"task": "push"}, 11, "b1b0305d6e5aba9e"),
    ],
)
def test_a_seed_gives_the_same_pictures_on_every_machine(
    name: str, options: dict[str, Any], count: int, expected: str
) -> None:
    """Compare the hashes of all pictures that the oracle sees in one match with recorded ones."""
    game = games.make(name, **options)
    assert isinstance(game, Simulator)
    views = conformance.walk(game, 7, "oracle")
    hashes = [image.hash for view in views for message in view.messages for image in message.images]
    assert len(hashes) == count and hashlib.sha256(" ".join(hashes).encode()).hexdigest()[:16] == expected


@pytest.mark.parametrize("pixels", [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3)), np.zeros((4, 4, 4), np.uint8)])
def test_refuses_other_pixel_types(pixels: np.ndarray) -> None:
    with pytest.raises(ValueError, match="pixels are uint8"):
        encode(pixels)


def test_digits_differ_and_vanish_in_overviews() -> None:
    assert len({draw_digit_mask(digit).tobytes() for digit in range(10)}) == 10
    assert draw_digit_mask(1).sum() == 28 and draw_digit_mask(8).sum() == 80, (
        "two sides of 2 x 14, three bars of 4 x 2 between"
    )
    rows, columns = np.nonzero(draw_digit_mask(8))
    assert not ((rows % 3 == 2) & (columns % 3 == 2)).any()


def test_an_overview_is_the_middle_pixel_of_each_block() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    assert (reduce(pixels) == pixels[1::3, 1::3]).all()
    assert (crop(pixels, (2, 1, 6, 5), 4, 4) == pixels[1:5, 2:6]).all()


def test_shapes_are_complete_and_differ() -> None:
    masks = [draw_mask(form, 20) for form in FORMS]
    assert all(mask.shape == (41, 41) and 300 < mask.sum() < 1400 for mask in masks)
    assert min(int((a ^ b).sum()) for n, a in enumerate(masks) for b in masks[:n]) > 150


@pytest.mark.parametrize(
    ("text", "box"),
    [
        ("0 0 999 999", (0, 0, 144, 144)), ("[0, 0, 499, 499]", (0, 0, 72, 72)), ("(333,0,665,332)", (48, 0, 96, 48)),
        ("  500.7  500 999.0 2000 ", (72, 72, 144, 144)), ("-5 -5 10 10", (0, 0, 2, 2)),
        ("999 999 0 0", None), ("5 5 5 5", None), ("nan nan nan nan", None), ("1e9 0 1 1", None), ("1 2 3", None),
        ("1 2 3 4 5", None), ("9999999999 0 1 1", None), ("0 0 99999999 99999999", (0, 0, 144, 144)), ("", None),
        ("١ ٢ ٣ ٤", None), ("[" * 2000, None), ("1" * 4000, None), ("inf 0 1 1", None), ("0x1 0 9 9", None),
    ],
)  # fmt: skip
def test_parses_boxes(text: str, box: tuple[int, ...] | None) -> None:
    assert read_box(text, 144, 144) == box


@given(st.text(max_size=60) | st.lists(st.integers(-(10**12), 10**12), min_size=3, max_size=5).map(str))
def test_any_text_parses_to_a_valid_box_or_none(text: str) -> None:
    if box := read_box(text, 144, 96):
        left, top, right, bottom = box
        assert 0 <= left < right <= 144 and 0 <= top < bottom <= 96
