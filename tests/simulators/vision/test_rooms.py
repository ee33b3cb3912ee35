"""Rooms: walls visible only in pictures, parsing of layouts, and MetaSpatial's rewards."""

import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from games.png import encode
from simulators import conformance
from simulators.vision import Rooms
from simulators.vision.drawing import COLOURS
from simulators.vision.furniture import DEPTH, SIDES, WIDTH, Task, Wish, compute_gap, draw_task
from simulators.vision.layouts import LayoutError, as_letters, describe_briefly, draw_layout, read_layout, read_letters
from simulators.vision.rooms_players import format_layout
from tests.simulators.promises import find_failed_checks, passes_over_many_seeds
from tests.simulators.vision.probes import decode_pixels

TASK = Task(
    sizes=(("bed", (12, 8)), ("desk", (8, 5)), ("lamp", (3, 3))),
    wishes=(Wish("at", "bed", "red"), Wish("beside", "lamp", "bed"), Wish("apart", "desk", "bed")),
    walls=("red", "blue", "green", "cyan"),
    pillar=(20, 20),
)
SOLVED = {"bed": (0, 10), "desk": (30, 10), "lamp": (14, 10)}


def start_game(seed: int = 3, **options: Any) -> Rooms:
    game = Rooms(**options)
    game.reset(seed=seed)
    return game


def play_legal_acts(game: Rooms, *acts: str) -> dict[str, float]:
    """Play legal acts and return the rewards of the last one."""
    for act in acts:
        game.step(act)
        assert game.infos["viewer"]["valid"]
    rewards: dict[str, float] = game.infos["viewer"]["rewards"]
    return rewards


def find_solution(game: Rooms) -> dict[str, tuple[int, int]]:
    return dict(game.task.arrange(np.random.default_rng(0), game.task.walls))


def decode_newest_picture(game: Rooms) -> np.ndarray:
    """Return the pixels of the picture in the newest message."""
    return decode_pixels(game.picture(game.messages("viewer")[-1].images[0].hash))


@pytest.mark.parametrize(
    "options", [{}, {"split": "test", "max_turns": 1}, {"acts": "letters"}, {"acts": "letters", "things": 2}], ids=str
)
def test_passes_the_conformance_kit(options: dict[str, Any]) -> None:
    assert find_failed_checks(lambda: Rooms(**options), seeds=3, acts=60) == []


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"acts": "letters", "things": 2}, {"things": 3, "max_turns": 5}], ids=str)
def test_passes_the_conformance_kit_over_many_seeds(options: dict[str, Any], capsys: Any) -> None:
    assert passes_over_many_seeds(lambda: Rooms(**options), options, capsys)


@pytest.mark.parametrize(
    ("moves", "met_count", "colliding", "misplaced"),
    [
        ({}, 3, set(), set()),
        ({"bed": (1, 10)}, 3, set(), set()),
        ({"bed": (2, 10)}, 2, set(), set()),  # not at the wall
        ({"bed": (0, 1)}, 2, set(), set()),  # in a corner
        ({"bed": (-1, 10)}, 1, set(), {"bed"}),  # beyond the wall; the lamp is 3 away
        ({"lamp": (11, 10)}, 2, {"bed", "lamp"}, set()),  # overlapping is not beside
        ({"lamp": (12, 18)}, 3, set(), set()),  # touching at the corners
        ({"desk": (21, 10)}, 2, set(), set()),  # 9 from the bed
        ({"desk": (22, 19)}, 3, set(), {"desk"}),  # on the pillar
        ({"desk": (41, 10)}, 3, set(), {"desk"}),  # one unit beyond the wall
        ({"lamp": (1000, -1000)}, 2, set(), {"lamp"}),
    ],
)
def test_layouts_are_judged_by_hand(
    moves: dict[str, Any], met_count: int, colliding: set[str], misplaced: set[str]
) -> None:
    places = SOLVED | moves
    assert TASK.compute_met_share(places) == pytest.approx(met_count / 3)
    assert TASK.find_colliding(places) == colliding and TASK.find_misplaced(places) == misplaced
    assert TASK.is_solved_by(places) == (met_count == 3 and not colliding and not misplaced)


def test_gap_is_the_larger_axis_distance() -> None:
    assert compute_gap((0, 0, 2, 2), (2, 2, 4, 4)) == 0 and compute_gap((0, 0, 2, 2), (5, 3, 6, 6)) == 3
    assert compute_gap((0, 0, 4, 4), (3, 1, 9, 9)) == -1 and compute_gap((0, 0, 9, 9), (3, 3, 4, 4)) < 0


def test_every_task_is_solvable_and_names_two_walls() -> None:
    for seed in range(60):
        task = draw_task(np.random.default_rng(seed))
        assert task.is_solved_by(task.arrange(np.random.default_rng(seed), task.walls))
        assert len({wish.other for wish in task.wishes if wish.kind == "at"} & {*task.walls}) == 2


@pytest.mark.parametrize("things", [2, 3, 4, 5])
def test_smaller_tasks_use_the_first_wishes_and_even_positions(things: int) -> None:
    for seed in range(30):
        task = draw_task(np.random.default_rng(seed), 2, things)
        names = [name for name, _ in task.sizes]
        assert len(names) == things and [w.kind for w in task.wishes] == ["at", "at", "beside", "apart"][:things]
        assert all({wish.thing, wish.other} <= {*names, *task.walls} for wish in task.wishes)
        places = task.arrange(np.random.default_rng(seed), task.walls)
        assert task.is_solved_by(places) and not any(axis % 2 for place in places.values() for axis in place)


def test_the_number_of_things_is_bounded() -> None:
    for things in (1, 6, 2.5):
        with pytest.raises(ValueError, match="things"):
            Rooms(things=things)  # type: ignore[arg-type]


def test_only_pictures_show_walls_and_all_have_one_size() -> None:
    """Rooms with rotated walls have the same texts and the same file sizes."""
    sizes = set()
    for seed in range(10):
        game = start_game(seed)
        texts = json.dumps([game.public(), game.rules(), game.messages("viewer")[0].parts[0]])
        rotated = game.task._replace(walls=game.task.walls[1:] + game.task.walls[:1], pillar=(7, 7))
        picture, rotated_picture = (encode(draw_layout(task, {}, 0)) for task in (game.task, rotated))
        sizes |= {len(picture), len(rotated_picture)}
        assert picture != rotated_picture
        game.task = rotated
        assert json.dumps([game.public(), game.rules(), game.messages("viewer")[0].parts[0]]) == texts
    assert len(sizes) == 1


def test_the_picture_shows_walls_pillar_and_things() -> None:
    places = SOLVED | {"desk": (45, -2)}
    pixels = draw_layout(TASK, places, 0)
    middles = (pixels[57, 1], pixels[1, 75], pixels[57, -2], pixels[-2, 75])
    assert [tuple(pixel.tolist()) for pixel in middles] == [COLOURS[colour] for colour in TASK.walls]
    assert pixels[3 + 66, 3 + 66].tolist() == [90] * 3, "the pillar"
    assert pixels[3 + 32, 3 + 3].tolist() == [120, 90, 60], "the bed"
    assert pixels[3 + 3, 3 + 136].tolist() == [240] * 3, "the desk is misplaced and cropped"
    assert pixels.shape == (DEPTH * 3 + 6, WIDTH * 3 + 6, 3)
    assert (draw_layout(TASK, {"lamp": (-1000, 1000)}, 0) == draw_layout(TASK, {}, 0)).all()


def test_scripted_players_are_ordered() -> None:
    game, count = Rooms(split="train"), 150
    rates = {
        name: np.mean([conformance.play(game, seed, name)["success"] for seed in range(count)])
        for name in ("oracle", "weak")
    }
    assert rates["oracle"] == 1.0 and 0.4 <= rates["weak"] <= 0.66


def test_blind_wall_guesses_are_right_one_time_in_twelve() -> None:
    guesses = dict.fromkeys(((first, second) for first in range(4) for second in range(4) if first != second), 0)
    count = 1200
    for seed in range(count):
        task = draw_task(np.random.default_rng(seed))
        first, second = (task.walls.index(wish.other) for wish in task.wishes if wish.kind == "at")
        guesses[first, second] += 1
    assert len(guesses) == 12 and len(SIDES) == 4
    assert max(guesses.values()) / count <= 1 / 12 + 0.02 + 2 * (0.0764 / count) ** 0.5, "two standard errors above"


def test_no_object_is_at_two_walls() -> None:
    """So a layout can guess only one wall per object."""
    walls = ("red", "blue", "green", "cyan")
    for x in range(WIDTH - 11):
        for y in range(DEPTH - 7):
            wished = (TASK._replace(wishes=(Wish("at", "bed", wall),)) for wall in walls)
            assert sum(task.compute_met_share({"bed": (x, y)}) for task in wished) <= 1


def test_a_match_by_hand() -> None:
    game = start_game()
    (message,) = game.messages("viewer")
    assert (
        message.parts[0] == "The empty room."
        and (decode_newest_picture(game) == draw_layout(game.task, {}, game.grain)).all()
    )
    places = find_solution(game)
    stacked = dict.fromkeys(places, (0, 0))
    assert play_legal_acts(game, format_layout(stacked)) == {}
    assert (decode_newest_picture(game) == draw_layout(game.task, stacked, game.grain)).all()
    assert play_legal_acts(game, f"better: <answer>{format_layout(places)}</answer>", " Done ") == {
        "wishes": 1.0, "collision": 0.0, "constraint": 0.0, "format": 0.5,
    }  # fmt: skip
    assert game.payoffs() == {"viewer": 1.5} and game.report()["score"] == 1.0 and game.report()["layouts"] == 2


def test_last_layout_counts_and_faults_are_penalised() -> None:
    game = start_game(max_turns=2)
    stacked = dict.fromkeys(find_solution(game), (0, 0))
    rewards = play_legal_acts(game, format_layout(find_solution(game)), format_layout(stacked))
    assert rewards["collision"] == -0.2 and rewards["constraint"] == 0.0 and rewards["wishes"] <= 0.5
    outside = dict.fromkeys(stacked, (900, 900))
    assert play_legal_acts(start_game(max_turns=1), format_layout(outside))["constraint"] == -0.2


def test_no_layout_earns_nothing() -> None:
    game = start_game()
    assert play_legal_acts(game, "done") == {} and game.ended == "empty" and game.payoffs() == {"viewer": 0.0}


def test_errors_leave_the_layout_and_cost_the_format() -> None:
    game = start_game()
    assert play_legal_acts(game, format_layout(find_solution(game)), "{}", "what") == {
        "wishes": 1.0, "collision": 0.0, "constraint": 0.0, "format": 0.0,
    }  # fmt: skip
    assert game.report()["errors"] == 2 and game.report()["success"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "write"), ("bed", "write"), ("[1]", "write"), ("[" * 4000, "nested too deeply"),
        ('{"a":' * 700, "write|nested too deeply"), ('{"bed": [1, 2]}', "place the lamp, too"),
        ('{"bed": [1, 2], "bed": [3, 4], "lamp": [1, 2]}', "a key is there twice"),
        ('{"bed": [NaN, 2], "lamp": [1, 2]}', "NaN is no number"),
        ('{"bed": [Infinity, 2], "lamp": [1, 2]}', "Infinity is no number"),
        ('{"bed": [1e999, 2], "lamp": [1, 2]}', "a number is too large"),
        ('{"bed": [%s, 2], "lamp": [1, 2]}' % ("9" * 3000), "more than 40 digits"),
        ('{"bed": [1001, 2], "lamp": [1, 2]}', "the bed needs two numbers"),
        ('{"bed": [true, 2], "lamp": [1, 2]}', "the bed needs two numbers"),
        ('{"bed": ["1", 2], "lamp": [1, 2]}', "the bed needs two numbers"),
        ('{"bed": [1, 2, 3], "lamp": [1, 2]}', "the bed needs two numbers"),
        ('{"bed": {"x": 1}, "lamp": [1, 2]}', "the bed needs two numbers"),
        ('{"bed": [1, 2], "lamp": null}', "the lamp needs two numbers"),
        ('{"bed": [1, 2], "lamp": [1, 2], "sofa": [1, 2]}', "there is no 'sofa' here"),
        ('{"%s\\n": [1, 2]}' % ("x" * 3000), "there is no 'x{20}' here"),
        ("<answer></answer>", "write"), ("<answer>" * 400, "write"), ("{} {}", "write"),
    ],
)  # fmt: skip
def test_refuses_invalid_layouts_in_one_line(text: str, message: str) -> None:
    with pytest.raises(LayoutError, match=message) as error:
        read_layout(text, ["bed", "lamp"])
    assert "\n" not in str(error.value) and len(str(error.value)) < 120


@pytest.mark.parametrize(
    ("text", "bed"),
    [
        ('{"lamp": [0, 0], "bed": [1, 2]}', (1, 2)), (' {"bed": [1.9, -2.9], "lamp": [0, 0]} ', (1, -2)),
        ('so <ANSWER>{"bed": [-1000, 1e3],\n"lamp": [0, 0]}</answer> or', (-1000, 1000)),
    ],
)  # fmt: skip
def test_parses_layouts(text: str, bed: tuple[int, int]) -> None:
    assert read_layout(text, ["bed", "lamp"]) == {"bed": bed, "lamp": (0, 0)}


JSONS = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=4), st.lists, max_leaves=6
)


@given(st.dictionaries(st.sampled_from(["bed", "desk", "lamp", "x"]), JSONS).map(json.dumps) | st.text(max_size=40))
def test_any_text_is_a_drawable_layout_or_refused(text: str) -> None:
    try:
        places = read_layout(text, ["bed", "desk", "lamp"])
    except LayoutError:
        return
    assert draw_layout(TASK, places, 0).shape == (114, 150, 3)


@given(st.tuples(*[st.tuples(st.integers(-60, 60), st.integers(-60, 60))] * 3))
def test_any_layout_is_drawable_with_a_score_in_unit_interval(corners: tuple[tuple[int, int], ...]) -> None:
    places = dict(zip(("bed", "desk", "lamp"), corners, strict=True))
    assert draw_layout(TASK, places, 0).shape == (114, 150, 3) and 0 <= TASK.compute_met_share(places) <= 1


def test_train_and_test_share_no_task_and_the_same_seed_shows_the_same_bytes() -> None:
    tasks = {split: {start_game(seed, split=split).task for seed in range(60)} for split in ("train", "test")}
    assert not tasks["train"] & tasks["test"]
    assert start_game(5).album.pictures == start_game(5).album.pictures


NAMES = ("bed", "desk", "lamp")


@given(st.lists(st.integers(0, 25), min_size=6, max_size=6))
def test_letters_encode_even_positions(steps: list[int]) -> None:
    text = as_letters(2 * step for step in steps)
    places = read_letters(f" {text}\n", NAMES)
    assert [axis for name in NAMES for axis in places[name]] == [2 * step for step in steps]


@pytest.mark.parametrize(
    "text", ["", "A B", "A B C D E", "A B C D E F G", "a B C D E F", "A B C D E 1", "AB C D E F", "Ä B C D E F"]
)
def test_refuses_other_letters_in_one_line(text: str) -> None:
    with pytest.raises(LayoutError, match="write 6 letters A to Z"):
        read_letters(text, NAMES)


def test_match_in_letters_by_hand() -> None:
    assert describe_briefly(TASK) == "1 G E 2 E D 3 C C 1 at red 3 near 1 2 far 1"
    game = start_game(acts="letters")
    (message,) = game.messages("viewer")
    assert message.text == message.images[0].text and game.public()["brief"] == describe_briefly(game.task)
    stacked = "A A " * 5
    assert play_legal_acts(game, stacked) == {} and len(game.task.find_colliding(game.places)) == 5
    solved = as_letters(axis for name, _ in game.task.sizes for axis in find_solution(game)[name])
    assert play_legal_acts(game, solved, "done") == {"wishes": 1.0, "collision": 0.0, "constraint": 0.0, "format": 0.5}
    assert "brief" not in start_game().public()


def test_scripted_players_of_letters_are_ordered() -> None:
    game = Rooms(acts="letters")
    reports_by_player = {
        name: [conformance.play(game, seed, name) for seed in range(60)] for name in ("oracle", "weak", "reviser")
    }
    assert all(report["success"] for report in reports_by_player["oracle"])
    assert all(
        0.3 <= np.mean([report["success"] for report in reports_by_player[name]]) <= 0.6 for name in ("weak", "reviser")
    )
    layouts = {name: np.mean([report["layouts"] for report in reports_by_player[name]]) for name in reports_by_player}
    assert layouts["weak"] == 1 < 1.3 < layouts["reviser"] < 2


class RecordingRooms(Rooms):
    """Rooms that record the newest task."""

    def draw_task(self, rng: np.random.Generator) -> Task:
        self.newest = super().draw_task(rng)
        return self.newest


def test_lessons_of_layouts_solve_their_first_things() -> None:
    game, counts = RecordingRooms(acts="letters"), set()
    for seed in range(20):
        lesson = game.lesson(random.Random(seed), "layout")
        task = game.newest
        count = len(lesson.answer.split()) // 2
        partial_task = task._replace(sizes=task.sizes[:count], wishes=task.wishes[: min(count, 2)])
        assert lesson.parts[0] == describe_briefly(partial_task) and lesson.labels == ((((),),),)
        assert partial_task.is_solved_by(read_letters(lesson.answer, [name for name, _ in partial_task.sizes]))
        counts.add(count)
    assert counts == {1, 2, 3}


def test_lessons_label_walls() -> None:
    game, rng = Rooms(), random.Random(2)
    middles = {"left": (1, 0), "top": (0, 1), "right": (1, 2), "bottom": (2, 1)}
    for _ in range(20):
        walls, wall = game.lesson(rng, "walls"), game.lesson(rng, "wall")
        (picture,) = walls.pictures.values()
        pixels = decode_pixels(picture)
        edges = {"left": pixels[57, 1], "top": pixels[1, 75], "right": pixels[57, -2], "bottom": pixels[-2, 75]}
        for side, (row, column) in middles.items():
            assert tuple(edges[side]) == COLOURS[walls.labels[0][row][column][0]]
        assert [word for row in walls.labels[0] for (word,) in row].count("none") == 5 and not walls.answer
        row, column = middles[wall.answer]
        assert wall.labels[0][row][column] == ("target",)
        assert [word for words in wall.labels[0] for (word,) in words].count("none") == 8
        (picture,) = wall.pictures.values()
        colour = str(wall.parts[0]).removeprefix("where ")
        spot = {"left": (57, 1), "top": (1, 75), "right": (57, -2), "bottom": (-2, 75)}[wall.answer]
        assert tuple(decode_pixels(picture)[spot]) == COLOURS[colour]
