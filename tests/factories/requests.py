"""Requests to an engine, and the log-probabilities that a whole forward gives of its completions."""

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
    """A request of policy `p` for six tokens, sampled without truncation, but for what is changed."""
    fields: dict[str, Any] = {
        "policy": "p", "ids": tuple(ids), "key": key, "max_tokens": 6, "temperature": 1.0, "top_p": 1.0,
        "top_k": 0, "stop_ids": frozenset(), "seed": (seed,),
    }  # fmt: skip
    return Request(**{**fields, **changes})


def generate(engine: InProcessEngine, requests: Sequence[Request]) -> list[Completion]:
    """What the engine answers, in a loop of its own."""
    return asyncio.run(engine.generate(requests))


def record_passes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The shapes, rows and new columns, of all passes of in-process engines from now on."""
    shapes: list[tuple[int, int]] = []
    one_pass = Decoder._pass

    def counted(decoder: Decoder, policies: list[str], batch: Any, tokens: torch.Tensor, *more: Any) -> torch.Tensor:
        shapes.append((tokens.shape[0], tokens.shape[1]))
        return one_pass(decoder, policies, batch, tokens, *more)

    monkeypatch.setattr(Decoder, "_pass", counted)
    return shapes


def truncate_distribution(logits: np.ndarray, temperature: float, top_k: int, top_p: float) -> np.ndarray:
    """Log-probabilities after temperature, top-k and top-p, one token at a time: the slow, plain way."""
    p = np.exp((logits - logits.max()) / temperature)
    order = np.argsort(-p, kind="stable")
    kept = order[: top_k or len(order)]
    p = np.where(np.isin(np.arange(len(p)), kept), p, 0.0)
    p /= p.sum()
    if top_p < 1:
        nucleus, mass = [], 0.0
        for token in kept:
            if mass >= top_p:
                break
            nucleus.append(token)
            mass += p[token]
        p = np.where(np.isin(np.arange(len(p)), nucleus), p, 0.0)
        p /= p.sum()
    with np.errstate(divide="ignore"):
        return np.log(p)


def score_completion(model: Any, asked: Request, ids: Sequence[int]) -> list[float]:
    """What one whole forward says of a completion's ids."""
    with torch.no_grad():
        whole = torch.tensor([[*asked.ids, *ids]], device=next(model.parameters()).device)
        logits = model(input_ids=whole).logits[0].double().cpu().numpy()
    places = range(len(asked.ids) - 1, len(asked.ids) + len(ids) - 1)
    return [
        float(truncate_distribution(logits[k], asked.temperature, asked.top_k, asked.top_p)[token])
        for k, token in zip(places, ids, strict=True)
    ]


def assert_agrees(model: Any, asked: Request, got: Completion, atol: float = 1e-4) -> None:
    """Assert that a completion's log-probabilities are those of one whole forward."""
    np.testing.assert_allclose(got.logprobs, score_completion(model, asked, got.ids), atol=atol)


def make_contexts(vocabulary: int, count: int, seed: int = 0) -> list[list[int]]:
    """Contexts of uneven length, half of them with a common opening."""
    rng = np.random.default_rng(seed)
    opening = rng.integers(0, vocabulary, 20).tolist()
    return [
        (opening if i % 2 else []) + rng.integers(0, vocabulary, rng.integers(1, 30)).tolist() for i in range(count)
    ]
