"""ScienceWorld's tasks as single-agent games (Wang et al. 2022), with their gold paths as the player `expert`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from games.adapters.foreign import SingleAgentGame, sanitise, shorten
from games.adapters.scienceworld_worlds import World, find_gold_path, find_tasks, load_splits
from games.base import ACTION_LENGTH, IllegalAct, choice, flag, to_one_line, whole_number
from games.contracts import View

SCORE, WIN = PARTS = ("score", "win")
SIMPLIFICATIONS = (
    "easy", "teleportAction", "selfWateringFlowerPots", "openContainers", "openDoors", "noElectricalAction",
)  # fmt: skip
WAIT = "look around"
FULL_SCORE = 100
LONGEST_ACT = 200


class ScienceWorld(SingleAgentGame):
    """Single-agent game in the ScienceWorld task `env`, such as boil, or in a random one of its 30 tasks (`all`).

    The seed selects a variation of the task. Options besides TextGame's: split "train", "dev", "test" or "all" three;
    simplify, names of simplifications separated by commas, or "" (default "easy", which sets all); listed, whether to
    list the valid acts (default true), which takes most of a step's time (unlisted acts may be valid, too); max_turns
    (default 100); pays, the reward parts to pay: "score" (default) and "win".
    """

    name = "scienceworld"
    library = "ScienceWorld"
    blocks = True
    metadata: ClassVar[dict[str, Any]] = {"name": "scienceworld_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {
        SCORE: "the act's gain in score, as a share of 100, beyond that of the start; failing takes back what was paid",
        WIN: "1 at the full score",
    }

    def __init__(
        self,
        env: str,
        *,
        split: Literal["train", "dev", "test", "all"] = "train",
        simplify: str = "easy",
        listed: bool = True,
        max_turns: int = 100,
        pays: Sequence[str] = (SCORE,),
        **options: Any,
    ) -> None:
        self.split = choice("split", split, "train", "dev", "test", "all")
        self.listed = flag("listed", listed)
        self.simplify = ",".join(
            choice("simplify", each, *SIMPLIFICATIONS) for each in str(simplify).split(",") if each
        )
        self.max_turns = whole_number("max_turns", max_turns, least=1, most=10_000)
        self.pays = tuple(choice("pays", part, *PARTS) for part in ([pays] if isinstance(pays, str) else pays))
        self.tasks = find_tasks(env)
        super().__init__(env, **options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw a task and a variation, load it, and show the room."""
        self.close()
        self.task = str(rng.choice(self.tasks))
        splits = load_splits(self.task)
        variations = (
            sorted({*splits["train"], *splits["dev"], *splits["test"]}) if self.split == "all" else splits[self.split]
        )
        self.variation = int(rng.choice(variations))
        simplify = self.simplify
        if "conductivity" in self.task or "power-component" in self.task:  # these tasks need electrical acts
            simplify = ",".join(each for each in simplify.split(",") if each != "noElectricalAction")
        self.env = World(self.task, self.variation, simplify, self.listed)
        state = self.env.load()
        self._task = clean_text(str(state["task"])).removeprefix("Task Description:\n")
        self._store_state(state)
        self.start = self.score
        self.tell(self._room)

    def rules(self) -> str:
        """Return how to act, as text."""
        how = "one of the listed acts, just as written" if self.listed else "an act, such as open door to kitchen"
        return f"You are in a text world and have a task. Each turn write {how}. Focus only on what the task names."

    def public(self) -> dict[str, Any]:
        """Return the `task`, the `score` and `steps_left`, the number of remaining acts."""
        return {"task": self._task, "score": self.score, "steps_left": self.max_turns - self.turns}

    def private(self, seat: str) -> dict[str, Any]:
        """Return the current descriptions of the `room` and the `inventory`."""
        return {"room": self._room, "inventory": self._inventory}

    def legal(self, seat: str) -> list[str] | None:
        """Return ScienceWorld's valid acts, sorted, or None with `listed: false`."""
        return list(self._acts) if self.listed else None

    def play(self, seat: str, act: str) -> str:
        """Perform an act and return it. Raises IllegalAct for an act that is neither listed nor understood.

        ScienceWorld does not understand a few acts that it lists; they have no effect.
        """
        word = to_one_line(act, LONGEST_ACT)
        listed = next((listed for listed in self._acts if listed.lower() == word.lower()), None)
        if not word:
            raise IllegalAct("write an act")
        word = listed or word
        state = self.env.step(word)
        if listed is None and not self.env.is_understood(state):
            raise IllegalAct("no known action: write one of the listed acts" if self.listed else "no known action")
        before = self.score
        self._store_state(state)
        change = max(self.score, self.start) - max(before, self.start)
        is_won = self.score >= FULL_SCORE
        for part, value in ((SCORE, change / FULL_SCORE), (WIN, float(is_won))):
            if value and part in self.pays:
                self.pay(seat, part, value)
        self.tell(clean_text(str(state["text"])))
        if is_won or self.score < 0 or state["done"] or self.turns + 1 >= self.max_turns:
            is_lost = self.score < 0 or (state["done"] and not is_won)
            self.end("won" if is_won else "lost" if is_lost else "turns", "The match is over.")
            self.env.close()
        return word

    def figures(self) -> dict[str, float | bool | str]:
        """Return `success`, ScienceWorld's `score` (-100 to 100), `task` and `variation`, and `faults`."""
        variation = {"task": self.task, "variation": str(self.variation)}
        return {**super().figures(), "success": self.score >= FULL_SCORE, "score": self.score, **variation}

    def copy_env(self) -> Any:
        """Return a copy of the world, in which the same acts are repeated at its first use."""
        return None if self.env is None else self.env.copy()

    def close(self) -> None:
        """Return the world's Java process to the pool."""
        if self.env is not None:
            self.env.close()

    def _store_state(self, state: Mapping[str, Any]) -> None:
        """Store the score, room, inventory and valid acts of a state."""
        self.score = int(state["score"])
        self._room = clean_text(str(state["look"]))
        self._inventory = clean_text(str(state["inventory"]))
        self._acts: list[str] = list(state["acts"] or ())


def clean_text(text: str) -> str:
    """Return a text of ScienceWorld without empty lines and control characters, cut to the length of a message."""
    lines = (line.strip() for line in sanitise(text).split("\n"))
    return shorten("\n".join(line for line in lines if line), ACTION_LENGTH)


class Expert:
    """Player that follows ScienceWorld's gold path (its own solution), and then writes "look around"."""

    def __init__(self, game: ScienceWorld, seed: int) -> None:
        self.game, self._act_count = game, 0

    def __call__(self, view: View) -> str:
        """Return the next act of the path."""
        game = self.game
        path = find_gold_path(game.task, game.variation, game.env.simplify)
        self._act_count += 1
        return path[self._act_count - 1] if self._act_count <= len(path) else WAIT


ScienceWorld.players = {"noop": lambda game, seed: lambda view: WAIT, "expert": Expert}
