"""Credit within an iteration: each trajectory is measured once, however often credit is computed."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from arena.cli.loop import wait
from arena.config.layers import compose
from arena.config.sources import set_layer, text_layer
from arena.credit.critics.base import Measures
from arena.credit.iteration import CreditPipeline
from arena.records import Trajectory
from arena.store.reader import LogReader
from tests.factories.kept_run import SHARED
from tests.factories.trajectories import make_record, make_scored_trajectory

NEEDS_ENTROPY = "credit={select: [high_entropy]}"


def test_trajectory_is_measured_once_per_iteration(tmp_path: Path) -> None:
    measured_matches: list[list[str]] = []

    async def measure(needs: frozenset[str], trajectories: Sequence[Trajectory]) -> Measures:
        measured_matches.append([t.match for t in trajectories])
        assert needs == {"entropy"}
        return {"entropy": [np.ones(sum(turn.tokens for turn in t.turns), np.float32) for t in trajectories]}

    first, second = (make_scored_trajectory(1.0, seed=n, match=f"0001-{n:04d}") for n in (0, 1))
    experiment = compose([text_layer("test", SHARED), set_layer(NEEDS_ENTROPY), set_layer("play.matches=2")])
    pipeline = CreditPipeline(experiment.credit, None, measure, LogReader(tmp_path), {}, seed=0, iterations=2, deals=2)
    wait(pipeline.count_missing_deals(1, [make_record(first)], deals=1))
    wait(pipeline.count_missing_deals(1, [make_record(first), make_record(second)], deals=2))
    wait(pipeline.credit(1, [make_record(first), make_record(second)]))
    assert measured_matches == [["0001-0000"], ["0001-0001"]]
    wait(pipeline.credit(2, [make_record(first), make_record(second)]))
    assert measured_matches[2:] == [["0001-0000", "0001-0001"]], (
        "another iteration has other weights, so it measures again"
    )
