"""Policies of each family of vision-language models play, learn and are saved, with frozen towers and pixel budgets."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agents.layouts import VisionSettings
from agents.policy import Policy, load_module, load_tokenizer_and_frame, trainable_parameters
from agents.vision import get_vision
from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.sources import set_layer, text_layer
from arena.errors import ConfigError
from arena.evaluate.specs import read_spec
from arena.preflight import preflight
from arena.records import MatchRecord
from arena.store.run import RunFolder
from tests.factories.eyes import FAMILIES, compute_reference_scores, save_vision_model
from tests.factories.labs import run_lab
from tests.factories.seeing import make_vision_config

Configs = Callable[[str], str]


@pytest.fixture(scope="module")
def make_config(tmp_path_factory: pytest.TempPathFactory) -> Configs:
    configs: dict[str, str] = {}

    def get_config(family: str) -> str:
        if family not in configs:
            folder = tmp_path_factory.mktemp(family)
            configs[family] = make_vision_config(folder, 0, lambda path, seed: save_vision_model(path, family, seed))
        return configs[family]

    return get_config


def make_experiment(config: str, *assignments: str) -> Experiment:
    plain = ("policies.shared.imitate=null", "iterations=1", "play.matches=4", "play.group=2")
    return compose([text_layer("test", config), *map(set_layer, (*plain, *assignments))])


def read_weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(load_module(folder, frozen=True).named_parameters())


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "smolvlm"])
def test_family_plays_like_transformers_and_learns(family: str, make_config: Configs, tmp_path: Path) -> None:
    run_lab(tmp_path / "run", make_experiment(make_config(family)))
    run = RunFolder.open(tmp_path / "run")
    (row,) = run.reader.metrics()
    assert row["learn"]["shared"]["logprob_gap"] < 1e-5 and row["learn"]["shared"]["skipped"] == 0
    model = load_module(Path(make_experiment(make_config(family)).policies["shared"].model), frozen=True)
    vision: Any = get_vision(model)
    for logged in run.reader.log.read(1):
        (stream,) = MatchRecord.from_json(logged, run.reader.log.blobs.get).streams["viewer"]
        assert len(stream.media) == 2
        expected = compute_reference_scores(model, vision, stream, vision.image_token).numpy()
        assert np.array(stream.logprobs)[stream.mask] == pytest.approx(expected, abs=2e-5)


def test_a_frozen_tower_is_not_trained_but_its_connector_is(make_config: Configs, tmp_path: Path) -> None:
    experiment = make_experiment(make_config("qwen2_5_vl"), "policies.shared.freeze=[vision]")
    run_lab(tmp_path / "run", experiment)
    before = read_weights(Path(experiment.policies["shared"].model))
    after = read_weights(tmp_path / "run" / "checkpoints" / "0001" / "policies" / "shared")
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert not {name for name in changed if "visual" in name and "merger" not in name}
    assert any("visual.merger" in name for name in changed) and any("language_model" in name for name in changed)


@pytest.mark.parametrize("family", FAMILIES)
def test_frozen_tower_excludes_the_connector(family: str, tmp_path: Path) -> None:
    folder = save_vision_model(tmp_path / "model", family)
    policy = Policy.load("p", folder, folder, train=True, vision_settings=VisionSettings(frozen=True))
    learned = {
        name for name in trainable_parameters(policy.model) if "language_model" not in name and "text_model" not in name
    }
    assert learned and all(
        any(part in name for part in ("merger", "connector", "projector", "lm_head")) for name in learned
    )


def test_pixel_budget_shrinks_images(make_config: Configs, tmp_path: Path) -> None:
    experiment = make_experiment(make_config("qwen2_vl"), "policies.shared.images={pixels: 300}")
    run_lab(tmp_path / "run", experiment)
    for logged in RunFolder.open(tmp_path / "run").reader.log.read(1):
        (stream,) = MatchRecord.from_json(logged).streams["viewer"]
        assert [(span.length, span.size) for span in stream.media] == [(4, (16, 16))] * 2
    saved = tmp_path / "run" / "checkpoints" / "0001" / "policies" / "shared"
    token = load_tokenizer_and_frame(saved)[1].image
    assert token and token.fit and token.fit(48, 48).tokens == 4


def test_evaluated_adapter_uses_its_runs_pixel_budget(make_config: Configs, tmp_path: Path) -> None:
    adapter = ["policies.shared.images={pixels: 300}", "policies.shared.adapter={rank: 2, targets: [q_proj]}"]
    run_lab(tmp_path / "run", make_experiment(make_config("qwen2_vl"), *adapter))
    token = read_spec(f"{tmp_path}/run", trust=True).load_policy("shared", "evaluated").frame.image
    assert token and token.fit and token.fit(48, 48).tokens == 4


@pytest.mark.parametrize(
    ("family", "assignment", "reason"),
    [
        ("qwen2_vl", "images={pixels: 10}", "a token has 64 pixels, so an image cannot have 10"),
        ("gemma3", "images={pixels: 100}", "the model scales every image to 32 x 32 pixels"),
        ("gemma3", "model=nano", ""),
    ],
)
def test_settings_that_do_not_fit_the_model_are_refused(
    family: str, assignment: str, reason: str, make_config: Configs
) -> None:
    more = [] if reason else ["policies.shared.freeze=[vision]"]
    with pytest.raises(ConfigError, match=reason or r"policies\.shared\.freeze: nano has no vision") as error:
        wait(preflight(make_experiment(make_config(family), f"policies.shared.{assignment}", *more), lambda text: None))
    assert "\n" not in str(error.value)


def test_an_adapter_learns_on_a_model_of_another_family(make_config: Configs, tmp_path: Path) -> None:
    run_lab(tmp_path / "run", make_experiment(make_config("qwen3_vl"), "policies.shared.adapter={rank: 2}"))
    (row,) = RunFolder.open(tmp_path / "run").reader.metrics()
    assert row["learn"]["shared"]["logprob_gap"] < 1e-5 and row["learn"]["shared"]["grad_norm"] > 0
