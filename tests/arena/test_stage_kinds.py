"""User-defined kinds of stages in one file: one that makes an experiment, and one with its own loop."""

import json
import shutil
from pathlib import Path

import pytest

from arena.cli.loop import wait
from arena.config.pipeline import Pipeline, read_pipeline
from arena.config.sources import set_layer, text_layer
from arena.config.staging import derive_stage_seed, plan
from arena.errors import ConfigError, Interrupted
from arena.pipelines.running import resume_pipeline, start_pipeline
from arena.store.reader import RunReader
from arena.store.stages import read_stage_end
from tests.factories.labs import RecordingWatcher
from tests.factories.pipelines import CONFIG

KINDS = '''\
import json
import shutil
from pathlib import Path


def longer(context, *, times: int = 2):
    """Play an experiment for a multiple of two iterations."""
    seen = {"seed": context.seed, "folders": sorted(context.folders), "weights": sorted(context.weights)}
    context.note(json.dumps({**seen, "game": context.shared["game"]["name"]}))
    return {"iterations": 2 * times, "play": {"matches": 4}}


class Loop:
    def __init__(self, source, fails):
        self.source, self.fails = source, fails

    async def run(self, folder, watcher):
        (folder / "metrics.jsonl").write_text(json.dumps({"iteration": 1, "loss": 0.5}) + "\\n")
        shutil.copytree(self.source, folder / "weights", dirs_exist_ok=True)
        if self.fails.exists():
            raise KeyboardInterrupt

    def weights(self, folder):
        return {"copied": folder / "weights"}


def copies(context, *, policy: str, fails: str = "/nowhere"):
    """Copy a policy's weights, without play."""
    return Loop(context.weights[policy], Path(fails))


def broken(context):
    """Fail."""
    raise ValueError("no such luck")
'''


@pytest.fixture
def kinds_file(tmp_path: Path) -> Path:
    file = tmp_path / "kinds.py"
    file.write_text(KINDS)
    return file


def make_pipeline(*stages: str, changes: tuple[str, ...] = ()) -> Pipeline:
    stage_lines = "".join(f"  - {stage}\n" for stage in stages)
    text = CONFIG[: CONFIG.index("stages:")] + "stages:\n" + stage_lines
    return read_pipeline([text_layer("test", text), *map(set_layer, changes)])


def test_kind_makes_an_experiment_from_its_settings(kinds_file: Path) -> None:
    notes: list[str] = []
    pipeline = make_pipeline(
        "play: {iterations: 1}",
        f"{{{kinds_file}:longer: {{times: 3}}, with: {{learn: {{lr: 0.25}}}}}}",
        changes=("stages.longer.with.play.group=2",),
    )
    experiments = [stage.composed for stage in plan(pipeline, Path("RUN"), notes.append)]
    assert (experiments[1].iterations, experiments[1].learn.lr) == (6, 0.25)  # type: ignore[union-attr]
    assert (experiments[1].play.matches, experiments[1].play.group) == (4, 2)  # type: ignore[union-attr]
    seen = {"seed": derive_stage_seed(3, "longer"), "folders": ["play"], "weights": ["player"], "game": "kuhn_poker"}
    assert json.loads(notes[0]) == seen


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("{tims: 3}", "longer.tims: unknown field — did you mean 'times'?"),
        ("{times: x}", "longer.times: should be a valid integer, not 'x'"),
    ],
)
def test_settings_of_a_kind_are_checked_with_their_line(
    kinds_file: Path, monkeypatch: pytest.MonkeyPatch, settings: str, message: str
) -> None:
    monkeypatch.chdir(kinds_file.parent)
    with pytest.raises(ConfigError) as error:
        plan(make_pipeline("play: {iterations: 1}", f"kinds.py:longer: {settings}"), Path("RUN"), print)
    line = CONFIG[: CONFIG.index("stages:")].count("\n") + 3
    assert str(error.value).startswith(f"stage longer: test:{line}: stages[1].") and message in str(error.value)


def test_failing_or_missing_kind_is_refused(kinds_file: Path) -> None:
    with pytest.raises(ConfigError, match=r"stage broken: .*kinds.py:broken failed: .*no such luck"):
        plan(make_pipeline(f"{kinds_file}:broken: {{}}"), Path("RUN"), print)
    with pytest.raises(ConfigError, match=r"longr"):
        make_pipeline(f"{kinds_file}:longr: {{}}")
    with pytest.raises(ConfigError, match="makes no experiment, so these settings would change nothing"):
        plan(
            make_pipeline("play: {iterations: 1}", f"{{{kinds_file}:copies: {{policy: player}}, with: {{seed: 1}}}}"),
            Path("R"),
            print,
        )


@pytest.mark.slow
def test_own_loop_is_run_sealed_and_continued_from(kinds_file: Path, tmp_path: Path) -> None:
    """An interrupted loop is run again; the next stage uses its weights, and its code is recorded."""
    stop_file, folder = tmp_path / "stop", tmp_path / "run"
    stop_file.touch()
    pipeline = make_pipeline(
        "play: {iterations: 1}",
        f"{kinds_file}:copies: {{policy: player, fails: {stop_file}}}",
        "{name: last, play: {iterations: 1, policies: {old: {model: stage:copies, train: false}}, "
        "seats: {second: {policy: old}}}}",
    )
    with pytest.raises(Interrupted, match="arena resume"):
        wait(start_pipeline(pipeline, folder, RecordingWatcher()))
    stage_folder = folder / "stages" / "02-copies"
    assert (stage_folder / "weights").exists() and read_stage_end(stage_folder) is None
    with pytest.raises(ConfigError, match=r"the settings of .*copies cannot change now"):
        wait(resume_pipeline(folder, RecordingWatcher(), [set_layer("iterations=3")]))
    stop_file.unlink()
    wait(resume_pipeline(folder, RecordingWatcher()))
    done = read_stage_end(stage_folder)
    assert (
        done and done.weights == {"copied": stage_folder / "weights"} and done.metrics == {"iteration": 1, "loss": 0.5}
    )
    experiment = RunReader(folder / "stages" / "03-last").environment()["experiment"]["policies"]
    assert experiment["old"]["model"] == str(stage_folder / "weights")
    assert experiment["player"]["model"].startswith(str(folder / "stages" / "01-play" / "checkpoints"))
    shutil.rmtree(folder / "stages" / "03-last")
    kinds_file.write_text(KINDS + "# edited\n")
    with pytest.raises(ConfigError, match="read it, then pass --trust"):
        wait(resume_pipeline(folder, RecordingWatcher()))
