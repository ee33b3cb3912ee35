"""Furniture placement: meet wishes in a room that only a picture shows, and refine the layout (MetaSpatial)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from games.base import choice, whole_number
from games.contracts import REFEREE, TOOL
from simulators.vision.furniture import DEPTH, MAX_THINGS, MIN_THINGS, SIDES, WIDTH, Places, Task, draw_task
from simulators.vision.layouts import STEP, USAGE, LayoutError, describe_briefly, draw_layout, read_layout, read_letters
from simulators.vision.rooms_lessons import KINDS, draw_lesson
from simulators.vision.rooms_players import DONE, PLAYERS
from simulators.vision.seeing import JUDGED, VisualWorld

WISHES, COLLISION, CONSTRAINT, FORMAT = "wishes", "collision", "constraint", "format"


class Rooms(VisualWorld):
    """Single-player game of placing things in a room of 48 x 36 units, seen from above, so that wishes are met.

    Two wishes name walls by their colours; only the picture shows these, and a pillar. Acts: a layout as JSON, alone or
    as <answer>…</answer> after a thought, `{"bed": [x, y], …}`, with the upper left corner of each thing; or `done`. A
    layout replaces the one before. Its picture shows things in white if they overlap, lie on the pillar or leave the
    room. Any other act (see `read_layout`) gets an error message. The match ends at `done`, or after `max_turns` (1 to
    16) acts.

    Additional options: max_turns; things, 2 to 5, with a wish for each of the first four, two of which are at walls;
    acts, which with "letters" are two letters per thing, A to Z for 0 to 50 in steps of 2, for small models. Pictures
    then have no text, and the public fact `brief` states sizes and wishes by the things' numbers.

    MetaSpatial's rewards, paid for the last layout: "wishes", the share that it meets; "collision" and "constraint",
    -0.2 times the share of things that overlap others, or are on the pillar or outside the room; "format", 0.5 without
    errors. `score` is the reward without "format", at least 0.
    """

    name = "rooms"
    metadata: ClassVar[dict[str, Any]] = {"name": "rooms_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {
        WISHES: "share of wishes met", COLLISION: "-0.2 times the share that overlaps",
        CONSTRAINT: "-0.2 times the share out of place", FORMAT: "0.5 without errors",
    }  # fmt: skip
    theory: ClassVar[Mapping[str, float]] = {"blind": 1 / 12}
    """Success rate of a player that does not see which two of four walls the wishes name."""
    players = PLAYERS
    lesson_kinds = KINDS
    draw_lesson = draw_lesson

    def __init__(
        self,
        *,
        acts: Literal["json", "letters"] = "json",
        max_turns: int = 3,
        things: int = MAX_THINGS,
        **options: Any,
    ) -> None:
        self.stride = STEP if choice("acts", acts, "json", "letters") == "letters" else 1
        self.things = whole_number("things", things, least=MIN_THINGS, most=MAX_THINGS)
        self.max_turns = whole_number("max_turns", max_turns, least=1, most=16)
        super().__init__(**options)

    @property
    def floor(self) -> float:
        """Success rate of random acts: 10 of 4,000 seeds with two things, and none of 4,000 with three."""
        return 0.003 if self.things == MIN_THINGS else 0.0

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw a task, and show the empty room."""
        self.task: Task = self.draw_task(rng)
        rotation = int(options.get(JUDGED, 0))
        self.judged = self.task._replace(walls=self.task.walls[rotation:] + self.task.walls[:rotation])
        self.grain = int(rng.integers(2**31))
        self.places: Places = {}
        self.layouts = self.errors = 0
        self._show_room("The empty room.", REFEREE)

    def draw_task(self, rng: np.random.Generator) -> Task:
        """Draw a task of the game's split."""
        return self.draw_entity(lambda: draw_task(rng, self.stride, self.things), lambda task: repr(task[:4]))

    def _show_room(self, text: str, sender: str) -> None:
        """Show the room, with a text unless acts are letters."""
        picture = draw_layout(self.task, self.places, self.grain)
        self.show(*([text] if self.stride == 1 else []), picture, sender=sender)

    def rules(self) -> str:
        """Return the task and the acts, as text."""
        usage = USAGE if self.stride == 1 else f"the place of each thing as two letters, A to Z for 0 to {25 * STEP}"
        return (
            f"Furnish a room {WIDTH} wide and {DEPTH} deep, seen from above, as is wished. Write {usage}, counted from "
            "the room's left upper corner to the thing's. Nothing may overlap, stand on the grey pillar or leave the "
            f"room: what does is white in the picture of your layout. {self.max_turns} turns in all. The last layout "
            f"counts; `{DONE}` keeps it."
        )

    def public(self) -> dict[str, Any]:
        """Return the `things` with width and depth, the `wishes`, the number of `layouts`, and `turns_left`."""
        facts = {"things": {name: [*size] for name, size in self.task.sizes}, "wishes": [*map(str, self.task.wishes)]}
        facts |= {"brief": describe_briefly(self.task)} if self.stride > 1 else {}
        return {**facts, "layouts": self.layouts, "turns_left": self.max_turns - self.turns}

    def play(self, seat: str, act: str) -> str:
        """Show a layout, or end the match. Returns "done", "layout" or "nothing"."""
        is_done = act.strip().lower() == DONE
        parsed = DONE if is_done else self._try(act)
        if is_done or self.turns == self.max_turns - 1:
            self._judge(seat)
        return parsed

    def _try(self, text: str) -> str:
        try:
            names = [name for name, _ in self.task.sizes]
            self.places = read_letters(text, names) if self.stride > 1 else read_layout(text, names)
        except LayoutError as error:
            self.errors += 1
            self.show(f"Error: {error}", sender=TOOL)
            return "nothing"
        self.layouts += 1
        self._show_room(f"Layout {self.layouts}.", TOOL)
        return "layout"

    def _judge(self, seat: str) -> None:
        if self.places:
            for part, value in self.parts().items():
                self.pay(seat, part, value)
            self.pay(seat, FORMAT, 0.0 if self.errors else 0.5)
        self.end("furnished" if self.places else "empty", "The room is furnished." if self.places else "It is empty.")

    def parts(self) -> dict[str, float]:
        """Return the rewards of the newest layout by part, without the format's."""
        if not self.places:
            return {WISHES: 0.0, COLLISION: 0.0, CONSTRAINT: 0.0}
        count = len(self.task.sizes)
        collision, constraint = len(self.task.find_colliding(self.places)), len(self.task.find_misplaced(self.places))
        wishes = self.judged.compute_met_share(self.places)
        return {WISHES: wishes, COLLISION: -0.2 * collision / count, CONSTRAINT: -0.2 * constraint / count}

    def figures(self) -> dict[str, float | bool | str]:
        """Return `score`, `success` (a score of 1), `met` wishes, `collisions`, `misplaced`, `layouts` and `errors`."""
        parts = self.parts()
        wrong = {
            "collisions": len(self.task.find_colliding(self.places)),
            "misplaced": len(self.task.find_misplaced(self.places)),
        }
        score = max(sum(parts.values()), 0.0)
        counts = {"layouts": self.layouts, "errors": self.errors, **wrong}
        return {"score": score, "success": score == 1, "met": parts[WISHES], **counts}

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """Return texts that reveal where the walls of each colour are."""
        sides = zip(self.task.walls, SIDES, strict=True)
        return {"walls": tuple(text for wall, side in sides for text in (f"{wall} {side}", f"{side} {wall}"))}

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return reset options of two deals with the same picture but different wall colours by which it is judged."""
        return {JUDGED: 0}, {JUDGED: 1 + int(rng.integers(3))}
