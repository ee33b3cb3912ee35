"""A pipeline that grounds a policy and then plays with images: weights carry over, and resume is bit-equal."""

import json
from functools import partial
from pathlib import Path

import pytest

from arena.cli.loop import wait
from arena.config.pipeline import Pipeline, read_pipeline
from arena.config.sources import set_layer, text_layer
from arena.config.staging import plan
from arena.errors import ConfigError, Interrupted
from arena.pipelines.running import resume_pipeline, start_pipeline
from arena.store.reader import RunReader
from arena.store.stages import read_stage_end
from tests.factories.labs import RecordingWatcher
from tests.factories.lessons import GAME
from tests.factories.pipelines import read_results
from tests.factories.seeing import ROLE

CONFIG = f"""\
name: seeing
seed: 3
threads: 1
precision: fp32
tracker: []
game: {json.dumps(GAME)}
policies:
  viewer: {{model: nano-vlm}}
seats:
  viewer: {{role: ROLE, policy: viewer}}
play: {{matches: 8, group: 4}}
learn: {{lr: 1e-3, gate_tolerance: 0.0001, regularisers: {{kl: {{weight: 0.0}}}}}}
checkpoint: {{keep: 1}}
stages:
  - name: see
    ground: {{policy: viewer, kinds: {{cells: 1}}, steps: 6, batch: 8, lessons: 32, held_out: 8, iterations: 2}}
  - name: more
    ground: {{policy: viewer, kinds: cells, loss: words, steps: 4, batch: 8, lessons: 32, held_out: 8, iterations: 2}}
  - name: rl
    play:
      iterations: 2
      policies: {{viewer: {{imitate: {{scripted: [namer], matches: 16, epochs: 1, minibatches: 4}}}}}}
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    role = tmp_path / "viewer.yaml"
    role.write_text(ROLE)
    return CONFIG.replace("ROLE", str(role))


def make_pipeline(text: str, *assignments: str) -> Pipeline:
    return read_pipeline([text_layer("test", text), *map(set_layer, assignments)])


def is_phase(wanted: tuple[int, str], what: str, value: object) -> bool:
    return what == "phase" and value == wanted


@pytest.mark.slow
def test_stages_start_from_grounded_weights_and_resume_is_bit_equal(config: str, tmp_path: Path) -> None:
    uninterrupted = wait(start_pipeline(make_pipeline(config), tmp_path / "whole", RecordingWatcher()))
    stages = [uninterrupted / "stages" / name for name in ("01-see", "02-more", "03-rl")]
    weights = [done.weights["viewer"] for stage in stages if (done := read_stage_end(stage))]
    assert RunReader(stages[1]).environment()["experiment"]["ground"]["policy"] == "viewer"
    assert RunReader(stages[2]).environment()["experiment"]["policies"]["viewer"]["model"] == str(weights[1])
    assert len({(folder / "model.safetensors").read_bytes() for folder in weights}) == 3

    for phase in ((2, "learn"), (1, "learn")):  # in the second stage; then while it plays and learns
        stopped = RecordingWatcher(partial(is_phase, phase))
        interrupted = tmp_path / f"begun{phase[0]}"
        with pytest.raises(Interrupted):
            wait(start_pipeline(make_pipeline(config), interrupted, stopped))
        wait(resume_pipeline(interrupted, RecordingWatcher()))
        assert read_results(interrupted) == read_results(uninterrupted)


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["stages.see.ground.policy=viewers"], "stage see: policy: there is no policy 'viewers'"),
        (["stages.see.ground.kinds={cells: 0}"], "kinds"),
        (["stages.see.ground.loss=word"], "loss"),
        (["stages.see.ground.steps=0"], "steps"),
        (["stages.see.ground.game={nam: zoom}"], "game"),
    ],
)
def test_invalid_settings_give_one_line(assignments: list[str], message: str, config: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        plan(make_pipeline(config, *assignments), tmp_path, lambda text: None)
    assert "\n" not in str(error.value)


def test_later_stages_are_planned_with_the_initial_models(config: str, tmp_path: Path) -> None:
    *_, last = plan(make_pipeline(config), tmp_path, lambda text: None)
    assert last.is_final and last.composed.policies["viewer"].model == "nano-vlm"  # type: ignore[union-attr]
