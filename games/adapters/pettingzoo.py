"""PettingZoo's turn-based environments as text games: words for acts, short texts for arrays (Terry et al. 2021)."""

from __future__ import annotations

import copy
import difflib
import importlib
import os
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv

from games.adapters.foreign import SHARED, ForeignGame, OwnRandom
from games.adapters.modules import import_module
from games.adapters.pettingzoo_words import PLAIN, WORDS
from games.base import IllegalAct, one_line

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
OUTCOME = "outcome"
SHOWN_NUMBERS = 64
SHARED_PARTS = ("screen", "action_spaces", "observation_spaces")  # never change; costly, or not to be copied


def load(name: str) -> Callable[..., Any]:
    """Return the `env` function of a classic environment (`connect_four_v3`) or of a module (`package.module`).

    Raises ValueError in one line with the nearest name or the package to install.
    """
    module = name if "." in name else f"pettingzoo.classic.{name}"
    try:
        if "." not in name and name not in (known := classics()):
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
            hint = f" — did you mean '{near[0]}'?" if near else ""
            raise ValueError(f"PettingZoo has no classic environment '{name}'{hint} ({', '.join(known)})")
        imported = import_module(module)
    except ImportError as error:
        if "." in name and error.name and name.startswith(error.name):
            raise ValueError(f"there is no module '{error.name}'{_as_a_file(name)}") from None
        raise ValueError(
            f"pettingzoo:{name} needs more than is installed ({one_line(str(error))}): "
            "pip install 'arena-selfplay[pettingzoo]'"
        ) from None
    except ValueError:
        raise
    except Exception as error:  # noqa: BLE001 a module of others may fail in any way
        raise ValueError(f"the module {module} cannot be imported: {one_line(str(error))}") from None
    if not callable(make := getattr(imported, "env", None)):
        raise ValueError(f"the module {module} has no function env() that makes a PettingZoo AEC environment")
    return make  # type: ignore[no-any-return]


def _as_a_file(name: str) -> str:
    """Suggest how to name a module of the working directory, from which nothing is imported by default."""
    file = os.path.join(*name.split("."))
    for path in (f"{file}.py", os.path.join(file, "__init__.py")):
        if os.path.isfile(path):
            return f": name its file, {path}:env, or set PYTHONPATH=. to import from here"
    return " to take a PettingZoo environment from"


def classics() -> list[str]:
    """Return the names of PettingZoo's classic environments."""
    classic = importlib.import_module("pettingzoo.classic")
    return sorted(module.name for module in pkgutil.iter_modules(classic.__path__) if "_v" in module.name)


class PettingZooGame(ForeignGame):
    """Any AEC environment with discrete actions; `env` names it, or is what makes it.

    Agents may be of any type: their texts are the seats' names. Acts: the action's number, or a word for the classic
    environments. A seat sees, privately, what the environment shows it when it is to move, and keeps that until it is
    again: many environments cannot be asked in between. The others read an act only where the classic game lies open;
    elsewhere they learn what the environment shows. Reward part "outcome": the environment's rewards.
    """

    name = "pettingzoo"
    metadata: ClassVar[dict[str, Any]] = {"name": "pettingzoo_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {OUTCOME: "what the environment pays at the step"}
    library = "PettingZoo"

    def __init__(self, env: str | Callable[..., Any], **options: Any) -> None:
        title, make = (env, load(env)) if isinstance(env, str) else (getattr(env, "__name__", "environment"), env)
        inner = make(**{key: value for key, value in options.items() if key not in SHARED})
        if not isinstance(inner, AECEnv):
            raise ValueError(f"{title} is no PettingZoo AEC environment but a {type(inner).__name__}")
        inner.reset(seed=0)
        seats = tuple(str(agent) for agent in inner.possible_agents)
        if len(set(seats)) < len(seats):
            raise ValueError(f"{title} has two agents of one name: {', '.join(seats)}")
        for agent in inner.possible_agents:
            if not isinstance(inner.action_space(agent), spaces.Discrete):
                raise ValueError(f"{title} has no discrete actions that could be words: {inner.action_space(agent)}")
        self.words = WORDS.get(title.rpartition(".")[2], PLAIN)
        self.perfect_information = self.words.perfect
        super().__init__(title, seats, **{key: value for key, value in options.items() if key in SHARED})
        self.env = inner

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Reset the environment with a seed from the match's generator."""
        self._random = OwnRandom(rng)
        self._last_seen: dict[str, dict[str, Any]] = {}
        with self._random.lent():
            self.env.reset(seed=int(rng.integers(2**31)), options=dict(options) or None)
            self._observe()
        self.agent_selection = str(self.env.agent_selection)

    def rules(self) -> str:
        """Return the environment's name, the seats, how to act."""
        how = f" {self.words.rules}" if self.words.rules else ""
        return f"{super().rules()}{how} Play one of the legal acts, just as written."

    def private(self, seat: str) -> dict[str, Any]:
        """Return the environment's current or last observation of this seat, as short texts."""
        if self.ended or seat != str(self.env.agent_selection):
            with self._random.lent():
                if seen := self.words.look(self.env.unwrapped, seat):
                    return seen
        return copy.deepcopy(self._last_seen.get(seat, {}))

    def legal(self, seat: str) -> list[str]:
        """Return the words of the actions that the environment's mask allows."""
        return list(self._acts)

    def play(self, seat: str, act: str) -> str:
        """Play an act by its word, ignoring case and extra blanks."""
        word = " ".join(act.split())
        listed = word if word in self._acts else next((a for a in self._acts if a.lower() == word.lower()), None)
        if listed is None:
            raise IllegalAct("write one of the legal acts")
        action = self._acts[listed]
        with self._random.lent():
            self.env.step(action)
            for agent, reward in self.env.rewards.items():
                if reward:
                    self.pay(str(agent), OUTCOME, float(reward))
            self._skip_the_dead()
            self._observe()
        return listed if self.words.open else ""

    def next_seat(self, seat: str) -> str:
        """Return the seat to move, by PettingZoo."""
        return seat if self.ended else str(self.env.agent_selection)

    def copied(self) -> Any:
        """Return a copy made field by field. `deepcopy` would rebuild environments that are EzPickles, without the
        match.
        """
        return _copied(self.env, {})

    def _skip_the_dead(self) -> None:
        """Step agents that are out with None, and end the match when all are."""
        env = self.env
        while env.agents and not all(env.terminations[a] or env.truncations[a] for a in env.agents):
            if not (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
                return
            env.step(None)
        self.end("over", "The match is over.")

    def _observe(self) -> None:
        """Store the observation and the legal acts of the seat to move."""
        self._acts: dict[str, int] = {}
        if self.ended:
            return
        agent, raw = self.env.agent_selection, self.env.unwrapped
        observation = self.env.observe(agent)
        mask = observation.get("action_mask") if isinstance(observation, Mapping) else None
        mask = self.env.infos[agent].get("action_mask") if mask is None else mask
        space = self.env.action_space(agent)
        actions = range(space.start, space.start + space.n) if mask is None else np.flatnonzero(mask) + space.start
        self._acts = {self.words.word(raw, agent, int(action)): int(action) for action in actions}
        self._last_seen[str(agent)] = self.words.look(raw, agent) or as_text(observation)


def _copied(env: Any, memo: dict[int, Any]) -> Any:
    twin = memo[id(env)] = object.__new__(type(env))
    for name, part in vars(env).items():
        if isinstance(part, AECEnv) and id(part) not in memo:
            _copied(part, memo)
        elif name in SHARED_PARTS and part is not None:
            memo[id(part)] = part
    vars(twin).update(copy.deepcopy(vars(env), memo))
    return twin


def as_text(observation: Any) -> dict[str, Any]:
    """Return the parts of an observation, except the action mask, as short JSON-able texts."""
    parts = observation if isinstance(observation, Mapping) else {"observation": observation}
    return {str(name): _short(part) for name, part in parts.items() if name != "action_mask"}


def _short(part: Any) -> Any:
    """Shorten a part: planes of a board to rows of digits (the plane set in each cell), other 0/1 arrays to indices of
    ones.
    """
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping):
        return {str(name): _short(inner) for name, inner in part.items()}
    if isinstance(part, tuple) and not all(isinstance(item, int | float) for item in part):
        return [_short(item) for item in part]
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
