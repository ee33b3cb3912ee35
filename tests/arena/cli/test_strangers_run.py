"""A stranger's run folder: nothing in it steers the terminal, is read as markup, or runs without having been asked."""

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


def strange(value: Any) -> Any:
    """The same, with every text and key replaced by one that would steer a terminal."""
    if isinstance(value, dict):
        return {key if key in KNOWN else f"{key}{NASTY}": strange(item) for key, item in value.items()}
    if isinstance(value, list):
        return [strange(item) for item in value]
    return f"{value}{NASTY}" if isinstance(value, str) else value


KNOWN = {"iteration", "report", "reward", "learn", "seconds", "shared", "payoff", "deal"}
METRICS: dict[str, Any] = {
    "iteration": 1, "report": {"deal": 0.5, "x": 1.0}, "reward": {"opener": 1.0}, "learn": {"shared": {"kl": 0.1}},
    "seconds": {"play": 1.0}, "valid_rate": "no number", "mean_payoff": [1], "matches_per_second": 10**400,
}  # fmt: skip


def harmless(told: CommandResult) -> None:
    assert told.code in (0, 2), told
    assert "Traceback" not in told.out + told.err
    for text in (told.out, told.err):
        assert not {c for c in text if (ord(c) < 32 and c != "\n") or c in "\x7f\u202e"}, ascii(text)


@pytest.mark.parametrize("sealed", [False, True])
def test_show_prints_text_only(tmp_path: Path, sealed: bool) -> None:
    run = RunFolder.create(tmp_path / "run", SHARED, {})
    for k in (1, 2):
        row = strange(make_record(k, 0).to_json()) | {"id": f"000{k}-0000", "iteration": k, "status": "finished"}
        line = json.dumps({"schema": SCHEMA_VERSION} | restored(row, make_record(k, 0).to_json()))
        (run.path / "log").mkdir(exist_ok=True)
        (run.path / "log" / f"000{k}.jsonl").write_text(line + "\n")
        if sealed:
            run.log.seal(k)
    (run.path / "metrics.jsonl").write_text(
        "".join(json.dumps(strange(METRICS) | {"iteration": k}) + "\n" for k in (1, 2))
    )
    for command in (["show", run.path], ["show", run.path, "0001-0000"], ["show", run.path, "--json"]):
        told = arena(*command)
        harmless(told)
        assert told.code == 0, told.err
    assert "[/im_end][bold]" in arena("show", run.path, "0001-0000").out, "as text, not as markup"


def restored(row: dict[str, Any], real: dict[str, Any]) -> dict[str, Any]:
    """The strange row with the names of the schema's own columns as they are."""
    turns = [
        {name: strange(value) for name, value in turn.items()} | {"seat": f"{turn['seat']}{NASTY}"}
        for turn in real["turns"]
    ]
    seats = {f"{seat}{NASTY}": {k: strange(v) for k, v in held.items()} for seat, held in real["seats"].items()}
    streams = {f"{seat}{NASTY}": value for seat, value in real["streams"].items()}
    plain = {name: row.get(name, strange(real[name])) for name in real}
    for turn, own in zip(turns, real["turns"], strict=True):
        turn["messages"] = [{"sender": NASTY, "text": NASTY} for _ in own["messages"]]
        turn["rewards"] = {f"{name}{NASTY}": value for name, value in own["rewards"].items()}
    return plain | {"turns": turns, "seats": seats, "streams": streams}


@pytest.mark.parametrize(
    "line",
    ["{}", '{"iteration": "\x1b[31m"}', '{"iteration": true}', '{"iteration": 1e400}', "[]\n{}", '{"iteration": -1}'],
)
def test_metrics_that_are_none_are_refused(tmp_path: Path, line: str) -> None:
    run = RunFolder.create(tmp_path / "run", SHARED, {})
    (run.path / "metrics.jsonl").write_text(line + "\n" + line + "\n")
    told = arena("show", run.path)
    harmless(told)
    assert told.code == 2 and "metrics.jsonl:" in told.line


def test_rows_of_an_open_log_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", SHARED, {})
    (run.path / "log").mkdir()
    for row in (
        {},
        {"id": 3},
        make_record(1, 0).to_json() | {"turns": NASTY},
        make_record(1, 0).to_json() | {"seats": []},
    ):
        (run.path / "log" / "0001.jsonl").write_text(json.dumps({"schema": SCHEMA_VERSION} | row) + "\n" * 2)
        told = arena("show", run.path)
        harmless(told)
        assert (told.code == 2 and "0001.jsonl" in told.line) or "schema of the match log" in told.line
