"""The stage `average`: means by hand, refusals, and a pipeline that continues from the mean."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from arena.cli.loop import wait
from arena.config.pipeline import read_pipeline
from arena.config.sources import text_layer
from arena.errors import ConfigError
from arena.pipelines.running import resume_pipeline, start_pipeline
from arena.stages.average import average_weights
from arena.store.checkpoints import newest
from tests.factories.labs import RecordingWatcher

PIPELINE = """
name: merged
precision: fp32
threads: 1
game: {name: kuhn_poker, options: {illegal: end, talk: false}}
policies:
  player: {model: nano, imitate: {scripted: [random], matches: 64, epochs: 2, minibatches: 4, lr: 1e-3}}
seats:
  first: {role: nano_kuhn, policy: player}
  second: {role: nano_kuhn, policy: player}
play: {matches: 32}
learn: {lr: 1e-3, warmup_steps: 0}
stages:
  - {name: base, play: {iterations: 1}}
  - {name: one, play: {iterations: 1, policies: {player: {model: "stage:base"}}}}
  - {name: other, play: {iterations: 1, policies: {player: {model: "stage:base"}}, learn: {lr: 1e-2}}}
  - average: {policy: player, models: ["stage:one", "stage:other"], shares: [3, 1]}
  - {name: last, play: {iterations: 1, learn: {lr: 0.0}}}
"""


def save_model(folder: Path, **tensors: list[float]) -> Path:
    folder.mkdir()
    save_file({name: torch.tensor(values) for name, values in tensors.items()}, folder / "model.safetensors")
    save_file({"moment": torch.ones(1)}, folder / "optimizer.safetensors")
    return folder


def test_weights_are_averaged_by_share(tmp_path: Path) -> None:
    folders = [save_model(tmp_path / "a", w=[1.0, 2.0]), save_model(tmp_path / "b", w=[3.0, -2.0])]
    assert average_weights(folders, [0.75, 0.25])["w"].tolist() == [1.5, 1.0]


@pytest.mark.parametrize("other", [{"w": [1.0]}, {"v": [1.0, 2.0]}, {"w": [1.0, 2.0], "v": [1.0]}])
def test_models_of_other_shapes_are_refused(tmp_path: Path, other: dict[str, list[float]]) -> None:
    folders = [save_model(tmp_path / "a", w=[1.0, 2.0]), save_model(tmp_path / "b", **other)]
    with pytest.raises(ConfigError, match="tensor's name or shape"):
        average_weights(folders, [0.5, 0.5])


def test_pipeline_continues_from_the_mean(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    wait(start_pipeline(read_pipeline([text_layer("test", PIPELINE)]), folder, RecordingWatcher()))

    def load_weights(stage: str) -> dict[str, torch.Tensor]:
        return load_file(newest(folder / "stages" / stage).folder / "policies" / "player" / "model.safetensors")

    first, second, mean, last = (load_weights(name) for name in ("02-one", "03-other", "04-average", "05-last"))
    assert any(not torch.equal(first[name], second[name]) for name in first)
    for name, tensor in mean.items():
        assert torch.allclose(tensor, 0.75 * first[name] + 0.25 * second[name], atol=1e-6)
        assert torch.equal(tensor, last[name])

    for removed in (["done.json"], ["done.json", "checkpoints"]):  # as if killed after or before its checkpoint
        for name in removed:
            path = folder / "stages" / "04-average" / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.rmtree(folder / "stages" / "05-last")
        wait(resume_pipeline(folder, RecordingWatcher()))
        again = load_weights("04-average")
        assert all(torch.equal(tensor, again[name]) for name, tensor in mean.items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("policy: player, models", "policy: plyer, models"), "no policy 'plyer' — did you mean 'player'"),
        (("shares: [3, 1]", "shares: [3, 1, 1]"), "one for each of the 2 models"),
        (("shares: [3, 1]", "shares: [3, -1]"), "shares"),
        (('models: ["stage:one", "stage:other"]', 'models: ["stage:one"]'), "models"),
    ],
)
def test_bad_settings_are_refused_before_the_first_stage(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        wait(
            start_pipeline(
                read_pipeline([text_layer("test", PIPELINE.replace(*change))]), tmp_path / "run", RecordingWatcher()
            )
        )
    assert not (tmp_path / "run" / "stages").exists()
