"""TextArena's environments as text games (Guertler et al. 2025), with fair penalties and reproducible seeds."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn

import numpy as np

from games.adapters.foreign import ForeignGame, OwnRandom, import_library, sanitise, shorten, split_options
from games.base import ACTION_LENGTH, IllegalAct, to_one_line, whole_number
from games.contracts import Message
from games.names import nearest

OUTCOME = "outcome"
MAX_PLAYERS = 15
PROMPT_LENGTH = 16_000
"""Maximum characters of a seat's prompt. A role's template can print 20,000."""
LISTED = re.compile(r"(?:available|legal|valid) (?:moves|actions)[^:\n]*:(.*)", re.IGNORECASE)


class _Refusal(BaseException):
    """Raised when the environment refuses an act. Not an Exception, because environments catch those."""


def _refuse(reason: object = "", *_: object, **__: object) -> NoReturn:
    """Raise _Refusal. Replaces `state.set_invalid_move`, which would end the match in the opponent's favour."""
    raise _Refusal(to_one_line(str(reason)))


def find_environment(name: str) -> Any:
    """Return TextArena's registry entry for an environment id such as `TicTacToe-v0`.

    Raises ValueError if TextArena is not installed or has no such environment.
    """
    module = "textarena.envs.registration"
    registry = import_library(module, f"textarena:{name}", "TextArena", "textarena").ENV_REGISTRY
    if name not in registry:
        hint = nearest(name, registry) or " (textarena.envs.registration.ENV_REGISTRY lists them)"
        raise ValueError(f"TextArena has no environment '{name}'{hint}")
    return registry[name]


class TextArenaGame(ForeignGame):
    """Text game over any TextArena environment; `env` is its id. Acts are free text, in the form that its prompt asks.

    A seat's prompt is private, because it may contain secrets; TextArena's other texts are messages. An act that
    TextArena refuses or fails on is illegal and changes nothing, so it never wins the match for another seat. Options
    besides those of TextGame and the environment: players, their number (None: two, or else the smallest number that
    the environment accepts). Reward part "outcome": TextArena's rewards, paid at the end.
    """

    name = "textarena"
    metadata: ClassVar[dict[str, Any]] = {"name": "textarena_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {OUTCOME: "what TextArena pays at the end"}
    library = "TextArena"
    has_trials = True

    def __init__(self, env: str, *, players: int | None = None, **options: Any) -> None:
        find_environment(env)
        self.settings, shared = split_options(options)
        requested = None if players is None else whole_number("players", players, least=1, most=MAX_PLAYERS)
        number = self._find_player_count(env, (2, 1, *range(3, MAX_PLAYERS + 1)) if requested is None else (requested,))
        super().__init__(env, tuple(f"player_{n}" for n in range(number)), **shared)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Create and reset an environment seeded by `rng`. A used environment could keep state of its last match."""
        self._random, self._prompts = OwnRandom(rng), dict.fromkeys(self.seats, "")
        self._listed_acts: dict[str, list[str]] = {seat: [] for seat in self.seats}
        with self._random.activate():
            self.env = _make_environment(self.title, self.settings, len(self.seats), int(rng.integers(2**31)))
        _unwrap(self.env).state.set_invalid_move = _refuse
        self._deliver(self._collect())
        self.agent_selection = self._find_mover()

    def private(self, seat: str) -> dict[str, Any]:
        """Return `prompt`, TextArena's prompt to this seat."""
        return {"prompt": self._prompts[seat]}

    def legal(self, seat: str) -> list[str] | None:
        """Return the moves that TextArena has listed to this seat since its last act, or None if it listed none."""
        return list(self._listed_acts[seat]) or None

    def play(self, seat: str, act: str) -> str:
        """Step the environment and deliver its messages. Returns the act's text for other seats, "" if hidden.

        Raises IllegalAct, with the environment restored, if the environment refuses the act or fails.
        """
        before, text = copy.deepcopy(self.env), to_one_line(act, ACTION_LENGTH)
        if not text:
            raise IllegalAct("write an act")
        try:
            with self._random.activate():
                done, _ = self.env.step(text)
                rewards = self._rewards() if done else {}
        except _Refusal as refusal:
            self.env = before
            raise IllegalAct(str(refusal).rstrip(".") or "the environment refuses it") from None
        except Exception as error:  # noqa: BLE001 no error of the environment may end the match
            self.env = before
            raise IllegalAct(f"the environment failed on it: {self.record_fault(error)}") from None
        self._listed_acts[seat] = []
        news = self._collect()
        public_text = self._take_common_text(seat, news)
        self._deliver(news)
        if done:
            for player, reward in rewards.items():
                self.pay(self.seats[player], OUTCOME, float(reward))
            self.end("over", "The match is over.")
        return public_text

    def next_seat(self, seat: str) -> str:
        """Return the seat to move according to TextArena, or `seat` after the end."""
        return seat if self.ended else self._find_mover()

    def _find_mover(self) -> str:
        player: int = _unwrap(self.env).state.current_player_id
        return self.seats[player]

    def _find_player_count(self, env: str, numbers: tuple[int, ...]) -> int:
        """Return the first number of players with which the environment can be set up.

        Raises ValueError, with the last reason, if it fails for all.
        """
        reason = ""
        for number in numbers:
            try:
                with OwnRandom(np.random.default_rng(0)).activate():
                    _make_environment(env, self.settings, number, 0)
                return number
            except (AssertionError, ValueError, IndexError, KeyError) as error:
                reason = f"{error}"
            except (ImportError, LookupError, OSError, SyntaxError, TypeError) as error:
                reason = f"{type(error).__name__}: {error}"
                break
        raise ValueError(f"TextArena cannot set up {env}: {to_one_line(reason)}")

    def _rewards(self) -> dict[int, float]:
        closed = self.env.close()
        rewards = closed[0] if isinstance(closed, tuple) else closed
        return {int(player): float(reward) for player, reward in (rewards or {}).items()}

    def _collect(self) -> dict[str, list[tuple[int, str]]]:
        """Remove the environment's new observations and return them by seat, as (sender's player number, text) pairs.

        Prompts are stored in `_prompts` and listed moves in `_listed` instead. A player's own messages are dropped.
        """
        state = _unwrap(self.env).state
        news: dict[str, list[tuple[int, str]]] = {}
        for player, seat in enumerate(self.seats):
            observations, state.observations[player] = state.observations[player], []
            news[seat] = []
            for sender, text, kind in observations:
                text = sanitise(str(text))
                if getattr(kind, "name", kind) == "PROMPT":
                    self._prompts[seat] = shorten(f"{self._prompts[seat]}\n{text}".strip(), PROMPT_LENGTH)
                elif sender != player:
                    news[seat].append((sender, shorten(text, ACTION_LENGTH)))
                    if sender not in range(len(self.seats)) and (match := LISTED.search(text)):
                        self._listed_acts[seat] = re.findall(r"\[[^\[\]]+\]", match[1])
        return news

    def _take_common_text(self, seat: str, news: dict[str, list[tuple[int, str]]]) -> str:
        """Return the text that all other seats received from `seat`, and remove it from `news`.

        Returns "" and removes nothing if they received different texts, or none.
        """
        player = self.seats.index(seat)
        items = [
            next((item for item in news[other] if item[0] == player), None) for other in self.seats if other != seat
        ]
        if not items or items[0] is None or set(items) != {items[0]}:
            return ""
        for other in self.seats:
            if other != seat:
                news[other].remove(items[0])
        return to_one_line(items[0][1], ACTION_LENGTH)

    def _deliver(self, news: dict[str, list[tuple[int, str]]]) -> None:
        """Send every seat its news in order.

        A text from TextArena itself that is next for several seats is sent as one message to all of them.
        """
        queues = {seat: list(reversed(items)) for seat, items in news.items()}
        while any(queues.values()):
            item = next(queue[-1] for queue in queues.values() if queue)
            readers = [seat for seat, queue in queues.items() if queue and queue[-1] == item]
            for seat in readers:
                queues[seat].pop()
            sender, text = item
            if sender not in range(len(self.seats)):
                self.tell(text, *readers)
                continue
            for seat in readers:
                self._inboxes[seat].append(Message.of(self.seats[sender], text))


def _unwrap(env: Any) -> Any:
    """Return the environment inside TextArena's wrappers, which would join all observations into one text."""
    while hasattr(env, "is_wrapped_with"):
        env = env.env
    return env


def _make_environment(name: str, settings: Mapping[str, Any], players: int, seed: int) -> Any:
    import textarena

    env = textarena.make(name, **settings)
    env.reset(num_players=players, seed=seed)
    return env
