"""Foreign run folders: nothing in them steers the terminal, is read as markup, or runs without consent."""

import json
from pathlib import Path
from typing import Any

import pytest

from arena.store.run import RunFolder
from arena.store.schema import SCHEMA_VERSION
from tests.factories.commands import CommandResult, arena
from tests.factories.kept_run import SHARED
from tests.factories.store import make_record

NASTY = "a\x1b]0;owned\x07\x1b[31mred\u202e[/im_end][bold]"


def insert_escapes(value: Any) -> Any:
    """Return the value with terminal escapes appended to every text and unknown key."""
    if isinstance(value, dict):
        return {key if key in KNOWN else f"{key}{NASTY}": insert_escapes(item) for key, item in value.items()}
    if isinstance(value, list):
        return [insert_escapes(item) for item in value]
    return f"{value}{NASTY}" if isinstance(value, str) else value


KNOWN = {"iteration", "report", "reward", "learn", "seconds", "shared", "payoff", "deal"}
METRICS: dict[str, Any] = {
    "iteration": 1, "report": {"deal": 0.5, "x": 1.0}, "reward": {"opener": 1.0}, "learn": {"shared": {"kl": 0.1}},
    "seconds": {"play": 1.0}, "valid_rate": "no number", "mean_payoff": [1], "matches_per_second": 10**400,
}  # fmt: skip


def check_harmless(result: CommandResult) -> None:
    assert result.code in (0, 2), result
    assert "Traceback" not in result.out + result.err
    for text in (result.out, result.err):
        assert not {c for c in text if (ord(c) < 32 and c != "\n") or c in "\x7f\u202e"}, ascii(text)


@pytest.mark.parametrize("sealed", [False, True])
def test_show_prints_text_only(tmp_path: Path, sealed: bool) -> None:
    run = RunFolder.create(tmp_path / "run", SHARED, {})
    for k in (1, 2):
        row = insert_escapes(make_record(k, 0).to_json()) | {"id": f"000{k}-0000", "iteration": k, "status": "finished"}
        line = json.dumps({"schema": SCHEMA_VERSION} | restore_schema(row, make_record(k, 0).to_json()))
        (run.path / "log").mkdir(exist_ok=True)
        (run.path / "log" / f"000{k}.jsonl").write_text(line + "\n")
        if sealed:
            run.log.seal(k)
    (run.path / "metrics.jsonl").write_text(
        "".join(json.dumps(insert_escapes(METRICS) | {"iteration": k}) + "\n" for k in (1, 2))
    )
    for command in (["show", run.path], ["show", run.path, "0001-0000"], ["show", run.path, "--json"]):
        result = arena(*command)
        check_harmless(result)
        assert result.code == 0, result.err
    assert "[/im_end][bold]" in arena("show", run.path, "0001-0000").out, "as text, not as markup"


def restore_schema(row: dict[str, Any], original: dict[str, Any]) -> dict[str, Any]:
    """Return the row with escapes in its values, but the schema's own column names intact."""
    turns = [
        {name: insert_escapes(value) for name, value in turn.items()} | {"seat": f"{turn['seat']}{NASTY}"}
        for turn in original["turns"]
    ]
    seats = {
        f"{seat}{NASTY}": {k: insert_escapes(v) for k, v in seating.items()}
        for seat, seating in original["seats"].items()
    }
    streams = {f"{seat}{NASTY}": value for seat, value in original["streams"].items()}
    plain = {name: row.get(name, insert_escapes(original[name])) for name in original}
    for turn, real_turn in zip(turns, original["turns"], strict=True):
        turn["messages"] = [{"sender": NASTY, "text": NASTY} for _ in real_turn["messages"]]
        turn["rewards"] = {f"{name}{NASTY}": value for name, value in real_turn["rewards"].items()}
    return plain | {"turns": turns, "seats": seats, "streams": streams}


@pytest.mark.parametrize(
    "line",
    ["{}", '{"iteration": "\x1b[31m"}', '{"iteration": true}', '{"iteration": 1e400}', "[]\n{}", '{"iteration": -1}'],
)
def test_invalid_metrics_are_refused(tmp_path: Path, line: str) -> None:
    run = RunFolder.create(tmp_path / "run", SHARED, {})
    (run.path / "metrics.jsonl").write_text(line + "\n" + line + "\n")
    result = arena("show", run.path)
    check_harmless(result)
    assert result.code == 2 and "metrics.jsonl:" in result.line


def test_invalid_rows_of_an_open_log_are_refused(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", SHARED, {})
    (run.path / "log").mkdir()
    for row in (
        {},
        {"id": 3},
        make_record(1, 0).to_json() | {"turns": NASTY},
        make_record(1, 0).to_json() | {"seats": []},
    ):
        (run.path / "log" / "0001.jsonl").write_text(json.dumps({"schema": SCHEMA_VERSION} | row) + "\n" * 2)
        result = arena("show", run.path)
        check_harmless(result)
        assert (result.code == 2 and "0001.jsonl" in result.line) or "schema of the match log" in result.line
