"""Reading of pipelines: every mistake gives one line with file, line and stage, and nothing is run."""

from pathlib import Path

import pytest

from arena import resume, run
from arena.config.experiment import Experiment
from arena.config.pipeline import read_pipeline
from arena.config.sources import Layer, file_layer, set_layer, text_layer
from arena.config.staging import EarlierStages, derive_stage_seed, plan
from arena.errors import ConfigError
from arena.parts.part_config import accepts_any_setting
from arena.parts.schedules import SCHEDULE
from tests.factories.commands import arena, get_refusal
from tests.factories.pipelines import CONFIG, make_pipeline

HEAD = CONFIG[: CONFIG.index("stages:")]
LINE = HEAD.count("\n") + 1
"""Line of `stages:`."""


def list_stage_models(stages: str, *layers: Layer) -> list[tuple[str, str]]:
    """Return the name and the policy's model of each stage."""
    pipeline_spec = read_pipeline([text_layer("test", HEAD + stages), *layers])
    experiments = [(stage.spec.name, stage.composed) for stage in plan(pipeline_spec, Path("RUN"), print)]
    return [(name, experiment.policies["player"].model) for name, experiment in experiments]  # type: ignore[union-attr]


def make_stage(text: str) -> str:
    return f"stages:\n  - {text}\n"


FIRST = "stages:\n  - name: a\n    play: {iterations: 1}\n  - name: b\n    play: "

MISTAKES = [
    # structure
    ("stages: 3\n", f"chain.yaml:{LINE}: stages: a list of stages belongs here"),
    ("stages: {play: {}}\n", f"chain.yaml:{LINE}: stages: a list of stages belongs here"),
    ("stages: []\n", f"chain.yaml:{LINE}: stages: 0 stages: a pipeline has 1 to 99"),
    (f"stages: [{', '.join(['play'] * 100)}]\n", "100 stages: a pipeline has 1 to 99"),
    (make_stage("5"), f"chain.yaml:{LINE + 1}: stages[0]: a stage is its kind with settings"),
    (make_stage("name: x"), f"chain.yaml:{LINE + 1}: stages[0]: the stage's kind is missing: one of play"),
    (make_stage("{play: {}, plai: {}}"), "stages[0]: one kind belongs here, not play and plai"),
    (make_stage("plai: {}"),
     f"chain.yaml:{LINE + 1}: stages[0].plai: unknown kind of stage 'plai' — did you mean 'play'?"),
    (make_stage("nosuch.py:f: {}"), "nosuch.py"),
    (make_stage("play: 5"), "stages[0].play: a mapping of settings belongs here"),
    (make_stage("{play: {iterations: 1}, with: {seed: 1}}"), "play takes these settings itself"),
    ("stages: [{play: {iterations: 1}}, {play: {iterations: 1}}]\n", "stages[1]: a second stage with the name 'play'"),
    # settings
    (make_stage("play: {iteration: 5}"), f"stage play: chain.yaml:{LINE + 1}: stages[0].play.iteration: unknown field"),
    (make_stage("play: {}"), "stage play: "),
    (make_stage("play: {iterations: 0}"), "stages[0].play.iterations: should be greater than or equal to 1, not 0"),
    (make_stage("play: {iterations: 1, credit: {estimator: mrs}}"), "unknown estimator 'mrs' — did you mean 'mars'?"),
    (make_stage("play: {iterations: 1, stages: [play]}"), "stage play: "),
    (make_stage("play: {iterations: 1, seats: {first: {policy: nobody}}}"), "stage play: seats.first.policy"),
    # other stages
    (FIRST + "{iterations: 1, policies: {old: {model: stage:c}}}\n",
     f"chain.yaml:{LINE + 4}: stages[1].play.policies.old.model"),
    (FIRST + "{iterations: 1, policies: {old: {model: stage:c}}}\n", "stage:c: there is no stage 'c'"),
    (FIRST + "{iterations: 1, policies: {old: {model: stage:b}}}\n", "stage:b: b is this stage: name an earlier one"),
    (FIRST + "{iterations: 1, policies: {old: {model: 'stage:a:x'}}}\n",
     "stage a trained no policy 'x' (it trained: player)"),
    (FIRST + "{iterations: 1, policies: {old: {model: 'stage:../x'}}}\n", "there is no stage '../x'"),
    (FIRST + "{iterations: 1, policies: {old: {model: 'stage:/etc'}}}\n", "there is no stage '/etc'"),
    (FIRST + "{iterations: 1, source: {log: stage:c}}\n", "stages[1].play.source.log: stage:c: there is no stage 'c'"),
    ("stages: [{play: {iterations: 1, policies: {player: {model: stage:rl}}}}, {name: rl, play: {iterations: 1}}]\n",
     "stage:rl: rl is a later stage: name an earlier one"),
]  # fmt: skip
NAMES = ["../../x", "/etc/passwd", "a/b", ".", "..", "", "A", "a b", "x" * 65, "a\\nb", "\u202ea", "-a", "é"]


@pytest.mark.parametrize(("stages", "message"), MISTAKES)
def test_mistake_gives_one_line_with_file_and_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stages: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("chain.yaml").write_text(HEAD + stages)
    assert message in get_refusal("run", "selfplay", "--config", "chain.yaml", "--out", "run")
    assert not Path("run").exists()


@pytest.mark.parametrize("name", NAMES)
def test_invalid_stage_name_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "chain.yaml"
    file.write_text(HEAD + f'stages:\n  - name: "{name}"\n    play: {{iterations: 1}}\n')
    line = get_refusal("run", "selfplay", "--config", file, "--out", tmp_path / "run")
    assert f"chain.yaml:{LINE + 1}: stages[0].name: " in line and "is not a valid name: use at most 64" in line
    assert not (tmp_path / "run").exists()


def test_stage_name_must_be_text() -> None:
    with pytest.raises(ConfigError, match="5 is not a valid name"):
        read_pipeline([text_layer("test", HEAD + make_stage("{name: 5, play: {}}"))])


def test_bad_pipeline_settings_are_reported() -> None:
    for key, value in (("seed", -1), ("seed", "x"), ("name", "A b"), ("study", 3)):
        with pytest.raises(ConfigError, match=key):
            read_pipeline([text_layer("test", CONFIG), set_layer(f"{key}={value}")])


def test_shared_settings_cannot_name_a_stage() -> None:
    pipeline_spec = make_pipeline("policies.player.model=stage:first")
    with pytest.raises(ConfigError, match=r"policies.player.model: stage:first: only the settings of a stage can name"):
        plan(pipeline_spec, Path("RUN"), print)


def test_stage_reference_is_weights_or_folder_by_key() -> None:
    text = (
        FIRST
        + """{iterations: 1, source: {log: stage:a}, policies: {old: {model: stage:a, train: false}},
      learn: {demonstrations: {run: stage:a}}}
"""
    )
    stages = plan(read_pipeline([text_layer("test", HEAD + text)]), Path("/RUN"), print)
    experiment = stages[1].composed
    assert isinstance(experiment, Experiment) and experiment.source and experiment.learn.demonstrations
    assert experiment.source.log == experiment.learn.demonstrations.run == "/RUN/stages/01-a"
    assert experiment.policies["old"].model == "nano", "before the run, the model with which the policy begins"
    assert [each.is_final for each in stages] == [True, False]


def test_policies_start_from_the_last_stage_that_trained_them() -> None:
    three = FIRST + "{iterations: 1, policies: {player: {model: nano-5}}}\n  - play: {iterations: 1}\n"
    assert list_stage_models(three) == [("a", "nano"), ("b", "nano-5"), ("play", "nano-5")]
    frozen = FIRST + "{iterations: 1, policies: {other: {model: nano-5}}, seats: {first: {policy: other}, "
    frozen += "second: {policy: other}}}\n  - play: {iterations: 1}\n"
    assert list_stage_models(frozen)[2] == ("play", "nano"), "a stage that does not play a policy does not train it"


def test_stage_settings_override_shared_ones_and_later_layers_both() -> None:
    changes = ["iterations=9", "stages.play.play.iterations=7", "learn.lr=0.5"]
    pipeline_spec = make_pipeline(*changes)
    stages = {each.spec.name: each.composed for each in plan(pipeline_spec, Path("RUN"), print)}
    assert [each.iterations for each in stages.values()] == [2, 7, 2]  # type: ignore[union-attr]
    assert [each.learn.lr for each in stages.values()] == [0.5, 5e-4, 0.5]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("stages.plai.play.iterations=1", "no stage 'plai' — did you mean 'play'? (there are first, play, last)"),
        ("stages.0.play.iterations=1", "no stage '0'"),
        ("stages.play.iterations=1", "no iterations here: change the settings under play or with"),
        ("stages.play=1", "settings belong here"),
        ("stages=1", "settings of stages by name belong here"),
    ],
)
def test_change_of_unknown_stage_is_refused(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        make_pipeline(assignment)
    assert message in str(raised.value) and str(raised.value).startswith(f"--set {assignment}")


def test_saved_pipeline_round_trips_with_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("def mine(batch): return batch\n")
    Path("roles").mkdir()
    pipeline_spec = make_pipeline(
        "roles=roles", "stages.play.play.credit.estimator=mine.py:mine", "stages.last.play.roles=roles"
    )
    text = pipeline_spec.with_changes(
        {"threads": 2}, lambda name, model: f"{model}-1" if model == "nano" else model
    ).to_yaml()
    assert str(tmp_path / "mine.py:mine") in text and text.count(str(tmp_path / "roles")) == 2
    reloaded = read_pipeline([text_layer("config.yaml", text)])
    assert reloaded.to_yaml() == reloaded.with_changes({}).to_yaml() == text
    assert "model: nano-1" in text and "model: stage:first:player" in text and "threads: 2" in text


def test_seeds_differ_by_stage_and_repeat() -> None:
    seeds = {derive_stage_seed(seed, name) for seed in range(50) for name in ("a", "b", "aa", "ab")}
    assert len(seeds) == 200 and derive_stage_seed(3, "a") == derive_stage_seed(3, "a")
    pipeline_spec = make_pipeline("stages.first.play.seed=7")
    assert next(each.composed.seed for each in plan(pipeline_spec, Path("RUN"), print)) == 7  # type: ignore[union-attr]


def test_newest_weights_are_those_of_the_last_stage() -> None:
    earlier = EarlierStages().plus("a", Path("a"), {"x": "1", "y": "2"}).plus("b", Path("b"), {"x": "3"})
    assert earlier.newest == {"x": "3", "y": "2"} and list(earlier.folders) == ["a", "b"]


def test_other_parts_accept_only_their_own_settings() -> None:
    assert not any(accepts_any_setting(SCHEDULE, name) for name in SCHEDULE.table)


def test_pipeline_is_checked_as_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "chain.yaml"
    file.write_text(CONFIG)
    assert file_layer(file).data["stages"]
    result = arena("check", "experiment", file)
    assert result.code == 0 and "stage 3: last (play)" in result.out and "chain: fit to run" in result.out
    assert "stage last: " in get_refusal("check", "experiment", file, "--set", "stages.last.play.seats.first.role=none")


def test_python_functions_refuse_pipelines(tmp_path: Path) -> None:
    file = tmp_path / "chain.yaml"
    file.write_text(CONFIG)
    with pytest.raises(ConfigError, match=r"a single experiment is needed, not a pipeline \(arena run selfplay"):
        run(file, out=tmp_path / "run")
    (tmp_path / "run" / "stages" / "01-first").mkdir(parents=True)
    (tmp_path / "run" / "config.yaml").write_text("stages: []")
    for folder in (tmp_path / "run", tmp_path / "run" / "stages" / "01-first"):
        with pytest.raises(ConfigError, match=r"use arena resume .*run$"):
            resume(folder)


def test_opponent_from_a_stage_keeps_its_role(tmp_path: Path) -> None:
    evaluate = "{iterations: 1, evaluate: {games: [{name: kuhn_poker}], against: ['stage:a']}}"
    pipeline_spec = read_pipeline([text_layer("test", HEAD + FIRST + evaluate + "\n")])
    run = tmp_path / "stages" / "01-a"
    run.mkdir(parents=True)
    (run / "config.yaml").touch()
    _, second = plan(pipeline_spec, tmp_path, print)
    assert isinstance(second.composed, Experiment) and second.composed.evaluate
    assert second.composed.evaluate.against == [f"{run}:player"]
