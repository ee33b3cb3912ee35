"""Joint decisions of ranks, and the driver's errors when one dies or hangs; no process is left behind."""

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
def two_ranks(cluster: None) -> Iterator[Ranks]:
    """Return two new ranks that detect a hanging one after 8 s."""
    started = asyncio.run(Ranks.start([{"num_cpus": 1}] * 2, timeout=8.0, start_timeout=300.0))
    yield started
    asyncio.run(started.close())


async def update_and_read(trainer: Any, case: Case) -> tuple[Any, dict[str, float], Any]:
    """Run an update; return the weights before, its metrics and the weights after."""
    before = copy_arrays(await trainer.weights())
    metrics = await trainer.update(trainer.plan(case.draw_samples(1), np.random.default_rng(0)))
    return before, metrics, copy_arrays(await trainer.weights())


def make_trainer(ranks: Ranks, case: Case, **rule: Any) -> Any:
    (trainer,) = make_trainers(partial(ScaledTrainer, ranks), case, **rule)
    return trainer


def has_ended(pid: int) -> bool:
    """Return whether a process ends within the timeout."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.1)
                continue
        return True
    return False


# -- decisions ---------------------------------------------------------------------------------------------


def make_samples_with_inf(k: int) -> list[Sample]:
    """Return samples of which one, so a single rank, has a non-finite advantage."""
    first, *others = make_ragged_samples(k)
    return [replace(first, advantages=np.full_like(first.advantages, np.inf)), *others]


def make_stale_samples(k: int) -> list[Sample]:
    """Return samples whose log-probabilities differ from the trainer's."""
    return [replace(sample, behaviour=sample.behaviour + np.float32(0.2)) for sample in make_ragged_samples(k)]


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_step_skipped_by_one_rank_is_skipped_by_all(ranks: Ranks, stage: Any) -> None:
    case = Case({"regularisers": {}, "zero_stage": stage}, make_samples_with_inf)
    trainer = make_trainer(ranks, case, nonfinite="skip", minibatches=3)
    before, metrics, after = asyncio.run(update_and_read(trainer, case))
    assert metrics["skipped"] == 1 and trainer.state()["steps"] == 2
    assert all(np.isfinite(value).all() for value in after.values())
    assert any((value != before[name]).any() for name, value in after.items())


@pytest.mark.parametrize("stage", [0, 3])
def test_errors_stop_all_ranks_and_leave_them_usable(ranks: Ranks, stage: Any) -> None:
    sound = Case({"zero_stage": stage})
    nonfinite, stale = (
        replace(sound, draw_samples=make_samples_with_inf),
        replace(sound, draw_samples=make_stale_samples),
    )
    with pytest.raises(DivergedError, match=r"policy 'p', iteration 1, epoch 1, minibatch .*norm is"):
        asyncio.run(update_and_read(make_trainer(ranks, nonfinite), nonfinite))
    with pytest.raises(GateError, match=r"policy 'p'.*log-probabilities differ"):
        asyncio.run(update_and_read(make_trainer(ranks, stale, gate_tolerance=0.1), stale))
    assert ranks.lost is None
    asyncio.run(update_and_read(make_trainer(ranks, sound), sound))


def test_error_of_one_rank_ends_the_group(two_ranks: Ranks) -> None:
    """An unknown token makes only rank 1 fail, and rank 0 would wait for it."""
    trainer = make_trainer(two_ranks, Case())
    plan = trainer.plan(make_ragged_samples(1), np.random.default_rng(0))
    number = plan.steps[0].played[1][0].index[0]
    stream = plan.samples[number].stream
    broken = replace(plan.samples[number], stream=replace(stream, ids=[10**6, *stream.ids[1:]]))
    with pytest.raises(IndexError):
        asyncio.run(trainer.update(replace(plan, samples={**plan.samples, number: broken})))
    with pytest.raises(RanksLost, match="policy 'p', iteration 1, update"):
        asyncio.run(trainer.save())
    assert all(has_ended(place.pid) for place in two_ranks.locations)


# -- deaths ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signal_number", "message"), [(signal.SIGKILL, "died"), (signal.SIGSTOP, "did not answer for 8 s")]
)
def test_dead_or_hanging_rank_is_reported_and_all_are_ended(two_ranks: Ranks, signal_number: int, message: str) -> None:
    case = Case({"epochs": 500})
    trainer = make_trainer(two_ranks, case)
    asyncio.run(update_and_read(make_trainer(two_ranks, Case()), Case()))  # all is loaded

    async def run_update() -> None:
        update = asyncio.ensure_future(trainer.update(trainer.plan(case.draw_samples(1), np.random.default_rng(0))))
        await asyncio.sleep(2.0)
        for actor in two_ranks.actors:
            await asyncio.wait_for(actor.ping.remote(), PATIENCE)  # in the middle of the update
        assert not update.done()
        os.kill(two_ranks.locations[1].pid, signal_number)
        with pytest.raises(RanksLost, match=f"policy 'p', iteration 1, update: rank 1 of 2 {message}"):
            await asyncio.wait_for(update, PATIENCE)
        with pytest.raises(RanksLost):
            await trainer.save()
        await trainer.close()

    asyncio.run(run_update())
    assert all(has_ended(place.pid) for place in two_ranks.locations)


def test_closing_ends_all_ranks_even_stopped_ones(two_ranks: Ranks) -> None:
    os.kill(two_ranks.locations[0].pid, signal.SIGSTOP)
    asyncio.run(two_ranks.close())
    assert all(has_ended(place.pid) for place in two_ranks.locations)


def test_unstartable_rank_is_reported(cluster: None) -> None:
    with pytest.raises(RanksLost, match=r"starting: rank .*1 of 2 did not answer for 10 s"):
        asyncio.run(Ranks.start([{"num_cpus": 0}, {"num_cpus": 99}], start_timeout=10.0))
