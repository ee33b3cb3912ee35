"""Kinds of stages of one's own, in one file: one that makes an experiment, and one with a loop of its own."""

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
def kinds(tmp_path: Path) -> Path:
    file = tmp_path / "kinds.py"
    file.write_text(KINDS)
    return file


def chain(*stages: str, changes: tuple[str, ...] = ()) -> Pipeline:
    listed = "".join(f"  - {stage}\n" for stage in stages)
    text = CONFIG[: CONFIG.index("stages:")] + "stages:\n" + listed
    return read_pipeline([text_layer("test", text), *map(set_layer, changes)])


def test_a_kind_makes_an_experiment_of_its_settings(kinds: Path) -> None:
    notes: list[str] = []
    given = chain(
        "play: {iterations: 1}",
        f"{{{kinds}:longer: {{times: 3}}, with: {{learn: {{lr: 0.25}}}}}}",
        changes=("stages.longer.with.play.group=2",),
    )
    made = [stage.made for stage in plan(given, Path("RUN"), notes.append)]
    assert (made[1].iterations, made[1].learn.lr) == (6, 0.25)  # type: ignore[union-attr]
    assert (made[1].play.matches, made[1].play.group) == (4, 2)  # type: ignore[union-attr]
    seen = {"seed": derive_stage_seed(3, "longer"), "folders": ["play"], "weights": ["player"], "game": "kuhn_poker"}
    assert json.loads(notes[0]) == seen


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("{tims: 3}", "longer.tims: unknown field — did you mean 'times'?"),
        ("{times: x}", "longer.times: should be a valid integer, not 'x'"),
    ],
)
def test_settings_of_a_kind_are_checked_with_their_line(
    kinds: Path, monkeypatch: pytest.MonkeyPatch, settings: str, says: str
) -> None:
    monkeypatch.chdir(kinds.parent)
    with pytest.raises(ConfigError) as raised:
        plan(chain("play: {iterations: 1}", f"kinds.py:longer: {settings}"), Path("RUN"), print)
    line = CONFIG[: CONFIG.index("stages:")].count("\n") + 3
    assert str(raised.value).startswith(f"stage longer: test:{line}: stages[1].") and says in str(raised.value)


def test_a_kind_that_fails_or_is_not_there_is_told(kinds: Path) -> None:
    with pytest.raises(ConfigError, match=r"stage broken: .*kinds.py:broken failed: .*no such luck"):
        plan(chain(f"{kinds}:broken: {{}}"), Path("RUN"), print)
    with pytest.raises(ConfigError, match=r"longr"):
        chain(f"{kinds}:longr: {{}}")
    with pytest.raises(ConfigError, match="makes no experiment that these settings could change"):
        plan(
            chain("play: {iterations: 1}", f"{{{kinds}:copies: {{policy: player}}, with: {{seed: 1}}}}"),
            Path("R"),
            print,
        )


@pytest.mark.slow
def test_a_loop_of_its_own_is_run_sealed_and_started_from(kinds: Path, tmp_path: Path) -> None:
    """Interrupted in its loop, it is run again; the next stage names its weights, and its own code is kept in mind."""
    stop, folder = tmp_path / "stop", tmp_path / "run"
    stop.touch()
    given = chain(
        "play: {iterations: 1}",
        f"{kinds}:copies: {{policy: player, fails: {stop}}}",
        "{name: last, play: {iterations: 1, policies: {old: {model: stage:copies, train: false}}, "
        "seats: {second: {policy: old}}}}",
    )
    with pytest.raises(Interrupted, match="arena resume"):
        wait(start_pipeline(given, folder, RecordingWatcher()))
    place = folder / "stages" / "02-copies"
    assert (place / "weights").exists() and read_stage_end(place) is None
    with pytest.raises(ConfigError, match=r"the settings of .*copies cannot change now"):
        wait(resume_pipeline(folder, RecordingWatcher(), [set_layer("iterations=3")]))
    stop.unlink()
    wait(resume_pipeline(folder, RecordingWatcher()))
    done = read_stage_end(place)
    assert done and done.weights == {"copied": place / "weights"} and done.metrics == {"iteration": 1, "loss": 0.5}
    experiment = RunReader(folder / "stages" / "03-last").environment()["experiment"]["policies"]
    assert experiment["old"]["model"] == str(place / "weights")
    assert experiment["player"]["model"].startswith(str(folder / "stages" / "01-play" / "checkpoints"))
    shutil.rmtree(folder / "stages" / "03-last")
    kinds.write_text(KINDS + "# edited\n")
    with pytest.raises(ConfigError, match="read it, then pass --trust"):
        wait(resume_pipeline(folder, RecordingWatcher()))
