"""A pipeline that copies its first stages from another run ends with the same bytes as one that runs them."""

import os
import shutil
from pathlib import Path

import pytest

from agents import strict_yaml
from arena.cli.loop import wait
from arena.config.pipeline import count_equal_stages
from arena.errors import ConfigError, StoreError
from arena.evaluate.study.plan import Plan
from arena.evaluate.study.runs import find_donors
from arena.pipelines.running import resume_pipeline, start_pipeline
from arena.store.reader import FolderReader, RunReader
from arena.store.run import write_environment
from arena.store.stages import read_stage_end as ended
from tests.factories.commands import arena, get_refusal
from tests.factories.labs import RecordingWatcher
from tests.factories.pipelines import CONFIG, STAGES, compose_pipeline, make_pipeline, read_results, run_pipeline

LAST = "stages.last.play.learn.lr=1e-4"


class NoteWatcher(RecordingWatcher):
    """Watcher that keeps the notes."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_pipeline(tmp_path_factory.mktemp("pipeline") / "run")


def test_copied_stages_give_the_same_bytes(source: Path, tmp_path: Path) -> None:
    watcher = NoteWatcher()
    folder = wait(start_pipeline(make_pipeline(LAST), tmp_path / "copied", watcher, source))
    assert [
        note for note in watcher.notes if note.startswith(f"copied from {source}: 01-first, 02-play; settings differ")
    ]
    assert len(watcher.rows) == 2, "only the last stage ran"
    assert read_results(folder) == read_results(run_pipeline(tmp_path / "run", LAST))
    for name in STAGES:
        assert str(source) not in (folder / "stages" / name / "config.yaml").read_text()
        assert ended(folder / "stages" / name)
    shutil.move(source, source.with_name("away"))
    try:
        assert (
            arena("eval", folder / "stages" / STAGES[1], "--game", "kuhn_poker", "--matches", "2", "--json").code == 0
        )
        wait(resume_pipeline(folder, RecordingWatcher()))
        assert (
            RunReader(folder / "stages" / STAGES[1])
            .environment()["experiment"]["policies"]["player"]["model"]
            .startswith(str(folder))
        )
    finally:
        shutil.move(source.with_name("away"), source)


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["seed=4"], "no stage; settings differ: seed (3 → 4)"),
        (["stages.first.play.iterations=1"], "no stage; settings differ: stages.first.play.iterations (2 → 1)"),
    ],
)
def test_nothing_is_copied_from_other_settings(
    source: Path, tmp_path: Path, assignments: list[str], message: str
) -> None:
    watcher = NoteWatcher()
    wait(
        start_pipeline(make_pipeline(*assignments, "stages.last.play.iterations=1"), tmp_path / "run", watcher, source)
    )
    assert any(message in note for note in watcher.notes), watcher.notes


def test_a_stage_that_has_not_ended_is_run(source: Path, tmp_path: Path) -> None:
    partial = tmp_path / "half"
    shutil.copytree(source, partial)
    (partial / "stages" / STAGES[1] / "done.json").unlink()
    watcher = NoteWatcher()
    folder = wait(start_pipeline(make_pipeline(), tmp_path / "run", watcher, partial))
    assert f"copied from {partial}: 01-first; 02-play has not ended there" in watcher.notes
    assert read_results(folder) == read_results(source)


def test_a_damaged_stage_is_refused_and_no_run_begins(source: Path, tmp_path: Path) -> None:
    bad, out = tmp_path / "bad", tmp_path / "out"
    shutil.copytree(source, bad)
    done = ended(bad / "stages" / STAGES[0])
    assert done
    weights = done.weights["player"] / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(StoreError, match="not as it was written"):
        wait(start_pipeline(make_pipeline(), out, RecordingWatcher(), bad))
    assert not out.exists()


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_links_and_pipes_in_a_stage_are_refused(source: Path, tmp_path: Path, kind: str) -> None:
    bad, secret = tmp_path / "bad", tmp_path / "secret"
    shutil.copytree(source, bad)
    secret.write_text("mine")
    planted = bad / "stages" / STAGES[0] / "extra"
    planted.symlink_to(secret) if kind == "link" else os.mkfifo(planted)
    with pytest.raises(StoreError, match="extra is not a plain file"):
        wait(start_pipeline(make_pipeline(), tmp_path / "out", RecordingWatcher(), bad))
    assert "mine" not in "".join(path.read_text("utf-8", "ignore") for path in tmp_path.rglob("out/**/extra"))
    wait(resume_pipeline(tmp_path / "out", RecordingWatcher()))
    assert read_results(tmp_path / "out") == read_results(source), "the run resumes without the copy"


@pytest.mark.parametrize("stages", [5, ["a", "b"], [{"name": 1}], None])
def test_malformed_and_edited_settings_are_refused(source: Path, tmp_path: Path, stages: object) -> None:
    """Also if their environment was sealed again, which a foreign author can do."""
    bad = tmp_path / "bad"
    shutil.copytree(source, bad)
    settings = {**make_pipeline().to_plain(), "stages": stages}
    (bad / "config.yaml").write_text(strict_yaml.dump(settings, "config.yaml"))
    with pytest.raises(ConfigError, match="was edited since its run began"):
        wait(start_pipeline(make_pipeline(), tmp_path / "out", RecordingWatcher(), bad))
    write_environment(bad, {**FolderReader(bad).environment(), "experiment": settings})
    with pytest.raises(ConfigError, match="no list of named stages"):
        wait(start_pipeline(make_pipeline(), tmp_path / "out", RecordingWatcher(), bad))
    assert not (tmp_path / "out").exists()


def test_only_pipelines_can_be_reused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a pipeline"):
        wait(start_pipeline(make_pipeline(), tmp_path / "out", RecordingWatcher(), tmp_path))
    line = get_refusal("run", "selfplay", "--game", "kuhn_poker", "--reuse", source, "--out", tmp_path / "out")
    assert "--reuse: this experiment has no stages" in line
    file = tmp_path / "chain.yaml"
    file.write_text(CONFIG)
    result = arena("run", "selfplay", "--config", file, "--reuse", source, "--out", tmp_path / "again", "--json")
    assert result.code == 0 and read_results(tmp_path / "again") == read_results(source)


def test_settings_decide_how_many_stages_are_equal() -> None:
    settings = make_pipeline().to_plain()
    assert count_equal_stages(settings, settings) == 3
    assert count_equal_stages(settings, make_pipeline(LAST).to_plain()) == 2
    assert count_equal_stages(settings, make_pipeline("stages.play.play.iterations=1").to_plain()) == 1
    assert count_equal_stages(settings, make_pipeline("game.options.penalty=1").to_plain()) == 0
    assert (
        count_equal_stages(settings, {**settings, "study": {"claim": "other"}, "stages": settings["stages"][:2]}) == 2
    )


def test_a_study_copies_the_stages_that_arms_of_a_seed_share(tmp_path: Path) -> None:
    study_plan = Plan(folder=tmp_path, experiment=compose_pipeline(), arms=["all", "slow"], seeds=2)
    first, second = (study_plan.run("slow", seed) for seed in (0, 1))
    assert find_donors(study_plan, study_plan.runs) == {
        first: (study_plan.run("all", 0), 2),
        second: (study_plan.run("all", 1), 2),
    }
    first.path.mkdir()
    (first.path / "config.yaml").touch()
    assert list(find_donors(study_plan, study_plan.runs)) == [second], "a run that has begun is resumed"
