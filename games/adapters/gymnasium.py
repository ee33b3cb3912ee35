"""Adapter of Gymnasium environments with small observations and discrete or text actions (Towers et al. 2024)."""

from __future__ import annotations

import copy
import importlib
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from games.adapters.foreign import OwnRandom, SingleAgentGame, sanitise, shorten, split_options
from games.adapters.modules import import_module, parse_module
from games.adapters.named import split_settings
from games.adapters.pettingzoo import to_texts
from games.base import ACTION_LENGTH, IllegalAct, flag, to_one_line, whole_number
from games.names import nearest

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
REWARD = "reward"
MAX_NUMBERS = 64
"""Maximum size of an observed array, and maximum number of discrete actions."""
MAX_TURNS = 10_000
COLOURED = re.compile(r"\x1b\[[\d;]*m(.*?)\x1b\[0?m", re.S)
"""Coloured text, which marks the agent's position in toy environments."""
WORDS = {
    "FrozenLake": ("left", "down", "right", "up"),
    "CliffWalking": ("up", "right", "down", "left"),
    "Taxi": ("south", "north", "east", "west", "pickup", "dropoff"),
    "Blackjack": ("stick", "hit"),
}
"""Words for the actions in order, by the environment's name without its version."""


def find_environment(name: str) -> tuple[str, dict[str, Any]]:
    """Return the id and the settings in a name such as `FrozenLake-v1(is_slippery=false)` or `module:Name-v0`.

    The module is imported first, to register its environments. Raises ValueError, in one line, for an unknown module or
    environment.
    """
    full, settings = split_settings(name)
    module, id = parse_module(full), full.rpartition(":")[2].strip()
    if module and not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(f"'{to_one_line(module, 80)}' is not a module name: write module:Name-v0")
    if module:
        try:
            with OwnRandom(np.random.default_rng(0)).activate():
                import_module(module)
        except Exception as error:  # noqa: BLE001 a module of others may fail in any way
            raise ValueError(f"the module {module} cannot be imported: {to_one_line(str(error))}") from None
    registry = importlib.import_module("gymnasium").registry
    if id not in registry:
        hint = nearest(id, registry) or " (a package's are named package:Name-v0)"
        raise ValueError(f"Gymnasium has no environment '{to_one_line(id, 80)}'{hint}")
    return id, settings


class GymnasiumGame(SingleAgentGame):
    """Single-agent game in a Gymnasium environment `env` with discrete or text actions and small observations.

    The environment's settings are given in the name or as options. Other options: max_turns (default 200), the limit of
    acts; acts, words for the discrete actions in order (default: those in `WORDS`, or numbers); ansi, whether to show
    the environment's text rendering, with coloured text in brackets. Reward part "reward": the environment's reward.
    Raises ValueError if the environment cannot be made or shown as text.
    """

    name = "gymnasium"
    library = "Gymnasium"
    metadata: ClassVar[dict[str, Any]] = {"name": "gymnasium_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {REWARD: "what the environment pays at the step"}

    find: ClassVar[staticmethod[[str], tuple[str, dict[str, Any]]]] = staticmethod(find_environment)
    """Function that parses the option `env` into the environment's id and settings."""

    def __init__(
        self, env: str, *, max_turns: int = 200, acts: Sequence[str] | None = None, ansi: bool = False, **options: Any
    ) -> None:
        self.id, settings = self.find(env)
        others, shared = split_options(options)
        self.settings = settings | others | ({"render_mode": "ansi"} if flag("ansi", ansi) else {})
        self.ansi, self.max_turns = ansi, whole_number("max_turns", max_turns, least=1, most=MAX_TURNS)
        super().__init__(env, **shared)
        self._start(OwnRandom(np.random.default_rng(0)), 0)
        try:
            self.words = self._action_words(acts)
            self._require_text()
        finally:
            self.close()

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Create and reset a new environment with a seed from `rng`, and show the first observation."""
        self.close()
        self._seed, self._origin = int(rng.integers(2**31)), OwnRandom(rng)
        self._history: list[Any] = []
        self._paid_so_far = 0.0
        self.tell(self._first_message(*self._start(self._origin, self._seed)))

    def rules(self) -> str:
        """Return the environment's name, the library, and how to act."""
        how = "one of the listed acts" if self.words else "a text"
        return f"{super().rules()} Each turn write {how}."

    def public(self) -> dict[str, Any]:
        """Return `steps_left`, the number of remaining acts."""
        return {"steps_left": self.max_turns - self.turns}

    def legal(self, seat: str) -> list[str] | None:
        """Return the words of the actions that the environment's action mask allows, or None if actions are texts."""
        return [word for action, word in enumerate(self.words) if self._is_allowed(action)] if self.words else None

    def play(self, seat: str, act: str) -> str:
        """Take the action that the text names, ignoring case and extra blanks, and return its word.

        Raises IllegalAct, with the environment restored, for an unknown act or one on which the environment fails.
        """
        action, word = self._parse_action(act)
        try:
            observation, reward, is_over, is_cut, info = self._step(action)
        except Exception as error:  # noqa: BLE001 no error of the environment may end the match
            fault = self.record_fault(error)
            self._replay()
            raise IllegalAct(f"the environment failed on it: {fault}") from None
        if reason := self._refusal(observation, float(reward)):
            self._replay()
            raise IllegalAct(reason.rstrip("."))
        self._history.append(action)
        self._paid_so_far += float(reward)
        if reward:
            self.pay(seat, REWARD, float(reward))
        self.tell(self._observation_text(observation, info))
        if is_over or is_cut or self.turns + 1 >= self.max_turns:
            self.end("over" if is_over else "turns", "The match is over.")
            self.close()
        return word

    def figures(self) -> dict[str, float | bool | str]:
        """Return `faults` and `reward`, the sum of the environment's rewards."""
        return {**super().figures(), REWARD: self._paid_so_far}

    def copy_env(self) -> Any:
        """Return a copy of the environment by `deepcopy` or, if that fails or loses state, by replaying the match."""
        if self.env is None:
            return None
        if not _is_rebuilt_by_deepcopy(self.env):
            try:
                return copy.deepcopy(self.env)
            except Exception:  # noqa: BLE001 environments hold files, processes and C objects
                pass
        twin = copy.copy(self)
        twin.env = None  # so that _replay does not close this game's environment
        twin._replay()
        return twin.env

    def close(self) -> None:
        """Close the environment. Records an exception in `faults`."""
        env, self.env = self.env, None
        if hasattr(env, "close"):  # some of GEM's environments have no such method
            try:
                with self._random.activate():
                    env.close()
            except Exception as error:  # noqa: BLE001 environments of others fail in any way
                self.record_fault(error)

    def _make(self) -> Any:
        """Create the environment without resetting it."""
        return importlib.import_module("gymnasium").make(self.id, disable_env_checker=True, **self.settings)

    def _parse_action(self, act: str) -> tuple[Any, str]:
        """Return the action for an act's text and the normalised text. Raises IllegalAct if no action matches."""
        word = " ".join(act.split())
        if not self.words:
            if not self.env.action_space.contains(act.strip()):
                raise IllegalAct(f"write a text of {to_one_line(str(self.env.action_space))}")
            return act.strip(), to_one_line(act, ACTION_LENGTH)
        for action, name in enumerate(self.words):
            if name.lower() == word.lower() and self._is_allowed(action):
                return action + int(self.env.action_space.start), name
        raise IllegalAct("write one of the listed acts")

    def _first_message(self, observation: Any, info: Mapping[str, Any]) -> str:
        """Return the text of the match's first message."""
        return self._observation_text(observation, info)

    def _refusal(self, observation: Any, reward: float) -> str:
        """Return the reason if the environment could not read the act, which is then illegal, else ""."""
        return ""

    def _observation_text(self, observation: Any, info: Mapping[str, Any]) -> str:
        """Return an observation as text."""
        parts = [f"{name}: {value}" for name, value in to_texts(observation).items()]
        if isinstance(observation, str):
            parts = [observation]
        if self.ansi:
            with self._random.activate():
                parts.append(COLOURED.sub(r"[\1]", str(self.env.render())))
        self._mask = info.get("action_mask")
        return shorten(sanitise("\n".join(parts)), ACTION_LENGTH) or "nothing"

    def _require_text(self) -> None:
        """Raise ValueError if actions or observations cannot be shown as text."""
        spaces = importlib.import_module("gymnasium.spaces")
        if not self.words and not isinstance(self.env.action_space, spaces.Text):
            raise ValueError(
                f"{self.id} has neither discrete nor text actions: {to_one_line(str(self.env.action_space))}"
            )
        if not _is_short(self.env.observation_space, spaces):
            space = to_one_line(str(self.env.observation_space), 120)
            raise ValueError(f"{self.id} has observations of more than {MAX_NUMBERS} numbers: {space}")

    def _start(self, random_state: OwnRandom, seed: int) -> tuple[Any, Mapping[str, Any]]:
        """Create and reset the environment, and return its first observation and info."""
        self._random, self._mask = copy.copy(random_state), None
        try:
            with self._random.activate():
                self.env = self._make()
                observation, info = self.env.reset(seed=seed)
        except Exception as error:  # noqa: BLE001 an environment may refuse its settings in any way
            self.close()
            reason = to_one_line(f"{type(error).__name__}: {error}")
            raise ValueError(f"{self.library} cannot make {self.title}: {reason}") from None
        return observation, info

    def _step(self, action: Any) -> tuple[Any, Any, bool, bool, Mapping[str, Any]]:
        with self._random.activate():
            observation, reward, is_over, is_cut, info = self.env.step(action)
        return observation, reward, bool(is_over), bool(is_cut), info

    def _replay(self) -> None:
        """Replace the environment with a new one in which this match's acts are repeated."""
        mask = self._mask
        self.close()
        self._start(self._origin, self._seed)
        for action in self._history:
            self._step(action)
        self._mask = mask

    def _is_allowed(self, action: int) -> bool:
        return self._mask is None or bool(self._mask[action])

    def _action_words(self, acts: Sequence[str] | None) -> tuple[str, ...]:
        """Return the words of discrete actions, or () for text actions. Raises ValueError for unsuitable `acts`."""
        space = self.env.action_space
        count = int(getattr(space, "n", 0)) if type(space).__name__ == "Discrete" else 0
        if count > MAX_NUMBERS:
            raise ValueError(f"{self.id} has {count} actions, more than {MAX_NUMBERS}")
        words = WORDS.get(self.id.rpartition("-v")[0], ()) if acts is None else tuple(acts)
        if acts is not None and not (len(words) == count == len({to_one_line(str(w)).lower() for w in words} - {""})):
            raise ValueError(f"acts must be {count} different words, not {', '.join(map(str, words))[:60]}")
        return tuple(map(to_one_line, words)) if len(words) == count else tuple(map(str, range(count)))


def _is_rebuilt_by_deepcopy(env: Any) -> bool:
    """Return whether `deepcopy` would rebuild the environment, or one that it wraps, from its constructor arguments."""
    ez_pickle = importlib.import_module("gymnasium.utils").EzPickle
    while env is not None:
        if isinstance(env, ez_pickle):
            return True
        env = vars(env).get("env")
    return False


def _is_short(space: Any, spaces: Any) -> bool:
    """Return whether the space has only texts, discrete values and arrays of at most `MAX_NUMBERS` numbers."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return all(_is_short(each, spaces) for each in inner)
    if isinstance(space, spaces.Box | spaces.MultiBinary | spaces.MultiDiscrete):
        return int(np.prod(space.shape)) <= MAX_NUMBERS
    return isinstance(space, spaces.Discrete | spaces.Text)
