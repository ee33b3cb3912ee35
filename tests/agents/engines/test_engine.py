"""The in-process engine: reported log-probabilities match the model, whatever shares the batch."""

import asyncio
import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import ref

import numpy as np
import pytest
import torch

from agents.costs import estimate_costs
from agents.engines import decoding
from agents.engines.base import Completion, Request
from agents.engines.in_process import MAX_PREFIXES, InProcessEngine
from agents.engines.kv import BatchKV
from agents.engines.sampling import draw_tokens, truncate
from agents.model_folder import load_model
from agents.precision import Precision
from agents.published import ModuleWeights
from agents.stream import Stream
from agents.weights import resolve
from arena.cli.loop import wait
from tests.factories.models import make_tiny_llama
from tests.factories.requests import (
    assert_agrees,
    generate,
    make_contexts,
    make_request,
    record_passes,
    truncate_distribution,
)


@pytest.fixture(scope="module")
def nano() -> Any:
    return load_model(resolve("nano"))


def make_engine(model: Any, **options: Any) -> InProcessEngine:
    engine = InProcessEngine(**options)
    wait(engine.publish("p", 3, ModuleWeights(model)))
    return engine


@pytest.mark.parametrize("changes", [{}, {"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.7}, {"temperature": 0.0}])
def test_entropy_is_that_of_the_distribution_sampled_from(changes: dict[str, Any]) -> None:
    """For every token and any batch; requests without `entropy` get none."""
    model, context = make_tiny_llama(), [1, 2, 3]
    requests = [make_request(context, seed, f"k{seed}", max_tokens=3 + seed, **changes) for seed in range(4)]
    for one, plain in zip(
        generate(make_engine(model, entropy=True), requests), generate(make_engine(model), requests), strict=True
    ):
        assert (one.ids, one.logprobs) == (plain.ids, plain.logprobs) and plain.entropy is None
        assert one.entropy is not None and len(one.entropy) == len(one.ids)
        for position, entropy in enumerate(one.entropy):
            with torch.no_grad():
                logits = model(torch.tensor([[*context, *one.ids[:position]]])).logits[0, -1].double()
            if changes.get("temperature") == 0:
                assert entropy == 0.0
                continue
            p = torch.log_softmax(logits / changes.get("temperature", 1.0), -1)[None].float()
            p = truncate(p, [changes.get("top_k", 0)], [changes.get("top_p", 1.0)])[0].double().exp()
            assert entropy == pytest.approx(float(-(p[p > 0] * p[p > 0].log()).sum()), abs=1e-4)


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, 0, 1.0), (0.6, 0, 1.0), (1.8, 0, 1.0), (1.0, 3, 1.0), (0.8, 0, 0.7), (1.3, 5, 0.6), (1.0, 1, 1.0)],
)
def test_logprobs_are_of_the_distribution_sampled_from(temperature: float, top_k: int, top_p: float) -> None:
    model = make_tiny_llama()
    requests = [
        make_request(ids, seed=i, key=str(i), temperature=temperature, top_k=top_k, top_p=top_p)
        for i, ids in enumerate(make_contexts(24, 12))
    ]
    for one, got in zip(requests, generate(make_engine(model), requests), strict=True):
        assert len(got.ids) == 6 and got.version == 3
        assert_agrees(model, one, got)


def test_requests_of_different_sampling_share_a_batch() -> None:
    model = make_tiny_llama()
    kinds: list[dict[str, Any]] = [{"temperature": 0.5}, {"top_k": 2}, {"top_p": 0.5}, {"max_tokens": 1}, {}]
    requests = [make_request(ids, i, str(i), **kinds[i % 5]) for i, ids in enumerate(make_contexts(24, 10))]
    completions = generate(make_engine(model), requests)
    for one, completion in zip(requests, completions, strict=True):
        assert_agrees(model, one, completion)
        assert len(completion.ids) == one.max_tokens


def play_conversation(engine: InProcessEngine, fresh: bool = False, turns: int = 4) -> list[Completion]:
    """Generate four turns of one stream; with `fresh`, nothing is cached between them."""
    ids, done = [1, 2, 3, 4, 5], []
    for turn in range(turns):
        if fresh:
            wait(engine.publish("p", 3, ModuleWeights(engine._served["p"].weights)))
        (got,) = generate(engine, [make_request(ids, turn, "m")])
        done.append(got)
        ids = [*ids, *got.ids, 7, 8, 9]
    return done


def test_cache_saves_tokens_without_changing_replies(nano: Any) -> None:
    token_counts: list[int] = []
    hook = nano.get_input_embeddings().register_forward_pre_hook(lambda m, given: token_counts.append(given[0].numel()))
    try:
        cached = play_conversation(make_engine(nano))
        with_cache, token_counts[:] = sum(token_counts), []
        fresh = play_conversation(make_engine(nano), fresh=True)
    finally:
        hook.remove()
    assert [c.ids for c in cached] == [c.ids for c in fresh]
    for first, second in zip(cached, fresh, strict=True):
        np.testing.assert_allclose(first.logprobs, second.logprobs, atol=1e-4)
    assert with_cache < sum(token_counts)


def test_tiny_cache_changes_no_reply(nano: Any) -> None:
    roomy = play_conversation(make_engine(nano))
    assert [c.ids for c in play_conversation(make_engine(nano, cache_bytes=1))] == [c.ids for c in roomy]


def test_a_cache_of_other_ids_is_not_used() -> None:
    model = make_tiny_llama()
    engine = make_engine(model)
    generate(engine, [make_request([1, 2, 3, 4])])
    request = make_request([4, 3, 2, 1, 5, 6, 7, 8, 9, 10, 11, 12])
    (got,) = generate(engine, [request])
    assert_agrees(model, request, got)
    engine.forget("k")
    engine.forget("never heard of")
    assert generate(engine, [request])[0].ids == got.ids


@pytest.mark.parametrize("max_batch", [256, 5])
def test_the_same_seed_draws_the_same_reply_alone_and_among_many(nano: Any, max_batch: int) -> None:
    requests = [make_request(ids, i, str(i)) for i, ids in enumerate(make_contexts(nano.config.vocab_size, 24))]
    among = generate(make_engine(nano, max_batch=max_batch), requests)
    for i in (0, 3, 11, 23):
        (alone,) = generate(make_engine(nano), [requests[i]])
        assert alone.ids == among[i].ids
        np.testing.assert_allclose(alone.logprobs, among[i].logprobs, atol=1e-4)
    assert len({c.ids for c in among}) == len(among), "different seeds, different replies"


def test_waiting_requests_are_decoded_together(nano: Any) -> None:
    engine, batches = make_engine(nano), []
    estimate_costs(nano)  # which are tried once for a model
    hook = nano.get_input_embeddings().register_forward_pre_hook(lambda m, given: batches.append(len(given[0])))

    async def many() -> None:
        await asyncio.gather(*(engine.generate([make_request([1, 2, i], i, str(i), max_tokens=2)]) for i in range(7)))

    try:
        asyncio.run(many())
    finally:
        hook.remove()
    assert batches == [1, 7, 7]  # the common opening once, then everybody


def test_publishing_drops_caches_of_older_weights() -> None:
    model = make_tiny_llama(seed=0)
    engine = make_engine(model)
    first = make_request(make_contexts(24, 2)[1], seed=1)
    (reply,) = generate(engine, [first])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.3).add_(0.01)
    wait(engine.publish("p", 4, ModuleWeights(model)))
    for request in (make_request([*first.ids, *reply.ids, 5, 6], seed=2), make_request(first.ids, seed=3, key="new")):
        (got,) = generate(engine, [request])
        assert got.version == 4
        assert_agrees(model, request, got)


def test_policies_are_served_apart() -> None:
    first, second = make_tiny_llama(seed=0), make_tiny_llama(seed=1)
    engine = make_engine(first)
    wait(engine.publish("q", 9, ModuleWeights(second)))
    requests = [make_request([1, 2, 3], 0), make_request([1, 2, 3], 0, policy="q")]
    actual, reference = generate(engine, requests)
    assert_agrees(first, requests[0], actual)
    assert_agrees(second, requests[1], reference)
    assert (actual.version, reference.version) == (3, 9)


def test_temperature_zero_is_greedy_with_log_probability_zero() -> None:
    model = make_tiny_llama()
    request = make_request([3, 1, 4, 1, 5], temperature=0.0)
    (got,) = generate(make_engine(model), [request])
    ids = list(request.ids)
    with torch.no_grad():
        for token in got.ids:
            assert token == int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax())
            ids.append(token)
    assert got.logprobs == (0.0,) * 6


def test_a_stop_id_ends_the_reply_and_belongs_to_it() -> None:
    model = make_tiny_llama()
    (full,) = generate(make_engine(model), [make_request([1, 2, 3], max_tokens=8)])
    assert (full.finish, len(full.ids)) == ("length", 8)
    end = full.ids[4]
    (stopped,) = generate(make_engine(model), [make_request([1, 2, 3], max_tokens=8, stop_ids=frozenset({end}))])
    assert stopped.finish == "stop"
    assert stopped.ids == full.ids[: full.ids.index(end) + 1]
    (last,) = generate(make_engine(model), [make_request([1, 2, 3], max_tokens=1, stop_ids=frozenset({full.ids[0]}))])
    assert (last.finish, last.ids) == ("stop", full.ids[:1])


def test_refuses_unpublished_policy() -> None:
    with pytest.raises(KeyError, match="no weights are published for policy 'ghost'"):
        generate(make_engine(make_tiny_llama()), [make_request([1, 2], policy="ghost")])


def test_model_errors_reach_waiting_requests() -> None:
    engine = make_engine(make_tiny_llama(vocabulary=8))
    with pytest.raises((RuntimeError, ValueError, IndexError)):
        asyncio.run(asyncio.wait_for(engine.generate([make_request([1, 2, 99])]), 5))
    assert len(generate(engine, [make_request([1, 2, 3])])[0].ids) == 6, "and the engine goes on"


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, 0), (0.7, 4)])
def test_tokens_are_drawn_as_often_as_their_probability_says(temperature: float, top_k: int) -> None:
    model, count = make_tiny_llama(vocabulary=8), 3000
    requests = [
        make_request([1, 2, 3], seed, str(seed), max_tokens=1, temperature=temperature, top_k=top_k)
        for seed in range(count)
    ]
    drawn = Counter(c.ids[0] for c in generate(make_engine(model), requests))
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[1, 2, 3]])).logits[0, -1].double().numpy()
    expected = np.exp(truncate_distribution(logits, temperature, top_k, 1.0)) * count
    assert all(expected[token] for token in drawn), "nothing outside the truncated vocabulary"
    cells = [k for k in range(8) if expected[k] > 0]
    chi2 = sum((drawn[k] - expected[k]) ** 2 / expected[k] for k in cells)
    assert chi2 < 24.3, f"chi-square {chi2:.1f} with {len(cells) - 1} degrees of freedom"  # 0.999 quantile of 7


def test_scores_are_those_of_the_sampler() -> None:
    model = make_tiny_llama()
    engine = make_engine(model)
    request = make_request([1, 2, 3, 4, 5], temperature=0.8)
    (got,) = generate(engine, [request])
    stream = Stream()
    stream.observe(request.ids)
    stream.append_sampled(got.ids, got.logprobs, 0)
    (scored,) = wait(engine.score("p", [stream], [0.8]))
    np.testing.assert_allclose(scored, got.logprobs, atol=1e-5)


@pytest.mark.parametrize("width", [5, 256, 700])
def test_draw_is_the_first_token_with_cumulative_probability_above_it(width: int) -> None:
    """Against numpy on the full row; tokens of probability 0 are never drawn, also at the ends."""
    rng = np.random.default_rng(width)
    p = rng.random((64, width)).astype(np.float32) ** 8 * (rng.random((64, width)) > 0.5)
    p[:, rng.integers(width)] += 0.25
    draws = np.concatenate([[0.0, np.nextafter(1.0, 0.0)], rng.random(62)])
    drawn_tokens = draw_tokens(torch.from_numpy(p), torch.arange(64), torch.from_numpy(draws)).numpy()
    for row, draw, token in zip(p.astype(np.float64), draws, drawn_tokens, strict=True):
        sums = row.cumsum()
        assert row[token] > 0
        assert sums[token] - row[token] - 1e-9 <= draw * sums[-1] <= sums[token] + 1e-9


def test_in_bfloat16_weights_that_changed_are_served_once_they_are_published() -> None:
    model, request = make_tiny_llama(), make_request([1, 2, 3])
    engine = make_engine(model, precision=Precision.BF16)
    before = generate(engine, [request])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    wait(engine.publish("p", 4, ModuleWeights(model)))
    assert (
        generate(engine, [request])[0].logprobs
        == generate(make_engine(model, precision=Precision.BF16), [request])[0].logprobs
    )
    assert generate(engine, [request])[0].logprobs != before[0].logprobs


def test_contexts_with_nothing_in_common_are_computed_in_one_pass(nano: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    requests, shapes = [make_request([i, *range(9)], key=f"{i}") for i in range(6)], record_passes(monkeypatch)
    for one, got in zip(requests, generate(make_engine(nano), requests), strict=True):
        assert_agrees(nano, one, got)
    assert shapes == [(1, 54), *[(6, 1)] * 6], "a tree without a trunk, then everybody's own tokens"


def test_shared_prefixes_are_computed_once_at_any_depth(nano: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two deals of three contexts: 4 common tokens, 3 per deal, and 2 or 1 per context."""
    requests = [
        make_request([1, 2, 3, 4, *[10 + deal] * 3, *[20 + own] * (1 + own % 2), 5], key=f"{deal}/{own}")
        for deal in range(2)
        for own in range(3)
    ]
    shapes = record_passes(monkeypatch)
    for one, got in zip(requests, generate(make_engine(nano), requests), strict=True):
        assert_agrees(nano, one, got)
    assert shapes[:3] == [(1, 4), (1, 2 * 3 + 2 * (1 + 2 + 1)), (6, 1)]


def test_prefix_is_computed_from_its_cached_part(nano: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(nano)
    generate(engine, [make_request([1, 2, 3, 4, own], key=f"{own}") for own in (5, 6)])
    shapes, later = record_passes(monkeypatch), make_request([1, 2, 3, 9, 9, 9], key="later")
    (got,) = generate(engine, [later])
    assert_agrees(nano, later, got)
    assert shapes[:2] == [(1, 2), (1, 1)], "9 9 behind 1 2 3, then the last 9"


def test_number_of_cached_prefixes_is_bounded(nano: Any) -> None:
    """A frozen policy plays for ever, with new prefixes."""
    engine = make_engine(nano)
    for first in range(MAX_PREFIXES + 9):
        generate(engine, [make_request([first, 1, 2], key=f"{first}", max_tokens=1)])
    prefixes = engine._served["p"].prefixes
    assert (
        len(prefixes._caches) == MAX_PREFIXES
        and prefixes.find_nearest((MAX_PREFIXES + 8, 1))
        and prefixes.find_nearest((0, 1)) is None
    )


def test_large_trees_are_taken_apart(nano: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.engines.decoding.MAX_TREE_TOKENS", {"cpu": 20, "cuda": 20})
    requests, shapes = [make_request([i, *range(9)], key=f"{i}") for i in range(5)], record_passes(monkeypatch)
    for one, got in zip(requests, generate(make_engine(nano), requests), strict=True):
        assert_agrees(nano, one, got)
    assert shapes[:4] == [(1, 18), (1, 18), (1, 9), (5, 1)]


def test_requests_share_a_row_until_they_sample_different_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request draws as it would alone; equal replies so far are computed once."""
    model, shapes = make_tiny_llama(), record_passes(monkeypatch)
    requests = [make_request([1, 2, 3], i, f"k{i}", temperature=0.2, max_tokens=3 + i % 4) for i in range(20)]
    completions = generate(make_engine(model), requests)
    rows = [rows for rows, width in shapes if width == 1]
    beginnings = [len({one.ids[:n] for one in completions if len(one.ids) > n}) for n in range(6)]
    assert beginnings[0] == 1 < max(beginnings) < 20, "they part, but not at once"
    assert rows[0] == 1 and all(beginnings[n] <= count for n, count in enumerate(rows))
    assert max(rows) <= max(beginnings), "rows that nobody uses are used again"
    for one, completion in zip(requests, completions, strict=True):
        assert_agrees(model, one, completion)
        (alone,) = generate(make_engine(model), [one])
        assert alone.ids == completion.ids


def test_conversation_continues_from_a_shared_row(nano: Any) -> None:
    """Requests that shared a row keep the cache of their own ids."""
    engine = make_engine(nano)
    first = [make_request([1, 2, 3, 4], i // 2, f"k{i}") for i in range(6)]
    replies = generate(engine, first)
    assert [reply.ids for reply in replies[::2]] == [reply.ids for reply in replies[1::2]]
    second = [make_request([*first[i].ids, *reply.ids, 7, 8], 10 + i, f"k{i}") for i, reply in enumerate(replies)]
    for one, got in zip(second, generate(engine, second), strict=True):
        assert_agrees(nano, one, got)


@pytest.mark.parametrize("bf16", [False, True])
def test_released_policy_holds_no_memory_and_is_still_served(bf16: bool) -> None:
    engine, request = (
        make_engine(make_tiny_llama(), precision=Precision.BF16 if bf16 else Precision.FP32),
        make_request([1, 2, 3]),
    )
    (before,) = generate(engine, [request])
    wait(engine.release("p"))
    assert engine._served["p"].bf16_copy is None and not engine._served["p"].caches._caches
    (after,) = generate(engine, [request])
    assert after.ids == before.ids
    np.testing.assert_allclose(after.logprobs, before.logprobs, atol=1e-2 if bf16 else 1e-5)


@contextmanager
def disable_garbage_collection() -> Iterator[None]:
    """Disable the cyclic garbage collector."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_batch_buffers_are_freed_without_garbage_collection(nano: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Collections are rare in a large process, and each batch's buffers are large."""
    buffers = list[ref[torch.Tensor]]()

    class Kept(BatchKV):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            buffers.append(ref(self.full_data))

    monkeypatch.setattr(decoding, "BatchKV", Kept)
    engine = make_engine(nano)
    with disable_garbage_collection():
        generate(engine, [make_request([1, 2, 3, 4, own], key=f"{own}") for own in range(5)])
        assert buffers and not [buffer for buffer in buffers if buffer() is not None]


def test_retiring_a_policy_fails_its_waiting_requests() -> None:
    engine = make_engine(make_tiny_llama())

    async def ask() -> list[Completion]:
        waiting = asyncio.create_task(engine.generate([make_request([1, 2, 3])]))
        await asyncio.sleep(0)
        await engine.retire("p")
        return await asyncio.wait_for(waiting, 10)

    with pytest.raises(KeyError):
        asyncio.run(ask())


class FailingEmbedding(torch.nn.Module):
    """Embedding that raises for any batch with a certain token."""

    def __init__(self, inner: Any, token: int) -> None:
        super().__init__()
        self.inner, self.token, self.calls = inner, token, 0

    @property
    def weight(self) -> torch.Tensor:
        return self.inner.weight

    def forward(self, ids: torch.Tensor) -> Any:
        self.calls += 1
        if bool((ids == self.token).any()):
            raise RuntimeError("the token that must not be")
        return self.inner(ids)


def collect_answers(engine: InProcessEngine, requests: list[Request]) -> list[Completion | BaseException]:
    """Send requests concurrently and return their completions or errors."""

    async def every() -> list[Any]:
        each = (engine.generate([request]) for request in requests)
        return await asyncio.gather(*each, return_exceptions=True)

    return [one if isinstance(one, BaseException) else one[0] for one in asyncio.run(every())]


def test_an_error_of_one_request_reaches_no_other() -> None:
    """Requests in the same batch get the replies that they get without it."""
    requests = [make_request([1, 2, i], i, str(i), max_tokens=3) for i in range(3, 10)]
    alone = generate(make_engine(make_tiny_llama()), requests)
    model = make_tiny_llama()
    model.set_input_embeddings(FailingEmbedding(model.get_input_embeddings(), 20))
    answers = collect_answers(make_engine(model), [*requests[:4], make_request([1, 20], 0, "bad"), *requests[4:]])
    assert isinstance(answers.pop(4), RuntimeError)
    for first, second in zip(answers, alone, strict=True):
        assert isinstance(first, Completion) and first.ids == second.ids


@pytest.mark.parametrize("ids", [(1, 24), (-1, 2), (2**40,)])
def test_unknown_token_fails_its_request_before_the_batch(
    ids: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU an index out of range breaks the whole process."""
    engine, seen = make_engine(make_tiny_llama()), record_passes(monkeypatch)
    answers = collect_answers(
        engine, [make_request([1, 2]), make_request(ids, key="bad"), make_request([1, 3], key="other")]
    )
    assert [isinstance(one, Completion) for one in answers] == [True, False, True]
    assert "vocabulary of 24" in str(answers[1]) and (2, 1) in seen, "the others share a batch"


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 1e-300}, {"temperature": 1e-3}, {"temperature": -1.0}, {"temperature": float("nan")},
        {"temperature": float("inf")}, {"top_p": 0.0}, {"top_p": float("nan")}, {"top_k": -1}, {"top_k": 2**40},
        {"max_tokens": 0}, {"seed": -1}, {"ids": ()},
    ],
)  # fmt: skip
def test_a_request_that_cannot_be_sampled_is_not_made(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        make_request(**{"ids": (1, 2)} | changes)


@pytest.mark.parametrize("changes", [{"temperature": 0.01}, {"top_p": 1e-300}, {"top_k": 2**31 - 1}])
def test_the_outermost_settings_are_sampled(changes: dict[str, Any]) -> None:
    model = make_tiny_llama()
    with torch.no_grad():
        model.lm_head.weight.mul_(1e4)
    (got,) = generate(make_engine(model), [make_request([1, 2, 3], **changes)])
    assert len(got.ids) == 6 and np.isfinite(got.logprobs).all()
