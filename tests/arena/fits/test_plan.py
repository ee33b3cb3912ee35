"""What fits a machine, and the largest settings that do."""

from dataclasses import replace

from agents.precision import Precision
from arena.config.layers import compose
from arena.config.sources import recipe_layer, set_layer
from arena.fits.machine import Device
from arena.fits.plan import LARGEST, MemoryNeed, MemoryPlanner, find_largest, list_methods
from arena.fits.shape import read_shape

SMOLLM2, FILES = read_shape("smollm2-135m-instruct")


def needs(
    total: float, *settings: str, adapters: int | None = None, gpu: float = 0, recipe: str = ""
) -> list[MemoryNeed]:
    experiment = compose([recipe_layer(recipe or "negotiation"), *map(set_layer, settings)])
    there = [Device("memory", "cpu", int(total), int(total))]
    there += [Device("GPU", "cuda", int(gpu), int(gpu))] if gpu else []
    return MemoryPlanner(shape=SMOLLM2, files=FILES, experiment=experiment, context=512, devices=there).compute_needs(
        *list_methods(experiment, Precision.BF16, adapters)
    )


def asked(found: list[MemoryNeed]) -> MemoryNeed:
    (own,) = (need for need in found if need.asked)
    return own


def total(need: MemoryNeed) -> int:
    return need.run


def test_the_largest_settings_fit_and_the_next_do_not() -> None:
    found = asked(needs(4e9, "play.in_flight=1"))
    assert 0 < found.token_budget < LARGEST
    for extra, fits in ((0, True), (1, False)):
        budget = f"learn.token_budget={found.token_budget + extra}"
        assert asked(needs(4e9, "play.in_flight=1", budget)).fits is fits
    assert asked(needs(4e9, "learn.token_budget=256", f"play.in_flight={found.in_flight}")).fits
    assert not asked(needs(4e9, "learn.token_budget=256", f"play.in_flight={found.in_flight + 1}")).fits


def test_more_of_anything_takes_more() -> None:
    base = asked(needs(1e12, "play.in_flight=1", adapters=0))
    for setting in ("learn.token_budget=4096", "play.in_flight=256", "learn.regularisers.kl.weight=0.1"):
        assert total(asked(needs(1e12, *dict.fromkeys(("play.in_flight=1", setting)), adapters=0))) > total(base), (
            setting
        )
    less = asked(needs(1e12, "play.in_flight=1", "learn.gradient_checkpointing=true", adapters=0))
    assert total(less) < total(base)


def test_what_the_recipe_says_is_asked_and_adapters_overrule_it() -> None:
    assert asked(needs(1e12)).way.rank == 16, "the recipe's own"
    assert asked(needs(1e12, adapters=0)).way.rank is None
    four = asked(needs(1e12, adapters=4))
    assert (four.way.learners, four.way.rank) == (4, 16)
    assert asked(needs(1e12, recipe="negotiation-adapters")).way.learners == 2
    assert [need.way.precision for need in needs(1e12)] == [Precision.FP32, Precision.BF16] * 2


def test_nothing_fits_where_there_is_nothing() -> None:
    found = asked(needs(1e8))
    assert (found.fits, found.fits_play, found.in_flight, found.token_budget) == (False, False, 0, 0)


def test_on_a_gpu_its_memory_counts_and_loading_takes_the_processors() -> None:
    assert asked(needs(4e9, gpu=80e9)).fits and not asked(needs(4e9, gpu=5e8)).fits
    assert not asked(needs(1e9, gpu=80e9)).fits, "it is loaded before it is moved"


def test_memory_of_unknown_size_holds_everything() -> None:
    assert asked(needs(0)).fits


def test_bf16_true_is_compared_where_it_is_asked() -> None:
    experiment = compose([recipe_layer("negotiation")])
    compared, own = list_methods(experiment, Precision.BF16_TRUE, 0)
    assert (
        own in compared and own.precision is Precision.BF16_TRUE and replace(own, precision=Precision.FP32) in compared
    )


def test_largest() -> None:
    for most in (0, 1, 7, LARGEST):
        assert find_largest(most.__ge__) == most
