"""A damaged run folder is healed or refused in one line: no silence, traceback, hang or terminal escape.

There is one small real run with a league and a critic. Every kind of its files is damaged in every way that fits it.
Then `arena show`, `eval` and `resume` either report the damage in one line or do what they did before the damage. A
run that `resume` heals is bit-equal to the original.
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
    "policies.shared.imitate={scripted: [random], matches: 16, epochs: 2, minibatches: 4, lr: 3e-3}",
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
"""A resumed run drops this file unread."""


def swap_files(path: Path, other: Path) -> None:
    first, second = path.read_bytes(), other.read_bytes()
    path.write_bytes(second)
    other.write_bytes(first)


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_by_looping_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def enlarge_numbers(path: Path) -> None:
    """Replace every digit by a huge number; the text may be JSON or YAML."""
    text = path.read_text()
    path.write_text("".join("9" * 500 if c.isdigit() else c for c in text)[:400_000])


def insert_escapes(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"e", b"\x1b[31me\x07", 40))


ANY_DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "emptied": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "flipped": flip_byte,
    "flipped elsewhere": lambda path: flip_byte(path, 1),
    "a folder": replace_by_folder,
    "a link to itself": replace_by_looping_link,
    "a pipe": replace_by_pipe,
}
TEXT_DAMAGE: dict[str, Callable[[Path], object]] = {
    "a list": lambda path: path.write_text("[]\n"),
    "a text": lambda path: path.write_text('"\x1b[31m"\n{"a": 1}\n'),
    "another table": lambda path: path.write_text('{"manifest": {"files": 3}, "iteration": "1", "schema": []}\n'),
    "deep": lambda path: path.write_text("[" * 100_000),
    "huge": enlarge_numbers,
    "escapes": insert_escapes,
}
FOLDER_DAMAGE: dict[str, Callable[[Path], object]] = {
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
CASES = [(file, name, damage) for file in TEXTS for name, damage in {**ANY_DAMAGE, **TEXT_DAMAGE}.items()]
CASES += [(file, name, damage) for file in BINARIES for name, damage in ANY_DAMAGE.items()]
CASES += [(file, "swapped", lambda path: None) for file in (*TEXTS, *BINARIES)]
CASES += [("", name, damage) for name, damage in FOLDER_DAMAGE.items()]
SAMPLE = {
    ("config.yaml", "flipped"),
    ("config.yaml", "a list"),
    ("environment.json", "huge"),
    ("metrics.jsonl", "escapes"),
    (f"{NEWEST}/state.json", "missing"),
    (f"{NEWEST}/policies/shared/model.safetensors", "swapped"),
    ("log/0003.parquet", "cut"),
    ("league/shared@1/model.safetensors", "flipped"),
    ("", "log is a file"),
}
EVAL = ["--game", "kuhn_poker", "--against", "random", "--matches", "2", "--json"]
_intact_runs: list[tuple[Path, dict[str, CommandResult]]] = []


@pytest.fixture
def intact_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, CommandResult]]:
    """Return the run and the results of reading it before any damage; made once."""
    if not _intact_runs:
        run = tmp_path_factory.mktemp("whole") / "run"
        settings = [part for setting in SETTINGS for part in ("--set", setting)]
        result = arena(*LAUNCH, *settings, "--out", run)
        assert result.code == 0, result.err
        _intact_runs.append((run, {name: arena(*command) for name, command in read_commands(run).items()}))
        assert all(result.code == 0 and not result.err for result in _intact_runs[0][1].values()), _intact_runs
    return _intact_runs[0]


def read_commands(run: Path) -> dict[str, list[Any]]:
    """Return commands that only read the run."""
    return {
        "show": ["show", run],
        "json": ["show", run, "--json"],
        "eval": ["eval", run, *EVAL],
        "past": ["eval", f"{run}@1", *EVAL],
    }


def check_output(result: CommandResult) -> None:
    """Check that a refusal is one line, notes come before it, and no character steers a terminal."""
    lines = result.err.splitlines()
    assert result.code in (0, 2), result
    assert all(line.startswith("arena: ") for line in lines) and (result.code == 0 or lines), result
    assert not {c for c in result.out + result.err if (ord(c) < 32 and c != "\n") or ord(c) == 127}, ascii(result)


def check_damaged_run(run: Path, expected_results: dict[str, CommandResult], is_uncommitted: bool) -> None:
    intact = read_trace(_intact_runs[0][0])
    for name, command in read_commands(run).items():
        with limit_seconds(30):
            result = arena(*command)
        check_output(result)
        if result.code == 0 and not result.err:
            expected = expected_results[name]
            assert result.out.replace(str(run), "RUN") == expected.out.replace(str(_intact_runs[0][0]), "RUN"), name
    with limit_seconds(60):
        result = arena("resume", run, "--json")
    check_output(result)
    if result.code == 0:
        assert_same(read_trace(run), intact)
        assert result.err or is_uncommitted, "healed without a message"


def format_case(case: tuple[str, str, Any]) -> str:
    return f"{case[0] or 'folder'}-{case[1]}".replace("/", "_")


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=[] if c[:2] in SAMPLE else pytest.mark.slow, id=format_case(c)) for c in CASES]
)
def test_a_damaged_run_is_healed_or_refused(
    intact_run: tuple[Path, dict[str, CommandResult]], tmp_path: Path, case: tuple[str, str, Callable[[Path], object]]
) -> None:
    file, name, damage = case
    run = Path(shutil.copytree(intact_run[0], tmp_path / "run"))
    if file == UNCOMMITTED:
        (run / file).write_text((run / "metrics.jsonl").read_text())
    if name == "swapped":
        swap_files(run / file, run / {**TEXTS, **BINARIES}[file])
    else:
        damage(run / file)
    check_damaged_run(run, intact_run[1], is_uncommitted=file == UNCOMMITTED or name == "a pipe in the log")


def test_case_count() -> None:
    assert len(CASES) >= 100


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", ["league", "checkpoints", "log", "tensorboard", "roles"])
def test_resume_writes_nothing_through_links(
    intact_run: tuple[Path, dict[str, CommandResult]], tmp_path: Path, name: str
) -> None:
    run, home = Path(shutil.copytree(intact_run[0], tmp_path / "run")), tmp_path / "home"
    (run / name).rename(home)
    (home / "old@3").mkdir()
    (run / name).symlink_to("../home")
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*")}
    result = arena("resume", run, "--iterations", "4", "--json")
    assert result.code == 2 and name in result.line and "leads out of" in result.line
    assert {path: path.stat().st_mtime_ns for path in home.rglob("*")} == before


def make_dangling_link(link: Path) -> None:
    link.symlink_to("nowhere")


def make_looping_link(link: Path) -> None:
    link.symlink_to(link.name)


def link_to_a_file(link: Path) -> None:
    (link.parent / "file").write_text("x")
    link.symlink_to("file")


def link_to_an_empty_folder(link: Path) -> None:
    (link.parent / "empty").mkdir()
    link.symlink_to("empty")


@pytest.mark.parametrize("make_link", [make_dangling_link, make_looping_link, link_to_a_file, link_to_an_empty_folder])
def test_a_link_to_no_run_is_refused(tmp_path: Path, make_link: Callable[[Path], None]) -> None:
    link = tmp_path / "latest"
    make_link(link)
    for command in (["show", link], ["resume", link], ["export", link, "--to", tmp_path / "x"], ["eval", link, *EVAL]):
        result = arena(*command)
        check_output(result)
        assert result.code == 2 and result.out == "" and "latest" in result.line


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
    intact_run: tuple[Path, dict[str, CommandResult]], tmp_path: Path, name: str
) -> None:
    """The checkpoint of another author may hold anything."""
    run = Path(shutil.copytree(intact_run[0], tmp_path / "run", symlinks=True))
    folder, nonsense = run / NEWEST, NONSENSE[name]
    if isinstance(nonsense, bytes):
        (place,) = folder.rglob(name)
        place.write_bytes(nonsense if "linear" in name else b"x" * 99)
    else:
        state = json.loads((folder / "state.json").read_text())
        (folder / "state.json").write_text(json.dumps({**state, **nonsense} if nonsense else nonsense))
    (folder / "manifest.json").unlink()
    manifest.seal(folder, {"schema": 1, "iteration": 3})
    result = arena("resume", run, "--iterations", "4", "--json")
    check_output(result)
    assert result.code == 2 and result.err.splitlines()[-1].startswith(f"arena: {folder}"), result
