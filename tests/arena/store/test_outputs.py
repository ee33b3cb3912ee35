"""Command outputs go to the user's path, never over files that are not Arena's, and through no link."""

import json
import os
from pathlib import Path

import pytest

from arena.cli.console import write_results
from arena.errors import ConfigError, StoreError
from arena.store.export import new_folder
from arena.store.files import write_atomic
from arena.store.outputs import PICTURE, RECORDS, REPORT, append_output, require_output, results_kind, write_output
from arena.store.plots import save_plot
from tests.factories.commands import arena, get_refusal


def test_new_and_own_files_are_written(tmp_path: Path) -> None:
    page = REPORT.signature + b"<p>"
    for _ in range(2):
        write_output("--out", tmp_path / "a.html", REPORT, page)
    assert (tmp_path / "a.html").read_bytes() == page
    write_results("eval", {"seed": 1}, tmp_path / "a.json", False)
    write_results("eval", {"seed": 2}, tmp_path / "a.json", False)
    assert json.loads((tmp_path / "a.json").read_text()) == {"by": "arena eval", "seed": 2}


@pytest.mark.parametrize("kind", [REPORT, PICTURE, RECORDS, results_kind("eval")])
def test_files_of_other_kinds_are_not_overwritten(tmp_path: Path, kind: object) -> None:
    """Foreign files, another command's result, links (even to own files), pipes and folders give one line each."""
    (tmp_path / "thesis").write_text("years of work")
    write_results("matrix", {}, tmp_path / "matrix.json", False)
    own = tmp_path / "own"
    own.write_bytes(kind.signature)  # type: ignore[attr-defined]
    (tmp_path / "link").symlink_to(own)
    (tmp_path / "nowhere").symlink_to(tmp_path / "not there")
    os.mkfifo(tmp_path / "pipe")
    for name in ("thesis", "matrix.json", "link", "nowhere", "pipe", ".", "no/where"):
        before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
        with pytest.raises(ConfigError, match=r"^--out ") as error:
            require_output("--out", tmp_path / name, kind)  # type: ignore[arg-type]
        assert "\n" not in str(error.value)
        assert before == {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    require_output("--out", own, kind)  # type: ignore[arg-type]


def test_only_own_pictures_are_overwritten(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    Figure().savefig(tmp_path / "theirs.png")
    with pytest.raises(ConfigError, match="not a picture that Arena drew"):
        save_plot(Figure, tmp_path / "theirs.png")
    for _ in range(2):
        save_plot(Figure, tmp_path / "ours.png")


def test_records_are_appended_to_record_files_only(tmp_path: Path) -> None:
    for _ in range(2):
        append_output("--out", tmp_path / "kept.jsonl", RECORDS, '{"id": "0000-0000"}')
    assert len((tmp_path / "kept.jsonl").read_text().splitlines()) == 2
    (tmp_path / ".bashrc").write_text("alias x=y\n")
    with pytest.raises(ConfigError, match="not a file of match records"):
        append_output("--out", tmp_path / ".bashrc", RECORDS, '{"id": "0000-0000"}')


@pytest.mark.parametrize("make_link", [Path.symlink_to, Path.hardlink_to])
def test_link_at_the_temporary_path_is_not_followed(tmp_path: Path, make_link: object) -> None:
    (tmp_path / "thesis").write_text("years of work")
    make_link(tmp_path / ".a.json.tmp", tmp_path / "thesis")  # type: ignore[operator]
    write_atomic(tmp_path / "a.json", "{}")
    assert (tmp_path / "thesis").read_text() == "years of work"
    assert (tmp_path / "a.json").read_text() == "{}"


def test_weights_are_exported_through_no_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    (tmp_path / ".new.exporting").symlink_to(tmp_path / "there")
    with pytest.raises(StoreError, match="is a link"), new_folder(tmp_path / "link"):
        pass
    with new_folder(tmp_path / "new") as temporary:
        temporary.mkdir()
        (temporary / "config.json").write_text("{}")
    assert [*(tmp_path / "there").iterdir()] == []
    assert (tmp_path / "new/config.json").is_file() and not (tmp_path / "new").is_symlink()


@pytest.mark.parametrize("existing", ["nothing", "an empty folder"])
def test_one_of_two_concurrent_exports_is_refused(tmp_path: Path, existing: str) -> None:
    to = tmp_path / "new"
    if existing != "nothing":
        to.mkdir()
    with pytest.raises(StoreError, match="already holds something"), new_folder(to) as first:
        first.mkdir()
        (first / "half").write_text("of one")
        with new_folder(to) as second:
            second.mkdir()
            (second / "whole").write_text("of the other")
        assert (first / "half").read_text() == "of one"
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    assert [path.name for path in to.iterdir()] == ["whole"]


def test_old_leftovers_of_killed_exports_are_removed(tmp_path: Path) -> None:
    old, young, other = (tmp_path / name for name in (".new.exporting-old", ".new.exporting-y", ".newer.exporting-o"))
    for leftover in (old, young, other):
        leftover.mkdir()
        (leftover / "half").write_text("x")
        if leftover != young:
            os.utime(leftover, (0, 0))
    with new_folder(tmp_path / "new") as temporary:
        temporary.mkdir()
    assert not old.exists() and young.exists() and other.exists()


@pytest.mark.parametrize(
    "command",
    [
        ["eval", "random", "--game", "kuhn_poker", "--out"],
        ["tournament", "random", "nash", "--game", "kuhn_poker", "--out"],
        ["tournament", "random", "nash", "--game", "kuhn_poker", "--plot"],
        ["exploit", "random", "--game", "kuhn_poker", "--out"],
        ["matrix", "asker", "--game", "clinic", "--out"],
        ["matrix", "asker", "--game", "clinic", "--plot"],
        ["play", "--game", "kuhn_poker", "--seat", "0=random", "--seat", "1=random", "--out"],
        ["report", "runs/none", "--out"],
    ],
)
def test_every_command_refuses_before_it_works(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "thesis").write_text("years of work")
    assert "exists and is not a" in get_refusal(*command, str(tmp_path / "thesis"))
    assert (tmp_path / "thesis").read_text() == "years of work"


@pytest.mark.parametrize("kind", ["role", "experiment"])
def test_schema_overwrites_schemas_only(tmp_path: Path, kind: str) -> None:
    schema = tmp_path / f"{kind}.schema.json"
    schema.write_text("years of work")
    assert "is not a schema that Arena wrote" in get_refusal("init", kind, "mine", "--to", str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [schema.name]
    (tmp_path / "thesis").write_text(f'{{\n "$id": "{schema.name}"}}')
    schema.unlink()
    schema.symlink_to("thesis")
    assert "a link" in get_refusal("init", kind, "mine", "--to", str(tmp_path))
    schema.unlink()
    (tmp_path / "thesis").rename(schema)
    arena("init", kind, "mine", "--to", str(tmp_path))
    assert len(schema.read_text()) > 1000 and (tmp_path / "mine.yaml").is_file()
