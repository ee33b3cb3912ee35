"""A rank gets the samples of its own passes, as arrays, and makes the same plan of them."""

from dataclasses import replace

import numpy as np
import pytest

from agents.costs import estimate_costs
from agents.stream import MediaSpan
from arena.learn.plan import Plan, Planner
from arena.learn.samples import Sample
from arena.parts.schedules import Clock
from arena.scale.parcels import Streams, pack, unpack
from tests.factories.scaled import CASES, load_initial_model


def plan_of(name: str, ranks: int = 2, count: int | None = None) -> Plan:
    """The plan of a case's first update on several ranks."""
    case = CASES[name]
    given = case.draw_samples(1)[:count]
    return Planner("p", case.spec(), estimate_costs(load_initial_model())).update(
        given, np.random.default_rng(0), CLOCK, 0, ranks
    )


CLOCK = Clock(1, 5)


def alike(one: Sample, other: Sample) -> None:
    for name in ("advantages", "behaviour", "places", "learned", "reference", "pairs", "fresh"):
        here, there = getattr(one, name), getattr(other, name)
        assert (here is None) == (there is None), name
        if here is not None:
            assert here.dtype == there.dtype, name
            np.testing.assert_array_equal(here, there)
    assert (one.temperature, one.source) == (other.temperature, other.source)
    for name in ("ids", "mask", "turns", "media"):
        assert getattr(one.stream, name) == getattr(other.stream, name)
    np.testing.assert_array_equal(one.turns, other.turns)


@pytest.mark.parametrize("name", ["packed ragged", "pairs by dpo", "demonstrations", "several epochs", "empty ranks"])
def test_the_parts_of_all_ranks_are_the_plan(name: str) -> None:
    plan = plan_of(name)
    parts = [unpack(pack(plan.for_rank(rank))) for rank in range(2)]
    for rank, part in enumerate(parts):
        assert part.old is None or plan.old is None or part.old[rank] == plan.old[rank]
        assert len(part.steps) == len(plan.steps)
        for own, step in zip(part.steps, plan.steps, strict=True):
            assert own.played[rank] == step.played[rank] and not any(own.played[1 - rank])
            assert own.demonstrations[rank] == step.demonstrations[rank]
            read = {i for one in own.played[rank] for i in one.index}
            assert own.weights.keys() == read
            for i in read:
                np.testing.assert_array_equal(own.weights[i], step.weights[i])
            assert own.sample_numbers <= part.samples.keys()
        for number, sample in part.samples.items():
            alike(sample, plan.samples[number])
    assert parts[0].samples.keys() | parts[1].samples.keys() >= {i for s in plan.steps for i in s.weights if s.played}


def test_a_rank_does_not_get_what_others_learn_from() -> None:
    """But for the shortest sample, which each scores at the end."""
    plan = plan_of("one step")
    each = [plan.for_rank(rank).samples.keys() for rank in range(2)]
    assert len(each[0] & each[1]) <= 1 and each[0] | each[1] == plan.samples.keys()


def test_optional_columns_may_differ_from_sample_to_sample() -> None:
    plan = plan_of("packed ragged")
    image = MediaSpan(0, 1, "ab", b"png")
    changed = {
        i: replace(s, reference=None, fresh=np.ones_like(s.learned)) if i % 2 else s for i, s in plan.samples.items()
    }
    changed[0] = replace(changed[0], stream=replace(changed[0].stream, media=[image]))
    found = unpack(pack(replace(plan, samples=changed)))
    assert found.samples.keys() == changed.keys()
    for i, sample in changed.items():
        alike(found.samples[i], sample)
    assert found.samples[0].stream.media[0].data == b"png"


def test_nothing_is_packed_and_unpacked_as_nothing() -> None:
    assert Streams.of({}).unpack() == {}
    plan = replace(plan_of("packed ragged"), samples={}, old=None, steps=())
    assert unpack(pack(plan.for_rank(0))).samples == {}
