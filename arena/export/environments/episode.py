"""Single-agent text episodes: the learner plays one seat of a match, and scripted policies play the others.

The environments for other libraries in this package are thin layers over `Episode`.
"""

from __future__ import annotations

import threading
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from agents.players.scripted import make_scripted
from arena.errors import ConfigError
from arena.evaluate.evaluation import make_game
from arena.export.environments.observation import FactMemory, format_legal_acts, format_message
from arena.plain import clean_text
from arena.play.contenders import ScriptedContender, derive_seed, fold_seed
from arena.play.match import MatchPlan
from arena.play.settings import GameSpec
from arena.play.texts import view_of
from arena.records import Seating
from games.abilities import Blocking, Pictures, Stoppable
from games.contracts import ILLEGAL, MAX_TURNS, Game, MatchId
from games.names import nearest

MOST_DEALS = 100
"""Maximum number of deals until the learner has a turn."""
GAME_LOCK = threading.RLock()
"""Held while a game is created or steps: some games use the global random state, and servers step in threads."""


@dataclass(frozen=True)
class Task:
    """Specification of an environment: game, options, the learner's seat, and the other seats' scripted policy."""

    game: str
    options: Mapping[str, Any] = field(default_factory=dict)
    seat: str = ""
    """Name or number of the learner's seat; "" is the first seat."""
    against: str = "random"
    """Scripted policy of every other seat (`arena list policies`)."""

    def make(self) -> Game:
        """Create the game without resetting it. Raises ConfigError for an unknown game or option."""
        return make_game(GameSpec(name=self.game, options=dict(self.options)))

    def resolve(self) -> Task:
        """Validate the task and return it with the seat's name.

        Raises ConfigError, with the nearest known name, for an unknown game, option, seat or policy. Raises it also if
        `against` cannot play one of the other seats.
        """
        game = self.make()
        seats = list(game.possible_agents)
        seat_or_number = self.seat or "0"
        seat = (
            seats[int(seat_or_number)]
            if seat_or_number.isdecimal() and int(seat_or_number) < len(seats)
            else seat_or_number
        )
        if seat not in seats:
            known = ", ".join(f"{number} {name}" for number, name in enumerate(seats))
            raise ConfigError(
                f"{self.game} has no seat '{seat_or_number[:64]}'{nearest(seat_or_number, seats)} (the seats: {known})"
            )
        for other in seats:
            if other != seat:
                ScriptedContender(self.against).check(self.game, game, other)
        return replace(self, seat=seat)


class EncodedImage(NamedTuple):
    """Image of an observation: media type and file contents."""

    media: str
    data: bytes

    @property
    def url(self) -> str:
        """Data URL of the image, as in chat messages."""
        return f"data:{self.media};base64,{b64encode(self.data).decode()}"


@contextmanager
def lock_game(game: Game) -> Iterator[None]:
    """Hold `GAME_LOCK` while this game is reset or steps, unless the game may wait for another process."""
    if isinstance(game, Blocking) and game.blocks:
        yield
        return
    with GAME_LOCK:
        yield


class Episode:
    """Match in which the learner plays one seat. `act` also plays the other seats, up to the learner's next turn.

    Create it from a resolved task. The deal and the scripted policies are seeded as by `arena play --seed`, so the same
    acts give the same match there. `text` is the current observation: all that is new to the seat since its last act.
    """

    def __init__(self, task: Task, seed: int) -> None:
        with GAME_LOCK:
            self.game, self.seat = task.make(), task.seat
        names = list(self.game.possible_agents)
        seats = dict.fromkeys(names, Seating.of("brain", task.against, None))
        plan = MatchPlan(identity=MatchId(0, 0), game=task.game, options=dict(task.options), seed=seed, seats=seats)
        self._others = {
            seat: make_scripted(task.against, fold_seed(derive_seed(seed, plan, seat)), self.game)
            for seat in names
            if seat != self.seat
        }
        self._facts = FactMemory()
        self.seed, self.turns, self.penalty, self.text = seed, 0, 0.0, ""
        self.images: tuple[EncodedImage, ...] = ()
        """Images of the observation, in the order of their placeholders in `text`."""
        with lock_game(self.game):
            self.game.reset(seed=seed)
            self._advance()

    @property
    def done(self) -> bool:
        """True if the match is over."""
        return self.terminated or self.truncated

    @property
    def terminated(self) -> bool:
        """True if the match ended by the game's rules."""
        return not self.game.agents or all(self.game.terminations.values())

    @property
    def truncated(self) -> bool:
        """True if the match was stopped from outside."""
        return all(self.game.truncations.values())

    @property
    def legal(self) -> list[str] | None:
        """Legal acts of the seat, or None if they cannot be listed."""
        acts = None if self.done else self.game.infos[self.seat].get("legal")
        return None if acts is None else list(acts)

    @property
    def payoff(self) -> float:
        """The seat's payoff so far, as in match logs."""
        return self.game.payoffs()[self.seat]

    @property
    def reward(self) -> float:
        """Sum of the rewards so far: the payoff plus `penalty`, the sum of penalties for illegal acts (0 or less)."""
        return self.payoff + self.penalty

    def act(self, text: str) -> float:
        """Play the learner's act, then the other seats up to its next turn, and return the reward.

        An unreadable or illegal act never raises; the game's rules say what it costs. Raises RuntimeError if the match
        is over.
        """
        if self.done:
            raise RuntimeError("the match is over: reset first")
        before = self.reward
        with lock_game(self.game):
            self._step(clean_text(text))
            self._advance()
        return self.reward - before

    def abandon(self) -> None:
        """Stop an unfinished match. The seat loses its stake, so giving up never pays."""
        if not self.done and isinstance(self.game, Stoppable):
            self.game.stop("stopped")
            self._observe()

    def close(self) -> None:
        """Release the game's resources."""
        self.game.close()

    def facts(self) -> dict[str, Any]:
        """Return seed, legal acts, validity of the last act, payoff so far and, after the end, the game's report."""
        report = self.game.report() if self.done else {}
        valid = self.game.infos[self.seat].get("valid")
        return {"seed": self.seed, "legal": self.legal, "valid": valid, "payoff": self.payoff, "report": report}

    def _advance(self) -> None:
        """Play the other seats up to the learner's turn or the match's end, then update the observation."""
        while not self.done:
            seat = self.game.agent_selection
            if self.game.terminations[seat] or self.game.truncations[seat]:
                self.game.step(None)
            elif self.turns >= MAX_TURNS:
                self.abandon()
                return
            elif seat == self.seat:
                break
            else:
                self._step(clean_text(self._others[seat].act(view_of(self.game, seat, self.turns))))
        self._observe()

    def _step(self, act: str) -> None:
        self.game.step(act)
        self.turns += 1
        self.penalty += self.game.infos[self.seat].get("rewards", {}).get(ILLEGAL, 0.0)

    def _observe(self) -> None:
        """Set `text` and `images`. The text has the rules (first time), new facts and messages, and the legal acts."""
        game, messages, above, below = self.game, self.game.messages(self.seat), [], ["The match is over."]
        if not self.done:
            view = view_of(game, self.seat, self.turns)
            messages, above, below = view.messages, self._facts.lines(view), format_legal_acts(view.legal)
        self.text = "\n".join([*above, *map(format_message, messages), *below])
        self.images = (
            tuple(
                EncodedImage(image.media, game.picture(image.hash)) for message in messages for image in message.images
            )
            if isinstance(game, Pictures)
            else ()
        )


def deal(task: Task, seed: int) -> Episode:
    """Deal a match of a resolved task and return it at the learner's first turn.

    If the match ends before the learner has a turn, another is dealt, with a seed derived from `seed`. `Episode.seed`
    is the one used. Raises ConfigError after `MOST_DEALS` such matches.
    """
    for attempt in range(MOST_DEALS):
        episode = Episode(task, fold_seed((seed, attempt)) if attempt else seed)
        if not episode.done:
            return episode
        episode.close()
    raise ConfigError(f"{task.game}: {MOST_DEALS} matches, from seed {seed}, ended before {task.seat} had a turn")
