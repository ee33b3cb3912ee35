"""A lab that runs in a second, a watcher that may stop it, and readers of its run folder."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from agents.engines.in_process import InProcessEngine
from agents.published import FolderWeights, RemoteWeights, Weights
from agents.weights import resolve_base
from arena.build import Factories
from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.layers import compose, to_yaml
from arena.config.sources import set_layer, text_layer
from arena.credit.batch import CreditedTrajectory
from arena.lab import Lab
from arena.learn.base import MakeTrainer
from arena.play.watchers import Watcher
from arena.records import MatchRecord
from arena.store.run import RunFolder
from tests.factories.traces import assert_same_runs

CONFIG = """\
name: small
iterations: 2
threads: 1
game: {name: negotiation, options: {illegal: end, max_turns: 4, talk: false}}
policies:
  shared:
    model: nano
    imitate: {scripted: [random], matches: 24, epochs: 3, minibatches: 4, lr: 3e-3}
seats:
  opener: {role: nano_opener, policy: shared}
  responder: {role: nano_responder, policy: shared}
play: {matches: 6, in_flight: 4}
credit:
  stages: [{length: {penalty: 0.1, free: 2}}]
learn: {lr: 1e-3, minibatches: 2, regularisers: {kl: {weight: 0.01}}, gate_tolerance: 0.01}
"""
FILES = ("model.safetensors", "optimizer.safetensors")


class RecordingWatcher(Watcher):
    """Watcher that records phases and metrics, and raises KeyboardInterrupt where `stop` returns True."""

    def __init__(self, stop: Callable[[str, Any], bool] = lambda what, value: False) -> None:
        self.stop = stop
        self.phases: list[tuple[int, str]] = []
        self.rows: list[dict[str, Any]] = []

    def phase(self, iteration: int, name: str) -> None:
        self.phases.append((iteration, name))
        self._check_stop("phase", (iteration, name))

    def note(self, text: str) -> None:
        self.phases.append((0, text))

    def match(self, record: MatchRecord) -> None:
        self._check_stop("match", record.id)

    def iteration(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        self._check_stop("iteration", row["iteration"])

    def _check_stop(self, what: str, value: Any) -> None:
        if self.stop(what, value):
            raise KeyboardInterrupt(f"stopped at {what} {value}")


def make_experiment(*assignments: str) -> Experiment:
    """Return `CONFIG` with assignments such as `iterations=1`."""
    return compose([text_layer("test", CONFIG), *map(set_layer, assignments)])


def open_lab(folder: Path, experiment: Experiment, watcher: RecordingWatcher | None = None) -> Lab:
    """Return a lab with a new run folder, before its first iteration."""
    return wait(Lab.open(RunFolder.create(folder, to_yaml(experiment), {}), experiment, watcher or RecordingWatcher()))


def run_lab(folder: Path, experiment: Experiment, watcher: RecordingWatcher | None = None) -> Lab:
    """Run a lab to its end and return it."""
    lab = open_lab(folder, experiment, watcher)
    wait(lab.run())
    return lab


def reopen_lab(folder: Path, experiment: Experiment, watcher: RecordingWatcher | None = None) -> Lab:
    """Return a run's lab at its newest checkpoint."""
    return wait(Lab.open(RunFolder.open(folder), experiment, watcher or RecordingWatcher()))


def resume_lab(folder: Path, experiment: Experiment) -> None:
    """Resume a run to its end."""
    wait(reopen_lab(folder, experiment).run())


def stop_lab(folder: Path, experiment: Experiment, event: str, value: Any) -> None:
    """Begin or resume a run and interrupt it at an event of the watcher, such as phase (2, "learn")."""
    watcher = RecordingWatcher(lambda *seen: seen == (event, value))
    lab = (reopen_lab if folder.exists() else open_lab)(folder, experiment, watcher)
    with pytest.raises(KeyboardInterrupt):
        wait(lab.run())


def copy_run(source: Path, folder: Path, done: int) -> Path:
    """Copy a run without its checkpoints after iteration `done`, and return the copy's folder."""
    shutil.copytree(source, folder)
    for checkpoint in (folder / "checkpoints").iterdir():
        if checkpoint.name > f"{done:04d}":
            shutil.rmtree(checkpoint)
    return folder


def run_with_negated_advantages(folder: Path, experiment: Experiment, role: str) -> None:
    """Run to the end, with the advantages of one role negated and shifted by -1."""

    class Reversed(Lab):
        async def learn(self, k: int, credited: Any, *others: Any) -> dict[str, dict[str, float]]:
            negated = [
                CreditedTrajectory(trajectory=c.trajectory, rewards=c.rewards, advantages=-c.advantages - 1)
                if c.trajectory.role == role
                else c
                for c in credited
            ]
            return await super().learn(k, negated, *others)

    wait(wait(Reversed.open(RunFolder.create(folder, to_yaml(experiment), {}), experiment, RecordingWatcher())).run())


def check_resume(experiment: Experiment, tmp_path: Path) -> None:
    """Run three iterations in `whole`; assert that copies resumed after the first and the second end like it."""
    run_lab(tmp_path / "whole", experiment)
    for done in (1, 2):
        folder = copy_run(tmp_path / "whole", tmp_path / f"broken{done}", done)
        resume_lab(folder, experiment)
        assert_same_runs(folder, tmp_path / "whole")


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of the match log without clock times."""
    rows = list(RunFolder.open(folder).reader.matches())
    for row in rows:
        row.update(started="", seconds=0.0)
        for turn in row["turns"]:
            turn["seconds"] = 0.0
    return rows


def read_weight_files(folder: Path, iteration: int, policy: str = "shared") -> list[bytes]:
    """Return the bytes of a policy's weights and optimiser state in an iteration's checkpoint."""
    policy_folder = folder / "checkpoints" / f"{iteration:04d}" / "policies" / policy
    return [(policy_folder / name).read_bytes() for name in FILES]


def make_warm_experiment(folder: str, *assignments: str) -> Experiment:
    """Return the experiment that starts from the weights in `folder` instead of imitation."""
    return make_experiment(f"policies={{shared: {{model: {folder}}}}}", "policies.shared.imitate=null", *assignments)


class FetchingEngine(InProcessEngine):
    """In-process engine that fetches weights held by other processes."""

    async def publish(self, policy: str, version: int, weights: Weights) -> None:
        """Publish weights, remote ones by way of a folder."""
        if not isinstance(weights, RemoteWeights):
            await super().publish(policy, version, weights)
            return
        with TemporaryDirectory() as folder:
            await asyncio.to_thread(weights.write, Path(folder))
            remote: Any = weights
            for path in resolve_base(remote.origin.source).glob("*token*"):
                shutil.copy(path, folder)
            await super().publish(policy, version, FolderWeights(Path(folder)))


def run_with_trainers(text: str, folder: Path, make_trainer: MakeTrainer, *changes: str) -> None:
    """Run or resume an experiment with these trainers."""
    experiment = compose([text_layer("test", text), *map(set_layer, changes)])
    run = RunFolder.open(folder) if folder.exists() else RunFolder.create(folder, to_yaml(experiment), {})

    async def through() -> None:
        lab = await Lab.open(
            run,
            experiment,
            RecordingWatcher(),
            factories=Factories(lambda spec, precision: FetchingEngine.create(spec, precision, 1), make_trainer),
        )
        try:
            await lab.run()
        finally:
            await lab.close()

    asyncio.run(through())
