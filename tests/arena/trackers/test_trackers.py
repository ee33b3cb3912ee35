"""Trackers receive every committed row once, and never stop or delay a run."""

import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from arena.errors import ConfigError, StoreError
from arena.store.run import RunFolder
from arena.trackers import threads
from arena.trackers.samples import MAX_MATCH, SAMPLES, SampleMatch, draw_samples, to_sample
from arena.trackers.settings import check_installed
from arena.trackers.tensorboard_run import format_table
from arena.trackers.threads import Trackers, TrackerThread, flatten_figures
from arena.trackers.wandb_run import DEFAULTS
from tests.factories import fake_wandb
from tests.factories.labs import RecordingWatcher, make_experiment, run_lab
from tests.factories.made_run import make_run


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Return iterations 0 to 3, none of them committed."""
    return make_run(tmp_path / "run", iterations=4, live=False)


def commit(run: RunFolder, iteration: int) -> None:
    run.checkpoint(iteration, lambda folder: None)


# -- sample matches ------------------------------------------------------------------------------------------


def test_samples_are_reproducible_and_of_finished_matches(run: RunFolder) -> None:
    samples = {k: [match.match for match in draw_samples(run.reader.log, k, seed=3)] for k in (1, 2)}
    assert samples == {k: [match.match for match in draw_samples(run.reader.log, k, seed=3)] for k in (1, 2)}
    assert all(len(ids) == min(3, SAMPLES) for ids in samples.values()), "the fourth match failed"


def test_sample_shows_acts_and_no_private_view(run: RunFolder) -> None:
    (match, *_) = draw_samples(run.reader.log, 1, seed=0)
    assert match.said == "opener: OFFER 1 0 2\nresponder: ACCEPT (not a legal act)"
    assert match.payoffs.startswith("opener ") and match.outcome.startswith("finished, deal ")
    assert match.roles.startswith("opener: the_opener (shared@1)")
    assert "greed" not in str(match) and "Your turn" not in str(match)


def test_a_hostile_match_is_bounded_text(run: RunFolder) -> None:
    row: dict[str, Any] = next(row for row in run.reader.matches() if row["status"] == "finished")
    acts = ["x\x1b[2J\u202e\x00\u2028y" * 100_000, "|<script>`*\n# h"]
    turns = [{**turn, "action": act} for turn, act in zip(row["turns"] * 500, acts * 500, strict=True)]
    sample = to_sample({**row, "turns": turns})
    assert len(sample.said) < MAX_MATCH + 100 and not {"\x1b", "\u202e", "\0", "\u2028"} & set("".join(sample))
    table = format_table([sample])
    assert table.count("\n") == 2 and "<script" not in table and "`" not in table
    assert {line.count("|") for line in table.splitlines()} == {len(SampleMatch._fields) + 1}


# -- each row once -------------------------------------------------------------------------------------------


class RecordingTracker:
    """Tracker that keeps the iterations it was given, and fails at one."""

    def __init__(self) -> None:
        self.iterations: list[int] = []
        self.fails_at = -1

    def log(self, iteration: int, figures: Mapping[str, float], samples: list[SampleMatch]) -> None:
        if iteration == self.fails_at:
            raise OSError("the disk is full")
        assert figures and samples
        self.iterations.append(iteration)

    def close(self) -> None:
        pass


@pytest.fixture
def recording_tracker(monkeypatch: pytest.MonkeyPatch) -> RecordingTracker:
    tracker = RecordingTracker()
    monkeypatch.setattr(threads, "open_tracker", lambda name, reader, id: tracker)
    return tracker


def test_rows_are_sent_once_across_resumes(run: RunFolder, recording_tracker: RecordingTracker) -> None:
    commit(run, 1)
    first = TrackerThread("wandb", run.path, 0)
    first.update()
    first.close(60)
    commit(run, 3)
    again = TrackerThread("wandb", run.path, 0)
    again.close(60)
    assert recording_tracker.iterations == [1, 2, 3] and again.id == first.id


def test_a_row_that_failed_is_sent_when_the_run_is_resumed(run: RunFolder, recording_tracker: RecordingTracker) -> None:
    recording_tracker.fails_at = 2
    commit(run, 3)
    with pytest.raises(threads.TrackerError, match="OSError: the disk is full"):
        TrackerThread("wandb", run.path, 0).close(60)
    recording_tracker.fails_at = -1
    TrackerThread("wandb", run.path, 0).close(60)
    assert recording_tracker.iterations == [1, 2, 3]


def test_flatten_figures() -> None:
    row = {"iteration": 3, "a": {"b": 1, "c": None}, "valid": 0.5, "recalled": [{"x": 1}]}
    assert dict(flatten_figures(row)) == {"a/b": 1.0, "valid": 0.5}


# -- a thread of its own --------------------------------------------------------------------------------------


@pytest.fixture
def fake_wandb_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install a fake wandb, and yield the file that it writes."""
    monkeypatch.syspath_prepend(fake_wandb.install(tmp_path / "packages"))
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.setenv("FAKE_WANDB", str(tmp_path / "sent.jsonl"))
    monkeypatch.setenv("FAKE_API_KEY", "0123456789abcdef")
    for name in ("WANDB_MODE", "WANDB_DIR", "WANDB_PROJECT", *DEFAULTS):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path / "sent.jsonl"
    sys.modules.pop("wandb", None)  # `delitem` restores the old module, but does not remove a new one


def read_sent(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def list_steps(file: Path) -> list[int]:
    return [body["step"] for kind, body in read_sent(file) if kind == "log"]


def track_commits(run: RunFolder, *committed: int) -> list[str]:
    """Let wandb follow these commits; return the notes."""
    notes: list[str] = []
    with Trackers(["wandb"], run.path, 0, notes.append) as trackers:
        for iteration in committed:
            commit(run, iteration)
            trackers.update()
    return notes


def test_committed_iterations_are_sent_offline_and_once(run: RunFolder, fake_wandb_file: Path) -> None:
    assert track_commits(run, 2) == [] and track_commits(run, 3) == []
    assert [kind for kind, _ in read_sent(fake_wandb_file)] == ["init", "log", "log", "finish", "init", "log", "finish"]
    assert list_steps(fake_wandb_file) == [1, 2, 3]
    inits = [body for kind, body in read_sent(fake_wandb_file) if kind == "init"]
    assert inits[0]["id"] == inits[1]["id"] and {init["mode"] for init in inits} == {"offline"}
    assert inits[0]["dir"] == str(run.path / "trackers")
    row = read_sent(fake_wandb_file)[1][1]
    assert row["reward/opener"] == 1 and len(row["matches"]) == 3 and "OFFER 1 0 2" in row["matches"][0]["said"]


def test_a_tracker_that_fails_is_reported_once_without_keys(
    run: RunFolder, fake_wandb_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's environment can ask for more than offline."""
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("FAKE_FAILS_AT", "2")
    (note,) = track_commits(run, 1, 2, 3)
    assert note.startswith("tracker wandb failed (the run continues without it): OSError: no network: ")
    assert "0123456789abcdef" not in note and "\x1b" not in note
    assert read_sent(fake_wandb_file)[0][1]["mode"] == "online"
    monkeypatch.delenv("FAKE_FAILS_AT")
    assert track_commits(run, 3) == [] and list_steps(fake_wandb_file) == [1, 2, 3]


def test_a_tracker_that_hangs_delays_nothing(
    run: RunFolder, fake_wandb_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_HANGS_AT", "1")
    monkeypatch.setattr(threads, "CLOSE_TIMEOUT", 0.2)
    commit(run, 3)
    notes: list[str] = []
    with Trackers(["wandb"], run.path, 0, notes.append) as trackers:
        while not (fake_wandb_file.exists() and read_sent(fake_wandb_file)):
            time.sleep(0.05)
        started = time.monotonic()
        for _ in range(1000):
            trackers.update()
        assert time.monotonic() - started < 20
    assert notes == [
        "tracker wandb failed (the run continues without it): not finished after 0.2 s: "
        "arena resume sends the missing rows"
    ]


def test_a_tracker_that_exits_does_not_end_the_run(
    run: RunFolder, recording_tracker: RecordingTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording_tracker, "log", lambda *_: sys.exit(3))
    assert track_commits(run, 1) == ["tracker wandb failed (the run continues without it): SystemExit: 3"]


# -- in a lab ------------------------------------------------------------------------------------------------


def test_failing_tensorboard_is_reported_once_and_the_run_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_disk_full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("arena.trackers.tensorboard_run.Run.log", raise_disk_full)
    watcher = RecordingWatcher()
    run_lab(tmp_path / "run", make_experiment("policies.shared.imitate=null"), watcher)
    assert [row["iteration"] for row in watcher.rows] == [1, 2]
    (note,) = [text for k, text in watcher.phases if text.startswith("tracker")]
    assert note.startswith("tracker tensorboard failed (the run continues without it): ") and "No space left" in note


def test_tensorboard_shows_figures_and_matches_unless_asked_otherwise(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    quick = ["iterations=2", "policies.shared.imitate=null"]
    run_lab(tmp_path / "none", make_experiment("tracker=[]", *quick[1:], "iterations=1"))
    assert not (tmp_path / "none" / "tensorboard").exists()
    run_lab(tmp_path / "run", make_experiment(*quick))
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("seconds/play")] == [1, 2]
    (tag,) = events.Tags()["tensors"]
    text = events.Tensors(tag)[0].tensor_proto.string_val[0].decode()
    assert tag.startswith("matches") and text.count("\n") == 1 + SAMPLES and "nano&#95;opener" in text


def test_missing_tracker_is_refused_with_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arena.trackers.settings.find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"tracker: trackio is not installed: pip install 'arena-selfplay\[trackio\]'"
    ):
        check_installed(["trackio"])


def test_folder_named_like_a_package_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nowhere_at_all" / "offline-run").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="not installed"):
        check_installed(["nowhere_at_all"])  # type: ignore[list-item]


def test_file_in_place_of_the_tensorboard_folder_is_refused(run: RunFolder) -> None:
    (run.path / "tensorboard").touch()
    with pytest.raises(StoreError, match="tensorboard is not a folder"):
        Trackers(["tensorboard"], run.path, 0, print)
