"""Anchoring makes all paths of an experiment absolute and leaves other names unchanged."""

from pathlib import Path

import pytest

from agents.weights import resolve
from arena.config.experiment import Experiment
from arena.config.layers import compose, to_yaml
from arena.config.sources import text_layer
from arena.parts.paths import anchor_paths
from tests.factories.kept_run import make_checkpointed_run

TEXT = """\
name: paths
iterations: 1
roles: roles
game: {name: "race.py:Race"}
policies:
  own: {model: weights}
  built_in: {model: nano}
  hub: {model: someone/model, train: false}
seats:
  first: {role: own.yaml, policy: own}
  second: {role: player, policy: random}
learn: {demonstrations: {run: earlier}}
evaluate:
  games: [{name: kuhn_poker}, {name: "race.py:Race"}]
  against: [random, "mcts:10", earlier, "earlier@3:shared", nano, weights, "endpoint:gpt"]
"""


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    (tmp_path / "weights").symlink_to(resolve("nano-2"))
    (tmp_path / "nano").mkdir()  # a built-in model's name is no path, even if a folder has it
    make_checkpointed_run(tmp_path / "earlier", _3="nano-3")
    make_checkpointed_run(tmp_path / "random", _3="nano-3")  # nor is a scripted policy's
    monkeypatch.chdir(tmp_path)
    return compose([text_layer("paths", TEXT)])


def test_every_path_becomes_absolute(experiment: Experiment, tmp_path: Path) -> None:
    folder = str(tmp_path)
    weights = str((tmp_path / "weights").resolve())
    anchored = anchor_paths(experiment)
    assert (
        anchored.game is not None
        and anchored.seats is not None
        and anchored.evaluate is not None
        and anchored.learn.demonstrations
    )
    assert anchored.roles == f"{folder}/roles"
    assert anchored.game.name == f"{folder}/race.py:Race"
    assert {name: policy.model for name, policy in anchored.policies.items()} == {
        "own": weights,
        "built_in": "nano",
        "hub": "someone/model",
    }
    assert {seat: held.role for seat, held in anchored.seats.items()} == {
        "first": f"{folder}/own.yaml",
        "second": "player",
    }
    assert anchored.learn.demonstrations.run == f"{folder}/earlier"
    assert [game.name for game in anchored.evaluate.games] == ["kuhn_poker", f"{folder}/race.py:Race"]
    assert anchored.evaluate.against == [
        "random", "mcts:10", f"{folder}/earlier", f"{folder}/earlier@3:shared", "nano", weights, "endpoint:gpt",
    ]  # fmt: skip


def test_anchored_paths_do_not_depend_on_the_working_directory(
    experiment: Experiment, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    anchored = anchor_paths(experiment)
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert anchor_paths(anchored) == anchored
    assert compose([text_layer("config.yaml", to_yaml(anchored))]) == anchored, (
        "what a run's config.yaml is read back as"
    )
