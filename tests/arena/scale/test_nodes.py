"""Runs on two nodes of this machine: ranks on one, engines on the other, no shared files; nodes die and join."""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.arena.scale.command_runs import LIMIT, ScaledCommand, count_finished_matches, count_iterations
from tests.arena.scale.nodes import Nodes, can_hide_files
from tests.factories.commands import NO_IMITATION, TINY

pytest.importorskip("ray")

pytestmark = pytest.mark.slow
DEATHS = 20 if os.environ.get("ARENA_THOROUGH") else 4
MATCHES = 8


class TwoNodes:
    """A cluster with a node for ranks and a node for engines."""

    def __init__(self, hidden: Path) -> None:
        self.nodes = Nodes(hidden)
        self.named = {kind: self.nodes.add(kind) for kind in ("ranks", "engines")}
        self.scale = ",".join(
            [
                *(f"address={self.nodes.address}", "trainers=2", "engines=2", "patience=20"),
                *("resources.trainer.nodes=ranks", "resources.engine.nodes=engines"),
            ]
        )

    def start_run(self, mark: str, run: Path, *extra_arguments: object) -> ScaledCommand:
        """Start a run, of which the driver is on the head's node."""
        arguments = (
            *TINY,
            *NO_IMITATION,
            "--set",
            f"play.matches={MATCHES}",
            "--out",
            run,
            "--scale",
            self.scale,
            *extra_arguments,
        )
        variables = {**self.nodes.environ, "ARENA_HOME": str(self.nodes.hidden / "home")}
        return ScaledCommand(mark, *arguments, folder=None, **variables)

    def replace(self, kind: str) -> None:
        """Kill a node, and start another one."""
        self.nodes.kill(self.named[kind])
        self.named[kind] = self.nodes.add(kind)


@pytest.fixture
def two_nodes(tmp_path: Path) -> Iterator[TwoNodes]:
    cluster = TwoNodes(tmp_path)
    yield cluster
    cluster.nodes.close([*cluster.named.values()])


@pytest.mark.skipif(not can_hide_files(), reason="needs unshare -m, to hide files from nodes")
def test_two_nodes_without_shared_files_complete_a_run(two_nodes: TwoNodes, tmp_path: Path) -> None:
    """Frozen weights, a reference and a past version are also sent."""
    league = "league={opponents: [{play: past, lag: 1}], pool: {every: 1, keep: 4}}"
    code, stderr = two_nodes.start_run("shared", tmp_path / "run", "--set", league).wait_for_end()
    assert code == 0, stderr
    assert count_finished_matches(tmp_path / "run") == Counter(dict.fromkeys(range(1, 4), MATCHES))
    for kind in two_nodes.named:
        assert not list(two_nodes.nodes.home(two_nodes.named[kind]).glob("models/*")), "no model was built on the nodes"
    sent = [len(list((two_nodes.nodes.home(name) / "sent").iterdir())) for name in two_nodes.named.values()]
    assert sent[0] == 1 and sent[1] >= 2, sent


def test_nodes_that_die_and_join_lose_no_match(two_nodes: TwoNodes, tmp_path: Path) -> None:
    """Nodes of engines and of ranks die alternately at random moments, and new ones replace them."""
    run, rng = tmp_path / "run", random.Random(5)
    command = two_nodes.start_run("deaths", run, "--iterations", 2 * DEATHS + 2)
    command.wait_for_iterations(1, run)
    for death in range(DEATHS):
        before = count_iterations(run)
        time.sleep(rng.uniform(0.0, 1.0))
        two_nodes.replace(("engines", "ranks")[death % 2])
        command.wait_for_iterations(before + 1, run)
    code, stderr = command.wait_for_end()
    assert code == 0, stderr
    assert count_finished_matches(run) == Counter(dict.fromkeys(range(1, 2 * DEATHS + 3), MATCHES))


def test_doctor_reports_what_a_node_lacks(two_nodes: TwoNodes) -> None:
    argv = [sys.executable, "-P", "-m", "arena", "doctor", "--json", "--scale"]
    options = {"env": two_nodes.nodes.environ, "capture_output": True, "text": True, "timeout": LIMIT}
    result = subprocess.run([*argv, two_nodes.scale], **options)  # type: ignore[call-overload]
    findings = json.loads(result.stdout)
    assert result.returncode == 0 and all(one["ok"] for one in findings), result
    assert len([one for one in findings if one["what"].startswith("node 127.0.0.")]) == 3
    scale_without_gpus = two_nodes.scale.replace("nodes=engines", "nodes=gpus")
    result = subprocess.run([*argv, scale_without_gpus], **options)  # type: ignore[call-overload]
    (room,) = [one for one in json.loads(result.stdout) if not one["ok"]]
    assert "no node with the resource 'gpus'" in room["found"], result
