"""Recording of a match's turns while it is played: a turn is built once all its rewards are known."""

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from math import isfinite
from numbers import Real
from typing import Any

from arena.plain import require_finite, to_plain
from arena.play.failures import OutcomeError
from arena.records import Seating, Turn
from games.contracts import ILLEGAL, Act, Game, View


class TurnRecorder:
    """Recorder of a match's turns and of the rewards that each turn earns."""

    def __init__(self, seats: Mapping[str, Seating], on_turn: Callable[[Turn], None] | None = None) -> None:
        self.seats, self.on_turn = seats, on_turn
        self.drafts: list[tuple[partial[Turn], dict[str, float]]] = []
        """Each turn so far, without its rewards, and these rewards, which grow until the seat's next turn."""
        self.reported_count = 0
        """Number of drafts that were passed to `on_turn`."""
        self.moved: set[str] = set()
        """Seats that have taken a turn."""
        self.rewards: dict[str, dict[str, float]] = {seat: {} for seat in seats}
        """Rewards of each seat's latest turn. Rewards before a seat's first turn are added to that turn."""

    @cached_property
    def turns(self) -> tuple[Turn, ...]:
        """Turns of the match with their rewards. Read it only after the match has ended."""
        return tuple([draft(rewards=rewards) for draft, rewards in self.drafts])

    def begin_turn(self, view: View, act: Act, version: int, valid: bool, seconds: float, situation: str) -> None:
        """Begin a seat's new turn. The seat's rewards until its next turn go to it."""
        seat, seating = view.seat, self.seats[view.seat]
        if seat in self.moved:
            self.rewards[seat] = {}
        self.moved.add(seat)
        draft = partial(
            Turn,
            index=view.turn,
            seat=seat,
            role=seating.role,
            policy=seating.policy,
            version=version,
            messages=view.messages,
            raw=act.raw,
            public=act.public,
            private=act.private,
            action=act.action,
            valid=valid,
            finish=act.finish,
            tokens=act.tokens,
            seconds=seconds,
            situation=situation,
            source=act.source,
        )
        self.drafts.append((draft, self.rewards[seat]))

    def report_turns(self) -> None:
        """Pass new turns to `on_turn`, each with a copy of its rewards so far."""
        if self.on_turn:
            for draft, rewards in self.drafts[self.reported_count :]:
                self.on_turn(draft(rewards={**rewards}))
            self.reported_count = len(self.drafts)

    def add_rewards(self, game: Game, excused: str = "") -> None:
        """Add the rewards of the game's latest step to each seat's latest turn.

        The seat `excused` gets no penalty for an illegal act. Raises OutcomeError for a reward that is not finite.
        """
        infos = game.infos
        for seat in self.seats:
            earned = self.rewards[seat]
            for name, value in infos[seat]["rewards"].items():
                if seat == excused and name == ILLEGAL:
                    continue
                label = f"the reward '{name}' of {seat}"
                total = earned.get(name, 0.0) + require_loggable(value, label, "step")
                earned[name] = require_loggable(total, label, "step")

    def add_control_rewards(self, seat: str, rewards: Mapping[str, float]) -> None:
        """Add rewards to the seat's latest turn, except those that the game itself has given by the same name.

        Raises OutcomeError for a non-finite reward.
        """
        for name, value in rewards.items():
            self.rewards[seat].setdefault(name, require_loggable(value, f"the reward '{name}' of {seat}", "control"))


def require_loggable(value: Any, label: str, *methods: str) -> Any:
    """Return `value` unchanged. Raises OutcomeError, naming `label` and the game's `methods`, if no log can hold it."""
    if type(value) is float and isfinite(value):
        return value
    try:
        require_finite(value, label) if isinstance(value, Real) else to_plain(value, label)
    except (ValueError, TypeError) as error:
        raise OutcomeError(str(error), methods) from None
    return value
