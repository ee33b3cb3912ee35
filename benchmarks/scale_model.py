"""Discrete-event model (simpy) of a run on many engines and ranks, and of their waiting times.

Modelled are matches, each on the engine with the fewest matches; engines that decode all their rows together, with
longer steps for more rows; a driver that handles one turn at a time; tools between turns; ranks that learn; the
transfer of weights to every engine; and `play.ahead`, `play.enough` and `play.in_flight` as in arena/play. Not modelled
are failures, models for credit assignment, evaluation, memory, and the packing of streams.
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
    """Turn, with its number of sampled tokens and the seconds of the tool call after it."""

    tokens: float
    tool: float = 0.0


PlayedMatch = tuple[list[Turn], list[int]]
"""Turns of a match, and the policy version of each."""


@dataclass(frozen=True)
class World:
    """Machines, work and settings of a run; times are in seconds."""

    engines: int
    ranks: int
    matches: int
    in_flight: int
    step: tuple[float, float]
    """Time of a decoding step, as (a, b): n rows take a + n · b."""
    rows: int
    """Maximum rows that an engine decodes together; others wait."""
    driver: float
    """Driver's time per turn for game, prompt, parsing, log and the engine's call."""
    learn: float
    """Tokens per second that one rank learns from."""
    overhead: float = 0.0
    """Time of an iteration outside play and learning: credit and commit."""
    learned_ratio: float = 1.0
    """Learned tokens per sampled token, because streams also contain prompts."""
    ship: float = 0.0
    """Time from the end of learning until engines can load the new weights."""
    load: float = 0.0
    """Time for which an engine pauses to load the weights."""
    ahead: int = 0
    enough: float = 1.0
    iterations: int = 4
    seed: int = 0
    turns: float = 6.0
    """Mean number of turns of a match, before a limit of four times the mean."""
    tokens: float = 200.0
    """Mean of a turn's sampled tokens, which are lognormal with a standard deviation equal to the mean."""
    tools: tuple[float, float] = (0.0, 0.0)
    """Share of turns after which a tool runs, and its mean time, which is exponential."""

    def draw_match(self, k: int, n: int) -> list[Turn]:
        """Draw the turns of match `n` of iteration `k`. They do not depend on the machines or the settings of play."""
        rng = np.random.default_rng([self.seed, k, n])
        count = min(int(rng.geometric(1 / self.turns)), round(4 * self.turns))
        sigma = math.sqrt(math.log(2))
        tokens = np.maximum(1, rng.lognormal(math.log(self.tokens) - sigma**2 / 2, sigma, count))
        tools = rng.exponential(self.tools[1], count) * (rng.random(count) < self.tools[0])
        return [Turn(*each) for each in zip(tokens.tolist(), tools.tolist(), strict=True)]


class Engine:
    """Engine whose rows all advance by one token per step. `_work` is the number of steps so far."""

    def __init__(self, env: simpy.Environment, world: World) -> None:
        self.env, self.world = env, world
        self.matches = 0
        self.busy = self.row_seconds = 0.0
        self._work, self._since, self._paused = 0.0, 0.0, False
        self._rows: list[tuple[float, int, simpy.Event]] = []
        """Heap of rows, by the value of `_work` at which they are complete."""
        self._waiting: deque[tuple[float, simpy.Event]] = deque()
        self._number, self._plans = itertools.count(), itertools.count()
        self._plan = -1

    def generate(self, tokens: float) -> simpy.Event:
        """Return an event that fires when `tokens` tokens are sampled."""
        self._advance()
        done = self.env.event()
        self._waiting.append((tokens, done))
        self._schedule()
        return done

    def load(self, seconds: float) -> Events:
        """Pause for `seconds` to load weights."""
        self._advance()
        self._paused = True
        self._schedule()
        yield self.env.timeout(seconds)
        self._advance()
        self._paused = False
        self._schedule()

    def _step_seconds(self) -> float:
        return self.world.step[0] + self.world.step[1] * len(self._rows)

    def _advance(self) -> None:
        """Add the work since the last change."""
        seconds = self.env.now - self._since
        if self._rows and not self._paused:
            self._work += seconds / self._step_seconds()
            self.busy += seconds
            self.row_seconds += seconds * len(self._rows)
        self._since = self.env.now

    def _schedule(self) -> None:
        """Finish completed rows, start waiting ones, and schedule the next completion."""
        while self._rows and self._rows[0][0] <= self._work + 1e-9:
            heapq.heappop(self._rows)[2].succeed()
        while self._waiting and len(self._rows) < self.world.rows:
            tokens, done = self._waiting.popleft()
            heapq.heappush(self._rows, (self._work + tokens, next(self._number), done))
        self._plan = plan = next(self._plans)
        if self._rows and not self._paused:
            end = self.env.timeout((self._rows[0][0] - self._work) * self._step_seconds())
            end.callbacks.append(lambda _: self._finish(plan))

    def _finish(self, plan: int) -> None:
        if plan == self._plan:  # otherwise a change has replaced this plan
            self._advance()
            self._work = max(self._work, self._rows[0][0])
            self._schedule()


class Round:
    """Matches of an iteration. Its update learns from those that end before `enough`, the next update from the rest."""

    def __init__(self, env: simpy.Environment, matches: int, enough_matches: int) -> None:
        self.handed, self.learned = env.event(), env.event()
        self.enough, self.over = env.event(), env.event()
        self._open, self._late, self._finished = matches, matches - enough_matches, list[PlayedMatch]()

    def add(self, match: PlayedMatch) -> None:
        """Add a finished match."""
        self._finished.append(match)
        self._open -= 1
        if self._open == self._late:
            self.enough.succeed()
        if not self._open:
            self.over.succeed()

    def take(self) -> list[PlayedMatch]:
        """Return the matches that finished since the last call."""
        ended, self._finished = self._finished, []
        return ended


class Simulation:
    """Simulated run, with play and learning as processes on one clock."""

    def __init__(self, world: World, played: Sequence[Sequence[list[Turn]]] | None = None) -> None:
        """Prepare a simulation of `world`. `played` are matches by iteration to use instead of drawn ones."""
        self.world, self.env, self._recorded = world, simpy.Environment(), played
        self.engines = [Engine(self.env, world) for _ in range(world.engines)]
        self._driver = simpy.Resource(self.env)
        self._room = simpy.PriorityResource(self.env, world.in_flight)
        self._rounds = {k: self._make_round(k) for k in range(1, world.iterations + 1)}
        self._version = 0
        self.driver_busy = self.learning = self.shipping = 0.0
        self.rows: list[dict[str, float]] = []
        """One row per iteration: times, tokens, matches, staleness, and the accumulated busy times."""

    def run(self) -> list[dict[str, float]]:
        """Simulate all iterations and return a row for each."""
        for k in self._rounds:
            self.env.process(self._play(k))
        self.env.run(self.env.process(self._learn_all()))
        return self.rows

    def _count_matches(self, k: int) -> int:
        return len(self._recorded[k - 1]) if self._recorded else self.world.matches

    def _make_round(self, k: int) -> Round:
        share = self.world.enough if k < self.world.iterations else 1.0
        return Round(self.env, self._count_matches(k), math.ceil(share * self._count_matches(k) - 1e-9))

    def _play(self, k: int) -> Events:
        """Start the matches of iteration `k` as soon as `ahead` allows."""
        earlier = k - max(self.world.ahead, 1)
        if earlier >= 1:
            yield self._rounds[earlier].handed if self.world.ahead else self._rounds[earlier].learned
        for n in range(self._count_matches(k)):
            turns = self._recorded[k - 1][n] if self._recorded else self.world.draw_match(k, n)
            self.env.process(self._play_match(k, turns))

    def _play_match(self, k: int, turns: list[Turn]) -> Events:
        with self._room.request(priority=k) as room:
            yield room
            engine = min(self.engines, key=lambda one: one.matches)
            engine.matches += 1
            versions = []
            for turn in turns:
                with self._driver.request() as driver:
                    yield driver
                    yield self.env.timeout(self.world.driver)
                    self.driver_busy += self.world.driver
                versions.append(self._version)
                yield engine.generate(turn.tokens)
                if turn.tool:
                    yield self.env.timeout(turn.tool)
            engine.matches -= 1
        self._rounds[k].add((turns, versions))

    def _learn_all(self) -> Events:
        for k, round_ in self._rounds.items():
            if k > 1:
                yield self._rounds[k - 1].over
            late = self._rounds[k - 1].take() if k > 1 else []
            yield round_.enough
            matches, handed = [*late, *round_.take()], self.env.now
            round_.handed.succeed()
            sampled = sum(turn.tokens for turns, _ in matches for turn in turns)
            seconds = sampled * self.world.learned_ratio / (self.world.learn * self.world.ranks)
            yield self.env.timeout(self.world.overhead + seconds)
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
            round_.learned.succeed()


def compute_figures(world: World) -> dict[str, float]:
    """Return rates and shares of a simulated run, without its first and last two iterations."""
    rows = Simulation(world).run()[1:-2]
    first, last, counted_rows = rows[0], rows[-1], rows[1:]
    span, count = last["end"] - first["end"], len(counted_rows)
    gains = {name: last[name] - first[name] for name in ("busy", "row_seconds", "driver", "learning", "shipping")}
    return {
        "seconds_an_iteration": span / count,
        "tokens_a_second": sum(row["tokens"] for row in counted_rows) / span,
        "engines_idle": 1 - gains["busy"] / span / world.engines,
        "rows_an_engine": gains["row_seconds"] / span / world.engines,
        "ranks_idle": 1 - gains["learning"] / span,
        "driver_busy": gains["driver"] / span,
        "shipping": gains["shipping"] / span,
        "staleness": float(np.mean([row["staleness"] for row in counted_rows])),
        "stalest": max(row["stalest"] for row in counted_rows),
    }
