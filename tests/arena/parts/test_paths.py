"""Every path in an experiment holds from anywhere; what is no path stays as it is written."""

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
    (tmp_path / "nano").mkdir()  # a built-in model's name is no path, whatever lies there
    make_checkpointed_run(tmp_path / "earlier", _3="nano-3")
    make_checkpointed_run(tmp_path / "random", _3="nano-3")  # nor is a scripted policy's
    monkeypatch.chdir(tmp_path)
    return compose([text_layer("paths", TEXT)])


def test_every_path_becomes_absolute(experiment: Experiment, tmp_path: Path) -> None:
    here = str(tmp_path)
    weights = str((tmp_path / "weights").resolve())
    away = anchor_paths(experiment)
    assert away.game is not None and away.seats is not None and away.evaluate is not None and away.learn.demonstrations
    assert away.roles == f"{here}/roles"
    assert away.game.name == f"{here}/race.py:Race"
    assert {name: policy.model for name, policy in away.policies.items()} == {
        "own": weights,
        "built_in": "nano",
        "hub": "someone/model",
    }
    assert {seat: held.role for seat, held in away.seats.items()} == {"first": f"{here}/own.yaml", "second": "player"}
    assert away.learn.demonstrations.run == f"{here}/earlier"
    assert [game.name for game in away.evaluate.games] == ["kuhn_poker", f"{here}/race.py:Race"]
    assert away.evaluate.against == [
        "random", "mcts:10", f"{here}/earlier", f"{here}/earlier@3:shared", "nano", weights, "endpoint:gpt",
    ]  # fmt: skip


def test_it_is_the_same_from_anywhere(
    experiment: Experiment, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = anchor_paths(experiment)
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert anchor_paths(away) == away
    assert compose([text_layer("config.yaml", to_yaml(away))]) == away, "what a run's config.yaml is read back as"
