"""Custom parts: a function in a file, as in docs/new-estimator.md, chosen like any other."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from agents.weights import resolve
from arena.config.kinds import choose
from arena.config.layers import compose, to_yaml
from arena.config.sources import set_layer, text_layer
from arena.credit.assign import assign
from arena.credit.batch import TurnBatch
from arena.credit.settings import CreditSpec
from arena.errors import ConfigError
from arena.store.run import RunFolder
from games.adapters import loading
from tests.factories.commands import NO_IMITATION, TINY, arena, get_refusal
from tests.factories.kept_run import SHARED
from tests.factories.trajectories import make_groups

GUIDE = (Path(__file__).parents[3] / "docs" / "new-estimator.md").read_text("utf-8")


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working folder that holds the guide's file."""
    monkeypatch.chdir(tmp_path)
    name, text = re.search(r"`([\w.]+)`\n\n```python\n(.*?)```\n", GUIDE, re.S).groups()  # type: ignore[union-attr]
    Path(name).write_text(text, "utf-8")
    return tmp_path


def test_guide_estimator_credits_the_best_of_each_deal(user_folder: Path) -> None:
    batch = TurnBatch(make_groups([3.0, 1.0], [2.0, 2.0, 0.0]))
    rewards = batch.column(lambda turn: sum(turn.rewards.values()))
    estimator = choose("estimator", "lone_winner.py:lone_winner")
    np.testing.assert_array_equal(estimator(batch, rewards), [3, 0, 2, 2, 0])
    assert [c.advantages.tolist() for c in assign(batch, CreditSpec(estimator=estimator))] == [[3], [0], [2], [2], [0]]


def test_custom_estimator_loads_from_any_folder_with_settings(
    user_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    setting = "credit.estimator={lone_winner.py:lone_winner: {gamma: 0.5}}"
    experiment = compose([text_layer("test", SHARED), set_layer(setting)])
    os.chdir(tmp_path_factory.mktemp("elsewhere"))
    reloaded = compose([text_layer("config.yaml", to_yaml(experiment))])
    assert reloaded == experiment
    assert reloaded.credit.estimator.to_plain() == {
        f"{user_folder.resolve()}/lone_winner.py:lone_winner": {"gamma": 0.5}
    }


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("lone_winner.py:lone_winer", "", "did you mean 'lone_winner'"),
        ("nowhere.py:f", "", "there is no file"),
        ("{lone_winner.py:lone_winner: {gama: 1.0}}", "", "did you mean 'gamma'"),
        ("{lone_winner.py:lone_winner: {gamma: much}}", "", "gamma"),
        ("own.py:f", "def f(batch, rewards)\n", "line 1: SyntaxError"),
        (
            "own.py:f",
            "def f(batch, rewards, *, by: 'Nothing' = 1):\n    pass\n",
            "settings cannot be read: name 'Nothing'",
        ),
        ("own.py:f", "def f(batch, rewards, *, by: '1 +' = 1):\n    pass\n", "settings cannot be read"),
        ("own.py:f", "def f(batch, rewards, *, by: 'int.no' = 1):\n    pass\n", "settings cannot be read"),
        ("own.py:f", "def f(batch, rewards, *, by: object = object()):\n    pass\n", "settings cannot be read"),
        ("own.py:f", "def f(batch, rewards, *, model_config: int = 1):\n    pass\n", "settings cannot be read"),
        ("own.py:f", "def f(batch, rewards, *, a: int = 1, by=1):\n    pass\n", "annotate its setting by, as in"),
        ("own.py:f", "import nowhere\n", "line 1: ModuleNotFoundError"),
    ],
)
def test_invalid_custom_part_gives_one_line(user_folder: Path, name: str, text: str, message: str) -> None:
    (user_folder / "own.py").write_text(text)
    assert message in get_refusal(*TINY, *NO_IMITATION, "--set", f"credit.estimator={name}")
    assert not (user_folder / "runs").exists()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return rewards[:-1]", "finite numbers, one per turn"),
        ("return rewards * float('nan')", "finite numbers, one per turn"),
        ("return None", "finite numbers, one per turn"),
        ("return [[1], [2, 3]]", "finite numbers, one per turn"),
        ("return batch.nothing", "own.py:f failed: line 2: AttributeError"),
    ],
)
def test_estimator_output_is_checked_before_learning(user_folder: Path, body: str, message: str) -> None:
    (user_folder / "own.py").write_text(f"def f(batch, rewards):\n    {body}\n")
    with pytest.raises(ConfigError, match=re.escape(message)):
        assign(TurnBatch(make_groups([1.0, 2.0])), CreditSpec.model_validate(dict(estimator="own.py:f")))


def test_run_learns_with_custom_estimator(user_folder: Path) -> None:
    result = arena(*TINY, *NO_IMITATION, "--iterations", "1", "--set", "credit.estimator=lone_winner.py:lone_winner")
    assert result.code == 0, result.err
    assert arena("credit", "runs/latest", "--estimators", "mars,lone_winner.py:lone_winner").code == 0


@pytest.mark.slow
def test_run_keeps_its_custom_part_and_a_foreign_run_needs_trust(
    user_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (user_folder / "home").mkdir()
    (user_folder / "home" / "models").symlink_to(resolve("nano").parent)
    monkeypatch.setenv("ARENA_HOME", str(user_folder / "home"))
    text = (user_folder / "lone_winner.py").read_text() + "open('ran', 'a').write('.')\n"
    (user_folder / "lone_winner.py").write_text(text)
    settings = [*NO_IMITATION, "--set", "play.matches=2", "--set", "credit.estimator=lone_winner.py:lone_winner"]
    assert arena(*TINY, *settings, "--iterations", "1", "--out", "run").code == 0
    assert (user_folder / "run" / "parts" / "lone_winner.py").read_text() == text
    (user_folder / "lone_winner.py").write_text("raise SystemExit('edited')\n")
    result = arena("resume", "run", "--iterations", "2", "--json")
    assert result.code == 0 and re.search(r"lone_winner\.py was edited since \S*run began", result.err)

    shutil.copytree("run", "strangers")
    (user_folder / "home" / "trusted").unlink()
    (user_folder / "ran").unlink()
    for command in ("resume strangers --iterations 3", "credit strangers", "eval strangers --game negotiation"):
        result = arena(*command.split())
        assert result.code == 2 and "read it, then pass --trust" in result.err and "Traceback" not in result.err
    assert arena("show", "strangers").code == 0
    assert not (user_folder / "ran").exists(), "none of its code has run"
    (user_folder / "link").symlink_to(user_folder / "strangers")
    parts = {"own": "strangers/parts", "dotted": "strangers/log/../parts", "linked": "link/parts"}
    for name, folder in parts.items():  # each path that its config may name
        config = SHARED + f"credit: {{estimator: '{user_folder}/{folder}/lone_winner.py:lone_winner'}}\n"
        RunFolder.create(name, config, {})
        loading.reset()
        assert "read it, then pass --trust" in get_refusal("credit", name)
    assert not (user_folder / "ran").exists(), "none of its code has run"
    loading.reset()
    assert arena("credit", "strangers", "--trust", "--estimators", "mars").code == 0
    assert (user_folder / "ran").exists()
