"""Training loop of one run: play, credit, learn, publish, rate, admit, evaluate, commit.

Random generators are derived from the run's seed, the iteration and the place of use. A resumed run therefore repeats
the interrupted iteration exactly, without saved generator state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol, Self

import numpy as np
import torch

from agents.computing import compute
from agents.scoring import StreamScores
from arena.build import Factories, Parts, build, find_reference_weights
from arena.config.experiment import Experiment
from arena.config.saved_config import hash_identity
from arena.credit.batch import CreditedTrajectory
from arena.credit.iteration import Credit
from arena.credit.samples import TokenFigures, compute_token_figures, list_sampled_streams, make_samples, select_fresh
from arena.errors import ConfigError, DivergedError
from arena.league.pool import format_version
from arena.learn.gate import get_tolerance
from arena.learn.samples import Sample
from arena.learn.settings import ImitateSpec
from arena.metrics import compute_iteration_metrics, find_excused_replies
from arena.parts.chance import generator, number
from arena.parts.schedules import Clock
from arena.play.imitation import Imitation
from arena.play.logged import find_sparse_updates
from arena.play.source import PlayedMatches
from arena.play.staleness import MIN_FRESH_TOKENS, gate_replies, measure_lags
from arena.play.watchers import Watcher
from arena.records import MatchRecord
from arena.store import warm_start
from arena.store.run import RunFolder
from arena.store.state import STATE
from arena.trackers.threads import Trackers


class Examiner(Protocol):
    """Interface of evaluations during training. They do not affect learning."""

    async def is_due(self, k: int, parts: Parts) -> bool:
        """Return True if the weights after iteration `k` should be evaluated and have not been yet."""

    async def examine(self, k: int, parts: Parts, watcher: Watcher) -> dict[str, float]:
        """Evaluate the weights after iteration `k`. Returns values for its row of metrics, or {} if it cannot."""


class Lab:
    """Training loop of one run. `open` builds it; `run` runs the remaining iterations. The caller locks the folder."""

    def __init__(
        self, run: RunFolder, experiment: Experiment, watcher: Watcher, parts: Parts, examiner: Examiner | None = None
    ) -> None:
        self.run_folder, self.experiment, self.watcher, self.examiner = run, experiment, watcher, examiner
        self.parts, self.engine = parts, parts.engine
        self.done, self.policies, self.trainers = parts.done, parts.policies, parts.policies.trainers
        self._warnings: set[tuple[str, str]] = set()
        """Policies and kinds of notes that were shown."""
        self.commit_seconds = 0.0
        """Duration of the last commit, which appears in the next iteration's metrics."""

    @classmethod
    async def open(
        cls,
        run: RunFolder,
        experiment: Experiment,
        watcher: Watcher,
        examiner: Examiner | None = None,
        factories: Factories = Factories(),
    ) -> Self:
        """Open an engine, build the run's parts from its folder, and return the lab. The caller must close it."""
        if isinstance(experiment.threads, int):
            await compute(torch.set_num_threads, experiment.threads)
        engine = factories.engine(experiment.engine, experiment.resolved_precision)
        await engine.open()
        try:
            parts = await build(run, experiment, engine, watcher, factories.trainer)
        except BaseException:
            await engine.close()
            raise
        return cls(run, experiment, watcher, parts, examiner)

    async def close(self) -> None:
        """Stop matches in progress, and release the engine, the trainers and their weights."""
        await self.parts.source.close()
        await self.parts.lineup.close()
        for trainer in self.trainers.values():
            await trainer.close()
        await self.engine.close()

    # -- the steps of an iteration -----------------------------------------------------------------------

    async def run(self) -> None:
        """Run the warm start of a new run, any evaluation that is due, and all remaining iterations."""
        if self.done == 0 and not self.parts.restored:
            await self.imitate()
        await self.examine(self.done)
        experiment = self.experiment
        with Trackers(experiment.tracker, self.run_folder.path, experiment.seed, self.watcher.note) as trackers:
            while self.done < experiment.iterations:
                await self.iterate(self.done + 1)
                trackers.update()

    async def iterate(self, k: int) -> dict[str, Any]:
        """Run iteration `k` from play to commit, and return its row of metrics."""
        started, model_before = perf_counter(), self.engine.figures()["seconds"]
        records, failures, left_out = await self.play(k)
        play_end, model_seconds = perf_counter(), self.engine.figures()["seconds"] - model_before
        credited, recalled, recalls = await self.credit(k, records)
        critic_metrics = await self.fit_critic(k, credited)
        staleness, before = await self.prepare_learning(k, credited), await self.score(credited)
        learned = await self.learn(k, credited, recalled, records)
        self._warn_once("sparse", find_sparse_updates(learned))
        self._warn_once("excused", find_excused_replies(k, credited))
        learned = {name: metrics | staleness.get(name, {}) for name, metrics in learned.items()}
        if before:
            after, tokens = await self.score(credited), TokenFigures()
            for name in before:
                tokens |= compute_token_figures(select_fresh(name, credited), before[name], after[name])
            self._write_credit(k, credited, tokens)
        await self.publish()
        self.rate(k, records)
        await self.admit(k)
        learn_end = perf_counter()
        seconds = {"play": play_end - started, "play_model": model_seconds, "learn": learn_end - play_end}
        if self.experiment.overlaps:  # play continues during the whole iteration
            seconds |= {"play": learn_end - started, "waited": play_end - started}
            seconds["play_model"] = self.engine.figures()["seconds"] - model_before
        row = compute_iteration_metrics(k, records, failures, credited, learned, self.parts.ratings, seconds, left_out)
        sections = self.parts.play.metrics(records) | self.parts.crediting.metrics(k)
        if duplicates := sorted(row.keys() & sections.keys()):
            raise ConfigError(f"play.parts: metrics already have a section '{duplicates[0]}': give it another name")
        row |= sections
        row |= {"critic": critic_metrics} if critic_metrics else {}
        row |= {"recalled": [recall._asdict() for recall in recalls]} if recalls else {}
        if panel := await self.examine(k):
            row |= {"panel": panel, "seconds": row["seconds"] | {"panel": perf_counter() - learn_end}}
        await self.commit(k, row)
        return row

    async def play(self, k: int) -> PlayedMatches:
        """Return the iteration's matches from the run's source, which plays them or reads another run's log."""
        return await self.parts.source.matches(k)

    async def credit(self, k: int, records: Sequence[MatchRecord]) -> Credit:
        """Assign rewards and advantages to the turns of trained policies in iteration `k`.

        Returns the credited trajectories, those recalled by replay for a separate update, and records of all recalled
        ones. Stores the credit of this iteration's own trajectories in the log.
        """
        self.watcher.phase(k, "credit")
        credited, recalled, recalls = await self.parts.crediting.credit(k, records)
        self._write_credit(k, credited)
        return Credit(credited, recalled, recalls)

    def _write_credit(self, k: int, credited: Sequence[CreditedTrajectory], tokens: TokenFigures | None = None) -> None:
        fresh = [c for c in credited if c.trajectory.source != "recalled"]
        turns = [c.trajectory.credited(c.rewards.tolist(), c.advantages.tolist()) for c in fresh]
        self.run_folder.log.write_credit(k, turns, tokens or {})

    async def fit_critic(self, k: int, credited: Sequence[CreditedTrajectory]) -> dict[str, float]:
        """Fit the critic, if any, to the turns' returns. Returns its metrics.

        Must be called after `credit`, which uses the critic's predictions.
        """
        fresh = [c for c in credited if c.trajectory.source != "recalled"]
        try:
            return await self.parts.critic.fit(fresh, self._make_generator(k, "critic")) if self.parts.critic else {}
        except DivergedError as error:
            raise DivergedError(f"iteration {k}, {error}") from None

    async def prepare_learning(self, k: int, credited: Sequence[CreditedTrajectory]) -> dict[str, dict[str, float]]:
        """Release the engine's memory for each trained policy or, if play overlaps learning, check for stale replies.

        Returns staleness metrics by policy, {} without overlap. Raises GateError if sampler and trainer disagree.
        """
        self.watcher.phase(k, "learn")
        if self.experiment.overlaps:
            return {
                name: await self._check_stale_replies(k, name, select_fresh(name, credited)) for name in self.trainers
            }
        for name in self.trainers:
            await self.engine.release(name)
        return {}

    async def _check_stale_replies(self, k: int, name: str, replies: Sequence[CreditedTrajectory]) -> dict[str, float]:
        """Return metrics of the replies' staleness. Gate extra replies if too few are by the current weights.

        The gate compares the sampler's and the trainer's log-probabilities of tokens sampled by the current weights. If
        there are fewer than `MIN_FRESH_TOKENS` of these, a few extra replies are sampled and compared now.
        """
        policy, rule, trainer = self.policies[name], self.policies.rule, self.trainers[name]
        metrics = measure_lags(replies, policy.version, self.experiment.play.lag)
        gated = metrics.pop("fresh")
        if gated < MIN_FRESH_TOKENS:
            tolerance = get_tolerance(rule, self.policies.precision.uses_bf16_products)
            seed = (self.experiment.seed, k, number("gate"))
            gated += await gate_replies(self.engine, trainer, policy.frame, self.parts.roles, replies, tolerance, seed)
        return metrics | {"gated": gated}

    async def score(self, credited: Sequence[CreditedTrajectory]) -> dict[str, list[StreamScores]]:
        """Return scores of all sampled tokens under the current weights, by policy; {} without `learn.keep_tokens`."""
        scores = {}
        for name in self.trainers if self.experiment.learn.keep_tokens else ():
            fresh, temperatures = select_fresh(name, credited), self.parts.temperatures
            if streams := [(s, temperatures[c.trajectory.role]) for c in fresh for s in list_sampled_streams([c])]:
                scores[name] = await self.trainers[name].score(*map(list, zip(*streams, strict=True)))
        return scores

    async def learn(
        self,
        k: int,
        credited: Sequence[CreditedTrajectory],
        recalled: Sequence[CreditedTrajectory] = (),
        records: Sequence[MatchRecord] = (),
    ) -> dict[str, dict[str, float]]:
        """Update each trained policy on its turns and demonstrations, and then on its turns in `recalled`.

        Returns metrics by policy; those of the second update are named `replay_...`. If the run's source is a data set,
        policies learn from its rows and, if due, are evaluated on its held-out rows.
        """
        learned, lessons = {}, self.parts.lessons
        for name in self.trainers:
            demonstrations = await self.parts.demonstrations.samples(name, self._make_clock(k), records)
            rows, counts = await lessons.samples(name, k) if lessons else ([], {})
            learned[name] = await self._update(k, name, credited, "learn", demonstrations, rows) | counts
            learned[name] |= await lessons.held_out(name, k) if lessons else {}
            replayed = await self._update(k, name, recalled, "replay")
            learned[name] |= {f"replay_{metric}": value for metric, value in replayed.items()}
        return learned

    async def _update(
        self,
        k: int,
        name: str,
        credited: Sequence[CreditedTrajectory],
        place: str,
        demonstrations: Sequence[Sample] = (),
        rows: Sequence[Sample] = (),
    ) -> dict[str, float]:
        """Update a policy on its credited turns, demonstrations, and samples of a data set's `rows`.

        `place` distinguishes updates of one iteration in the random generator. Returns metrics, or {} without samples.
        """
        trajectories = [c for c in credited if c.trajectory.policy == name]
        version = self.policies[name].version if self.experiment.overlaps else None
        samples = make_samples(trajectories, self.parts.temperatures, version=version)
        samples = [*await self.policies.with_references(name, [*samples, *rows]), *demonstrations]
        if not samples:
            return {}
        trainer, rng = self.trainers[name], self._make_generator(k, place, name)
        return await trainer.update(await compute(trainer.plan, samples, rng, self._make_clock(k)))

    def _warn_once(self, kind: str, notes: Mapping[str, str]) -> None:
        """Show these notes, by policy, unless one of this kind was shown for the policy."""
        for name, note in notes.items():
            if (kind, name) not in self._warnings:
                self._warnings.add((kind, name))
                self.watcher.note(note)

    async def publish(self) -> None:
        """Serve the current weights to players, and increment the versions of trained policies."""
        await self.policies.publish()

    def rate(self, k: int, records: Sequence[MatchRecord]) -> None:
        """Update ratings, win rates and rollout parts from the run's own matches, not those of another run's log."""
        played_records = [record for record in records if record.source != "replayed"]
        self.parts.ratings.update(played_records)
        self.parts.win_rates.update(played_records)
        self.parts.play.observe(k, played_records)

    async def admit(self, k: int) -> None:
        """Add the weights after iteration `k` to the league's pool if it admits them, with the current ratings."""
        if not self.parts.matchmaker:
            return
        weights = {name: await self.policies.weights(name) for name in self.trainers}

        def save(name: str, folder: Path) -> None:
            self.policies.save_weights(name, folder, weights[name])

        if await compute(self.parts.pool.admit, k, self.trainers, save):
            for name in self.trainers:
                self.parts.ratings.inherit(format_version(name, k), name)

    async def examine(self, k: int) -> dict[str, float]:
        """Evaluate the weights if due, and then serve the policies again. Returns values for the metrics, or {}."""
        if self.examiner is None or not await self.examiner.is_due(k, self.parts):
            return {}
        try:
            return await self.examiner.examine(k, self.parts, self.watcher)
        finally:
            await self.policies.serve(*self.policies)

    async def commit(self, k: int, row: dict[str, Any]) -> None:
        """Commit iteration `k`: seal its log, append its metrics, save a checkpoint if due, and notify the watcher."""
        self.watcher.phase(k, "commit")
        started = perf_counter()
        self.parts.pool.in_use = self.parts.play.past_versions(k)
        row["seconds"]["commit"] = self.commit_seconds
        self.run_folder.log.seal(k)
        self.run_folder.metrics.append(row)
        if k % self.experiment.checkpoint.every == 0 or k == self.experiment.iterations:
            await self._checkpoint(k)
        self.parts.pool.sweep()
        self.done, self.commit_seconds = k, perf_counter() - started
        self.watcher.iteration(row)

    async def imitate(self) -> None:
        """Run or resume the warm start of the policies with the setting `imitate`, and save checkpoint 0."""
        specs = {n: p.imitate for n, p in self.experiment.policies.items() if p.imitate and n in self.trainers}
        await self._make_imitation(specs).run(self.parts.imitated)
        await self.admit(0)
        if specs:
            await self._checkpoint(0)
            warm_start.discard(self.run_folder.path)
            await self.policies.set_references(find_reference_weights(self.run_folder, self.experiment, self.policies))

    def _make_imitation(self, specs: Mapping[str, ImitateSpec]) -> Imitation:
        settings_hash = hash_identity(self.run_folder.path)
        return Imitation(
            specs, self.parts.demonstrations, self.policies, self.watcher,
            run=self.run_folder.path, seed=self.experiment.seed, settings_hash=settings_hash,
        )  # fmt: skip

    async def _checkpoint(self, k: int) -> None:
        snapshots = await self.policies.snapshot()

        def fill(folder: Path) -> None:
            state = {"iteration": k, "policies": self.policies.save(folder / "policies", snapshots)}
            state |= {"ratings": self.parts.ratings.state(), "credit": self.parts.crediting.state()}
            state |= {"league": {"pool": self.parts.pool.state(), "win_rates": self.parts.win_rates.state()}}
            state |= {"play": self.parts.play.state(k)}
            (folder / STATE).write_text(json.dumps(state, indent=1) + "\n")
            if self.parts.critic and k:
                (folder / "critic").mkdir()
                self.parts.critic.save(folder / "critic")

        await compute(self.run_folder.checkpoint, k, fill)
        self.run_folder.prune(self.experiment.checkpoint.keep)

    def _make_clock(self, k: int) -> Clock:
        return Clock(k, self.experiment.iterations)

    def _make_generator(self, k: int, *place: str) -> np.random.Generator:
        return generator(self.experiment.seed, k, *place)
