"""The loop of one run, to be read as a story: play, credit, learn, publish, rate, commit.

Every random choice comes from a generator made of the run's seed and the place where it is used, so there is
no generator state to save: a resumed run does again exactly what the interrupted iteration did.
"""

import asyncio
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import numpy as np
import torch

from agents.chat import ChatFrame
from agents.engines.in_process import InProcessEngine
from agents.policy import Policy
from agents.weights import load_model, load_tokenizer, resolve
from arena.board import Board
from arena.config import Experiment, PolicySpec
from arena.credit.assign import Credited, CreditRule, assign
from arena.league.ratings import Ratings
from arena.learn.samples import samples_of
from arena.learn.trainer import LearnRule, PolicyTrainer
from arena.match import Limits, MatchPlan, play_match
from arena.metrics import iteration_metrics
from arena.orchestrator import play_all
from arena.records import MatchRecord, trajectories
from arena.seating import demonstrator_at, player_at, seatings, set_table
from arena.store import checkpoints
from arena.store.checkpoints import Checkpoint
from arena.store.run import RunFolder


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


class Lab:
    """One run in its folder. The caller holds the folder's lock."""

    def __init__(self, run: RunFolder, experiment: Experiment, watcher: Watcher) -> None:
        self.run_folder, self.experiment, self.watcher = run, experiment, watcher
        if experiment.threads:
            torch.set_num_threads(experiment.threads)
        self.table = set_table(experiment)
        self.engine = InProcessEngine(
            bf16=experiment.precision == "bf16",
            max_batch=experiment.engine.max_batch,
            cache_bytes=experiment.engine.cache_mb << 20,
        )
        self.credit_rule = _credit_rule(experiment)
        self.learn_rule = _learn_rule(experiment)
        self.commit_seconds = 0.0
        """Of the last commit; it is over too late to stand in its own line of metrics."""
        self._restore()

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
        started, model_before = perf_counter(), self.engine.model_seconds
        records = self.play(k)
        played, model_seconds = perf_counter(), self.engine.model_seconds - model_before
        credited = self.credit(k, records)
        learned = self.learn(k, credited)
        self.publish()
        self.ratings.update(records)
        ended = perf_counter()
        seconds = {"play": played - started, "play_model": model_seconds, "learn": ended - played}
        row = iteration_metrics(k, records, self.failures, credited, learned, self.ratings, seconds)
        self.commit(k, row)
        return row

    def play(self, k: int) -> list[MatchRecord]:
        """All matches of the iteration; each is in the log as soon as it ends."""
        self.watcher.phase(k, "play")
        self.failures: list[MatchRecord] = []
        plans = self._plans(k, self.experiment.play.matches)
        spec = self.experiment.play
        return asyncio.run(play_all(plans, self._play_one, self._ended, spec.in_flight, spec.attempts))

    def credit(self, k: int, records: Sequence[MatchRecord]) -> list[Credited]:
        """What every turn of a trained policy earned and was worth; kept beside the match log."""
        self.watcher.phase(k, "credit")
        found = [t for record in records for t in trajectories(record) if t.trained and t.turns]
        credited = assign(found, self.credit_rule, self._rng(k, "credit"))
        kept = [c.trajectory.credited(c.rewards.tolist(), c.advantages.tolist()) for c in credited]
        self.run_folder.log.write_credit(k, kept)
        return credited

    def learn(self, k: int, credited: Iterable[Credited]) -> dict[str, dict[str, float]]:
        """Update each trainable policy from its own turns alone."""
        self.watcher.phase(k, "learn")
        credited = list(credited)
        learned = {}
        for name, trainer in self.trainers.items():
            own = [c for c in credited if c.trajectory.policy == name]
            samples = samples_of(own, self._temperatures())
            if self.learn_rule.kl:
                streams, heat = [s.stream for s in samples], [s.temperature for s in samples]
                scored = self.engine.score(_reference(name), streams, heat)
                samples = [s.with_reference(r) for s, r in zip(samples, scored, strict=True)]
            learned[name] = trainer.update(samples, self._rng(k, "learn", name)) if samples else {}
        return learned

    def publish(self) -> None:
        """Serve the weights as they are now, under the next version.

        Frozen ones too, under their own: what an engine keeps must not differ between a run and its resumption.
        """
        for name, policy in self.policies.items():
            policy.version += name in self.trainers
            self.engine.publish(name, policy.version, policy.model)

    def commit(self, k: int, row: dict[str, Any]) -> None:
        """Seal the log, keep the metrics, and when it is time write the checkpoint: the step that makes them count."""
        self.watcher.phase(k, "commit")
        started = perf_counter()
        row["seconds"]["commit"] = self.commit_seconds
        self.run_folder.log.seal(k)
        self.run_folder.metrics.append(row)
        if k % self.experiment.checkpoint.every == 0 or k == self.experiment.iterations:
            self._checkpoint(k)
        self.done, self.commit_seconds = k, perf_counter() - started
        self.watcher.iteration(row)

    def imitate(self) -> None:
        """The warm start: each policy that asks for it learns to write as brains play; then iteration 0 is kept."""
        specs = {n: p.imitate for n, p in self.experiment.policies.items() if p.imitate and n in self.trainers}
        if not specs:
            return
        for name, spec in specs.items():
            self.watcher.phase(0, f"imitate ({name})")
            records = asyncio.run(self._demonstrate(spec.brains, spec.matches))
            shown = [t for r in records for t in trajectories(r) if t.policy == name]
            credited = [Credited(t, np.zeros(len(t.turns)), np.ones(len(t.turns))) for t in shown]
            samples = samples_of(credited, self._temperatures())
            self.trainers[name].imitate(samples, spec.lr, spec.epochs, spec.minibatches, self._rng(0, "imitate", name))
            self.engine.publish(name, 0, self.trainers[name].model)
        self._checkpoint(0)
        self._serve_references()

    # -- what the story needs ----------------------------------------------------------------------------

    def _restore(self) -> None:
        """Begin from the newest valid checkpoint, dropping whatever is newer; without one, from the start."""
        checkpoint = self.run_folder.resume_point(self.watcher.note)
        self.done = checkpoint.iteration if checkpoint else 0
        self.restored = checkpoint is not None
        self.run_folder.discard_after(self.done if checkpoint else -1)
        state = json.loads((checkpoint.folder / "state.json").read_text()) if checkpoint else {}
        self.ratings = Ratings(state.get("ratings"))
        self.policies: dict[str, Policy] = {}
        self.trainers: dict[str, PolicyTrainer] = {}
        for name in self._used_policies():
            self._load(name, self.experiment.policies[name], checkpoint, state)
        self._serve_references()

    def _used_policies(self) -> list[str]:
        return sorted({s.policy for s in self.experiment.seats.values()} & set(self.experiment.policies))

    def _load(self, name: str, spec: PolicySpec, checkpoint: Checkpoint | None, state: dict[str, Any]) -> None:
        self.watcher.phase(0, f"loading {spec.model} as '{name}'")
        source = resolve(spec.model)
        kept = state.get("policies", {}).get(name) if spec.train else None
        folder = checkpoint.policy(name) if checkpoint and kept else source
        model, tokenizer = load_model(folder), load_tokenizer(source)
        if torch.cuda.is_available():
            model = model.cuda()
        policy = Policy(name, source, model, tokenizer, ChatFrame(tokenizer), spec.train)
        if spec.train:
            trainer = PolicyTrainer(name, model, self.learn_rule)
            if kept:
                trainer.load_optimizer(folder, kept["steps"])
                policy.version = kept["version"]
            self.trainers[name] = trainer
        self.policies[name] = policy
        self.engine.publish(name, policy.version, model)

    def _serve_references(self) -> None:
        """Serve what the KL holds on to: each trained policy's weights before learning from reward."""
        if not self.learn_rule.kl:
            return
        frozen: dict[Path, Any] = {}
        for name in self.trainers:
            first = self.run_folder.path / "checkpoints" / "0000"
            imitated = self.experiment.policies[name].imitate and first.is_dir()
            folder = checkpoints.verify(first).policy(name) if imitated else self.policies[name].source
            if folder not in frozen:
                frozen[folder] = load_model(folder).to(self.trainers[name].device).requires_grad_(False)
            self.engine.publish(_reference(name), 0, frozen[folder])

    def _checkpoint(self, k: int) -> None:
        def fill(folder: Path) -> None:
            policies = {}
            for name, trainer in self.trainers.items():
                into = folder / "policies" / name
                trainer.save(into)
                self.policies[name].tokenizer.save_pretrained(into)
                policies[name] = {"version": self.policies[name].version, "steps": trainer.steps}
            state = {"iteration": k, "policies": policies, "ratings": self.ratings.state()}
            (folder / "state.json").write_text(json.dumps(state, indent=1) + "\n")

        self.run_folder.checkpoint(k, fill)
        checkpoints.keep(self.run_folder.path, self.experiment.checkpoint.keep, also=[0])

    def _plans(self, k: int, count: int) -> list[MatchPlan]:
        game, options = self.experiment.game.name, dict(self.experiment.game.options)
        seeds = np.random.SeedSequence((self.experiment.seed, k, _stream("deals"))).generate_state(count, np.uint64)
        seats = seatings(self.experiment, self.table, self.policies)
        return [MatchPlan(f"{k:04d}-{i:04d}", k, game, options, int(seed), dict(seats)) for i, seed in enumerate(seeds)]

    async def _play_one(self, plan: MatchPlan) -> MatchRecord:
        seats, seed = plan.seats, self.experiment.seed
        game = self.table.make_game()
        players = {s: player_at(s, plan, game, self.table, self.policies, self.engine, seed) for s in seats}
        record = await play_match(plan, game, players, self._limits())
        for player in players.values():
            for key in player.stream_keys:
                self.engine.forget(key)
        return record

    async def _demonstrate(self, brains: list[str], count: int) -> list[MatchRecord]:
        """Matches between brains, drawn at random for each seat, recorded as if the policies had played."""
        rng = self._rng(0, "demonstrations")

        async def play(plan: MatchPlan) -> MatchRecord:
            game, seed = self.table.make_game(), self.experiment.seed
            players = {
                seat: demonstrator_at(
                    seat, plan, game, self.table, self.policies, brains[rng.integers(len(brains))], seed
                )
                for seat in plan.seats
            }
            return await play_match(plan, game, players, self._limits())

        return await play_all(self._plans(0, count), play, lambda record: None, 1, 1)

    def _ended(self, record: MatchRecord) -> None:
        self.run_folder.log.append(record)
        if record.status == "failed":
            self.failures.append(record)
        self.watcher.match(record)

    def _limits(self) -> Limits:
        return Limits(**self.experiment.play.limits.model_dump())

    def _temperatures(self) -> dict[str, float]:
        return {seat: role.sampling.temperature for seat, role in self.table.roles.items()}

    def _rng(self, k: int, *place: str) -> np.random.Generator:
        return np.random.default_rng((self.experiment.seed, k, *(_stream(p) for p in place)))


def _stream(name: str) -> int:
    """A number for a named use of chance."""
    return int.from_bytes(name.encode().ljust(8, b"\0"), "big")


def _reference(policy: str) -> str:
    return f"{policy}@reference"


def _credit_rule(experiment: Experiment) -> CreditRule:
    spec = experiment.credit
    stages = tuple((s.stage, s.parameters) for s in spec.stages)
    return CreditRule(spec.estimator, spec.gamma, stages, spec.weights, tuple(spec.normalise_by), spec.normalise_std)


def _learn_rule(experiment: Experiment) -> LearnRule:
    return LearnRule(**experiment.learn.model_dump(), bf16=experiment.precision == "bf16")
