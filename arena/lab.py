"""The loop of one run, to be read as a story: play, credit, learn, publish, rate, admit, examine, commit.

Every random choice comes from a generator made of the run's seed and the place where it is used, so there is
no generator state to save: a resumed run does again exactly what the interrupted iteration did.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from agents.engines.loop import wait
from agents.engines.make import make_engine
from arena.build import Parts, beginnings, build
from arena.chance import generator
from arena.config.experiment import Experiment
from arena.config.schedules import Clock
from arena.credit.assign import Credited
from arena.credit.iteration import Credit
from arena.credit.samples import samples_of
from arena.errors import DivergedError
from arena.league.pool import version_name
from arena.learn.batches import Sample
from arena.metrics import iteration_metrics
from arena.play.match import MatchPlan
from arena.play.orchestrator import play_all
from arena.play.plans import branch_plans, iteration_plans
from arena.play.watchers import ProgressWatcher, TurnWatcher, Watcher
from arena.policies import PastVersions
from arena.records import MatchRecord
from arena.store import checkpoints
from arena.store.matchlog import MatchBatch
from arena.store.run import RunFolder
from arena.store.state import STATE
from arena.store.tensorboard import Board


class Examiner(Protocol):
    """Who judges a run from outside while it goes on; nothing of that reaches what is learned."""

    def due(self, k: int, parts: Parts) -> bool:
        """Whether the weights after iteration `k` are to be judged, and were not yet."""

    def examine(self, k: int, parts: Parts, watcher: Watcher) -> dict[str, float]:
        """Judges them; figures for the iteration's row of metrics."""


class Played(NamedTuple):
    """What play gives."""

    records: list[MatchRecord]
    """The finished matches."""
    failures: list[MatchRecord]
    """The attempts that failed."""


class Lab:
    """One run in its folder. The caller holds the folder's lock."""

    def __init__(
        self, run: RunFolder, experiment: Experiment, watcher: Watcher, examiner: Examiner | None = None
    ) -> None:
        self.run_folder, self.experiment, self.watcher, self.examiner = run, experiment, watcher, examiner
        if isinstance(experiment.threads, int):
            torch.set_num_threads(experiment.threads)
        self.engine = make_engine(experiment.engine, experiment.bf16, experiment.narrow)
        wait(self.engine.open())
        try:
            self.parts = build(run, experiment, self.engine, watcher.note, lambda what: watcher.phase(0, what))
        except BaseException:
            self.close()
            raise
        self.done, self.policies, self.trainers = self.parts.done, self.parts.policies, self.parts.policies.trainers
        self.commit_seconds = 0.0
        """Of the last commit; it is over too late to stand in its own line of metrics."""

    def close(self) -> None:
        """Let go of the engine and its weights."""
        wait(self.engine.close())

    # -- the story ---------------------------------------------------------------------------------------

    def run(self) -> None:
        """Play all iterations that are not committed yet."""
        if self.done == 0 and not self.parts.restored:
            self.imitate()
        self.examine(self.done)
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
        credited, recalled, recalls = self.credit(k, records)
        foreseen = self.fit_critic(k, credited)
        learned = self.learn(k, credited, recalled)
        self.publish()
        self.rate(records)
        self.admit(k)
        ended = perf_counter()
        seconds = {"play": played - started, "play_model": model_seconds, "learn": ended - played}
        row = iteration_metrics(k, records, failures, credited, learned, self.parts.ratings, seconds)
        row |= {"critic": foreseen} if foreseen else {}
        row |= {"recalled": [recall._asdict() for recall in recalls]} if recalls else {}
        if judged := self.examine(k):
            row |= {"panel": judged, "seconds": row["seconds"] | {"panel": perf_counter() - ended}}
        self.commit(k, row)
        return row

    def play(self, k: int) -> Played:
        """All matches of the iteration and their branches; with `play.resample`, others in place of what is dropped."""
        records, failures, deals = list[MatchRecord](), list[MatchRecord](), 0
        for _ in range(1 + self.experiment.play.resample):
            if not (due := self.parts.crediting.due(k, records, deals)):
                break
            self.watcher.phase(k, "play")
            plans = iteration_plans(
                self.experiment, k, self.parts.tables, self.policies, self.parts.matchmaker, due, deals
            )
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
            past = PastVersions(self.policies, self.parts.pool)
            return await play_all(
                plans, lambda plan: self.parts.lineup.play(plan, past, on_turn), ended, spec.in_flight, spec.attempts
            )

        try:
            return Played(wait(play()), failures)
        finally:
            log.flush()

    def credit(self, k: int, records: Sequence[MatchRecord]) -> Credit:
        """What every turn of a trained policy earned and was worth; kept beside the match log."""
        self.watcher.phase(k, "credit")
        credited, recalled, recalls = self.parts.crediting.credit(k, records)
        fresh = [c for c in credited if not c.trajectory.replayed]
        kept = [c.trajectory.credited(c.rewards.tolist(), c.advantages.tolist()) for c in fresh]
        self.run_folder.log.write_credit(k, kept)
        return Credit(credited, recalled, recalls)

    def fit_critic(self, k: int, credited: Sequence[Credited]) -> dict[str, float]:
        """Teach the critic, where there is one, what the turns led to: after it was asked about them, never before."""
        fresh = [c for c in credited if not c.trajectory.replayed]
        try:
            return self.parts.critic.fit(fresh, self._rng(k, "critic")) if self.parts.critic else {}
        except DivergedError as error:
            raise DivergedError(f"iteration {k}, {error}") from None

    def learn(
        self, k: int, credited: Iterable[Credited], recalled: Sequence[Credited] = ()
    ) -> dict[str, dict[str, float]]:
        """Update each trainable policy from its own turns alone, then from what replay brings back."""
        self.watcher.phase(k, "learn")
        credited, learned = list(credited), {}
        for name in self.trainers:
            self.engine.rest(name)
            learned[name] = self._update(
                k, name, credited, "learn", self.parts.demonstrations.samples(name, self._clock(k))
            )
            replay_stats = self._update(k, name, recalled, "replay")
            learned[name] |= {f"replay_{what}": value for what, value in replay_stats.items()}
        return learned

    def _update(
        self, k: int, name: str, credited: Sequence[Credited], place: str, shown: Sequence[Sample] = ()
    ) -> dict[str, float]:
        """One update of a policy, on what of this is its own and what is shown; nothing happens where nothing is."""
        samples = samples_of([c for c in credited if c.trajectory.policy == name], self.parts.temperatures)
        samples = [*self.policies.referenced(name, samples), *shown]
        return self.trainers[name].update(samples, self._rng(k, place, name), self._clock(k)) if samples else {}

    def publish(self) -> None:
        """Serve the weights as they are now, under the next version."""
        self.policies.publish()

    def rate(self, records: Sequence[MatchRecord]) -> None:
        """Learn who is how strong: ratings of all who played, and the learners' chances against each other one."""
        self.parts.ratings.update(records)
        self.parts.win_rates.update(records)

    def admit(self, k: int) -> None:
        """Keep the weights after iteration `k` to be met again, where there is a league and it is due."""
        if self.parts.matchmaker and self.parts.pool.admit(k, self.trainers, self.policies.save_weights):
            for name in self.trainers:
                self.parts.ratings.inherit(version_name(name, k), name)

    def examine(self, k: int) -> dict[str, float]:
        """What the examiner finds, where one is due; afterwards the engine is as it was, its caches included."""
        if self.examiner is None or not self.examiner.due(k, self.parts):
            return {}
        try:
            return self.examiner.examine(k, self.parts, self.watcher)
        finally:
            self.policies.serve()

    def commit(self, k: int, row: dict[str, Any]) -> None:
        """Seal the log, keep the metrics, and when it is time write the checkpoint: the step that makes them count."""
        self.watcher.phase(k, "commit")
        started = perf_counter()
        row["seconds"]["commit"] = self.commit_seconds
        self.run_folder.log.seal(k)
        self.run_folder.metrics.append(row)
        if k % self.experiment.checkpoint.every == 0 or k == self.experiment.iterations:
            self._checkpoint(k)
        self.parts.pool.sweep()
        self.done, self.commit_seconds = k, perf_counter() - started
        self.watcher.iteration(row)

    def imitate(self) -> None:
        """The beginning: policies that ask for it learn to write as brains play; what they are then is kept."""
        specs = {n: p.imitate for n, p in self.experiment.policies.items() if p.imitate and n in self.trainers}
        for name, spec in specs.items():
            self.watcher.phase(0, f"imitate ({name}): matches of {', '.join(spec.brains)}")
            ended = self._counted(spec.matches)
            samples = self.parts.demonstrations.by_brains(name, 0, spec.brains, spec.matches, spec.against, ended)
            self.watcher.phase(0, f"imitate ({name}): learning from them")
            stepped = self._counted(spec.epochs * spec.minibatches)
            skipped = self.trainers[name].imitate(samples, spec, self._rng(0, "imitate", name), stepped)
            if skipped:
                self.watcher.note(f"policy '{name}', imitation: {skipped} steps left out, their gradient is not finite")
            self.engine.publish(name, 0, self.policies[name].weights)
        self.admit(0)
        if specs:
            self._checkpoint(0)
            self.policies.hold_on_to(beginnings(self.run_folder, self.experiment, self.policies))

    def _counted(self, total: int) -> Callable[[], None]:
        """Tells the watcher, where it wants to hear, that one more of so many is done."""
        count = itertools.count(1)
        watcher = self.watcher
        return lambda: watcher.progress(next(count), total) if isinstance(watcher, ProgressWatcher) else None

    # -- what the story needs ----------------------------------------------------------------------------

    def _checkpoint(self, k: int) -> None:
        def fill(folder: Path) -> None:
            state = {"iteration": k, "policies": self.policies.save(folder / "policies")}
            state |= {"ratings": self.parts.ratings.state(), "credit": self.parts.crediting.state()}
            state |= {"league": {"pool": self.parts.pool.state(), "win_rates": self.parts.win_rates.state()}}
            (folder / STATE).write_text(json.dumps(state, indent=1) + "\n")
            if self.parts.critic and k:
                (folder / "critic").mkdir()
                self.parts.critic.save(folder / "critic")

        self.run_folder.checkpoint(k, fill)
        checkpoints.keep(self.run_folder.path, self.experiment.checkpoint.keep, also=[0])

    def _clock(self, k: int) -> Clock:
        return Clock(k, self.experiment.iterations)

    def _rng(self, k: int, *place: str) -> np.random.Generator:
        return generator(self.experiment.seed, k, *place)
