"""Success rates of agents with simulated persons: the same tasks for every agent, several trials per task.

A task is one deal of a simulator; its hidden entity depends on the seed alone. A trial plays the task with new random
numbers for models and random players. A scripted person's text belongs to the task, so a scripted agent plays every
trial with it in the same way. All intervals are over tasks.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from agents.reply import to_one_line
from agents.role import find_role_for, load_role
from arena.errors import ConfigError, PlayError
from arena.evaluate.casting import Casting
from arena.evaluate.evaluation import IN_FLIGHT, LIMITS, find_own_seats, interval_to_json, make_game
from arena.play.contenders import Contender, EndpointContender, ModelContender, play_one
from arena.play.match import MatchPlan
from arena.play.orchestrator import play_all
from arena.play.settings import GameSpec
from arena.records import MatchRecord, Seating
from arena.statistics import SHARE, Interval, mean_ci, pass_hat_k, range_of, rate_ci
from games.abilities import Personas
from games.contracts import Game, MatchId
from games.names import nearest
from simulators.person import Speech
from simulators.played import PersonGame

SCRIPT = "script"
COLUMN = re.compile(r"([^+=]*)([+=]?)(.*)", re.DOTALL)
"""Persona, mark and voice in a column's text, such as `terse+CONTENDER`."""
MARKS: Mapping[str, Speech] = {"+": "render", "=": "played"}
"""Role of the player in speaking for the person, by the mark between persona and player."""
DEFAULT_PERSONA = "default"
"""Name of the single column of a simulator without personas."""
ATTEMPTS = 2
"""Maximum attempts per match. A trial is missing if all its attempts fail."""


@dataclass(frozen=True)
class Person:
    """Simulated person, a column of the matrix: a persona of the simulator, and the player that speaks for it."""

    persona: str
    """Name of the persona; "" in a simulator without personas."""
    voice: Contender | None = None
    """Player that speaks for the person; None for the simulator's templates.

    In a game without a simulated person, the agent's partner.
    """
    speech: Speech = "render"
    """Task of the player: "render" words the script's lines, "played" decides what to say."""

    @property
    def name(self) -> str:
        """Name as the user writes it: PERSONA, PERSONA+VOICE or PERSONA=VOICE."""
        persona = self.persona or DEFAULT_PERSONA
        mark = next(mark for mark, speech in MARKS.items() if speech == self.speech)
        return persona if self.voice is None else f"{persona}{mark}{self.voice.name}"

    def apply_to(self, game: GameSpec) -> GameSpec:
        """Return the game's settings with this person's options."""
        options = {"persona": self.persona} if self.persona else {}
        if list_person_options(make_game(game)):
            options["person"] = SCRIPT if self.voice is None else self.speech
        return GameSpec(name=game.name, options={**game.options, **options})


@dataclass(kw_only=True)
class Cell:
    """Results of one agent with one person: successes and figures by task. `add` adds a match."""

    agent: str
    person: str
    speaker: str
    """Player that speaks for the person (SCRIPT, a scripted policy, or policy, version and role). In a game without a
    person, the player of the last seat."""
    tasks: int
    trials: int
    k: int
    successes: dict[int, list[bool]] = field(default_factory=lambda: defaultdict(list))
    """Successes of the finished trials, by task."""
    figures: dict[str, dict[int, list[float]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    """Numbers of the game's report, such as turns, by name and task."""
    faults: Counter[str] = field(default_factory=Counter)
    """Failed attempts by reason. They are retried and do not count as unsuccessful trials."""

    def add(self, task: int, record: MatchRecord) -> None:
        """Add a match of this task: its success and figures if it finished, else the reason of its failure."""
        if record.status == "failed":
            self.faults[record.reason] += 1
            return
        self.successes[task].append(bool(record.report["success"]))
        for name, value in record.report.items():
            if not isinstance(value, str):
                self.figures[name][task].append(float(value))

    @property
    def matches(self) -> int:
        """Number of finished matches."""
        return sum(map(len, self.successes.values()))

    def reliability(self, k: int) -> Interval:
        """Return pass^k, the probability that k trials of a task all succeed, with its interval over tasks.

        It is the mean over tasks with at least k finished trials; pass^1 is the success rate.
        """
        complete = [trials for _, trials in sorted(self.successes.items()) if len(trials) >= k]
        return mean_ci([pass_hat_k(sum(trials), len(trials), k) for trials in complete], SHARE)

    @property
    def fault_rate(self) -> Interval:
        """Share of failed attempts among all attempts, with its interval."""
        failed = sum(self.faults.values())
        return rate_ci(failed, failed + self.matches)

    def mean(self, figure: str) -> Interval:
        """Return the mean over tasks of a figure's mean over trials, with its interval."""
        means = [float(np.mean(sorted(values))) for _, values in sorted(self.figures[figure].items())]
        return mean_ci(means, range_of(figure, means))

    def to_json(self) -> dict[str, Any]:
        """Return success rates, faults and figures as JSON. Intervals are [estimate, low, high], with null for NaN."""
        return {
            "agent": self.agent, "person": self.person, "words": self.speaker,
            "matches": self.matches, "missing": self.tasks * self.trials - self.matches,
            "success": interval_to_json(self.reliability(1)),
            **{f"pass^{k}": interval_to_json(self.reliability(k)) for k in range(1, self.k + 1)},
            "faults": {"rate": interval_to_json(self.fault_rate), "reasons": dict(sorted(self.faults.items()))},
            "figures": {name: interval_to_json(self.mean(name)) for name in self.figures},
            "successes": [sum(self.successes.get(task, ())) for task in range(self.tasks)],
        }  # fmt: skip


def find_voice(text: str) -> str:
    """Return CONTENDER from a column such as `terse+CONTENDER` or `terse=CONTENDER`; "" if there is none."""
    return COLUMN.match(text).group(3)  # type: ignore[union-attr]  # COLUMN matches any text


def read_persons(texts: Sequence[str], game: GameSpec) -> list[tuple[str, str, Speech]]:
    """Parse columns such as `terse`, `terse+smollm2-135m-instruct` or `terse=runs/latest` as (persona, voice, speech).

    The voice is "" for a scripted person. Without texts, all personas are returned as scripted persons. The single
    column of a simulator without personas is called `default`; its persona is "". Raises ConfigError for a game that is
    not a simulator, an unknown persona, or a player that cannot speak for the person.
    """
    example = make_game(game)
    if not isinstance(example, Personas):
        raise ConfigError(f"{game.name} is not a simulator: use arena eval")
    personas = example.personas
    persons: list[tuple[str, str, Speech]] = []
    for text in texts or personas or [""]:
        persona, mark, voice = COLUMN.match(text).groups("")  # type: ignore[union-attr]  # COLUMN matches any text
        speech = MARKS.get(mark, "render")
        if not personas and persona == DEFAULT_PERSONA:
            persona = ""
        if not personas and persona:
            raise ConfigError(f"--persons: {game.name} has no persona{_suggest_correction(example, text, voice)}")
        if personas and persona not in personas:
            near = nearest(persona, personas) or f" (one of: {', '.join(personas)})"
            raise ConfigError(f"--persons: {game.name} has no persona '{to_one_line(persona, 80)}'{near}")
        if mark and not voice:
            raise ConfigError(f"--persons {text}: name the speaker, such as {persona}{mark}smollm2-135m-instruct")
        if voice and speech not in list_person_options(example) and not (speech == "played" and _has_partners(example)):
            raise ConfigError(f"--persons {text}: {game.name} has no option `person` with the value {speech}")
        persons.append((persona, voice, speech))
    return persons


def _has_partners(game: Game) -> bool:
    """Return True if the game has several seats but no simulated person."""
    return not list_person_options(game) and len(game.possible_agents) > 1


def _suggest_correction(game: Game, text: str, voice: str) -> str:
    """Return the correction for a column's text that names a persona in a game without personas."""
    if not list_person_options(game) and not _has_partners(game):
        return "s: leave --persons out"
    return f" '{to_one_line(text, 80)}': write {DEFAULT_PERSONA}" + (f"={voice}" if voice else " or default=CONTENDER")


def list_person_options(game: Game) -> Sequence[Speech]:
    """Return the speech values that the simulator's option `person` allows; () if it has no such option."""
    return game.speeches if isinstance(game, PersonGame) else ()


def with_role(contender: Contender, game: str, seat: str, role: str = "") -> Contender:
    """Return the contender with `role` or, if `role` is "", with the role that exists for the seat, if any.

    Scripted players are returned unchanged. If `role` is "", so are the policies of a run, which keep the run's roles,
    and tiny models, which cannot read sentences.
    """
    if isinstance(contender, EndpointContender) and (role_name := role or find_role_for(game, seat)):
        loaded = load_role(role_name)
        return replace(contender, role=lambda game, seat: loaded)
    if isinstance(contender, ModelContender) and isinstance(cast := contender.cast, Casting):
        own = cast.experiment is not None or cast.is_tiny
        if role_name := role or ("" if own else find_role_for(game, seat)):
            return replace(contender, cast=replace(cast, own_role=role_name, _roles={}))
    return contender


def make_lineup(agent: Contender, person: Person, game: GameSpec, role: str = "") -> dict[str, Contender]:
    """Return the contenders of a cell by seat, each with the role for its seat; `role` replaces the agent's.

    Without a voice the agent takes all seats. With one it takes the first seat or, in a game without a simulated
    person, the seats that it had in its run. A voice that decides what the person says gets the role of seat
    `SEAT_played`, such as `customer_played`, instead of the seat's.
    """
    example = make_game(person.apply_to(game))
    seats, has_person = example.possible_agents, bool(list_person_options(example))
    if person.voice is None:
        return {seat: with_role(agent, game.name, seat, role) for seat in seats}
    agent_seats = seats[:1] if has_person else find_own_seats(agent, game.name, seats)
    agent_seats = agent_seats if len(agent_seats) < len(seats) else seats[:1]
    suffix = "_played" if has_person and person.speech == "played" else ""
    others = {seat: with_role(person.voice, game.name, seat + suffix) for seat in seats}
    return others | {seat: with_role(agent, game.name, seat, role) for seat in agent_seats}


async def play_matrix(
    agents: Sequence[Contender],
    persons: Sequence[Person],
    game: GameSpec,
    tasks: int,
    trials: int,
    k: int,
    seed: int,
    on_finish: Callable[[], None] = lambda: None,
    role: str = "",
) -> AsyncIterator[Cell]:
    """Play every agent with every person, and yield each pair's results when its matches are done.

    Each of `tasks` deals is played `trials` times; `k` is the highest pass^k to report. `on_finish` is called after
    each match that finished or was given up. `role` replaces the agents' own roles. Raises ConfigError before the first
    match if a player cannot take its seat.
    """
    cells = [(agent, person, make_lineup(agent, person, game, role)) for agent in agents for person in persons]
    for _, person, table in cells:
        sample = make_game(person.apply_to(game))
        for seat, player in table.items():
            player.check(game.name, sample, seat)
    for agent, person, table in cells:
        yield await _play_cell(agent, person, table, game, tasks, trials, k, seed, on_finish)


async def _play_cell(
    agent: Contender, person: Person, table: dict[str, Contender], game: GameSpec, tasks: int, trials: int, k: int,
    seed: int, on_finish: Callable[[], None],
) -> Cell:  # fmt: skip
    spec = person.apply_to(game)
    seating = {seat: player.seating(spec.name, seat) for seat, player in table.items()}
    speaker = _format_seating([*seating.values()][-1]) if len(table) > 1 else SCRIPT
    cell = Cell(agent=agent.name, person=person.name, speaker=speaker, tasks=tasks, trials=trials, k=k)
    task_seeds = np.random.SeedSequence((seed, int.from_bytes(b"tasks", "big"))).generate_state(tasks, np.uint64)
    trial_seeds = np.random.SeedSequence((seed, int.from_bytes(b"trials", "big"))).generate_state(trials)
    plans = [
        MatchPlan(
            identity=MatchId(task, trial),
            game=spec.name,
            options=dict(spec.options),
            seed=int(task_seeds[task]),
            seats=seating,
        )
        for task in range(tasks)
        for trial in range(trials)
    ]

    async def play(plan: MatchPlan) -> MatchRecord:
        return await play_one(plan, table, int(trial_seeds[plan.identity.deal]), LIMITS, keep_turns=False)

    def count(record: MatchRecord) -> None:
        cell.add(record.identity.iteration, record)
        if record.status == "finished" or (record.failure and record.failure.given_up):
            on_finish()

    with suppress(PlayError):  # the cell counts its failed matches; other cells may still succeed
        await play_all(plans, play, count, IN_FLIGHT, ATTEMPTS)
    return cell


def _format_seating(seating: Seating) -> str:
    """Return a scripted policy's name, or a model player's policy, version and role, as text."""
    if seating.kind == "brain":
        return seating.policy
    return f"{seating.policy}, version {seating.version}, role {seating.role}"
