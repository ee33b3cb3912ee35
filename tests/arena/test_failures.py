"""Failed matches can be understood: cause, place, and how to replay them."""

import json
import logging
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.errors import BugError, StoreError, is_debugging
from arena.plain import printable_lines, remove_secrets, truncate_middle
from arena.play.failures import describe_error, describe_failure, raise_bug, replay_failed
from arena.play.match import Limits
from arena.records import Failure, MatchRecord
from arena.store.failures import MAX_DETAILED, FailureLog, read_failures
from arena.store.lines import to_line
from arena.store.run import RunFolder
from arena.store.runlog import write_run_log
from games.base import TextGame
from games.contracts import MatchId
from games.kuhn_poker import KuhnPoker
from games.negotiation import Negotiation
from tests.factories import matches
from tests.factories.children import run_arena_child
from tests.factories.commands import NO_IMITATION, TINY, arena, get_refusal
from tests.factories.matches import LinePlayer, ScriptedPayGame, play_game

NASTY = "first\n2026-01-01 00:00:00,000 INFO arena: forged\x1b[31m\u202ered\r\nlast\0" + "y" * 10**6
BROKEN_GAME = """
from games.negotiation import Negotiation

class Broken(Negotiation):
    def play(self, seat, act):
        raise TypeError("model said \\x1b[31m" + act + "\\nand more")
"""


def make_failed_match(error: str = "step", **changes: Any) -> MatchRecord:
    return replace(play_game(ScriptedPayGame(fault=error)), **changes)


# Causes


def test_limit_is_classified_as_limit() -> None:
    found = play_game(ScriptedPayGame(length=10**6), limits=Limits(turns=3)).failure
    assert found and (found.kind, found.where, found.act) == ("limit", "", None)


def test_users_game_is_named_with_its_line() -> None:
    found = play_game(ScriptedPayGame(fault="step")).failure
    assert found and (found.kind, found.error, found.seat, found.act) == ("game", "RuntimeError", "a", "fine")
    line = next(n for n, text in enumerate(read_matches_source(), start=1) if '"the table broke"' in text)
    assert found.where.endswith(f"matches.py, line {line}") and "the table broke" in found.trace


def read_matches_source() -> list[str]:
    return Path(matches.__file__).read_text().splitlines()


def test_users_player_is_named_with_its_line() -> None:
    found = play_game(Negotiation(), {"opener": LinePlayer(fails=True), "responder": LinePlayer()}).failure
    assert found and found.kind == "game" and "matches.py, line" in found.where


def test_arenas_own_error_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Negotiation, "set_up", None)
    record = play_game(Negotiation(), {"opener": LinePlayer(), "responder": LinePlayer()})
    assert record.failure and record.failure.kind == "bug" and record.failure.where.startswith("games/base.py, line ")
    with pytest.raises(BugError, match=r"0002-0003: TypeError: .* \(games/base.py, line"):
        raise_bug(record)
    raise_bug(make_failed_match())


def test_library_error_belongs_to_its_caller() -> None:
    try:
        to_line({"x": float("nan")})
    except ValueError as error:
        mine = describe_failure(error, KuhnPoker(), (), "", None)
        assert error.__traceback__
        ours = describe_failure(error.with_traceback(error.__traceback__.tb_next), KuhnPoker(), (), "", None)
    assert mine.kind == "game" and "test_failures.py" in mine.where
    assert ours.kind == "bug" and ours.where.startswith("arena/store/lines.py, line "), (
        "the caller is arena's, not json"
    )


def test_memory_error_is_a_limit_and_mute_exception_is_described() -> None:
    class Mute(Exception):
        """Exception whose text cannot be made."""

        def __str__(self) -> str:
            raise RuntimeError("no")

    assert describe_failure(MemoryError(), KuhnPoker(), (), "", None).kind == "limit"
    assert describe_error(Mute()).startswith("Mute: ") and describe_failure(
        Mute(), ScriptedPayGame(), (1, 2), "a", "x"
    ).draws == (1, 2)


def test_replay_failed_restores_the_game() -> None:
    options = {"max_turns": 4, "illegal": "end"}
    game = replay_failed("negotiation", options, seed=5, acts=["OFFER 1 1 1"])
    assert isinstance(game, TextGame) and game.turns == 1 and game.agent_selection == "responder"
    ended = replay_failed("kuhn_poker", {}, seed=5, acts=["PASS", "PASS"])
    assert not ended.agents or all(ended.terminations.values())


# The file of failures


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", "a: 1", {})


def test_failure_is_written_and_read(run: RunFolder) -> None:
    run.failures.add(make_failed_match())
    ((failure,), more) = read_failures(run.path)
    assert (failure.match, failure.iteration, failure.seed, failure.kind, failure.act) == (
        "0002-0003",
        2,
        1,
        "game",
        "fine",
    )
    assert failure.seats["a"].role == "ra" and "the table broke" in failure.trace and more == {}
    assert "replay_failed('beats', {}, seed=1, acts=['fine'])" in failure.again


def test_first_failures_are_detailed_and_the_rest_counted(run: RunFolder) -> None:
    for number in range(MAX_DETAILED + 7):
        run.failures.add(make_failed_match(identity=MatchId(2, number)))
    run.failures.flush()
    failures, more = read_failures(run.path)
    assert len(failures) == MAX_DETAILED and more == {2: 7}
    RunFolder.open(run.path).failures.add(make_failed_match(identity=MatchId(3, 9999)))
    assert len(read_failures(run.path)[0]) == MAX_DETAILED + 1


def test_a_full_file_grows_no_more(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arena.store.failures.MAX_BYTES", 10)
    run.failures.add(make_failed_match())
    run.failures.add(make_failed_match(identity=MatchId(3, 3)))
    run.failures.flush()
    assert [each.iteration for each in read_failures(run.path)[0]] == [2] and read_failures(run.path)[1] == {3: 1}


def test_huge_texts_are_bounded(run: RunFolder) -> None:
    class LoudGame(ScriptedPayGame):
        """Game whose errors are long."""

        def play(self, seat: str, act: str) -> str:
            raise ValueError(NASTY * 3)

    run.failures.add(play_game(LoudGame(), {"a": LinePlayer("x" * 10**6), "b": LinePlayer()}))
    assert run.failures.path.stat().st_size < 40_000 and run.failures.path.read_bytes().count(b"\n") == 1


def test_discard_after_drops_later_failures(run: RunFolder) -> None:
    for iteration in (1, 2, 3):
        run.failures.add(make_failed_match(identity=MatchId(iteration, 3)))
    run.discard_after(2)
    assert [each.iteration for each in read_failures(run.path)[0]] == [1, 2]
    run.discard_after(-1)
    assert not run.failures.path.exists()


@given(st.integers(0, 3000))
def test_torn_last_line_is_dropped(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    folder = tmp_path_factory.mktemp("torn")
    log = FailureLog(folder)
    log.add(make_failed_match(identity=MatchId(2, 1)))
    first_size = log.path.stat().st_size
    log.add(make_failed_match(identity=MatchId(2, 2)))
    data = log.path.read_bytes()
    log.path.write_bytes(data[: max(first_size, len(data) - 1 - cut)])
    assert [each.match for each in read_failures(folder)[0]] == ["0002-0001"]
    log.add(make_failed_match(identity=MatchId(2, 3)))
    assert [each.match for each in read_failures(folder)[0]] == ["0002-0001", "0002-0003"]


@pytest.mark.parametrize(
    "line",
    [b"nonsense", b"[]", b"{}", b'{"iteration":"1"}', b'{"iteration":1}', b'{"iteration":1,"more":"x"}', b"\xff\xfe"],
)
def test_edited_file_gives_one_line(run: RunFolder, line: bytes) -> None:
    run.failures.add(make_failed_match())
    run.failures.path.write_bytes(line + b"\n" + run.failures.path.read_bytes())
    expected = get_refusal("show", run.path, "--failures")
    assert f"{run.failures.path}:1: this line" in expected and expected.endswith("remove the file, no run needs it")


def test_irregular_file_is_refused(run: RunFolder, tmp_path: Path) -> None:
    path, outside = run.failures.path, tmp_path / "outside"
    outside.write_text("mine\n")
    for make in (path.mkdir, lambda: path.symlink_to(outside), lambda: os.mkfifo(path)):
        make()
        with pytest.raises(StoreError):
            read_failures(run.path)
        with pytest.raises(StoreError):
            run.failures.add(make_failed_match())
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    assert outside.read_text() == "mine\n"


def test_a_full_disk_leaves_the_file_as_it_was(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    run.failures.add(make_failed_match())
    before = run.failures.path.read_bytes()

    def raise_disk_full(descriptor: int, data: bytes) -> int:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch, pytest.raises(StoreError, match="disk full while writing"):
        patch.setattr(os, "write", raise_disk_full)
        run.failures.add(make_failed_match(identity=MatchId(2, 9)))
    assert run.failures.path.read_bytes() == before


def test_keys_are_never_written(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SERVER", "abcdefgh-secret")
    monkeypatch.setenv("OPENAI_API_KEY", "zyxwvuts-secret")
    run.failures.secret_variables = ["MY_SERVER"]
    text = "abcdefgh-secret zyxwvuts-secret sk-1234567890abcdef Bearer qwertyuiop"
    run.failures.add(make_failed_match(reason=text, failure=Failure(kind="endpoint", trace=text)))
    with write_run_log(run.path, ["MY_SERVER"]):
        logging.getLogger("arena.play").warning("%s", text)
    for file in (run.failures.path, run.path / "run.log"):
        assert not any(secret in file.read_text() for secret in ("-secret", "1234567890", "qwertyuiop"))


# The log of a run


def test_a_text_cannot_forge_a_line_of_the_log(run: RunFolder) -> None:
    with write_run_log(run.path):
        logging.getLogger("arena.play").warning("%s", NASTY)
    first, *rest = (run.path / "run.log").read_text().splitlines()
    assert first.endswith("WARNING arena.play: first") and rest and all(line.startswith("    ") for line in rest)
    assert "\x1b" not in "".join(rest) and "\u202e" not in "".join(rest) and max(map(len, rest)) < 1100


def test_the_log_is_bounded_and_ends_with_its_run(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arena.store.runlog.MAX_BYTES", 1000)
    with write_run_log(run.path):
        for number in range(100):
            logging.getLogger("games").info("line %d", number)
    logging.getLogger("games").warning("afterwards")
    files = sorted(run.path.glob("run.log*"))
    assert [file.name for file in files] == ["run.log", "run.log.1"] and all(f.stat().st_size <= 1000 for f in files)
    assert "line 99" in files[0].read_text() and "afterwards" not in files[0].read_text()


def test_a_log_that_is_a_link_or_a_folder_is_refused(run: RunFolder, tmp_path: Path) -> None:
    path = run.path / "run.log"
    for make in (path.mkdir, lambda: path.symlink_to(tmp_path / "elsewhere")):
        make()
        with pytest.raises(StoreError, match=r"run\.log is not a regular file: remove it"), write_run_log(run.path):
            pass
        path.unlink() if path.is_symlink() else path.rmdir()
    assert not (tmp_path / "elsewhere").exists()


def test_unwritable_log_stops_nothing(run: RunFolder, capfd: pytest.CaptureFixture[str]) -> None:
    with write_run_log(run.path):
        handler = logging.getLogger("arena").handlers[-1]
        os.close(handler.stream.fileno())  # type: ignore[attr-defined]
        logging.getLogger("arena").warning("lost")
        handler.stream = open(os.devnull, "w")  # type: ignore[attr-defined]  # noqa: SIM115
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("value", "is_on"),
    [
        ("1", True),
        ("yes", True),
        ("é🙂", True),
        ("2", True),
        ("", False),
        ("0", False),
        (" False ", False),
        ("off", False),
    ],
)
def test_debug_is_on_unless_it_says_no(value: str, is_on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARENA_DEBUG", value)
    assert is_debugging() is is_on


@given(st.text(), st.integers(10, 200))
def test_lines_are_harmless_and_bounded(text: str, width: int) -> None:
    assert len(truncate_middle(text * 50, width)) <= width + 60
    for line in printable_lines(text, width):
        assert len(line) <= width + 20 and (line.isprintable() or not line.isascii()) and "\n" not in line
    assert remove_secrets("plain words") == "plain words"


# The commands


@pytest.fixture
def game_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text(BROKEN_GAME)
    return tmp_path


def test_run_with_a_failing_game_names_the_line_and_keeps_the_failure(game_folder: Path) -> None:
    result = arena(*TINY, *NO_IMITATION, "--set", "game.name=broken.py:Broken", "--out", "run")
    assert result.code == 1 and "failed 3 times each" in result.line and "broken.py, line 6" in result.line
    assert "match 0001-0000 failed (game): TypeError" in (game_folder / "run" / "run.log").read_text()
    shown = arena("show", "run", "--failures")
    assert shown.code == 0 and "0001-0000-r1" in shown.out and "\x1b" not in shown.out
    details = arena("show", "run", "0001-0000", "--failures")
    assert (
        "Traceback" in details.out
        and "replay_failed('" in details.out
        and "\x1b" not in details.out
        and "broken.py" in details.out
    )
    data = json.loads(arena("show", "run", "--failures", "--json").out)
    assert {row["kind"] for row in data["failures"]} == {"game"}
    assert "did you mean '0001-0000'?" in get_refusal("show", "run", "0001-0000x", "--failures")


def test_bug_of_arena_stops_the_run_at_once(game_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Negotiation, "payoffs", max)
        result = arena(*TINY, *NO_IMITATION, "--iterations", 1, "--set", "play.in_flight=1", "--out", "run")
    assert result.code == 1 and "a bug of Arena" in result.line
    assert "run/failures.jsonl" in result.line and "ARENA_DEBUG=1" in result.line
    (failure,), _ = read_failures(game_folder / "run")
    assert (failure.kind, failure.attempt) == ("bug", 0)
    assert arena("resume", "run", "--json").code == 0 and not (game_folder / "run" / "failures.jsonl").exists()
    assert "no match of run has failed" in arena("show", "run", "--failures").out


def test_debugging_shows_tracebacks_and_changes_nothing_else(
    game_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARENA_DEBUG", "1")
    result = arena(*TINY, *NO_IMITATION, "--set", "game.name=broken.py:Broken", "--out", "run")
    assert result.code == 1 and "Traceback" in result.err and "\x1b" not in result.err and result.out == ""
    assert result.err.splitlines()[-1].startswith("arena: the run stopped: ")
    result = arena("show", "nowhere")
    assert (
        result.code == 2 and "Traceback" in result.err and "there is no folder nowhere" in result.err.splitlines()[-1]
    )


@pytest.mark.slow
def test_failed_match_prints_nothing_unasked(game_folder: Path) -> None:
    command = [sys.executable, "-m", "arena", "eval", "random", "--game", "broken.py:Broken", "--matches", "2"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=game_folder)
    assert result.stderr.count("arena: ") == 1 and "match " not in result.stderr.split("arena: ")[0], result.stderr


@pytest.mark.slow
def test_log_describes_the_run(game_folder: Path) -> None:
    assert run_arena_child(game_folder, *TINY, *NO_IMITATION, "--out", "run").code == 0
    text = (game_folder / "run" / "run.log").read_text()
    expected = (
        "iteration 1: play begins",
        "iteration 1: play ends after",
        "run/checkpoints/0003 is written",
    )
    assert all(line in text for line in (*expected, "iteration 3 is complete", "the run is complete"))
    shutil.rmtree(game_folder / "run" / "checkpoints" / "0003")
    assert run_arena_child(game_folder, "resume", "run").code == 0
    text = (game_folder / "run" / "run.log").read_text().split("the run is complete")[1]
    assert "note: no checkpoint has iteration 3" in text and "continuing from iteration 2 of 3" in text
