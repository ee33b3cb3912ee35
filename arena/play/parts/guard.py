"""Guard around a user's rollout part: turns every error in its code into a one-line ConfigError."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

from arena.errors import ConfigError
from arena.play.control import Continue, Decision, MatchControl, Replace, Stop
from arena.play.match import MatchPlan
from arena.play.parts.base import Expansion, Progress, RolloutPart
from arena.records import MatchRecord
from games.adapters.loading import error_line
from games.contracts import Act, Game, View

Value = TypeVar("Value")


class GuardedPart(RolloutPart):
    """Wrapper of a user's rollout part that raises ConfigError for its exceptions and unusable return values."""

    def __init__(self, part: Any, name: str) -> None:
        """Guard `part`, which the function `name` returned. Raises ConfigError unless it is a RolloutPart."""
        self.part, self.name = part, name
        _require(isinstance(part, RolloutPart), f"{name} returned {_type_name(part)}, not a RolloutPart")

    @contextmanager
    def convert_errors(self, hook: str) -> Iterator[None]:
        """Convert an exception in the block to a ConfigError that names the part and the hook.

        Errors of Arena's own calls, such as a dead engine, pass unchanged.
        """
        try:
            yield
        except Exception as error:
            if type(error).__module__.startswith(("arena.", "agents.")):
                raise
            path = Path(inspect.getfile(type(self.part)))
            raise ConfigError(f"play.parts: {self.name}: {hook} failed: {error_line(error, path)}") from error

    def _require_type(self, hook: str, value: Any, kind: type[Value]) -> Value:
        """Return the value of a hook. Raises ConfigError if it is of another type."""
        _require(isinstance(value, kind), f"{self.name}: {hook} returned {_type_name(value)}, not {kind.__name__}")
        found: Value = value
        return found

    def _plans(self, hook: str, value: Any) -> list[MatchPlan]:
        _require(
            isinstance(value, list | tuple), f"{self.name}: {hook} returned {_type_name(value)}, not a list of plans"
        )
        return [self._require_type(f"{hook}, in a list,", plan, MatchPlan) for plan in value]

    async def plan(self, k: int, plans: list[MatchPlan]) -> list[MatchPlan]:
        """Return the plans that the part's `plan` makes of `plans`."""
        with self.convert_errors("plan"):
            changed = await self.part.plan(k, list(plans))
        return self._plans("plan", changed)

    async def expand(self, k: int, progress: Progress) -> Expansion:
        """Return the result of the part's `expand`."""
        with self.convert_errors("expand"):
            more = self._require_type("expand", await self.part.expand(k, progress), Expansion)
        is_count = isinstance(more.deals, int) and more.deals >= 0
        _require(is_count, f"{self.name}: expand asked for {more.deals!r} deals: it has to be 0 or more")
        return Expansion(plans=self._plans("expand", more.plans), deals=more.deals)

    def control(self, plan: MatchPlan, game: Game) -> MatchControl | None:
        """Return the part's control of the match, guarded."""
        with self.convert_errors("control"):
            control = self.part.control(plan, game)
        return None if control is None else _GuardedControl(self, self._require_type("control", control, MatchControl))

    def observe(self, k: int, records: Sequence[MatchRecord]) -> None:
        """Call the part's `observe`."""
        with self.convert_errors("observe"):
            self.part.observe(k, records)

    def metrics(self, records: Sequence[MatchRecord]) -> dict[str, dict[str, float]]:
        """Return the part's metrics by section; every value must be a finite number."""
        with self.convert_errors("metrics"):
            sections = self._require_type("metrics", self.part.metrics(records), dict)
        for name, section in sections.items():
            values = self._require_type(f"metrics, in '{name}',", section, dict).values()
            _require(all(map(_is_finite, values)), f"{self.name}: metrics: '{name}' holds more than finite numbers")
        return sections

    def state(self) -> Any:
        """Return the part's state. Raises ConfigError if JSON cannot hold it."""
        with self.convert_errors("state"):
            state = self.part.state()
            json.dumps(state, allow_nan=False)
        return state

    def load(self, state: Any) -> None:
        """Restore the part's state."""
        with self.convert_errors("load"):
            self.part.load(state)


class _GuardedControl(MatchControl):
    """Wrapper of the part's control of one match, with the same checks."""

    def __init__(self, guard: GuardedPart, control: MatchControl) -> None:
        self.guard, self.control = guard, control

    def before(self, view: View, act: Act) -> Decision:
        """Return the control's decision."""
        with self.guard.convert_errors("control.before"):
            decision = self.control.before(view, act)
        name = f"{self.guard.name}: control.before"
        if isinstance(decision, Continue):
            rewards = decision.rewards
            usable = isinstance(rewards, Mapping) and all(
                isinstance(n, str) and _is_finite(v) for n, v in rewards.items()
            )
            _require(usable, f"{name}: rewards have to be finite numbers by name, not {str(rewards)[:100]}")
            return decision
        _require(isinstance(decision, Stop | Replace), f"{name} returned {_type_name(decision)}, not a decision")
        text = decision.reason if isinstance(decision, Stop) else decision.act
        _require(isinstance(text, str), f"{name}: {type(decision).__name__} takes a text, not {_type_name(text)}")
        return decision

    def after(self, seat: str, act: Act, valid: bool) -> str:
        """Return the control's reason to stop, or ""."""
        with self.guard.convert_errors("control.after"):
            reason = self.control.after(seat, act, valid)
        return self.guard._require_type("control.after", reason, str)


def _require(holds: bool, complaint: str) -> None:
    if not holds:
        raise ConfigError(f"play.parts: {complaint}")


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _type_name(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__
