"""A lab small enough to run in a second, a watcher that stops it, and what its run folder keeps."""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agents.engines.in_process import InProcessEngine
from agents.published import FolderWeights, RemoteWeights, Weights
from agents.weights import resolve_base
from arena.build import Makers
from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.layers import compose, to_yaml
from arena.config.sources import set_layer, text_layer
from arena.credit.batch import CreditedTrajectory
from arena.lab import Lab
from arena.learn.base import MakeTrainer
from arena.records import MatchRecord
from arena.store.run import RunFolder

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


class RecordingWatcher:
    """A watcher that records a run's phases and metrics, and raises KeyboardInterrupt where `stop` says so."""

    def __init__(self, stop: Callable[[str, Any], bool] = lambda what, value: False) -> None:
        self.stop = stop
        self.phases: list[tuple[int, str]] = []
        self.rows: list[dict[str, Any]] = []

    def phase(self, iteration: int, name: str) -> None:
        self.phases.append((iteration, name))
        self._look("phase", (iteration, name))

    def note(self, text: str) -> None:
        self.phases.append((0, text))

    def match(self, record: MatchRecord) -> None:
        self._look("match", record.id)

    def iteration(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        self._look("iteration", row["iteration"])

    def _look(self, what: str, value: Any) -> None:
        if self.stop(what, value):
            raise KeyboardInterrupt(f"stopped at {what} {value}")


def make_experiment(*assignments: str) -> Experiment:
    """`CONFIG` with assignments such as `iterations=1` applied to it."""
    return compose([text_layer("test", CONFIG), *map(set_layer, assignments)])


def open_lab(folder: Path, given: Experiment, watcher: RecordingWatcher | None = None) -> Lab:
    """A lab with a new run folder, before its first iteration."""
    return wait(Lab.open(RunFolder.create(folder, to_yaml(given), {}), given, watcher or RecordingWatcher()))


def run_lab(folder: Path, given: Experiment, watcher: RecordingWatcher | None = None) -> Lab:
    """A lab that has run to its end."""
    lab = open_lab(folder, given, watcher)
    wait(lab.run())
    return lab


def run_with_negated_advantages(folder: Path, given: Experiment, role: str) -> None:
    """Run to the end, with the advantages of one role negated and shifted by -1."""

    class Reversed(Lab):
        async def learn(self, k: int, credited: Any, *others: Any) -> dict[str, dict[str, float]]:
            found = [
                CreditedTrajectory(trajectory=c.trajectory, rewards=c.rewards, advantages=-c.advantages - 1)
                if c.trajectory.role == role
                else c
                for c in credited
            ]
            return await super().learn(k, found, *others)

    wait(wait(Reversed.open(RunFolder.create(folder, to_yaml(given), {}), given, RecordingWatcher())).run())


def run_and_resume(given: Experiment, tmp_path: Path) -> Iterator[Path]:
    """A run of three iterations, kept in `whole`, and copies that went on after the first and after the second."""
    run_lab(tmp_path / "whole", given)
    for done in (1, 2):
        folder = tmp_path / f"broken{done}"
        shutil.copytree(tmp_path / "whole", folder)
        for later in range(done + 1, 4):
            shutil.rmtree(folder / "checkpoints" / f"{later:04d}")
        wait(wait(Lab.open(RunFolder.open(folder), given, RecordingWatcher())).run())
        yield folder


def read_log(folder: Path) -> list[dict[str, Any]]:
    """All rows of the match log, without clock times."""
    rows = list(RunFolder.open(folder).log.rows())
    for row in rows:
        row.update(started="", seconds=0.0)
        for turn in row["turns"]:
            turn["seconds"] = 0.0
    return rows


def read_weight_files(folder: Path, iteration: int, policy: str = "shared") -> list[bytes]:
    """The bytes of a policy's weights and optimiser in the checkpoint of an iteration."""
    where = folder / "checkpoints" / f"{iteration:04d}" / "policies" / policy
    return [(where / name).read_bytes() for name in FILES]


def make_warm_experiment(warm: str, *assignments: str) -> Experiment:
    """The experiment, begun from the weights in the folder `warm` instead of imitation."""
    return make_experiment(f"policies={{shared: {{model: {warm}}}}}", "policies.shared.imitate=null", *assignments)


class FetchingEngine(InProcessEngine):
    """An engine in this process that fetches weights that other processes hold."""

    async def publish(self, policy: str, version: int, weights: Weights) -> None:
        """Publish weights, by way of a folder if they are elsewhere."""
        if not isinstance(weights, RemoteWeights):
            await super().publish(policy, version, weights)
            return
        with TemporaryDirectory() as folder:
            await asyncio.to_thread(weights.write, Path(folder))
            remote: Any = weights
            for path in resolve_base(remote.origin.source).glob("*token*"):
                shutil.copy(path, folder)
            await super().publish(policy, version, FolderWeights(Path(folder)))


def run_with_trainers(text: str, folder: Path, by: MakeTrainer, *changes: str) -> None:
    """A run of an experiment whose trainers are made so, or the rest of one."""
    given = compose([text_layer("test", text), *map(set_layer, changes)])
    there = RunFolder.open(folder) if folder.exists() else RunFolder.create(folder, to_yaml(given), {})

    async def through() -> None:
        lab = await Lab.open(
            there,
            given,
            RecordingWatcher(),
            makers=Makers(lambda spec, precision: FetchingEngine.create(spec, precision, 1), by),
        )
        try:
            await lab.run()
        finally:
            await lab.close()

    asyncio.run(through())
