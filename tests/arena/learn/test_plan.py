"""Plans: the same learning on any number of ranks, each as busy as the others."""

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
ANSWERS = {"loss": "refuel", "aggregate": "turn_mean"}


def everything(paired: bool = False) -> list[Sample]:
    """What was played, some of it out of the loss, and what is shown; with answers in pairs across the samples."""
    played = [s.with_reference(s.behaviour + np.float32(0.3)) for s in make_samples(make_tiny_llama(), 1, 7)]
    played = [replace(s, learned=s.places != 1, behaviour=s.behaviour + np.float32(0.1)) for s in played]
    if paired:
        played = [replace(s, pairs=np.where(s.places == 0, i // 2, -1)) for i, s in enumerate(played)]
    shown = [
        replace(s, source="demonstration", behaviour=np.zeros_like(s.behaviour))
        for s in make_samples(make_tiny_llama(), 2, 5)
    ]
    return [*played, *shown]


def rule(**changes: Any) -> LearnSpec:
    given = {
        "regularisers": make_regularisers(kl=0.1, entropy=0.05),
        "token_budget": 90,
        "gate_tolerance": 9.0,
    } | changes
    return LearnSpec.model_validate(
        dict(demonstrations=DemonstrationsSpec.model_validate(dict(weight=0.7, scripted=["random"])), **given)
    )


def planned(by: LearnSpec, ranks: int, paired: bool = False) -> Plan:
    """The same update for so many ranks."""
    return Planner("p", by, Costs(16)).update(everything(paired), np.random.default_rng(3), Clock(2, 9), 4, ranks)


def shares(step: Step) -> list[Shares]:
    return [step.played, step.demonstrations, *([step.rivals] if step.rivals else [])]


def computed(given: Shares) -> list[int]:
    return sorted(i for share in given for one in share for i in one.index)


class Plain:
    """As much of DeepSpeed's engine as gradients need, and torch alone."""

    def __init__(self, model: Any) -> None:
        self.model, self.scorer, self.device = model, StreamScorer(model), torch.device("cpu")

    def __call__(self, batch: StreamBatch) -> Any:
        return self.scorer(batch)

    def backward(self, loss: torch.Tensor) -> None:
        torch.autograd.backward(loss)

    def parameters(self) -> Any:
        return self.model.parameters()


class Meeting:
    """Ranks as threads: what each has seen, all get, added up."""

    def __init__(self, ranks: int) -> None:
        self._barrier, self._seen, self._own = threading.Barrier(ranks, timeout=60), [None] * ranks, threading.local()

    def __call__(self, own: Any, plus: Callable[[Any, Any], Any]) -> Any:
        self._seen[self._own.rank] = own
        self._barrier.wait()
        both = reduce(plus, self._seen)
        self._barrier.wait()
        return both

    def all_ranks(self, work: Callable[[int], Any]) -> list[Any]:
        """What the work of each gives."""

        def one(rank: int) -> Any:
            self._own.rank = rank
            try:
                return work(rank)
            except BaseException:
                self._barrier.abort()
                raise

        with ThreadPoolExecutor(len(self._seen)) as threads:
            return list(threads.map(one, range(len(self._seen))))


class Told(NamedTuple):
    gradient: torch.Tensor
    means: dict[str, float]
    gap: Tally
    seen: np.ndarray


def ended(work: Generator[bool, None, Tally]) -> Tally:
    """Go through all pauses: what comes out at the end."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            tally: Tally = end.value
            return tally


def steps_of(by: LearnSpec, plan: Plan, ranks: int, monkeypatch: pytest.MonkeyPatch) -> Told:
    """What all ranks together make of the first and the last step; between them, weights move as if by a step."""
    meeting = Meeting(ranks)
    monkeypatch.setattr(gradients, "reduce_over_ranks", meeting)

    engines = [Plain(make_tiny_llama()) for _ in range(ranks)]

    def work(rank: int) -> tuple[Any, ...]:
        engine, watch = engines[rank], UpdateMetrics()
        share = Gradients(engine=engine, rule=by, plan=plan, memory={}, metrics=watch, rank=rank)
        share.score_old()
        gap = ended(share.add(plan.steps[0]))
        with torch.no_grad():
            for parameter in engine.parameters():
                parameter += 0.01 * parameter.roll(1, 0)
        if len(plan.steps) > 1:
            ended(share.add(plan.steps[-1]))
        found = torch.cat([p.grad.flatten() for p in engine.parameters()])
        seen = np.sum([np.pad(n, ((0, 0), (0, 9 - len(n[0])))) for n in share.seen.get("entropy_band", [])], axis=0)
        return found, watch, gap, seen

    found, watches, gaps, seen = zip(*meeting.all_ranks(work), strict=True)
    assert len(set(gaps)) == 1, "every rank knows what all have seen"
    return Told(sum(found), reduce(UpdateMetrics.plus, watches).means(), gaps[0], sum(seen))


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("aggregate", AGGREGATES, ids=str)
def test_every_token_weighs_the_same_on_any_number_of_ranks(aggregate: Any, ranks: int) -> None:
    alone, plan = (planned(rule(aggregate=aggregate, epochs=2, minibatches=2), n) for n in (1, ranks))
    assert len(plan.steps) == len(alone.steps) == 4 and plan.rates == alone.rates
    for step, other in zip(plan.steps, alone.steps, strict=True):
        assert step.demonstration_weight == other.demonstration_weight and step.label == other.label
        assert all((step.weights[i] == other.weights[i]).all() for i in other.weights)
        total = sum(step.weights[i].sum() for share in step.played for one in share for i in one.index)
        assert total == pytest.approx(sum(w.sum() for w in other.weights.values()))
        for dealt_, whole in zip(shares(step), shares(other), strict=True):
            assert computed(dealt_) == computed(whole), "each stream once"
            assert len(dealt_) == ranks and len({len(share) for share in dealt_}) == 1, "as many passes on each"
    assert plan.old and alone.old and computed(plan.old) == computed(alone.old)


CASES = {
    **{str(a): {"aggregate": a} for a in AGGREGATES},
    "one step": {"minibatches": 1},
    "pairs": ANSWERS,
    "pairs in one step": ANSWERS | {"minibatches": 1},
    "remembered": {"regularisers": {"entropy_band": {}}},
    "whole weights nowhere": {"zero_stage": 3},
}


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("case", CASES)
def test_gradients_of_ranks_add_up_to_that_of_one(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by, paired = rule(**{"minibatches": 2} | CASES[case]), "pairs" in case
    alone, *others = (steps_of(by, planned(by, ranks, paired), ranks, monkeypatch) for ranks in RANKS)
    size = max(1.0, float(alone.gradient.abs().max()))
    assert alone.gradient.abs().max() > 1e-3
    for other in others:
        torch.testing.assert_close(other.gradient / size, alone.gradient / size, atol=1e-5, rtol=1e-5)
        assert other.means == pytest.approx(alone.means, rel=1e-4, abs=1e-6)
        assert other.gap.count == alone.gap.count and other.gap.mean == pytest.approx(alone.gap.mean, rel=1e-4)
        np.testing.assert_allclose(other.seen, alone.seen, rtol=1e-5)


passes_ = st.lists(st.tuples(st.integers(1, 5), st.integers(2, 40)), max_size=8)


@given(passes_, st.integers(1, 5))
def test_passes_are_dealt_to_all_ranks_alike(sizes: list[tuple[int, int]], ranks: int) -> None:
    """Streams are numbered pass after pass; all of a pass are equally long."""
    starts = np.cumsum([0, *(rows for rows, _ in sizes)]).tolist()
    given_ = [
        Pass.of(range(at, at + rows), [length] * rows, 1) for at, (rows, length) in zip(starts, sizes, strict=False)
    ]
    lengths = [length for rows, length in sizes for _ in range(rows)]
    found = distribute_passes(list(given_), ranks)
    assert computed(found) == list(range(len(lengths)))
    assert len(found) == ranks and len({len(share) for share in found}) == 1
    if ranks == 1:
        assert list(found[0]) == given_, "alone, in their order"
    if len(lengths) >= ranks:
        assert all(any(one.index for one in share) for share in found), "nobody idles where there is enough"
    idle = sum(not one.index for share in found for one in share)
    assert idle < ranks and (idle == 0 or all(len(one.index) <= 1 for share in found for one in share))


def test_a_rank_without_streams_pulls_at_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two samples on three ranks: the third calls the model as often as the others, for nothing."""
    by = rule(token_budget=10**6)
    given_ = everything()[:2]
    plans = [
        Planner("p", by, Costs(16)).update(given_, np.random.default_rng(0), Clock(), 0, ranks) for ranks in (1, 3)
    ]
    assert (IDLE,) in plans[1].steps[0].played
    alone, three = (steps_of(by, plan, ranks, monkeypatch) for plan, ranks in zip(plans, (1, 3), strict=True))
    torch.testing.assert_close(three.gradient, alone.gradient, atol=1e-5, rtol=1e-5)


def test_where_weights_are_sharded_all_ranks_call_alike() -> None:
    """A shared opening is a call of its own: under ZeRO-3 several ranks do without."""

    def openings(stage: int, ranks: int) -> set[int]:
        (step,) = planned(rule(zero_stage=stage), ranks).steps
        return {one.prefix for share in step.played for one in share}

    prefixes = {(stage, ranks): openings(stage, ranks) for stage in (0, 3) for ranks in (1, 2)}
    assert prefixes[3, 2] == {0} and prefixes[3, 1] == prefixes[0, 1] and max(prefixes[0, 2]) > 0


def test_a_step_in_which_nothing_is_learned_is_not_planned() -> None:
    nothing = [replace(s, learned=np.zeros_like(s.learned)) for s in everything() if s.source == "played"]
    planner = Planner("p", rule(minibatches=2), Costs(16))
    assert not planner.update(nothing, np.random.default_rng(0), Clock(), 0).steps
    assert len(planner.update([*nothing, *everything()[-2:]], np.random.default_rng(0), Clock(), 0).steps) == 2


def test_steps_left_out_leave_their_rate_to_the_next() -> None:
    """Warm-up is over the steps that counted: after so many of them, a plan goes on."""
    rates = [planned(rule(minibatches=3, lr=1.0, warmup_steps=9), 1).rates]
    assert rates[0] == pytest.approx([0.5, 0.6, 0.7]), "four came before"


def test_planning_needs_no_torch() -> None:
    code = "import sys, arena.learn.plan; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_metrics_of_two_ranks_count_their_common_steps_once() -> None:
    both, other = UpdateMetrics(), UpdateMetrics()
    for metrics, losses in ((both, [1.0, 3.0]), (other, [5.0])):
        metrics.add("loss", torch.tensor(losses))
        metrics.count_step(2.0, True)
        metrics.count_step(4.0, True)
    assert both.plus(other).means() == {"loss": 3.0, "grad_norm": 3.0, "steps": 2, "tokens": 3, "skipped": 0}
