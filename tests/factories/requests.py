"""Requests to an engine, and reference log-probabilities of its completions by full forward passes."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from agents.engines.base import Completion, Request
from agents.engines.decoding import Decoder
from agents.engines.in_process import InProcessEngine


def make_request(ids: Sequence[int], seed: int = 0, key: str = "k", **changes: Any) -> Request:
    """Return a request of policy `p` for six tokens without truncation, with changes."""
    fields: dict[str, Any] = {
        "policy": "p", "ids": tuple(ids), "key": key, "max_tokens": 6, "temperature": 1.0, "top_p": 1.0,
        "top_k": 0, "stop_ids": frozenset(), "seed": (seed,),
    }  # fmt: skip
    return Request(**{**fields, **changes})


def generate(engine: InProcessEngine, requests: Sequence[Request]) -> list[Completion]:
    """Run the requests in a new event loop."""
    return asyncio.run(engine.generate(requests))


def record_passes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return a list that collects the shapes (rows, new columns) of all later in-process passes."""
    shapes: list[tuple[int, int]] = []
    run_pass = Decoder._pass

    def record_pass(
        decoder: Decoder, policies: list[str], batch: Any, tokens: torch.Tensor, *more: Any
    ) -> torch.Tensor:
        shapes.append((tokens.shape[0], tokens.shape[1]))
        return run_pass(decoder, policies, batch, tokens, *more)

    monkeypatch.setattr(Decoder, "_pass", record_pass)
    return shapes


def truncate_distribution(logits: np.ndarray, temperature: float, top_k: int, top_p: float) -> np.ndarray:
    """Return log-probabilities after temperature, top-k and top-p: a slow reference."""
    p = np.exp((logits - logits.max()) / temperature)
    order = np.argsort(-p, kind="stable")
    candidates = order[: top_k or len(order)]
    p = np.where(np.isin(np.arange(len(p)), candidates), p, 0.0)
    p /= p.sum()
    if top_p < 1:
        nucleus, mass = [], 0.0
        for token in candidates:
            if mass >= top_p:
                break
            nucleus.append(token)
            mass += p[token]
        p = np.where(np.isin(np.arange(len(p)), nucleus), p, 0.0)
        p /= p.sum()
    with np.errstate(divide="ignore"):
        return np.log(p)


def score_completion(model: Any, request: Request, ids: Sequence[int]) -> list[float]:
    """Return the log-probabilities of a completion's ids by one full forward pass."""
    with torch.no_grad():
        full = torch.tensor([[*request.ids, *ids]], device=next(model.parameters()).device)
        logits = model(input_ids=full).logits[0].double().cpu().numpy()
    positions = range(len(request.ids) - 1, len(request.ids) + len(ids) - 1)
    return [
        float(truncate_distribution(logits[k], request.temperature, request.top_k, request.top_p)[token])
        for k, token in zip(positions, ids, strict=True)
    ]


def assert_agrees(model: Any, request: Request, completion: Completion, atol: float = 1e-4) -> None:
    """Assert that a completion's log-probabilities are those of one full forward pass."""
    np.testing.assert_allclose(completion.logprobs, score_completion(model, request, completion.ids), atol=atol)


def make_contexts(vocabulary: int, count: int, seed: int = 0) -> list[list[int]]:
    """Return contexts of different lengths, half of them with a common prefix."""
    rng = np.random.default_rng(seed)
    opening = rng.integers(0, vocabulary, 20).tolist()
    return [
        (opening if i % 2 else []) + rng.integers(0, vocabulary, rng.integers(1, 30)).tolist() for i in range(count)
    ]
