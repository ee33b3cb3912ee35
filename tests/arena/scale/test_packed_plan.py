"""A rank receives the samples of its own passes as arrays and restores the same plan."""

from dataclasses import replace

import numpy as np
import pytest

from agents.costs import estimate_costs
from agents.stream import MediaSpan
from arena.learn.plan import Plan, Planner
from arena.learn.samples import Sample
from arena.parts.schedules import Clock
from arena.scale.packed_plan import PackedStreams, pack_plan, unpack_plan
from tests.factories.scaled import CASES, load_initial_model


def make_plan(name: str, ranks: int = 2, count: int | None = None) -> Plan:
    """Return the plan of a case's first update on several ranks."""
    case = CASES[name]
    batch = case.draw_samples(1)[:count]
    return Planner("p", case.spec(), estimate_costs(load_initial_model())).plan_update(
        batch, np.random.default_rng(0), CLOCK, 0, ranks
    )


CLOCK = Clock(1, 5)


def assert_equal_samples(one: Sample, other: Sample) -> None:
    for name in ("advantages", "behaviour", "places", "learned", "reference", "pairs", "fresh"):
        value, other_value = getattr(one, name), getattr(other, name)
        assert (value is None) == (other_value is None), name
        if value is not None:
            assert value.dtype == other_value.dtype, name
            np.testing.assert_array_equal(value, other_value)
    assert (one.temperature, one.source) == (other.temperature, other.source)
    for name in ("ids", "mask", "turns", "media"):
        assert getattr(one.stream, name) == getattr(other.stream, name)
    np.testing.assert_array_equal(one.turns, other.turns)


@pytest.mark.parametrize("name", ["packed ragged", "pairs by dpo", "demonstrations", "several epochs", "empty ranks"])
def test_parts_of_all_ranks_form_the_plan(name: str) -> None:
    plan = make_plan(name)
    parts = [unpack_plan(pack_plan(plan.for_rank(rank))) for rank in range(2)]
    for rank, part in enumerate(parts):
        assert part.old is None or plan.old is None or part.old[rank] == plan.old[rank]
        assert len(part.steps) == len(plan.steps)
        for own_step, step in zip(part.steps, plan.steps, strict=True):
            assert own_step.played[rank] == step.played[rank] and not any(own_step.played[1 - rank])
            assert own_step.demonstrations[rank] == step.demonstrations[rank]
            read_samples = {i for one in own_step.played[rank] for i in one.index}
            assert own_step.weights.keys() == read_samples
            for i in read_samples:
                np.testing.assert_array_equal(own_step.weights[i], step.weights[i])
            assert own_step.sample_numbers <= part.samples.keys()
        for number, sample in part.samples.items():
            assert_equal_samples(sample, plan.samples[number])
    assert parts[0].samples.keys() | parts[1].samples.keys() >= {i for s in plan.steps for i in s.weights if s.played}


def test_rank_does_not_get_the_samples_of_others() -> None:
    """Except for the shortest sample, which every rank scores at the end."""
    plan = make_plan("one step")
    each = [plan.for_rank(rank).samples.keys() for rank in range(2)]
    assert len(each[0] & each[1]) <= 1 and each[0] | each[1] == plan.samples.keys()


def test_optional_columns_may_differ_from_sample_to_sample() -> None:
    plan = make_plan("packed ragged")
    image = MediaSpan(0, 1, "ab", b"png")
    changed = {
        i: replace(s, reference=None, fresh=np.ones_like(s.learned)) if i % 2 else s for i, s in plan.samples.items()
    }
    changed[0] = replace(changed[0], stream=replace(changed[0].stream, media=[image]))
    restored = unpack_plan(pack_plan(replace(plan, samples=changed)))
    assert restored.samples.keys() == changed.keys()
    for i, sample in changed.items():
        assert_equal_samples(restored.samples[i], sample)
    assert restored.samples[0].stream.media[0].data == b"png"


def test_empty_plan_round_trip() -> None:
    assert PackedStreams.of({}).unpack() == {}
    plan = replace(make_plan("packed ragged"), samples={}, old=None, steps=())
    assert unpack_plan(pack_plan(plan.for_rank(0))).samples == {}
