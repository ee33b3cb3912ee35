"""A pipeline with a stage of each kind: killed anywhere it resumes bit by bit, and nothing it reads changes unseen."""

import json
import random
import shutil
from pathlib import Path

import pytest

from arena.cli.loop import wait
from arena.config.pipeline import Pipeline, read_pipeline
from arena.config.sources import text_layer
from arena.errors import Interrupted
from arena.pipelines.running import start_pipeline
from arena.store.reader import FolderReader, RunReader
from arena.store.stages import begun
from arena.store.stages import finished as ended
from tests.factories.children import Child, Hurt, arena_child
from tests.factories.commands import arena, refused
from tests.factories.labs import Quiet
from tests.factories.pipelines import KINDS, results
from tests.factories.preferences import written_pairs
from tests.factories.thorough import THOROUGH, cases

STAGES = ("01-play", "02-sft", "03-reward_model", "04-dpo", "05-rl", "06-offline", "07-distil")


def read(text: str = KINDS) -> Pipeline:
    return read_pipeline([text_layer("test", text)])


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("config") / "kinds.yaml"
    file.write_text(KINDS)
    return file


@pytest.fixture(scope="module")
def whole(config: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A pipeline that has run to its end in one process, and the number of its durable steps."""
    place = tmp_path_factory.mktemp("whole")
    hurt = Hurt(count_steps=place / "steps")
    told = arena_child(place, "run", "selfplay", "--config", config, "--out", place / "run", "--json", hurt=hurt)
    assert told.code == 0, told
    return place / "run", int((place / "steps").read_text())


@pytest.fixture
def copy(whole: tuple[Path, int], tmp_path: Path) -> Path:
    """A copy of the finished pipeline."""
    return shutil.copytree(whole[0], tmp_path / "copy")


def test_each_stage_learns_from_earlier_ones(whole: tuple[Path, int]) -> None:
    folder = whole[0]
    assert tuple(stage.name for stage in begun(folder)) == STAGES
    about = {stage.name[3:]: RunReader(stage).environment()["experiment"] for stage in begun(folder)}
    weights = {stage.name[3:]: {n: str(p) for n, p in ended(stage).weights.items()} for stage in begun(folder)}  # type: ignore[union-attr]
    assert about["rl"]["policies"]["player"]["reference"] == weights["sft"]["player"]
    assert about["rl"]["policies"]["player"]["model"] == weights["dpo"]["player"]
    (scored,) = about["rl"]["credit"]["stages"]
    assert scored["reward_model"]["model"] == weights["reward_model"]["reward_model"]
    assert about["offline"]["source"]["log"] == str(folder / "stages" / "05-rl")
    assert about["distil"]["policies"]["player"]["reference"] == weights["sft"]["player"]
    assert about["reward_model"]["reward_model"]["policy"] == "player", "as it was written"
    assert RunReader(folder / "stages" / "03-reward_model").environment()["commands"]
    learned = [len(metrics) for _, metrics, _ in results(folder).values()]
    assert learned[2] == 2 and min(learned) > 0
    files = [files[0] for _, _, files in results(folder).values()]
    assert len(set(files)) == len(STAGES), "all learn"


@pytest.mark.parametrize("case", range(cases(3, 40)))
def test_killed_at_any_step_it_resumes_bit_by_bit(
    whole: tuple[Path, int], config: Path, tmp_path: Path, case: int
) -> None:
    """Each case kills the pipeline in its own slice of the steps, and every third one kills the resumed one, too."""
    (folder, steps), count, draw = whole, cases(3, 40), random.Random(case)
    at = draw.randint(1 + steps * case // count, steps * (case + 1) // count)
    start = ["run", "selfplay", "--config", config, "--out", tmp_path / "run", "--json"]
    killed = arena_child(tmp_path / "child", *start, hurt=Hurt(kill_at_step=at))
    assert killed.code == -9, killed
    for again in [*([Hurt(kill_at_step=draw.randint(1, 60))] if case % 3 == 0 and THOROUGH else []), None]:
        arguments = ["resume", tmp_path / "run", "--json"] if (tmp_path / "run" / "config.yaml").exists() else start
        told = arena_child(tmp_path / "again", *arguments, hurt=again)
    assert told.code == 0, told
    assert results(tmp_path / "run") == results(folder)
