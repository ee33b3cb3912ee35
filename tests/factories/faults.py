"""Fault injection into a game's child processes, and checks of what must hold afterwards."""

import asyncio
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import psutil

from agents.players.model import ScriptedPlayer
from agents.players.simple import FunctionPlayer
from arena.play.contenders import ScriptedContender, play_one
from arena.play.control import CONTINUE, Decision, MatchControl
from arena.play.match import Limits, MatchPlan, SeatedPlayer
from arena.play.orchestrator import play_all
from arena.records import MatchRecord, Seating
from games.contracts import Act, Game, MatchId, View
from tests.factories.thorough import count_cases

FAULTS = {"kill": signal.SIGKILL, "hang": signal.SIGSTOP, "crash": signal.SIGABRT}
"""Signals: `kill` goes to the process that Arena started, the others to the `inner` one that does the work."""
TIMES = count_cases(2, 50)
"""Injections of each fault."""


@dataclass(frozen=True)
class ScriptedActs(ScriptedContender):
    """Contender that plays its acts in turn and then repeats the last one."""

    acts: Sequence[str] = ()

    def player(self, seat: str, plan: MatchPlan, game: Game, seed: int) -> SeatedPlayer:
        """Return a player of the acts."""
        return ScriptedPlayer(FunctionPlayer(lambda view: self.acts[min(view.turn, len(self.acts) - 1)]))


class FaultControl(MatchControl):
    """Control that injects the fault before the second turn's step."""

    def __init__(self, harm: Callable[[], None]) -> None:
        self.harm = harm

    def before(self, view: View, act: Act) -> Decision:
        """Inject the fault at turn 1."""
        if view.turn == 1:
            self.harm()
        return CONTINUE


def play_attempts(
    name: str, options: dict[str, Any], acts: Sequence[str], number: int,
    before: Callable[[bool], Limits] = lambda first: Limits(), harm: Callable[[Game], None] = lambda game: None,
    seats: Sequence[str] = ("agent",),
) -> list[MatchRecord]:  # fmt: skip
    """Play a match, all seats by these acts, until it finishes, and return the records of all attempts.

    `before` is called before every attempt, with True at the first, and returns its limits; `harm` is called with the
    game at turn 1 of the first attempt.
    """
    records: list[MatchRecord] = []

    def control(plan: MatchPlan, game: Game) -> list[MatchControl]:
        return [] if plan.identity.attempt else [FaultControl(lambda: harm(game))]

    async def play(plan: MatchPlan) -> MatchRecord:
        limits = before(not plan.identity.attempt)
        return await play_one(plan, dict.fromkeys(seats, ScriptedActs("says", acts=acts)), 0, limits, control=control)

    seated = dict.fromkeys(seats, Seating.of("brain", "says", None))
    plan = MatchPlan(identity=MatchId(0, number), game=name, options=options, seed=number, seats=seated)
    asyncio.run(play_all([plan], play, records.append, 1))
    return records


def inject_faults(
    name: str, options: dict[str, Any], acts: Sequence[str], fault: str, pid: Callable[[Any], int],
    limit: tuple[ModuleType, str], limits: Limits | None = None, seats: Sequence[str] = ("agent",),
    inner: Callable[[list[psutil.Process]], psutil.Process] = lambda tree: tree[-1],
) -> set[str]:  # fmt: skip
    """Play `TIMES` matches whose outside process, `pid` of the game, gets the fault, and return the failures' reasons.

    Asserts that every match fails once, is played again to its end, and leaves no process, file or thread behind.
    `inner` chooses the process that hangs or crashes in the tree of processes. `limit` is the module's time limit of an
    answer, which is 1 s while a process hangs, unless `limits` are given: then those apply to the first attempt.
    """
    patient, harmed = getattr(*limit), list[psutil.Process]()

    def before(first: bool) -> Limits:
        setattr(*limit, patient)
        return (limits if first else None) or Limits()

    def harm(game: Game) -> None:
        root = psutil.Process(pid(game))
        harmed[:] = [root, *root.children(recursive=True)]
        if fault == "hang" and limits is None:
            setattr(*limit, 1.0)
        (harmed[0] if fault == "kill" else inner(harmed)).send_signal(FAULTS[fault])

    check = ResourceCheck()
    for number in range(TIMES):
        check.check(play_attempts(name, options, acts, number, before, harm, seats), harmed)
    return check.reasons


class ResourceCheck:
    """Checks that repeated failed matches leak no files, threads or processes; collects their reasons."""

    def __init__(self) -> None:
        self.reasons: set[str] = set()
        self._first: tuple[int, int] | None = None

    def check(self, records: Sequence[MatchRecord], harmed: Sequence[psutil.Process]) -> None:
        """Assert that a match failed once and then finished, and that its processes have ended without leaks.

        Ended processes may wait to be reaped by others, but not by this one. Open files and threads may not grow.
        """
        assert [record.status for record in records] == ["failed", "finished"], [record.reason for record in records]
        assert records[0].failure is not None and records[0].failure.kind != "bug"
        self.reasons.add(records[0].reason)
        _, alive = psutil.wait_procs(harmed, timeout=20)
        assert [each for each in alive if each.status() != psutil.STATUS_ZOMBIE] == []
        here = psutil.Process()
        assert [child for child in here.children() if child.status() == psutil.STATUS_ZOMBIE] == []
        now = here.num_fds(), threading.active_count()
        self._first = self._first or now
        assert now[0] <= self._first[0] + 2 and now[1] <= self._first[1] + 1, (self._first, now)
