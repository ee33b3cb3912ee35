"""A house seen in first person: walk to the thing that the instruction names, up to three acts a turn (ActiveVLN)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from games.base import IllegalAct, flag, whole_number
from simulators.vision.house import House, draw_house
from simulators.vision.house_paths import STOP, compare, is_near, perform, route_from
from simulators.vision.house_view import paint
from simulators.vision.rooms3d_acts import ACTS, format_acts, read_acts
from simulators.vision.rooms3d_lessons import KINDS, draw_lesson
from simulators.vision.rooms3d_players import PLAYERS
from simulators.vision.seeing import JUDGED, VisualWorld

ARRIVED = "arrived"
NEAR, REWARD, SCALE = 800, 15.0, 3000
"""Maximum distance in millimetres from a thing's middle for a right stop; payoff at the middle, and the distance at
which it would fall to 0 (ActiveVLN)."""
FLOORS = (0.016, 0.01, 0.006, 0.001)
"""Success rates of random acts by number of rooms, each measured on 1,000 houses."""


class Rooms3D(VisualWorld):
    """Single-player game of walking through a house, seen in first person, to the thing named by an instruction.

    Acts: one to three of `go 25`, `go 50`, `go 75` (centimetres; `forward` means the same), `left 15`, `left 30`,
    `left 45` (degrees), the same for `right`, and `stop`, which ends the match. Additional options: rooms, 1 to 4;
    things, 2 to 4, exactly two of them of the wanted form; landmark, whether the instruction leads past another thing
    (needs 3 things or more); distance, how many metres before the end of the expert's path the match starts, with a
    random heading, or 0 for the entire path; budget, the maximum number of acts as a multiple of the expert's, which
    the viewer is not told; size, the picture's side, 16 to 256 pixels.

    Reward part "arrived": 15 (1 - d / 3) for a right stop at d metres from the middle of the thing, as in ActiveVLN. A
    stop is right within 80 cm, not ActiveVLN's 3 m, because rooms are 4 m wide; a success therefore pays 11 to 13.
    """

    name = "rooms3d"
    metadata: ClassVar[dict[str, Any]] = {"name": "rooms3d_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {ARRIVED: "a stop at the thing: 15 (1 - d / 3 m)"}
    players = PLAYERS
    lesson_kinds = KINDS
    draw_lesson = draw_lesson

    def __init__(
        self,
        *,
        rooms: int = 3,
        things: int = 4,
        landmark: bool = False,
        distance: int = 0,
        budget: int = 2,
        size: int = 48,
        **options: Any,
    ) -> None:
        self.rooms = whole_number("rooms", rooms, least=1, most=4)
        self.things = whole_number("things", things, least=2, most=4)
        self.landmark, self.budget = flag("landmark", landmark), whole_number("budget", budget, least=1, most=20)
        self.distance = whole_number("distance", distance, least=0, most=100)
        self.size = whole_number("size", size, least=16, most=256)
        if self.landmark and self.things < 3:
            raise ValueError("landmark needs 3 things or more")
        super().__init__(**options)

    @property
    def floor(self) -> float:
        """Success rate of random acts."""
        return FLOORS[self.rooms - 1]

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw a house and show it from the start."""
        self.house, wanted = self.draw_house(rng), int(options.get(JUDGED, 0))
        self.wanted, stations = self.house.things[wanted], (2, 0) if self.landmark else (0,)
        self.route = route_from(self.house, stations, self.distance * 1000)
        self.pose = self.route.poses[0]
        self.path, self.acts, self.success, self.same_form = [self.pose], 0, False, False
        self.instruction = "go to " + ", then to ".join(f"the {self.house.things[station]}" for station in stations)
        self.show(self.instruction, paint(self.house, self.pose, self.size))

    def draw_house(self, rng: np.random.Generator) -> House:
        """Draw a house of the game's split."""
        return self.draw_entity(lambda: draw_house(rng, self.rooms, self.things), repr)

    def rules(self) -> str:
        """Return the task and the acts, as text."""
        return (
            "Walk through the house to what you are told, and stop in front of it, at most 80 cm from its middle. "
            "Write up to three acts: go 25, go 50, go 75 (centimetres), left 15, left 30, left 45 (degrees), right "
            "alike, or stop."
        )

    def public(self) -> dict[str, Any]:
        """Return the `instruction`."""
        return {"instruction": self.instruction}

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """Return texts that reveal where the thing and the walker are."""
        return {"thing": (f"{self.wanted.x} {self.wanted.y}",), "walker": (f"{self.pose.x} {self.pose.y}",)}

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return reset options of two deals with the same house but different things that count as right."""
        first, second = rng.permutation(self.things)[:2].tolist()
        return {JUDGED: first}, {JUDGED: second}

    def legal(self, seat: str) -> list[str]:
        """Return the single acts. A turn may join up to three of them."""
        return [str(act) for act in ACTS]

    def play(self, seat: str, act: str) -> str:
        """Walk and show the new view. Returns the acts; raises IllegalAct for other texts."""
        if not (acts := read_acts(act)):
            raise IllegalAct("write one to three acts, such as: left 30, go 75, stop")
        for single_act in acts:
            self.acts += 1
            if single_act.word == STOP:
                distance = math.dist(self.pose[:2], self.wanted[2:])
                self.success = distance <= NEAR
                self.same_form = any(is_near(self.pose, thing, NEAR) for thing in self.house.things[:2])
                self.pay(seat, ARRIVED, self.success * REWARD * (1 - distance / SCALE))
                self.end(STOP, "You are there." if self.success else "You are not there.")
                break
            poses = perform(self.house, self.pose, single_act)
            self.pose = poses[-1]
            self.path += poses if single_act.word == "go" else []
            if self.acts >= self.budget * len(self.route.acts):
                self.end("budget", "No acts are left.")
                break
        else:
            self.show(self.instruction, paint(self.house, self.pose, self.size))
        return format_acts(acts)

    def figures(self) -> dict[str, float | bool | str]:
        """Return `score`, `success`, `spl`, `ndtw`, `acts`, `expert_acts`, and the metres to the thing (`distance`).

        `same_form` is True after a stop at any thing of the wanted form. SPL uses the expert's path as the shortest
        path, nDTW as the reference.
        """
        distance = math.dist(self.pose[:2], self.wanted[2:])
        ended = {"score": float(self.success), "success": self.success, "same_form": self.same_form}
        paths = compare(self.path, self.route.places, self.success, NEAR)
        return {**ended, **paths, "left": distance / 1000, "acts": self.acts, "expert_acts": len(self.route.acts)}
