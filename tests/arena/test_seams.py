"""What is promised of the trunk: a second of each kind plugs in where runs make theirs, and nothing else changes.

A trainer in another process: tests/arena/learn/test_trainer_elsewhere.py.
"""

import json
import multiprocessing
import shutil
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from agents.engines.spec import EngineSpec
from agents.precision import Precision
from arena.build import Makers
from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.layers import compose, to_yaml
from arena.config.sources import set_layer, text_layer
from arena.errors import ConfigError, StoreError
from arena.lab import Lab
from arena.launch import resume_run, start
from arena.play.match import MatchPlan
from arena.preflight import preflight
from arena.records import MatchRecord, Turn, trajectories
from arena.store.run import RunFolder
from tests.factories.elsewhere import ProcessEngine
from tests.factories.labs import CONFIG, RecordingWatcher


def experiment(*changes: str) -> Experiment:
    return compose([text_layer("test", CONFIG), *map(set_layer, changes)])


def run(
    folder: Path, given: Experiment, watcher: RecordingWatcher | None = None, makers: Makers | None = None
) -> RunFolder:
    """A whole run."""
    there = RunFolder.create(folder, to_yaml(given), {})

    async def live() -> None:
        lab = await Lab.open(there, given, watcher or RecordingWatcher(), makers=makers or Makers())
        try:
            await lab.run()
        finally:
            await lab.close()

    wait(live())
    return there


def matches(run: RunFolder, k: int) -> list[MatchRecord]:
    return sorted(map(MatchRecord.from_json, run.reader.log.read(k)), key=lambda record: record.id)


def weights(run: RunFolder, k: int) -> dict[str, torch.Tensor]:
    folder = run.path / "checkpoints" / f"{k:04d}" / "policies" / "shared"
    return load_file(folder / "model.safetensors")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return run(tmp_path_factory.mktemp("seams") / "run", experiment())


# -- an engine in another process --------------------------------------------------------------------------


def elsewhere(spec: EngineSpec, precision: Precision) -> ProcessEngine:
    return ProcessEngine(precision)


@pytest.mark.slow
def test_a_run_with_an_engine_elsewhere_plays_and_learns_the_same(played: RunFolder, tmp_path: Path) -> None:
    """Play, the reference of the KL and the gate ask it; what comes of it is the same, to the bit."""
    other = run(tmp_path / "run", experiment(), makers=Makers(engine=elsewhere))
    for k in (1, 2):
        ours, theirs = matches(played, k), matches(other, k)
        assert [r.payoffs for r in ours] == [r.payoffs for r in theirs]
        assert [s.ids for r in ours for s in r.streams["opener"]] == [
            s.ids for r in theirs for s in r.streams["opener"]
        ]
    assert same(weights(played, 2), weights(other, 2))


# -- a live feed of turns out of the process ---------------------------------------------------------------


def listen(pipe: Connection, into: str) -> None:
    """What runs there: it writes down what it hears, as a viewer would show it."""
    heard = []
    while news := pipe.recv():
        heard.append(news)
    Path(into).write_text(json.dumps(heard))


class Feed(RecordingWatcher):
    """Follows a run and sends every turn to another process as it is taken."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__()
        self.pipe = pipe

    def turn(self, plan: MatchPlan, turn: Turn) -> None:
        self.pipe.send({"match": plan.id, "turn": turn.index, "seat": turn.seat, "said": turn.raw})


@pytest.mark.slow
def test_every_turn_leaves_the_process_as_it_is_taken(tmp_path: Path) -> None:
    pipe, theirs = multiprocessing.Pipe()
    spawn = multiprocessing.get_context("spawn")
    viewer = spawn.Process(target=listen, args=(theirs, str(tmp_path / "heard.json")), daemon=True)
    viewer.start()
    done = run(tmp_path / "run", experiment("iterations=1"), Feed(pipe))
    pipe.send(None)
    viewer.join()
    heard = {(one["match"], one["turn"]): one["said"] for one in json.loads((tmp_path / "heard.json").read_text())}
    assert heard == {(record.id, turn.index): turn.raw for record in matches(done, 1) for turn in record.turns}


# -- a source that does not play ---------------------------------------------------------------------------


def test_a_run_learns_from_the_log_of_another(played: RunFolder, tmp_path: Path) -> None:
    """Its matches stand in its own log as they were sampled; it begins again where the log ends."""
    given = experiment(f"source.log={played.path}", "iterations=3", "learn.loss=likelihood", "checkpoint.keep=9")
    given = wait(preflight(given, lambda what: None)).experiment
    assert given.source and given.source.iterations == 2, "what the other run plays later is no part of it"
    done = run(tmp_path / "run", given)
    for k, theirs in ((1, 1), (2, 2), (3, 1)):
        copies, originals = matches(done, k), matches(played, theirs)
        assert [record.id for record in copies] == [f"{k:04d}-{n:04d}" for n in range(len(originals))]
        for copy, original in zip(copies, originals, strict=True):
            assert copy.streams == original.streams and copy.payoffs == original.payoffs
            assert all(t.trained and t.policy == "shared" for t in trajectories(copy))
    assert not same(weights(done, 0), weights(done, 1)), "something was learned"
    rows = done.reader.metrics()
    assert "logprob_gap" not in rows[0]["learn"]["shared"], "the gate does not compare what others sampled"
    advantages = [row.advantage for row in done.reader.credit(1)]
    assert np.abs(advantages).max() > 0, "it is credited as if it had been played here"


@pytest.mark.slow
def test_a_run_that_learns_from_a_log_goes_on(played: RunFolder, tmp_path: Path) -> None:
    """Though it now reads its roles from copies of its own."""
    given = experiment(f"source.log={played.path}", "iterations=1", "learn.loss=likelihood")
    folder = wait(start(given, tmp_path / "run", RecordingWatcher()))
    wait(resume_run(folder, RecordingWatcher(), [set_layer("iterations=2")]))
    assert [row["iteration"] for row in RunFolder.open(folder).reader.metrics()] == [1, 2]


def test_what_a_log_cannot_give_is_refused(played: RunFolder, tmp_path: Path) -> None:
    def refusal(*changes: str) -> str:
        with pytest.raises(ConfigError) as error:
            wait(preflight(experiment(f"source.log={played.path}", *changes), lambda what: None))
        return str(error.value)

    assert "never negotiation" in refusal("game.options.max_turns=5")
    assert "set seats.opener.role to that" in refusal("seats.opener.role=opener")
    assert "has another tokenizer or chat template than nano" in refusal("policies.shared.model=smollm2-135m-instruct")
    assert "has 2 committed" in refusal("source.iterations=3")
    empty = RunFolder.create(tmp_path / "empty", to_yaml(experiment()), {})
    assert "no iteration to learn from" in refusal(f"source.log={empty.path}")


@pytest.mark.parametrize("hurt", ["edited", "gone"])
def test_a_log_that_is_not_what_was_committed_is_refused(played: RunFolder, tmp_path: Path, hurt: str) -> None:
    """Before anything is played: an iteration that is not there would teach nothing, and nobody would hear of it."""
    other = Path(shutil.copytree(played.path, tmp_path / "other"))
    log = other / "log" / "0002.parquet"
    if hurt == "gone":
        log.unlink()
    else:
        log.write_bytes(log.read_bytes()[:-9] + b"x" + log.read_bytes()[-8:])
    with pytest.raises(StoreError, match="0002"):
        wait(preflight(experiment(f"source.log={other}"), lambda what: None))


# -- a stage that begins with another's weights ------------------------------------------------------------


def test_a_stage_begins_with_the_weights_of_the_one_before(played: RunFolder, tmp_path: Path) -> None:
    given = experiment(f"policies.shared.model={played.path}@2", "policies.shared.imitate=null", "learn.lr=0.0")
    second = run(tmp_path / "second", wait(preflight(given, lambda what: None)).experiment)
    assert same(weights(second, 1), weights(played, 2))
