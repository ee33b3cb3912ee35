"""A named pipe in the place of any file of a run folder is refused or ignored, and nothing blocks on it."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic

import pytest

from arena.config import own_files
from arena.config.recipe import compose_recipe
from arena.config.sources import recipe_layer
from arena.errors import StoreError
from arena.evaluate.study import results
from arena.evaluate.study.plan import Plan, Run
from arena.evaluate.study.record import read_record
from arena.league.pool import find_past_weights
from arena.store import checkpoints, warm_start
from arena.store.checkpoints import Checkpoint
from arena.store.contents import check_newest
from arena.store.evaluations import read_evaluations
from arena.store.failures import read_failures
from arena.store.feed import FeedReader
from arena.store.files import CONFIG
from arena.store.locks import is_in_use, read_holder
from arena.store.reader import RunReader
from arena.store.run import MetricsLog, RunFolder
from arena.store.state import read_state
from tests.factories.hostile import limit_seconds


def make_study(run: Path) -> Plan:
    return Plan(
        folder=run.parent, experiment=compose_recipe([recipe_layer("negotiation-nano")]), arms=["mars"], seeds=1
    )


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "config": (CONFIG, lambda run: RunReader(run).config()),
    "environment": ("environment.json", lambda run: RunReader(run).environment()),
    "own files": ("environment.json", lambda run: own_files.list_edited_files(run)),
    "holder": ("run.pid", read_holder),
    "lock": ("run.lock", is_in_use),
    "metrics": ("metrics.jsonl", lambda run: RunReader(run).metrics()),
    "metrics cut": ("metrics.jsonl", lambda run: MetricsLog(run / "metrics.jsonl").discard_after(1, 1)),
    "metrics counted": ("metrics.jsonl", lambda run: make_study(run).count_iterations(Run("mars", 1, run))),
    "evaluations": ("panel.jsonl", read_evaluations),
    "evaluation": ("evaluation.json", lambda run: results.read_evaluated(run, 1, "deal")),
    "record": ("study.json", lambda run: read_record(run / "study.json")),
    "failures": ("failures.jsonl", read_failures),
    "feed": ("feed.jsonl", lambda run: FeedReader(run).refresh()),
    "open log": ("log/0001.jsonl", lambda run: RunReader(run).log.read(1)),
    "sealed log": ("log/0001.parquet", lambda run: RunReader(run).log.read(1)),
    "credit": ("log/0001.credit.parquet", lambda run: RunReader(run).credit(1)),
    "manifest": ("checkpoints/0001/manifest.json", checkpoints.newest),
    "contents": ("checkpoints/0001/manifest.json", check_newest),
    "state": ("checkpoints/0001/state.json", lambda run: read_state(Checkpoint(run / "checkpoints/0001", 1))),
    "weights": ("checkpoints/0001/model.safetensors", lambda run: checkpoints.at_iteration(run, 1)),
    "pool": ("checkpoints/0001/state.json", lambda run: find_past_weights(run, "shared", 1)),
    "past version": ("league/shared@1/manifest.json", lambda run: find_past_weights(run, "shared", 1)),
    "imitation": ("imitation/manifest.json", warm_start.read_progress),
}


@pytest.mark.parametrize("name", READERS)
def test_pipe_blocks_no_reader(tmp_path: Path, name: str) -> None:
    place, read = READERS[name]
    run = RunFolder.create(tmp_path / "run", "name: x\n", {}).path
    (run / "league/shared@1").mkdir(parents=True)
    (run / place).parent.mkdir(parents=True, exist_ok=True)
    (run / place).unlink(missing_ok=True)
    os.mkfifo(run / place)
    started = monotonic()
    with limit_seconds(5), suppress(StoreError, OSError):
        read(run)
    assert monotonic() - started < 4  # the timeout's error is an OSError, too
