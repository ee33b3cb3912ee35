"""MiniGrid's and BabyAI's grid worlds (Chevalier-Boisvert et al. 2023) as single-agent games in text or pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from games.adapters.foreign import ForeignGame, OwnRandom, split_options
from games.adapters.minigrid_words import describe
from games.adapters.minigrid_worlds import find_environment, make_environment
from games.base import IllegalAct, choice, to_one_line, whole_number
from games.png import Album

OUTCOME = "outcome"
ACTS = ("left", "right", "forward", "pickup", "drop", "toggle", "done")
"""Acts in the order of their numbers in the library."""
MAX_SETTING = 64
"""Maximum of the environment's numeric options except `max_steps`, because they may be sizes."""
MAX_STEPS = 10_000


class MiniGrid(ForeignGame):
    """Single-agent game in the MiniGrid environment `env`, whose agent sees the 7 x 7 cells in front of it.

    A turn consists of up to `acts` of left, right, forward, pickup, drop, toggle and done, separated by spaces or
    commas. If one has no effect, the rest are skipped. Options besides those of TextGame and the environment: view,
    "text", "picture" or "both"; acts, 1 to 8 (default 1 for text, else 3); tile, 4 to 32, a cell's width in pixels.
    Reward part "outcome": the environment's reward, 1 - 0.9 * steps / max_steps at the goal. Raises ValueError if the
    environment cannot be made with these options.
    """

    name = "minigrid"
    family: ClassVar[str] = "MiniGrid"
    library = "MiniGrid"
    seats = ("agent",)
    metadata: ClassVar[dict[str, Any]] = {"name": "minigrid_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {OUTCOME: "what the environment pays at the step"}

    def __init__(
        self,
        env: str,
        *,
        view: Literal["text", "picture", "both"] = "text",
        acts: int | None = None,
        tile: int = 8,
        **options: Any,
    ) -> None:
        self.view = choice("view", view, "text", "picture", "both")
        self.acts = (1 if view == "text" else 3) if acts is None else whole_number("acts", acts, least=1, most=8)
        self.tile = whole_number("tile", tile, least=4, most=32)
        self.settings, shared = split_options(options)
        for key, value in self.settings.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                least, most = (1, MAX_STEPS) if key == "max_steps" else (0, MAX_SETTING)
                whole_number(key, value, least=least, most=most)
        super().__init__(env, self.seats, **shared)
        self.id = find_environment(self.family, env)
        self.env = make_environment(self.id, self.settings, OwnRandom(np.random.default_rng(0)), 0)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Make and reset a new environment with a seed from `rng`, and show the agent's view."""
        self._random, self.album, self.has_reached_goal = OwnRandom(rng), Album(), False
        self.env = make_environment(self.id, self.settings, self._random, int(rng.integers(2**31)))
        self._show("", self.env.gen_obs()["image"])

    def rules(self) -> str:
        """Return how to act, as text. The task is the public fact `mission`."""
        how = "one act" if self.acts == 1 else f"up to {self.acts} acts a turn, with blanks between them"
        return (
            f"You move through a grid of rooms and see the cells before you; you look up. Write {how}: "
            f"{', '.join(ACTS)}. toggle opens doors and boxes. If an act has no effect, those after it are not done."
        )

    def public(self) -> dict[str, Any]:
        """Return the `mission` and `steps_left`, the environment's remaining steps."""
        return {"mission": to_one_line(str(self.env.mission)), "steps_left": max(self.env.steps_remaining, 0)}

    def legal(self, seat: str) -> list[str]:
        """Return all single acts, including those without an effect now."""
        return list(ACTS)

    def situation(self, seat: str) -> str:
        """Return the environment's hash of its state, and the carried object, as text."""
        carried_object = self.env.carrying
        return f"{self.env.hash()} {carried_object and carried_object.encode()}"

    def picture(self, hash: str) -> bytes:
        """Return the picture with this hash. Raises KeyError if the match has shown none."""
        return self.album.pictures[hash]

    def play(self, seat: str, act: str) -> str:
        """Perform the acts in order until one has no effect, show the new view, and return the performed acts.

        Raises IllegalAct for unknown words or too many acts.
        """
        words = act.lower().replace(",", " ").split()
        if not words or len(words) > self.acts or not {*words} <= {*ACTS}:
            raise IllegalAct(f"write {'one' if self.acts == 1 else f'1 to {self.acts}'} of {', '.join(ACTS)}")
        note = ""
        for count, word in enumerate(words, 1):
            before = self._read_local_state()
            with self._random.activate():
                observation, reward, is_over, is_cut, _ = self.env.step(ACTS.index(word))
            if reward:
                self.pay(seat, OUTCOME, float(reward))
            self.has_reached_goal |= reward > 0
            if is_over or is_cut:
                self.end("solved" if self.has_reached_goal else "over" if is_over else "turns", "The match is over.")
                return " ".join(words[:count])
            if word != "done" and self._read_local_state() == before:
                skipped_acts = " ".join(words[count:])
                note = f"{word} has no effect.{skipped_acts and f' Not done: {skipped_acts}.'}"
                break
        self._show(note, observation["image"])
        return " ".join(words[:count])

    def figures(self) -> dict[str, float | bool | str]:
        """Return `faults`, `solved` (whether there was a positive reward) and `steps`, the environment's step count."""
        return {**super().figures(), "solved": self.has_reached_goal, "steps": int(self.env.step_count)}

    def _read_local_state(self) -> tuple[Any, ...]:
        """Return everything that one act can change: position, direction, carried object and object in front."""
        front = self.env.grid.get(*self.env.front_pos)
        pose = tuple(map(int, self.env.agent_pos)), int(self.env.agent_dir)
        return *pose, self.env.carrying, front, front and front.encode()

    def _show(self, note: str, image: Any) -> None:
        """Send the agent `note` and its view, in the form that the option `view` sets.

        `image` is MiniGrid's encoding of the view.
        """
        view_text = "" if self.view == "picture" else describe(image, self.env.carrying)
        pixels = None if self.view == "text" else self.env.get_pov_render(self.tile)
        images = () if pixels is None else (self.album.add(np.ascontiguousarray(pixels, dtype=np.uint8)),)
        self.tell(f"{note} {view_text}".strip(), images=images)


MiniGrid.players = {"noop": lambda game, seed: lambda view: "done"}
