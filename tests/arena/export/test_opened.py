"""Exports open in the programs they are for; without these programs a test skips with an install command."""

import contextlib
import io
import json
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.factories.commands import arena, get_refusal


def export_as(run: Path, name: str, to: Path) -> Path:
    result = arena("export", run, "--as", name, "--to", to)
    assert result.code == 0, result.err
    return to


def test_datasets_loads_chats_and_pairs(grouped_run: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="no datasets: pip install datasets")
    for name, column in (("chats", "messages"), ("pairs", "chosen")):
        file = export_as(grouped_run, name, tmp_path / name) / f"{name}.jsonl"
        with contextlib.redirect_stderr(io.StringIO()):
            table = datasets.load_dataset(
                "json", data_files=str(file), split="train", cache_dir=str(tmp_path / "cache")
            )
        assert table[column][:] == [json.loads(line)[column] for line in file.read_bytes().splitlines()]


def test_trl_takes_chats_and_pairs_as_they_are(grouped_run: Path, tmp_path: Path) -> None:
    trl = pytest.importorskip("trl", reason="no trl: pip install 'trl>=1.16'")
    for name in ("chats", "pairs"):
        file = export_as(grouped_run, name, tmp_path / name) / f"{name}.jsonl"
        assert all(trl.is_conversational(json.loads(line)) for line in file.read_bytes().splitlines())


def test_inspect_reads_the_logs_and_its_viewer_lists_them(grouped_run: Path, tmp_path: Path) -> None:
    log = pytest.importorskip("inspect_ai.log", reason="no Inspect: pip install 'arena-selfplay[inspect]'")
    folder = export_as(grouped_run, "inspect", tmp_path / "logs")
    (info,) = log.list_eval_logs(str(folder))
    eval_log = log.read_eval_log(info)
    chats = [json.loads(line) for line in (export_as(grouped_run, "chats", tmp_path / "c") / "chats.jsonl").open()]
    assert eval_log.status == "success" and len(eval_log.samples) == len(chats) == eval_log.results.total_samples
    by_id = {f"{chat['match']}/{chat['seat']}/{chat['first_turn']}": chat for chat in chats}
    for sample in eval_log.samples:
        chat = by_id[sample.id]
        assert [{"role": m.role, "content": m.text} for m in sample.messages] == chat["messages"]
        assert sample.scores["payoff"].value == chat["payoff"] and sample.scores["return"].value == chat["return"]
    mean = sum(chat["payoff"] for chat in chats) / len(chats)
    assert eval_log.results.scores[0].metrics["mean"].value == pytest.approx(mean)
    (listed,) = list_logs(folder)
    assert listed["task"] == eval_log.eval.task == "negotiation run iteration 1"


def list_logs(folder: Path) -> list[Any]:
    """Return the logs that Inspect's viewer lists."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-P", "-m", "inspect_ai", "view", "start", "--log-dir", str(folder)]
    viewer = subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(240):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/logs", timeout=5) as answer:
                    return list(json.load(answer)["files"])
            except OSError:
                pass
            time.sleep(0.25)
        raise AssertionError("the viewer does not answer")
    finally:
        viewer.kill()
        viewer.wait()


def test_without_inspect_its_format_is_refused(
    grouped_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    line = get_refusal("export", grouped_run, "--as", "inspect", "--to", tmp_path / "out")
    assert line == "--as inspect needs Inspect: pip install 'arena-selfplay[inspect]'" and not list(tmp_path.iterdir())
