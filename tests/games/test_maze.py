"""Maze and text navigation: every maze and house can be solved, shortest ways by a second search, views, rewards."""

import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from games.contracts import View
from games.families.grid import BACK, STEPS, carve, measure_distances, neighbour
from games.families.locks import count_steps_left, take_step
from games.maze import Maze
from games.text_navigation import TextNavigation


def floods(doors, start):
    """A second definition of distance: sets of cells that grow by one step at a time."""
    reached: dict[Any, int] = {}
    ring, steps = {start}, 0
    while ring:
        reached |= dict.fromkeys(ring, steps)
        ring, steps = {there for cell in ring for there in doors[cell].values()} - reached.keys(), steps + 1
    return reached


@pytest.mark.parametrize("size", [2, 5, 9])
def test_every_maze_has_exactly_one_way_between_any_two_cells(size):
    game = Maze(size=size)
    for seed in range(1000 if size == 5 else 100):
        game.reset(seed=seed)
        doors = game.doors
        for cell, ways in doors.items():
            assert all(there == neighbour(cell, way) and doors[there][BACK[way]] == cell for way, there in ways.items())
        assert sum(map(len, doors.values())) == 2 * (size**2 - 1)  # a spanning tree: connected, and one door too few
        reached = floods(doors, game.start)
        assert len(reached) == size**2 and game.start != game.goal
        assert measure_distances(doors, game.start) == reached and game.shortest() == reached[game.goal]


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("size", [2, 3, 6])
def test_a_layout_is_shared_by_all_matches_and_near_and_far_starts_are_apart(size: int) -> None:
    games = {starts: Maze(size=size, layout=5, starts=starts, view="place") for starts in ("any", "near", "far")}
    met: dict[str, set[Any]] = {starts: set() for starts in games}
    steps: dict[str, set[int]] = {starts: set() for starts in games}
    for starts, game in games.items():
        for seed in range(40 * size**2):
            game.reset(seed=seed)
            assert game.goal == games["any"].goal and game.doors == games["any"].doors
            assert game.public()["place"] == f"{game.position[0]} {game.position[1]}" and "map" not in game.public()
            met[starts].add(game.start)
            steps[starts].add(game.shortest())
    assert not met["near"] & met["far"] and met["near"] | met["far"] == met["any"] and len(met["any"]) == size**2 - 1
    assert max(steps["near"]) <= min(steps["far"])


def test_locks_go_with_neither_a_layout_nor_chosen_starts():
    for wrong in ({"layout": 1}, {"starts": "far"}):
        with pytest.raises(ValueError, match="locks must be 0"):
            Maze(locks=1, **wrong)


def test_mazes_differ():
    game = Maze()
    assert len({(game.reset(seed=seed), game.map())[1] for seed in range(200)}) == 200


def straight(**options):
    """A match in a maze whose goal is two steps east of the start; and the names of its first steps."""
    game = Maze(**options)
    for seed in itertools.count():
        game.reset(seed=seed)
        x, y = game.start
        east = game.doors[game.start].get("EAST")
        if "NORTH" not in game.doors[game.start] and east and game.doors[east].get("EAST") == game.goal == (x + 2, y):
            return game


def test_an_experts_steps_are_marked_where_that_is_asked_for():
    game = straight(expert=True)
    paid = []
    for act in ("NORTH", "EAST", "WEST", "EAST", "EAST"):  # a wall, nearer, farther, nearer, there
        game.step(act)
        paid.append(game.infos["walker"]["rewards"].get("match", 0.0))
    assert paid == [0, 1, 0, 1, 1] and game.terminations["walker"]
    assert game.payoffs()["walker"] == pytest.approx(1 - 5 * 0.01), "marks are no payoff"
    assert "match" not in Maze().reward_parts


def test_taking_and_bringing_are_subgoals_where_that_is_asked_for():
    game = TextNavigation(rooms=2, items=1, subgoals=True)
    game.reset(seed=next(seed for seed in range(100) if (game.reset(seed=seed), game.shortest)[1] == 3))
    wanted, there = game.wanted, game.doors[game.position]
    (way,) = there
    paid = []
    for act in (f"TAKE {wanted}", f"DROP {wanted}", f"TAKE {wanted}", f"GO {way}", f"DROP {wanted}"):
        game.step(act)
        paid.append(game.infos["walker"]["rewards"].get("subgoal", 0.0))
    assert paid == [1, 0, 0, 0, 1] and game.terminations["walker"], "taking pays once, bringing at the end"
    assert game.payoffs()["walker"] == pytest.approx(1 - 5 * 0.01), "marks are no payoff"
    assert "subgoal" not in TextNavigation().reward_parts


LOCKED = [(size, locks) for size in (2, 3, 4, 7) for locks in range(1, min(size, 4))]


@pytest.mark.parametrize(("size", "locks"), LOCKED)
def test_every_key_lies_before_its_door(size, locks):
    """Whoever walks from the start with what it finds gets from door to door, and not to the goal without a key."""
    game = Maze(size=size, locks=locks)
    for seed in range(200):
        game.reset(seed=seed)
        shut, keys = set(game.at.locked), set(game.at.keys)
        assert len(shut) == len(keys) == locks and not keys & {game.start, game.goal}
        for opened in range(locks):
            reached = floods(
                {c: {w: t for w, t in ways.items() if {c, t} not in shut} for c, ways in game.doors.items()}, game.start
            )
            assert game.goal not in reached and len(keys & reached.keys()) > opened
            (border,) = [door for door in shut if len(door & reached.keys()) == 1]
            shut.remove(border)


@pytest.mark.parametrize(
    ("size", "locks"), [(3, 0), *(pytest.param(*maze, marks=[pytest.mark.slow] * (maze[0] > 4)) for maze in LOCKED)]
)
def test_the_oracle_takes_the_least_steps_and_a_hand_on_the_wall_suffices(size, locks):
    clockwise = list(STEPS)
    for seed in range(60):
        game = Maze(size=size, locks=locks)
        game.reset(seed=seed)
        least, paid = game.shortest(), 0
        while not game.terminations["walker"]:
            before = count_steps_left(game.doors, game.at, game.goal)
            game.step(game.find_step())
            paid += count_steps_left(game.doors, game.at, game.goal) == before - 1
        assert game.report()["solved"] and game.turns == paid == least and game.report()["efficiency"] == 1.0
        game.reset(seed=seed)
        facing = 0
        while not game.terminations["walker"]:
            for turn in (1, 0, 3, 2):  # right, ahead, left, back
                way = clockwise[(facing + turn) % 4]
                if way in game.doors[game.position]:
                    at = game.at
                    game.step(way)
                    if game.terminations["walker"] or game.at != at:
                        facing = clockwise.index(way)
                        break
        assert game.report()["solved"]


def keyed():
    """The start, a key, a locked door and the goal in a row from west to east."""
    game = Maze(size=3, locks=1, expert=True)
    for seed in itertools.count():
        game.reset(seed=seed)
        x, y = game.start
        row = [(x, y), (x + 1, y), (x + 2, y)]
        if (
            game.goal == row[2]
            and game.at.keys == {row[1]}
            and all(game.doors[a].get("EAST") == b for a, b in itertools.pairwise(row))
        ):
            return game


def test_keys_and_doors_by_hand():
    game = keyed()
    assert game.shortest() == 2 and game.infos["walker"]["public"]["keys"] == 0
    rows = game.map().split("\n")
    x, y = game.start
    assert rows[2 * y + 1][2 * x + 1 : 2 * x + 6] == "W KDG"
    game.step("EAST")
    seen = game.infos["walker"]
    assert (
        seen["public"]["keys"] == 1 and seen["public"]["locked"] == ["EAST"] and "EAST" not in seen["public"]["exits"]
    )
    assert "You find a key." in str(game.observe("walker")) and seen["rewards"]["match"] == 1
    assert game.at.held == 1 and not game.at.keys and "K" not in game.map()
    game.step("EAST")
    assert game.report()["solved"] and game.report()["efficiency"] == 1.0
    other = keyed()
    empty = other.at._replace(position=other.doors[other.start]["EAST"], keys=frozenset())
    assert take_step(other.doors, empty, "EAST") == empty, "without a key it is shut"


def test_without_locks_nothing_of_keys_is_said():
    game = Maze(size=3, view="partial")
    game.reset(seed=0)
    assert set(game.public()) == {"exits", "turns_left"} and "key" not in game.rules()
    assert "key" in Maze(size=3, locks=1).rules() and Maze(size=3, locks=1).max_turns == 54


def test_a_wall_costs_a_turn_and_the_goal_pays():
    game = straight()
    start = game.position
    for act in ("north", " EAST ", "East"):
        game.step(act)
        assert game.infos["walker"]["valid"]
        assert (game.position == start) == (act == "north")
    assert game.payoffs() == {"walker": pytest.approx(0.97)}
    report = game.report()
    assert report.pop("efficiency") == pytest.approx(2 / 3)
    assert report == {"ended": "solved", "turns": 3, "solved": True, "shortest": 2}
    steps = straight(reward="steps", penalty=4)
    for act in ("up", "NORTH", "EAST", "EAST"):  # LMRL-Gym: -4 for what is no step, -1 each, 0 for the last
        steps.step(act)
    assert steps.payoffs() == {"walker": -2.0} and steps._totals["walker"]["illegal"] == -4.0
    lost = straight(max_turns=2)
    lost.step("NORTH")
    lost.step("EAST")
    assert lost.report()["ended"] == "turns" and lost.report()["efficiency"] == 0.0
    assert lost.payoffs() == {"walker": pytest.approx(-0.02)}


def test_the_map_shows_the_maze():
    game = Maze(size=2)
    game.reset(seed=0)
    rows = game.infos["walker"]["public"]["map"].split("\n")
    assert len(rows) == 5 and {len(row) for row in rows} == {5} and rows[0] == rows[4] == "#####"
    assert sum(row.count("W") for row in rows) == sum(row.count("G") for row in rows) == 1
    assert sum(row.count("#") for row in rows) == 25 - 4 - 3  # four cells, three doors
    for size, seed in itertools.product((3, 6), range(50)):
        game = Maze(size=size)
        game.reset(seed=seed)
        rows = game.map().split("\n")
        for (x, y), way in itertools.product(game.doors, STEPS):
            east, south = STEPS[way]
            assert (rows[2 * y + 1 + south][2 * x + 1 + east] != "#") == (way in game.doors[x, y])


def test_from_inside_only_the_exits_are_seen():
    seen = set()
    for seed in range(500):
        game = Maze(view="partial")
        game.reset(seed=seed)
        info = game.infos["walker"]
        assert set(info["public"]) == {"exits", "turns_left"} and info["private"] == {}
        seen.add(json.dumps([game.infos, game.observe("walker")]))
    assert len(seen) <= 15  # what is open around the walker, nothing else of where it or the goal is


@pytest.mark.parametrize("rooms", [2, 6, 12])
def test_every_house_can_be_solved_and_the_shortest_solution_is_the_shortest(rooms):
    game = TextNavigation(rooms=rooms)
    for seed in range(1000 if rooms == 6 else 200):
        game.reset(seed=seed)
        assert len(game.doors) == rooms == len(set(game.names.values()))
        assert floods(game.doors, game.position).keys() == game.doors.keys()
        assert game.places[game.wanted] != game.goal
        assert 3 <= game.shortest == shortest_by_play(game) < game.max_turns


def shortest_by_play(game):
    """Breadth first over (where the walker is, where the item is): the least turns until it lies where it is wanted."""
    edge = [(game.position, game.places[game.wanted], 0)]
    seen = {edge[0][:2]}
    for here, item, turns in edge:
        if item == game.goal:
            return turns
        moves = [(there, item) for there in game.doors[here].values()]
        moves += [(here, None)] if item == here else [(here, here)] if item is None else []
        for move in moves:
            if move not in seen:
                seen.add(move)
                edge.append((*move, turns + 1))
    return None


def test_a_house_by_hand():
    game = TextNavigation(rooms=2, items=2)
    game.reset(seed=1)
    while len(game.infos["walker"]["public"]["items"]) < 2:  # both items here
        game.reset()
    item, (exit_,) = game.wanted, game.infos["walker"]["public"]["exits"]
    other = next(name for name in game.places if name != item)
    room = game.names[game.goal]
    assert item in game.rules() and room in game.rules() and game.shortest == 3
    assert game.infos["walker"]["legal"] == [f"GO {exit_}", *sorted((f"TAKE {item}", f"TAKE {other}"))]
    for act in (f"take  {item.upper()}", f"TAKE {other}", f"go {exit_.lower()}", f"DROP {other}"):
        game.step(act)
        assert game.infos["walker"]["valid"] and not game.ended
    facts = game.infos["walker"]["public"]
    assert facts["room"] == room and facts["items"] == [other] and facts["carried"] == [item]
    assert game.observe("walker")["messages"][-1]["text"] == f"You drop the {other}."
    game.step(f"DROP {item}")
    assert game.payoffs() == {"walker": pytest.approx(0.95)}
    assert game.report() == {"ended": "solved", "turns": 5, "solved": True, "shortest": 3, "efficiency": 0.6}


@pytest.mark.parametrize("act", ["GO UP", "TAKE elephant", "DROP lamp", "LOOK", "GO", "TAKE", "TAKE lamp now", ""])
def test_what_cannot_be_done_is_illegal_and_changes_nothing(act):
    game = TextNavigation()
    game.reset(seed=0)
    before = json.dumps(game.public())
    game.step(act)
    assert not game.infos["walker"]["valid"] and json.dumps(game.public()) == before and game.turns == 0
    assert game.observe("walker")["messages"][-1]["text"].startswith("Not a legal act: ")


def played_with(guide, walker, seed, **options):
    game = TextNavigation(strategist=True, **options)
    game.reset(seed=seed)
    seats = {seat: game.players[name](game, seed) for seat, name in zip(game.seats, (guide, walker), strict=True)}
    while not game.ended:
        seat = game.agent_selection
        game.step(seats[seat](View.of(game, seat)))
        assert game.infos[seat]["valid"]
    return game


def test_who_is_well_advised_and_heeds_it_takes_the_shortest_way():
    for seed in range(50):
        game = played_with("oracle", "oracle", seed)
        assert game.report()["efficiency"] == 1.0 and game.turns == 2 * game.shortest
        assert game.payoffs() == {"strategist": pytest.approx(1 - 0.01 * game.shortest), "walker": 0.0}
    solved = [
        sum(played_with(guide, "heeder", seed, max_turns=12).report()["solved"] for seed in range(200)) / 200
        for guide in ("oracle", "rambler")
    ]
    assert solved[0] > 0.8 and solved[1] < 0.3


def test_a_strategist_says_a_line_before_each_turn_and_alone_is_paid():
    game = TextNavigation(rooms=2, items=1, strategist=True, subgoals=True, cost=0.0)
    game.reset(seed=1)
    while game.position != game.places[game.wanted]:
        game.reset()
    item, (way,) = game.wanted, game.public()["exits"]
    assert game.agent_selection == "strategist" and game.infos["strategist"]["legal"] is None
    game.step("take it\nnow, " + "x" * 500)
    facts = game.infos["walker"]
    (said,) = facts["public"]["strategy"].values()
    assert said.startswith("take it now, xxx") and len(said) <= 200
    assert game.observe("walker")["messages"][-1]["text"] == f"SAY {said}"
    assert facts["legal"] == [f"GO {way}", f"TAKE {item}"] and game.turns_left == game.max_turns
    game.step(f"TAKE {item}")
    assert game.infos["strategist"]["rewards"] == {"subgoal": 1.0} and game.turns_left == game.max_turns - 1
    assert game.public()["strategy"] == {} and f"You take the {item}." in game.render()
    for act in ("go", f"GO {way}", "drop", f"DROP {item}"):
        game.step(act)
    assert game.report()["solved"] and game.payoffs() == {"strategist": 1.0, "walker": 0.0}
    assert game.infos["walker"]["rewards"] == {} and game.report()["efficiency"] == 1.0


def test_a_strategist_who_says_nothing_is_asked_again():
    game = TextNavigation(strategist=True)
    game.reset(seed=0)
    game.step(" \u200b\n")
    assert not game.infos["strategist"]["valid"] and game.agent_selection == "strategist"


def test_with_a_strategist_as_many_turns_are_walked():
    game = TextNavigation(rooms=2, items=1, strategist=True, max_turns=3, cost=0.0)
    game.reset(seed=0)
    walked = 0
    while not game.ended:
        walked += game.agent_selection == "walker"
        game.step("wait" if game.agent_selection == "strategist" else f"GO {game.public()['exits'][0]}")
    assert walked == 3 and game.ended == "turns"


def test_only_the_room_the_walker_is_in_is_seen():
    game = TextNavigation(rooms=12, items=10)
    for seed in range(300):
        game.reset(seed=seed)
        for _ in range(6):
            info = game.infos["walker"]
            here = [item for item, place in game.places.items() if place == game.position]
            carried = [item for item, place in game.places.items() if place is None]
            hidden = set(game.places) - set(here) - set(carried) - {game.wanted}
            unseen = set(game.names.values()) - {game.names[game.position], game.names[game.goal]}
            shown = json.dumps([info["public"], info["private"], info["legal"], info["rules"]])
            words = set(shown.replace('"', " ").replace(",", " ").replace(":", " ").replace(".", " ").split())
            assert not (hidden | unseen) & words and info["public"]["items"] == sorted(here)
            assert game.rng
            game.step(str(game.rng.choice([act for act in info["legal"] if act.startswith("GO")])))


def test_bad_options():
    for options in (
        {"size": 1},
        {"size": 21},
        {"view": "none"},
        {"max_turns": 0},
        {"size": 3, "locks": 3},
        {"locks": 4},
        {"locks": -1},
    ):
        with pytest.raises(ValueError):
            Maze(**options)
    wrong: list[dict[str, Any]] = [{"rooms": 1}, {"rooms": 13}, {"items": 0}, {"items": 11}]
    for options in wrong:
        with pytest.raises(ValueError):
            TextNavigation(**options)


def test_carving_any_connected_cells():
    cells = [(0, 0), (1, 0), (2, 0), (1, 1), (1, 2), (2, 2)]
    for seed in range(50):
        doors = carve(cells, np.random.default_rng(seed))
        assert sum(map(len, doors.values())) == 10 and len(floods(doors, (0, 0))) == 6


@settings(deadline=None)
@given(st.one_of(st.text(st.characters(), max_size=30), st.from_regex(r"(?i)(go|take|drop|north)\s*\w{0,9}")))
def test_any_text_is_harmless(text):
    for cls in (Maze, TextNavigation):
        game = cls()
        game.reset(seed=0)
        game.step(text)
        assert game.infos["walker"]["valid"] == (game.turns == 1)
        json.dumps([game.infos, game.observe("walker")])
