"""A game whose acts point into its pictures, and a run with a match of it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import games
from agents.players.model import ScriptedPlayer
from arena.cli.loop import wait
from arena.play.match import Limits, MatchPlan, play_match
from arena.records import MatchRecord, Seating
from arena.store.run import RunFolder
from games.abilities import Mark
from games.contracts import MatchId, Message, View
from tests.factories.seeing import Colours

ACTS = ("10 20", "5 6 30 40", "red", "-9 -9 999 999")


class Pointing(Colours):
    """Game in which a seat points into pictures: two numbers name a point, four a box."""

    name = "pointing"
    metadata: ClassVar[dict[str, Any]] = {"name": "pointing_v0"}
    players: Mapping[str, Callable[[Any, int], Callable[[View], str]]] = {}

    def __init__(self, rounds: int = len(ACTS), **options: Any) -> None:
        super().__init__(rounds=rounds, **options)

    def tell(self, text: str, *seats: str, sender: str = "referee", images: Sequence[Any] = ()) -> None:
        """Put a text before and after the images."""
        if not images:
            super().tell(text, *seats, sender=sender)
        else:
            self._tell(Message(sender, ("𝒯here: ", *images, f" {text}")), seats)

    def marks(self, act: str) -> Sequence[Mark]:
        """Return the point or box in the newest picture."""
        try:
            numbers = [float(word) for word in act.split()]
        except ValueError:
            return []
        left, top, *rest = numbers
        right, bottom = rest or (left, top)
        return [Mark([*self.pictures][-1], left, top, right, bottom)]


class _Script:
    def act(self, view: View) -> str:
        return ACTS[view.turn]


def make_pointing_run(path: Path) -> tuple[RunFolder, MatchRecord]:
    """Write a run with one match in which `ACTS` were played."""
    name = f"{__file__}:Pointing"
    seat = {"viewer": Seating("viewer", "random", 0, False, "brain")}
    plan = MatchPlan(identity=MatchId(0, 0), game=name, options={}, seed=3, seats=seat)
    players: Any = {"viewer": ScriptedPlayer(_Script())}
    record = wait(play_match(plan, games.make(name), players, Limits()))
    assert record.status == "finished", record.reason
    run = RunFolder.create(path, f'game: "{name}"\n', {})
    run.log.extend([record])
    run.log.seal(0)
    run.log.write_credit(0, [], {})
    run.log.close()
    return run, record
