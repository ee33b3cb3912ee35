"""Sending model folders to another node: found by content, sent completely, or refused. Without Ray."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agents.adapter_config import CONFIG
from agents.errors import EngineError
from arena.cli.loop import wait
from arena.scale import shipping
from arena.scale.shipping import FolderSender, describe_folder, find_folder, rebase_adapter, store_part


@pytest.fixture
def node_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the tasks done by a node with its own home that does not see the driver's folder."""
    calls: list[str] = []

    async def run_on_node(node: str, work: Callable[..., Any], *arguments: Any) -> Any:
        calls.append(work.__name__)
        arguments = tuple(
            argument._replace(path=Path("/nowhere") / argument.path.name) if hasattr(argument, "files") else argument
            for argument in arguments
        )
        return work(*arguments)

    monkeypatch.setattr(shipping, "run_on_node", run_on_node)
    monkeypatch.setattr(shipping, "FILE_BUCKET", 1000)
    monkeypatch.setenv("ARENA_HOME", str(tmp_path / "node"))
    return calls


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a driver's folder with a file of several buckets, an empty one, and one that is not sent."""
    folder = tmp_path / "driver" / "model"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(os.urandom(2500))
    (folder / "empty.txt").touch()
    (folder / "optimizer.safetensors").write_bytes(b"moments")
    return folder


def test_folder_is_sent_once_and_then_found(model: Path, node_calls: list[str]) -> None:
    sent = wait(FolderSender()._send("n", model))
    assert node_calls == ["find_folder", *["store_part"] * 4, "complete_folder"]
    assert sorted(path.name for path in sent.iterdir()) == ["empty.txt", "model.safetensors"]
    assert (sent / "model.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()
    assert wait(FolderSender()._send("n", model)) == sent and node_calls[6:] == ["find_folder"]
    (model / "model.safetensors").write_bytes(b"learned")
    assert wait(FolderSender()._send("n", model)) != sent


def test_existing_folder_is_not_sent(model: Path, tmp_path: Path, node_calls: list[str]) -> None:
    assert find_folder(describe_folder(model)) == model, "the same path, as on shared files"
    node_folder = tmp_path / "node" / "models" / "model"
    node_folder.mkdir(parents=True)
    for name in ("model.safetensors", "empty.txt"):
        (node_folder / name).write_bytes((model / name).read_bytes())
    assert wait(FolderSender()._send("n", model)) == node_folder and node_calls == ["find_folder"]
    (node_folder / "model.safetensors").write_bytes(os.urandom(2500))
    assert wait(FolderSender()._send("n", model)) != node_folder


def test_folder_that_changes_while_sent_is_refused(model: Path, node_calls: list[str], tmp_path: Path) -> None:
    folder = describe_folder(model)
    for file in folder.files:
        store_part(".half", file.name, 0, shipping._read(model / file.name, 0))
    with pytest.raises(EngineError, match="changed while it was sent"):
        shipping.complete_folder(folder, ".half")
    assert find_folder(folder._replace(path=tmp_path / "elsewhere")) is None


def test_unused_folders_are_removed(model: Path, node_calls: list[str], tmp_path: Path) -> None:
    sent = wait(FolderSender()._send("n", model))
    week = time.time() - shipping.KEPT_SECONDS - 9
    os.utime(sent, (week, week))
    (model / "empty.txt").write_text("now another")
    wait(FolderSender()._send("n", model))
    assert not sent.exists()


def test_adapter_names_its_base_on_the_node(tmp_path: Path, node_calls: list[str]) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / CONFIG).write_text(json.dumps({"base_model_name_or_path": "smollm2", "r": 4}))
    (adapter / "adapter_model.safetensors").write_bytes(b"matrices")
    rebased = rebase_adapter(adapter, Path("/node/base"))
    assert json.loads((rebased / CONFIG).read_text()) == {"base_model_name_or_path": "/node/base", "r": 4}
    assert (rebased / "adapter_model.safetensors").read_bytes() == b"matrices"
    assert json.loads((adapter / CONFIG).read_text())["base_model_name_or_path"] == "smollm2", (
        "the original is as it was"
    )
