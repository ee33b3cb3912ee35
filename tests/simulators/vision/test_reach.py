"""Reach: a hand of binned moves, blocks that are pushed by contact, and a process reward beside the sparse one."""

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
from tests.simulators.vision.probes import decoded

HAND_LAYOUT = Layout(
    (10 * UNIT, 24 * UNIT), ((20 * UNIT, 24 * UNIT), (24 * UNIT, 10 * UNIT), (24 * UNIT, 38 * UNIT)),
    (38 * UNIT, 24 * UNIT), ("red", "green", "blue"), 0, 1,
)  # fmt: skip
"""Hand, red block and ring in a row."""


def started(seed: int = 3, **options: Any) -> Reach:
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
def test_it_keeps_its_promises_over_many_seeds(options: dict[str, Any], capsys: Any) -> None:
    assert passes_over_many_seeds(lambda: Reach(**options), options, capsys)


@pytest.mark.parametrize(
    ("bins", "moved"),
    [((16, 16, 0), (0, 0)), ((31, 16, 0), (360, 0)), ((0, 16, 0), (-384, 0)), ((17, 15, 0), (24, -24))],
)
def test_bins_are_steps_of_three_eighths_of_a_pixel(bins: tuple[int, int, int], moved: tuple[int, int]) -> None:
    table = Table(HAND_LAYOUT, True)
    table.move(*bins)
    assert table.hand == (10 * UNIT + moved[0], 24 * UNIT + moved[1]) and table.blocks == [*HAND_LAYOUT.blocks]


def test_a_hand_that_is_down_pushes_straight_on_and_a_lifted_one_passes() -> None:
    table, lifted = Table(HAND_LAYOUT, True), Table(HAND_LAYOUT, True)
    for _ in range(2):
        table.move(31, 16, 31)
        lifted.move(31, 16, 0)
    assert table.hand == lifted.hand == (10 * UNIT + 720, 24 * UNIT)
    assert table.blocks[0] == (table.hand[0] + CONTACT, 24 * UNIT) and table.blocks[1:] == [*HAND_LAYOUT.blocks[1:]]
    assert lifted.blocks == [*HAND_LAYOUT.blocks]


@given(st.integers(0, 2**31), st.lists(st.tuples(*[st.integers(0, 31)] * 3), max_size=20))
def test_nothing_leaves_the_table_and_equal_acts_give_equal_tables(seed: int, acts: list[tuple[int, int, int]]) -> None:
    layout = draw_layout(np.random.default_rng(seed))
    one, two = Table(layout, True), Table(layout, True)
    for bins in acts:
        one.move(*bins)
        two.move(*bins)
    assert one == two and (one.paint() == two.paint()).all()
    for radius, points in ((HAND, [one.hand]), (BLOCK, one.blocks)):
        assert all(radius * UNIT <= axis < (SIDE - radius) * UNIT for point in points for axis in point)


def test_layouts_are_apart() -> None:
    for seed in range(300):
        layout = draw_layout(np.random.default_rng(seed))
        points = [layout.hand, layout.ring, *layout.blocks]
        apart = [compute_distance(one, other) for n, one in enumerate(points) for other in points[:n]]
        assert min(apart) >= APART * UNIT and len({*layout.colours}) == 3


def test_pictures_are_the_same_on_every_processor() -> None:
    pixels = Table(HAND_LAYOUT, True).paint()
    assert hashlib.sha256(pixels.tobytes()).hexdigest()[:16] == "0adec1eb0ad20b14"
    assert tuple(pixels[24, 10]) == (240, 240, 240) and pixels[24, 20, 0] > 180 > pixels[24, 20, 1]


def test_a_picture_that_follows_the_hand_is_the_table_around_it() -> None:
    table, whole = Table(HAND_LAYOUT, False, follows=True), Table(HAND_LAYOUT, False)
    table.move(20, 12, 0)
    whole.move(20, 12, 0)
    column, row = (axis // UNIT for axis in whole.hand)
    picture, seen = table.paint(), whole.paint()
    assert (
        picture[24 - row : 24 - row + SIDE, 24 - column :] == seen[:, : SIDE - 24 + column][: SIDE + row - 24]
    ).all()
    assert not picture[:, : 24 - column].any() and not picture[: 24 - row].any()
    assert table.locate_in_picture(table.hand) == (24 * UNIT + 32, 24 * UNIT + 32)
    for colour, block in zip(HAND_LAYOUT.colours, HAND_LAYOUT.blocks, strict=True):
        place = table.locate_in_picture(block)
        beyond = max(abs(block[0] // UNIT - column), abs(block[1] // UNIT - row)) > 24
        assert (place is None) == beyond and (colour != "red" or place is not None)
        if place:
            x, y = (axis // UNIT for axis in place)
            assert (picture[y, x] == seen[block[1] // UNIT, block[0] // UNIT]).all()


def test_the_wanted_block_changes_no_pixel() -> None:
    one, two = (Table(HAND_LAYOUT._replace(wanted=wanted), False).paint() for wanted in (0, 2))
    assert (one == two).all()


def test_a_match_by_hand() -> None:
    game = started()
    game.table = Table(HAND_LAYOUT, False)
    game.wanted, game.start = 0, game.table.left(0)
    game.step("31 16 0")
    (message,) = game.messages("viewer")
    (image,) = message.images
    assert message.text == image.text and (decoded(game.picture(image.hash)) == game.table.paint()).all()
    game.step("27,16, 31")
    assert game.ended == "done" and game.payoffs() == {"viewer": 1.0} and game.report()["distance"] == 0.0


def test_a_hand_put_down_elsewhere_fails() -> None:
    game = started()
    game.step("16 16 16")
    assert game.ended == "missed" and game.payoffs() == {"viewer": 0.0} and game.report()["success"] is False


@pytest.mark.parametrize("act", ["", "1 2", "32 0 0", "1 2 3 4", "-1 2 3", "1.5 2 3", "٣ 1 2", "100 1 1", "1 2 " * 999])
def test_other_texts_are_illegal_and_change_nothing(act: str) -> None:
    game = started()
    before = game.table.hand
    game.step(act)
    assert game.infos["viewer"]["valid"] is False and game.table.hand == before


@pytest.mark.parametrize("task", ["reach", "push"])
def test_progress_sums_to_one_and_is_no_part_of_the_payoff(task: str) -> None:
    game = started(task=task, progress=True)
    gained = 0.0
    while not game.ended:
        game.step(" ".join(map(str, expert_act(game.table, game.wanted))))
        gained += game.infos["viewer"]["rewards"]["progress"]
    left = game.table.left(game.wanted) / game.start
    assert gained == pytest.approx(1 - left) and game.payoffs() == {"viewer": pytest.approx(1.0)}
    assert "progress" in game.reward_parts and "progress" not in Reach().reward_parts


def test_yardsticks_stand_in_order() -> None:
    for task in ("reach", "push"):
        game = Reach(task=task)
        rates = {
            name: np.mean([conformance.play(game, seed, name)["success"] for seed in range(count)])
            for name, count in (("oracle", 40), ("hasty", 40), ("blind", 100), ("noop", 2))
        }
        assert rates["oracle"] == 1.0 and 0.15 <= rates["hasty"] <= 0.6 and rates["noop"] == 0.0
        assert rates["blind"] <= 0.05


@pytest.mark.slow
def test_who_sees_nothing_does_no_better_than_chance() -> None:
    game = Reach()
    rate = np.mean([conformance.play(game, seed, "blind")["success"] for seed in range(3000)])
    assert rate <= game.floor + 0.02 + 0.005


def test_lessons_tell_colours_in_place_and_completed_moments() -> None:
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
    with pytest.raises(ValueError, match="there is no lesson 'x'"):
        game.lesson(rng, "x")


class Still(Reach):
    """Tables like `HAND_LAYOUT`, whose hand lessons may move."""

    def draw_layout(self, rng: np.random.Generator) -> Layout:
        return HAND_LAYOUT


def cells(lesson: Any) -> dict[str, list[tuple[int, int]]]:
    """The cells of each label but `none`, of the one picture."""
    (grid,) = lesson.labels
    found: dict[str, list[tuple[int, int]]] = {}
    for row, words in enumerate(grid):
        for column, own in enumerate(words):
            for word in {*own} - {"none"}:
                found.setdefault(word, []).append((row, column))
    return found


def test_lessons_of_places_by_hand() -> None:
    game, rng = Still(bins=9), random.Random(3)
    blocks = {"red": (1, 1), "green": (0, 1), "blue": (2, 1)}
    assert cells(game.lesson(rng, "spots")) == {"white": [(1, 0)]} | {name: [cell] for name, cell in blocks.items()}
    answers = {"red": "3 4", "green": "4 1", "blue": "4 7"}
    for _ in range(40):
        where = game.lesson(rng, "where")
        name = str(where.parts[0]).removeprefix("where ")
        assert name == "white" or (where.answer == answers[name] and cells(where) == {"target": [blocks[name]]})


def test_lessons_of_ways_are_acts_that_lead_to_the_block() -> None:
    game, rng, downs = Still(bins=5), random.Random(3), 0
    blocks = dict(zip(HAND_LAYOUT.colours, HAND_LAYOUT.blocks, strict=True))
    for _ in range(60):
        lesson = game.lesson(rng, "way")
        colour = str(lesson.parts[0]).removeprefix("go ")
        picture = decoded(next(iter(lesson.pictures.values())))
        rows, columns = np.nonzero((picture == 240).all(2))
        table = Table(HAND_LAYOUT._replace(hand=(int(columns.mean()) * UNIT, int(rows.mean()) * UNIT)), False)
        before = compute_distance(table.hand, blocks[colour])
        act = [as_fine(int(number), 5) for number in lesson.answer.split()]
        table.move(*act)
        assert compute_distance(table.hand, blocks[colour]) < max(before, 4 * UNIT)
        assert not table.is_down or compute_distance(table.hand, blocks[colour]) <= 5 * UNIT
        downs += table.is_down
        assert {word for word in cells(lesson)} in ({"start", "target"}, {"target"})
    assert 15 <= downs <= 45


def test_a_segment_is_completed_where_the_next_act_puts_the_hand_down_on_the_named_block() -> None:
    game, rng, told = Still(), random.Random(3), {"yes": set[str](), "no": set[str]()}
    table = Table(HAND_LAYOUT, False)
    start = encode(table.paint())
    while not table.is_done(0):
        before = encode(table.paint())
        table.move(*expert_act(table, 0))
    for _ in range(80):
        lesson = game.lesson(rng, "segment")
        assert lesson.parts[0] == "go red"
        told[lesson.answer] |= {*lesson.pictures}
    assert told["yes"] == {hashlib.sha256(before).hexdigest()} and len(told["no"]) > 3
    assert hashlib.sha256(start).hexdigest() in told["no"] and not told["yes"] & told["no"]


@given(st.integers(5, 32), st.data())
def test_bins_are_kept_by_way_of_thirty_two(bins: int, data: Any) -> None:
    number = data.draw(st.integers(0, bins - 1))
    assert as_coarse(as_fine(number, bins), bins) == number
    assert as_fine(bins // 2, bins) == 16 and (as_fine(number, bins) >= 16) == (number >= bins // 2)


def test_fewer_bins_step_farther_and_are_for_reaching_alone() -> None:
    game = started(bins=9)
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


def test_who_is_unsure_takes_the_named_block_or_the_nearest_other() -> None:
    game, right = Reach(), 0
    for seed in range(60):
        report = conformance.play(game, seed, "unsure")
        away = [compute_distance(game.table.hand, block) for block in game.table.blocks]
        start = [compute_distance(game.table.layout.hand, block) for block in game.table.layout.blocks]
        others = [block for block in range(3) if block != game.wanted]
        right += bool(report["success"])
        assert report["success"] or away.index(min(away)) == min(others, key=start.__getitem__)
    assert 20 <= right <= 40
