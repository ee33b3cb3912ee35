"""A discrete-event model (simpy) of a run on many engines and ranks: who waits for whom, for how long.

Modelled: matches that take turns on the engine with the fewest of them, engines that decode all their rows together
(the more rows, the longer a step), a driver that handles one turn at a time, tools between turns, ranks that learn, and
weights that are shipped to every engine; `play.ahead`, `play.enough` and `play.in_flight` as arena/play has them.
Not modelled: failures, credit's models, evaluation, memory, and that a rank's speed depends on how streams pack.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import simpy

Events = Generator[simpy.Event, Any, Any]


class Turn(NamedTuple):
    """A turn: tokens that are sampled, and seconds that a tool takes after it."""

    tokens: float
    tool: float = 0.0


Ended = tuple[list[Turn], list[int]]
"""The turns of a match, and the versions that took them."""


@dataclass(frozen=True)
class World:
    """Machines, work and settings of a run; times in seconds."""

    engines: int
    ranks: int
    matches: int
    in_flight: int
    step: tuple[float, float]
    """A decoding step of n rows takes step[0] + n · step[1]."""
    rows: int
    """Rows that an engine decodes at once; others wait."""
    driver: float
    """Of the driver for one turn: game, prompt, parsing, log, the engine's call."""
    learn: float
    """Tokens that one rank learns in a second."""
    around: float = 0.0
    """Of an iteration besides play and learning: credit, commit."""
    stream: float = 1.0
    """Tokens that are learned for one that was sampled: prompts are learned along."""
    ship: float = 0.0
    """From the end of learning until an engine can load the new weights."""
    load: float = 0.0
    """For which an engine stands still to load them."""
    ahead: int = 0
    enough: float = 1.0
    iterations: int = 4
    seed: int = 0
    turns: float = 6.0
    """Mean number of turns of a match; at most four times as many."""
    tokens: float = 200.0
    """Mean of a turn's sampled tokens: lognormal, with a standard deviation as large as the mean."""
    tools: tuple[float, float] = (0.0, 0.0)
    """Share of turns after which a tool runs, and its mean time, exponential."""

    def match(self, k: int, n: int) -> list[Turn]:
        """Draw the turns of a match, the same ones whatever the machines and settings of play."""
        rng = np.random.default_rng([self.seed, k, n])
        count = min(int(rng.geometric(1 / self.turns)), round(4 * self.turns))
        sigma = math.sqrt(math.log(2))
        tokens = np.maximum(1, rng.lognormal(math.log(self.tokens) - sigma**2 / 2, sigma, count))
        tools = rng.exponential(self.tools[1], count) * (rng.random(count) < self.tools[0])
        return [Turn(*each) for each in zip(tokens.tolist(), tools.tolist(), strict=True)]


class Engine:
    """An engine: all rows advance together, a token each a step. `work` counts the steps since the beginning."""

    def __init__(self, env: simpy.Environment, world: World) -> None:
        self.env, self.world = env, world
        self.matches = 0
        self.busy = self.row_seconds = 0.0
        self._work, self._since, self._paused = 0.0, 0.0, False
        self._rows: list[tuple[float, int, simpy.Event]] = []
        """By the work at which each has all its tokens."""
        self._waiting: deque[tuple[float, simpy.Event]] = deque()
        self._number, self._plans = itertools.count(), itertools.count()
        self._plan = -1

    def generate(self, tokens: float) -> simpy.Event:
        """An event that comes when so many tokens are sampled."""
        self._advance()
        done = self.env.event()
        self._waiting.append((tokens, done))
        self._next()
        return done

    def load(self, seconds: float) -> Events:
        """Stand still for so long."""
        self._advance()
        self._paused = True
        self._next()
        yield self.env.timeout(seconds)
        self._advance()
        self._paused = False
        self._next()

    def _step(self) -> float:
        return self.world.step[0] + self.world.step[1] * len(self._rows)

    def _advance(self) -> None:
        """Count the work since the last change."""
        took = self.env.now - self._since
        if self._rows and not self._paused:
            self._work += took / self._step()
            self.busy += took
            self.row_seconds += took * len(self._rows)
        self._since = self.env.now

    def _next(self) -> None:
        """End the rows that are through, fill their places, and plan the next end."""
        while self._rows and self._rows[0][0] <= self._work + 1e-9:
            heapq.heappop(self._rows)[2].succeed()
        while self._waiting and len(self._rows) < self.world.rows:
            tokens, done = self._waiting.popleft()
            heapq.heappush(self._rows, (self._work + tokens, next(self._number), done))
        self._plan = plan = next(self._plans)
        if self._rows and not self._paused:
            end = self.env.timeout((self._rows[0][0] - self._work) * self._step())
            end.callbacks.append(lambda _: self._ended(plan))

    def _ended(self, plan: int) -> None:
        if plan == self._plan:  # nothing has changed since it was planned
            self._advance()
            self._work = max(self._work, self._rows[0][0])
            self._next()


class Round:
    """The matches of an iteration: an update learns from those that have ended at `enough`, the next from the rest."""

    def __init__(self, env: simpy.Environment, matches: int, least: int) -> None:
        self.handed, self.learned = env.event(), env.event()
        self.enough, self.over = env.event(), env.event()
        self._open, self._least, self._ended = matches, matches - least, list[Ended]()

    def end(self, match: Ended) -> None:
        """Take a match that has ended."""
        self._ended.append(match)
        self._open -= 1
        if self._open == self._least:
            self.enough.succeed()
        if not self._open:
            self.over.succeed()

    def out(self) -> list[Ended]:
        """Return what has ended and was not handed out yet."""
        ended, self._ended = self._ended, []
        return ended


class Simulation:
    """A run: play and learning as processes over one clock."""

    def __init__(self, world: World, played: Sequence[Sequence[list[Turn]]] | None = None) -> None:
        """`played` are matches that were really played, by iteration, instead of drawn ones."""
        self.world, self.env, self._played = world, simpy.Environment(), played
        self.engines = [Engine(self.env, world) for _ in range(world.engines)]
        self._driver = simpy.Resource(self.env)
        self._room = simpy.PriorityResource(self.env, world.in_flight)
        self._rounds = {k: self._round(k) for k in range(1, world.iterations + 1)}
        self._version = 0
        self.driver_busy = self.learning = self.shipping = 0.0
        self.rows: list[dict[str, float]] = []
        """Of each iteration: when its update ended, when play had ended, what it learned from."""

    def run(self) -> list[dict[str, float]]:
        """Simulate all iterations; a row for each."""
        for k in self._rounds:
            self.env.process(self._play(k))
        self.env.run(self.env.process(self._learn_all()))
        return self.rows

    def _matches(self, k: int) -> int:
        return len(self._played[k - 1]) if self._played else self.world.matches

    def _round(self, k: int) -> Round:
        share = self.world.enough if k < self.world.iterations else 1.0
        return Round(self.env, self._matches(k), math.ceil(share * self._matches(k) - 1e-9))

    def _play(self, k: int) -> Events:
        """Begin the matches of an iteration as soon as `ahead` allows."""
        before = k - max(self.world.ahead, 1)
        if before >= 1:
            yield self._rounds[before].handed if self.world.ahead else self._rounds[before].learned
        for n in range(self._matches(k)):
            turns = self._played[k - 1][n] if self._played else self.world.match(k, n)
            self.env.process(self._match(k, turns))

    def _match(self, k: int, turns: list[Turn]) -> Events:
        with self._room.request(priority=k) as room:
            yield room
            engine = min(self.engines, key=lambda one: one.matches)
            engine.matches += 1
            versions = []
            for turn in turns:
                with self._driver.request() as mine:
                    yield mine
                    yield self.env.timeout(self.world.driver)
                    self.driver_busy += self.world.driver
                versions.append(self._version)
                yield engine.generate(turn.tokens)
                if turn.tool:
                    yield self.env.timeout(turn.tool)
            engine.matches -= 1
        self._rounds[k].end((turns, versions))

    def _learn_all(self) -> Events:
        for k, own in self._rounds.items():
            if k > 1:
                yield self._rounds[k - 1].over
            late = self._rounds[k - 1].out() if k > 1 else []
            yield own.enough
            matches, handed = [*late, *own.out()], self.env.now
            own.handed.succeed()
            sampled = sum(turn.tokens for turns, _ in matches for turn in turns)
            seconds = sampled * self.world.stream / (self.world.learn * self.world.ranks)
            yield self.env.timeout(self.world.around + seconds)
            yield self.env.timeout(self.world.ship)
            self.learning += seconds
            self.shipping += self.world.ship
            ages = [k - 1 - version for _, versions in matches for version in versions]
            self._version = k
            loads = [self.env.process(engine.load(self.world.load)) for engine in self.engines if self.world.load]
            if loads:
                yield simpy.AllOf(self.env, loads)
            self.rows.append({
                "end": self.env.now, "handed": handed, "tokens": sampled, "matches": len(matches),
                "staleness": sum(ages) / len(ages), "stalest": max(ages),
                "busy": sum(e.busy for e in self.engines), "row_seconds": sum(e.row_seconds for e in self.engines),
                "driver": self.driver_busy, "learning": self.learning, "shipping": self.shipping,
            })  # fmt: skip
            own.learned.succeed()


def figures(world: World) -> dict[str, float]:
    """Rates and shares of a simulated run in its midst: two iterations at both ends are left out."""
    rows = Simulation(world).run()[1:-2]
    first, last, counted = rows[0], rows[-1], rows[1:]
    span, count = last["end"] - first["end"], len(counted)
    gained = {name: last[name] - first[name] for name in ("busy", "row_seconds", "driver", "learning", "shipping")}
    return {
        "seconds_an_iteration": span / count,
        "tokens_a_second": sum(row["tokens"] for row in counted) / span,
        "engines_idle": 1 - gained["busy"] / span / world.engines,
        "rows_an_engine": gained["row_seconds"] / span / world.engines,
        "ranks_idle": 1 - gained["learning"] / span,
        "driver_busy": gained["driver"] / span,
        "shipping": gained["shipping"] / span,
        "staleness": float(np.mean([row["staleness"] for row in counted])),
        "stalest": max(row["stalest"] for row in counted),
    }
