"""Sources of matches and turns: their logging, and that a policy learns by reward from its own turns only."""

import json
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import analysis
from arena.cli.loop import wait
from arena.config.layers import to_yaml
from arena.credit.batch import CreditedTrajectory
from arena.credit.replay import Entry, load_recalled
from arena.credit.samples import make_samples
from arena.errors import StoreError
from arena.lab import Lab
from arena.play.demonstrations import Demonstrations
from arena.records import POLICY_SOURCES, MatchRecord, MatchSource, RecordError, Trajectory, trained_trajectories
from arena.store.arrow import matches_to_table
from arena.store.files import write_atomic
from arena.store.matchlog import _to_parquet
from arena.store.reader import RunReader, log_path
from arena.store.run import RunFolder
from games.contracts import TurnSource
from tests.factories.commands import arena
from tests.factories.labs import RecordingWatcher, make_experiment, run_lab
from tests.factories.trajectories import make_trajectory

TURN_SOURCES: tuple[TurnSource, ...] = get_args(TurnSource)
MATCH_SOURCES: tuple[MatchSource, ...] = get_args(MatchSource)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources") / "run"
    run_lab(folder, make_experiment("iterations=1", "play.matches=8"))  # more turns than there are sources
    return folder


def copy_with_sources(run: Path, folder: Path, turns: tuple[TurnSource, ...]) -> Path:
    """Copy the run's matches to a new log, cycling through all sources of matches and these of turns."""
    matches, sources = cycle(MATCH_SOURCES), cycle(turns)
    records = [
        replace(r, source=next(matches), turns=tuple(turn._replace(source=next(sources)) for turn in r.turns))
        for r in map(MatchRecord.from_json, RunReader(run).log.read(1))
    ]
    other = RunFolder.create(folder, to_yaml(make_experiment("iterations=1")), {})
    other.log.extend(records)
    other.log.seal(1)
    return folder


def has_learned(run: Path) -> bool:
    """Return whether the iteration changed the weights."""
    before, after = (run / f"checkpoints/{k:04d}/policies/shared/model.safetensors" for k in (0, 1))
    return before.read_bytes() != after.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("sources", [("policy",), ("policy", "patch"), ("patch", "demonstration", "voted")], ids=str)
def test_policy_learns_only_from_its_own_turns(
    finished_run: Path, tmp_path: Path, sources: tuple[TurnSource, ...]
) -> None:
    log = copy_with_sources(finished_run, tmp_path / "log", sources)
    settings = ("iterations=1", f"source.log={log}", "source.iterations=1", "learn.loss=likelihood")
    run_lab(tmp_path / "run", make_experiment(*settings, "checkpoint.keep=9", "learn.regularisers={}"))
    assert has_learned(tmp_path / "run") == ("policy" in sources)
    assert len(RunReader(tmp_path / "run").credit(1)) > 5, "every match has credit"


def test_a_log_with_tokens_that_the_model_does_not_have_is_refused(finished_run: Path, tmp_path: Path) -> None:
    """The log is sealed with valid hashes; on a GPU such an id would end the process."""
    log = copy_with_sources(finished_run, tmp_path / "log", ("policy",))
    rows = RunReader(log).log.read(1)
    rows[0]["streams"]["opener"][0]["ids"][3] = 99_999
    write_atomic(log_path(log / "log", 1, "parquet"), _to_parquet(matches_to_table(rows), 1000))
    settings = ("iterations=1", f"source.log={log}", "source.iterations=1", "learn.loss=likelihood")
    with pytest.raises(StoreError, match=rf"{rows[0]['id']}: opener has the token 99999, and the model of"):
        run_lab(tmp_path / "run", make_experiment(*settings, "learn.regularisers={}"))


def test_turns_of_others_are_context() -> None:
    """Of one turn per source only the policy's own remain, with their tokens' advantages and log-probabilities."""
    found = make_trajectory([1.0] * len(TURN_SOURCES))
    turns = tuple(t._replace(source=s) for t, s in zip(found.turns, TURN_SOURCES, strict=True))
    (stream,) = found.streams
    stream.logprobs = [-float(i) for i in range(len(stream))]
    count = len(turns)
    by_turn, by_token = (np.arange(float(n), dtype=np.float64) for n in (count, 2 * count))
    item = CreditedTrajectory(
        trajectory=replace(found, turns=turns), rewards=np.ones(count), advantages=by_turn, tokens=by_token
    )
    for tokens in (item.tokens, None):
        (sample,) = make_samples([replace(item, tokens=tokens)], {"opener": 1.0})
        own = [i for i, turn in enumerate(turns) if turn.source in POLICY_SOURCES]
        assert len(own) == 4 and sample.learned.all() and sample.places.tolist() == [p for p in own for _ in "ab"]
        assert sample.advantages.tolist() == [2 * p + k if tokens is not None else p for p in own for k in (0, 1)]
        assert sample.behaviour.tolist() == [-float(5 * p + 3 + k) for p in own for k in (0, 1)]
        assert (
            sample.stream.ids == stream.ids and sample.stream.sampled_count == 8 and stream.sampled_count == 2 * count
        )
    assert make_samples([replace(item, trajectory=found)], {"opener": 1.0})[0].stream is stream, "the stream was copied"
    assert set(POLICY_SOURCES) == {"policy", "replaced", "summary", "request"}


def test_every_source_is_read_shown_credited_and_loaded(finished_run: Path, tmp_path: Path) -> None:
    run = copy_with_sources(finished_run, tmp_path / "log", TURN_SOURCES)
    rows = RunReader(run).log.read(1)
    assert {row["source"] for row in rows} == set(MATCH_SOURCES)
    assert {turn["source"] for row in rows for turn in row["turns"]} == set(TURN_SOURCES)
    records = [MatchRecord.from_json(row) for row in rows]
    assert {t.source for t in trained_trajectories(records)} == set(MATCH_SOURCES)
    for record in records:
        shown = arena("show", run, record.id)
        assert shown.code == 0
        notes: list[str] = [turn.source for turn in record.turns if turn.source not in POLICY_SOURCES]
        assert [word for word in TURN_SOURCES for _ in range(shown.out.count(f"a {word}, not the policy's own"))] == [
            word for word in TURN_SOURCES for _ in range(notes.count(word))
        ]
        is_default = record.source in ("played", "branched")
        assert (f", {record.source}" in shown.out.splitlines()[0]) != is_default
    assert arena("credit", run, "--estimators", "mars,reinforce").code == 0
    frames = analysis.load(run)
    assert frames.matches["source"].tolist() == [record.source for record in records]
    assert frames.turns["source"].tolist() == [turn.source for record in records for turn in record.turns]


@pytest.mark.parametrize("record_type", ["match", "turn"])
def test_unknown_source_is_refused_in_one_line(finished_run: Path, record_type: str) -> None:
    row = RunReader(finished_run).log.read(1)[0]
    (row if record_type == "match" else row["turns"][0])["source"] = "divine\n"
    with pytest.raises(RecordError, match=r"its source 'divine\\n' is none of p.*: restore the log from a copy$"):
        MatchRecord.from_json(json.loads(json.dumps(row)))


@pytest.mark.slow
def test_sources_of_demonstrations_and_recalled_trajectories(
    finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recalled trajectory equals the one that was played except for its source."""
    seen: list[Trajectory] = []
    to_samples = Demonstrations._to_samples
    monkeypatch.setattr(
        Demonstrations, "_to_samples", lambda self, found: (seen.extend(found), to_samples(self, found))[1]
    )
    config = make_experiment("iterations=1", f"learn.demonstrations={{run: {finished_run}, matches: 3}}")
    lab: Lab = run_lab(tmp_path / "run", config, RecordingWatcher())
    samples = wait(lab.parts.demonstrations.play_scripted("shared", 0, ["random"], 4))
    assert samples and all(sample.learned.all() for sample in samples)
    assert len(seen) > 6 and {turn.source for found in seen for turn in found.turns} == {"demonstration"}
    log = RunReader(finished_run).log
    original = trained_trajectories(map(MatchRecord.from_json, log.read(1)))[0]
    (recalled,) = load_recalled(log, [Entry(original.match, original.seat, "shared", "", 0.0)])
    assert recalled == replace(original, source="recalled") and original.source == "played"
