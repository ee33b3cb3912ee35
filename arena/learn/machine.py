"""Measurements of the fastest number of CPU threads and precision on this machine."""

from time import perf_counter
from typing import Literal

import torch

from arena.process import count_cores

MAX_TIME_RATIO = 0.9
"""An alternative must take at most this share of the default's time, so that noise does not decide."""
_SHAPES = ((8, 576, 1536), (512, 576, 1536))
"""(tokens, width, inner width) of a small model's layer, as in decoding and as in learning."""


def find_fastest_threads() -> int:
    """Measure and return the fastest number of CPU threads; with a GPU return `max_threads` without measuring."""
    return max_threads() if torch.cuda.is_available() else choose_threads(time_threads())


def max_threads() -> int:
    """Return the largest number of threads worth trying: torch's, but at most the cores that this process may use."""
    return min(torch.get_num_threads(), count_cores())


def find_fastest_precision(threads: int | None = None) -> Literal["fp32", "bf16"]:
    """Return bf16 if the hardware computes it fast, as a GPU reports or as measured on a CPU with `threads` threads."""
    if torch.cuda.is_available():
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return choose_precision(time_precisions(threads))


def time_threads(rounds: int = 3) -> dict[int, float]:
    """Measure the time of small matrix products with 1, 2, 4, … up to `max_threads` threads.

    Returns seconds by number of threads, each the best of `rounds` interleaved rounds.
    """
    threads_before, maximum = torch.get_num_threads(), max_threads()
    best = dict.fromkeys(sorted({2**k for k in range(maximum.bit_length())} | {maximum}), float("inf"))
    try:
        for _ in range(rounds):
            for count in best:
                torch.set_num_threads(count)
                best[count] = min(best[count], _time_products(torch.float32))
    finally:
        torch.set_num_threads(threads_before)
    return best


def time_precisions(threads: int | None = None, rounds: int = 3) -> dict[torch.dtype, float]:
    """Return the seconds of small matrix products in float32 and bfloat16, each the best of `rounds`, by dtype."""
    best, threads_before = dict.fromkeys((torch.float32, torch.bfloat16), float("inf")), torch.get_num_threads()
    try:
        torch.set_num_threads(threads or threads_before)
        for _ in range(rounds):
            for dtype in best:
                best[dtype] = min(best[dtype], _time_products(dtype))
    finally:
        torch.set_num_threads(threads_before)
    return best


def choose_threads(seconds: dict[int, float]) -> int:
    """Return the largest number of threads, or the fastest one if it takes at most `MAX_TIME_RATIO` of its time."""
    maximum = max(seconds)
    fewer = min(seconds, key=lambda count: (seconds[count], -count))
    return fewer if seconds[fewer] <= MAX_TIME_RATIO * seconds[maximum] else maximum


def choose_precision(seconds: dict[torch.dtype, float]) -> Literal["fp32", "bf16"]:
    """Return bf16 if it takes at most `MAX_TIME_RATIO` of float32's time, else fp32. Some processors emulate it."""
    return "bf16" if seconds[torch.bfloat16] <= MAX_TIME_RATIO * seconds[torch.float32] else "fp32"


def _time_products(dtype: torch.dtype) -> float:
    """Return the total seconds of about 128 tokens or more through a linear layer of each of `_SHAPES`."""
    seconds = 0.0
    for rows, width, inner in _SHAPES:
        inputs, weights = torch.ones(rows, width, dtype=dtype), torch.ones(inner, width, dtype=dtype)
        torch.nn.functional.linear(inputs, weights)  # warm-up: starts threads and allocates memory
        start = perf_counter()
        for _ in range(max(1, 128 // rows)):
            torch.nn.functional.linear(inputs, weights)
        seconds += perf_counter() - start
    return seconds
