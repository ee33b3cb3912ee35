"""How many threads and which precision a run begins with: tried, noted, and not tried again."""

import os

import pytest
import torch

from arena.cli.loop import wait
from arena.config.layers import compose
from arena.config.sources import recipe_layer, set_layer
from arena.learn.machine import choose_precision, choose_threads, time_precisions, time_threads
from arena.preflight import fit_to_machine, preflight


def test_fewer_threads_are_taken_only_where_they_are_clearly_faster() -> None:
    assert choose_threads({1: 1.0, 2: 0.6, 4: 0.5}) == 4
    assert choose_threads({1: 1.0, 2: 0.48, 4: 0.5}) == 4, "noise does not decide"
    assert choose_threads({1: 1.0, 2: 0.3, 4: 0.5}) == 2
    assert choose_threads({1: 0.3, 2: 0.3, 4: 0.9}) == 2
    assert choose_threads({1: 1.0}) == 1


def test_a_trial_leaves_the_number_of_threads_as_it_was() -> None:
    before = torch.get_num_threads()
    tried = time_threads(rounds=1)
    assert torch.get_num_threads() == before and max(tried) == before and min(tried) == 1
    assert all(seconds > 0 for seconds in tried.values())


def test_bfloat16_is_taken_only_where_it_is_clearly_faster() -> None:
    exact, half = torch.float32, torch.bfloat16
    assert choose_precision({exact: 1.0, half: 0.95}) == "fp32", "noise does not decide"
    assert choose_precision({exact: 1.0, half: 0.5}) == "bf16"
    assert choose_precision({exact: 1.0, half: 5.0}) == "fp32"


def test_a_trial_of_precisions_leaves_the_number_of_threads_as_it_was() -> None:
    before = torch.get_num_threads()
    tried = time_precisions(threads=1, rounds=1)
    assert torch.get_num_threads() == before
    assert set(tried) == {torch.float32, torch.bfloat16} and all(seconds > 0 for seconds in tried.values())


@pytest.mark.parametrize(("asked", "noted"), [("auto", ["fp32", "bf16"]), ("bf16", ["bf16"]), ("fp32", ["fp32"])])
def test_a_run_notes_the_precision_it_begins_with(asked: str, noted: list[str]) -> None:
    given = compose([recipe_layer("negotiation-nano"), set_layer(f"precision={asked}"), set_layer("threads=1")])
    begun = wait(preflight(given, lambda what: None)).experiment
    assert begun.precision in noted
    assert fit_to_machine(begun) == begun, "what is noted is not tried again"


@pytest.mark.parametrize(
    ("asked", "noted"), [("auto", range(1, 1 + (os.cpu_count() or 1))), ("3", [3]), ("null", [None])]
)
def test_a_run_notes_the_number_of_threads_it_begins_with(asked: str, noted: list[int | None]) -> None:
    """So that a run that is resumed computes as it began, whatever a new trial would say."""
    given = compose([recipe_layer("negotiation-nano"), set_layer(f"threads={asked}")])
    assert wait(preflight(given, lambda what: None)).experiment.threads in noted


@pytest.mark.slow
def test_nobody_computes_before_the_precision_is_settled() -> None:
    """What is not bf16 would be taken for float32, and nobody would hear of it."""
    given = compose([recipe_layer("negotiation-nano"), set_layer("precision=auto")])
    with pytest.raises(ValueError, match="still auto"):
        _ = given.resolved_precision
    assert fit_to_machine(given).resolved_precision == fit_to_machine(given).precision
