"""Demonstrations to imitate: matches of scripted policies, a run's best matches, patches, or rows of a data set.

All are in the learner's tokens and roles: scripted acts are written in the role's reply format, and logged matches are
played again from their deal, with each reply encoded from its text.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from agents.players.model import ChatPlayer, ScriptedPlayer
from agents.players.scripted import add_remarks, can_play, make_scripted
from agents.players.simple import RecordedActs
from agents.players.writers import make_demonstration_writer, make_replay_writer, script_completion
from agents.policy import Policy
from agents.stream import Stream
from arena.credit.batch import CreditedTrajectory
from arena.credit.samples import IMITATED, make_samples
from arena.data.rows import DataSet
from arena.data.samples import RowEncoder
from arena.errors import ConfigError, StoreError
from arena.learn.samples import Sample
from arena.learn.settings import DemonstrationsSpec
from arena.parts.chance import generator
from arena.parts.schedules import Clock
from arena.play.contenders import (
    Contender,
    ModelContender,
    ScriptedContender,
    derive_seed,
    fold_seed,
    get_image_reader,
    play_one,
)
from arena.play.failures import count_failures
from arena.play.lessons import RowDemonstrations
from arena.play.lineup import Lineup, make_seatings
from arena.play.match import Limits, MatchPlan, SeatedPlayer, play_match
from arena.play.orchestrator import play_all
from arena.play.plans import plan_demonstrations
from arena.play.tables import Table
from arena.records import MatchRecord, Trajectory, is_patch, trained_trajectories, trajectories
from arena.store.contents import check_newest
from arena.store.failures import FailureLog
from arena.store.losses import summarise_failures
from arena.store.reader import RunReader
from games.contracts import Game, MatchId


@dataclass(frozen=True)
class _Demonstrator(ModelContender):
    """Scripted policy whose acts become replies in the format and tokens of the model that imitates it."""

    script: str

    def player(self, seat: str, plan: MatchPlan, game: Game, seed: int) -> SeatedPlayer:
        """Create a player that writes the scripted policy's acts as model replies, with remarks in games with talk."""
        policy, role = self.cast(plan.game, seat)
        seat_seed = derive_seed(seed, plan, seat)
        script = make_scripted(add_remarks(self.script, game), fold_seed(seat_seed), game)
        write = make_demonstration_writer(script, role, policy.frame)
        key, positions = f"{plan.id}/{seat}", self.max_positions(policy)
        return ChatPlayer(
            role=role, frame=policy.frame, policy=policy.name, key=key, seed=seat_seed, write=write,
            source="demonstration", positions=positions, picture=get_image_reader(self.engine, game),
        )  # fmt: skip


class _DemonstratorChooser:
    """Chooser of contenders for demonstration matches: draws scripted policies for the seats that have none.

    At imitated seats of models, the script's acts are written as the model's replies. Without `against` all seats are
    imitated. Else only one seat of the learner is, and the others draw from `against`.
    """

    def __init__(
        self,
        lineup: Lineup,
        learner: str,
        scripted: Sequence[str],
        against: Sequence[str],
        rng: np.random.Generator,
    ) -> None:
        self.lineup, self.learner, self.scripted, self.against, self.rng = lineup, learner, scripted, against, rng
        self._playable: dict[tuple[int, str, bool], list[str]] = {}

    def choose_contenders(self, plan: MatchPlan) -> dict[str, Contender]:
        """Return contenders by seat: demonstrators at imitated seats, drawn scripted policies at other free seats."""
        table, contenders = self.lineup.find_table(plan), dict[str, Contender]()
        learner_seats = [seat for seat, seating in plan.seats.items() if seating.policy == self.learner]
        imitated = [self._draw(learner_seats)] if self.against else list(plan.seats)
        for seat, seating in plan.seats.items():
            contender: Contender = self.lineup.contender(seating.policy, seat, table)
            if not isinstance(contender, ScriptedContender):
                script = self._draw_script(table, seat, seat in imitated)
                if isinstance(contender, ModelContender) and seat in imitated:
                    contender = _Demonstrator(contender.name, contender.engine, contender.cast, script)
                else:
                    contender = ScriptedContender(add_remarks(script, table.make_game()), seating.role)
            contenders[seat] = contender
        return contenders

    def _draw_script(self, table: Table, seat: str, imitated: bool) -> str:
        key = (id(table), seat, imitated)
        if key not in self._playable:
            game, names = table.make_game(), self.scripted if imitated else self.against
            playable = [name for name in names if can_play(name, game, seat)]
            self._playable[key] = playable or list(names)  # if none can play, `make_scripted` raises the reason
        return self._draw(self._playable[key])

    def _draw(self, names: Sequence[str]) -> str:
        return names[int(self.rng.integers(len(names)))]


@dataclass(frozen=True)
class _LoggedMatch:
    """Logged match to imitate: the plan to replay it, the seat to imitate, and its row of the log."""

    plan: MatchPlan
    seat: str
    row: dict[str, Any]


class Demonstrations:
    """Imitation samples of a run's learners, from scripted policies, a logged run, patches or a data set.

    `samples` returns an iteration's samples, the same ones at every call.
    """

    def __init__(
        self,
        *,
        spec: DemonstrationsSpec | None,
        lineup: Lineup,
        learners: Iterable[str],
        attempts: int,
        failures: FailureLog,
        note: Callable[[str], None],
    ) -> None:
        """Find the logged matches to imitate, and prepare to play each match up to `attempts` times.

        Failed attempts are written to `failures` and summarised by `note`. Raises ConfigError if the demonstrated run
        is unreadable or has no match for one of the learners.
        """
        self.spec, self.lineup = spec, lineup
        self._attempts, self._failures, self._note = attempts, failures, note
        self._candidates = {learner: self._find_candidates(learner) for learner in learners}
        self._rows = RowDemonstrations(spec, lineup.seed) if spec and spec.data else None

    async def samples(self, learner: str, clock: Clock, records: Sequence[MatchRecord] = ()) -> list[Sample]:
        """Return a learner's demonstrations for this iteration, by `learn.demonstrations`; [] if its weight is 0.

        `records` are the iteration's matches, for demonstrations by patches. Raises ConfigError if a logged match has
        another outcome when it is played again.
        """
        if self.spec is None or not self.spec.weight(clock):
            return []
        if self.spec.patches:
            return patch_samples(records, self.lineup.policies[learner], self._temperatures)
        if self._rows:
            return self._rows.samples(self._encoder(learner, self._rows.rows), clock.iteration)
        if self.spec.scripted:
            return await self.play_scripted(learner, clock.iteration, self.spec.scripted, self.spec.matches)
        candidates, rng = self._candidates[learner], generator(self.lineup.seed, clock.iteration, "shown", learner)
        selected = [candidates[i] for i in rng.permutation(len(candidates))[: self.spec.matches].tolist()]
        return self._to_samples(await self._replay_all(selected))

    def _encoder(self, learner: str, rows: DataSet) -> RowEncoder:
        policy = self.lineup.policies[learner]
        return RowEncoder(rows, policy.frame, min(policy.positions, self.lineup.engine.max_context))

    async def play_scripted(
        self,
        learner: str,
        k: int,
        scripted: Sequence[str],
        matches: int,
        against: Sequence[str] = (),
        on_end: Callable[[], None] = lambda: None,
    ) -> list[Sample]:
        """Play `matches` demonstrations by scripted policies, and return the learner's turns in them as samples.

        Without `against`, policies drawn from `scripted` play each other. Else one of them, at a seat of the learner,
        plays against policies drawn from `against`.
        `k` is the iteration, 0 for the warm start. `on_end` is called after every match that finished or was given up.
        """
        tables, policies = self.lineup.tables, self.lineup.policies
        plans = plan_demonstrations(self.lineup.seed, k, learner, matches, tables, policies)
        rng = generator(self.lineup.seed, k, "demonstrations")
        records = await self._play_demonstrations(plans, learner, scripted, against, rng, on_end)
        return self._to_samples([t for record in records for t in trajectories(record) if t.policy == learner])

    async def _play_demonstrations(
        self,
        plans: list[MatchPlan],
        learner: str,
        scripted: Sequence[str],
        against: Sequence[str],
        rng: np.random.Generator,
        on_end: Callable[[], None],
    ) -> list[MatchRecord]:
        """Play the plans with scripted policies drawn for each free seat. Log failures, return finished matches."""
        chooser = _DemonstratorChooser(self.lineup, learner, scripted, against, rng)
        contenders, failed = dict[MatchId, dict[str, Contender]](), list[MatchRecord]()

        async def play(plan: MatchPlan) -> MatchRecord:
            if plan.identity.first_attempt not in contenders:  # a retry has the same players
                contenders[plan.identity.first_attempt] = chooser.choose_contenders(plan)
            return await play_one(plan, contenders[plan.identity.first_attempt], self.lineup.seed, self.lineup.limits)

        def record_end(record: MatchRecord) -> None:
            if record.failure:
                failed.append(record)
                self._failures.add(record)
            if record.failure is None or record.failure.given_up:
                on_end()

        try:
            records = await play_all(plans, play, record_end, 1, self._attempts)
        finally:
            self._failures.flush()
        if line := summarise_failures([{"matches": len(records), **count_failures(failed)}]):
            self._note(f"demonstrations for '{learner}': {line}")
        return records

    async def _replay(self, logged: _LoggedMatch) -> MatchRecord:
        """Replay a logged match: one seat's replies encoded for its policy, and the logged acts of the other seats."""
        table, turns = self.lineup.find_table(logged.plan), logged.row["turns"]
        role, policy = table.roles[logged.seat], self.lineup.policies[logged.plan.seats[logged.seat].policy]
        is_scripted = logged.row["seats"][logged.seat]["kind"] == "brain"
        replies = {
            turn["index"]: script_completion(
                policy.frame,
                role.write(turn["action"]) if is_scripted else turn["raw"],
                "length" if turn["finish"] == "length" else "stop",
            )
            for turn in turns
            if turn["seat"] == logged.seat
        }
        acts = RecordedActs({turn["index"]: turn["action"] for turn in turns})
        players: dict[str, SeatedPlayer] = {seat: ScriptedPlayer(acts) for seat in logged.plan.seats}
        key, positions = f"{logged.plan.id}/{logged.seat}", min(policy.positions, self.lineup.engine.max_context)
        game = table.make_game()
        players[logged.seat] = ChatPlayer(
            role=role, frame=policy.frame, policy=policy.name, key=key, seed=(), write=make_replay_writer(replies),
            source="demonstration", positions=positions, picture=get_image_reader(self.lineup.engine, game),
        )  # fmt: skip
        return await play_match(logged.plan, game, players, Limits())

    async def _replay_all(self, matches: Sequence[_LoggedMatch]) -> list[Trajectory]:
        replayed = []
        for logged in matches:
            record = await self._replay(logged)
            acts, logged_acts = [turn.action for turn in record.turns], [turn["action"] for turn in logged.row["turns"]]
            if (acts, record.payoffs) != (logged_acts, logged.row["payoffs"]):
                raise ConfigError(
                    f"learn.demonstrations.run: match {record.id} has another outcome when it is played again "
                    f"({record.reason or 'other acts or payoffs'}): its game or a reply format has changed since; "
                    "use a run with the same game and format"
                )
            replayed += [t for t in trajectories(record) if t.seat == logged.seat]
        return replayed

    def _find_candidates(self, learner: str) -> list[_LoggedMatch]:
        """Return the logged matches from which a learner's demonstrations are drawn, with plans to replay them.

        For each of the learner's seats they are the share `spec.best` of the logged matches with the best payoff there.
        """
        candidates = []
        for table, seat, row in _find_best_matches(self.spec, self.lineup.tables, learner):
            seats = make_seatings(table, table.holders, self.lineup.policies)
            game = table.game
            plan = MatchPlan(
                identity=MatchId.parse(row["id"]), game=game.name, options=dict(game.options), seed=row["seed"],
                seats=seats, source="demonstration",
            )  # fmt: skip
            candidates.append(_LoggedMatch(plan, seat, row))
        return candidates

    @property
    def _temperatures(self) -> dict[str, float]:
        """Sampling temperature by role name, over all games of the run."""
        return {r.role: r.sampling.temperature for table in self.lineup.tables for r in table.roles.values()}

    def _to_samples(self, demonstrated: Sequence[Trajectory]) -> list[Sample]:
        credited = [
            CreditedTrajectory(trajectory=t, rewards=np.zeros(len(t.turns)), advantages=np.ones(len(t.turns)))
            for t in demonstrated
        ]
        samples = make_samples(credited, self._temperatures, IMITATED)
        return [replace(sample, source="demonstration") for sample in samples]


def check_demonstrations(spec: DemonstrationsSpec | None, tables: Sequence[Table], learners: Iterable[str]) -> None:
    """Raise ConfigError if the demonstrated run, if any, is unreadable or has no match for one of the learners."""
    for learner in learners:
        _find_best_matches(spec, tables, learner)


def _find_best_matches(
    spec: DemonstrationsSpec | None, tables: Sequence[Table], learner: str
) -> list[tuple[Table, str, dict[str, Any]]]:
    """Return the best logged matches for each of the learner's seats, as (table, seat, row of the match log).

    They are the share `spec.best` of the finished matches of the table's game and options, by the seat's payoff.
    Returns [] without a demonstrated run. Raises ConfigError if there is no such match.
    """
    if spec is None or spec.run is None:
        return []
    rows, best = _read_finished(spec.run), []
    for table in tables:
        same = [row for row in rows if (row["game"], row["options"]) == (table.game.name, table.game.options)]
        for seat in (seat for seat, holder in table.holders.items() if holder == learner):
            ranked = sorted(same, key=lambda row, seat=seat: (-row["payoffs"][seat], row["id"]))  # type: ignore[misc]
            best += [(table, seat, row) for row in ranked[: ceil(spec.best * len(same))]]
    if not best:
        games = " or ".join(sorted({f"{t.game.name} {t.game.options or ''}".strip() for t in tables}))
        raise ConfigError(f"learn.demonstrations.run: {spec.run} has no finished match of {games} for '{learner}'")
    return best


def _read_finished(run: str) -> list[dict[str, Any]]:
    """Return the rows of a run's finished matches. Raises ConfigError if its log cannot be read."""
    try:
        check_newest(Path(run))
        return [row for row in RunReader(run).matches(streams=False) if row["status"] == "finished"]
    except StoreError as error:
        raise ConfigError(f"learn.demonstrations.run: {error}") from None


def patch_samples(records: Iterable[MatchRecord], learner: Policy, temperatures: Mapping[str, float]) -> list[Sample]:
    """Return an imitation sample per patch (an expert's act in place of a wrong one) in the learner's own matches.

    A sample is the context in which the learner wrote a wrong act, followed by the expert's act, of which only the act
    is trained on. It has a stream of its own, because in credit a patch stays an observation. Turns that a branch
    repeats are left out. Log-probabilities at sampling time are 0. `temperatures` are by role. Source: UI-S1 (Lu et al.
    2025), where patched turns are in the loss, with the expert's thoughts.
    """
    return [
        sample
        for record in records
        for trajectory in trained_trajectories([record])
        if trajectory.policy == learner.name
        for sample in _patch_samples(record, trajectory, learner, temperatures[trajectory.role])
    ]


def _patch_samples(record: MatchRecord, trajectory: Trajectory, learner: Policy, temperature: float) -> list[Sample]:
    patches = [t for t in record.turns if is_patch(t) and t.seat == trajectory.seat and t.index > record.identity.turn]
    contexts = trajectory.contexts() if patches else {}
    samples = []
    for turn in patches:
        ids = script_completion(learner.frame, turn.raw).ids
        stream = Stream()
        stream.observe(*contexts[turn.index - 1])  # the context of the act that the patch replaces
        stream.append_sampled(ids, (0.0,) * len(ids), turn.index)
        zeros = np.zeros(len(ids), np.float32)
        places, learned = np.zeros(len(ids), np.int64), np.ones(len(ids), bool)
        samples.append(
            Sample(
                stream=stream, advantages=zeros, behaviour=zeros, temperature=temperature, places=places,
                learned=learned, source="demonstration",
            )
        )  # fmt: skip
    return samples
