"""Agents against simulated persons: the same tasks for everybody, several trials of each, so that luck shows.

A task is one deal of a simulator: its hidden entity depends on the seed alone, never on who plays or whom they meet. A
trial plays it again with other chance for models and random players. What a scripted person says
belongs to the task, so a scripted agent does the same in every trial with it. Tasks are the unit of all intervals.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any

import numpy as np

from agents.names import nearest
from agents.reply import one_line
from agents.role import load_role, written_for
from arena.errors import ConfigError, PlayError
from arena.evaluate.casting import Casting
from arena.evaluate.evaluation import IN_FLIGHT, LIMITS, make_game, plain
from arena.play.contenders import Contender, EndpointContender, ModelContender, play_one
from arena.play.match import MatchPlan
from arena.play.orchestrator import play_all
from arena.play.settings import GameSpec
from arena.records import MatchRecord, Seating
from arena.statistics import SHARE, Interval, mean_ci, pass_hat_k, range_of, rate_ci
from games.abilities import Peopled
from games.base import TextGame
from games.contracts import Game, MatchId

SCRIPT = "script"
NOBODY = "as it is"
"""Column of a simulator without personas."""
ATTEMPTS = 2
"""Number of times that a match that fails is played; then its trial is missing."""


@dataclass(frozen=True)
class Person:
    """A column: a persona of the simulator, and who words what it says."""

    persona: str
    """"" in a simulator that has no personas."""
    voice: Contender | None = None
    """None: the simulator's templates."""

    @property
    def name(self) -> str:
        """As it is typed."""
        persona = self.persona or NOBODY
        return persona if self.voice is None else f"{persona}+{self.voice.name}"

    def deal(self, game: GameSpec) -> GameSpec:
        """Return the game with this person in it."""
        options = {"persona": self.persona} if self.persona else {}
        if is_worded(make_game(game)):
            options["person"] = SCRIPT if self.voice is None else "render"
        return GameSpec(name=game.name, options={**game.options, **options})


@dataclass
class Cell:
    """Results of an agent with a person."""

    agent: str
    person: str
    words: str
    """Whose words the person's are: SCRIPT, or policy, version and role."""
    tasks: int
    trials: int
    k: int
    successes: dict[int, list[bool]] = field(default_factory=lambda: defaultdict(list))
    """By task, in each trial that was finished."""
    figures: dict[str, dict[int, list[float]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    """By name and task: the report's numbers, turns among them."""
    faults: Counter[str] = field(default_factory=Counter)
    """Matches that failed, by reason; they are no score of 0, and were played again."""

    def add(self, task: int, record: MatchRecord) -> None:
        """Counts a match."""
        if record.status == "failed":
            self.faults[record.reason] += 1
            return
        self.successes[task].append(bool(record.report["success"]))
        for name, value in record.report.items():
            if not isinstance(value, str):
                self.figures[name][task].append(float(value))

    @property
    def matches(self) -> int:
        """Finished ones."""
        return sum(map(len, self.successes.values()))

    @property
    def success(self) -> Interval:
        """The share of trials that succeeded: mean over tasks."""
        return mean_ci([sum(won) / len(won) for _, won in sorted(self.successes.items())], SHARE)

    def reliability(self, k: int) -> Interval:
        """pass^k: how likely k trials of a task all succeed, over the tasks of which k trials were finished."""
        counted = [won for _, won in sorted(self.successes.items()) if len(won) >= k]
        return mean_ci([pass_hat_k(sum(won), len(won), k) for won in counted], SHARE)

    @property
    def fault_rate(self) -> Interval:
        """The share of matches that failed, of all that were begun."""
        failed = sum(self.faults.values())
        return rate_ci(failed, failed + self.matches)

    def mean(self, figure: str) -> Interval:
        """Mean over tasks of the mean over trials."""
        means = [float(np.mean(sorted(values))) for _, values in sorted(self.figures[figure].items())]
        return mean_ci(means, range_of(figure, means))

    def to_json(self) -> dict[str, Any]:
        """Plain values: every interval as [estimate, low, high], null where the data cannot say."""
        return {
            "agent": self.agent, "person": self.person, "words": self.words,
            "matches": self.matches, "missing": self.tasks * self.trials - self.matches,
            "success": plain(self.success),
            **{f"pass^{k}": plain(self.reliability(k)) for k in range(1, self.k + 1)},
            "faults": {"rate": plain(self.fault_rate), "reasons": dict(sorted(self.faults.items()))},
            "figures": {name: plain(self.mean(name)) for name in self.figures},
            "successes": [sum(self.successes.get(task, ())) for task in range(self.tasks)],
        }  # fmt: skip


def read_persons(texts: Sequence[str], game: GameSpec) -> list[tuple[str, str]]:
    """Persona and voice, "" where it is scripted, of texts such as `terse` or `terse+smollm2-135m-instruct`.

    All personas, scripted, where there are no texts, and "" for a simulator without any; ConfigError for a game that is
    no simulator, for a persona that it does not have, and for a voice where nobody's words can be another's.
    """
    made = make_game(game)
    if not isinstance(made, Peopled):
        raise ConfigError(f"{game.name} is no simulator: use arena eval")
    personas = made.personas
    persons = []
    for text in texts or personas or [""]:
        persona, plus, voice = text.partition("+")
        if text and not personas:
            raise ConfigError(f"--persons: {game.name} has no personas: leave it out")
        if personas and persona not in personas:
            near = nearest(persona, personas) or f" (one of: {', '.join(personas)})"
            raise ConfigError(f"--persons: {game.name} has no persona '{one_line(persona, 80)}'{near}")
        if plus and not voice:
            raise ConfigError(f"--persons {text}: name whose words they are, such as {persona}+smollm2-135m-instruct")
        if voice and not is_worded(made):
            raise ConfigError(f"--persons {text}: {game.name} has no option `person`: its own words are all there are")
        persons.append((persona, voice))
    return persons


def is_worded(game: Game) -> bool:
    """Return True if a model may word what the simulator's person says: the class has an option `person`."""
    return any("person" in signature(kind).parameters for kind in type(game).__mro__ if issubclass(kind, TextGame))


def in_role(who: Contender, game: str, seat: str, role: str = "") -> Contender:
    """The contender in this role or, "", in the one written for its seat, if it has none of its own and can read it."""
    if isinstance(who, EndpointContender) and (chosen := role or written_for(game, seat)):
        loaded = load_role(chosen)
        return replace(who, role=lambda game, seat: loaded)
    if isinstance(who, ModelContender) and isinstance(cast := who.cast, Casting):
        own = cast.experiment is not None or cast.tiny
        if chosen := role or ("" if own else written_for(game, seat)):
            return replace(who, cast=replace(cast, own_role=chosen, _roles={}))
    return who


async def matrix(
    agents: Sequence[Contender],
    persons: Sequence[Person],
    game: GameSpec,
    tasks: int,
    trials: int,
    k: int,
    seed: int,
    ended: Callable[[], None] = lambda: None,
) -> AsyncIterator[Cell]:
    """Plays and yields cell by cell, agent by agent; `ended` is called after each match.

    ConfigError, before anything is played, when somebody cannot take its seat.
    """
    for person in persons:
        sample = make_game(person.deal(game))
        first, *others = sample.possible_agents
        for who, seat in [*((agent, first) for agent in agents), *((person.voice, seat) for seat in others)]:
            if who is not None:
                who.check(game.name, sample, seat)
    for agent in agents:
        for person in persons:
            yield await _cell(agent, person, game, tasks, trials, k, seed, ended)


async def _cell(
    agent: Contender, person: Person, game: GameSpec, tasks: int, trials: int, k: int, seed: int,
    ended: Callable[[], None],
) -> Cell:  # fmt: skip
    spec = person.deal(game)
    seats = make_game(spec).possible_agents
    table = dict(zip(seats, [agent, *([person.voice] if person.voice else [])], strict=True))
    seating = {seat: who.seating(spec.name, seat) for seat, who in table.items()}
    cell = Cell(agent.name, person.name, _identity(seating[seats[-1]]) if person.voice else SCRIPT, tasks, trials, k)
    deals = np.random.SeedSequence((seed, int.from_bytes(b"tasks", "big"))).generate_state(tasks, np.uint64)
    chances = np.random.SeedSequence((seed, int.from_bytes(b"trials", "big"))).generate_state(trials)
    plans = [
        MatchPlan(MatchId(task, trial), spec.name, dict(spec.options), int(deals[task]), seating)
        for task in range(tasks)
        for trial in range(trials)
    ]

    async def one(plan: MatchPlan) -> MatchRecord:
        return await play_one(plan, table, int(chances[plan.identity.deal]), LIMITS, keep_turns=False)

    def note(record: MatchRecord) -> None:
        cell.add(record.identity.iteration, record)
        if record.status == "finished" or record.attempt == ATTEMPTS - 1:
            ended()

    with suppress(PlayError):  # the cell says how many matches failed and why; others may be well
        await play_all(plans, one, note, IN_FLIGHT, ATTEMPTS)
    return cell


def _identity(who: Seating) -> str:
    """Name the speaker of a seat's words: a scripted policy, or a version of a policy in a role."""
    return who.policy if who.kind == "brain" else f"{who.policy}, version {who.version}, role {who.role}"
