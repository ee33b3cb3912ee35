"""How many CPU threads torch should use here: tried, not guessed."""

from time import perf_counter

import torch

CLEARLY = 0.9
"""Fewer threads than there are have to take at most this share of the time: noise must not decide."""
_SHAPES = ((8, 576, 1536), (512, 576, 1536))
"""Tokens × width × inner width of a small model's layer, as in decoding and as in learning."""


def fastest() -> int:
    """The number of threads that computes fastest just now; on a GPU as many as torch takes, untried."""
    return torch.get_num_threads() if torch.cuda.is_available() else choice(trial())


def trial(rounds: int = 3) -> dict[int, float]:
    """Seconds of the same small products with 1, 2, 4, … threads up to as many as torch takes, its own choice last.

    Each is the best of some rounds, in which all take turns.
    """
    most = torch.get_num_threads()
    best = dict.fromkeys(sorted({2**k for k in range(most.bit_length())} | {most}), float("inf"))
    try:
        for _ in range(rounds):
            for count in best:
                torch.set_num_threads(count)
                best[count] = min(best[count], _products())
    finally:
        torch.set_num_threads(most)
    return best


def choice(seconds: dict[int, float]) -> int:
    """Who is fastest, but all threads unless fewer are clearly faster."""
    most = max(seconds)
    fewer = min(seconds, key=lambda count: (seconds[count], -count))
    return fewer if seconds[fewer] <= CLEARLY * seconds[most] else most


def _products() -> float:
    """Seconds for some multiplications in both shapes."""
    spent = 0.0
    for rows, width, inner in _SHAPES:
        left, right = torch.ones(rows, width), torch.ones(width, inner)
        left @ right  # threads are started, memory is taken
        start = perf_counter()
        for _ in range(max(1, 128 // rows)):
            left @ right
        spent += perf_counter() - start
    return spent
