"""Credit within an iteration: however often it is tried, a trajectory is measured once."""

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

ASKS_FOR_ENTROPY = "credit={select: [high_entropy]}"


def test_a_trajectory_is_measured_once_in_an_iteration(tmp_path: Path) -> None:
    asked: list[list[str]] = []

    async def measured(needs: frozenset[str], found: Sequence[Trajectory]) -> Measures:
        asked.append([t.match for t in found])
        assert needs == {"entropy"}
        return {"entropy": [np.ones(sum(turn.tokens for turn in t.turns), np.float32) for t in found]}

    first, second = (make_scored_trajectory(1.0, seed=n, match=f"0001-{n:04d}") for n in (0, 1))
    experiment = compose([text_layer("test", SHARED), set_layer(ASKS_FOR_ENTROPY), set_layer("play.matches=2")])
    crediting = CreditPipeline(
        experiment.credit, None, measured, LogReader(tmp_path), {}, seed=0, iterations=2, deals=2
    )
    wait(crediting.count_missing_deals(1, [make_record(first)], deals=1))
    wait(crediting.count_missing_deals(1, [make_record(first), make_record(second)], deals=2))
    wait(crediting.credit(1, [make_record(first), make_record(second)]))
    assert asked == [["0001-0000"], ["0001-0001"]]
    wait(crediting.credit(2, [make_record(first), make_record(second)]))
    assert asked[2:] == [["0001-0000", "0001-0001"]], "another iteration's weights are others"
