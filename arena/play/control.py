"""Control of a match in progress: decisions to continue, to stop, or to replace a model's act."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from games.contracts import Act, View


@dataclass(frozen=True)
class Continue:
    """Decision to let the game read an act."""

    rewards: Mapping[str, float] = field(default_factory=dict)
    """Rewards for the act, by name, besides the payoff. A name for which the game gives a reward itself is ignored."""


@dataclass(frozen=True)
class Stop:
    """Decision to end the match before the game reads an act."""

    reason: str


@dataclass(frozen=True)
class Replace:
    """Decision to let the game read another act in place of a model's; the model continues as if it had written it."""

    act: str


Decision = Continue | Stop | Replace
CONTINUE = Continue()


class MatchControl:
    """Control of one match. The hooks do nothing by default."""

    def before(self, view: View, act: Act) -> Decision:
        """Decide on an act before the game reads it. The default continues."""
        return CONTINUE

    def after(self, seat: str, act: Act, valid: bool) -> str:
        """Return a reason to stop the match after the game has read an act, or "" to continue. The default is ""."""
        return ""
