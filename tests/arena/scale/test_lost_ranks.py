"""What ranks decide together, and what the driver is told when one of them dies or hangs; nobody is left behind."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena.errors import DivergedError, GateError, RanksLost
from arena.learn.samples import Sample
from tests.factories.scaled import Case, copy_arrays, make_ragged_samples, make_trainers

ray = pytest.importorskip("ray")

from arena.scale.ranks import Ranks  # noqa: E402
from arena.scale.trainer import ScaledTrainer  # noqa: E402

pytestmark = pytest.mark.slow
PATIENCE = 60.0


@pytest.fixture
def two(cluster: None) -> Iterator[Ranks]:
    """Two ranks of a test's own, which find after 8 s that another one hangs."""
    started = asyncio.run(Ranks.start([{"num_cpus": 1}] * 2, timeout=8.0, start_timeout=300.0))
    yield started
    asyncio.run(started.close())


async def updated(trainer: Any, case: Case) -> tuple[Any, dict[str, float], Any]:
    """Weights before, an update's metrics, weights after."""
    before = copy_arrays(await trainer.weights())
    metrics = await trainer.update(trainer.plan(case.draw_samples(1), np.random.default_rng(0)))
    return before, metrics, copy_arrays(await trainer.weights())


def trainer_on(ranks: Ranks, case: Case, **rule: Any) -> Any:
    (trainer,) = make_trainers(partial(ScaledTrainer, ranks), case, **rule)
    return trainer


def gone(pid: int) -> bool:
    """Whether a process has ended, within a while."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.1)
                continue
        return True
    return False


# -- decisions ---------------------------------------------------------------------------------------------


def one_of_them_wrong(k: int) -> list[Sample]:
    """Streams of which a single one, so a single rank, has an advantage that is not finite."""
    first, *others = make_ragged_samples(k)
    return [replace(first, advantages=np.full_like(first.advantages, np.inf)), *others]


def sampled_elsewhere(k: int) -> list[Sample]:
    """Streams whose sampler computed other log-probabilities than the trainer will."""
    return [replace(sample, behaviour=sample.behaviour + np.float32(0.2)) for sample in make_ragged_samples(k)]


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_step_that_one_rank_cannot_count_no_rank_counts(ranks: Ranks, stage: Any) -> None:
    case = Case({"regularisers": {}, "zero_stage": stage}, one_of_them_wrong)
    trainer = trainer_on(ranks, case, nonfinite="skip", minibatches=3)
    before, metrics, after = asyncio.run(updated(trainer, case))
    assert metrics["skipped"] == 1 and trainer.state()["steps"] == 2
    assert all(np.isfinite(value).all() for value in after.values())
    assert any((value != before[name]).any() for name, value in after.items())


@pytest.mark.parametrize("stage", [0, 3])
def test_what_stops_an_update_stops_all_ranks_and_leaves_them_at_work(ranks: Ranks, stage: Any) -> None:
    usual = Case({"zero_stage": stage})
    wrong, elsewhere = replace(usual, draw_samples=one_of_them_wrong), replace(usual, draw_samples=sampled_elsewhere)
    with pytest.raises(DivergedError, match=r"policy 'p', iteration 1, epoch 1, minibatch .*norm is"):
        asyncio.run(updated(trainer_on(ranks, wrong), wrong))
    with pytest.raises(GateError, match=r"policy 'p'.*log-probabilities differ"):
        asyncio.run(updated(trainer_on(ranks, elsewhere, gate_tolerance=0.1), elsewhere))
    assert ranks.lost is None
    asyncio.run(updated(trainer_on(ranks, usual), usual))


def test_an_error_of_one_rank_is_the_error_and_ends_the_group(two: Ranks) -> None:
    """A token that the model does not have: rank 1 alone fails, rank 0 would wait for it."""
    trainer = trainer_on(two, Case())
    plan = trainer.plan(make_ragged_samples(1), np.random.default_rng(0))
    number = plan.steps[0].played[1][0].index[0]
    stream = plan.samples[number].stream
    broken = replace(plan.samples[number], stream=replace(stream, ids=[10**6, *stream.ids[1:]]))
    with pytest.raises(IndexError):
        asyncio.run(trainer.update(replace(plan, samples={**plan.samples, number: broken})))
    with pytest.raises(RanksLost, match="policy 'p', iteration 1, update"):
        asyncio.run(trainer.save())
    assert all(gone(place.pid) for place in two.places)


# -- deaths ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sent", "said"), [(signal.SIGKILL, "died"), (signal.SIGSTOP, "did not answer for 8 s")])
def test_a_rank_that_dies_or_hangs_is_named_and_all_are_ended(two: Ranks, sent: int, said: str) -> None:
    case = Case({"epochs": 500})
    trainer = trainer_on(two, case)
    asyncio.run(updated(trainer_on(two, Case()), Case()))  # all is loaded

    async def through() -> None:
        update = asyncio.ensure_future(trainer.update(trainer.plan(case.draw_samples(1), np.random.default_rng(0))))
        await asyncio.sleep(2.0)
        for actor in two.actors:
            await asyncio.wait_for(actor.ping.remote(), PATIENCE)  # in the middle of the update
        assert not update.done()
        os.kill(two.places[1].pid, sent)
        with pytest.raises(RanksLost, match=f"policy 'p', iteration 1, update: rank 1 of 2 {said}"):
            await asyncio.wait_for(update, PATIENCE)
        with pytest.raises(RanksLost):
            await trainer.save()
        await trainer.close()

    asyncio.run(through())
    assert all(gone(place.pid) for place in two.places)


def test_closing_ends_all_ranks_the_stopped_one_too(two: Ranks) -> None:
    os.kill(two.places[0].pid, signal.SIGSTOP)
    asyncio.run(two.close())
    assert all(gone(place.pid) for place in two.places)


def test_a_rank_that_nobody_can_start_is_named(cluster: None) -> None:
    with pytest.raises(RanksLost, match=r"starting: rank .*1 of 2 did not answer for 10 s"):
        asyncio.run(Ranks.start([{"num_cpus": 0}, {"num_cpus": 99}], start_timeout=10.0))
