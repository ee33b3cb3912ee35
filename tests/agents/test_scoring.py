"""Scoring: shared prefixes and packing change the cost of a forward pass, never its values or gradients."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import MistralConfig, MistralForCausalLM

from agents.packing import Costs, PrefixTree, find_common_prefix
from agents.scoring import StreamBatch, StreamScorer, pack, score_streams
from agents.stream import Stream
from agents.token_scores import TokenScores
from tests.factories.models import VOCABULARY, make_tiny_llama
from tests.factories.streams import make_stream, score_alone

MODEL = make_tiny_llama()


def random_streams(seed: int) -> tuple[list[Stream], list[float]]:
    """Return families with prefixes shorter and longer than `pack` groups by, and streams without sampled tokens."""
    rng = np.random.default_rng(seed)
    openings = [rng.integers(0, VOCABULARY, n).tolist() for n in rng.integers(1, 26, rng.integers(1, 4))]
    openings.append(openings[0][: max(1, len(openings[0]) - 2)])
    streams = [
        make_stream(openings[rng.integers(len(openings))], rng, int(rng.integers(0, 4)))
        for _ in range(rng.integers(1, 8))
    ]
    return streams, [float(t) for t in rng.choice([0.5, 1.0, 1.7], len(streams))]


seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=25, deadline=None)
@given(seeds, st.sampled_from([1, 40, 100, 4096]))
def test_packed_scores_are_those_of_separate_forwards(seed: int, budget: int) -> None:
    streams, heat = random_streams(seed)
    scored = score_streams(StreamScorer(MODEL), streams, heat, budget)
    with torch.no_grad():
        for stream, temperature, scores in zip(streams, heat, scored, strict=True):
            assert scores.dtype == np.float32
            np.testing.assert_allclose(scores, score_alone(MODEL, stream, temperature).numpy(), atol=1e-5, rtol=1e-5)


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_gradients_through_the_shared_opening_are_those_of_separate_forwards(seed: int) -> None:
    rng = np.random.default_rng(seed)
    opening = rng.integers(0, VOCABULARY, 20).tolist()
    streams = [make_stream(opening, rng, int(rng.integers(1, 4))) for _ in range(4)]
    heat = [1.0, 0.5, 1.0, 2.0]
    weight = [torch.from_numpy(rng.normal(size=s.sampled_count)).float() for s in streams]

    def gradients(total: torch.Tensor) -> list[torch.Tensor]:
        return list(torch.autograd.grad(total, list(MODEL.parameters())))

    expected = gradients(
        torch.stack([(score_alone(MODEL, s, t) * w).sum() for s, t, w in zip(streams, heat, weight, strict=True)]).sum()
    )
    (batch,) = pack(streams, heat, 4096)
    assert len(batch.prefix) >= 19, "the opening should be run once"
    wanted = torch.cat([weight[i] for i in batch.index])
    shared = gradients((StreamScorer(MODEL)(batch).logprobs * wanted).sum())
    for actual, reference in zip(shared, expected, strict=True):
        torch.testing.assert_close(actual, reference, atol=2e-4, rtol=2e-4)


def compute_gradients(model: torch.nn.Module, batch: StreamBatch, **settings: Any) -> dict[str, torch.Tensor]:
    """Return the gradients of a randomly weighted sum over log-probabilities and entropies."""
    model.zero_grad()
    scores = StreamScorer(model, **settings)(batch)
    by = torch.linspace(-1, 1, len(batch.rows))
    (by @ scores.logprobs + 0.1 * by.square() @ scores.entropy).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("bf16", [False, True], ids=["float32", "bf16"])
@pytest.mark.parametrize("opening", [0, 20], ids=["nothing shared", "a shared opening"])
@pytest.mark.parametrize("frozen", ["", "layers.0", "embed_tokens"])
def test_checkpointed_gradients_are_those_that_keep_everything(bf16: bool, opening: int, frozen: str) -> None:
    rng = np.random.default_rng(0)
    shared = rng.integers(0, VOCABULARY, opening).tolist()
    (batch,) = pack([make_stream(shared, rng, 3) for _ in range(4)], [1.0, 0.5, 1.0, 2.0], 4096)
    assert (len(batch.prefix) > 0) == (opening > 0)
    model = make_tiny_llama()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not frozen or frozen not in name)
    expected = compute_gradients(model, batch, bf16=bf16)
    recomputed = compute_gradients(model, batch, bf16=bf16, gradient_checkpointing=True)
    assert recomputed.keys() == expected.keys() and all(gradient.any() for gradient in recomputed.values())
    for name, gradient in recomputed.items():
        tolerance = 1e-2 * float(expected[name].abs().max()) if bf16 else 1e-6
        torch.testing.assert_close(gradient, expected[name], atol=tolerance, rtol=tolerance)


def test_checkpointing_computes_layers_anew_instead_of_keeping_them() -> None:
    rng = np.random.default_rng(0)
    opening = rng.integers(0, VOCABULARY, 20).tolist()
    (batch,) = pack([make_stream(opening, rng, 3) for _ in range(4)], [1.0] * 4, 4096)
    stored, calls = dict.fromkeys((False, True), 0), dict.fromkeys((False, True), 0)
    for anew in (False, True):
        model, seen = make_tiny_llama(), set[int]()

        def keep(tensor: torch.Tensor, anew: bool = anew, seen: set[int] = seen) -> torch.Tensor:
            stored[anew] += tensor.numel() * (tensor.data_ptr() not in seen)
            seen.add(tensor.data_ptr())
            return tensor

        def called(*_: object, anew: bool = anew) -> None:
            calls[anew] += 1

        model.model.layers[1].mlp.register_forward_pre_hook(called)
        before = dict(vars(model.model.layers[1]))
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            scores = StreamScorer(model, gradient_checkpointing=anew)(batch)
        assert vars(model.model.layers[1]) == before, "the model is as it was"
        scores.logprobs.sum().backward()
    assert calls == {False: 2, True: 4}, "once for the opening, once for what follows, and both anew"
    assert stored[True] < stored[False] / 2


def test_prefix_longer_than_sliding_window_is_shared() -> None:
    config = MistralConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, initializer_range=0.4, sliding_window=6,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = MistralForCausalLM(config).eval()
    rng = np.random.default_rng(0)
    opening = rng.integers(0, VOCABULARY, 20).tolist()
    streams = [make_stream(opening, rng, 2) for _ in range(3)]
    (batch,) = pack(streams, [1.0] * 3, 4096)
    assert len(batch.prefix) > config.sliding_window
    with torch.no_grad():
        for stream, scores in zip(streams, score_streams(StreamScorer(model), streams, [1.0] * 3), strict=True):
            np.testing.assert_allclose(scores, score_alone(model, stream, 1.0), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradients_of_logprobs_and_entropies_are_those_of_a_plain_softmax(dtype: torch.dtype) -> None:
    """Against float64 autograd, over more rows than one chunk."""
    rng = torch.Generator().manual_seed(0)
    logits = (torch.randn(800, 2_000, generator=rng) * 3).to(dtype).requires_grad_()
    targets, temperatures = torch.randint(2_000, (800,), generator=rng), torch.rand(800, generator=rng) + 0.5
    by = torch.randn(2, 800, generator=rng)
    logprobs, entropy = TokenScores.apply(logits, targets, temperatures)
    (by[0] @ logprobs + by[1] @ entropy).backward()
    exact = logits.detach().double().requires_grad_()
    plain = torch.log_softmax(exact / temperatures.double()[:, None], -1)
    entropies = -(plain.exp() * plain).sum(-1)
    chosen = plain.gather(-1, targets[:, None]).squeeze(-1)
    (by[0].double() @ chosen + by[1].double() @ entropies).backward()
    torch.testing.assert_close(logprobs.double(), chosen, atol=2e-5, rtol=2e-6)
    torch.testing.assert_close(entropy.double(), entropies, atol=5e-5, rtol=5e-6)
    assert logits.grad is not None and logits.grad.dtype == dtype and exact.grad is not None
    torch.testing.assert_close(
        logits.grad.double(), exact.grad, atol=1e-5, rtol=1e-4 if dtype == torch.float32 else 8e-3
    )


def test_entropy_is_of_the_distribution_each_token_was_drawn_from() -> None:
    stream = make_stream([1, 2, 3], np.random.default_rng(0), 2)
    (batch,) = pack([stream], [0.7], 4096)
    with torch.no_grad():
        entropy = StreamScorer(MODEL)(batch).entropy
        logits = MODEL(input_ids=torch.tensor([stream.ids])).logits[0] / 0.7
    p = torch.softmax(logits, -1)
    full = -(p * p.log()).sum(-1)
    expected = torch.stack([full[k - 1] for k, own in enumerate(stream.mask) if own])
    torch.testing.assert_close(entropy, expected, atol=1e-5, rtol=1e-5)


def test_temperature_is_of_each_stream_and_not_of_the_batch() -> None:
    stream = make_stream([1, 2, 3, 4], np.random.default_rng(1), 2)
    cold, warm = score_streams(StreamScorer(MODEL), [stream, stream], [0.3, 3.0])
    with torch.no_grad():
        np.testing.assert_allclose(cold, score_alone(MODEL, stream, 0.3), atol=1e-5, rtol=1e-5)
        np.testing.assert_allclose(warm, score_alone(MODEL, stream, 3.0), atol=1e-5, rtol=1e-5)
    assert np.abs(cold - warm).max() > 0.1


def test_a_model_that_reshapes_its_logits_is_scored_by_them() -> None:
    """Gemma-like soft capping after the head is not skipped."""
    from transformers import Gemma2Config, Gemma2ForCausalLM

    config = Gemma2Config(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, head_dim=8, final_logit_softcapping=0.5,
        initializer_range=0.5,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Gemma2ForCausalLM(config).eval()
    stream = make_stream([1, 2, 3], np.random.default_rng(2), 2)
    (scores,) = score_streams(StreamScorer(model), [stream], [1.0])
    with torch.no_grad():
        np.testing.assert_allclose(scores, score_alone(model, stream, 1.0), atol=1e-5, rtol=1e-5)


@given(st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=1, max_size=5))
def test_the_common_prefix_is_shared_by_all_and_cannot_be_longer(sequences: list[list[int]]) -> None:
    prefix = list(find_common_prefix(sequences))
    assert all(s[: len(prefix)] == prefix for s in sequences)
    longer = {tuple(s[: len(prefix) + 1]) for s in sequences}
    assert len(longer) > 1 or any(len(s) == len(prefix) for s in sequences)


@given(seeds, st.integers(1, 200))
def test_pack_keeps_the_budget_and_every_stream(seed: int, budget: int) -> None:
    streams, heat = random_streams(seed)
    seen: list[int] = []
    for batch in pack(streams, heat, budget):
        rows, width = batch.suffix.shape
        assert rows == 1 or len(batch.prefix) + rows * width <= budget
        seen += batch.index
        for row, i in enumerate(batch.index):
            ids = [*batch.prefix.tolist(), *batch.suffix[row, : batch.lengths[row]].tolist()]
            assert ids == streams[i].ids
            actual = batch.rows == row
            positions = batch.columns[actual] + len(batch.prefix) + 1
            assert positions.tolist() == [k for k, own in enumerate(streams[i].mask) if own]
            assert batch.targets[actual].tolist() == [streams[i].ids[k] for k in positions]
            assert set(batch.temperatures[actual].tolist()) == {np.float32(heat[i])}
    assert sorted(seen) == [i for i, s in enumerate(streams) if s.sampled_count]


def count_computed_tokens(sequences: dict[int, tuple[int, ...]], groups: list[list[int]], start: int) -> int:
    """Return the tokens that the groups compute plus the start-up cost of each pass."""
    prefixes = [len(find_common_prefix([sequences[i] for i in group])) for group in groups]
    return sum(start + p + sum(len(sequences[i]) - p for i in group) for p, group in zip(prefixes, groups, strict=True))


@given(st.lists(st.lists(st.integers(0, 2), max_size=8).map(tuple), min_size=1, max_size=12), st.integers(0, 12))
def test_families_partition_the_streams_and_never_cost_more(sequences: list[tuple[int, ...]], start: int) -> None:
    numbered = dict(enumerate(sequences))
    groups = PrefixTree(numbered, Costs(start)).find_families()
    assert sorted(i for group in groups for i in group) == sorted(numbered)
    assert count_computed_tokens(numbered, groups, start) <= count_computed_tokens(numbered, [list(numbered)], start)


def test_each_prompt_is_computed_once_despite_common_prefixes() -> None:
    """Eight deals of eight replies: all share 40 tokens of rules, deals by twos one more, and a deal's prompt has 91.

    By hand, with 60 for starting a pass: 8 * (60 + 91 + 8 * 5) = 1528 tokens; as one, 60 + 40 + 64 * 56 = 3684.
    """
    rules, rng = tuple(range(40)), np.random.default_rng(0)
    prompts = [(*rules, 100 + deal // 2, 200 + deal, *rng.integers(300, 400, 49).tolist()) for deal in range(8)]
    sequences = {i: (*prompts[i // 8], *rng.integers(400, 10**6, 5).tolist()) for i in range(64)}
    groups = PrefixTree(sequences, Costs(60)).find_families()
    assert sorted(map(sorted, groups)) == [list(range(8 * deal, 8 * deal + 8)) for deal in range(8)]
    assert count_computed_tokens(sequences, groups, 60) == 8 * (60 + 91 + 8 * 5)


def test_a_batch_ends_where_padding_costs_more_than_another_pass() -> None:
    """Seven streams of 10 tokens and one of 50 behind 20 shared ones: 7 * 40 of padding, more than 20 + 100."""
    opening, rng = list(range(20)), np.random.default_rng(0)
    streams = []
    for length in (*[10] * 7, 50):
        stream = Stream()
        stream.observe(opening)
        stream.append_sampled(rng.integers(0, VOCABULARY, length).tolist(), [-1.0] * length, 0)
        streams.append(stream)
    shapes = [tuple(batch.suffix.shape) for batch in pack(streams, [1.0] * 8, 4096, costs=Costs(100))]
    assert [rows for rows, _ in shapes] == [7, 1]
    assert [rows for rows, _ in (tuple(b.suffix.shape) for b in pack(streams, [1.0] * 8, 4096, costs=Costs(300)))] == [
        8
    ]


def test_pack_takes_only_the_given_streams() -> None:
    rng = np.random.default_rng(0)
    streams = [make_stream([1, 2, 3], rng, 1) for _ in range(5)]
    assert sorted(i for b in pack(streams, [1.0] * 5, 4096, [4, 1]) for i in b.index) == [1, 4]


@pytest.mark.parametrize("budget", [1, 10**6])
def test_scores_do_not_depend_on_the_order_of_the_streams(budget: int) -> None:
    streams, heat = random_streams(7)
    forth = score_streams(StreamScorer(MODEL), streams, heat, budget)
    back = score_streams(StreamScorer(MODEL), streams[::-1], heat[::-1], budget)[::-1]
    for first, second in zip(forth, back, strict=True):
        np.testing.assert_allclose(first, second, atol=1e-5, rtol=1e-5)
