"""A house described in words: fetch an item and bring it to a room (a small TextWorld, Côté et al. 2018)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from games.base import IllegalAct, flag, to_one_line, whole_number
from games.families.grid import STEPS, Cell
from games.families.house import PLAYERS, STRATEGIST, count_fewest_acts, draw_house
from games.families.solitaire import Solitaire

ROOMS = (
    "attic", "bathroom", "bedroom", "cellar", "garage", "garden", "hall", "kitchen", "library", "pantry", "porch",
    "study",
)  # fmt: skip
ITEMS = ("apple", "book", "candle", "coin", "cup", "hammer", "key", "lamp", "rope", "vase")
SUBGOAL = "subgoal"


class TextNavigation(Solitaire):
    """Errand in a house. Acts: GO direction, TAKE item, DROP item. Goal: drop the wanted item in the wanted room.

    The walker sees only its own room, so it has to search for the item. All possible acts are listed, others are
    illegal. Depth-first exploration followed by the shortest path needs fewer than 4 * rooms turns, the default
    max_turns. Options besides Solitaire's:

    - rooms: 2 to 12
    - items: 1 to 10
    - subgoals: whether taking the wanted item for the first time, and delivering it, pay 1 each in part "subgoal",
      which serves credit assignment and is not part of the payoff
    - strategist: whether a second seat, `strategist`, sees the same facts, advises the walker before each turn, and
      gets all rewards, so that only the strategist learns; the two seats are from EPO (Liu et al. 2025, ACL)
    """

    name = "text_navigation"
    seats: tuple[str, ...] = ("walker",)
    metadata: ClassVar[dict[str, Any]] = {"name": "text_navigation_v0", "render_modes": ["ansi"]}
    players = PLAYERS
    theory: ClassVar[Mapping[str, float]] = {"max_efficiency": 1.0, "least_turns": 3.0}  # TAKE, GO, DROP
    unpaid_parts = (SUBGOAL,)

    def __init__(
        self, *, rooms: int = 6, items: int = 3, subgoals: bool = False, strategist: bool = False,
        max_turns: int | None = None, **options: Any
    ) -> None:  # fmt: skip
        self.size = whole_number("rooms", rooms, least=2, most=len(ROOMS))
        self.count = whole_number("items", items, least=1, most=len(ITEMS))
        self.subgoals = flag("subgoals", subgoals)
        if self.subgoals:
            self.reward_parts = {**self.reward_parts, SUBGOAL: "1 for first taking what is wanted, 1 for bringing it"}
        if flag("strategist", strategist):
            self.seats, self.rivals = (STRATEGIST, "walker"), False
        super().__init__(max_turns=4 * rooms if max_turns is None else max_turns, **options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw a house, the rooms of items and walker, and a goal room that does not hold the wanted item."""
        cells, self.doors = draw_house(self.size, rng)
        self.names = dict(zip(cells, rng.choice(ROOMS, size=self.size, replace=False).tolist(), strict=True))
        items = rng.choice(ITEMS, size=self.count, replace=False).tolist()
        self.places: dict[str, Cell | None] = {item: cells[rng.integers(self.size)] for item in items}
        self.position = cells[rng.integers(self.size)]
        self.target_item, self.is_taken = items[0], False
        elsewhere = [cell for cell in cells if cell != self.places[self.target_item]]
        self.goal = elsewhere[rng.integers(len(elsewhere))]
        self.shortest, self.strategy = count_fewest_acts(self), ""

    @property
    def walker_acts(self) -> int:
        """Number of the walker's legal acts so far."""
        return self.turns // len(self.seats)

    @property
    def turns_left(self) -> int:
        """Number of acts left to the walker."""
        return self.max_turns - self.walker_acts

    def rules(self) -> str:
        """Return the rules as one paragraph: the task, the acts and the limit."""
        advice = " Before each turn the strategist says what the walker is to do." if len(self.seats) > 1 else ""
        return (
            f"You are in a house. Bring the {self.target_item} to the {self.names[self.goal]}: DROP it there. "
            f"Acts: GO and a direction, TAKE or DROP and an item; {self.max_turns} turns in all.{advice}"
        )

    def public(self) -> dict[str, Any]:
        """Return task, room, exits, items here and carried, turns left, and the strategist's advice (`strategy`)."""
        return {
            "task": f"{self.target_item} to {self.names[self.goal]}", "room": self.names[self.position],
            "exits": [direction for direction in STEPS if direction in self.doors[self.position]],
            "items": self._list_items(self.position), "carried": self._list_items(None), "turns_left": self.turns_left,
            "strategy": {STRATEGIST: self.strategy} if self.strategy else {},
        }  # fmt: skip

    def situation(self, seat: str) -> str:
        """Return the room, every item's room, and the strategist's advice as text."""
        return f"{self.position} {self.places} {self.strategy}".rstrip()

    def legal(self, seat: str) -> list[str] | None:
        """Return the walker's legal acts; None for the strategist, which may say anything."""
        return None if seat == STRATEGIST else self.acts()

    def acts(self) -> list[str]:
        """Return an act for every exit, every item here and every item carried."""
        facts = self.public()
        words = {"GO": facts["exits"], "TAKE": facts["items"], "DROP": facts["carried"]}
        return [f"{verb} {noun}" for verb, nouns in words.items() for noun in nouns]

    def play(self, seat: str, act: str) -> str:
        """Move, take or drop and return the change for all seats, or record the strategist's advice."""
        if seat == STRATEGIST:
            if not (advice := to_one_line(act)):
                raise IllegalAct("say what the walker is to do")
            self.strategy = advice
            return f"SAY {advice}"
        verb, _, noun = " ".join(act.split()).partition(" ")
        verb, noun = verb.upper(), noun.lower() if verb.upper() != "GO" else noun.upper()
        parsed = f"{verb} {noun}"
        if parsed not in self.acts():
            raise IllegalAct({
                "GO": f"there is no way {noun}", "TAKE": f"there is no {noun} here", "DROP": f"you have no {noun}",
            }.get(verb, "write GO and a direction, or TAKE or DROP and an item")[:80])  # fmt: skip
        if verb == "GO":
            self.position = self.doors[self.position][noun]
            self.tell(f"You are in the {self.names[self.position]}.")
        else:
            self.places[noun] = None if verb == "TAKE" else self.position
            self.tell(f"You {'take' if verb == 'TAKE' else 'drop'} the {noun}.")
        is_solved = self.places[self.target_item] == self.goal
        is_first_take = not self.is_taken and self.places[self.target_item] is None
        self.is_taken |= is_first_take
        payee, self.strategy = self.seats[0], ""
        if self.subgoals and (is_first_take or is_solved):
            self.pay(payee, SUBGOAL, 1.0)
        self.score(payee, is_solved, f"The {self.target_item} is where it was wanted.", "No turns are left.")
        return parsed

    def figures(self) -> dict[str, float | bool | str]:
        """Return `solved`, `shortest` (the fewest acts) and `efficiency`: shortest / walker's acts, 0 if unsolved."""
        efficiency = self.shortest / self.walker_acts if self.ended == "solved" else 0.0
        return {**super().figures(), "shortest": self.shortest, "efficiency": efficiency}

    def _list_items(self, place: Cell | None) -> list[str]:
        return sorted(item for item, item_place in self.places.items() if item_place == place)
