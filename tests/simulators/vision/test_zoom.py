"""Zoom: the overview tells nothing of the digits, looks show what they should, and rewards are as stated."""

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
from tests.simulators.vision.probes import accuracy, decoded

OPTIONS: list[dict[str, Any]] = [
    {}, {"layout": "tiles"}, {"act": "box", "max_looks": 3}, {"cells": 5, "distractors": False, "split": "test"},
    {"cells": 2, "max_looks": 2, "split": "train"}, {"act": "point", "bins": 9, "max_looks": 3}, {"act": "point"},
]  # fmt: skip


def started(seed: int = 3, **options: Any) -> Zoom:
    game = Zoom(**options)
    game.reset(seed=seed)
    return game


def seen(game: Zoom) -> list[np.ndarray]:
    """The pictures in the newest messages."""
    return [decoded(game.picture(image.hash)) for message in game.messages("viewer") for image in message.images]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_passes_the_conformance_kit(options: dict[str, Any]) -> None:
    assert find_failed_checks(lambda: Zoom(**options), seeds=3, acts=60) == []


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_it_keeps_its_promises_over_many_seeds(options: dict[str, Any], capsys: Any) -> None:
    assert passes_over_many_seeds(lambda: Zoom(**options), options, capsys)


def test_the_table_of_games_has_it_and_its_abilities() -> None:
    game = games.make("zoom")
    assert isinstance(game, Pictures) and isinstance(game, GroundingLessons)


@pytest.mark.parametrize("cells", [2, 3, 5])
def test_scenes_with_other_digits_have_the_same_overview_and_size_to_the_byte(cells: int) -> None:
    for seed in range(40):
        scene = draw_scene(np.random.default_rng(seed), cells, True)
        other = scene._replace(digits=tuple((digit + 1) % 10 for digit in scene.digits))
        one, two = (paint(each, np.random.default_rng(seed)) for each in (scene, other))
        assert encode(reduce(one)) == encode(reduce(two)) and len(encode(one)) == len(encode(two))
        assert (one != two).any()


@pytest.fixture(scope="module")
def looked() -> tuple[list[np.ndarray], list[np.ndarray], list[int]]:
    """Of 2,000 scenes the target's cell in the overview, its middle at full size, and its digit."""
    rng, coarse, fine, digits = np.random.default_rng(5), [], [], []
    for _ in range(2000):
        scene = draw_scene(rng, 3, True)
        pixels = paint(scene, rng)
        coarse.append(crop_cell(reduce(pixels), scene.target, TILE).copy())
        fine.append(crop_middle(pixels, scene.target).copy())
        digits.append(scene.digits[scene.target])
    return coarse, fine, digits


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("is_linear", [True, False])
def test_a_probe_reads_digits_from_crops_and_none_from_the_overview(looked: Any, is_linear: bool) -> None:
    coarse, fine, digits = looked
    assert accuracy(fine, digits, is_linear=is_linear) > 0.9
    assert accuracy(coarse, digits, is_linear=is_linear) < 0.1 + 4 * (0.09 / 400) ** 0.5


def test_the_blind_are_at_chance_the_oracle_is_right_and_the_flawed_demonstrator_half_the_time(looked: Any) -> None:
    game, count = Zoom(), 120
    scores = {
        name: np.mean([conformance.play(game, seed, name)["score"] for seed in range(count)])
        for name in ("oracle", "colour")
    }
    assert scores["oracle"] == 1.0
    assert 0.42 <= scores["colour"] <= 0.68, "half of the looks hit, and a tenth of the others show the same digit"
    acts = {tuple(blind(view) for view in conformance.walk(game, seed, "blind")) for seed in range(20)}
    assert acts == {("A", "7")}, "it does the same in every scene"
    assert max(np.bincount(looked[2])) / len(looked[2]) <= 0.12, "so it is right as often as a digit occurs"


def blind(view: Any) -> str:
    return Zoom.players["blind"](Zoom(), 0)(view)


def test_exactly_one_other_object_shares_the_colour_or_none_does() -> None:
    for seed in range(100):
        for distractors in (True, False):
            scene = draw_scene(np.random.default_rng(seed), 3, distractors)
            same = [thing for thing in scene.things if thing and thing.colour == scene.target_thing.colour]
            assert len(same) == 1 + distractors and same.count(scene.target_thing) == 1
            assert sum(thing is not None for thing in scene.things) == 6


def test_a_match_by_hand() -> None:
    game = started()
    (message,) = game.messages("viewer")
    assert message.parts[0] == f"find {game.scene.target_thing}" and (seen(game)[0] == reduce(game.pixels)).all()
    target = game.scene.target
    game.step(f" {game.names[target].lower()} ")
    assert game.infos["viewer"]["rewards"] == {"hit": 1.0}
    assert (seen(game)[0] == crop_cell(game.pixels, target, CELL)).all()
    game.step(DIGITS[game.digit])
    assert game.infos["viewer"]["rewards"] == {"right": 1.0, "format": 1.0} and game.payoffs() == {"viewer": 1.0}
    report = {"hit": True, "right": True, "looks": 1, "unreadable": 0, "same_colour": True}
    assert game.report().items() >= report.items()


@pytest.mark.parametrize("act", ["Z", "", "red circle", "7", "A B", "\ud800", "0 0 9 9", "A" * 4000])
def test_a_look_at_anything_else_shows_the_whole_again_and_costs_the_format(act: str) -> None:
    game = started()
    game.step(act)
    assert game.infos["viewer"]["valid"] and (seen(game)[0] == reduce(game.pixels)).all()
    game.step(str(game.digit))
    assert game.report()["right"] and not game.report()["hit"]
    assert game.infos["viewer"]["rewards"] == {"right": 1.0, "format": 0.0}


@pytest.mark.parametrize("act", ["A", "10", "-1", "٣", "3.0", "nan", ""])
def test_no_digit_when_no_looks_are_left_is_illegal(act: str) -> None:
    game = started()
    game.step("A")
    game.step(act)
    assert game.infos["viewer"]["valid"] is False
    game.step(act)
    assert game.ended == "illegal" and game.report()["score"] == 0.0


def test_a_box_hits_if_it_holds_the_digit_and_is_no_larger_than_two_cells() -> None:
    game = started(act="box", max_looks=3)
    column, row = game.scene.target % 3, game.scene.target // 3
    game.step("0 0 999 999")
    assert not game.hit and (seen(game)[0] == crop_of_whole(game)).all()
    game.step(f"{column * 333 + 111} {row * 333 + 111} {column * 333 + 222} {row * 333 + 222}")
    assert game.hit and game.infos["viewer"]["rewards"] == {"hit": 1.0}
    game.step("1 2 x 4")
    assert game.unreadable == 1 and (seen(game)[0] == reduce(game.pixels)).all()
    assert game.legal("viewer") == [str(digit) for digit in range(10)]


def crop_of_whole(game: Zoom) -> np.ndarray:
    return game.pixels[1::3, 1::3]


def pointed(**options: Any) -> Zoom:
    return started(act="point", bins=9, max_looks=3, **options)


def near(game: Zoom, cell: int) -> str:
    """The bins in the middle of a cell, of three in each direction."""
    return f"{3 * (cell % 3) + 1} {3 * (cell // 3) + 1}"


def test_a_point_shows_a_window_of_a_cell_around_it_with_a_dot() -> None:
    game, whole = pointed(), crop_of_whole
    game.step("4 4")
    window = crop_cell(game.pixels, 4, CELL).copy()
    assert (whole(game) == seen_at_start(game)).all()
    window[24:26, 24:26] = (255, 0, 0)
    assert (seen(game)[0] == window).all(), "the middle of bin 4 of 9 is pixel 72"
    game.step("[0, 99]")
    corner = crop_cell(game.pixels, 6, CELL).copy()
    corner[136 - 96 : 138 - 96, 8:10] = (255, 0, 0)
    assert (seen(game)[0] == corner).all(), "at the edge the window is moved into the picture"
    assert game.points == [(72, 72), (8, 136)]


def seen_at_start(game: Zoom) -> np.ndarray:
    return decoded(game.picture(game.overviews[0].hash))


@pytest.mark.parametrize("digit", range(10))
def test_a_dot_on_a_digit_leaves_it_unlike_every_other(digit: int) -> None:
    """At each place of the digit's corner, and of a dot that covers a part of it."""
    others = [each for each in range(10) if each != digit]
    for row in range(DIGIT_HEIGHT - 1):
        for column in range(DIGIT_WIDTH - 1):
            kept = np.ones((DIGIT_HEIGHT, DIGIT_WIDTH), bool)
            kept[row : row + DOT, column : column + DOT] = False
            assert all((draw_digit_mask(digit) != draw_digit_mask(other))[kept].any() for other in others)


def test_points_are_paid_as_in_vigorl_by_hand() -> None:
    """.6 for the digit, and .4 * (1 + .2 per point after the first that is a cell or more from all of them)."""
    game = pointed()
    target = game.scene.target
    far = near(game, 8 if target < 4 else 0)
    game.step(near(game, target))
    assert game.infos["viewer"]["rewards"] == {"hit": 1.0}
    game.step(far)
    game.step(far)
    game.step(DIGITS[game.digit])
    assert game.infos["viewer"]["rewards"] == pytest.approx({"right": 0.6, "format": 0.48})
    assert game.payoffs() == pytest.approx({"viewer": 1.08}), "the hit is no part of it"


@pytest.mark.parametrize(
    ("acts", "paid"),
    [
        (["1 1"], 0.4), (["1 1", "4 1"], 0.48), (["1 1", "3 1"], 0.4), (["1 1", "3 3", "5 5"], 0.48),
        (["1 1", "1 4", "1 7"], 0.56), (["1 1", "4 1", "1 1"], 0.48), (["1 1", "3 3", "4 3"], 0.48),
        (["1 1", "x", "4 4"], 0.0), (["E", "4 4"], 0.0),
    ],
)  # fmt: skip
def test_the_format_counts_points_by_their_distance(acts: list[str], paid: float) -> None:
    """Bins are 16 pixels, so that 3 are a cell; from 1 1 to 3 3 there are 45.3 pixels, from 1 1 to 4 3 57.7."""
    game = pointed()
    for act in acts:
        game.step(act)
    game.step(DIGITS[(game.digit + 1) % 10])
    assert game.infos["viewer"]["rewards"] == pytest.approx({"right": 0.0, "format": paid})


@given(st.lists(st.tuples(st.integers(0, 143), st.integers(0, 143)), min_size=1, max_size=16))
def test_the_format_is_bounded_and_no_copy_of_a_point_is_paid(points: list[tuple[int, int]]) -> None:
    score = score_format(points)
    assert 1.0 <= score <= 1.0 + 0.2 * (len(points) - 1) + 1e-9
    assert score_format(points + points) == score <= score_format([*points, (900, 900)]) - 0.19


@given(st.text(alphabet="0123456789 ,.-[]()xE\ud800٣\n", max_size=40), st.integers(2, 1000))
def test_any_text_is_a_point_within_the_picture_or_none(text: str, bins: int) -> None:
    point = read_point(text, bins)
    assert point is None or all(0 <= number < bins for number in point)
    if point:
        assert read_point(f"{point[0]} {point[1]}", bins) == point


def test_looks_are_marked_in_the_overview() -> None:
    game = pointed()
    assert isinstance(game, Marks)
    (overview,) = game.overviews
    assert game.marks("4 7") == [(overview.hash, 24, 40, 24, 40)] and not game.marks("seven past 4")
    game.step("4 7")
    assert game.marks("1 1") == [(overview.hash, 8, 8, 8, 8)] and not game.marks("7"), "which is an answer by now"
    assert started(act="box").marks("0 0 499 999")[0][1:] == (0, 0, 24, 48)
    assert started().marks("e")[0][1:] == (16, 16, 32, 32)
    tiles = started(layout="tiles")
    assert tiles.marks("F") == [(tiles.overviews[5].hash, 0, 0, TILE, TILE)]
    tiles.step("F")
    assert not tiles.marks("F"), "no looks are left"


def test_who_looks_once_or_twice_is_right_half_of_the_time() -> None:
    game = Zoom(act="point", bins=9, max_looks=2)
    reports = [conformance.play(game, seed, "colour_twice") for seed in range(200)]
    assert 0.42 <= np.mean([report["score"] for report in reports]) <= 0.66
    assert 1.4 <= np.mean([report["looks"] for report in reports]) <= 1.6
    assert all(report["same_colour"] and not report["unreadable"] for report in reports)
    assert all(conformance.play(game, seed, "oracle")["hit"] for seed in range(40))


def test_lessons_of_points_answer_with_points_and_words() -> None:
    game = Zoom(act="point", bins=9)
    for seed in range(20):
        lesson = game.lesson(random.Random(seed), "find")
        labels = [word for row in lesson.labels[0] for (word,) in row]
        x, y = map(int, lesson.answer.split())
        assert labels[y // 3 * 3 + x // 3] != "none" and x % 3 == y % 3 == 1
        (grid,) = game.lesson(random.Random(seed), "glyph").labels
        assert {word for row in grid for (word,) in row} <= {*DIGITS, "none"}


def test_looks_are_paid_once() -> None:
    game = started(max_looks=4)
    name = game.names[game.scene.target]
    game.step(name)
    game.step(name)
    assert game.infos["viewer"]["rewards"] == {} and game.public()["looks_left"] == 2


def test_tiles_name_the_cells_and_a_look_shows_the_middle() -> None:
    game = started(layout="tiles")
    (message,) = game.messages("viewer")
    assert [part for part in message.parts[1:] if isinstance(part, str)] == [*"ABCDEFGHI"]
    assert (seen(game)[4] == reduce(game.pixels)[16:32, 16:32]).all()
    game.step("E")
    assert (seen(game)[0] == game.pixels[64:80, 64:80]).all()


def test_train_and_test_share_no_scene() -> None:
    drawn = {}
    for split in ("train", "test"):
        game = Zoom(split=split, cells=2)
        drawn[split] = {game.draw_scene(np.random.default_rng(seed)) for seed in range(150)}
    assert not drawn["train"] & drawn["test"]


@pytest.mark.parametrize("layout", ["picture", "tiles"])
@pytest.mark.parametrize("kind", Zoom.lesson_kinds)
def test_lessons_label_each_cell_of_their_pictures(kind: str, layout: Any) -> None:
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


def test_an_attribute_lesson_tells_what_a_probe_sees() -> None:
    """Labels lie where their objects are: a probe trained on a cell's pixels reads its colour."""
    game, rng = Zoom(), random.Random(1)
    pixels, colours = list[np.ndarray](), list[int]()
    names = ["none", *("red", "green", "blue", "yellow", "purple", "cyan")]
    while len(colours) < 1800:
        lesson = game.lesson(rng, "attribute")
        if lesson.parts[0] != "colour":
            continue
        (data,) = lesson.pictures.values()
        pixels += [crop_cell(decoded(data), cell, TILE) for cell in range(9)]
        colours += [names.index(word) for row in lesson.labels[0] for (word,) in row]
    assert accuracy(pixels, colours, classes=7) > 0.9


def test_no_other_lesson_and_no_nonsense_option() -> None:
    with pytest.raises(ValueError, match="there is no lesson 'x'; there are: attribute, glyph, find, words"):
        Zoom().lesson(random.Random(0), "x")
    with pytest.raises(ValueError, match='act must be "cell" with the layout "tiles"'):
        Zoom(act="box", layout="tiles")
    with pytest.raises(ValueError, match="bins must be a whole number from 2 to 1000"):
        Zoom(act="point", bins=1)
    with pytest.raises(ValueError, match="cells must be a whole number from 2 to 5"):
        Zoom(cells=9)
