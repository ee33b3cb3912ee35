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

from tests.arena.scale.command_runs import LIMIT, Scaled, done, finished
from tests.arena.scale.nodes import Nodes, can_hide
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

    def begin(self, mark: str, run: Path, *words: object) -> Scaled:
        """Start a run, of which the driver is on the head's node."""
        given = *TINY, *NO_IMITATION, "--set", f"play.matches={MATCHES}", "--out", run, "--scale", self.scale, *words
        variables = {**self.nodes.environ, "ARENA_HOME": str(self.nodes.hidden / "home")}
        return Scaled(mark, *given, folder=None, **variables)

    def replace(self, kind: str) -> None:
        """Kill a node, and start another one."""
        self.nodes.kill(self.named[kind])
        self.named[kind] = self.nodes.add(kind)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[TwoNodes]:
    made = TwoNodes(tmp_path)
    yield made
    made.nodes.close([*made.named.values()])


@pytest.mark.skipif(not can_hide(), reason="needs unshare -m, to hide files from nodes")
def test_two_nodes_without_shared_files_do_a_run(two: TwoNodes, tmp_path: Path) -> None:
    """Frozen weights, a reference and a past version are sent, too."""
    league = "league={opponents: [{play: past, lag: 1}], pool: {every: 1, keep: 4}}"
    code, said = two.begin("shared", tmp_path / "run", "--set", league).end()
    assert code == 0, said
    assert finished(tmp_path / "run") == Counter(dict.fromkeys(range(1, 4), MATCHES))
    for kind in two.named:
        assert not list(two.nodes.home(two.named[kind]).glob("models/*")), "nothing was made there"
    sent = [len(list((two.nodes.home(name) / "sent").iterdir())) for name in two.named.values()]
    assert sent[0] == 1 and sent[1] >= 2, sent


def test_nodes_that_die_and_join_lose_no_match(two: TwoNodes, tmp_path: Path) -> None:
    """Nodes of engines and of ranks die in turn, at random moments; others join and take their place."""
    run, rng = tmp_path / "run", random.Random(5)
    begun = two.begin("deaths", run, "--iterations", 2 * DEATHS + 2)
    begun.until(1, run)
    for death in range(DEATHS):
        before = done(run)
        time.sleep(rng.uniform(0.0, 1.0))
        two.replace(("engines", "ranks")[death % 2])
        begun.until(before + 1, run)
    code, said = begun.end()
    assert code == 0, said
    assert finished(run) == Counter(dict.fromkeys(range(1, 2 * DEATHS + 3), MATCHES))


def test_doctor_says_what_a_node_lacks(two: TwoNodes) -> None:
    argv = [sys.executable, "-P", "-m", "arena", "doctor", "--json", "--scale"]
    given = {"env": two.nodes.environ, "capture_output": True, "text": True, "timeout": LIMIT}
    told = subprocess.run([*argv, two.scale], **given)  # type: ignore[call-overload]
    found = json.loads(told.stdout)
    assert told.returncode == 0 and all(one["ok"] for one in found), told
    assert len([one for one in found if one["what"].startswith("node 127.0.0.")]) == 3
    lacking = two.scale.replace("nodes=engines", "nodes=gpus")
    told = subprocess.run([*argv, lacking], **given)  # type: ignore[call-overload]
    (room,) = [one for one in json.loads(told.stdout) if not one["ok"]]
    assert "no node with the resource 'gpus'" in room["found"], told
