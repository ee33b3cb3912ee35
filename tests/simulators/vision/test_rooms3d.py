"""Rooms3d: reproducible pictures, collisions, exact measures, and ActiveVLN's rewards."""

import hashlib
import math
import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import games
from games.abilities import GroundingLessons, Pictures
from games.png import encode
from simulators import conformance
from simulators.vision import Rooms3D
from simulators.vision.house import HEADINGS, ROOM, STEP, House, Pose, Thing, draw_house, square_distance
from simulators.vision.house_paths import (
    REACH,
    Act,
    compute_distances,
    compute_length,
    expert_route,
    ndtw,
    perform,
    spl,
)
from simulators.vision.house_view import draw_view, paint
from simulators.vision.rooms3d import NEAR
from simulators.vision.rooms3d_acts import ACTS, format_acts, read_acts
from tests.simulators.promises import find_failed_checks, passes_over_many_seeds

OPTIONS: list[dict[str, Any]] = [
    {}, {"rooms": 1, "things": 2, "budget": 3, "split": "train"}, {"rooms": 4, "landmark": True, "split": "test"},
    {"rooms": 2, "things": 3, "distance": 2, "size": 64, "illegal": "end"},
]  # fmt: skip
SEEDS = st.integers(0, 2**31)


def make_house(*things: Thing, rooms: int = 1, doors: tuple[int, ...] = ()) -> House:
    return House(rooms, doors, tuple(range(rooms)), things, Pose(1000, 2000, 0), 0)


PILLAR = Thing("pillar", "red", 3000, 2000)
FAR_BOX = Thing("box", "blue", 900, 3600)


def start_game(seed: int = 3, **options: Any) -> Rooms3D:
    game = Rooms3D(**options)
    game.reset(seed=seed)
    return game


def make_pose(x: int, y: int) -> Pose:
    return Pose(x, y, 0)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_passes_the_conformance_kit(options: dict[str, Any]) -> None:
    assert find_failed_checks(lambda: Rooms3D(**options), seeds=3, acts=60) == []


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_passes_the_conformance_kit_over_many_seeds(options: dict[str, Any], capsys: Any) -> None:
    assert passes_over_many_seeds(lambda: Rooms3D(**options), options, capsys)


def test_game_is_registered_with_its_abilities() -> None:
    game = games.make("rooms3d")
    assert isinstance(game, Pictures) and isinstance(game, GroundingLessons)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"things": 2, "landmark": True}, "landmark needs 3 things or more"),
        ({"size": 10**9}, "size"),
        ({"rooms": 5}, "rooms"),
        ({"distance": -1}, "distance"),
        ({"budget": 0}, "budget"),
        ({"landmark": 1}, "landmark must be true or false"),
    ],
)
def test_refuses_invalid_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Rooms3D(**options)


# -- views


def test_pictures_are_reproducible() -> None:
    pictures = [paint(draw_house(np.random.default_rng(seed), 4, 4), make_pose(1500, 1700), 48) for seed in range(5)]
    assert hashlib.sha256(b"".join(picture.tobytes() for picture in pictures)).hexdigest()[:16] == "e44f8f8785445d43"


@pytest.mark.parametrize(("heading", "column"), [(0, 24), (1, 17), (23, 30), (3, 0)])
def test_things_appear_in_their_direction(heading: int, column: int) -> None:
    _, thing_ids = draw_view(make_house(PILLAR), Pose(1000, 2000, heading), 48)
    rows, columns = np.nonzero(thing_ids == 0)
    assert abs(columns.mean() - column) <= 3
    assert rows.min() == 24 - 24 * 1200 // 2000 or heading, "the camera is not at half the height"


def test_width_halves_with_double_distance() -> None:
    widths = [
        (draw_view(make_house(PILLAR), Pose(3000 - distance, 2000, heading), 256)[1] == 0).any(0).sum()
        for distance, heading in ((1000, 0), (2000, 0), (1000, 12))
    ]
    assert widths == [38, 20, 0]


def test_nearer_things_and_walls_occlude_others() -> None:
    near = Thing("pillar", "green", 2000, 2000)
    for things in ((PILLAR, near), (near, PILLAR)):
        thing_ids = draw_view(make_house(*things), Pose(1000, 2000, 0), 48)[1]
        assert set(np.unique(thing_ids[24])) == {-1, things.index(near)}
    beyond = Thing("ball", "red", ROOM + 2000, 1000)
    house = make_house(beyond, rooms=2, doors=(2000,))
    assert (draw_view(house, Pose(2000, 1000, 0), 48)[1] == -1).all(), "the wall does not hide the ball"
    assert (draw_view(house, Pose(ROOM - 500, 2000, 21), 48)[1] == 0).any(), (
        "the ball is not visible through the doorway"
    )


def test_pictures_do_not_reveal_the_target() -> None:
    lengths = set()
    for seed in range(30):
        house = draw_house(np.random.default_rng(seed), 3, 4)
        other = house._replace(things=house.things[::-1])
        assert (paint(house, house.start, 48) == paint(other, house.start, 48)).all()
        lengths.add(len(encode(paint(house, house.start, 48))))
    assert len(lengths) == 1


# -- movement


@given(SEEDS, st.lists(st.sampled_from(ACTS[:-1]), max_size=20))
def test_movement_respects_obstacles_and_is_deterministic(seed: int, acts: list[Act]) -> None:
    house = draw_house(np.random.default_rng(seed), 3, 4)
    pose = replayed = house.start
    for act in acts:
        for next_pose in perform(house, pose, act):
            assert house.is_free(next_pose.x, next_pose.y) and math.dist(pose[:2], next_pose[:2]) <= STEP + 1
            pose = next_pose
        replayed = perform(house, replayed, act)[-1]
    assert pose == replayed


def test_steps_turns_and_sliding_by_hand() -> None:
    house = make_house(PILLAR)
    assert perform(house, make_pose(1000, 2000), Act("go", 75)) == [
        make_pose(1250, 2000),
        make_pose(1500, 2000),
        make_pose(1750, 2000),
    ]
    assert perform(house, make_pose(1000, 2000), Act("left", 45)) == [Pose(1000, 2000, 21)]
    assert perform(house, Pose(1000, 2000, 23), Act("right", 30)) == [Pose(1000, 2000, 1)]
    assert perform(house, make_pose(2600, 2000), Act("go", 25)) == [make_pose(2600, 2000)], "the pillar does not block"
    assert perform(house, Pose(3800, 1000, 3), Act("go", 25)) == [Pose(3800, 1177, 3)], "no sliding along the wall"


def test_houses_are_as_stated() -> None:
    for seed in range(200):
        house = draw_house(np.random.default_rng(seed), 2, 3)
        wanted, same, other = house.things
        assert wanted.kind == same.kind != other.kind and len({thing.colour for thing in house.things}) == 3
        assert square_distance(house.start, wanted) >= 1500**2 and house.is_free(house.start.x, house.start.y)


def test_expert_routes_are_collision_free_and_nearly_shortest() -> None:
    ratios = []
    for seed in range(60):
        house = draw_house(np.random.default_rng(seed), 3, 4)
        route = expert_route(house, house.start, (2, 0))
        assert any(square_distance(place, house.things[2]) <= REACH**2 for place in route.places)
        assert square_distance(route.places[-1], house.things[0]) <= REACH**2 and str(route.acts[-1]) == "stop"
        steps = [math.dist(pose[:2], other[:2]) for pose, other in pairwise(route.places)]
        assert min(steps, default=STEP) > STEP - 2, "a step is blocked or slides"
        direct = expert_route(house, house.start, (0,))
        node = (house.start.x + STEP // 2) // STEP, (house.start.y + STEP // 2) // STEP
        ratios.append(compute_length(direct.places) / max(int(compute_distances(house, 0)[node]), STEP))
    assert np.median(ratios) <= 1.05 and max(ratios) <= 2.0


# -- measures and rewards


@pytest.mark.parametrize(
    ("success", "shortest", "path_length", "expected"),
    [(True, 3.0, 4.0, 0.75), (True, 5.0, 4.0, 1.0), (False, 3.0, 3.0, 0.0), (True, 0.0, 0.0, 0.0)],
)
def test_spl_by_hand(success: bool, shortest: float, path_length: float, expected: float) -> None:
    assert spl(success, shortest, path_length) == pytest.approx(expected)


def test_ndtw_by_hand() -> None:
    corner, other_corner = (
        [make_pose(0, 0), make_pose(1000, 0), make_pose(1000, 1000)],
        [make_pose(0, 0), make_pose(0, 1000), make_pose(1000, 1000)],
    )
    assert ndtw(corner, corner, 800) == 1.0
    assert ndtw([make_pose(0, 0)], [make_pose(0, 0), make_pose(3000, 0)], 3000) == pytest.approx(math.exp(-0.5))
    assert ndtw(corner, other_corner, 1000) == pytest.approx(math.exp(-math.sqrt(2) / 3)), "the corners are not aligned"
    assert (
        ndtw([make_pose(0, 0), make_pose(0, 0), make_pose(1000, 0)], [make_pose(0, 0), make_pose(1000, 0)], 1000) == 1.0
    ), "waiting is penalised"


@given(st.lists(st.tuples(*[st.integers(0, 8000)] * 2), min_size=1, max_size=8), SEEDS)
def test_ndtw_is_in_unit_interval_and_one_on_the_path(places: list[tuple[int, int]], seed: int) -> None:
    reference = expert_route(house := draw_house(np.random.default_rng(seed), 1, 2), house.start, (0,)).places
    value = ndtw([make_pose(*place) for place in places], reference, NEAR)
    assert 0 <= value <= 1 and ndtw(reference, reference, NEAR) == 1.0


def test_a_match_by_hand() -> None:
    game = start_game(rooms=1, things=2)
    game.house = make_house(PILLAR, FAR_BOX)
    game.wanted, game.pose = PILLAR, make_pose(1000, 2000)
    game.route, game.path = expert_route(game.house, game.pose, (0,)), [game.pose]
    assert format_acts(game.route.acts) == "go 75 go 75 stop"
    game.step("left 15, right 15; Forward 75")
    assert game.pose == make_pose(1750, 2000) and game.acts == 3
    (message,) = game.messages("viewer")
    assert message.parts[0] == game.instruction and message.images[0].width == 48
    game.step("go 50 stop go 75")
    assert game.ended == "stop" and game.acts == 5, "acts after the stop were executed"
    assert game.payoffs() == {"viewer": pytest.approx(15 * (1 - 0.75 / 3))}
    report = {"success": True, "score": 1.0, "spl": 1.0, "left": 0.75, "acts": 5, "expert_acts": 3}
    assert game.report().items() >= report.items() and 0.9 < float(game.report()["ndtw"]) < 1


def test_stopping_elsewhere_earns_nothing() -> None:
    game = start_game()
    game.step("stop")
    assert game.payoffs() == {"viewer": 0.0} and game.report()["spl"] == 0.0 and game.report()["success"] is False


@pytest.mark.parametrize("budget", [1, 2, 3])
def test_budget_is_a_multiple_of_the_experts_acts(budget: int) -> None:
    game = start_game(budget=budget)
    while not game.ended:
        game.step("left 15 left 15 left 15")
    assert game.ended == "budget" and game.report()["acts"] == budget * len(game.route.acts)
    assert conformance.play(game, 3, "oracle")["success"] is True, "the budget is too small for the expert"


@pytest.mark.parametrize("distance", [1, 3])
def test_distance_option_starts_on_the_experts_path(distance: int) -> None:
    for seed in range(20):
        game, full_game = start_game(seed, distance=distance), start_game(seed)
        steps = len(game.route.places) - 1
        if game.pose != full_game.pose:
            assert game.pose[:2] in [place[:2] for place in full_game.route.places]
            remaining = (
                len(full_game.route.places) - 1 - [place[:2] for place in full_game.route.places].index(game.pose[:2])
            )
            assert 0 <= remaining - distance * 4 <= 2 and steps <= 1.5 * remaining + 2
        else:
            assert full_game.route.part_way(distance * 1000) == 0


def test_landmark_before_the_start_is_not_visited_again() -> None:
    lengths = set()
    for seed in range(12):
        game, full_game = start_game(seed, landmark=True, distance=1), start_game(seed, landmark=True)
        assert game.instruction == full_game.instruction and ", then to the " in game.instruction
        lengths.add(len(game.route.stations))
        assert len(game.route.acts) <= len(full_game.route.acts) + 4, "longer than the full route with a turn"
        assert conformance.play(Rooms3D(landmark=True, distance=1), seed, "oracle")["success"] is True
    assert lengths == {1} or lengths == {1, 2}


@pytest.mark.parametrize(
    "act",
    [
        "",
        "go",
        "75",
        "go 75 go",
        "go 100",
        "go -25",
        "go 7 5",
        "stop stop stop stop",
        "left 30 up 25",
        "go 25 " * 999,
        "٣",
    ],
)
def test_other_text_is_illegal_and_changes_nothing(act: str) -> None:
    game = start_game()
    before = game.pose
    game.step(act)
    assert game.infos["viewer"]["valid"] is False and game.pose == before and game.acts == 0


@given(st.lists(st.sampled_from(ACTS), min_size=1, max_size=3), st.sampled_from([" ", ", ", "\n", "; ", " , "]))
def test_every_turn_is_parsed_back(acts: list[Act], separator: str) -> None:
    assert (
        read_acts(separator.join(map(str, acts)))
        == acts
        == read_acts(format_acts(acts).upper().replace("GO", "Forward"))
    )


@given(st.text(max_size=60) | st.text("go letfrigh sp0123457,;", max_size=40))
def test_any_text_is_at_most_three_acts(text: str) -> None:
    acts = read_acts(text)
    assert len(acts) <= 3 and set(acts) <= set(ACTS)


# -- players


def estimate_chance(rooms: int, things: int) -> float:
    """Return the share of free positions at which a stop would succeed."""
    hits = []
    for seed in range(40):
        house = draw_house(np.random.default_rng(seed), rooms, things)
        x, y = np.random.default_rng(seed).integers(2 * ROOM, size=(2, 2000))
        free, wanted = house.is_free(x, y), house.things[0]
        hits += ((x - wanted.x) ** 2 + (y - wanted.y) ** 2 <= NEAR**2)[free].tolist()
    return float(np.mean(hits))


def test_scripted_players_are_ordered() -> None:
    for options in OPTIONS[:2]:
        game = Rooms3D(**options)
        rates = {
            name: np.mean([conformance.play(game, seed, name)["success"] for seed in range(count)])
            for name, count in (("oracle", 40), ("form", 80), ("random", 60), ("noop", 3))
        }
        assert rates["oracle"] == 1.0 and 0.35 <= rates["form"] <= 0.65 and rates["noop"] == 0.0
        assert rates["random"] <= 0.1


@pytest.mark.parametrize(("rooms", "things"), [(3, 4), (1, 2)])
def test_blind_player_does_not_beat_chance(rooms: int, things: int) -> None:
    game, share = Rooms3D(rooms=rooms, things=things), estimate_chance(rooms, things)
    rate = np.mean([conformance.play(game, seed, "blind")["success"] for seed in range(300)])
    assert rate <= share + 0.02 + 2 * (share / 300) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize(("rooms", "things"), [(3, 4), (1, 2)])
def test_blind_player_is_at_chance(rooms: int, things: int) -> None:
    game = Rooms3D(rooms=rooms, things=things)
    assert (
        np.mean([conformance.play(game, seed, "blind")["success"] for seed in range(3000)])
        <= estimate_chance(rooms, things) + 0.02
    )


# -- lessons


def test_lessons_label_colours_and_directions() -> None:
    game, rng = Rooms3D(rooms=1, things=2), random.Random(1)
    lessons = [game.lesson(rng, "colours") for _ in range(60)]
    words = [word for item in lessons for row in item.labels[0] for (word,) in row]
    assert len(words) == 60 * 9 and {"none", "red", "blue", "green"} <= {*words}
    assert all(set(item.pictures) == {item.parts[1].hash} for item in lessons)  # type: ignore[union-attr]
    find_lessons = [game.lesson(rng, "find") for _ in range(200)]
    for item in find_lessons:
        words = [word for row in item.labels[0] for (word,) in row]
        assert (item.answer == "none") == ({*words} == {"none"})
        side = item.answer.split()[0]
        assert side not in ("left", "right") or item.answer.endswith("15") or side in words
    answers = [item.answer.split()[0] for item in find_lessons]
    assert {*answers} == {"left", "go", "right", "none"} and min(map(answers.count, {*answers})) >= 20


def test_headings_wrap_around() -> None:
    pose = make_pose(1000, 2000)
    for _ in range(HEADINGS):
        pose = perform(make_house(), pose, Act("right", 15))[0]
    assert pose == make_pose(1000, 2000)
