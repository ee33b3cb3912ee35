"""Engine requests of the benchmarks."""

from collections.abc import Sequence

from agents.engines.base import Request


def make_request(
    ids: Sequence[int],
    max_tokens: int,
    key: str,
    policy: str = "p",
    seed: tuple[int, ...] = (0,),
    temperature: float = 1.0,
    stop_ids: frozenset[int] = frozenset(),
) -> Request:
    """Return a request for a reply from the full distribution. It has `max_tokens` tokens unless a stop id ends it."""
    return Request(
        policy=policy,
        ids=tuple(ids),
        key=key,
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=1.0,
        top_k=0,
        stop_ids=stop_ids,
        seed=seed,
    )


def make_requests(contexts: Sequence[Sequence[int]], tokens: int, name: str, policy: str) -> list[Request]:
    """Return a request for a reply of `tokens` tokens to each context."""
    return [make_request(ids, tokens, f"{name}/{i}", policy, (i,)) for i, ids in enumerate(contexts)]
