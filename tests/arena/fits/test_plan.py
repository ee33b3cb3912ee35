"""Estimates of what fits a machine, and the largest settings that do."""

from dataclasses import replace

from agents.precision import Precision
from arena.config.layers import compose
from arena.config.sources import recipe_layer, set_layer
from arena.fits.machine import Device
from arena.fits.plan import SEARCH_LIMIT, MemoryNeed, MemoryPlanner, find_largest, list_methods
from arena.fits.shape import read_shape

SMOLLM2, FILES = read_shape("smollm2-135m-instruct")


def compute_needs(
    memory: float, *settings: str, adapters: int | None = None, gpu: float = 0, recipe: str = ""
) -> list[MemoryNeed]:
    experiment = compose([recipe_layer(recipe or "negotiation"), *map(set_layer, settings)])
    devices = [Device("memory", "cpu", int(memory), int(memory))]
    devices += [Device("GPU", "cuda", int(gpu), int(gpu))] if gpu else []
    return MemoryPlanner(shape=SMOLLM2, files=FILES, experiment=experiment, context=512, devices=devices).compute_needs(
        *list_methods(experiment, Precision.BF16, adapters)
    )


def find_requested(needs: list[MemoryNeed]) -> MemoryNeed:
    (requested,) = (need for need in needs if need.asked)
    return requested


def total_bytes(need: MemoryNeed) -> int:
    return need.run


def test_largest_settings_fit_and_larger_ones_do_not() -> None:
    need = find_requested(compute_needs(4e9, "play.in_flight=1"))
    assert 0 < need.token_budget < SEARCH_LIMIT
    for extra, fits in ((0, True), (1, False)):
        budget = f"learn.token_budget={need.token_budget + extra}"
        assert find_requested(compute_needs(4e9, "play.in_flight=1", budget)).fits is fits
    assert find_requested(compute_needs(4e9, "learn.token_budget=256", f"play.in_flight={need.in_flight}")).fits
    assert not find_requested(compute_needs(4e9, "learn.token_budget=256", f"play.in_flight={need.in_flight + 1}")).fits


def test_larger_settings_need_more_memory() -> None:
    base = find_requested(compute_needs(1e12, "play.in_flight=1", adapters=0))
    for setting in ("learn.token_budget=4096", "play.in_flight=256", "learn.regularisers.kl.weight=0.1"):
        assert total_bytes(
            find_requested(compute_needs(1e12, *dict.fromkeys(("play.in_flight=1", setting)), adapters=0))
        ) > total_bytes(base), setting
    less = find_requested(compute_needs(1e12, "play.in_flight=1", "learn.gradient_checkpointing=true", adapters=0))
    assert total_bytes(less) < total_bytes(base)


def test_recipe_settings_are_requested_and_adapters_override_them() -> None:
    assert find_requested(compute_needs(1e12)).way.rank == 16, "the recipe's own"
    assert find_requested(compute_needs(1e12, adapters=0)).way.rank is None
    four = find_requested(compute_needs(1e12, adapters=4))
    assert (four.way.learners, four.way.rank) == (4, 16)
    assert find_requested(compute_needs(1e12, recipe="negotiation-adapters")).way.learners == 2
    assert [need.way.precision for need in compute_needs(1e12)] == [Precision.FP32, Precision.BF16] * 2


def test_nothing_fits_into_too_little_memory() -> None:
    need = find_requested(compute_needs(1e8))
    assert (need.fits, need.fits_play, need.in_flight, need.token_budget) == (False, False, 0, 0)


def test_gpu_memory_counts_and_loading_needs_main_memory() -> None:
    assert find_requested(compute_needs(4e9, gpu=80e9)).fits and not find_requested(compute_needs(4e9, gpu=5e8)).fits
    assert not find_requested(compute_needs(1e9, gpu=80e9)).fits, "it is loaded before it is moved"


def test_unknown_memory_size_has_no_limit() -> None:
    assert find_requested(compute_needs(0)).fits


def test_bf16_true_is_compared_if_requested() -> None:
    experiment = compose([recipe_layer("negotiation")])
    compared, requested = list_methods(experiment, Precision.BF16_TRUE, 0)
    assert (
        requested in compared
        and requested.precision is Precision.BF16_TRUE
        and replace(requested, precision=Precision.FP32) in compared
    )


def test_largest() -> None:
    for limit in (0, 1, 7, SEARCH_LIMIT):
        assert find_largest(limit.__ge__) == limit
