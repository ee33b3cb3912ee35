"""Games played in text: what every game shares, so that a game's own file is only its rules.

A match is a PettingZoo AEC episode. The seat to move answers with one line, `ACT` or `ACT | public talk`; the
others receive the act as the game read it, and the talk made harmless. The sender of a message is a field
beside its text, never pasted into it. An act that cannot be played costs its author a penalty and pays
nobody: the referee asks once more (`illegal="retry"`) or the match ends (`illegal="end"`).
"""

from __future__ import annotations

import copy
import math
import unicodedata
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self, TypedDict

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv

REFEREE = "referee"
ILLEGAL = "illegal"
ACTION_LENGTH = 4000
TALK_LENGTH = 200
SAMPLE_LENGTH = 24


class Message(TypedDict):
    """One line that a seat receives: from a seat's name or "referee"."""

    sender: str
    text: str


class IllegalAct(Exception):
    """Raised by `TextGame.play` for an act that cannot be played; its text tells the author why."""


class UnicodeText(spaces.Space[str]):  # type: ignore[misc]  # gymnasium is untyped here
    """Every str of at most `max_length` characters (gymnasium's own Text rejects spaces by default)."""

    def __init__(self, max_length: int, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(shape=None, dtype=str, seed=seed)
        self.max_length = max_length

    @property
    def is_np_flattenable(self) -> bool:
        """Text has no fixed-size array form."""
        return False

    def sample(self, mask: None = None, probability: None = None) -> str:
        """A short random text, half of it ASCII, drawn from the space's own generator; masks do not apply."""
        length = int(self.np_random.integers(0, min(self.max_length, SAMPLE_LENGTH) + 1))
        tops = self.np_random.choice([0x7F, 0xD7FF], size=length)
        return "".join(chr(self.np_random.integers(0, int(top))) for top in tops)

    def contains(self, x: Any) -> bool:
        """Whether x is a str that is not too long."""
        return isinstance(x, str) and len(x) <= self.max_length

    def __repr__(self) -> str:
        return f"UnicodeText({self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText) and other.max_length == self.max_length

    def __hash__(self) -> int:
        return hash(self.max_length)


def one_line(text: str, limit: int = TALK_LENGTH) -> str:
    """The text as one line of at most `limit` characters, without control, bidi, invisible or broken ones."""
    spaced = " ".join(text.split())
    visible = "".join(char for char in spaced if not unicodedata.category(char).startswith("C"))
    return " ".join(visible.split())[:limit].rstrip()


def whole_number(name: str, value: object, least: int) -> int:
    """The option as an int of at least `least`; ValueError says what is wrong with it."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return value


class TextGame(AECEnv):  # type: ignore[misc]  # pettingzoo is untyped here
    """A game of text; a subclass states its seats and rules and writes the methods of "what a game tells".

    Options: illegal "retry" (the referee asks once more per turn) or "end"; penalty >= 0, what an illegal act
    costs its author; talk, whether remarks after "|" reach the others. Anything else raises ValueError.
    """

    name: ClassVar[str]
    seats: ClassVar[tuple[str, ...]]
    theory: ClassVar[Mapping[str, float]] = {}

    def __init__(self, *, illegal: Literal["end", "retry"] = "retry", penalty: float = 1.0, talk: bool = True) -> None:
        super().__init__()
        if illegal not in ("end", "retry"):
            raise ValueError(f'illegal must be "end" or "retry", not {illegal!r}')
        if isinstance(penalty, bool) or not isinstance(penalty, int | float) or not 0 <= penalty < math.inf:
            raise ValueError(f"penalty must be a finite number of at least 0, not {penalty!r}")
        if not isinstance(talk, bool):
            raise ValueError(f"talk must be true or false, not {talk!r}")
        self.illegal, self.penalty, self.talk = illegal, float(penalty), talk
        self.possible_agents = list(self.seats)
        self.action_spaces = {seat: UnicodeText(ACTION_LENGTH) for seat in self.seats}
        line = spaces.Dict({"sender": UnicodeText(64), "text": UnicodeText(ACTION_LENGTH)})
        self.observation_spaces = {
            seat: spaces.Dict({"messages": spaces.Sequence(copy.deepcopy(line))}) for seat in self.seats
        }
        self.agents: list[str] = []
        self.rng: np.random.Generator | None = None

    # What a game tells: a subclass writes these.

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Sets up a new match, with chance from rng only; `options` are reset's, unknown ones are ignored."""
        raise NotImplementedError

    def rules(self) -> str:
        """The public rules, short, as a player reads them."""
        raise NotImplementedError

    def public(self) -> dict[str, Any]:
        """Fresh JSON-able facts that every seat sees now."""
        raise NotImplementedError

    def private(self, seat: str) -> dict[str, Any]:
        """Fresh JSON-able facts that only this seat sees now."""
        raise NotImplementedError

    def legal(self, seat: str) -> list[str] | None:
        """The acts that this seat, being to move, may play now; None where they cannot be listed."""
        return None

    def play(self, seat: str, act: str) -> str:
        """Plays an act and returns it as others shall read it; raises IllegalAct before changing anything."""
        raise NotImplementedError

    def figures(self) -> dict[str, float | bool | str]:
        """The game's own figures about an ended match, for `report`."""
        return {}

    def next_seat(self, seat: str) -> str:
        """Who moves after this seat: the next one in order, round and round."""
        return self.seats[(self.seats.index(seat) + 1) % len(self.seats)]

    # What a game calls while it plays.

    def pay(self, seat: str, part: str, value: float) -> None:
        """Gives a seat a named part of its reward in the current step."""
        self._parts[seat][part] = self._parts[seat].get(part, 0.0) + value
        self._totals[seat][part] = self._totals[seat].get(part, 0.0) + value

    def end(self, reason: str, announcement: str) -> None:
        """Ends the match with a one-word reason; the referee announces the rest after the current act."""
        self.ended, self._announcement = reason, announcement

    # What the world sees: PettingZoo's methods and ours.

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Starts a match; without a seed the last match's generator goes on (first: fresh entropy)."""
        if seed is not None or self.rng is None:
            self.rng = np.random.default_rng(seed)
        self.agents = list(self.seats)
        self.agent_selection = self.seats[0]
        self.turns, self.ended, self._announcement, self._retried = 0, "", "", False
        self._inboxes: dict[str, list[Message]] = {seat: [] for seat in self.seats}
        self._valid: dict[str, bool | None] = dict.fromkeys(self.seats)
        self._totals: dict[str, dict[str, float]] = {seat: {} for seat in self.seats}
        self._parts: dict[str, dict[str, float]] = {seat: {} for seat in self.seats}
        self._transcript: list[str] = []
        self._cumulative_rewards = dict.fromkeys(self.seats, 0.0)
        self.terminations = dict.fromkeys(self.seats, False)
        self.truncations = dict.fromkeys(self.seats, False)
        self.set_up(self.rng, options or {})
        self._publish()

    def step(self, action: str | None) -> None:
        """Reads one act of the seat to move; anything that is not a legal act is the referee's business."""
        seat = self.agent_selection
        if self.terminations[seat] or self.truncations[seat]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[seat] = 0.0
        self._inboxes[seat] = []
        self._parts = {name: {} for name in self.seats}
        try:
            self._take(seat, action)
        except IllegalAct as why:
            self._refuse(seat, action, str(why))
        if self.ended:
            self._tell(self._announcement, *self.seats)
            self.terminations = dict.fromkeys(self.seats, True)
        self._publish()
        self._accumulate_rewards()

    def observe(self, agent: str) -> dict[str, tuple[Message, ...]]:
        """What is new for this seat since it last acted, oldest first."""
        return {"messages": tuple(Message(**message) for message in self._inboxes[agent])}

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Dict(messages=Sequence(Dict(sender, text)))."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> UnicodeText:
        """Any text; longer than 4,000 characters is illegal."""
        return self.action_spaces[agent]

    def clone(self) -> Self:
        """An independent copy in the middle of the match, generators included."""
        return copy.deepcopy(self)

    def payoffs(self) -> dict[str, float]:
        """What each seat got out of the game so far: all reward parts but the penalties for illegal acts."""
        return {
            seat: float(sum(value for part, value in parts.items() if part != ILLEGAL))
            for seat, parts in self._totals.items()
        }

    def report(self) -> dict[str, float | bool | str]:
        """Figures of an ended match: `ended` (why), `turns` (legal acts played) and the game's own."""
        if not self.ended:
            raise RuntimeError("the match has not ended: there is nothing to report yet")
        return {"ended": self.ended, "turns": self.turns, **self.figures()}

    def render(self) -> str:
        """The transcript: everything said, by whom, one line each (for people; seats get `observe`)."""
        return "\n".join(self._transcript)

    def close(self) -> None:
        """Nothing is held open."""

    def __str__(self) -> str:
        return str(self.metadata["name"])

    # How a turn goes.

    def _take(self, seat: str, action: str | None) -> None:
        if not self.action_spaces[seat].contains(action):
            raise IllegalAct(f"an act is a text of at most {ACTION_LENGTH} characters")
        act, _, talk = str(action).partition("|")
        said = self.play(seat, act)
        self._valid[seat], self._retried = True, False
        self.turns += 1
        remark = one_line(talk) if self.talk else ""
        said = f"{said} | {remark}" if remark else said
        self._transcript.append(f"{seat}: {said}")
        for other in self.seats:
            if other != seat:
                self._inboxes[other].append({"sender": seat, "text": said})
        self.agent_selection = self.next_seat(seat)

    def _refuse(self, seat: str, action: object, why: str) -> None:
        self._valid[seat] = False
        self.pay(seat, ILLEGAL, -self.penalty)
        self._transcript.append(f"{seat} (illegal): {one_line(str(action)[:ACTION_LENGTH])}")
        if self.illegal == "retry" and not self._retried:
            self._retried = True
            self._tell(f"Not a legal act: {why}. Try once more.", seat)
        else:
            self.end(ILLEGAL, f"The match is over: {seat} made no legal act.")

    def _tell(self, text: str, *seats: str) -> None:
        self._transcript.append(f"{REFEREE}: {text}")
        for seat in seats:
            self._inboxes[seat].append({"sender": REFEREE, "text": text})

    def _publish(self) -> None:
        self.rewards = {seat: float(sum(self._parts[seat].values())) for seat in self.seats}
        self.infos = {seat: self._info(seat) for seat in self.seats}

    def _info(self, seat: str) -> dict[str, Any]:
        to_move = seat == self.agent_selection and not self.ended
        return {
            "rules": self.rules(),
            "public": self.public(),
            "private": self.private(seat),
            "legal": self.legal(seat) if to_move else None,
            "rewards": dict(self._parts[seat]),
            "valid": self._valid[seat],
        }
