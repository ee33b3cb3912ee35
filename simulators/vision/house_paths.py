"""Paths through houses: an expert's route to things, and scores of a walked path (SPL, nDTW)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise, product, takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulators.base import SimulatorFault
from simulators.vision.house import (
    BODY,
    CLEARANCE,
    DIRECTIONS,
    HEADINGS,
    RADIUS,
    ROOM,
    STEP,
    House,
    Pose,
    Thing,
    square_distance,
    step,
)

LENGTHS, ANGLES = (25, 50, 75), (15, 30, 45)
"""Amounts of acts: centimetres of "go", and degrees of "left" and "right"."""
STOP = "stop"
REACH = 600
"""Distance from a thing within which the expert has arrived."""
PIXEL, UNCHECKED = 50, 200
"""Side of the squares on which straight lines are checked, and length of a line's beginning, which is not checked."""
FARTHEST = 2**30
MAX_ACTS = 200
"""Maximum number of an expert's acts."""

Place = tuple[int, int]
"""Coordinates x and y."""


class Act(NamedTuple):
    """Act of a walker: "go" by centimetres, "left" or "right" by degrees, or "stop"."""

    word: str
    amount: int = 0

    def __str__(self) -> str:
        return f"{self.word} {self.amount}" if self.amount else self.word


class Route(NamedTuple):
    """Route of an expert to one or more things."""

    acts: tuple[Act, ...]
    """Acts, including the final "stop"."""
    poses: tuple[Pose, ...]
    """Pose before each act."""
    places: tuple[Pose, ...]
    """Pose at the start and after each step."""
    stations: tuple[int, ...]
    """Numbers of the things on the route, in order."""

    def part_way(self, distance: int) -> int:
        """Return the index of the last pose from which the walk to the end is at least `distance` long, or else 0."""
        ahead, found = len(self.places) - 1, 0
        for number, act in enumerate(self.acts):
            found = number if ahead * STEP >= distance else found
            ahead -= act.amount * 10 // STEP if act.word == "go" else 0
        return found


def perform(house: House, pose: Pose, act: Act) -> list[Pose]:
    """Return the poses during an act: one after a turn, or one after each step."""
    if act.word == "go":
        poses = [pose]
        for _ in range(act.amount * 10 // STEP):
            poses.append(house.step(poses[-1]))
        return poses[1:]
    turn = act.amount // ANGLES[0] * (1 if act.word == "right" else -1)
    return [pose._replace(heading=(pose.heading + turn) % HEADINGS)]


@lru_cache(maxsize=1024)
def expert_route(house: House, start: Pose, stations: tuple[int, ...]) -> Route:
    """Return the route of an expert that goes to these things in order, and stops at the last one.

    Raises SimulatorFault if the route takes more than 200 acts.
    """
    acts, poses, places = list[Act](), [start], [start]
    for station in stations:
        thing = house.things[station]
        ahead = [*shortest_path(house, poses[-1], station), (thing.x, thing.y)]
        while not is_near(poses[-1], thing, REACH):
            if len(acts) == MAX_ACTS:
                raise SimulatorFault(f"no route from {start} to the {thing}")
            if _is_straight(house, poses[-1][:2], _find_front(poses[-1], thing)):
                ahead = ahead[-1:]
            while len(ahead) > 1 and _can_skip(house, poses[-1], *ahead[:2]):
                ahead.pop(0)
            acts.append(_approach(house, poses[-1], ahead[0], thing))
            new_poses = perform(house, poses[-1], acts[-1])
            poses.append(new_poses[-1])
            places += new_poses if acts[-1].word == "go" else []
    return Route((*acts, Act(STOP)), tuple(poses), tuple(places), stations)


def route_from(house: House, stations: tuple[int, ...], distance: int) -> Route:
    """Return the expert's route from the house's start or, for a positive `distance`, its part of about that length.

    The part starts at the last pose from which the remaining walk is at least `distance` long, with the heading
    `house.heading`, and omits stations reached before.
    """
    route = expert_route(house, house.start, stations)
    start = route.part_way(distance) if distance else 0
    if not start:
        return route
    passed = {
        station
        for station in stations[:-1]
        for pose in route.poses[:start]
        if is_near(pose, house.things[station], REACH)
    }
    remaining = tuple(station for station in stations if station not in passed)
    return expert_route(house, route.poses[start]._replace(heading=house.heading), remaining)


def _find_front(pose: Pose, thing: Thing) -> Place:
    """Return the place in front of a thing, towards a pose, as far from its middle as the corners of its margin are."""
    corner, away = math.isqrt(2 * (RADIUS + BODY + 2 * PIXEL) ** 2), max(_measure_gap(pose, thing[2:]), 1)
    return thing.x + (pose.x - thing.x) * corner // away, thing.y + (pose.y - thing.y) * corner // away


def _can_skip(house: House, pose: Pose, place: Place, following: Place) -> bool:
    """Return True if a path's next place can be skipped.

    It is less than a step away, or the walker can go straight to `following`, the place after it.
    """
    return _measure_gap(pose, place) < STEP or _is_straight(house, pose[:2], following)


def _approach(house: House, pose: Pose, place: Place, thing: Thing) -> Act:
    """Return the next act towards a place without a collision: a turn, or a walk that ends once the thing is near."""
    dx, dy = place[0] - pose.x, place[1] - pose.y
    headings = sorted(range(HEADINGS), key=lambda number: -DIRECTIONS[number][0] * dx - DIRECTIONS[number][1] * dy)
    heading = next(number for number in headings if _walk(house, pose._replace(heading=number), 1))
    turn = (heading - pose.heading + HEADINGS // 2) % HEADINGS - HEADINGS // 2
    if turn:
        return Act("right" if turn > 0 else "left", ANGLES[min(abs(turn), len(ANGLES)) - 1])
    poses = _walk(house, pose, min(max(math.isqrt(dx * dx + dy * dy) // STEP, 1), len(LENGTHS)))
    arrivals = (n for n, reached in enumerate(poses) if is_near(reached, thing, REACH))
    return Act("go", LENGTHS[next(arrivals, len(poses) - 1)])


def _walk(house: House, pose: Pose, steps: int) -> list[Pose]:
    """Return the poses of up to `steps` steps straight ahead, ending before the first that would touch something."""
    ahead = [step(pose)]
    while len(ahead) < steps:
        ahead.append(step(ahead[-1]))
    return [*takewhile(lambda pose_ahead: house.is_free(pose_ahead.x, pose_ahead.y), ahead)]


def shortest_path(house: House, pose: Pose, station: int) -> list[Place]:
    """Return the places of the shortest path to a thing over a grid of side `STEP`.

    It begins at a nearby node to which the walker can go straight.
    """
    remaining = compute_distances(house, station)
    near = [(pose.x // STEP + x, pose.y // STEP + y) for x in range(-2, 4) for y in range(-2, 4)]
    near = [node for node in near if min(node) >= 0 and max(node) < len(remaining) and remaining[node] < FARTHEST]
    near.sort(key=lambda node: remaining[node] + _measure_gap(pose, _place(node)))
    path = [next(node for node in near if _is_straight(house, pose[:2], _place(node)))]
    while remaining[path[-1]]:
        x, y = path[-1]
        path.append(min(product((x - 1, x, x + 1), (y - 1, y, y + 1)), key=lambda node: remaining[node]))
    return [_place(node) for node in path]


def _measure_gap(pose: Pose, place: Place) -> int:
    return math.isqrt((pose.x - place[0]) ** 2 + (pose.y - place[1]) ** 2)


def _place(node: tuple[int, int]) -> Place:
    return node[0] * STEP, node[1] * STEP


def _is_straight(house: House, start: Place, end: Place) -> bool:
    """Return True if the straight line between two places has a free margin. Its beginning is not checked."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    count = max(abs(dx), abs(dy)) // PIXEL + 1
    parts = np.arange(UNCHECKED // PIXEL, count + 1)
    return bool(
        _map_floor(house)[(start[0] + dx * parts // count) // PIXEL, (start[1] + dy * parts // count) // PIXEL].all()
    )


@lru_cache(maxsize=256)
def _map_floor(house: House) -> NDArray[np.bool_]:
    """Return a map [x, y] of squares of size `PIXEL`: True where the walker has that margin to walls and things."""
    x, y = np.mgrid[0 : 2 * ROOM : PIXEL, 0 : 2 * ROOM : PIXEL] + PIXEL // 2
    return house.is_free(x, y, BODY + PIXEL)  # type: ignore[no-any-return]


@lru_cache(maxsize=1024)
def compute_distances(house: House, station: int) -> NDArray[np.int64]:
    """Return the length of the shortest path to a thing from each node of a grid, [x, y]; `FARTHEST` without a path."""
    x, y = np.mgrid[0 : 2 * ROOM + 1 : STEP, 0 : 2 * ROOM + 1 : STEP]
    thing, free = house.things[station], house.is_free(x, y, BODY + CLEARANCE)
    goal = free & ((x - thing.x) ** 2 + (y - thing.y) ** 2 <= (REACH + CLEARANCE) ** 2)
    lengths = np.where(goal, 0, FARTHEST)
    while True:
        around, best = np.pad(lengths, 1, constant_values=FARTHEST), lengths
        for dx, dy in product((-1, 0, 1), (-1, 0, 1)):
            shifted = around[1 + dx : 1 + dx + len(lengths), 1 + dy : 1 + dy + len(lengths)]
            best = np.minimum(best, shifted + math.isqrt((dx * dx + dy * dy) * STEP**2))
        best = np.where(free, best, FARTHEST)
        if (best == lengths).all():
            return lengths
        lengths = best


def compute_length(path: Sequence[Pose]) -> float:
    """Return the length of a path."""
    return sum(math.dist(start[:2], end[:2]) for start, end in pairwise(path))


def compare(path: Sequence[Pose], reference: Sequence[Pose], success: bool, near: int) -> dict[str, float]:
    """Return `spl` and `ndtw` of a path, given a shortest path as reference."""
    return {"spl": spl(success, compute_length(reference), compute_length(path)), "ndtw": ndtw(path, reference, near)}


def spl(success: bool, shortest: float, path_length: float) -> float:
    """Return the success weighted by path length (SPL): shortest over walked length, at most 1; 0 without success."""
    return success * shortest / max(shortest, path_length, 1e-9)


def ndtw(path: Sequence[Pose], reference: Sequence[Pose], near: int) -> float:
    """Return the normalised dynamic time warping (nDTW) of a path and a reference: exp(-DTW / (|reference| · near))."""
    best = [0.0] + [math.inf] * len(reference)
    for pose in path:
        row = [math.inf]
        for n, other in enumerate(reference):
            row.append(math.dist(pose[:2], other[:2]) + min(row[n], best[n], best[n + 1]))
        best = row
    return math.exp(-best[-1] / (len(reference) * near))


def is_near(pose: Pose, thing: Thing, radius: int) -> bool:
    """Return True if a pose is at most `radius` away from a thing's centre."""
    return square_distance(pose, thing) <= radius**2
