"""Prefix trees: tokens shared by several streams are computed once, with unchanged results."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from agents import packing
from agents.costs import estimate_costs
from agents.packing import MIN_SHARED, Costs, count_shared, plan_passes
from agents.scoring import StreamScorer, pack, score_streams
from agents.stream import Stream
from tests.factories.models import VOCABULARY, make_tiny_llama
from tests.factories.streams import make_stream, score_alone

seeds = st.integers(0, 2**32 - 1)
JOIN = Costs(start=8, scores=10**9)
"""Costs at which any shared prefix becomes a tree."""
EXACT = make_tiny_llama().double()
SIZES = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2}
HEADS = {"intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}


def grow_streams(seed: int) -> tuple[list[Stream], list[float]]:
    """Return streams that branch anywhere, also within sampled tokens, and duplicates."""
    rng = np.random.default_rng(seed)
    streams = [make_stream(rng.integers(0, VOCABULARY, 20).tolist(), rng, int(rng.integers(1, 8)))]
    for _ in range(int(rng.integers(1, 9))):
        before = streams[rng.integers(len(streams))]
        at = int(rng.integers(1, len(before) + 1))
        branch = Stream(before.ids[:at], before.mask[:at], before.logprobs[:at], before.turns[:at])
        for turn in range(rng.integers(0, 4)):
            branch.observe(rng.integers(0, VOCABULARY, rng.integers(0, 30)).tolist())
            branch.append_sampled(rng.integers(0, VOCABULARY, 2).tolist(), [-1.0] * 2, 100 + turn)
        streams.append(branch)
    return streams, [float(t) for t in rng.choice([0.5, 1.0, 1.7], len(streams))]


@settings(max_examples=40, deadline=None)
@given(seeds, st.sampled_from([1, 60, 10**4]))
def test_scores_in_a_tree_are_those_of_separate_forwards(seed: int, budget: int) -> None:
    streams, heat = grow_streams(seed)
    scored = score_streams(StreamScorer(EXACT), streams, heat, budget, JOIN)
    with torch.no_grad():
        for stream, temperature, scores in zip(streams, heat, scored, strict=True):
            np.testing.assert_allclose(scores, score_alone(EXACT, stream, temperature).numpy(), atol=2e-6, rtol=2e-6)


@settings(max_examples=15, deadline=None)
@given(seeds)
def test_gradients_through_a_tree_are_those_of_separate_forwards(seed: int) -> None:
    streams, heat = grow_streams(seed)
    rng = np.random.default_rng(seed)
    weight = [torch.from_numpy(rng.normal(size=s.sampled_count)).float() for s in streams]
    parts = [(score_alone(EXACT, s, t) * w).sum() for s, t, w in zip(streams, heat, weight, strict=True)]
    expected = torch.autograd.grad(torch.stack(parts).sum(), list(EXACT.parameters()))
    total = torch.zeros(())
    for batch in pack(streams, heat, 10**4, costs=JOIN):
        wanted = torch.cat([weight[i] for i in batch.index])
        total = total + (StreamScorer(EXACT)(batch).logprobs * wanted).sum()
    in_tree = torch.autograd.grad(total, list(EXACT.parameters()))
    for actual, reference in zip(in_tree, expected, strict=True):
        largest = max(1.0, float(reference.abs().max()))
        torch.testing.assert_close(actual / largest, reference / largest, atol=1e-6, rtol=0)


@given(seeds, st.integers(1, 200), st.sampled_from([0, 1, 50, 10**9]))
def test_each_stream_is_a_tree_path(seed: int, budget: int, scores: int) -> None:
    streams, heat = grow_streams(seed)
    given_ = list(plan_passes(streams, budget, costs=Costs(8, scores)))
    seen: list[int] = []
    for one, batch in zip(given_, pack(streams, heat, budget, costs=Costs(8, scores)), strict=True):
        rows, width = batch.suffix.shape
        assert one.tokens == len(batch.prefix) + rows * width
        assert rows == 1 or one.tokens <= budget
        assert one.tokens <= max(budget, *map(len, streams))
        assert batch.lengths.tolist() == [row.size for row in one.rows]
        seen += batch.index
        for owner, i in enumerate(batch.index):
            actual = batch.owners == owner
            assert batch.targets[actual].tolist() == [
                t for t, own in zip(streams[i].ids, streams[i].mask, strict=True) if own
            ]
            assert set(batch.temperatures[actual].tolist()) == {np.float32(heat[i])}
            row, column = int(batch.rows[actual][-1]), int(batch.columns[actual][-1])
            end = max(k for k, own in enumerate(streams[i].mask) if own)
            if batch.tree is None:
                path = torch.arange(column + 1)
            else:
                path = batch.tree[row, column].nonzero()[:, 0]
                assert batch.positions is not None
                assert batch.positions[row, path].tolist() == list(range(len(batch.prefix), end))
            assert [*batch.prefix.tolist(), *batch.suffix[row, path].tolist()] == streams[i].ids[:end]
    assert sorted(seen) == [i for i, s in enumerate(streams) if s.sampled_count]


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_shared_tokens_are_computed_once_within_budget(seed: int) -> None:
    """As many tokens as the prefix tree has nodes, plus a few (`MIN_SHARED`) per stream."""
    streams = [stream for stream in grow_streams(seed)[0] if stream.sampled_count]
    nodes = {tuple(s.ids[:k]) for s in streams for k in range(1, len(s) + 1)}
    dear = Costs(start=10**6, scores=10**9)
    computed = [one.prefix + sum(row.size for row in one.rows) for one in plan_passes(streams, 10**6, costs=dear)]
    assert len(nodes) <= sum(computed) < len(nodes) + MIN_SHARED * len(streams)


def make_nested_streams() -> list[Stream]:
    """Return a trunk of forty tokens with three branches of five, one of which continues twice with four."""
    trunk, arms = [k % VOCABULARY for k in range(40)], [[arm] * 5 for arm in (1, 2, 3)]
    streams = []
    for ids in (trunk + arms[0], trunk + arms[1], trunk + arms[2] + [4] * 4, trunk + arms[2] + [5] * 4):
        streams.append(Stream())
        streams[-1].observe(ids[:10])
        streams[-1].append_sampled(ids[10:], [-1.0] * (len(ids) - 10), 0)
    return streams


def test_nested_branches_match_worked_example() -> None:
    """40 + 3 * 5 + 2 * 4 tokens in a tree; else 9 once, and four rows padded to 40 more."""
    assert [(one.prefix, one.tokens) for one in plan_passes(make_nested_streams(), 1000, costs=Costs(64, 10**6))] == [
        (9, 63)
    ]
    assert [(one.prefix, one.tokens) for one in plan_passes(make_nested_streams(), 1000, costs=Costs(64))] == [
        (9, 9 + 4 * 40)
    ]


def test_streams_that_share_no_more_than_their_opening_are_packed_as_before() -> None:
    rng = np.random.default_rng(0)
    opening = rng.integers(0, VOCABULARY, 30).tolist()
    streams = [make_stream(opening, rng, 3) for _ in range(12)]
    assert list(plan_passes(streams, 300, costs=JOIN)) == list(plan_passes(streams, 300, costs=Costs(JOIN.start)))


def test_tree_is_used_where_it_saves_computation() -> None:
    """Two streams share 64 tokens and have 64 of their own: 64 saved against 64 * 64 scores, 64 a token."""
    rng = np.random.default_rng(0)
    shared = rng.integers(0, VOCABULARY, 64).tolist()
    streams = [Stream(), Stream()]
    for first, stream in enumerate(streams):
        stream.append_sampled(shared, [-1.0] * 64, 0)
        stream.observe([first] * 64)
    rows = {
        scores: [len(one.rows) for one in plan_passes(streams, 10**4, costs=Costs(300, scores))] for scores in (63, 64)
    }
    assert rows == {63: [2], 64: [1]}


def test_only_models_with_path_masks_get_trees() -> None:
    """Not with a sliding window, layers of two kinds, or without attention."""
    near = MistralForCausalLM(MistralConfig(sliding_window=6, **SIZES, **HEADS))
    far = MistralForCausalLM(MistralConfig(sliding_window=None, **SIZES, **HEADS))
    mixed = Gemma2ForCausalLM(Gemma2Config(**SIZES, **HEADS))
    recurrent = MambaForCausalLM(MambaConfig(state_size=4, **SIZES))
    assert [estimate_costs(model).scores > 0 for model in (make_tiny_llama(), far, near, mixed, recurrent)] == [
        True, True, False, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize("bf16", [False, True], ids=["float32", "bf16"])
def test_recomputed_gradients_of_a_tree_are_those_that_keep_everything(bf16: bool) -> None:
    (batch,) = pack(make_nested_streams(), [1.0, 0.5, 1.0, 2.0], 10**4, costs=JOIN)
    assert batch.tree is not None
    gradients = []
    for recomputed in (False, True):
        model = make_tiny_llama()
        scores = StreamScorer(model, bf16, recomputed)(batch)
        (scores.logprobs.sum() + scores.entropy.square().sum()).backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    for first, second in zip(*gradients, strict=True):
        tolerance = 1e-2 * float(first.abs().max()) if bf16 else 1e-6
        torch.testing.assert_close(first, second, atol=tolerance, rtol=tolerance)


@given(st.lists(st.integers(0, 2), max_size=40), st.lists(st.integers(0, 2), max_size=40))
def test_agreement_ends_at_the_first_difference(one: list[int], other: list[int]) -> None:
    at = count_shared(one, other)
    assert one[:at] == other[:at] and (at in (len(one), len(other)) or one[at] != other[at])


def make_stripped_streams(turns: int, shown_count: int) -> list[Stream]:
    """Return one stream per turn: the shown history, and the turn's thought, which later ones do not contain."""
    rng, history, streams = np.random.default_rng(0), list[int](), []
    for turn in range(turns):
        history += rng.integers(0, 40_000, shown_count).tolist()
        streams.append(Stream())
        streams[-1].observe(history)
        streams[-1].append_sampled(rng.integers(0, 40_000, 8).tolist(), [-1.0] * 8, turn)
    return streams


@pytest.mark.slow
def test_a_match_of_very_many_turns_is_packed() -> None:
    """A trunk with 1,500 branches, beyond Python's recursion limit."""
    passes = list(plan_passes(make_stripped_streams(1500, 3), 10**5, costs=Costs(64, 1536)))
    assert sorted(i for one in passes for i in one.index) == list(range(1500))


@given(seeds, st.integers(100, 20_000))
def test_the_mask_of_trees_is_bounded(seed: int, most: int) -> None:
    streams, heat = grow_streams(seed)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(packing, "MAX_MASK_ENTRIES", most)
        for batch in pack(streams, heat, 10**6, costs=JOIN):
            assert batch.tree is None or batch.tree.numel() + batch.suffix.numel() * len(batch.prefix) <= most


def test_contexts_longer_than_the_mask_allows_are_several_trees() -> None:
    """15,000 tokens in the last one, whatever the budget."""
    passes = list(plan_passes(make_stripped_streams(150, 100), 10**7, costs=JOIN))
    trees = [(one.prefix, row.size) for one in passes for row in one.rows if len(row.streams) > 1]
    assert len(trees) > 1 and all(size * (prefix + size) <= packing.MAX_MASK_ENTRIES for prefix, size in trees)
