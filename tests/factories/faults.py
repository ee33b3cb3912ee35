"""Fault injection into the outside processes of games, at moments drawn by seed, and checks of what must hold then."""

import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import psutil

from agents.players.model import ScriptedPlayer
from agents.players.simple import FunctionPlayer
from arena.play.contenders import ScriptedContender, play_one
from arena.play.control import CONTINUE, Decision, MatchControl
from arena.play.match import Limits, MatchPlan, SeatedPlayer
from arena.play.orchestrator import play_all
from arena.records import MatchRecord, Seating
from games.contracts import Act, Game, MatchId, View
from tests.factories.leaks import Counts, LeakCheck, find_new_session, has_ended, list_descendants, watch_leaks
from tests.factories.thorough import count_cases

FAULTS = {"kill": signal.SIGKILL, "hang": signal.SIGSTOP, "crash": signal.SIGABRT}
"""Signals: `kill` goes to the process that Arena started, the others to the `inner` one that does the work."""
DEAL = -1
"""Turn of a moment during the deal, in which the process starts."""
LAST_TURN = 1
"""Last turn of moments. The matches have one turn more, in which a process that got a fault fails at the latest."""


class Moment(NamedTuple):
    """Moment of a fault: seconds after the beginning of a turn's step, or after the start of the process in the deal.

    With None, the fault precedes the step.
    """

    turn: int
    delay: float | None

    def __str__(self) -> str:
        turn = "deal" if self.turn == DEAL else f"turn {self.turn}"
        return f"before {turn}" if self.delay is None else f"{turn} + {self.delay:.4f} s"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Result of one fault: its moment, why the match failed, what was wrong ("" if nothing), and growth of counts."""

    game: str
    fault: str
    number: int
    moment: Moment
    reason: str
    problem: str
    seconds: float
    growth: Counts


@dataclass
class Campaign:
    """Number of faults of each kind, the seed of their moments, and their outcomes."""

    faults: int = count_cases(2, 50)
    seed: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    report: Callable[[Outcome], None] = lambda outcome: None


CAMPAIGN = Campaign()


@dataclass(frozen=True, kw_only=True)
class FaultTarget:
    """Game whose outside process gets faults, played by these acts in matches of three turns."""

    game: str
    options: dict[str, Any]
    acts: Sequence[str]
    timeouts: Sequence[tuple[ModuleType, str]]
    """Time limits of the process's answers, as modules and names. They are short while it hangs."""
    pid: Callable[[Any], int] | None = None
    """Returns the id of a game's process. None if the process only lives during the deal."""
    seats: Sequence[str] = ("agent",)
    inner: Callable[[list[psutil.Process]], psutil.Process] = lambda tree: tree[-1]
    """Chooses the process that hangs or crashes in the tree of processes."""
    prepare: Callable[[], None] = lambda: None
    """Called before each match, but not before its repetition."""


@dataclass(frozen=True)
class ScriptedActs(ScriptedContender):
    """Contender that plays its acts in turn and then repeats the last one."""

    acts: Sequence[str] = ()

    def player(self, seat: str, plan: MatchPlan, game: Game, seed: int) -> SeatedPlayer:
        """Return a player of the acts."""
        return ScriptedPlayer(FunctionPlayer(lambda view: self.acts[min(view.turn, len(self.acts) - 1)]))


class Pace(MatchControl):
    """Control that measures the seconds of the deal and of the longest turn but the last."""

    def __init__(self) -> None:
        self._times = [time.monotonic()]
        self.longest_deal = float("inf")
        """Seconds after which a later deal had ended."""

    def before(self, view: View, act: Act) -> Decision:
        """Note the time."""
        self._times.append(time.monotonic())
        return CONTINUE

    @property
    def deal(self) -> float:
        """Seconds of the deal, or fewer if a later deal was shorter."""
        return min(self._times[1] - self._times[0], self.longest_deal)

    @property
    def turn(self) -> float:
        """Seconds of the longest turn but the last."""
        return max(later - time for time, later in zip(self._times[1:], self._times[2:], strict=False))


class FaultInjector(MatchControl):
    """Control that calls `harm` with the root of the processes at a moment, but not later than the next turn.

    `begin` is called at the beginning of the moment's turn or deal.
    """

    def __init__(
        self, moment: Moment, begin: Callable[[], None], root: Callable[[], psutil.Process | None],
        harm: Callable[[psutil.Process], None],
    ) -> None:  # fmt: skip
        self._moment, self._begin, self._root, self._harm = moment, begin, root, harm
        self._thread = threading.Thread(target=self._inject, daemon=True)
        self._is_over = False
        if moment.turn == DEAL:
            begin()
            self._thread.start()

    def before(self, view: View, act: Act) -> Decision:
        """Inject the fault or start to wait for its moment, if it is in this turn."""
        self.join()
        if view.turn == self._moment.turn:
            self._begin()
            self._thread.start()
            if self._moment.delay is None:
                self.join()
        return CONTINUE

    def join(self) -> None:
        """Wait until the fault was injected, unless its turn did not begin. Without a process, give up."""
        self._is_over = True
        if self._thread.ident is not None:
            self._thread.join()

    def _inject(self) -> None:
        while (root := self._root()) is None:
            if self._is_over:
                return
            time.sleep(0.002)
        time.sleep(self._moment.delay or 0)
        with suppress(psutil.NoSuchProcess):
            self._harm(root)


def inject_faults(target: FaultTarget, fault: str, limits: Limits | None = None) -> set[str]:
    """Play `CAMPAIGN.faults` matches whose outside process gets the fault, and return the failures' reasons.

    Asserts that every match fails once, is played again to its end, and leaves no process, file or thread behind.
    With `limits`, which apply to the first attempts, the fault comes before the second turn and timeouts stay long.
    """
    rng = random.Random(f"{CAMPAIGN.seed} {target.game} {fault}")
    outcomes: list[Outcome] = []
    with watch_leaks() as check:
        series = _Series(target, fault, limits, check)
        while len(outcomes) < CAMPAIGN.faults:
            moment = Moment(1, None) if limits else _draw_moment(rng, series)
            if (outcome := series.inject(moment, len(outcomes))) is not None:
                outcomes.append(outcome)
                CAMPAIGN.outcomes.append(outcome)
                CAMPAIGN.report(outcome)
        series.stop_process()
    problems = [(str(outcome.moment), outcome.problem) for outcome in outcomes if outcome.problem]
    assert problems == []
    return {outcome.reason for outcome in outcomes}


def _draw_moment(rng: random.Random, series: "_Series") -> Moment:
    turn = rng.randint(DEAL, LAST_TURN) if series.target.pid else DEAL
    is_before = turn != DEAL and rng.random() < 1 / 3
    return Moment(turn, None if is_before else rng.uniform(0, series.pace.deal if turn == DEAL else series.pace.turn))


class _Series:
    """Series of matches with the same fault. The process of each match's repetition plays the next match, too."""

    def __init__(self, target: FaultTarget, fault: str, limits: Limits | None, check: LeakCheck) -> None:
        self.target, self.fault, self.limits, self.check = target, fault, limits, check
        self._patient = {timeout: getattr(*timeout) for timeout in target.timeouts}
        self._root: psutil.Process | None = None
        self._others = list_descendants()
        for _ in range(2):  # first without measuring, because it loads modules
            self.stop_process()
            target.prepare()
            self.pace = Pace()
            records = self._play(0, lambda plan, game: [_Locator(self, game), self.pace])
            assert [record.status for record in records] == ["finished"], [record.reason for record in records]
        check.set_baseline()

    def inject(self, moment: Moment, number: int) -> Outcome | None:
        """Play a match with a fault at this moment. Returns None if the process had already ended by itself."""
        started = time.monotonic()
        # Browsers leave helpers in sessions of their own, which become children of this process when the browser ends.
        known = {process.pid for process in psutil.Process().children(recursive=True)}
        if moment.turn == DEAL:
            self.stop_process()
        self.target.prepare()
        harmed, ended = list[psutil.Process](), set[psutil.Process]()
        injectors: list[FaultInjector] = []

        def harm(root: psutil.Process) -> None:
            tree = [root, *(child for child in root.children(recursive=True) if not has_ended(child))]
            harmed[:] = tree
            self.check.working_folders.update(Path(process.cwd()) for process in tree)
            victim = root if self.fault == "kill" else self.target.inner(tree)
            victim.send_signal(FAULTS[self.fault])
            while not has_ended(victim) and victim.status() != psutil.STATUS_STOPPED:
                time.sleep(0.001)  # on a busy machine other threads of it may still answer

        def control(plan: MatchPlan, game: Game) -> list[MatchControl]:
            if plan.identity.attempt:
                return [_Locator(self, game)]
            find = (lambda: find_new_session(known)) if moment.turn == DEAL else lambda: self._locate(game)
            injectors.append(FaultInjector(moment, lambda: self._shorten_timeouts(moment), find, harm))
            return [injectors[0]]

        def settle() -> None:
            """Call it after the first attempt."""
            if injectors:
                injectors.pop().join()
                ended.update(list_descendants() - self._others, harmed)
            for timeout, seconds in self._patient.items():
                setattr(*timeout, seconds)

        try:
            records = self._play(number, control, settle)
        except Exception as error:  # noqa: BLE001 reported as the fault's outcome
            records = []
            problem = f"the run ends with {type(error).__name__}: {error}"
        else:
            if self.target.pid is None and [record.status for record in records] == ["finished"]:
                self.pace.longest_deal = moment.delay or 0.0  # the machine is now less busy
                return None
            problem = find_problem(records)
        settle()
        leak = self.check.find_leak(ended, harmed[0]) if harmed else "no fault was injected"
        return Outcome(
            game=self.target.game, fault=self.fault, number=number, moment=moment,
            reason=records[0].reason if records else "", problem="; ".join(filter(None, (problem, leak))),
            seconds=time.monotonic() - started, growth=self.check.growth,
        )  # fmt: skip

    def stop_process(self) -> None:
        """Kill the process while no match uses it, which must not make the next match fail."""
        if self._root is not None:
            if not has_ended(self._root):
                kill_and_wait(self._root.pid)
            self._root = None

    def locate(self, game: Game) -> None:
        """Store the process of a game."""
        self._root = self._locate(game)

    def _locate(self, game: Game) -> psutil.Process | None:
        return psutil.Process(self.target.pid(game)) if self.target.pid else None

    def _shorten_timeouts(self, moment: Moment) -> None:
        """Shorten the timeouts if the process will hang, unless the limits of the match are to end it."""
        if self.fault == "hang" and self.limits is None:
            for timeout in self._patient:
                setattr(*timeout, 1.0 + (self.pace.deal if moment.turn == DEAL else 3 * self.pace.turn))

    def _play(
        self, number: int, control: Callable[[MatchPlan, Game], list[MatchControl]],
        settle: Callable[[], None] = lambda: None,
    ) -> list[MatchRecord]:  # fmt: skip
        """Play a match until it finishes or is given up, and return the records of all attempts.

        `settle` is called before each repetition.
        """
        target, records = self.target, list[MatchRecord]()

        async def play(plan: MatchPlan) -> MatchRecord:
            if plan.identity.attempt:
                settle()
            limits = (self.limits if plan.identity.attempt == 0 else None) or Limits()
            players = dict.fromkeys(target.seats, ScriptedActs("says", acts=target.acts))
            return await play_one(plan, players, 0, limits, control=control)

        plan = MatchPlan(
            identity=MatchId(0, number), game=target.game, options={"max_turns": LAST_TURN + 2, **target.options},
            seed=number, seats=dict.fromkeys(target.seats, Seating.of("brain", "says", None)),
        )  # fmt: skip
        asyncio.run(play_all([plan], play, records.append, 1, must_finish=False))
        return records


def kill_and_wait(pid: int) -> None:
    """Kill a child of this process and wait until all its threads have ended. Leave it to be reaped by others."""
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def find_problem(records: Sequence[MatchRecord]) -> str:
    """Return how the attempts at a match differ from one failure with a reason and one finished match, or ""."""
    if [record.status for record in records] != ["failed", "finished"]:
        return f"attempts: {[f'{record.status} {record.reason}' for record in records]}"
    failure = records[0].failure
    return "" if failure and failure.kind != "bug" and records[0].reason else f"failure: {failure}"


class _Locator(MatchControl):
    """Control that stores the match's process in the series at the first turn."""

    def __init__(self, series: _Series, game: Game) -> None:
        self._series, self._game = series, game

    def before(self, view: View, act: Act) -> Decision:
        """Store the process."""
        if view.turn == 0:
            self._series.locate(self._game)
        return CONTINUE
