"""A pipeline with a stage of each kind resumes bit-equal after any kill, and notices every change of its inputs."""

import json
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.pipeline import Pipeline, read_pipeline
from arena.config.sources import text_layer
from arena.config.staging import plan
from arena.credit.rewards.reward_model import find_weights
from arena.errors import Interrupted, StoreError
from arena.evaluate.evaluation import evaluate
from arena.evaluate.rating import Rater
from arena.evaluate.specs import ContenderLoader
from arena.learn.reward_model import RewardModel, is_reward_model
from arena.pipelines.running import start_pipeline
from arena.play.settings import GameSpec
from arena.records import MatchRecord
from arena.store.reader import FolderReader, RunReader
from arena.store.stages import find_begun_stages
from arena.store.stages import read_stage_end as ended
from tests.factories import data_sets
from tests.factories.children import Child, run_arena_child
from tests.factories.commands import arena, get_refusal
from tests.factories.labs import RecordingWatcher
from tests.factories.pipelines import ALL_STAGES, check_killed_pipeline, count_steps, read_results
from tests.factories.thorough import THOROUGH, count_cases

STAGES = (
    "01-play", "02-sft", "03-reward_model", "04-dpo", "05-rl", "06-offline", "07-distil", "08-average",
    "09-expert_iteration",
)  # fmt: skip
ROUNDS = 6
"""Number of pipelines killed once in each stage: enough for 40 kills although some stages end first."""


def make_pipeline(text: str = ALL_STAGES) -> Pipeline:
    return read_pipeline([text_layer("test", text)])


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("config") / "kinds.yaml"
    file.write_text(ALL_STAGES)
    return file


@pytest.fixture(scope="module")
def finished_run(config: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Return a pipeline that ran in one process, and the number of its durable steps."""
    folder = tmp_path_factory.mktemp("whole")
    steps = count_steps(config, folder)
    return folder / "run", steps


@pytest.fixture
def run_copy(finished_run: tuple[Path, int], tmp_path: Path) -> Path:
    """Return a copy of the finished pipeline."""
    return shutil.copytree(finished_run[0], tmp_path / "copy")


def test_each_stage_learns_from_earlier_ones(finished_run: tuple[Path, int]) -> None:
    folder = finished_run[0]
    assert tuple(stage.name for stage in find_begun_stages(folder)) == STAGES
    stages = [stage for stage in find_begun_stages(folder) if stage.name != "08-average"]
    settings = {stage.name[3:]: RunReader(stage).environment()["experiment"] for stage in stages}
    folders = find_begun_stages(folder)
    weights = {f.name[3:]: {n: str(p) for n, p in ended(f).weights.items()} for f in folders}  # type: ignore[union-attr]
    assert settings["rl"]["policies"]["player"]["reference"] == weights["sft"]["player"]
    assert settings["rl"]["policies"]["player"]["model"] == weights["dpo"]["player"]
    (stage,) = settings["rl"]["credit"]["stages"]
    assert stage["reward_model"]["model"] == weights["reward_model"]["reward_model"]
    assert settings["offline"]["source"]["log"] == str(folder / "stages" / "05-rl")
    assert settings["distil"]["policies"]["player"]["reference"] == weights["sft"]["player"]
    assert settings["reward_model"]["reward_model"]["policy"] == "player", "the setting is kept as written"
    assert RunReader(folder / "stages" / "03-reward_model").environment()["commands"]
    learned = [len(metrics) for _, metrics, _ in read_results(folder).values()]
    assert learned[2] == 2 and learned[7] == 0 and min(learned[:7] + learned[8:]) > 0
    assert settings["expert_iteration"]["policies"]["player"]["model"] == weights["average"]["player"]
    files = [files[0] for _, _, files in read_results(folder).values()]
    assert len(set(files)) == len(STAGES), "a stage did not learn"


@pytest.mark.thorough
@pytest.mark.parametrize("case", range(count_cases(2, 40)))
def test_killed_at_any_step_resumes_bit_equal(
    finished_run: tuple[Path, int], config: Path, tmp_path: Path, case: int
) -> None:
    """Each case kills in its own slice of the steps; every third one kills the resumed pipeline, too."""
    (folder, steps), count = finished_run, count_cases(2, 40)
    part, again = range(1 + steps * case // count, 1 + steps * (case + 1) // count), case % 3 == 0 and THOROUGH
    check_killed_pipeline(config, folder, part, tmp_path, random.Random(case), again)


@pytest.mark.slow
def test_killed_from_outside_in_each_stage_resumes_bit_equal(
    finished_run: tuple[Path, int], config: Path, tmp_path: Path
) -> None:
    """Kill pipelines once in each stage, at a random time after its folder appears or the process begins.

    After each kill, every ended stage has the weights of the undisturbed pipeline, and only one later stage has begun.
    """
    stages, rng, killed = finished_run[0] / "stages", random.Random(65), Counter[str]()
    seconds = (stages / STAGES[-1] / "done.json").stat().st_mtime - (stages / STAGES[0] / "config.yaml").stat().st_mtime
    for number in range(ROUNDS):
        folder = tmp_path / f"run{number}"
        start: list[object] = ["run", "selfplay", "--config", config, "--out", folder, "--json"]
        for name in STAGES:
            if (last := folder / "stages" / STAGES[-1] / "done.json").exists():
                break
            child = Child(tmp_path / "child", *(["resume", folder, "--json"] if is_begun(folder) else start))
            child.wait_until((folder / "stages" / name).exists)
            time.sleep(rng.uniform(0.0, 1.5 * seconds / len(STAGES)))
            newest = max((path.name for path in (folder / "stages").glob("*")), default="")
            child.signal(signal.SIGKILL)
            outcome = child.end()
            assert outcome.code == -9 or last.exists(), outcome
            killed[newest] += outcome.code == -9
            assert_stages_intact(folder, finished_run[0])
        outcome = run_arena_child(tmp_path / "child", *(["resume", folder, "--json"] if is_begun(folder) else start))
        assert outcome.code == 0 and read_results(folder) == read_results(finished_run[0]), outcome
    assert killed.total() >= 40 and len(+killed) >= len(STAGES) - 1, killed


def is_begun(folder: Path) -> bool:
    return (folder / "config.yaml").exists()


def assert_stages_intact(folder: Path, undisturbed: Path) -> None:
    """Check that all stages but the newest have ended, with the weights that the undisturbed pipeline has."""
    stages = find_begun_stages(folder) if (folder / "stages").is_dir() else []
    done = [ended(stage) for stage in stages]  # verifies every file
    assert all(done[:-1])
    for stage, end in zip(stages, done, strict=True):
        for weights in end.weights.values() if end else ():
            same = undisturbed / weights.relative_to(folder) / "model.safetensors"
            assert (weights / "model.safetensors").read_bytes() == same.read_bytes(), stage.name


@pytest.mark.slow
def test_interrupted_reward_model_training_resumes(
    finished_run: tuple[Path, int], config: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    child = Child(tmp_path / "child", "run", "selfplay", "--config", config, "--out", folder, "--json")
    assert child.wait_until((folder / "stages" / STAGES[2] / "config.yaml").exists)
    child.signal(signal.SIGINT)
    outcome = child.end()
    assert outcome.code == 130 and f"arena resume {folder} continues" in outcome.line, outcome
    assert not ended(folder / "stages" / STAGES[2])
    outcome = run_arena_child(tmp_path / "again", "resume", folder, "--json")
    assert outcome.code == 0 and read_results(folder) == read_results(finished_run[0]), outcome
    commands = FolderReader(folder / "stages" / STAGES[2]).environment()["commands"]
    assert [command["command"][1] for command in commands] == ["run", "resume"]


def test_a_damaged_reward_model_is_not_learned_from(run_copy: Path) -> None:
    for name in STAGES[3:]:
        shutil.rmtree(run_copy / "stages" / name)
    weights = run_copy / "stages" / STAGES[2] / "checkpoints/0002/policies/reward_model/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert "model.safetensors is not as it was written, and later stages start from it" in get_refusal(
        "resume", run_copy
    )
    assert not (run_copy / "stages" / STAGES[3]).exists()


@pytest.mark.parametrize("name", [STAGES[2], STAGES[6]])
def test_pipeline_moved_during_a_stage_is_refused(finished_run: tuple[Path, int], run_copy: Path, name: str) -> None:
    for later in STAGES[STAGES.index(name) + 1 :]:
        shutil.rmtree(run_copy / "stages" / later)
    (run_copy / "stages" / name / "done.json").unlink()
    line = get_refusal("resume", run_copy)
    assert (
        f"was moved from {finished_run[0]} during stage {name[3:]}" in line
        and f"remove {run_copy / 'stages' / name}" in line
    )


ROWS = """\
stages:
  - sft: {policy: player, data: CHATS, batch: 4}
  - reward_model: {policy: player, data: PAIRS, batch: 4}
"""


def make_pipeline_of_rows(chats: Path, pairs: Path) -> Pipeline:
    shared = ALL_STAGES[: ALL_STAGES.index("stages:")]
    return make_pipeline(shared + ROWS.replace("CHATS", str(chats)).replace("PAIRS", str(pairs)))


def test_a_data_set_that_was_edited_between_stages_is_refused(tmp_path: Path) -> None:
    chats = data_sets.write_rows(tmp_path / "chats.jsonl", data_sets.make_chats(8))
    pairs = data_sets.write_rows(tmp_path / "pairs.jsonl", data_sets.make_pairs(12))
    with pytest.raises(Interrupted):
        stop = RecordingWatcher(lambda what, value: (what, value) == ("iteration", 1))
        wait(start_pipeline(make_pipeline_of_rows(chats, pairs), tmp_path / "run", stop))
    pairs.write_text(pairs.read_text() + json.dumps({"prompt": "take 5", "chosen": "yes", "rejected": "no"}) + "\n")
    result = arena("resume", tmp_path / "run")
    assert result.code == 2 and f"{pairs} was edited since" in result.err
    assert ended(tmp_path / "run" / "stages" / "01-sft") and not (tmp_path / "run/stages/02-reward_model").exists()
    data_sets.write_rows(pairs, data_sets.make_pairs(12))
    assert arena("resume", tmp_path / "run").code == 0


def test_missing_data_set_is_refused_before_the_first_stage(tmp_path: Path) -> None:
    chats = data_sets.write_rows(tmp_path / "chats.jsonl", data_sets.make_chats(8))
    with pytest.raises(StoreError, match=r"pairs.jsonl cannot be read: No such file"):
        wait(
            start_pipeline(make_pipeline_of_rows(chats, tmp_path / "pairs.jsonl"), tmp_path / "run", RecordingWatcher())
        )
    assert not (tmp_path / "run").exists()


# -- uses of a reward model --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", [["eval", "--game", "kuhn_poker"], ["credit"], ["export", "--as", "chats", "--to", "chats"]]
)
def test_folder_of_a_reward_model_is_no_contender(
    finished_run: tuple[Path, int], command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = finished_run[0] / "stages" / STAGES[2]
    line = get_refusal(command[0], folder, *command[1:])
    assert f"{folder} trained a reward model, which plays no matches" in line
    assert f"credit.stages: [{{reward_model: {{model: {folder}}}}}]" in line and f"--reward-model {folder}" in line


def test_a_reward_models_weights_are_exported(finished_run: tuple[Path, int], tmp_path: Path) -> None:
    result = arena(
        "export", finished_run[0] / "stages" / STAGES[2], "--policy", "reward_model", "--to", tmp_path / "weights"
    )
    assert result.code == 0, result.err
    assert is_reward_model(tmp_path / "weights")


def test_a_reward_model_scores_an_evaluation(finished_run: tuple[Path, int]) -> None:
    model, options = finished_run[0] / "stages" / STAGES[2], ["--game", "kuhn_poker", "--matches", "8", "--json"]
    outcome = arena("eval", finished_run[0] / "stages" / STAGES[4], *options, "--before", "--reward-model", model)
    assert outcome.code == 0, outcome.err
    data = json.loads(outcome.out)
    for (result,) in (data["results"], data["before"]):
        estimate, low, high = result["figures"]["learned"]
        assert low <= estimate <= high
    plain = json.loads(arena("eval", finished_run[0] / "stages" / STAGES[4], *options).out)["results"][0]["figures"]
    assert {n: v for n, v in data["results"][0]["figures"].items() if n != "learned"} == plain
    scripted = json.loads(arena("eval", "random", *options, "--against", "nash", "--reward-model", model).out)
    assert "learned" not in scripted["results"][0]["figures"], "scripts have no tokens to score"
    assert "is no reward model" in get_refusal("eval", "nano", *options, "--reward-model", "nano")
    assert "--reward-model" in get_refusal("eval", "nano", "--panel", "kuhn_poker", "--reward-model", model)


def test_scores_of_an_evaluation_are_the_models(finished_run: tuple[Path, int]) -> None:
    """The figure is the mean over deals of the scores of the contender's own streams."""
    model = finished_run[0] / "stages" / STAGES[2]
    contender, other = wait(ContenderLoader().load("nano", "random"))
    rater, seen = Rater(str(model), [contender]), list[float]()

    async def rate(record: MatchRecord) -> Mapping[str, float]:
        scores = await rater(record)
        by_hand = RewardModel.load(find_weights(str(model))).score(
            [own[-1] for own in record.streams.values() if own], 4096
        )
        assert [*scores.values()] == pytest.approx(by_hand.tolist(), rel=1e-4, abs=1e-6)
        seen.extend(scores.values())
        return scores

    (result,) = wait(evaluate(contender, [other], GameSpec(name="kuhn_poker"), 8, 0, rate=rate))
    assert len(seen) == 8 and result.mean("learned").estimate == pytest.approx(np.mean(seen))


def test_an_evaluation_names_the_stage_of_its_reward_model(tmp_path: Path) -> None:
    evaluate_section = "      evaluate: {games: [{name: kuhn_poker}], reward_model: 'stage:reward_model', matches: 4}\n"
    stages = plan(
        make_pipeline(ALL_STAGES.replace("  - offline:", f"{evaluate_section}  - offline:")),
        tmp_path,
        lambda text: None,
    )
    stage_experiment = stages[4].composed
    assert isinstance(stage_experiment, Experiment) and stage_experiment.evaluate is not None
    assert stage_experiment.evaluate.reward_model == str(
        tmp_path / "stages" / STAGES[2] / "checkpoints/0000/policies/reward_model"
    )
