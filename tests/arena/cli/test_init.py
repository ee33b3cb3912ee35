"""`arena init`: its files pass their check, name their schema, and never overwrite."""

import json
from pathlib import Path

import pytest

from arena.cli.init import TEMPLATES
from tests.factories.commands import arena, get_refusal


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def parse_next_commands(out: str) -> list[list[str]]:
    """Return the commands that the output suggests to run next."""
    marked = "next: arena "
    return [line.removeprefix(marked).split() for line in out.splitlines() if line.startswith(marked)]


@pytest.mark.parametrize("kind", TEMPLATES)
def test_written_file_passes_the_suggested_check(kind: str) -> None:
    result = arena("init", kind, f"my_{kind}")
    assert result.code == 0, result.err
    command = parse_next_commands(result.out)[0]
    if kind == "experiment":
        command += ["--set", "policies.shared.model=nano"]
    if kind in ("game", "simulator"):
        command += ["--seeds", "20", "--acts", "200"]
    checked = arena(*command)
    assert checked.code == 0, checked
    assert "fit to" in checked.out or "meets the contract" in checked.out


@pytest.mark.parametrize("kind", ["role", "experiment"])
def test_an_editor_finds_the_schema(kind: str) -> None:
    arena("init", kind, "mine")
    first = Path("mine.yaml").read_text().splitlines()[0]
    name = first.partition("$schema=")[2]
    assert name == f"{kind}.schema.json" and Path(name).is_file()


def test_a_new_experiment_runs_and_a_new_role_plays() -> None:
    arena("init", "experiment", "mine")
    arena("init", "role", "polite")
    small = ["policies.shared.model=nano", "iterations=1", "play.matches=4", "seats.first.role=polite.yaml"]
    settings = [part for setting in small for part in ("--set", setting)]
    result = arena("run", "selfplay", "--config", "mine.yaml", *settings, "--out", "run")
    assert result.code == 0, result.err


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("kind", ["game", "simulator"])
def test_new_game_plays_and_learns(kind: str) -> None:
    run = parse_next_commands(arena("init", kind, "mine").out)[1]
    assert run == ["run", "selfplay", "--config", "mine.yaml"]
    small = ["iterations=1", "play.matches=8", "evaluate.matches=4"]
    small += ["policies.shared.imitate.matches=16", "policies.shared.imitate.minibatches=4"]
    result = arena(*run, *(part for setting in small for part in ("--set", setting)), "--out", "run")
    assert result.code == 0, result.err
    assert "lr: 0.0005" in Path("run/config.yaml").read_text(), "the tiny model's own"


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "figure", "least"), [("game", "win", 0.2), ("simulator", "success", 0.3)])
def test_new_game_learns_within_a_minute(kind: str, figure: str, least: float) -> None:
    run = parse_next_commands(arena("init", kind, "mine").out)[1]
    result = arena(*run, "--out", "run")
    assert result.code == 0, result.err
    evaluation = json.loads(Path("run/evaluation.json").read_text())
    before, after = (evaluation[moment][0]["figures"][figure][0] for moment in ("before", "results"))
    assert after - before > least


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rol", "x"], "unknown kind 'rol' — did you mean 'role'?"),
        (["role", "My Role"], "a name has lower-case letters"),
        (["game", "class"], "choose another name"),
        (["role", "null"], "choose another name"),
        (["experiment", "true"], "choose another name"),
        (["role", "x", "--to", "nowhere"], "there is no such folder"),
    ],
)
def test_refusals(arguments: list[str], message: str) -> None:
    assert message in get_refusal("init", *arguments)
    assert not list(Path.cwd().iterdir())


def test_it_never_overwrites() -> None:
    Path("mine.yaml").write_text("years of work")
    assert "mine.yaml already exists" in get_refusal("init", "role", "mine")
    assert Path("mine.yaml").read_text() == "years of work"


def test_check_finds_an_experiment_that_cannot_run() -> None:
    arena("init", "experiment", "mine")
    assert "seats.frst: there is no 'frst' — did you mean 'first'?" in get_refusal(
        "check", "experiment", "mine.yaml", "--set", "seats.frst.policy=random"
    )
    assert "unknown role 'plyer'" in get_refusal("check", "experiment", "mine.yaml", "--set", "seats.first.role=plyer")


def test_one_existing_file_prevents_all_files() -> None:
    Path("mine.yaml").write_text("years of work")
    assert "mine.yaml already exists" in get_refusal("init", "game", "mine")
    assert [path.name for path in Path().iterdir()] == ["mine.yaml"]


def test_a_recipe_is_checked_by_its_name() -> None:
    assert arena("check", "experiment", "maze-nano").out.endswith("maze-nano: fit to run\n")
    assert "unknown recipe 'maze-nan' — did you mean 'maze-nano'?" in get_refusal("check", "experiment", "maze-nan")
