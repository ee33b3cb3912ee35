"""Furniture to place by wishes in a room that only a picture shows: write layouts, and refine them (MetaSpatial)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from games.base import whole_number
from games.contracts import TOOL
from simulators.vision.furniture import DEPTH, SIDES, WIDTH, Places, Task, draw_task
from simulators.vision.layouts import USAGE, LayoutError, draw_layout, read_layout
from simulators.vision.rooms_players import DONE, PLAYERS
from simulators.vision.seeing import JUDGED, Seeing

WISHES, COLLISION, CONSTRAINT, FORMAT = "wishes", "collision", "constraint", "format"


class Rooms(Seeing):
    """Game of one viewer, who places five things in a room of 48 x 36 units, seen from above, by four wishes.

    Two wishes name walls by their colours, which the picture alone shows, as it shows a pillar. Acts: a layout as JSON,
    alone or as <answer>…</answer> after a thought, `{"bed": [x, y], …}`, with the left upper corner of each thing; or
    `done`. A layout replaces the one before, and its picture is shown, in which things are white that overlap each
    other, lie on the pillar or leave the room. Anything else (`read_layout` has the rules) is answered by an error. The
    match ends at `done`, or after `max_turns` (1 to 16) acts, an option besides Simulator's.

    MetaSpatial's rewards, paid for the last layout: "wishes", the share that it meets; "collision" and "constraint",
    -0.2 times the share of things that overlap others, or are on the pillar or not in the room; "format", 0.5 without
    errors. `score` is the reward without the format, at least 0.
    """

    name = "rooms"
    metadata: ClassVar[dict[str, Any]] = {"name": "rooms_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {
        WISHES: "share of wishes met", COLLISION: "-0.2 times the share that overlaps",
        CONSTRAINT: "-0.2 times the share out of place", FORMAT: "0.5 without errors",
    }  # fmt: skip
    theory: ClassVar[Mapping[str, float]] = {"blind": 1 / 12}
    """Success rate of who does not see which two of four walls are meant."""
    floor = 0.0
    players = PLAYERS

    def __init__(self, *, max_turns: int = 3, **options: Any) -> None:
        self.max_turns = whole_number("max_turns", max_turns, least=1, most=16)
        super().__init__(**options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw a task, and show the empty room."""
        self.task: Task = self.draw_entity(lambda: draw_task(rng), repr)
        turned = int(options.get(JUDGED, 0))
        self.judged = self.task._replace(walls=self.task.walls[turned:] + self.task.walls[:turned])
        self.grain = int(rng.integers(2**31))
        self.places: Places = {}
        self.layouts = self.errors = 0
        self.show("The empty room.", draw_layout(self.task, {}, self.grain))

    def rules(self) -> str:
        """Return the task and the acts, as text."""
        return (
            f"Furnish a room {WIDTH} wide and {DEPTH} deep, seen from above, as is wished. Write {USAGE}, counted from "
            "the room's left upper corner to the thing's. Nothing may overlap, stand on the grey pillar or leave the "
            f"room: what does is white in the picture of your layout. {self.max_turns} turns in all. The last layout "
            f"counts; `{DONE}` keeps it."
        )

    def public(self) -> dict[str, Any]:
        """Return the `things` with width and depth, the `wishes`, the number of `layouts`, and `turns_left`."""
        told = {"things": {name: [*size] for name, size in self.task.sizes}, "wishes": [*map(str, self.task.wishes)]}
        return {**told, "layouts": self.layouts, "turns_left": self.max_turns - self.turns}

    def play(self, seat: str, act: str) -> str:
        """Show a layout, or end the match. Returns "done", "layout" or "nothing"."""
        is_done = act.strip().lower() == DONE
        heard = DONE if is_done else self._try(act)
        if is_done or self.turns == self.max_turns - 1:
            self._judge(seat)
        return heard

    def _try(self, text: str) -> str:
        try:
            self.places = read_layout(text, [name for name, _ in self.task.sizes])
        except LayoutError as why:
            self.errors += 1
            self.show(f"Error: {why}", sender=TOOL)
            return "nothing"
        self.layouts += 1
        self.show(f"Layout {self.layouts}.", draw_layout(self.task, self.places, self.grain), sender=TOOL)
        return "layout"

    def _judge(self, seat: str) -> None:
        if self.places:
            for part, value in self.parts().items():
                self.pay(seat, part, value)
            self.pay(seat, FORMAT, 0.0 if self.errors else 0.5)
        self.end("furnished" if self.places else "empty", "The room is furnished." if self.places else "It is empty.")

    def parts(self) -> dict[str, float]:
        """Return the rewards of the newest layout, without the format."""
        if not self.places:
            return {WISHES: 0.0, COLLISION: 0.0, CONSTRAINT: 0.0}
        count = len(self.task.sizes)
        collision, constraint = len(self.task.colliding(self.places)), len(self.task.misplaced(self.places))
        wishes = self.judged.met(self.places)
        return {WISHES: wishes, COLLISION: -0.2 * collision / count, CONSTRAINT: -0.2 * constraint / count}

    def figures(self) -> dict[str, float | bool | str]:
        """Return `score`, `success` (a score of 1), `met` wishes, `collisions`, `misplaced`, `layouts` and `errors`."""
        parts = self.parts()
        wrong = {
            "collisions": len(self.task.colliding(self.places)),
            "misplaced": len(self.task.misplaced(self.places)),
        }
        score = max(sum(parts.values()), 0.0)
        did = {"layouts": self.layouts, "errors": self.errors, **wrong}
        return {"score": score, "success": score == 1, "met": parts[WISHES], **did}

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """Return texts that tell where the walls of each colour are."""
        sides = zip(self.task.walls, SIDES, strict=True)
        return {"walls": tuple(text for wall, side in sides for text in (f"{wall} {side}", f"{side} {wall}"))}

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return reset options of one room in which walls count as another's colour, which the seat never learns."""
        return {JUDGED: 0}, {JUDGED: 1 + int(rng.integers(3))}
