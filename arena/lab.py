"""The loop of one run, to be read as a story: play, credit, learn, publish, rate, admit, commit.

Every random choice comes from a generator made of the run's seed and the place where it is used, so there is
no generator state to save: a resumed run does again exactly what the interrupted iteration did.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch

from agents.engines.loop import wait
from agents.engines.spec import make_engine
from agents.role import Role
from arena.chance import generator
from arena.config.experiment import Experiment, PoolSpec
from arena.config.schedules import Clock
from arena.credit.assign import Credited
from arena.credit.critics import critic_for
from arena.credit.critics.base import Measures
from arena.credit.gold import gold_of
from arena.credit.iteration import Credit, Crediting
from arena.credit.measures import measure
from arena.credit.samples import samples_of
from arena.league.matchmaking import Matchmaker, WinRates
from arena.league.pool import Pool, version_name
from arena.league.ratings import Ratings
from arena.learn.batches import Sample
from arena.metrics import iteration_metrics
from arena.play.demonstrations import Demonstrations
from arena.play.lineup import Lineup, endpoint_for
from arena.play.match import Limits, MatchPlan
from arena.play.orchestrator import play_all
from arena.play.plans import branch_plans, iteration_plans
from arena.play.tables import set_tables
from arena.policies import PastVersions, Policies
from arena.records import MatchRecord, Trajectory, Turn
from arena.store import checkpoints
from arena.store.matchlog import MatchBatch
from arena.store.run import RunFolder
from arena.store.tensorboard import Board


class Watcher(Protocol):
    """Somebody who follows a run."""

    def phase(self, iteration: int, name: str) -> None:
        """The run now does this."""

    def note(self, text: str) -> None:
        """Something the user should hear, in one line."""

    def match(self, record: MatchRecord) -> None:
        """A match ended, well or badly."""

    def iteration(self, row: dict[str, Any]) -> None:
        """An iteration is complete; `row` is its line of metrics."""


@runtime_checkable
class TurnWatcher(Protocol):
    """A watcher who also wants every turn, as a live viewer does."""

    def turn(self, plan: MatchPlan, turn: Turn) -> None:
        """A turn was taken; what it earns may still grow. See `arena.play.match.OnTurn`."""


class Played(NamedTuple):
    """What play gives."""

    records: list[MatchRecord]
    """The finished matches."""
    failures: list[MatchRecord]
    """The attempts that failed."""


class Lab:
    """One run in its folder. The caller holds the folder's lock."""

    def __init__(self, run: RunFolder, experiment: Experiment, watcher: Watcher) -> None:
        self.run_folder, self.experiment, self.watcher = run, experiment, watcher
        if isinstance(experiment.threads, int):
            torch.set_num_threads(experiment.threads)
        self.tables = set_tables(experiment)
        self.engine = make_engine(experiment.engine, experiment.precision == "bf16")
        wait(self.engine.open())
        self.commit_seconds = 0.0
        """Of the last commit; it is over too late to stand in its own line of metrics."""
        self._restore()

    def close(self) -> None:
        """Let go of the engine and its weights."""
        wait(self.engine.close())

    # -- the story ---------------------------------------------------------------------------------------

    def run(self) -> None:
        """Play all iterations that are not committed yet."""
        if self.done == 0 and not self.restored:
            self.imitate()
        board = Board(self.run_folder.tensorboard, self.done)
        try:
            while self.done < self.experiment.iterations:
                board.add(self.iterate(self.done + 1))
        finally:
            board.close()

    def iterate(self, k: int) -> dict[str, Any]:
        """One iteration, from the first deal to the commit; its row of metrics."""
        started, model_before = perf_counter(), self.engine.figures()["seconds"]
        records, failures = self.play(k)
        played, model_seconds = perf_counter(), self.engine.figures()["seconds"] - model_before
        credited, recalled = self.credit(k, records)
        foreseen = self.fit_critic(k, credited)
        learned = self.learn(k, credited, recalled)
        self.publish()
        self.rate(records)
        self.admit(k)
        ended = perf_counter()
        seconds = {"play": played - started, "play_model": model_seconds, "learn": ended - played}
        row = iteration_metrics(k, records, failures, credited, learned, self.ratings, seconds)
        row |= {"critic": foreseen} if foreseen else {}
        self.commit(k, row)
        return row

    def play(self, k: int) -> Played:
        """All matches of the iteration and their branches; with `play.resample`, others in place of what is dropped."""
        records, failures, deals = list[MatchRecord](), list[MatchRecord](), 0
        for _ in range(1 + self.experiment.play.resample):
            if not (due := self.crediting.due(k, records, deals)):
                break
            self.watcher.phase(k, "play")
            plans = iteration_plans(self.experiment, k, self.tables, self.policies, self.matchmaker, due, deals)
            played, failed = self._played(plans)
            branched, failed_too = self._played(branch_plans(self.experiment, k, plans, played))
            records, deals = [*records, *played, *branched], deals + due
            failures += [*failed, *failed_too]
        return Played(records, failures)

    def _played(self, plans: list[MatchPlan]) -> Played:
        """The matches of these plans; each is in the log within a second of its end."""
        spec, log, failures = self.experiment.play, MatchBatch(self.run_folder.log), list[MatchRecord]()
        on_turn = self.watcher.turn if isinstance(self.watcher, TurnWatcher) else None

        def ended(record: MatchRecord) -> None:
            log.add(record)
            if record.status == "failed":
                failures.append(record)
            self.watcher.match(record)

        async def play() -> list[MatchRecord]:
            past = PastVersions(self.policies, self.pool)
            return await play_all(
                plans, lambda plan: self.lineup.play(plan, past, on_turn), ended, spec.in_flight, spec.attempts
            )

        try:
            return Played(wait(play()), failures)
        finally:
            log.flush()

    def credit(self, k: int, records: Sequence[MatchRecord]) -> Credit:
        """What every turn of a trained policy earned and was worth; kept beside the match log."""
        self.watcher.phase(k, "credit")
        credited, recalled = self.crediting.credit(k, records)
        fresh = [c for c in credited if not c.trajectory.replayed]
        kept = [c.trajectory.credited(c.rewards.tolist(), c.advantages.tolist()) for c in fresh]
        self.run_folder.log.write_credit(k, kept)
        return Credit(credited, recalled)

    def fit_critic(self, k: int, credited: Sequence[Credited]) -> dict[str, float]:
        """Teach the critic, where there is one, what the turns led to: after it was asked about them, never before."""
        fresh = [c for c in credited if not c.trajectory.replayed]
        return self.critic.fit(fresh, self._rng(k, "critic")) if self.critic else {}

    def learn(
        self, k: int, credited: Iterable[Credited], recalled: Sequence[Credited] = ()
    ) -> dict[str, dict[str, float]]:
        """Update each trainable policy from its own turns alone, then from what replay brings back."""
        self.watcher.phase(k, "learn")
        credited, learned = list(credited), {}
        for name in self.trainers:
            self.engine.rest(name)
            learned[name] = self._update(k, name, credited, "learn", self.demonstrations.samples(name, self._clock(k)))
            again = self._update(k, name, recalled, "replay")
            learned[name] |= {f"replay_{what}": value for what, value in again.items()}
        return learned

    def _update(
        self, k: int, name: str, credited: Sequence[Credited], place: str, shown: Sequence[Sample] = ()
    ) -> dict[str, float]:
        """One update of a policy, on what of this is its own and what is shown; nothing happens where nothing is."""
        samples = samples_of([c for c in credited if c.trajectory.policy == name], self._temperatures())
        samples = [*self.policies.referenced(name, samples), *shown]
        return self.trainers[name].update(samples, self._rng(k, place, name), self._clock(k)) if samples else {}

    def publish(self) -> None:
        """Serve the weights as they are now, under the next version."""
        self.policies.publish()

    def rate(self, records: Sequence[MatchRecord]) -> None:
        """Learn who is how strong: ratings of all who played, and the learners' chances against each other one."""
        self.ratings.update(records)
        self.win_rates.update(records)

    def admit(self, k: int) -> None:
        """Keep the weights after iteration `k` to be met again, where there is a league and it is due."""
        if self.matchmaker and self.pool.admit(k, self.trainers, self.policies.save_weights):
            for name in self.trainers:
                self.ratings.inherit(version_name(name, k), name)

    def commit(self, k: int, row: dict[str, Any]) -> None:
        """Seal the log, keep the metrics, and when it is time write the checkpoint: the step that makes them count."""
        self.watcher.phase(k, "commit")
        started = perf_counter()
        row["seconds"]["commit"] = self.commit_seconds
        self.run_folder.log.seal(k)
        self.run_folder.metrics.append(row)
        if k % self.experiment.checkpoint.every == 0 or k == self.experiment.iterations:
            self._checkpoint(k)
        self.pool.sweep()
        self.done, self.commit_seconds = k, perf_counter() - started
        self.watcher.iteration(row)

    def imitate(self) -> None:
        """The beginning: policies that ask for it learn to write as brains play; what they are then is kept."""
        specs = {n: p.imitate for n, p in self.experiment.policies.items() if p.imitate and n in self.trainers}
        for name, spec in specs.items():
            self.watcher.phase(0, f"imitate ({name})")
            samples = self.demonstrations.by_brains(name, 0, spec.brains, spec.matches)
            self.trainers[name].imitate(samples, spec, self._rng(0, "imitate", name))
            self.engine.publish(name, 0, self.trainers[name].model)
        self.admit(0)
        if specs:
            self._checkpoint(0)
            self._hold_on()

    # -- what the story needs ----------------------------------------------------------------------------

    def _restore(self) -> None:
        """Begin from the newest valid checkpoint, dropping whatever is newer; without one, from the start."""
        checkpoint = self.run_folder.resume_point(self.watcher.note)
        self.done = checkpoint.iteration if checkpoint else 0
        self.restored = checkpoint is not None
        self.run_folder.discard_after(self.done if checkpoint else -1)
        state = json.loads((checkpoint.folder / "state.json").read_text()) if checkpoint else {}
        league = state.get("league", {})
        several = len({table.game.name for table in self.tables}) > 1
        self.ratings, self.win_rates = Ratings(state.get("ratings"), several), WinRates(league.get("win_rates"))
        log = self.run_folder.reader.log
        self.crediting = Crediting(self.experiment, self._measured, log, state.get("credit", {}))
        self.pool: Pool = self._pool(league.get("pool"))
        spec = self.experiment.league
        self.matchmaker = Matchmaker(spec.opponents, self.pool, self.win_rates) if spec else None
        self.policies: Policies = Policies(
            self.experiment,
            self.engine,
            checkpoint,
            state.get("policies", {}),
            lambda what: self.watcher.phase(0, what),
        )
        self.trainers = self.policies.trainers
        known = {"seed": self.experiment.seed, "policies": self.policies, "engine": self.engine}
        self.critic = critic_for(self.experiment.credit, **known, roles=self._roles())
        if self.critic and checkpoint and (checkpoint.folder / "critic").is_dir():
            self.critic.load(checkpoint.folder / "critic")
        limits, endpoint = Limits(**self.experiment.play.limits.model_dump()), endpoint_for(self.experiment)
        self.lineup = Lineup(self.tables, self.policies, self.engine, self.experiment.seed, limits, endpoint)
        self.demonstrations = Demonstrations(self.experiment, self.lineup, self.trainers)
        self.pool.check(self.trainers)
        self._hold_on()

    def _pool(self, state: dict[str, list[int]] | None) -> Pool:
        """The pool as it was, without whatever the folder holds that came later."""
        league = self.experiment.league
        lag = max((o.lag or 0 for o in league.opponents), default=0) if league else 0
        pool = Pool(self.run_folder.path, league.pool if league else PoolSpec(), lag, state)
        pool.sweep()
        return pool

    def _hold_on(self) -> None:
        """Say what the KL holds on to: each trained policy's weights before learning from reward."""

        def first(name: str) -> Path:
            kept = self.run_folder.path / "checkpoints" / "0000"
            imitated = self.experiment.policies[name].imitate and kept.is_dir()
            return checkpoints.verify(kept).policy(name) if imitated else self.policies[name].source

        self.policies.hold_on_to(first)

    def _checkpoint(self, k: int) -> None:
        def fill(folder: Path) -> None:
            state = {"iteration": k, "policies": self.policies.save(folder / "policies")}
            state |= {"ratings": self.ratings.state(), "credit": self.crediting.state()}
            state |= {"league": {"pool": self.pool.state(), "win_rates": self.win_rates.state()}}
            (folder / "state.json").write_text(json.dumps(state, indent=1) + "\n")
            if self.critic and k:
                (folder / "critic").mkdir()
                self.critic.save(folder / "critic")

        self.run_folder.checkpoint(k, fill)
        checkpoints.keep(self.run_folder.path, self.experiment.checkpoint.keep, also=[0])

    def _measured(self, needs: frozenset[str], found: Sequence[Trajectory]) -> Measures:
        """What credit asks of models about these."""
        temperatures, gold = self._temperatures(), gold_of(self.experiment.credit)
        return measure(needs, found, self.policies, temperatures, gold, self.critic)

    def _temperatures(self) -> dict[str, float]:
        return {name: role.sampling.temperature for name, role in self._roles().items()}

    def _roles(self) -> dict[str, Role]:
        """By name: a role's name is the same role at every table."""
        return {role.role: role for table in self.tables for role in table.roles.values()}

    def _clock(self, k: int) -> Clock:
        return Clock(k, self.experiment.iterations)

    def _rng(self, k: int, *place: str) -> np.random.Generator:
        return generator(self.experiment.seed, k, *place)
