"""Runs with a seat played by an agent program: learning, resumption, and one-line refusals."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from arena.config import own_files
from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.seating import resolve_tables
from arena.config.sources import set_layer, text_layer
from arena.errors import ConfigError
from arena.export.chats import Chats
from arena.export.selection import Selection
from arena.parts.paths import anchor_paths
from arena.records import MatchRecord, trained_trajectories
from arena.store.run import RunFolder
from tests.factories.harness import PROGRAMS, make_command
from tests.factories.labs import run_lab

RUN = f"""\
name: own
iterations: 2
threads: 1
game: {{name: tasks}}
policies: {{shared: {{model: nano}}}}
seats: {{agent: {{role: {PROGRAMS}/agent.yaml, policy: shared, harness: "{make_command("rewriter")}"}}}}
play: {{matches: 4, group: 2, in_flight: 4}}
credit: {{stages: [{{length: {{penalty: 0.1, free: 2}}}}]}}
learn: {{lr: 1e-3, gate_tolerance: 0.01}}
tracker: []
"""


def make_experiment(*assignments: str) -> Experiment:
    """Return the run's experiment after assignments."""
    return compose([text_layer("test", RUN), *map(set_layer, assignments)])


@pytest.mark.slow
def test_a_policy_learns_from_matches_of_a_program(tmp_path: Path) -> None:
    """The gate compares the sampled tokens of every stream with the trainer's, and stops the run if they differ."""
    lab = run_lab(tmp_path / "run", make_experiment())
    run = RunFolder.open(tmp_path / "run")
    rows = [MatchRecord.from_json(row) for row in run.reader.matches()]
    assert len(rows) == 8 and all(row.status == "finished" for row in rows)
    assert {turn.source for row in rows for turn in row.turns} == {"request", "policy"}
    learned = trained_trajectories(rows)
    assert len(learned) == 8 and all(len(trajectory.streams) > 1 for trajectory in learned)
    metrics = run.reader.metrics()
    assert all(row["learn"]["shared"]["tokens"] > 0 for row in metrics) and lab.policies["shared"].version == 2
    chats = Chats(run.reader, Selection(policies=("shared",)), trust=True)
    assert not [rows for rows in chats.rows() if rows] and "agent program" in next(iter(chats.left_out))


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("seats.agent.policy=endpoint:m", "an agent program asks a policy with weights, and 'endpoint:m' has none"),
        (f"seats.agent.harness={sys.executable} nope.py", "there is no file nope.py"),
        ("seats.agent.harness=nonesuch", "there is no program 'nonesuch'"),
        ("policies.shared.imitate={scripted: [random]}", "leave out imitate"),
        ("evaluate={games: [{name: tasks}]}", "leave `evaluate` out"),
    ],
)
def test_refuses_seats_that_no_program_can_play(assignment: str, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        resolve_tables(make_experiment(assignment))


def test_an_empty_command_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"seats\.agent\.harness"):
        make_experiment("seats.agent.harness=''")


def test_files_of_a_command_get_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("my_agent.py", "score.py", "tasks.jsonl"):
        (tmp_path / name).touch()
    config: Any = anchor_paths(
        make_experiment(
            "seats.agent.harness=python my_agent.py", "game.options={reward: 'score.py:f', file: tasks.jsonl}"
        )
    )
    assert config.seats["agent"].harness == f"python {tmp_path}/my_agent.py"
    assert config.game.options == {"reward": f"{tmp_path}/score.py:f", "file": f"{tmp_path}/tasks.jsonl"}


def test_foreign_run_starts_no_program_without_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_files, "home", lambda: tmp_path / "home")
    config = make_experiment()
    with pytest.raises(ConfigError, match=r"would run the agent program .*--trust"):
        own_files.admit_experiment(tmp_path, config, (), config)
    own_files.admit_experiment(tmp_path, make_experiment("seats.agent.harness=python"), (), config)
    own_files.admit_experiment(tmp_path, config, (), config, trust=True)
    own_files.admit_experiment(tmp_path, config, (), config)
