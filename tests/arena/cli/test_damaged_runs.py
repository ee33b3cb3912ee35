"""A run folder damaged in any way is healed or refused in one line: never silent, no traceback, no hang, no escape.

One small real run, with a league and a critic; every kind of file in it is damaged in every way that fits it. `arena
show`, `eval` and `resume` then either tell in one line what is wrong, or say and do what they did before the damage;
and a run that `resume` heals is, to the bit, the run that it was.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arena.store import manifest
from tests.factories.commands import CommandResult, arena
from tests.factories.hostile import limit_seconds
from tests.factories.traces import assert_same, flip_byte, read_trace

LAUNCH = ["run", "selfplay", "--recipe", "kuhn_poker-nano", "--iterations", "3", "--json"]
SETTINGS = (
    "threads=1",
    "play.matches=4",
    "policies.shared.imitate=null",
    "credit={estimator: gae_turn, critic: linear}",
    "league={opponents: [{play: self}, {play: past, lag: 1}], pool: {every: 1, keep: 4}}",
    "checkpoint={every: 1, keep: 2}",
)
NEWEST = "checkpoints/0003"
TEXTS = {  # with a file to be swapped with
    "config.yaml": "environment.json",
    "environment.json": "metrics.jsonl",
    "metrics.jsonl": "config.yaml",
    "log/0004.jsonl": "metrics.jsonl",
    "roles/nano_kuhn.yaml": "config.yaml",
    f"{NEWEST}/manifest.json": "checkpoints/0002/manifest.json",
    f"{NEWEST}/state.json": "checkpoints/0002/state.json",
    f"{NEWEST}/contents.json": "checkpoints/0002/contents.json",
    f"{NEWEST}/policies/shared/config.json": f"{NEWEST}/policies/shared/tokenizer.json",
    f"{NEWEST}/policies/shared/tokenizer.json": f"{NEWEST}/state.json",
    "league/shared@1/manifest.json": "league/shared@2/manifest.json",
    "league/shared@1/config.json": "league/shared@1/tokenizer.json",
}
BINARIES = {
    "log/0001.parquet": "log/0002.parquet",
    "log/0003.parquet": "log/0001.parquet",
    "log/0001.credit.parquet": "log/0002.credit.parquet",
    "log/0003.credit.parquet": "log/0003.parquet",
    f"{NEWEST}/policies/shared/model.safetensors": f"{NEWEST}/policies/shared/optimizer.safetensors",
    f"{NEWEST}/policies/shared/optimizer.safetensors": "checkpoints/0002/policies/shared/optimizer.safetensors",
    f"{NEWEST}/critic/linear.safetensors": "checkpoints/0002/critic/linear.safetensors",
    "league/shared@1/model.safetensors": "league/shared@2/model.safetensors",
}
UNCOMMITTED = "log/0004.jsonl"
"""Nothing counts on it: a resumed run drops it unread."""


def swapped(path: Path, other: Path) -> None:
    first, second = path.read_bytes(), other.read_bytes()
    path.write_bytes(second)
    other.write_bytes(first)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def with_a_huge_number(path: Path) -> None:
    """In place of every number, in what may be JSON or YAML."""
    text = path.read_text()
    path.write_text("".join("9" * 500 if c.isdigit() else c for c in text)[:400_000])


def with_escapes(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"e", b"\x1b[31me\x07", 40))


ANY: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "emptied": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "flipped": flip_byte,
    "flipped elsewhere": lambda path: flip_byte(path, 1),
    "a folder": a_folder,
    "a link to itself": a_link_to_itself,
    "a pipe": a_pipe,
}
TEXT: dict[str, Callable[[Path], object]] = {
    "a list": lambda path: path.write_text("[]\n"),
    "a text": lambda path: path.write_text('"\x1b[31m"\n{"a": 1}\n'),
    "another table": lambda path: path.write_text('{"manifest": {"files": 3}, "iteration": "1", "schema": []}\n'),
    "deep": lambda path: path.write_text("[" * 100_000),
    "huge": with_a_huge_number,
    "escapes": with_escapes,
}
FOLDERS: dict[str, Callable[[Path], object]] = {
    "no checkpoints": lambda run: shutil.rmtree(run / "checkpoints"),
    "no log": lambda run: shutil.rmtree(run / "log"),
    "no league": lambda run: shutil.rmtree(run / "league"),
    "no roles": lambda run: shutil.rmtree(run / "roles"),
    "newest checkpoint lost": lambda run: shutil.rmtree(run / NEWEST),
    "newest checkpoint renamed": lambda run: (run / NEWEST).rename(run / "checkpoints" / "0007"),
    "older checkpoint in its place": lambda run: (
        shutil.rmtree(run / NEWEST), shutil.copytree(run / "checkpoints/0002", run / NEWEST),
    ),
    "checkpoints swapped": lambda run: (
        (run / NEWEST).rename(run / "aside"), (run / "checkpoints/0002").rename(run / NEWEST),
        (run / "aside").rename(run / "checkpoints/0002"),
    ),
    "past versions swapped": lambda run: (
        (run / "league/shared@1").rename(run / "aside"), (run / "league/shared@2").rename(run / "league/shared@1"),
        (run / "aside").rename(run / "league/shared@2"),
    ),
    "checkpoints is a file": lambda run: (shutil.rmtree(run / "checkpoints"), (run / "checkpoints").write_text("x")),
    "log is a file": lambda run: (shutil.rmtree(run / "log"), (run / "log").write_text("x")),
    "league is a link": lambda run: ((run / "league").rename(run / "l"), (run / "league").symlink_to("league")),
    "another file in the checkpoint": lambda run: (run / NEWEST / "policies" / "evil.pt").write_bytes(b"x"),
    "a pipe in the log": lambda run: os.mkfifo(run / "log" / "0005.jsonl"),
}  # fmt: skip
CASES = [(file, name, damage) for file in TEXTS for name, damage in {**ANY, **TEXT}.items()]
CASES += [(file, name, damage) for file in BINARIES for name, damage in ANY.items()]
CASES += [(file, "swapped", lambda path: None) for file in (*TEXTS, *BINARIES)]
CASES += [("", name, damage) for name, damage in FOLDERS.items()]
SAMPLE = {
    ("config.yaml", "flipped"),
    ("environment.json", "huge"),
    ("metrics.jsonl", "escapes"),
    (f"{NEWEST}/state.json", "missing"),
    (f"{NEWEST}/policies/shared/model.safetensors", "swapped"),
    ("log/0003.parquet", "cut"),
    ("league/shared@1/model.safetensors", "flipped"),
    ("", "log is a file"),
}
EVAL = ["--game", "kuhn_poker", "--against", "random", "--matches", "2", "--json"]
_made: list[tuple[Path, dict[str, CommandResult]]] = []


@pytest.fixture
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, CommandResult]]:
    """The run, and what is said of it while it is whole; made once."""
    if not _made:
        run = tmp_path_factory.mktemp("whole") / "run"
        settings = [part for setting in SETTINGS for part in ("--set", setting)]
        told = arena(*LAUNCH, *settings, "--out", run)
        assert told.code == 0, told.err
        _made.append((run, {name: arena(*command) for name, command in reading(run).items()}))
        assert all(told.code == 0 and not told.err for told in _made[0][1].values()), _made
    return _made[0]


def reading(run: Path) -> dict[str, list[Any]]:
    """Commands that change nothing."""
    return {
        "show": ["show", run],
        "json": ["show", run, "--json"],
        "eval": ["eval", run, *EVAL],
        "past": ["eval", f"{run}@1", *EVAL],
    }


def well_told(told: CommandResult) -> None:
    """One line where it is refused, notes before it; nothing that steers a terminal."""
    lines = told.err.splitlines()
    assert told.code in (0, 2), told
    assert all(line.startswith("arena: ") for line in lines) and (told.code == 0 or lines), told
    assert not {c for c in told.out + told.err if (ord(c) < 32 and c != "\n") or ord(c) == 127}, ascii(told)


def survives(run: Path, said: dict[str, CommandResult], uncommitted: bool) -> None:
    before = read_trace(_made[0][0])
    for name, command in reading(run).items():
        with limit_seconds(30):
            told = arena(*command)
        well_told(told)
        if told.code == 0 and not told.err:
            expected = said[name]
            assert told.out.replace(str(run), "RUN") == expected.out.replace(str(_made[0][0]), "RUN"), name
    with limit_seconds(60):
        told = arena("resume", run, "--json")
    well_told(told)
    if told.code == 0:
        assert_same(read_trace(run), before)
        assert told.err or uncommitted, "healed, and nothing was said"


def case_id(case: tuple[str, str, Any]) -> str:
    return f"{case[0] or 'folder'}-{case[1]}".replace("/", "_")


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=[] if c[:2] in SAMPLE else pytest.mark.slow, id=case_id(c)) for c in CASES]
)
def test_a_damaged_run_is_healed_or_refused(
    whole: tuple[Path, dict[str, CommandResult]], tmp_path: Path, case: tuple[str, str, Callable[[Path], object]]
) -> None:
    file, name, damage = case
    run = Path(shutil.copytree(whole[0], tmp_path / "run"))
    if file == UNCOMMITTED:
        (run / file).write_text((run / "metrics.jsonl").read_text())
    if name == "swapped":
        swapped(run / file, run / {**TEXTS, **BINARIES}[file])
    else:
        damage(run / file)
    survives(run, whole[1], uncommitted=file == UNCOMMITTED or name == "a pipe in the log")


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 100


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", ["league", "checkpoints", "log", "tensorboard", "roles"])
def test_resume_changes_nothing_where_a_link_of_a_copied_run_leads(
    whole: tuple[Path, dict[str, CommandResult]], tmp_path: Path, name: str
) -> None:
    run, home = Path(shutil.copytree(whole[0], tmp_path / "run")), tmp_path / "home"
    (run / name).rename(home)
    (home / "old@3").mkdir()
    (run / name).symlink_to("../home")
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*")}
    told = arena("resume", run, "--iterations", "4", "--json")
    assert told.code == 2 and name in told.line and "leads out of" in told.line
    assert {path: path.stat().st_mtime_ns for path in home.rglob("*")} == before


def dangling(link: Path) -> None:
    link.symlink_to("nowhere")


def looping(link: Path) -> None:
    link.symlink_to(link.name)


def to_a_file(link: Path) -> None:
    (link.parent / "file").write_text("x")
    link.symlink_to("file")


def to_an_empty_folder(link: Path) -> None:
    (link.parent / "empty").mkdir()
    link.symlink_to("empty")


@pytest.mark.parametrize("make", [dangling, looping, to_a_file, to_an_empty_folder])
def test_a_link_to_no_run_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    link = tmp_path / "latest"
    make(link)
    for command in (["show", link], ["resume", link], ["export", link, "--to", tmp_path / "x"], ["eval", link, *EVAL]):
        told = arena(*command)
        well_told(told)
        assert told.code == 2 and told.out == "" and "latest" in told.line


NONSENSE: dict[str, Any] = {
    "a list": [],
    "another iteration": {"iteration": 2},
    "policies": {"policies": []},
    "a policy's version": {"policies": {"shared": {"version": "3", "steps": 1, "memory": {}}}},
    "a policy's steps": {"policies": {"shared": {"version": 3, "steps": -1, "memory": {}}}},
    "a policy's memory": {"policies": {"shared": {"version": 3, "steps": 1, "memory": {"entropy_band": {"now": []}}}}},
    "ratings": {"ratings": {"nano_kuhn/shared": [25.0]}},
    "infinite ratings": {"ratings": {"nano_kuhn/shared": [1e999, 8.0]}},
    "a deviation of none": {"ratings": {"nano_kuhn/shared": [25.0, 0.0]}},
    "credit": {"credit": "\x1b[31m"},
    "what credit remembers": {"credit": {"memory": {"rae": {"x": "y"}}}},
    "an empty pool": {"league": {"pool": {"members": [], "recent": []}}},
    "versions that nobody has": {"league": {"pool": {"members": [7**30], "recent": []}}},
    "win rates": {"league": {"win_rates": {"x": [1, 2, 3]}}},
    "optimizer.safetensors": b"\x08\0\0\0\0\0\0\0{}      ",
    "linear.safetensors": b"\x08\0\0\0\0\0\0\0{}      ",
}


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("name", NONSENSE)
def test_a_checkpoint_of_nonsense_with_right_hashes_is_refused(
    whole: tuple[Path, dict[str, CommandResult]], tmp_path: Path, name: str
) -> None:
    """As a stranger may have written it."""
    run = Path(shutil.copytree(whole[0], tmp_path / "run", symlinks=True))
    folder, nonsense = run / NEWEST, NONSENSE[name]
    if isinstance(nonsense, bytes):
        (place,) = folder.rglob(name)
        place.write_bytes(nonsense if "linear" in name else b"x" * 99)
    else:
        state = json.loads((folder / "state.json").read_text())
        (folder / "state.json").write_text(json.dumps({**state, **nonsense} if nonsense else nonsense))
    (folder / "manifest.json").unlink()
    manifest.seal(folder, {"schema": 1, "iteration": 3})
    told = arena("resume", run, "--iterations", "4", "--json")
    well_told(told)
    assert told.code == 2 and told.err.splitlines()[-1].startswith(f"arena: {folder}"), told
