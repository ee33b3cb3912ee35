"""PettingZoo's turn-based environments as text games, with texts for acts and observations (Terry et al. 2021)."""

from __future__ import annotations

import copy
import importlib
import os
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv

from games.adapters.foreign import ForeignGame, OwnRandom, split_options
from games.adapters.modules import import_module
from games.adapters.pettingzoo_words import NUMBERS, WORDS
from games.base import IllegalAct, to_one_line
from games.names import nearest

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
OUTCOME = "outcome"
SHOWN_NUMBERS = 64
UNCOPIED_FIELDS = (
    "screen",
    "game_font",
    "action_spaces",
    "observation_spaces",
)
"""Attributes that copies share: they never change, and copying them is slow or impossible."""


def load(name: str) -> Callable[..., Any]:
    """Return the `env` function of a classic environment (`connect_four_v3`) or of a module (`package.module`).

    Raises ValueError, in one line with the nearest name or the package to install, if there is none.
    """
    module = name if "." in name else f"pettingzoo.classic.{name}"
    try:
        if "." not in name and name not in (known := list_classics()):
            hint = nearest(name, known)
            raise ValueError(f"PettingZoo has no classic environment '{name}'{hint} ({', '.join(known)})")
        imported = import_module(module)
    except ImportError as error:
        if "." in name and error.name and name.startswith(error.name):
            raise ValueError(f"there is no module '{error.name}'{_suggest_file(name)}") from None
        raise ValueError(
            f"pettingzoo:{name} needs more than is installed ({to_one_line(str(error))}): "
            "pip install 'arena-selfplay[pettingzoo]'"
        ) from None
    except ValueError:
        raise
    except Exception as error:  # noqa: BLE001 a module of others may fail in any way
        raise ValueError(f"the module {module} cannot be imported: {to_one_line(str(error))}") from None
    if not callable(make := getattr(imported, "env", None)):
        raise ValueError(f"the module {module} has no function env() that creates a PettingZoo AEC environment")
    return make  # type: ignore[no-any-return]


def _suggest_file(name: str) -> str:
    """Return the end of an error about a missing module. If the working directory has its file, says how to name it."""
    file = os.path.join(*name.split("."))
    for path in (f"{file}.py", os.path.join(file, "__init__.py")):
        if os.path.isfile(path):
            return f": name its file, {path}:env, or set PYTHONPATH=. to import from here"
    return " to take a PettingZoo environment from"


def list_classics() -> list[str]:
    """Return the names of PettingZoo's classic environments."""
    classic = importlib.import_module("pettingzoo.classic")
    return sorted(module.name for module in pkgutil.iter_modules(classic.__path__) if "_v" in module.name)


class PettingZooGame(ForeignGame):
    """Text game over any PettingZoo AEC environment with discrete actions; `env` is its name, class or factory.

    Seats have the agents' names. An act is the action's number, or a word in the environments of `WORDS`. A seat's
    private facts are its observation at its last turn, because many environments have none between turns. Acts are
    shown to other seats only where the environment's wording allows it. Reward part "outcome": the environment's
    rewards. Raises ValueError for an environment that is not an AECEnv, has actions that are not discrete, or has two
    agents of the same name.
    """

    name = "pettingzoo"
    metadata: ClassVar[dict[str, Any]] = {"name": "pettingzoo_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {OUTCOME: "what the environment pays at the step"}
    library = "PettingZoo"
    has_trials = True

    def __init__(self, env: str | Callable[..., Any], **options: Any) -> None:
        title, make = (env, load(env)) if isinstance(env, str) else (getattr(env, "__name__", "environment"), env)
        settings, shared = split_options(options)
        inner = make(**settings)
        if not isinstance(inner, AECEnv):
            raise ValueError(f"{title} is no PettingZoo AEC environment but a {type(inner).__name__}")
        inner.reset(seed=0)
        seats = tuple(str(agent) for agent in inner.possible_agents)
        if len(set(seats)) < len(seats):
            raise ValueError(f"{title} has two agents of one name: {', '.join(seats)}")
        for agent in inner.possible_agents:
            if not isinstance(inner.action_space(agent), spaces.Discrete):
                raise ValueError(f"{title} has no discrete actions that could be words: {inner.action_space(agent)}")
        self.wording = WORDS.get(title.rpartition(".")[2], NUMBERS)
        self.perfect_information = self.wording.has_perfect_information
        super().__init__(title, seats, **shared)
        self.env = inner

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Reset the environment with a seed from `rng`, and store the first seat's observation and legal acts."""
        self._random = OwnRandom(rng)
        self._last_seen: dict[str, dict[str, Any]] = {}
        with self._random.activate():
            self.env.reset(seed=int(rng.integers(2**31)), options=dict(options) or None)
            self._observe()
        self.agent_selection = str(self.env.agent_selection)

    def rules(self) -> str:
        """Return the environment's name, the library, the seats, and how to act, as text."""
        how = f" {self.wording.rules}" if self.wording.rules else ""
        return f"{super().rules()}{how} Play one of the legal acts, just as written."

    def private(self, seat: str) -> dict[str, Any]:
        """Return this seat's current facts if the environment's wording describes them, else its last observation."""
        if self.ended or seat != str(self.env.agent_selection):
            with self._random.activate():
                if facts := self.wording.describe(self.env.unwrapped, seat):
                    return facts
        return copy.deepcopy(self._last_seen.get(seat, {}))

    def legal(self, seat: str) -> list[str]:
        """Return the texts of the actions that the action mask allows the seat to move."""
        return list(self._acts)

    def play(self, seat: str, act: str) -> str:
        """Play a legal act, ignoring case and extra blanks. Returns its text for other seats, or "" if hidden."""
        word = " ".join(act.split())
        listed = word if word in self._acts else next((a for a in self._acts if a.lower() == word.lower()), None)
        if listed is None:
            raise IllegalAct("write one of the legal acts")
        action = self._acts[listed]
        with self._random.activate():
            self.env.step(action)
            for agent, reward in self.env.rewards.items():
                if reward:
                    self.pay(str(agent), OUTCOME, float(reward))
            self._skip_terminated()
            self._observe()
        return listed if self.wording.acts_are_public else ""

    def next_seat(self, seat: str) -> str:
        """Return the seat to move according to the environment, or `seat` after the end."""
        return seat if self.ended else str(self.env.agent_selection)

    def copy_env(self) -> Any:
        """Return a copy of the environment made field by field.

        `deepcopy` would rebuild an EzPickle environment from its arguments and lose the match's state.
        """
        return _copy_fields(self.env, {})

    def _skip_terminated(self) -> None:
        """Step terminated agents with None until it is a live agent's turn, and end the match if there is none."""
        env = self.env
        while env.agents and not all(env.terminations[a] or env.truncations[a] for a in env.agents):
            if not (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
                return
            env.step(None)
        self.end("over", "The match is over.")

    def _observe(self) -> None:
        """Store the legal acts, as actions by text, and the observation of the seat to move. No acts after the end."""
        self._acts: dict[str, int] = {}
        if self.ended:
            return
        agent, raw = self.env.agent_selection, self.env.unwrapped
        observation = self.env.observe(agent)
        mask = observation.get("action_mask") if isinstance(observation, Mapping) else None
        mask = self.env.infos[agent].get("action_mask") if mask is None else mask
        space = self.env.action_space(agent)
        actions = range(space.start, space.start + space.n) if mask is None else np.flatnonzero(mask) + space.start
        self._acts = {self.wording.format_act(raw, agent, int(action)): int(action) for action in actions}
        self._last_seen[str(agent)] = self.wording.describe(raw, agent) or to_texts(observation)


def _copy_fields(env: Any, memo: dict[int, Any]) -> Any:
    """Copy an environment and those that it wraps field by field. `memo` is that of `deepcopy`."""
    copied = memo[id(env)] = object.__new__(type(env))
    for name, value in vars(env).items():
        if isinstance(value, AECEnv) and id(value) not in memo:
            _copy_fields(value, memo)
        elif name in UNCOPIED_FIELDS and value is not None:
            memo[id(value)] = value
    vars(copied).update(copy.deepcopy(vars(env), memo))
    return copied


def to_texts(observation: Any) -> dict[str, Any]:
    """Return the parts of an observation, except `action_mask`, as short values for JSON, by name."""
    parts = observation if isinstance(observation, Mapping) else {"observation": observation}
    return {str(name): _shorten(part) for name, part in parts.items() if name != "action_mask"}


def _shorten(part: Any) -> Any:
    """Convert a part of an observation to short text or values for JSON.

    Stacked 0/1 planes of a board become rows of digits: the number of the plane that is 1 in each cell, or 0. Other
    large 0/1 arrays become the indices of their ones, and all other arrays their numbers.
    """
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping):
        return {str(name): _shorten(inner) for name, inner in part.items()}
    if isinstance(part, tuple) and not all(isinstance(item, int | float) for item in part):
        return [_shorten(item) for item in part]
    array = np.asarray(part)
    if array.dtype.kind not in "biuf":
        return str(part)
    if array.ndim == 0:
        return array.item()
    binary = array.size and bool(np.isin(array, (0, 1)).all())
    if binary and array.ndim == 3 and array.shape[2] <= 9 and bool((array.sum(axis=2) <= 1).all()):
        cells = (array * np.arange(1, array.shape[2] + 1)).sum(axis=2).astype(int)
        return "\n".join("".join(map(str, row)) for row in cells)
    if binary and array.size > SHOWN_NUMBERS // 4:
        return "ones at " + " ".join(",".join(map(str, place)) for place in np.argwhere(array))
    return " ".join(f"{value:g}" for value in array.ravel().tolist())
