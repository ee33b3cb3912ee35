"""Our losses against TRL's own: its GRPOTrainer computes the same loss and gradients from the same inputs.

TRL's loss takes completions as a padded rectangle with a mask; ours takes the flat tokens under the mask.
"""

from typing import Any

import numpy as np
import pytest
import torch

from agents.scoring import StreamScorer, pack
from agents.stream import Stream
from arena.config.experiment import LearnSpec
from arena.learn.batches import TokenBatch, make_token_batch
from arena.learn.samples import Sample
from arena.parts.schedules import Clock
from tests.factories.models import VOCABULARY, make_tiny_llama

pytest.importorskip("trl")

ROWS, LENGTH = 4, 12
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # name: TRL's settings, our settings
    "grpo": ({"loss_type": "grpo", "epsilon": 0.2}, {"aggregate": "stream_mean"}),
    "bnpo": ({"loss_type": "bnpo", "epsilon": 0.2}, {"aggregate": "token_mean"}),
    "dapo": (
        {"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28},
        {"aggregate": "token_mean", "clip": {"ppo": {"high": 0.28}}},
    ),
    "dr_grpo": (
        {"loss_type": "dr_grpo", "epsilon": 0.2, "max_completion_length": 20},
        {"aggregate": {"constant_length": {"length": 20}}},
    ),
    "gspo": (
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4},
        {"aggregate": "stream_mean", "ratio": "sequence", "clip": {"ppo": {"low": 3e-4, "high": 4e-4}}},
    ),
    "gspo, wide": (
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.2},
        {"aggregate": "stream_mean", "ratio": "sequence"},
    ),
    "luspo": (
        {"loss_type": "luspo", "importance_sampling_level": "sequence", "epsilon": 0.1},
        {
            "aggregate": {"constant_length": {"length": 1}},
            "ratio": "sequence",
            "clip": {"ppo": {"low": 0.1, "high": 0.1}},
        },
    ),
    "cispo": (
        {"loss_type": "cispo", "epsilon_high": 1.5},
        {"aggregate": "token_mean", "clip": {"cispo": {"high": 0.5}}},
    ),
    "two-sided": (
        {"loss_type": "grpo", "epsilon": 0.2, "delta": 1.6},
        {"aggregate": "stream_mean", "clip": {"dual": {"c": 1.6}}},
    ),
}
MODES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "token_truncate": ({"clip_max": 1.2}, {"truncated": {"cap": 1.2}}),
    "sequence_truncate": ({"clip_max": 1.2}, {"truncated": {"cap": 1.2, "level": "sequence"}}),
    "token_mask": (
        {"clip_max": 1.2, "clip_min": 0.8},
        {"masked": {"low": 0.8, "high": 1.2, "level": "token", "weigh": True}},
    ),
    "sequence_mask": (
        {"clip_max": 1.5, "clip_min": 0.5},
        {"masked": {"low": 0.5, "high": 1.5, "by": "product", "weigh": True}},
    ),
}


@pytest.fixture(scope="module")
def make_trl_trainer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a factory of GRPOTrainers with given settings around a tiny model, without downloads."""
    from datasets import Dataset
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    folder = tmp_path_factory.mktemp("trl")
    tokenizer_model = Tokenizer(WordLevel({"<unk>": 0, "<eos>": 1, "hello": 2}, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer_model, eos_token="<eos>", pad_token="<eos>")

    def make(**settings: Any) -> Any:
        config = GRPOConfig(
            output_dir=str(folder), use_cpu=True, bf16=False, report_to=[], per_device_train_batch_size=ROWS,
            num_generations=2, temperature=1.0, use_bias_correction_kl=False, **settings,
        )  # fmt: skip
        trainer = GRPOTrainer(
            model=make_tiny_llama(),
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=config,
            train_dataset=Dataset.from_dict({"prompt": ["hello"] * ROWS}),
            processing_class=tokenizer,
        )
        trainer.current_gradient_accumulation_steps = 1
        return trainer

    return make


class PaddedBatch:
    """Random completions of different lengths, with unlearned tool tokens among them."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.lengths = rng.integers(5, LENGTH + 1, ROWS)
        self.mask = np.arange(LENGTH) < self.lengths[:, None]
        self.own = self.mask & (rng.random((ROWS, LENGTH)) < 0.8)
        self.own[:, 0] = True
        shape = (ROWS, LENGTH)
        self.old = rng.normal(-2, 1, shape)
        self.now = torch.from_numpy(self.old + rng.normal(0, 0.3, shape)).requires_grad_()
        self.reference, self.behaviour = (self.old + rng.normal(0, 0.1, shape) for _ in range(2))
        self.entropy = torch.from_numpy(rng.uniform(0, 3, shape)).requires_grad_()
        self.advantages = rng.normal(0, 1, ROWS)

    def for_trl(self) -> dict[str, Any]:
        """The inputs of TRL's loss."""
        mask = torch.from_numpy(self.mask).double()
        return {
            "prompt_ids": torch.zeros(ROWS, 1, dtype=torch.long),
            "prompt_mask": torch.ones(ROWS, 1, dtype=torch.long),
            "completion_ids": torch.zeros(ROWS, LENGTH, dtype=torch.long),
            "completion_mask": mask,
            "tool_mask": torch.from_numpy(self.own).double(),
            "advantages": torch.from_numpy(self.advantages),
            "old_per_token_logps": torch.from_numpy(self.old),
            "ref_per_token_logps": torch.from_numpy(self.reference),
            "sampling_per_token_logps": torch.from_numpy(self.behaviour),
            "num_items_in_batch": torch.tensor(float(self.own.sum())),
        }

    def for_us(self) -> TokenBatch:
        """All tokens of the completions, the tool's out of the loss."""
        streams = torch.from_numpy(np.nonzero(self.mask)[0])
        flat: dict[str, Any] = {
            name: torch.from_numpy(getattr(self, name)[self.mask]) for name in ("old", "reference", "behaviour")
        }
        return TokenBatch(
            logprobs=self.now[torch.from_numpy(self.mask)],
            entropy=self.entropy[torch.from_numpy(self.mask)],
            advantages=torch.from_numpy(self.advantages)[streams],
            turns=streams,
            streams=streams,
            places=torch.zeros_like(streams),
            learned=torch.from_numpy(self.own[self.mask]),
            clock=Clock(),
            **flat,
        )


def make_rule(aggregate: Any, regularisers: Any = None, **loss: Any) -> LearnSpec:
    return LearnSpec.model_validate(
        dict(loss={"policy_gradient": loss}, aggregate=aggregate, regularisers=regularisers or {})
    )


def compute_objective(tokens: TokenBatch, rule: LearnSpec) -> torch.Tensor:
    """Return the objective of a step of one micro-batch."""
    weights = rule.aggregate(*(column.numpy() for column in (tokens.turns, tokens.streams, tokens.learned)))
    token = rule.loss(tokens)
    total = token.loss + sum(regulariser(tokens, token) for regulariser in rule.regularisers.values())
    return (total * torch.from_numpy(weights)).sum()


def check_equal(trainer: Any, rule: LearnSpec, seed: int, **extra_inputs: Any) -> None:
    """Check that loss and gradients by log-probabilities and entropies agree to 1e-8."""
    padded_batch = PaddedBatch(seed)
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (padded_batch.now, padded_batch.entropy, None)
    theirs = trainer._compute_loss(trainer.model, padded_batch.for_trl() | extra_inputs)
    ours = compute_objective(padded_batch.for_us(), rule)
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-8)
    for variable in (padded_batch.now, padded_batch.entropy):
        gradients = [torch.autograd.grad(v, variable, allow_unused=True, retain_graph=True)[0] for v in (ours, theirs)]
        our_gradient, trl_gradient = (torch.zeros_like(variable) if s is None else s for s in gradients)
        torch.testing.assert_close(our_gradient, trl_gradient, rtol=0, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradient_equal_those_of_trl(make_trl_trainer: Any, kind: str) -> None:
    theirs, ours = KINDS[kind]
    trainer = make_trl_trainer(**theirs)
    for seed in range(20):
        check_equal(trainer, make_rule(**ours), seed)


@pytest.mark.parametrize("kind", ["grpo", "dapo", "gspo, wide"])
def test_kl_and_entropy_equal_those_of_trl(make_trl_trainer: Any, kind: str) -> None:
    """TRL's entropy bonus is always a mean over tokens; ours is weighted like the loss it is added to."""
    theirs, ours = KINDS[kind]
    entropy = {"entropy": {"weight": 0.02}} if kind == "dapo" else {}
    trainer = make_trl_trainer(**theirs, **({"entropy_coef": 0.02} if entropy else {}))
    trainer.beta = 0.3  # set afterwards: as a setting TRL would look for a reference model by name
    for seed in range(5):
        check_equal(trainer, make_rule(**ours, regularisers={"kl": {"weight": 0.3}, **entropy}), seed)


@pytest.mark.parametrize("mode", MODES)
def test_corrections_equal_those_of_trl(make_trl_trainer: Any, mode: str) -> None:
    """TRL forms the ratio of its `mode` before its loss; it is formed here in numpy, by its documented definition."""
    bounds, correction = MODES[mode]
    trainer = make_trl_trainer(loss_type="dapo", vllm_importance_sampling_mode=mode)
    trainer.use_vllm = True  # what the loss asks before it multiplies; no vLLM is needed for that
    weights = []
    for seed in range(10):
        padded_batch = PaddedBatch(seed)
        gap = (padded_batch.old - padded_batch.behaviour) * padded_batch.own
        ratio = np.exp(gap.sum(1, keepdims=True) if mode.startswith("sequence") else gap)
        low, high = bounds.get("clip_min", 0.0), bounds["clip_max"]
        if mode.endswith("truncate"):
            ratio = np.minimum(ratio, high)
        else:
            ratio = np.where((ratio < low) | (ratio > high), 0.0, ratio)
        weights.append(ratio.ravel())
        rule = make_rule(aggregate="token_mean", correction=correction)
        check_equal(trainer, rule, seed, importance_sampling_ratio=torch.from_numpy(ratio))
    assert len(set(np.concatenate(weights).round(6))) > 3, "weights differ"


# -- from token ids ----------------------------------------------------------------------------------------


def make_dialogues(seed: int) -> list[Stream]:
    """Return streams with prompts of equal length and several turns with observations in between."""
    rng = np.random.default_rng(seed)
    streams = []
    for _ in range(ROWS):
        stream = Stream()
        stream.observe(rng.integers(0, VOCABULARY, 3).tolist())
        for turn in range(rng.integers(1, 4)):
            if turn:
                stream.observe(rng.integers(0, VOCABULARY, rng.integers(1, 4)).tolist())
            ids = rng.integers(0, VOCABULARY, rng.integers(1, 5)).tolist()
            stream.append_sampled(ids, rng.normal(-3, 0.1, len(ids)).tolist(), turn)
        streams.append(stream)
    return streams


def pad_rows(rows: list[list[Any]]) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [type(row[0])(0)] * (width - len(row)) for row in rows])


def compute_our_gradients(streams: list[Stream], old: list[np.ndarray], advantages: np.ndarray, rule: LearnSpec) -> Any:
    """Return loss and parameter gradients of our scorer: shared prefixes, packed rows, flat tokens."""
    model = make_tiny_llama()
    samples = [
        Sample(
            stream=s, advantages=np.full(s.sampled_count, a, np.float32), behaviour=o, temperature=1.0,
            places=np.zeros(s.sampled_count, np.int64), learned=np.ones(s.sampled_count, bool),
        )
        for s, o, a in zip(streams, old, advantages, strict=True)
    ]  # fmt: skip
    scorer = StreamScorer(model)
    batches = list(pack(streams, [1.0] * ROWS, 10**6))
    weights = rule.aggregate(
        np.repeat(np.arange(ROWS), [s.sampled_count for s in streams]),
        np.repeat(np.arange(ROWS), [s.sampled_count for s in streams]),
        np.ones(sum(s.sampled_count for s in streams), bool),
    )
    shares = np.split(weights, np.cumsum([s.sampled_count for s in streams])[:-1])
    total = torch.zeros(())
    for packed in batches:
        tokens = make_token_batch(packed, scorer(packed), samples, old, Clock(), {})
        weight = torch.from_numpy(np.concatenate([shares[i] for i in packed.index])).float()
        total = total + (rule.loss(tokens).loss * weight).sum()
    total.backward()
    return total.item(), {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("kind", ["grpo", "dapo", "dr_grpo", "gspo, wide", "cispo"])
def test_weight_gradients_equal_those_of_trl(make_trl_trainer: Any, kind: str) -> None:
    """Multi-turn streams through both forwards: TRL's padded rows with a tool mask, and ours."""
    theirs, ours = KINDS[kind]
    trainer = make_trl_trainer(**theirs)
    for seed in range(3):
        streams, rng = make_dialogues(seed), np.random.default_rng(seed)
        sampled = [[float(m) for m in s.mask[3:]] for s in streams]
        advantages = rng.normal(0, 1, ROWS).astype(np.float32)
        old = [np.array([p for p, m in zip(s.logprobs, s.mask, strict=True) if m], np.float32) for s in streams]
        mask = pad_rows([[1.0] * (len(s) - 3) for s in streams])
        inputs = {
            "prompt_ids": torch.tensor([s.ids[:3] for s in streams]),
            "prompt_mask": torch.ones(ROWS, 3, dtype=torch.long),
            "completion_ids": pad_rows([s.ids[3:] for s in streams]),
            "completion_mask": mask.long(),
            "tool_mask": pad_rows(sampled).long(),
            "advantages": torch.from_numpy(advantages),
            "old_per_token_logps": pad_rows([s.logprobs[3:] for s in streams]),
            "num_items_in_batch": torch.tensor(float(sum(s.sampled_count for s in streams))),
        }
        trainer.model.zero_grad()
        trainer.model.eval()
        loss = trainer._compute_loss(trainer.model, inputs)
        loss.backward()
        our_loss, gradients = compute_our_gradients(streams, old, advantages, make_rule(**ours))
        assert our_loss == pytest.approx(loss.item(), abs=1e-5)
        expected = {name: p.grad for name, p in trainer.model.named_parameters()}
        assert expected.keys() == gradients.keys()
        for name, value in expected.items():
            torch.testing.assert_close(gradients[name], value, atol=1e-5, rtol=1e-5)
        assert max(g.abs().max() for g in gradients.values()) > 1e-2
