"""Reach: binned moves of a hand, blocks pushed by contact, sparse and process rewards."""

import hashlib
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from games.png import encode
from simulators import conformance
from simulators.vision import Reach
from simulators.vision.reach_players import expert_act
from simulators.vision.reach_table import (
    APART,
    BLOCK,
    CONTACT,
    HAND,
    SIDE,
    UNIT,
    Layout,
    Table,
    as_coarse,
    as_fine,
    compute_distance,
    draw_layout,
)  # fmt: skip
from tests.simulators.promises import find_failed_checks, passes_over_many_seeds
from tests.simulators.vision.probes import decode_pixels

HAND_LAYOUT = Layout(
    (10 * UNIT, 24 * UNIT), ((20 * UNIT, 24 * UNIT), (24 * UNIT, 10 * UNIT), (24 * UNIT, 38 * UNIT)),
    (38 * UNIT, 24 * UNIT), ("red", "green", "blue"), 0, 1,
)  # fmt: skip
"""Layout with hand, red block and ring in a row."""


def start_game(seed: int = 3, **options: Any) -> Reach:
    game = Reach(**options)
    game.reset(seed=seed)
    return game


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "options",
    [{}, {"task": "mixed", "split": "test", "progress": True}, {"bins": 5, "max_turns": 8, "camera": "hand"}],
    ids=str,
)
def test_passes_the_conformance_kit(options: dict[str, Any]) -> None:
    assert find_failed_checks(lambda: Reach(**options), seeds=3, acts=60) == []


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"task": "push"}, {"bins": 5, "max_turns": 8, "camera": "hand"}], ids=str)
def test_passes_the_conformance_kit_over_many_seeds(options: dict[str, Any], capsys: Any) -> None:
    assert passes_over_many_seeds(lambda: Reach(**options), options, capsys)


@pytest.mark.parametrize(
    ("bins", "offset"),
    [((16, 16, 0), (0, 0)), ((31, 16, 0), (360, 0)), ((0, 16, 0), (-384, 0)), ((17, 15, 0), (24, -24))],
)
def test_bins_are_steps_of_three_eighths_of_a_pixel(bins: tuple[int, int, int], offset: tuple[int, int]) -> None:
    table = Table(HAND_LAYOUT, True)
    table.move(*bins)
    assert table.hand == (10 * UNIT + offset[0], 24 * UNIT + offset[1]) and table.blocks == [*HAND_LAYOUT.blocks]


def test_lowered_hand_pushes_and_lifted_hand_passes() -> None:
    table, lifted = Table(HAND_LAYOUT, True), Table(HAND_LAYOUT, True)
    for _ in range(2):
        table.move(31, 16, 31)
        lifted.move(31, 16, 0)
    assert table.hand == lifted.hand == (10 * UNIT + 720, 24 * UNIT)
    assert table.blocks[0] == (table.hand[0] + CONTACT, 24 * UNIT) and table.blocks[1:] == [*HAND_LAYOUT.blocks[1:]]
    assert lifted.blocks == [*HAND_LAYOUT.blocks]


@given(st.integers(0, 2**31), st.lists(st.tuples(*[st.integers(0, 31)] * 3), max_size=20))
def test_objects_stay_on_the_table_and_moves_are_deterministic(seed: int, acts: list[tuple[int, int, int]]) -> None:
    layout = draw_layout(np.random.default_rng(seed))
    first, second = Table(layout, True), Table(layout, True)
    for bins in acts:
        first.move(*bins)
        second.move(*bins)
    assert first == second and (first.paint() == second.paint()).all()
    for radius, points in ((HAND, [first.hand]), (BLOCK, first.blocks)):
        assert all(radius * UNIT <= axis < (SIDE - radius) * UNIT for point in points for axis in point)


def test_objects_of_layouts_are_apart() -> None:
    for seed in range(300):
        layout = draw_layout(np.random.default_rng(seed))
        points = [layout.hand, layout.ring, *layout.blocks]
        distances = [compute_distance(point, other) for n, point in enumerate(points) for other in points[:n]]
        assert min(distances) >= APART * UNIT and len({*layout.colours}) == 3


def test_pictures_are_reproducible() -> None:
    pixels = Table(HAND_LAYOUT, True).paint()
    assert hashlib.sha256(pixels.tobytes()).hexdigest()[:16] == "0adec1eb0ad20b14"
    assert tuple(pixels[24, 10]) == (240, 240, 240) and pixels[24, 20, 0] > 180 > pixels[24, 20, 1]


def test_hand_camera_shows_the_table_around_the_hand() -> None:
    table, fixed_table = Table(HAND_LAYOUT, False, follows=True), Table(HAND_LAYOUT, False)
    table.move(20, 12, 0)
    fixed_table.move(20, 12, 0)
    column, row = (axis // UNIT for axis in fixed_table.hand)
    picture, fixed_picture = table.paint(), fixed_table.paint()
    assert (
        picture[24 - row : 24 - row + SIDE, 24 - column :] == fixed_picture[:, : SIDE - 24 + column][: SIDE + row - 24]
    ).all()
    assert not picture[:, : 24 - column].any() and not picture[: 24 - row].any()
    assert table.locate_in_picture(table.hand) == (24 * UNIT + 32, 24 * UNIT + 32)
    for colour, block in zip(HAND_LAYOUT.colours, HAND_LAYOUT.blocks, strict=True):
        position = table.locate_in_picture(block)
        is_outside = max(abs(block[0] // UNIT - column), abs(block[1] // UNIT - row)) > 24
        assert (position is None) == is_outside and (colour != "red" or position is not None)
        if position:
            x, y = (axis // UNIT for axis in position)
            assert (picture[y, x] == fixed_picture[block[1] // UNIT, block[0] // UNIT]).all()


def test_pictures_do_not_depend_on_the_target() -> None:
    first, second = (Table(HAND_LAYOUT._replace(wanted=wanted), False).paint() for wanted in (0, 2))
    assert (first == second).all()


def test_a_match_by_hand() -> None:
    game = start_game()
    game.table = Table(HAND_LAYOUT, False)
    game.wanted, game.start = 0, game.table.measure_remaining(0)
    game.step("31 16 0")
    (message,) = game.messages("viewer")
    (image,) = message.images
    assert message.text == image.text and (decode_pixels(game.picture(image.hash)) == game.table.paint()).all()
    game.step("27,16, 31")
    assert game.ended == "done" and game.payoffs() == {"viewer": 1.0} and game.report()["distance"] == 0.0


def test_lowering_the_hand_elsewhere_fails() -> None:
    game = start_game()
    game.step("16 16 16")
    assert game.ended == "missed" and game.payoffs() == {"viewer": 0.0} and game.report()["success"] is False


@pytest.mark.parametrize("act", ["", "1 2", "32 0 0", "1 2 3 4", "-1 2 3", "1.5 2 3", "٣ 1 2", "100 1 1", "1 2 " * 999])
def test_other_text_is_illegal_and_changes_nothing(act: str) -> None:
    game = start_game()
    before = game.table.hand
    game.step(act)
    assert game.infos["viewer"]["valid"] is False and game.table.hand == before


@pytest.mark.parametrize("task", ["reach", "push"])
def test_progress_sums_to_one_and_is_not_paid(task: str) -> None:
    game = start_game(task=task, progress=True)
    progress = 0.0
    while not game.ended:
        game.step(" ".join(map(str, expert_act(game.table, game.wanted))))
        progress += game.infos["viewer"]["rewards"]["progress"]
    remaining = game.table.measure_remaining(game.wanted) / game.start
    assert progress == pytest.approx(1 - remaining) and game.payoffs() == {"viewer": pytest.approx(1.0)}
    assert "progress" in game.reward_parts and "progress" not in Reach().reward_parts


def test_scripted_players_are_ordered() -> None:
    for task in ("reach", "push"):
        game = Reach(task=task)
        rates = {
            name: np.mean([conformance.play(game, seed, name)["success"] for seed in range(count)])
            for name, count in (("oracle", 40), ("hasty", 40), ("blind", 100), ("noop", 2))
        }
        assert rates["oracle"] == 1.0 and 0.15 <= rates["hasty"] <= 0.6 and rates["noop"] == 0.0
        assert rates["blind"] <= 0.05


@pytest.mark.slow
def test_blind_player_is_at_chance() -> None:
    game = Reach()
    rate = np.mean([conformance.play(game, seed, "blind")["success"] for seed in range(3000)])
    assert rate <= game.floor + 0.02 + 0.005


def test_lessons_label_colours_and_completed_segments() -> None:
    game, rng = Reach(task="mixed"), random.Random(1)
    lesson = game.lesson(rng, "colours")
    (grid,) = lesson.labels
    words = [word for row in grid for (word,) in row]
    assert len(words) == 36 and words.count("none") == 33 and set(lesson.pictures) == {lesson.parts[1].hash}  # type: ignore[union-attr]
    answers = [game.lesson(rng, "completed").answer for _ in range(60)]
    assert set(answers) == {"yes", "no"} and 15 <= answers.count("yes") <= 45
    segments = [game.lesson(rng, "segment") for _ in range(60)]
    assert all(str(lesson.parts[0]).startswith("go ") for lesson in segments)
    assert 15 <= [lesson.answer for lesson in segments].count("yes") <= 45


class FixedLayoutReach(Reach):
    """Reach that always uses `HAND_LAYOUT`; lessons may move the hand."""

    def draw_layout(self, rng: np.random.Generator) -> Layout:
        return HAND_LAYOUT


def list_labelled_cells(lesson: Any) -> dict[str, list[tuple[int, int]]]:
    """Return the cells of each label except `none` in a lesson's only picture."""
    (grid,) = lesson.labels
    cells_by_label: dict[str, list[tuple[int, int]]] = {}
    for row, words in enumerate(grid):
        for column, cell_words in enumerate(words):
            for word in {*cell_words} - {"none"}:
                cells_by_label.setdefault(word, []).append((row, column))
    return cells_by_label


def test_lessons_of_places_by_hand() -> None:
    game, rng = FixedLayoutReach(bins=9), random.Random(3)
    blocks = {"red": (1, 1), "green": (0, 1), "blue": (2, 1)}
    assert list_labelled_cells(game.lesson(rng, "spots")) == {"white": [(1, 0)]} | {
        name: [cell] for name, cell in blocks.items()
    }
    answers = {"red": "3 4", "green": "4 1", "blue": "4 7"}
    for _ in range(40):
        lesson = game.lesson(rng, "where")
        name = str(lesson.parts[0]).removeprefix("where ")
        assert name == "white" or (
            lesson.answer == answers[name] and list_labelled_cells(lesson) == {"target": [blocks[name]]}
        )


def test_way_lessons_lead_to_the_block() -> None:
    game, rng, down_count = FixedLayoutReach(bins=5), random.Random(3), 0
    blocks = dict(zip(HAND_LAYOUT.colours, HAND_LAYOUT.blocks, strict=True))
    for _ in range(60):
        lesson = game.lesson(rng, "way")
        colour = str(lesson.parts[0]).removeprefix("go ")
        picture = decode_pixels(next(iter(lesson.pictures.values())))
        rows, columns = np.nonzero((picture == 240).all(2))
        table = Table(HAND_LAYOUT._replace(hand=(int(columns.mean()) * UNIT, int(rows.mean()) * UNIT)), False)
        before = compute_distance(table.hand, blocks[colour])
        act = [as_fine(int(number), 5) for number in lesson.answer.split()]
        table.move(*act)
        assert compute_distance(table.hand, blocks[colour]) < max(before, 4 * UNIT)
        assert not table.is_down or compute_distance(table.hand, blocks[colour]) <= 5 * UNIT
        down_count += table.is_down
        assert {word for word in list_labelled_cells(lesson)} in ({"start", "target"}, {"target"})
    assert 15 <= down_count <= 45


def test_segment_is_complete_before_the_hand_reaches_the_named_block() -> None:
    game, rng, hashes_by_answer = FixedLayoutReach(), random.Random(3), {"yes": set[str](), "no": set[str]()}
    table = Table(HAND_LAYOUT, False)
    start = encode(table.paint())
    while not table.is_done(0):
        before = encode(table.paint())
        table.move(*expert_act(table, 0))
    for _ in range(80):
        lesson = game.lesson(rng, "segment")
        assert lesson.parts[0] == "go red"
        hashes_by_answer[lesson.answer] |= {*lesson.pictures}
    assert hashes_by_answer["yes"] == {hashlib.sha256(before).hexdigest()} and len(hashes_by_answer["no"]) > 3
    assert (
        hashlib.sha256(start).hexdigest() in hashes_by_answer["no"]
        and not hashes_by_answer["yes"] & hashes_by_answer["no"]
    )


@given(st.integers(5, 32), st.data())
def test_bins_survive_conversion_to_thirty_two(bins: int, data: Any) -> None:
    number = data.draw(st.integers(0, bins - 1))
    assert as_coarse(as_fine(number, bins), bins) == number
    assert as_fine(bins // 2, bins) == 16 and (as_fine(number, bins) >= 16) == (number >= bins // 2)


def test_fewer_bins_take_larger_steps_and_exclude_pushing() -> None:
    game = start_game(bins=9)
    hand = game.table.hand
    game.step("8 4 0")
    assert game.table.hand == (min(hand[0] + 6 * UNIT, (SIDE - HAND) * UNIT - 1), hand[1])
    game.step("9 4 0")
    assert game.infos["viewer"]["valid"] is False and game.public()["stay"] == "[4 4 0]"
    for bins in (5, 9, 12):
        game = Reach(bins=bins, max_turns=8)
        assert all(conformance.play(game, seed, "oracle")["success"] for seed in range(40))
    for options in ({"bins": 4}, {"bins": 33}, {"bins": 9, "task": "push"}, {"bins": 9, "task": "mixed"}):
        with pytest.raises(ValueError, match="bins"):
            Reach(**options)


def test_unsure_player_takes_the_target_or_the_nearest_other() -> None:
    game, right_count = Reach(), 0
    for seed in range(60):
        report = conformance.play(game, seed, "unsure")
        end_distances = [compute_distance(game.table.hand, block) for block in game.table.blocks]
        start_distances = [compute_distance(game.table.layout.hand, block) for block in game.table.layout.blocks]
        others = [block for block in range(3) if block != game.wanted]
        right_count += bool(report["success"])
        assert report["success"] or end_distances.index(min(end_distances)) == min(
            others, key=start_distances.__getitem__
        )
    assert 20 <= right_count <= 40


def test_a_block_at_the_numbers_of_no_movement_is_no_leak() -> None:
    game, places = Reach(task="push"), set()
    for view in conformance.walk(game, 937, "oracle"):  # pushes the block over pixel 16 16
        assert not any(text in repr(view.public) for text in game.hidden()["place"])
        x, y = game.table.blocks[game.wanted]
        places.add((x // UNIT, y // UNIT))
    assert (16, 16) in places
