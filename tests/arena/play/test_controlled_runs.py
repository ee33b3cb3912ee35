"""A run with branches, patches and summaries: its log says so, its gate holds, and killed it resumes bit by bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.sources import text_layer
from arena.lab import Lab
from arena.records import MatchRecord, trajectories
from arena.store.run import RunFolder
from tests.factories.labs import RecordingWatcher, open_lab, read_log, read_weight_files, run_lab

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


def controlled() -> Experiment:
    return compose([text_layer("test", CONFIG)])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("controlled") / "run"
    run_lab(folder, controlled())
    return folder


def records(folder: Path) -> list[MatchRecord]:
    return [MatchRecord.from_json(row) for row in read_log(folder)]


@pytest.mark.slow
def test_all_that_happened_is_in_the_log(whole: Path) -> None:
    played = records(whole)
    sources = {turn.source for record in played for turn in record.turns}
    assert len(played) == 24 and {"policy", "replaced", "patch", "summary"} <= sources
    assert any(record.identity.parent for record in played) and {r.group for r in played} == {0, 1}
    for row in RunFolder.open(whole).reader.metrics():
        own = [r for r in played if r.iteration == row["iteration"]]
        assert row["branches"]["count"] == sum(r.identity.parent is not None for r in own)
        assert row["patches"]["count"] > 0 and row["learn"]["shared"]["shown_loss"] > 0
        assert row["tokens"] == sum(t.tokens for r in own for t in r.turns)
        assert row["learn"]["shared"]["logprob_gap"] < 1e-5


def test_masks_cover_the_policys_own_tokens_and_nothing_else(whole: Path) -> None:
    for record in records(whole):
        for trajectory in trajectories(record):
            own = {turn.index: turn.tokens for turn in trajectory.turns}
            found: dict[int, int] = dict.fromkeys(own, 0)
            for stream in trajectory.streams:
                assert len(stream) <= 48 and len(stream.entropy) in (0, len(stream))
                for masked, turn, logprob in zip(stream.mask, stream.turns, stream.logprobs, strict=True):
                    assert masked == (turn >= 0) and (masked or logprob == 0.0)
                    if masked:
                        found[turn] += 1
            assert found == own


def test_turns_that_differ_in_worth_have_an_advantage(whole: Path) -> None:
    credit = [c for k in (1, 2) for c in RunFolder.open(whole).log.credit(k)]
    assert np.abs([c.advantage for c in credit]).max() > 0.1
    kept = {(c.match, c.turn) for c in credit}
    patches = {(r.id, t.index) for r in records(whole) for t in r.turns if t.source == "patch"}
    assert patches and kept.isdisjoint(patches), "a patch has no credit"


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("moment", ["a branch", "learn", "the first match"])
def test_a_controlled_run_resumes_bit_by_bit(whole: Path, tmp_path: Path, moment: str) -> None:
    branch = next(r.id for r in records(whole) if r.iteration == 2 and r.identity.parent)
    stops: dict[str, Any] = {
        "a branch": ("match", branch),
        "learn": ("phase", (2, "learn")),
        "the first match": ("match", "0001-0000"),
    }
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        wait(open_lab(folder, controlled(), RecordingWatcher(lambda what, value: (what, value) == stops[moment])).run())
    wait(wait(Lab.open(RunFolder.open(folder), controlled(), RecordingWatcher())).run())
    assert read_log(folder) == read_log(whole)
    assert read_weight_files(folder, 2) == read_weight_files(whole, 2)
