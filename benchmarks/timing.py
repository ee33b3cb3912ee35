"""Helpers to time work on any device, and to compare arms in alternating rounds."""

import re
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch


def synchronize() -> None:
    """Wait until the accelerator, if there is one, has finished its queued work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def time_call(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the wall time in seconds of one call, and its result."""
    synchronize()
    start = time.perf_counter()
    result = work()
    synchronize()
    return time.perf_counter() - start, result


def add_device(name: str) -> str:
    """Return a result's name, on a GPU with the first two words of the GPU's name appended: NAME-nvidia-h100."""
    device = torch.cuda.get_device_name().lower() if torch.cuda.is_available() else ""
    return "-".join([name, *re.findall("[a-z0-9]+", device)[:2]])


def time_in_turns(arms: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Return each arm's seconds by round. Arms alternate, so that a busy machine slows all of them equally."""
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name, work in arms.items():
            seconds[name].append(time_call(work)[0])
    return seconds


def compute_ratios(numerators: list[float], denominators: list[float]) -> dict[str, Any]:
    """Return `numerators` over `denominators` for each round, and the median ratio."""
    ratios = [a / b for a, b in zip(numerators, denominators, strict=True)]
    return {"rounds": ratios, "median": median(ratios)}
