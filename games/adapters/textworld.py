"""Adapter of TextWorld's generated text adventures (Côté et al. 2018), with its planner as the player `expert`."""

from __future__ import annotations

import importlib
import random
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from games.adapters.foreign import SingleAgentGame, sanitise, shorten
from games.adapters.textworld_games import MAX_CACHED, compile_game, parse_name
from games.base import ACTION_LENGTH, IllegalAct, choice, to_one_line, whole_number
from games.contracts import View

WIN, SCORE, DENSE = PARTS = ("win", "score", "dense")
TEST_INTERVAL = 5
"""One in this many games belongs to the test split."""
MIN_TURNS = 50
"""Lowest default of `max_turns`."""
PATIENCE = 3
"""Default of `max_turns`, as a multiple of the expert's acts."""
WAIT = "look"
"""Command that changes nothing."""
RANDOM_SHARE = 0.5
"""Share of random commands that the player `careless` writes."""
STATUS = re.compile(r"\s*+(?:>\s*+)?-= [^\n]* =-\d+/\d+\s*$")
"""Status line that the interpreter appends to the game's feedback."""
MENU = re.compile(r"^(Would you like to RESTART.*|>)$")
LOADING = threading.Lock()
"""Lock held while a game is loaded or copied, because TextWorld's parsers share global state."""


class TextWorld(SingleAgentGame):
    """Single-agent game in generated TextWorld games. `env` names the generator.

    The generators are w2-o3-q4 (rooms, objects, acts to the goal), coin_collector, treasure_hunter and cooking, with
    settings in brackets. The seed selects one of `games` games; every fifth belongs to the split "test". Only the
    listed commands are legal, because the interpreter would also accept `save` and `script`, which write files. Options
    besides TextGame's: games, 1 to 500; split "train", "test" or "all"; max_turns (None: 50, or three times the
    expert's acts if that is more); pays, the reward parts to pay: "win" (default), "score", "dense".
    """

    name = "textworld"
    library = "TextWorld"
    blocks = True  # while a game is compiled
    metadata: ClassVar[dict[str, Any]] = {"name": "textworld_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {
        WIN: "1 when the goal is reached",
        SCORE: "the share of the game's points that the act gained",
        DENSE: "the act's progress towards the goal, negative if away from it, as a share of the expert's acts",
    }

    def __init__(
        self,
        env: str,
        *,
        games: int = 50,
        split: Literal["train", "test", "all"] = "all",
        max_turns: int | None = None,
        pays: Sequence[str] = (WIN,),
        **options: Any,
    ) -> None:
        self.kind = parse_name(env)
        self.games = whole_number("games", games, least=1, most=MAX_CACHED)
        self.split = choice("split", split, "train", "test", "all")
        self.max_turns = None if max_turns is None else whole_number("max_turns", max_turns, least=1, most=1000)
        self.pays = tuple(choice("pays", part, *PARTS) for part in ([pays] if isinstance(pays, str) else pays))
        self._numbers = [n for n in range(self.games) if split == "all" or is_held_out(n) == (split == "test")]
        if not self._numbers:
            raise ValueError(f"games must be at least {TEST_INTERVAL} with split: test, not {games}")
        super().__init__(env, **options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw a game, compile it unless it is cached, and show the first room."""
        self.number = int(rng.choice(self._numbers))
        self.env, state = start_game(compile_game(self.kind, self.number, is_held_out(self.number)))
        self._points, self._max_points, self._dense, self.is_won = 0, max(int(state.max_score), 1), 0, False
        self._objective = to_one_line(str(state.objective), ACTION_LENGTH)
        self._store_state(state)
        self._expert_acts = max(len(self._plan), 1)
        self._turns_left = self.max_turns or max(MIN_TURNS, PATIENCE * self._expert_acts)
        self.tell(self._room)

    def rules(self) -> str:
        """Return how to act, as text."""
        return (
            "You are in a text adventure. Reach the objective. Each turn write one of the listed commands, just as "
            "written; look and inventory tell where you are and what you carry."
        )

    def public(self) -> dict[str, Any]:
        """Return the `objective`, the `score` with its maximum, and `steps_left`."""
        return {
            "objective": self._objective,
            "score": f"{self._points} of {self._max_points}",
            "steps_left": self._turns_left,
        }

    def private(self, seat: str) -> dict[str, Any]:
        """Return the current descriptions of the `room` and the `inventory`."""
        return {"room": self._room, "inventory": self._inventory}

    def legal(self, seat: str) -> list[str]:
        """Return TextWorld's admissible commands, sorted."""
        return list(self._commands)

    def situation(self, seat: str) -> str:
        """Return the game's number and all facts of its world, as text."""
        return f"{self.number} {self._facts}"

    def play(self, seat: str, act: str) -> str:
        """Play a listed command, ignoring case and extra blanks, and return it. Raises IllegalAct for other texts."""
        word = " ".join(act.split())
        command = next((c for c in self._commands if word in (c, c.lower())), None) or next(
            (c for c in self._commands if c.lower() == word.lower()), None
        )
        if command is None:
            raise IllegalAct("write one of the listed commands")
        state, _, is_over = self.env.step(command)
        score_gain, progress = int(state.score) - self._points, int(state.intermediate_reward)
        self._points, self._dense, self._turns_left = int(state.score), self._dense + progress, self._turns_left - 1
        self.is_won = bool(state.won)
        self._store_state(state)
        for part, value in (
            (WIN, float(self.is_won)), (SCORE, score_gain / self._max_points), (DENSE, progress / self._expert_acts)
        ):  # fmt: skip
            if value and part in self.pays:
                self.pay(seat, part, value)
        self.tell(clean_feedback(str(state.feedback)))
        if is_over or not self._turns_left:
            self.end("won" if self.is_won else "lost" if is_over else "turns", "The match is over.")
            self.close()
        return command

    def figures(self) -> dict[str, float | bool | str]:
        """Return `success`, `score` and `dense` as shares, `game` (its number as text) and `faults`."""
        shares = {"score": self._points / self._max_points, "dense": self._dense / self._expert_acts}
        return {**super().figures(), "success": self.is_won, **shares, "game": str(self.number)}

    def copy_env(self) -> Any:
        """Return an independent copy of the environment, made by its own `copy`, because `deepcopy` fails."""
        if self.env is None:
            return None
        with LOADING:
            return self.env.copy()

    def close(self) -> None:
        """Release the interpreter and its memory."""
        env, self.env = self.env, None
        if env is not None:
            env.close()

    def expert_act(self) -> str:
        """Return the next command of TextWorld's plan, or "look" if the goal can no longer be reached."""
        return self._plan[0] if self._plan else WAIT

    def _store_state(self, state: Any) -> None:
        """Store the room, inventory, commands, plan and facts of TextWorld's state."""
        self._room = shorten(clean_feedback(str(state.description)), ACTION_LENGTH)
        self._inventory = shorten(clean_feedback(str(state.inventory)), ACTION_LENGTH)
        self._commands: list[str] = list(state.admissible_commands)
        self._plan: list[str] = list(state.policy_commands or ())
        self._facts = "; ".join(sorted(map(str, state["_facts"])))


def is_held_out(number: int) -> bool:
    """Return whether the game with this number belongs to the test split, which has every fifth game."""
    return number % TEST_INTERVAL == TEST_INTERVAL - 1


def start_game(path: Path) -> tuple[Any, Any]:
    """Load a compiled game and return its environment and first state."""
    textworld = importlib.import_module("textworld")
    infos = ("feedback", "description", "inventory", "admissible_commands", "policy_commands", "objective", "won",
             "lost", "score", "max_score", "intermediate_reward")  # fmt: skip
    with LOADING:
        env = textworld.start(str(path), textworld.EnvInfos(**dict.fromkeys(infos, True)))
        env.seed(0)
        return env, env.reset()


def clean_feedback(text: str) -> str:
    """Return the game's feedback without the status line, the prompt, the final menu and empty lines."""
    lines = (line.strip() for line in sanitise(STATUS.sub("", text)).split("\n"))
    return shorten("\n".join(line for line in lines if line and not MENU.match(line)), ACTION_LENGTH)


def _expert(game: TextWorld, seed: int) -> Callable[[View], str]:
    """Return a player that follows TextWorld's plan."""
    return lambda view: game.expert_act()


def _careless(game: TextWorld, seed: int) -> Callable[[View], str]:
    """Return a player that plays a random command with probability `RANDOM_SHARE`, else the plan's next command."""
    rng = random.Random(seed)
    return lambda view: rng.choice(game.legal(view.seat)) if rng.random() < RANDOM_SHARE else game.expert_act()


TextWorld.players = {"noop": lambda game, seed: lambda view: WAIT, "expert": _expert, "careless": _careless}
