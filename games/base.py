"""Base class of text games: everything except a game's rules.

A match is a PettingZoo AEC episode. The seat to move answers with one line, `ACT` or `ACT | public talk`. The other
seats receive the parsed act and the sanitised talk. A message's sender is a separate field, so text cannot forge it. An
illegal act costs its author a penalty and pays nobody: the referee asks once more (`illegal="retry"`), or the match
ends (`illegal="end"`) and the author also loses its stake.
"""

from __future__ import annotations

import copy
import functools
import math
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

import numpy as np
from gymnasium import spaces

from games.abilities import Pictures
from games.contracts import ILLEGAL, MAX_PIXELS, REFEREE, Image, Message, View

if TYPE_CHECKING:

    class AECEnv:
        """The members of PettingZoo's class that Arena uses, for mypy, which does not check pettingzoo."""

        metadata: ClassVar[dict[str, Any]]
        possible_agents: list[str]
        agents: list[str]
        agent_selection: str
        rewards: dict[str, float]
        terminations: dict[str, bool]
        truncations: dict[str, bool]
        infos: dict[str, dict[str, Any]]
        _cumulative_rewards: dict[str, float]

        def agent_iter(self, max_iter: int = ...) -> Iterator[str]: ...
        def last(self, observe: bool = ...) -> tuple[Any, float, bool, bool, dict[str, Any]]: ...
        def _accumulate_rewards(self) -> None: ...
        def _deads_step_first(self) -> str: ...
        def _was_dead_step(self, action: str | None) -> None: ...
else:
    from pettingzoo import AECEnv

Word = TypeVar("Word", bound=str)
STAKE = "stake"
ACTION_LENGTH = 4000
TALK_LENGTH = 200
SAMPLE_LENGTH = 24
MAX_NUMBER = 10**9
"""Default upper bound of numeric options, so that sums of payoffs stay finite."""
MAX_LISTED = 10**5
"""Upper bound of options whose every value up to it becomes a legal act."""
TALK = " Talk may follow after |."
"""Sentence of the rules about talk, verbatim: roles with another reply format replace it with their own."""


class IllegalAct(Exception):
    """Raised by `TextGame.play` for an illegal act; the message tells the author why."""


class UnicodeText(spaces.Space[str]):  # type: ignore[misc]  # gymnasium is untyped here
    """Space of all strings up to `max_length` characters (gymnasium's own Text rejects blanks by default)."""

    def __init__(self, max_length: int, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(shape=None, dtype=str, seed=seed)
        self.max_length = max_length

    @property
    def is_np_flattenable(self) -> bool:
        """Always False: text has no fixed-size array form."""
        return False

    def sample(self, mask: None = None, probability: None = None) -> str:
        """Draw a random text of at most 24 characters, about half of them ASCII. The other arguments are ignored."""
        length = int(self.np_random.integers(0, min(self.max_length, SAMPLE_LENGTH) + 1))
        tops = self.np_random.choice([0x7F, 0xD7FF], size=length)
        return "".join(chr(self.np_random.integers(0, int(top))) for top in tops)

    def contains(self, x: Any) -> bool:
        """Return True for a string of at most `max_length` characters."""
        return isinstance(x, str) and len(x) <= self.max_length

    def __repr__(self) -> str:
        return f"UnicodeText({self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText) and other.max_length == self.max_length

    def __hash__(self) -> int:
        return hash(self.max_length)


def to_one_line(text: str, limit: int = TALK_LENGTH) -> str:
    """Join the text to one line without control, bidi or invisible characters, and cut it to `limit` characters."""
    spaced = " ".join(text.split())
    if spaced.isprintable():
        return spaced[:limit].rstrip()
    visible = "".join(char for char in spaced if not unicodedata.category(char).startswith("C"))
    return " ".join(visible.split())[:limit].rstrip()


def whole_number(name: str, value: object, least: int, most: int = MAX_NUMBER) -> int:
    """Return an option's value. Raises ValueError, naming the option, unless it is an int from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        limits = f"of at least {least}" if most == MAX_NUMBER else f"from {least} to {most}"
        raise ValueError(f"{name} must be a whole number {limits}, not {_abbreviate(value)}")
    return value


def number_range(name: str, value: object, least: int, most: int = MAX_NUMBER) -> tuple[int, int]:
    """Return an option's value, a number or [low, high], as (low, high).

    Raises ValueError, naming the option, unless both are whole numbers from `least` to `most`, in order.
    """
    ends = value if isinstance(value, list | tuple) else (value, value)
    if len(ends) != 2:
        raise ValueError(f"{name} must be a whole number or [low, high], not {_abbreviate(value)}")
    low = whole_number(name, ends[0], least, most)
    return low, whole_number(name, ends[1], low, most)


def number(name: str, value: object, least: float = 0.0, below: float = math.inf) -> float:
    """Return an option's value as a float.

    Raises ValueError, naming the option, unless it is a number from `least` to below `below`, and at most 1e9.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not least <= value <= MAX_NUMBER
        or value >= below
    ):
        limit = f"to {MAX_NUMBER:g}" if below > MAX_NUMBER else f"to below {below:g}"
        raise ValueError(f"{name} must be a number from {least:g} {limit}, not {_abbreviate(value)}")
    return float(value)


def flag(name: str, value: object) -> bool:
    """Return an option's value. Raises ValueError, with the option's name, unless it is a bool."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, not {_abbreviate(value)}")
    return value


def _abbreviate(value: object) -> str:
    """Return the repr of a refused value, cut to 60 characters, for an error message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def choice(name: str, value: Word, *known: str) -> Word:
    """Return an option's value. Raises ValueError, with the option's name, unless it is one of the `known` words."""
    if value not in known:
        words = " or ".join(f'"{word}"' for word in known)
        raise ValueError(f"{name} must be {words}, not {_abbreviate(value)}")
    return value


class TextGame(AECEnv):
    """Base class of text games; a subclass sets `seats` and implements `set_up`, `rules`, `public` and `play`.

    Options: illegal "retry" (the referee asks once more per turn) or "end"; penalty >= 0, the cost of an illegal act to
    its author; stake >= 0, the additional cost if the match ends by it, part of the payoff (None: the game's own
    `stakes`); talk, whether remarks after "|" reach the others. Anything else raises ValueError. A game whose
    number of seats is an option sets `self.seats` before `super().__init__`.
    """

    name: ClassVar[str]
    title: str = ""
    """Display name of a library's game, whose `name` is only its library's."""
    seats: tuple[str, ...]
    theory: ClassVar[Mapping[str, float]] = {}
    """Known theoretical values of the game by name, such as its equilibrium payoff."""
    reward_parts: Mapping[str, str] = {}
    """Description of each named reward part; `illegal` and `stake` exist in every game. If empty, a wrong part name in
    an experiment's credit is only detected after the first iteration."""
    perfect_information: bool = False
    """Whether every seat observes the whole state, so that search players may look ahead."""
    cooperative: bool = False
    """Whether all seats always receive equal rewards."""
    rivals: bool = True
    """Whether payoffs of different seats can be compared. False if each seat has its own task (a doctor and a patient),
    so that the seat with the larger payoff has not won."""
    stakes: float = 0.0
    """Largest possible loss of a seat in this game, >= 0."""
    rules_version: ClassVar[int] = 1
    """Version of the rules, increased if equal deals and acts give other results. The log stores it with every match.
    """
    players: Mapping[str, Callable[[Any, int], Callable[[View], str]]] = {}
    """Scripted players of this game, by name: factories that take the match's game (possibly before its reset) and a
    seed, and return a function from views to acts."""
    faults: Sequence[str] = ()
    """Errors raised by another library's rules during this object's lifetime."""
    unpaid_parts: Sequence[str] = ()
    """Reward parts that serve credit assignment only, which payoffs exclude."""
    whole_acts: bool = False
    """Whether "|" belongs to the act (in code, for example), which rules out talk."""

    def __init__(
        self,
        *,
        illegal: Literal["end", "retry"] = "retry",
        penalty: float = 1.0,
        stake: float | None = None,
        talk: bool = True,
    ) -> None:
        super().__init__()
        self.illegal = choice("illegal", illegal, "end", "retry")
        self.penalty, self.talk = number("penalty", penalty), flag("talk", talk)
        self.stake = self.stakes if stake is None else number("stake", stake)
        self.possible_agents = list(self.seats)
        self.agents: list[str] = []
        self.rng: np.random.Generator | None = None

    # Methods that a subclass implements.

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Set up a new match, with randomness from `rng` only. `options` are those of `reset`; ignore unknown ones.

        The first seat moves first unless `agent_selection` is set here.
        """
        raise NotImplementedError

    def rules(self) -> str:
        """Return the public rules as players read them: a short text that is constant during a match."""
        raise NotImplementedError

    def public(self) -> dict[str, Any]:
        """Return the facts that every seat sees now, as a new JSON-able dict by name."""
        raise NotImplementedError

    def private(self, seat: str) -> dict[str, Any]:
        """Return the facts that only this seat sees now, as a new JSON-able dict by name: by default none."""
        return {}

    def legal(self, seat: str) -> list[str] | None:
        """Return the legal acts of this seat, which is to move, or None if they cannot be listed."""
        return None

    def definitions(self, seat: str) -> Sequence[Mapping[str, Any]]:
        """Return the definitions of the seat's tools in this match, as in OpenAI's API."""
        return ()

    def play(self, seat: str, act: str) -> str:
        """Play an act and return its text for other seats, or "". Raises IllegalAct, changing nothing, if illegal."""
        raise NotImplementedError

    def figures(self) -> dict[str, float | bool | str]:
        """Return the game's own statistics of an ended match by name; `report` includes them."""
        return {}

    def next_seat(self, seat: str) -> str:
        """Return the seat that moves after this one: by default the next in cyclic order."""
        return self.seats[(self.seats.index(seat) + 1) % len(self.seats)]

    def hides_nothing(self) -> bool:
        """Return True if nothing is hidden from any seat, so that a search player may look ahead without cheating."""
        return self.perfect_information

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return a pair of `reset` options whose deals differ only in secrets this seat never learns, or None.

        With equal acts and seed the seat must see the same in both, until the match ends. Conformance checks use this.
        """
        return None

    # Methods that a game calls in play.

    def pay(self, seat: str, part: str, value: float) -> None:
        """Add `value` to a named part of the seat's reward in this step. Raises ValueError unless it is finite."""
        if not math.isfinite(value):
            raise ValueError(f"the reward '{part}' of {seat} is {value}: a reward is a finite number")
        self._parts[seat][part] = self._parts[seat].get(part, 0.0) + value
        self._totals[seat][part] = self._totals[seat].get(part, 0.0) + value
        self._paid = True

    def end(self, reason: str, announcement: str) -> None:
        """End the match with a one-word reason. After the current act the referee sends `announcement` to all seats."""
        self.ended, self._announcement = reason, announcement

    def tell(self, text: str, *seats: str, sender: str = REFEREE, images: Sequence[Image] = ()) -> None:
        """Send a text to these seats, or to all if none is given. Texts sent within `play` are delivered after the act.

        The sender is the referee, or another voice without a seat, such as a tool. Images need a game that stores their
        bytes (`games.abilities.Pictures`).
        """
        self._tell(Message.of(sender, text, images), seats)

    # Public interface: PettingZoo's methods and ours.

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Start a new match. Without a seed, the previous generator continues (first match: fresh entropy)."""
        if seed is not None or self.rng is None:
            self.rng = np.random.default_rng(seed)
        self.agents = list(self.seats)
        self.agent_selection = self.seats[0]
        self.turns, self.ended, self._announcement, self._has_retried = 0, "", "", False
        self._inboxes: dict[str, list[Message]] = {seat: [] for seat in self.seats}
        self._valid: dict[str, bool | None] = dict.fromkeys(self.seats)
        self._totals: dict[str, dict[str, float]] = {seat: {} for seat in self.seats}
        self._parts: dict[str, dict[str, float]] = {seat: {} for seat in self.seats}
        self._paid = self._playing = False
        self._undelivered: list[tuple[Message, tuple[str, ...]]] = []
        self._transcript: list[str] = []
        self._cumulative_rewards = dict.fromkeys(self.seats, 0.0)
        self.terminations = dict.fromkeys(self.seats, False)
        self.truncations = dict.fromkeys(self.seats, False)
        self.set_up(self.rng, options or {})
        self._rules = self.rules()
        self._definitions = {seat: tuple(self.definitions(seat)) for seat in self.seats}
        self._publish()

    def step(self, action: str | None) -> None:
        """Apply an act, `ACT` or `ACT | talk`, of the seat to move. An illegal one costs the penalty."""
        seat = self.agent_selection
        if self.terminations[seat] or self.truncations[seat]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[seat] = 0.0
        self._inboxes[seat] = []
        if self._paid:
            self._parts = {name: {} for name in self.seats}
            self._paid = False
        try:
            self._apply(seat, action)
        except IllegalAct as why:
            self._refuse(seat, action, str(why))
        if self.ended:
            self.tell(self._announcement)
            self.terminations = dict.fromkeys(self.seats, True)
        self._publish()
        if self._paid:
            self._accumulate_rewards()

    def stop(self, reason: str) -> None:
        """Truncate the match with a one-word reason, without messages.

        The seat to move loses its stake, as with an illegal act, so that giving up never pays.
        """
        self._parts = {name: {} for name in self.seats}
        self._paid = False
        if self.stake:
            self.pay(self.agent_selection, STAKE, -self.stake)
        self.ended = reason
        self.truncations = dict.fromkeys(self.seats, True)
        self._publish()

    def messages(self, seat: str) -> tuple[Message, ...]:
        """Return the messages that this seat received since it last acted, oldest first."""
        return tuple(self._inboxes[seat])

    def observe(self, agent: str) -> dict[str, tuple[dict[str, Any], ...]]:
        """Return {"messages": …} with the messages of `messages(agent)` as dicts of the observation space."""
        lines: list[dict[str, Any]] = [message.to_plain() for message in self._inboxes[agent]]
        if isinstance(self, Pictures):
            for line, message in zip(lines, self._inboxes[agent], strict=True):
                line["images"] = tuple(dict(vars(image)) for image in message.images)
        return {"messages": tuple(lines)}

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Return Dict(messages=Sequence(Dict(sender, text))); messages also have `images` if the game has any."""
        return self._spaces[agent][0]

    def action_space(self, agent: str) -> UnicodeText:
        """Return the space of all texts of up to 4,000 characters."""
        return self._spaces[agent][1]

    @functools.cached_property
    def _spaces(self) -> dict[str, tuple[spaces.Space[Any], UnicodeText]]:
        """Observation space and action space by seat, created on first use because creating them is slow."""
        line = spaces.Dict({"sender": UnicodeText(64), "text": UnicodeText(ACTION_LENGTH)})
        if isinstance(self, Pictures):
            size = spaces.Discrete(MAX_PIXELS, start=1)
            image = {"hash": UnicodeText(64), "media": UnicodeText(64), "width": size, "height": size}
            line["images"] = spaces.Sequence(spaces.Dict(image))
        return {
            seat: (spaces.Dict({"messages": spaces.Sequence(copy.deepcopy(line))}), UnicodeText(ACTION_LENGTH))
            for seat in self.seats
        }

    def clone(self) -> Self:
        """Return an independent copy of the running match, including its generators."""
        return copy.deepcopy(self)

    def payoffs(self) -> dict[str, float]:
        """Return each seat's payoff so far: its reward parts without penalties for illegal acts and `unpaid_parts`."""
        payoffs = {}
        for seat, parts in self._totals.items():
            total = sum(value for part, value in parts.items() if part != ILLEGAL)
            payoffs[seat] = float(total - sum(parts.get(part, 0.0) for part in self.unpaid_parts))
        return payoffs

    def report(self) -> dict[str, float | bool | str]:
        """Return `ended` (the reason), `turns` (legal acts) and `figures()`. Raises RuntimeError before the end."""
        if not self.ended:
            raise RuntimeError("the match has not ended: there is nothing to report yet")
        return {"ended": self.ended, "turns": self.turns, **self.figures()}

    def render(self) -> str:
        """Return the whole transcript, one line per message, for people. Seats must use `observe` instead."""
        return "\n".join(self._transcript)

    def close(self) -> None:
        """Release the resources of the match, such as processes; by default there are none."""

    def __str__(self) -> str:
        return str(self.metadata["name"])

    # Steps of a turn.

    def _apply(self, seat: str, action: str | None) -> None:
        if not isinstance(action, str) or len(action) > ACTION_LENGTH:
            raise IllegalAct(f"an act is a text of at most {ACTION_LENGTH} characters")
        act, _, talk = (action, "", "") if self.whole_acts else action.partition("|")
        self._playing = True
        try:
            act_text = self.play(seat, act)
        finally:
            self._playing = False
        self._valid[seat], self._has_retried = True, False
        self.turns += 1
        remark = to_one_line(talk) if talk and self.talk else ""
        utterance = f"{act_text} | {remark}" if act_text and remark else act_text or (remark and f"| {remark}")
        self._transcript.append(f"{seat}: {utterance}" if act_text else f"{seat}: ({to_one_line(act)}) {utterance}")
        if utterance:
            message = Message(seat, (utterance,))
            for other in self.seats:
                if other != seat:
                    self._inboxes[other].append(message)
        if self._undelivered:
            for news, seats in self._undelivered:
                self._tell(news, seats)
            self._undelivered = []
        self.agent_selection = self.next_seat(seat)

    def _tell(self, message: Message, seats: tuple[str, ...]) -> None:
        if self._playing:
            self._undelivered.append((message, seats))
            return
        self._transcript.append(f"{message.sender}: {message.text}")
        for seat in seats or self.seats:
            self._inboxes[seat].append(message)

    def _refuse(self, seat: str, action: object, reason: str) -> None:
        self._valid[seat] = False
        self.pay(seat, ILLEGAL, -self.penalty)
        self._transcript.append(f"{seat} (illegal): {to_one_line(str(action)[:ACTION_LENGTH])}")
        if self.illegal == "retry" and not self._has_retried:
            self._has_retried = True
            self.tell(f"Not a legal act: {reason}. Try once more.", seat)
            return
        if self.stake:
            self.pay(seat, STAKE, -self.stake)
        self.end(ILLEGAL, f"The match is over: {seat} made no legal act.")

    def _publish(self) -> None:
        if self._paid:
            self.rewards = {seat: float(sum(parts.values())) for seat, parts in self._parts.items()}
        else:
            self.rewards = dict.fromkeys(self.seats, 0.0)
        mover = self.agent_selection
        self.infos: dict[str, dict[str, Any]] = {
            seat: {"rewards": self._parts[seat].copy(), "valid": self._valid[seat]} for seat in self.seats
        }
        self.infos[mover].update(
            rules=self._rules,
            public=self.public(),
            private=self.private(mover),
            legal=None if self.ended else self.legal(mover),
        )
        if self._definitions[mover]:
            self.infos[mover]["tools"] = self._definitions[mover]
