"""Plans: equal learning on any number of ranks, with balanced work."""

import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agents.packing import Costs, Pass
from agents.scoring import StreamBatch, StreamScorer
from arena.config.experiment import LearnSpec
from arena.learn import gradients
from arena.learn.gradients import Gradients, UpdateMetrics
from arena.learn.plan import IDLE, Plan, Planner, Shares, Step, distribute_passes
from arena.learn.ranks import Tally
from arena.learn.samples import Sample
from arena.learn.settings import DemonstrationsSpec
from arena.parts.schedules import Clock
from tests.factories.models import make_tiny_llama
from tests.factories.samples import make_regularisers, make_samples

RANKS = [1, 2, 3]
AGGREGATES: list[Any] = [
    "token_mean", "turn_mean", "stream_mean", "stream_turn_mean", {"constant_length": {"length": 7}},
]  # fmt: skip
PAIRED_LOSS = {"loss": "refuel", "aggregate": "turn_mean"}


def make_all_samples(paired: bool = False) -> list[Sample]:
    """Return played samples, some out of the loss, and demonstrations; `paired` adds pairs of replies."""
    played = [s.with_reference(s.behaviour + np.float32(0.3)) for s in make_samples(make_tiny_llama(), 1, 7)]
    played = [replace(s, learned=s.places != 1, behaviour=s.behaviour + np.float32(0.1)) for s in played]
    if paired:
        played = [replace(s, pairs=np.where(s.places == 0, i // 2, -1)) for i, s in enumerate(played)]
    demonstrations = [
        replace(s, source="demonstration", behaviour=np.zeros_like(s.behaviour))
        for s in make_samples(make_tiny_llama(), 2, 5)
    ]
    return [*played, *demonstrations]


def make_rule(**changes: Any) -> LearnSpec:
    settings = {
        "regularisers": make_regularisers(kl=0.1, entropy=0.05),
        "token_budget": 90,
        "gate_tolerance": 9.0,
    } | changes
    return LearnSpec.model_validate(
        dict(demonstrations=DemonstrationsSpec.model_validate(dict(weight=0.7, scripted=["random"])), **settings)
    )


def make_plan(rule: LearnSpec, ranks: int, paired: bool = False) -> Plan:
    """Plan the same update for this number of ranks."""
    return Planner("p", rule, Costs(16)).plan_update(
        make_all_samples(paired), np.random.default_rng(3), Clock(2, 9), 4, ranks
    )


def list_shares(step: Step) -> list[Shares]:
    return [step.played, step.demonstrations, *([step.rivals] if step.rivals else [])]


def list_indices(shares: Shares) -> list[int]:
    return sorted(i for share in shares for assigned in share for i in assigned.index)


class PlainEngine:
    """The part of DeepSpeed's engine that gradients need, in plain torch."""

    def __init__(self, model: Any) -> None:
        self.model, self.scorer, self.device = model, StreamScorer(model), torch.device("cpu")

    def __call__(self, batch: StreamBatch) -> Any:
        return self.scorer(batch)

    def backward(self, loss: torch.Tensor) -> None:
        torch.autograd.backward(loss)

    def parameters(self) -> Any:
        return self.model.parameters()


class ThreadedRanks:
    """Ranks as threads, with an all-reduce of what each has seen."""

    def __init__(self, ranks: int) -> None:
        self._barrier, self._seen, self._own = threading.Barrier(ranks, timeout=60), [None] * ranks, threading.local()

    def __call__(self, own: Any, plus: Callable[[Any, Any], Any]) -> Any:
        self._seen[self._own.rank] = own
        self._barrier.wait()
        both = reduce(plus, self._seen)
        self._barrier.wait()
        return both

    def run_on_all_ranks(self, work: Callable[[int], Any]) -> list[Any]:
        """Run the work on every rank and return the results."""

        def one(rank: int) -> Any:
            self._own.rank = rank
            try:
                return work(rank)
            except BaseException:
                self._barrier.abort()
                raise

        with ThreadPoolExecutor(len(self._seen)) as threads:
            return list(threads.map(one, range(len(self._seen))))


class StepResult(NamedTuple):
    gradient: torch.Tensor
    means: dict[str, float]
    gap: Tally
    seen: np.ndarray


def exhaust(work: Generator[bool, None, Tally]) -> Tally:
    """Run the generator to its end and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            tally: Tally = end.value
            return tally


def run_steps(rule: LearnSpec, plan: Plan, ranks: int, monkeypatch: pytest.MonkeyPatch) -> StepResult:
    """Run the first and the last step on all ranks, moving the weights in between, and combine the results."""
    threads = ThreadedRanks(ranks)
    monkeypatch.setattr(gradients, "reduce_over_ranks", threads)

    engines = [PlainEngine(make_tiny_llama()) for _ in range(ranks)]

    def work(rank: int) -> tuple[Any, ...]:
        engine, metrics = engines[rank], UpdateMetrics()
        share = Gradients(engine=engine, rule=rule, plan=plan, memory={}, metrics=metrics, rank=rank)
        share.score_old()
        gap = exhaust(share.add(plan.steps[0]))
        with torch.no_grad():
            for parameter in engine.parameters():
                parameter += 0.01 * parameter.roll(1, 0)
        if len(plan.steps) > 1:
            exhaust(share.add(plan.steps[-1]))
        gradient = torch.cat([p.grad.flatten() for p in engine.parameters()])
        seen = np.sum([np.pad(n, ((0, 0), (0, 9 - len(n[0])))) for n in share.seen.get("entropy_band", [])], axis=0)
        return gradient, metrics, gap, seen

    gradient, all_metrics, gaps, seen = zip(*threads.run_on_all_ranks(work), strict=True)
    assert len(set(gaps)) == 1, "every rank has the total"
    return StepResult(sum(gradient), reduce(UpdateMetrics.plus, all_metrics).means(), gaps[0], sum(seen))


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("aggregate", AGGREGATES, ids=str)
def test_token_weights_do_not_depend_on_the_number_of_ranks(aggregate: Any, ranks: int) -> None:
    alone, plan = (make_plan(make_rule(aggregate=aggregate, epochs=2, minibatches=2), n) for n in (1, ranks))
    assert len(plan.steps) == len(alone.steps) == 4 and plan.rates == alone.rates
    for step, single_step in zip(plan.steps, alone.steps, strict=True):
        assert step.demonstration_weight == single_step.demonstration_weight and step.label == single_step.label
        assert all((step.weights[i] == single_step.weights[i]).all() for i in single_step.weights)
        total = sum(step.weights[i].sum() for share in step.played for one in share for i in one.index)
        assert total == pytest.approx(sum(w.sum() for w in single_step.weights.values()))
        for distributed, single in zip(list_shares(step), list_shares(single_step), strict=True):
            assert list_indices(distributed) == list_indices(single), "each stream once"
            assert len(distributed) == ranks and len({len(share) for share in distributed}) == 1, (
                "equally many passes on each rank"
            )
    assert plan.old and alone.old and list_indices(plan.old) == list_indices(alone.old)


CASES = {
    **{str(a): {"aggregate": a} for a in AGGREGATES},
    "one step": {"minibatches": 1},
    "pairs": PAIRED_LOSS,
    "pairs in one step": PAIRED_LOSS | {"minibatches": 1},
    "with memory": {"regularisers": {"entropy_band": {}}},
    "sharded weights": {"zero_stage": 3},
}


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("case", CASES)
def test_gradients_of_ranks_sum_to_that_of_one(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule, paired = make_rule(**{"minibatches": 2} | CASES[case]), "pairs" in case
    alone, *results = (run_steps(rule, make_plan(rule, ranks, paired), ranks, monkeypatch) for ranks in RANKS)
    size = max(1.0, float(alone.gradient.abs().max()))
    assert alone.gradient.abs().max() > 1e-3
    for result in results:
        torch.testing.assert_close(result.gradient / size, alone.gradient / size, atol=1e-5, rtol=1e-5)
        assert result.means == pytest.approx(alone.means, rel=1e-4, abs=1e-6)
        assert result.gap.count == alone.gap.count and result.gap.mean == pytest.approx(alone.gap.mean, rel=1e-4)
        np.testing.assert_allclose(result.seen, alone.seen, rtol=1e-5)


pass_lists = st.lists(st.tuples(st.integers(1, 5), st.integers(2, 40)), max_size=8)


@given(pass_lists, st.integers(1, 5))
def test_passes_are_distributed_evenly(sizes: list[tuple[int, int]], ranks: int) -> None:
    """Streams are numbered pass after pass; all of a pass are equally long."""
    starts = np.cumsum([0, *(rows for rows, _ in sizes)]).tolist()
    passes = [
        Pass.of(range(at, at + rows), [length] * rows, 1) for at, (rows, length) in zip(starts, sizes, strict=False)
    ]
    lengths = [length for rows, length in sizes for _ in range(rows)]
    distributed = distribute_passes(list(passes), ranks)
    assert list_indices(distributed) == list(range(len(lengths)))
    assert len(distributed) == ranks and len({len(share) for share in distributed}) == 1
    if ranks == 1:
        assert list(distributed[0]) == passes, "alone, in their order"
    if len(lengths) >= ranks:
        assert all(any(one.index for one in share) for share in distributed), "no rank idles if there is enough work"
    idle = sum(not one.index for share in distributed for one in share)
    assert idle < ranks and (idle == 0 or all(len(one.index) <= 1 for share in distributed for one in share))


def test_rank_without_streams_contributes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two samples on three ranks: the third makes as many calls as the others, on nothing."""
    rule = make_rule(token_budget=10**6)
    two_samples = make_all_samples()[:2]
    plans = [
        Planner("p", rule, Costs(16)).plan_update(two_samples, np.random.default_rng(0), Clock(), 0, ranks)
        for ranks in (1, 3)
    ]
    assert (IDLE,) in plans[1].steps[0].played
    alone, three = (run_steps(rule, plan, ranks, monkeypatch) for plan, ranks in zip(plans, (1, 3), strict=True))
    torch.testing.assert_close(three.gradient, alone.gradient, atol=1e-5, rtol=1e-5)


def test_sharded_ranks_make_equal_calls() -> None:
    """A shared prefix is a separate call, which several ranks avoid under ZeRO-3."""

    def list_prefixes(stage: int, ranks: int) -> set[int]:
        (step,) = make_plan(make_rule(zero_stage=stage), ranks).steps
        return {one.prefix for share in step.played for one in share}

    prefixes = {(stage, ranks): list_prefixes(stage, ranks) for stage in (0, 3) for ranks in (1, 2)}
    assert prefixes[3, 2] == {0} and prefixes[3, 1] == prefixes[0, 1] and max(prefixes[0, 2]) > 0


def test_empty_steps_are_not_planned() -> None:
    nothing = [replace(s, learned=np.zeros_like(s.learned)) for s in make_all_samples() if s.source == "played"]
    planner = Planner("p", make_rule(minibatches=2), Costs(16))
    assert not planner.plan_update(nothing, np.random.default_rng(0), Clock(), 0).steps
    assert (
        len(planner.plan_update([*nothing, *make_all_samples()[-2:]], np.random.default_rng(0), Clock(), 0).steps) == 2
    )


def test_skipped_steps_do_not_advance_the_schedule() -> None:
    """Warm-up counts only the steps that were taken."""
    rates = [make_plan(make_rule(minibatches=3, lr=1.0, warmup_steps=9), 1).rates]
    assert rates[0] == pytest.approx([0.5, 0.6, 0.7]), "four came before"


def test_planning_needs_no_torch() -> None:
    code = "import sys, arena.learn.plan; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_metrics_of_two_ranks_count_their_common_steps_once() -> None:
    first, second = UpdateMetrics(), UpdateMetrics()
    for metrics, losses in ((first, [1.0, 3.0]), (second, [5.0])):
        metrics.add("loss", torch.tensor(losses))
        metrics.count_step(2.0, True)
        metrics.count_step(4.0, True)
    assert first.plus(second).means() == {"loss": 3.0, "grad_norm": 3.0, "steps": 2, "tokens": 3, "skipped": 0}
