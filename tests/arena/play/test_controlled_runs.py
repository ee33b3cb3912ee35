"""A run with branches, patches and summaries: log, gate, and bit-equal resumption."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.sources import text_layer
from arena.records import MatchRecord, trajectories
from arena.store.run import RunFolder
from tests.factories.labs import read_log, resume_lab, run_lab, stop_lab
from tests.factories.traces import assert_same_runs

CONFIG = """\
name: controlled
iterations: 2
threads: 1
game: {name: recall, options: {lines: 6, facts: 2, values: 2, illegal: end}}
policies:
  shared:
    model: nano
    imitate: {scripted: [oracle], matches: 24, epochs: 2, minibatches: 3, lr: 3e-3}
seats:
  keeper: {role: nano_keeper, policy: shared}
play:
  matches: 12
  group: 6
  parts: [{trees: {first: 2, weight: 1.0, chance: 0.8}}, {patch: {expert: oracle}}, {stop: {illegal: 3}}]
  in_flight: 4
engine: {entropy: true}
credit: {estimator: grpo, select: [ended], transforms: [shared_prefix]}
learn:
  lr: 1e-3
  minibatches: 2
  keep_tokens: true
  gate_tolerance: 0.001
  demonstrations: {patches: true, weight: 0.3}
checkpoint: {every: 1}
"""


def make_experiment() -> Experiment:
    return compose([text_layer("test", CONFIG)])


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("controlled") / "run"
    run_lab(folder, make_experiment())
    return folder


def read_records(folder: Path) -> list[MatchRecord]:
    return [MatchRecord.from_json(row) for row in read_log(folder)]


@pytest.mark.slow
def test_log_records_all_sources(finished_run: Path) -> None:
    matches = read_records(finished_run)
    sources = {turn.source for record in matches for turn in record.turns}
    assert len(matches) == 24 and {"policy", "replaced", "patch", "summary"} <= sources
    assert any(record.identity.parent for record in matches) and {r.group for r in matches} == {0, 1}
    for row in RunFolder.open(finished_run).reader.metrics():
        own = [r for r in matches if r.iteration == row["iteration"]]
        assert row["branches"]["count"] == sum(r.identity.parent is not None for r in own)
        assert row["patches"]["count"] > 0 and row["learn"]["shared"]["shown_loss"] > 0
        assert row["tokens"] == sum(t.tokens for r in own for t in r.turns)
        assert row["learn"]["shared"]["logprob_gap"] < 1e-5


def test_masks_cover_the_policys_own_tokens_and_nothing_else(finished_run: Path) -> None:
    for record in read_records(finished_run):
        for trajectory in trajectories(record):
            own = {turn.index: turn.tokens for turn in trajectory.turns}
            counts: dict[int, int] = dict.fromkeys(own, 0)
            for stream in trajectory.streams:
                assert len(stream) <= 48 and len(stream.entropy) in (0, len(stream))
                for masked, turn, logprob in zip(stream.mask, stream.turns, stream.logprobs, strict=True):
                    assert masked == (turn >= 0) and (masked or logprob == 0.0)
                    if masked:
                        counts[turn] += 1
            assert counts == own


def test_different_outcomes_give_advantages(finished_run: Path) -> None:
    credit = [c for k in (1, 2) for c in RunFolder.open(finished_run).reader.credit(k)]
    assert np.abs([c.advantage for c in credit]).max() > 0.1
    credited = {(c.match, c.turn) for c in credit}
    patches = {(r.id, t.index) for r in read_records(finished_run) for t in r.turns if t.source == "patch"}
    assert patches and credited.isdisjoint(patches), "a patch has no credit"


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("moment", ["a branch", "learn", "the first match"])
def test_a_controlled_run_resumes_bit_by_bit(finished_run: Path, tmp_path: Path, moment: str) -> None:
    branch = next(r.id for r in read_records(finished_run) if r.iteration == 2 and r.identity.parent)
    stops: dict[str, Any] = {
        "a branch": ("match", branch),
        "learn": ("phase", (2, "learn")),
        "the first match": ("match", "0001-0000"),
    }
    folder = tmp_path / "run"
    stop_lab(folder, make_experiment(), *stops[moment])
    resume_lab(folder, make_experiment())
    assert_same_runs(folder, finished_run)
