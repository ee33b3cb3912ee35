"""Zoom: overviews without digits, zoomed views, and rewards."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import games
from games.abilities import GroundingLessons, Marks, Pictures
from games.png import encode
from simulators import conformance
from simulators.vision import Zoom
from simulators.vision.boxes import read_point
from simulators.vision.drawing import DIGIT_HEIGHT, DIGIT_WIDTH, DIGITS, draw_digit_mask, reduce
from simulators.vision.scenes import CELL, TILE, crop_cell, crop_middle, draw_scene, paint
from simulators.vision.zoom_acts import DOT, score_format
from tests.simulators.promises import find_failed_checks, passes_over_many_seeds
from tests.simulators.vision.probes import decode_pixels, train_probe_accuracy

OPTIONS: list[dict[str, Any]] = [
    {}, {"layout": "tiles"}, {"act": "box", "max_looks": 3}, {"cells": 5, "distractors": False, "split": "test"},
    {"cells": 2, "max_looks": 2, "split": "train"}, {"act": "point", "bins": 9, "max_looks": 3}, {"act": "point"},
]  # fmt: skip


def start_game(seed: int = 3, **options: Any) -> Zoom:
    game = Zoom(**options)
    game.reset(seed=seed)
    return game


def decode_newest_pictures(game: Zoom) -> list[np.ndarray]:
    """Return the pixels of the pictures in the newest messages."""
    return [decode_pixels(game.picture(image.hash)) for message in game.messages("viewer") for image in message.images]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_passes_the_conformance_kit(options: dict[str, Any]) -> None:
    assert find_failed_checks(lambda: Zoom(**options), seeds=3, acts=60) == []


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_passes_the_conformance_kit_over_many_seeds(options: dict[str, Any], capsys: Any) -> None:
    assert passes_over_many_seeds(lambda: Zoom(**options), options, capsys)


def test_game_is_registered_with_its_abilities() -> None:
    game = games.make("zoom")
    assert isinstance(game, Pictures) and isinstance(game, GroundingLessons)


@pytest.mark.parametrize("cells", [2, 3, 5])
def test_overview_and_size_do_not_depend_on_digits(cells: int) -> None:
    for seed in range(40):
        scene = draw_scene(np.random.default_rng(seed), cells, True)
        other = scene._replace(digits=tuple((digit + 1) % 10 for digit in scene.digits))
        pixels, other_pixels = (paint(variant, np.random.default_rng(seed)) for variant in (scene, other))
        assert encode(reduce(pixels)) == encode(reduce(other_pixels)) and len(encode(pixels)) == len(
            encode(other_pixels)
        )
        assert (pixels != other_pixels).any()


@pytest.fixture(scope="module")
def cell_samples() -> tuple[list[np.ndarray], list[np.ndarray], list[int]]:
    """For 2,000 scenes: target cells in the overview, their centres at full size, and their digits."""
    rng, overview_cells, full_size_cells, digits = np.random.default_rng(5), [], [], []
    for _ in range(2000):
        scene = draw_scene(rng, 3, True)
        pixels = paint(scene, rng)
        overview_cells.append(crop_cell(reduce(pixels), scene.target, TILE).copy())
        full_size_cells.append(crop_middle(pixels, scene.target).copy())
        digits.append(scene.digits[scene.target])
    return overview_cells, full_size_cells, digits


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("is_linear", [True, False])
def test_probe_reads_digits_from_crops_but_not_from_overviews(cell_samples: Any, is_linear: bool) -> None:
    overview_cells, full_size_cells, digits = cell_samples
    assert train_probe_accuracy(full_size_cells, digits, is_linear=is_linear) > 0.9
    assert train_probe_accuracy(overview_cells, digits, is_linear=is_linear) < 0.1 + 4 * (0.09 / 400) ** 0.5


def test_scripted_players_are_ordered(cell_samples: Any) -> None:
    game, count = Zoom(), 120
    scores = {
        name: np.mean([conformance.play(game, seed, name)["score"] for seed in range(count)])
        for name in ("oracle", "colour")
    }
    assert scores["oracle"] == 1.0
    assert 0.42 <= scores["colour"] <= 0.68, (
        "half of the looks should hit, and a tenth of the others show the same digit"
    )
    acts = {tuple(play_blindly(view) for view in conformance.walk(game, seed, "blind")) for seed in range(20)}
    assert acts == {("A", "7")}, "the blind player's acts vary"
    assert max(np.bincount(cell_samples[2])) / len(cell_samples[2]) <= 0.12, (
        "guessing the most frequent digit beats chance"
    )


def play_blindly(view: Any) -> str:
    return Zoom.players["blind"](Zoom(), 0)(view)


def test_distractor_option_adds_one_object_of_the_same_colour() -> None:
    for seed in range(100):
        for distractors in (True, False):
            scene = draw_scene(np.random.default_rng(seed), 3, distractors)
            same_colour = [thing for thing in scene.things if thing and thing.colour == scene.target_thing.colour]
            assert len(same_colour) == 1 + distractors and same_colour.count(scene.target_thing) == 1
            assert sum(thing is not None for thing in scene.things) == 6


def test_a_match_by_hand() -> None:
    game = start_game()
    (message,) = game.messages("viewer")
    assert (
        message.parts[0] == f"find {game.scene.target_thing}"
        and (decode_newest_pictures(game)[0] == reduce(game.pixels)).all()
    )
    target = game.scene.target
    game.step(f" {game.names[target].lower()} ")
    assert game.infos["viewer"]["rewards"] == {"hit": 1.0}
    assert (decode_newest_pictures(game)[0] == crop_cell(game.pixels, target, CELL)).all()
    game.step(DIGITS[game.digit])
    assert game.infos["viewer"]["rewards"] == {"right": 1.0, "format": 1.0} and game.payoffs() == {"viewer": 1.0}
    report = {"hit": True, "right": True, "looks": 1, "unreadable": 0, "same_colour": True}
    assert game.report().items() >= report.items()


@pytest.mark.parametrize("act", ["Z", "", "red circle", "7", "A B", "\ud800", "0 0 9 9", "A" * 4000])
def test_unreadable_look_shows_the_overview_and_costs_the_format(act: str) -> None:
    game = start_game()
    game.step(act)
    assert game.infos["viewer"]["valid"] and (decode_newest_pictures(game)[0] == reduce(game.pixels)).all()
    game.step(str(game.digit))
    assert game.report()["right"] and not game.report()["hit"]
    assert game.infos["viewer"]["rewards"] == {"right": 1.0, "format": 0.0}


@pytest.mark.parametrize("act", ["A", "10", "-1", "٣", "3.0", "nan", ""])
def test_final_answer_must_be_a_digit(act: str) -> None:
    game = start_game()
    game.step("A")
    game.step(act)
    assert game.infos["viewer"]["valid"] is False
    game.step(act)
    assert game.ended == "illegal" and game.report()["score"] == 0.0


def test_box_hits_if_it_contains_the_digit_and_is_small() -> None:
    game = start_game(act="box", max_looks=3)
    column, row = game.scene.target % 3, game.scene.target // 3
    game.step("0 0 999 999")
    assert not game.hit and (decode_newest_pictures(game)[0] == reduce_whole_picture(game)).all()
    game.step(f"{column * 333 + 111} {row * 333 + 111} {column * 333 + 222} {row * 333 + 222}")
    assert game.hit and game.infos["viewer"]["rewards"] == {"hit": 1.0}
    game.step("1 2 x 4")
    assert game.unreadable == 1 and (decode_newest_pictures(game)[0] == reduce(game.pixels)).all()
    assert game.legal("viewer") == [str(digit) for digit in range(10)]


def reduce_whole_picture(game: Zoom) -> np.ndarray:
    return game.pixels[1::3, 1::3]


def start_point_game(**options: Any) -> Zoom:
    return start_game(act="point", bins=9, max_looks=3, **options)


def format_cell_centre(game: Zoom, cell: int) -> str:
    """Return the bins of a cell's centre; a cell has three bins in each direction."""
    return f"{3 * (cell % 3) + 1} {3 * (cell // 3) + 1}"


def test_point_shows_a_window_with_a_dot() -> None:
    game, reduce_picture = start_point_game(), reduce_whole_picture
    game.step("4 4")
    window = crop_cell(game.pixels, 4, CELL).copy()
    assert (reduce_picture(game) == decode_first_overview(game)).all()
    window[24:26, 24:26] = (255, 0, 0)
    assert (decode_newest_pictures(game)[0] == window).all(), "the centre of bin 4 of 9 is pixel 72"
    game.step("[0, 99]")
    corner = crop_cell(game.pixels, 6, CELL).copy()
    corner[136 - 96 : 138 - 96, 8:10] = (255, 0, 0)
    assert (decode_newest_pictures(game)[0] == corner).all(), "windows at the edge are moved into the picture"
    assert game.points == [(72, 72), (8, 136)]


def decode_first_overview(game: Zoom) -> np.ndarray:
    return decode_pixels(game.picture(game.overviews[0].hash))


@pytest.mark.parametrize("digit", range(10))
def test_dot_keeps_digits_distinguishable(digit: int) -> None:
    """Try every position of the dot relative to the digit."""
    others = [candidate for candidate in range(10) if candidate != digit]
    for row in range(DIGIT_HEIGHT - 1):
        for column in range(DIGIT_WIDTH - 1):
            visible = np.ones((DIGIT_HEIGHT, DIGIT_WIDTH), bool)
            visible[row : row + DOT, column : column + DOT] = False
            assert all((draw_digit_mask(digit) != draw_digit_mask(other))[visible].any() for other in others)


def test_point_rewards_follow_vigorl() -> None:
    """.6 for the digit, and .4 * (1 + .2 for each further point at least a cell away from all others)."""
    game = start_point_game()
    target = game.scene.target
    distant_point = format_cell_centre(game, 8 if target < 4 else 0)
    game.step(format_cell_centre(game, target))
    assert game.infos["viewer"]["rewards"] == {"hit": 1.0}
    game.step(distant_point)
    game.step(distant_point)
    game.step(DIGITS[game.digit])
    assert game.infos["viewer"]["rewards"] == pytest.approx({"right": 0.6, "format": 0.48})
    assert game.payoffs() == pytest.approx({"viewer": 1.08}), "the hit is paid"


@pytest.mark.parametrize(
    ("acts", "reward"),
    [
        (["1 1"], 0.4), (["1 1", "4 1"], 0.48), (["1 1", "3 1"], 0.4), (["1 1", "3 3", "5 5"], 0.48),
        (["1 1", "1 4", "1 7"], 0.56), (["1 1", "4 1", "1 1"], 0.48), (["1 1", "3 3", "4 3"], 0.48),
        (["1 1", "x", "4 4"], 0.0), (["E", "4 4"], 0.0),
    ],
)  # fmt: skip
def test_format_reward_counts_distant_points(acts: list[str], reward: float) -> None:
    """A bin has 16 pixels and a cell 3 bins. From 1 1 to 3 3 the distance is 45.3 pixels, from 1 1 to 4 3 57.7."""
    game = start_point_game()
    for act in acts:
        game.step(act)
    game.step(DIGITS[(game.digit + 1) % 10])
    assert game.infos["viewer"]["rewards"] == pytest.approx({"right": 0.0, "format": reward})


@given(st.lists(st.tuples(st.integers(0, 143), st.integers(0, 143)), min_size=1, max_size=16))
def test_format_score_is_bounded_and_ignores_copies(points: list[tuple[int, int]]) -> None:
    score = score_format(points)
    assert 1.0 <= score <= 1.0 + 0.2 * (len(points) - 1) + 1e-9
    assert score_format(points + points) == score <= score_format([*points, (900, 900)]) - 0.19


@given(st.text(alphabet="0123456789 ,.-[]()xE\ud800٣\n", max_size=40), st.integers(2, 1000))
def test_any_text_parses_to_a_valid_point_or_none(text: str, bins: int) -> None:
    point = read_point(text, bins)
    assert point is None or all(0 <= number < bins for number in point)
    if point:
        assert read_point(f"{point[0]} {point[1]}", bins) == point


def test_looks_are_marked_in_the_overview() -> None:
    game = start_point_game()
    assert isinstance(game, Marks)
    (overview,) = game.overviews
    assert game.marks("4 7") == [(overview.hash, 24, 40, 24, 40)] and not game.marks("seven past 4")
    game.step("4 7")
    assert game.marks("1 1") == [(overview.hash, 8, 8, 8, 8)] and not game.marks("7"), "7 is now an answer"
    assert start_game(act="box").marks("0 0 499 999")[0][1:] == (0, 0, 24, 48)
    assert start_game().marks("e")[0][1:] == (16, 16, 32, 32)
    tiles = start_game(layout="tiles")
    assert tiles.marks("F") == [(tiles.overviews[5].hash, 0, 0, TILE, TILE)]
    tiles.step("F")
    assert not tiles.marks("F"), "no looks are left"


def test_two_look_player_is_right_about_half_of_the_time() -> None:
    game = Zoom(act="point", bins=9, max_looks=2)
    reports = [conformance.play(game, seed, "colour_twice") for seed in range(200)]
    assert 0.42 <= np.mean([report["score"] for report in reports]) <= 0.66
    assert 1.4 <= np.mean([report["looks"] for report in reports]) <= 1.6
    assert all(report["same_colour"] and not report["unreadable"] for report in reports)
    assert all(conformance.play(game, seed, "oracle")["hit"] for seed in range(40))


def test_point_lessons_answer_with_points() -> None:
    game = Zoom(act="point", bins=9)
    for seed in range(20):
        lesson = game.lesson(random.Random(seed), "find")
        labels = [word for row in lesson.labels[0] for (word,) in row]
        x, y = map(int, lesson.answer.split())
        assert labels[y // 3 * 3 + x // 3] != "none" and x % 3 == y % 3 == 1
        (grid,) = game.lesson(random.Random(seed), "glyph").labels
        assert {word for row in grid for (word,) in row} <= {*DIGITS, "none"}


def test_hits_are_rewarded_once() -> None:
    game = start_game(max_looks=4)
    name = game.names[game.scene.target]
    game.step(name)
    game.step(name)
    assert game.infos["viewer"]["rewards"] == {} and game.public()["looks_left"] == 2


def test_tiles_name_the_cells_and_a_look_shows_the_middle() -> None:
    game = start_game(layout="tiles")
    (message,) = game.messages("viewer")
    assert [part for part in message.parts[1:] if isinstance(part, str)] == [*"ABCDEFGHI"]
    assert (decode_newest_pictures(game)[4] == reduce(game.pixels)[16:32, 16:32]).all()
    game.step("E")
    assert (decode_newest_pictures(game)[0] == game.pixels[64:80, 64:80]).all()


def test_train_and_test_share_no_scene() -> None:
    scenes = {}
    for split in ("train", "test"):
        game = Zoom(split=split, cells=2)
        scenes[split] = {game.draw_scene(np.random.default_rng(seed)) for seed in range(150)}
    assert not scenes["train"] & scenes["test"]


@pytest.mark.parametrize("layout", ["picture", "tiles"])
@pytest.mark.parametrize("kind", Zoom.lesson_kinds)
def test_lessons_label_each_cell(kind: str, layout: Any) -> None:
    game, rng = Zoom(layout=layout), random.Random(4)
    for _ in range(20):
        lesson = game.lesson(rng, kind)
        images = [part for part in lesson.parts if not isinstance(part, str)]
        assert len(images) == len(lesson.labels) and {image.hash for image in images} == set(lesson.pictures)
        size = 1 if layout == "tiles" else 3
        assert all(len(grid) == size and all(len(row) == size for row in grid) for grid in lesson.labels)
        words = [word for grid in lesson.labels for row in grid for cell in row for word in cell]
        assert words and all(word == word.strip() for word in words)
        if kind == "find":
            assert lesson.answer in words and lesson.answer in game.names
    assert game.lesson(random.Random(7), kind) == game.lesson(random.Random(7), kind)


def test_attribute_lessons_are_learnable_by_a_probe() -> None:
    """Labels match their cells: a probe trained on a cell's pixels reads its colour."""
    game, rng = Zoom(), random.Random(1)
    pixels, colours = list[np.ndarray](), list[int]()
    names = ["none", *("red", "green", "blue", "yellow", "purple", "cyan")]
    while len(colours) < 1800:
        lesson = game.lesson(rng, "attribute")
        if lesson.parts[0] != "colour":
            continue
        (data,) = lesson.pictures.values()
        pixels += [crop_cell(decode_pixels(data), cell, TILE) for cell in range(9)]
        colours += [names.index(word) for row in lesson.labels[0] for (word,) in row]
    assert train_probe_accuracy(pixels, colours, classes=7) > 0.9


def test_refuses_invalid_options() -> None:
    with pytest.raises(ValueError, match='act must be "cell" with the layout "tiles"'):
        Zoom(act="box", layout="tiles")
    with pytest.raises(ValueError, match="bins must be a whole number from 2 to 1000"):
        Zoom(act="point", bins=1)
    with pytest.raises(ValueError, match="cells must be a whole number from 2 to 5"):
        Zoom(cells=9)
