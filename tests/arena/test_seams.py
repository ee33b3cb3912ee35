"""Extension points: a second engine, watcher, source or stage plugs in, and nothing else changes.

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
from arena.build import Factories
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


def make_experiment(*changes: str) -> Experiment:
    return compose([text_layer("test", CONFIG), *map(set_layer, changes)])


def run_lab(
    folder: Path, config: Experiment, watcher: RecordingWatcher | None = None, factories: Factories | None = None
) -> RunFolder:
    """Play a whole run, and return its folder."""
    run_folder = RunFolder.create(folder, to_yaml(config), {})

    async def run_to_the_end() -> None:
        lab = await Lab.open(run_folder, config, watcher or RecordingWatcher(), factories=factories or Factories())
        try:
            await lab.run()
        finally:
            await lab.close()

    wait(run_to_the_end())
    return run_folder


def read_matches(run: RunFolder, k: int) -> list[MatchRecord]:
    return sorted(map(MatchRecord.from_json, run.reader.log.read(k)), key=lambda record: record.id)


def read_weights(run: RunFolder, k: int) -> dict[str, torch.Tensor]:
    folder = run.path / "checkpoints" / f"{k:04d}" / "policies" / "shared"
    return load_file(folder / "model.safetensors")


def is_equal(weights: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return weights.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in weights.items())


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return run_lab(tmp_path_factory.mktemp("seams") / "run", make_experiment())


# -- an engine in another process --------------------------------------------------------------------------


def make_remote_engine(spec: EngineSpec, precision: Precision) -> ProcessEngine:
    return ProcessEngine(precision)


@pytest.mark.slow
def test_run_with_an_engine_in_another_process_is_bit_equal(finished_run: RunFolder, tmp_path: Path) -> None:
    """Play, the KL's reference and the gate use the other process."""
    other = run_lab(tmp_path / "run", make_experiment(), factories=Factories(engine=make_remote_engine))
    for k in (1, 2):
        ours, theirs = read_matches(finished_run, k), read_matches(other, k)
        assert [r.payoffs for r in ours] == [r.payoffs for r in theirs]
        assert [s.ids for r in ours for s in r.streams["opener"]] == [
            s.ids for r in theirs for s in r.streams["opener"]
        ]
    assert is_equal(read_weights(finished_run, 2), read_weights(other, 2))


# -- a live feed of turns out of the process ---------------------------------------------------------------


def record_turns(pipe: Connection, file: str) -> None:
    """Write down the turns received, as a viewer in another process would show them."""
    turns = []
    while received := pipe.recv():
        turns.append(received)
    Path(file).write_text(json.dumps(turns))


class TurnSender(RecordingWatcher):
    """Watcher that sends every turn to another process as it is taken."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__()
        self.pipe = pipe

    def turn(self, plan: MatchPlan, turn: Turn) -> None:
        self.pipe.send({"match": plan.id, "turn": turn.index, "seat": turn.seat, "said": turn.raw})


@pytest.mark.slow
def test_every_turn_leaves_the_process_as_it_is_taken(tmp_path: Path) -> None:
    pipe, viewer_end = multiprocessing.Pipe()
    spawn = multiprocessing.get_context("spawn")
    viewer = spawn.Process(target=record_turns, args=(viewer_end, str(tmp_path / "heard.json")), daemon=True)
    viewer.start()
    finished = run_lab(tmp_path / "run", make_experiment("iterations=1"), TurnSender(pipe))
    pipe.send(None)
    viewer.join()
    turns = {
        (received_turn["match"], received_turn["turn"]): received_turn["said"]
        for received_turn in json.loads((tmp_path / "heard.json").read_text())
    }
    assert turns == {(record.id, turn.index): turn.raw for record in read_matches(finished, 1) for turn in record.turns}


# -- a source that does not play ---------------------------------------------------------------------------


def test_a_run_learns_from_the_log_of_another(finished_run: RunFolder, tmp_path: Path) -> None:
    """Its own log holds the matches as they were sampled; it starts over where the other log ends."""
    config = make_experiment(
        f"source.log={finished_run.path}", "iterations=3", "learn.loss=likelihood", "checkpoint.keep=9"
    )
    config = wait(preflight(config, lambda text: None)).experiment
    assert config.source and config.source.iterations == 2, "later matches of the other run are not used"
    finished = run_lab(tmp_path / "run", config)
    for k, source_k in ((1, 1), (2, 2), (3, 1)):
        copies, originals = read_matches(finished, k), read_matches(finished_run, source_k)
        assert [record.id for record in copies] == [f"{k:04d}-{n:04d}" for n in range(len(originals))]
        for copy, original in zip(copies, originals, strict=True):
            assert copy.streams == original.streams and copy.payoffs == original.payoffs
            assert all(t.trained and t.policy == "shared" for t in trajectories(copy))
    assert not is_equal(read_weights(finished, 0), read_weights(finished, 1)), "nothing was learned"
    rows = finished.reader.metrics()
    assert "logprob_gap" not in rows[0]["learn"]["shared"], "the gate ignores replies of others"
    advantages = [row.advantage for row in finished.reader.credit(1)]
    assert np.abs(advantages).max() > 0, "adopted matches were not credited"


@pytest.mark.slow
def test_run_that_learns_from_a_log_resumes(finished_run: RunFolder, tmp_path: Path) -> None:
    """A resumed run reads its roles from its own copies."""
    config = make_experiment(f"source.log={finished_run.path}", "iterations=1", "learn.loss=likelihood")
    folder = wait(start(config, tmp_path / "run", RecordingWatcher()))
    wait(resume_run(folder, RecordingWatcher(), [set_layer("iterations=2")]))
    assert [row["iteration"] for row in RunFolder.open(folder).reader.metrics()] == [1, 2]


def test_unusable_log_is_refused(finished_run: RunFolder, tmp_path: Path) -> None:
    def get_refusal(*changes: str) -> str:
        with pytest.raises(ConfigError) as error:
            wait(preflight(make_experiment(f"source.log={finished_run.path}", *changes), lambda text: None))
        return str(error.value)

    assert "never negotiation" in get_refusal("game.options.max_turns=5")
    assert "set seats.opener.role to that" in get_refusal("seats.opener.role=opener")
    assert "has another tokenizer or chat template than nano" in get_refusal(
        "policies.shared.model=smollm2-135m-instruct"
    )
    assert "has 2 committed" in get_refusal("source.iterations=3")
    empty = RunFolder.create(tmp_path / "empty", to_yaml(make_experiment()), {})
    assert "no iteration to learn from" in get_refusal(f"source.log={empty.path}")


@pytest.mark.parametrize("damage", ["edited", "gone"])
def test_changed_log_is_refused(finished_run: RunFolder, tmp_path: Path, damage: str) -> None:
    """It is refused before play, because a missing iteration would silently teach nothing."""
    other = Path(shutil.copytree(finished_run.path, tmp_path / "other"))
    log = other / "log" / "0002.parquet"
    if damage == "gone":
        log.unlink()
    else:
        log.write_bytes(log.read_bytes()[:-9] + b"x" + log.read_bytes()[-8:])
    with pytest.raises(StoreError, match="0002"):
        wait(preflight(make_experiment(f"source.log={other}"), lambda text: None))


# -- a stage that begins with another's weights ------------------------------------------------------------


def test_stage_starts_from_the_previous_weights(finished_run: RunFolder, tmp_path: Path) -> None:
    config = make_experiment(
        f"policies.shared.model={finished_run.path}@2", "policies.shared.imitate=null", "learn.lr=0.0"
    )
    second = run_lab(tmp_path / "second", wait(preflight(config, lambda text: None)).experiment)
    assert is_equal(read_weights(second, 1), read_weights(finished_run, 2))
