"""Choice of threads and precision at the start of a run: measured once and recorded."""

import os

import pytest
import torch

from arena.cli.loop import wait
from arena.config.layers import compose
from arena.config.sources import recipe_layer, set_layer
from arena.learn.machine import choose_precision, choose_threads, time_precisions, time_threads
from arena.preflight import fit_to_machine, preflight


def test_fewer_threads_are_chosen_only_if_clearly_faster() -> None:
    assert choose_threads({1: 1.0, 2: 0.6, 4: 0.5}) == 4
    assert choose_threads({1: 1.0, 2: 0.48, 4: 0.5}) == 4, "noise does not decide"
    assert choose_threads({1: 1.0, 2: 0.3, 4: 0.5}) == 2
    assert choose_threads({1: 0.3, 2: 0.3, 4: 0.9}) == 2
    assert choose_threads({1: 1.0}) == 1


def test_timing_threads_restores_their_number() -> None:
    before = torch.get_num_threads()
    timings = time_threads(rounds=1)
    assert torch.get_num_threads() == before and max(timings) == before and min(timings) == 1
    assert all(seconds > 0 for seconds in timings.values())


def test_bfloat16_is_chosen_only_if_clearly_faster() -> None:
    exact, half = torch.float32, torch.bfloat16
    assert choose_precision({exact: 1.0, half: 0.95}) == "fp32", "noise does not decide"
    assert choose_precision({exact: 1.0, half: 0.5}) == "bf16"
    assert choose_precision({exact: 1.0, half: 5.0}) == "fp32"


def test_timing_precisions_restores_the_number_of_threads() -> None:
    before = torch.get_num_threads()
    timings = time_precisions(threads=1, rounds=1)
    assert torch.get_num_threads() == before
    assert set(timings) == {torch.float32, torch.bfloat16} and all(seconds > 0 for seconds in timings.values())


@pytest.mark.parametrize(("setting", "recorded"), [("auto", ["fp32", "bf16"]), ("bf16", ["bf16"]), ("fp32", ["fp32"])])
def test_run_records_its_precision(setting: str, recorded: list[str]) -> None:
    experiment = compose([recipe_layer("negotiation-nano"), set_layer(f"precision={setting}"), set_layer("threads=1")])
    started = wait(preflight(experiment, lambda what: None)).experiment
    assert started.precision in recorded
    assert fit_to_machine(started) == started, "a recorded precision is not measured again"


@pytest.mark.parametrize(
    ("setting", "recorded"), [("auto", range(1, 1 + (os.cpu_count() or 1))), ("3", [3]), ("null", [None])]
)
def test_run_records_its_number_of_threads(setting: str, recorded: list[int | None]) -> None:
    """A resumed run uses the recorded number, whatever a new measurement would give."""
    experiment = compose([recipe_layer("negotiation-nano"), set_layer(f"threads={setting}")])
    assert wait(preflight(experiment, lambda what: None)).experiment.threads in recorded


@pytest.mark.slow
def test_auto_precision_must_be_resolved_first() -> None:
    """An unresolved precision would silently be treated as float32."""
    experiment = compose([recipe_layer("negotiation-nano"), set_layer("precision=auto")])
    with pytest.raises(ValueError, match="still auto"):
        _ = experiment.resolved_precision
    assert fit_to_machine(experiment).resolved_precision == fit_to_machine(experiment).precision
