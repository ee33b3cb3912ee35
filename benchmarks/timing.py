"""Wall time of work on any device, the same for every arm of a comparison."""

import re
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch


def synchronize() -> None:
    """Wait for the accelerator, where there is one: what was asked of it is then done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds_of(work: Callable[[], Any]) -> tuple[float, Any]:
    """Wall time of one call, and what it returned."""
    synchronize()
    start = time.perf_counter()
    result = work()
    synchronize()
    return time.perf_counter() - start, result


def file_name(name: str, quick: bool = False) -> str:
    """NAME.json, with the first two words of the accelerator's name where there is one: NAME-nvidia-h100.json."""
    device = torch.cuda.get_device_name().lower() if torch.cuda.is_available() else ""
    return "-".join([name, *re.findall("[a-z0-9]+", device)[:2], *["quick"] * quick]) + ".json"


def take_turns(arms: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of every arm in every round. Arms alternate, so that a busy machine hits all of them alike."""
    found: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name, work in arms.items():
            found[name].append(seconds_of(work)[0])
    return found


def ratios(fast: list[float], slow: list[float]) -> dict[str, Any]:
    """`fast` over `slow`, round by round, and the median of it."""
    each = [a / b for a, b in zip(fast, slow, strict=True)]
    return {"rounds": each, "median": median(each)}
