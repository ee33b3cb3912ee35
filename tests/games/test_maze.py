"""Maze and text navigation: solvability, shortest paths compared with a second search, views, rewards."""

import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from games.contracts import View
from games.families.grid import OPPOSITE, STEPS, carve, measure_distances, neighbour
from games.families.locks import count_steps_left, take_step
from games.maze import Maze
from games.text_navigation import TextNavigation


def flood_fill(doors, start):
    """Return distances from `start` by growing a set of cells one step at a time."""
    reached: dict[Any, int] = {}
    ring, steps = {start}, 0
    while ring:
        reached |= dict.fromkeys(ring, steps)
        ring, steps = (
            {neighbour_cell for cell in ring for neighbour_cell in doors[cell].values()} - reached.keys(),
            steps + 1,
        )
    return reached


@pytest.mark.parametrize("size", [2, 5, 9])
def test_every_maze_is_a_spanning_tree(size):
    game = Maze(size=size)
    for seed in range(1000 if size == 5 else 100):
        game.reset(seed=seed)
        doors = game.doors
        for cell, ways in doors.items():
            assert all(
                neighbour_cell == neighbour(cell, way) and doors[neighbour_cell][OPPOSITE[way]] == cell
                for way, neighbour_cell in ways.items()
            )
        assert sum(map(len, doors.values())) == 2 * (
            size**2 - 1
        )  # edges of a spanning tree, counted in both directions
        reached = flood_fill(doors, game.start)
        assert len(reached) == size**2 and game.start != game.goal
        assert measure_distances(doors, game.start) == reached and game.shortest() == reached[game.goal]


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("size", [2, 3, 6])
def test_layout_is_fixed_and_near_and_far_starts_are_disjoint(size: int) -> None:
    games = {starts: Maze(size=size, layout=5, starts=starts, view="place") for starts in ("any", "near", "far")}
    start_cells: dict[str, set[Any]] = {starts: set() for starts in games}
    steps: dict[str, set[int]] = {starts: set() for starts in games}
    for starts, game in games.items():
        for seed in range(40 * size**2):
            game.reset(seed=seed)
            assert game.goal == games["any"].goal and game.doors == games["any"].doors
            assert game.public()["place"] == f"{game.position[0]} {game.position[1]}" and "map" not in game.public()
            start_cells[starts].add(game.start)
            steps[starts].add(game.shortest())
    assert (
        not start_cells["near"] & start_cells["far"]
        and start_cells["near"] | start_cells["far"] == start_cells["any"]
        and len(start_cells["any"]) == size**2 - 1
    )
    assert max(steps["near"]) <= min(steps["far"])


def test_refuses_locks_with_a_layout_or_chosen_starts():
    for options in ({"layout": 1}, {"starts": "far"}):
        with pytest.raises(ValueError, match="locks must be 0"):
            Maze(locks=1, **options)


def test_mazes_differ():
    game = Maze()
    assert len({(game.reset(seed=seed), game.map())[1] for seed in range(200)}) == 200


def start_straight_maze(**options):
    """Start a maze whose goal is two steps east of the start."""
    game = Maze(**options)
    for seed in itertools.count():
        game.reset(seed=seed)
        x, y = game.start
        east = game.doors[game.start].get("EAST")
        if "NORTH" not in game.doors[game.start] and east and game.doors[east].get("EAST") == game.goal == (x + 2, y):
            return game


def test_expert_option_marks_matching_steps():
    game = start_straight_maze(expert=True)
    marks = []
    for act in ("NORTH", "EAST", "WEST", "EAST", "EAST"):  # a wall, closer, farther, closer, the goal
        game.step(act)
        marks.append(game.infos["walker"]["rewards"].get("match", 0.0))
    assert marks == [0, 1, 0, 1, 1] and game.terminations["walker"]
    assert game.payoffs()["walker"] == pytest.approx(1 - 5 * 0.01), "marks count as payoff"
    assert "match" not in Maze().reward_parts


def test_subgoals_option_marks_taking_and_delivering():
    game = TextNavigation(rooms=2, items=1, subgoals=True)
    game.reset(seed=next(seed for seed in range(100) if (game.reset(seed=seed), game.shortest)[1] == 3))
    item, exits = game.target_item, game.doors[game.position]
    (way,) = exits
    marks = []
    for act in (f"TAKE {item}", f"DROP {item}", f"TAKE {item}", f"GO {way}", f"DROP {item}"):
        game.step(act)
        marks.append(game.infos["walker"]["rewards"].get("subgoal", 0.0))
    assert marks == [1, 0, 0, 0, 1] and game.terminations["walker"], "taking is marked once, delivering at the end"
    assert game.payoffs()["walker"] == pytest.approx(1 - 5 * 0.01), "marks count as payoff"
    assert "subgoal" not in TextNavigation().reward_parts


LOCKED = [(size, locks) for size in (2, 3, 4, 7) for locks in range(1, min(size, 4))]


@pytest.mark.parametrize(("size", "locks"), LOCKED)
def test_every_key_lies_before_its_door(size, locks):
    """From the start, each key is reachable before its door, and the goal is not reachable without keys."""
    game = Maze(size=size, locks=locks)
    for seed in range(200):
        game.reset(seed=seed)
        shut, keys = set(game.walk_state.locked), set(game.walk_state.keys)
        assert len(shut) == len(keys) == locks and not keys & {game.start, game.goal}
        for opened in range(locks):
            reached = flood_fill(
                {c: {w: t for w, t in ways.items() if {c, t} not in shut} for c, ways in game.doors.items()}, game.start
            )
            assert game.goal not in reached and len(keys & reached.keys()) > opened
            (next_door,) = [door for door in shut if len(door & reached.keys()) == 1]
            shut.remove(next_door)


@pytest.mark.parametrize(
    ("size", "locks"), [(3, 0), *(pytest.param(*maze, marks=[pytest.mark.slow] * (maze[0] > 4)) for maze in LOCKED)]
)
def test_oracle_is_optimal_and_wall_following_solves(size, locks):
    clockwise = list(STEPS)
    for seed in range(60):
        game = Maze(size=size, locks=locks)
        game.reset(seed=seed)
        shortest, steps_closer = game.shortest(), 0
        while not game.terminations["walker"]:
            before = count_steps_left(game.doors, game.walk_state, game.goal)
            game.step(game.find_step())
            steps_closer += count_steps_left(game.doors, game.walk_state, game.goal) == before - 1
        assert game.report()["solved"] and game.turns == steps_closer == shortest and game.report()["efficiency"] == 1.0
        game.reset(seed=seed)
        facing = 0
        while not game.terminations["walker"]:
            for turn in (1, 0, 3, 2):  # right, ahead, left, back
                way = clockwise[(facing + turn) % 4]
                if way in game.doors[game.position]:
                    state = game.walk_state
                    game.step(way)
                    if game.terminations["walker"] or game.walk_state != state:
                        facing = clockwise.index(way)
                        break
        assert game.report()["solved"]


def start_locked_maze():
    """Start a maze with the start, a key, a locked door and the goal in a row from west to east."""
    game = Maze(size=3, locks=1, expert=True)
    for seed in itertools.count():
        game.reset(seed=seed)
        x, y = game.start
        row = [(x, y), (x + 1, y), (x + 2, y)]
        if (
            game.goal == row[2]
            and game.walk_state.keys == {row[1]}
            and all(game.doors[a].get("EAST") == b for a, b in itertools.pairwise(row))
        ):
            return game


def test_keys_and_doors_by_hand():
    game = start_locked_maze()
    assert game.shortest() == 2 and game.infos["walker"]["public"]["keys"] == 0
    rows = game.map().split("\n")
    x, y = game.start
    assert rows[2 * y + 1][2 * x + 1 : 2 * x + 6] == "W KDG"
    game.step("EAST")
    info = game.infos["walker"]
    assert (
        info["public"]["keys"] == 1 and info["public"]["locked"] == ["EAST"] and "EAST" not in info["public"]["exits"]
    )
    assert "You find a key." in str(game.observe("walker")) and info["rewards"]["match"] == 1
    assert game.walk_state.key_count == 1 and not game.walk_state.keys and "K" not in game.map()
    game.step("EAST")
    assert game.report()["solved"] and game.report()["efficiency"] == 1.0
    other = start_locked_maze()
    empty = other.walk_state._replace(position=other.doors[other.start]["EAST"], keys=frozenset())
    assert take_step(other.doors, empty, "EAST") == empty, "the door opened without a key"


def test_unlocked_maze_does_not_mention_keys():
    game = Maze(size=3, view="partial")
    game.reset(seed=0)
    assert set(game.public()) == {"exits", "turns_left"} and "key" not in game.rules()
    assert "key" in Maze(size=3, locks=1).rules() and Maze(size=3, locks=1).max_turns == 54


def test_a_wall_costs_a_turn_and_the_goal_pays():
    game = start_straight_maze()
    start = game.position
    for act in ("north", " EAST ", "East"):
        game.step(act)
        assert game.infos["walker"]["valid"]
        assert (game.position == start) == (act == "north")
    assert game.payoffs() == {"walker": pytest.approx(0.97)}
    report = game.report()
    assert report.pop("efficiency") == pytest.approx(2 / 3)
    assert report == {"ended": "solved", "turns": 3, "solved": True, "shortest": 2}
    step_game = start_straight_maze(reward="steps", penalty=4)
    for act in ("up", "NORTH", "EAST", "EAST"):  # LMRL-Gym: -4 for what is no step, -1 each, 0 for the last
        step_game.step(act)
    assert step_game.payoffs() == {"walker": -2.0} and step_game._totals["walker"]["illegal"] == -4.0
    lost_game = start_straight_maze(max_turns=2)
    lost_game.step("NORTH")
    lost_game.step("EAST")
    assert lost_game.report()["ended"] == "turns" and lost_game.report()["efficiency"] == 0.0
    assert lost_game.payoffs() == {"walker": pytest.approx(-0.02)}


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


def test_partial_view_shows_only_the_exits():
    views = set()
    for seed in range(500):
        game = Maze(view="partial")
        game.reset(seed=seed)
        info = game.infos["walker"]
        assert set(info["public"]) == {"exits", "turns_left"} and info["private"] == {}
        views.add(json.dumps([game.infos, game.observe("walker")]))
    assert len(views) <= 15  # only the exits differ


@pytest.mark.parametrize("rooms", [2, 6, 12])
def test_every_house_is_solvable_and_shortest_is_exact(rooms):
    game = TextNavigation(rooms=rooms)
    for seed in range(1000 if rooms == 6 else 200):
        game.reset(seed=seed)
        assert len(game.doors) == rooms == len(set(game.names.values()))
        assert flood_fill(game.doors, game.position).keys() == game.doors.keys()
        assert game.places[game.target_item] != game.goal
        assert 3 <= game.shortest == search_shortest(game) < game.max_turns


def search_shortest(game):
    """Return the fewest turns to deliver the item by breadth-first search over the walker's and item's positions."""
    queue = [(game.position, game.places[game.target_item], 0)]
    visited = {queue[0][:2]}
    for position, item, turns in queue:
        if item == game.goal:
            return turns
        moves = [(neighbour_cell, item) for neighbour_cell in game.doors[position].values()]
        moves += [(position, None)] if item == position else [(position, position)] if item is None else []
        for move in moves:
            if move not in visited:
                visited.add(move)
                queue.append((*move, turns + 1))
    return None


def test_a_house_by_hand():
    game = TextNavigation(rooms=2, items=2)
    game.reset(seed=1)
    while len(game.infos["walker"]["public"]["items"]) < 2:  # both items here
        game.reset()
    item, (exit_,) = game.target_item, game.infos["walker"]["public"]["exits"]
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
def test_impossible_act_is_illegal_and_changes_nothing(act):
    game = TextNavigation()
    game.reset(seed=0)
    before = json.dumps(game.public())
    game.step(act)
    assert not game.infos["walker"]["valid"] and json.dumps(game.public()) == before and game.turns == 0
    assert game.observe("walker")["messages"][-1]["text"].startswith("Not a legal act: ")


def play_with(guide, walker, seed, **options):
    game = TextNavigation(strategist=True, **options)
    game.reset(seed=seed)
    players = {seat: game.players[name](game, seed) for seat, name in zip(game.seats, (guide, walker), strict=True)}
    while not game.ended:
        seat = game.agent_selection
        game.step(players[seat](View.of(game, seat)))
        assert game.infos[seat]["valid"]
    return game


def test_following_good_advice_takes_the_shortest_way():
    for seed in range(50):
        game = play_with("oracle", "oracle", seed)
        assert game.report()["efficiency"] == 1.0 and game.turns == 2 * game.shortest
        assert game.payoffs() == {"strategist": pytest.approx(1 - 0.01 * game.shortest), "walker": 0.0}
    solved = [
        sum(play_with(guide, "heeder", seed, max_turns=12).report()["solved"] for seed in range(200)) / 200
        for guide in ("oracle", "rambler")
    ]
    assert solved[0] > 0.8 and solved[1] < 0.3


def test_strategist_advises_before_each_turn_and_is_paid():
    game = TextNavigation(rooms=2, items=1, strategist=True, subgoals=True, cost=0.0)
    game.reset(seed=1)
    while game.position != game.places[game.target_item]:
        game.reset()
    item, (way,) = game.target_item, game.public()["exits"]
    assert game.agent_selection == "strategist" and game.infos["strategist"]["legal"] is None
    game.step("take it\nnow, " + "x" * 500)
    facts = game.infos["walker"]
    (advice,) = facts["public"]["strategy"].values()
    assert advice.startswith("take it now, xxx") and len(advice) <= 200
    assert game.observe("walker")["messages"][-1]["text"] == f"SAY {advice}"
    assert facts["legal"] == [f"GO {way}", f"TAKE {item}"] and game.turns_left == game.max_turns
    game.step(f"TAKE {item}")
    assert game.infos["strategist"]["rewards"] == {"subgoal": 1.0} and game.turns_left == game.max_turns - 1
    assert game.public()["strategy"] == {} and f"You take the {item}." in game.render()
    for act in ("go", f"GO {way}", "drop", f"DROP {item}"):
        game.step(act)
    assert game.report()["solved"] and game.payoffs() == {"strategist": 1.0, "walker": 0.0}
    assert game.infos["walker"]["rewards"] == {} and game.report()["efficiency"] == 1.0


def test_empty_advice_is_illegal():
    game = TextNavigation(strategist=True)
    game.reset(seed=0)
    game.step(" \u200b\n")
    assert not game.infos["strategist"]["valid"] and game.agent_selection == "strategist"


def test_strategist_does_not_reduce_the_walkers_turns():
    game = TextNavigation(rooms=2, items=1, strategist=True, max_turns=3, cost=0.0)
    game.reset(seed=0)
    walker_turns = 0
    while not game.ended:
        walker_turns += game.agent_selection == "walker"
        game.step("wait" if game.agent_selection == "strategist" else f"GO {game.public()['exits'][0]}")
    assert walker_turns == 3 and game.ended == "turns"


def test_walker_sees_only_its_room():
    game = TextNavigation(rooms=12, items=10)
    for seed in range(300):
        game.reset(seed=seed)
        for _ in range(6):
            info = game.infos["walker"]
            local_items = [item for item, place in game.places.items() if place == game.position]
            carried = [item for item, place in game.places.items() if place is None]
            hidden = set(game.places) - set(local_items) - set(carried) - {game.target_item}
            unseen = set(game.names.values()) - {game.names[game.position], game.names[game.goal]}
            visible_text = json.dumps([info["public"], info["private"], info["legal"], info["rules"]])
            words = set(visible_text.replace('"', " ").replace(",", " ").replace(":", " ").replace(".", " ").split())
            assert not (hidden | unseen) & words and info["public"]["items"] == sorted(local_items)
            assert game.rng
            game.step(str(game.rng.choice([act for act in info["legal"] if act.startswith("GO")])))


def test_refuses_invalid_options():
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
    house_options: list[dict[str, Any]] = [{"rooms": 1}, {"rooms": 13}, {"items": 0}, {"items": 11}]
    for options in house_options:
        with pytest.raises(ValueError):
            TextNavigation(**options)


def test_carve_connects_any_cells():
    cells = [(0, 0), (1, 0), (2, 0), (1, 1), (1, 2), (2, 2)]
    for seed in range(50):
        doors = carve(cells, np.random.default_rng(seed))
        assert sum(map(len, doors.values())) == 10 and len(flood_fill(doors, (0, 0))) == 6


@settings(deadline=None)
@given(st.one_of(st.text(st.characters(), max_size=30), st.from_regex(r"(?i)(go|take|drop|north)\s*\w{0,9}")))
def test_any_text_is_harmless(text):
    for cls in (Maze, TextNavigation):
        game = cls()
        game.reset(seed=0)
        game.step(text)
        assert game.infos["walker"]["valid"] == (game.turns == 1)
        json.dumps([game.infos, game.observe("walker")])
