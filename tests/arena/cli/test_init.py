"""`arena init`: what it writes passes its check, names its schema, and never overwrites."""

from pathlib import Path

import pytest

from arena.cli.init import STARTS
from tests.factories.commands import arena, refused


@pytest.fixture(autouse=True)
def empty_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", STARTS)
def test_what_it_writes_passes_the_check_that_it_names(kind: str) -> None:
    told = arena("init", kind, f"my_{kind}")
    assert told.code == 0, told.err
    command = told.out.splitlines()[-1].removeprefix("check it: arena ").split()
    if kind == "experiment":
        command += ["--set", "policies.shared.model=nano"]
    if kind in ("game", "simulator"):
        command += ["--seeds", "20", "--acts", "200"]
    checked = arena(*command)
    assert checked.code == 0, checked
    assert "fit to" in checked.out or "keeps what" in checked.out


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
    told = arena("run", "selfplay", "--config", "mine.yaml", *settings, "--out", "run")
    assert told.code == 0, told.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["rol", "x"], "unknown start 'rol' — did you mean 'role'?"),
        (["role", "My Role"], "a name is of small letters"),
        (["game", "class"], "a name is of small letters"),
        (["role", "x", "--to", "nowhere"], "there is no such folder"),
    ],
)
def test_what_it_refuses(arguments: list[str], told: str) -> None:
    assert told in refused("init", *arguments)
    assert not list(Path.cwd().iterdir())


def test_it_never_overwrites() -> None:
    Path("mine.yaml").write_text("years of work")
    assert "mine.yaml is there already" in refused("init", "role", "mine")
    assert Path("mine.yaml").read_text() == "years of work"


def test_an_experiment_that_cannot_run_is_told_before_it_does() -> None:
    arena("init", "experiment", "mine")
    assert "seats.frst: there is no 'frst' — did you mean 'first'?" in refused(
        "check", "experiment", "mine.yaml", "--set", "seats.frst.policy=random"
    )
    assert "unknown role 'plyer'" in refused("check", "experiment", "mine.yaml", "--set", "seats.first.role=plyer")
