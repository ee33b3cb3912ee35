"""Bare transformers training step, as a baseline for Arena's."""

from collections.abc import Sequence

import torch

from arena.config.experiment import LearnSpec
from arena.learn.samples import Sample


class BareTraining:
    """Textbook training step: padded batches, all logits, log-softmax, PPO-clip, backward, gradient clipping, AdamW.

    Micro-batches are right-padded. Log-probabilities are float32. With a reference, the k3 KL to it is added. There are
    no shared prefixes, no DeepSpeed, no statistics and no gate. The learning rate is 0, so that all rounds have the
    same weights.
    """

    def __init__(
        self, model: torch.nn.Module, rule: LearnSpec, bf16: bool, reference: torch.nn.Module | None = None
    ) -> None:
        self.model, self.rule, self.bf16, self.reference = model, rule, bf16, reference
        for each in (model, reference):
            if each is not None:
                each.set_attn_implementation("sdpa")  # type: ignore[operator]  # instead of Arena's attention
        self.clip = rule.loss.with_defaults().settings["clip"].with_defaults().settings
        self.device = next(model.parameters()).device
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=0.0, betas=rule.betas, weight_decay=rule.weight_decay, fused=True
        )

    @staticmethod
    def fill(samples: Sequence[Sample], token_budget: int) -> list[list[int]]:
        """Split the samples, sorted by length, into micro-batches of at most `token_budget` padded ids, or one stream.

        Returns the samples' indices.
        """
        batches: list[list[int]] = [[]]
        for i in sorted(range(len(samples)), key=lambda i: len(samples[i].stream.ids)):
            if batches[-1] and len(samples[i].stream.ids) * (len(batches[-1]) + 1) > token_budget:
                batches.append([])
            batches[-1].append(i)
        return batches

    def step(self, samples: Sequence[Sample], micro_batches: Sequence[Sequence[int]]) -> None:
        """Take one optimiser step on all samples. `micro_batches` are lists of their indices."""
        total = sum(len(sample.advantages) for sample in samples)
        self.model.train()
        for index in micro_batches:
            (self._loss([samples[i] for i in index]) / total).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.rule.grad_clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.model.eval()

    def _loss(self, samples: Sequence[Sample]) -> torch.Tensor:
        """Return the clipped surrogate loss, summed over the sampled tokens."""
        width = max(len(sample.stream.ids) for sample in samples)
        ids = torch.zeros((len(samples), width), dtype=torch.long)
        attended, sampled = torch.zeros_like(ids), torch.zeros_like(ids, dtype=torch.bool)
        for i, sample in enumerate(samples):
            length = len(sample.stream.ids)
            ids[i, :length], attended[i, :length] = torch.tensor(sample.stream.ids), 1
            sampled[i, :length] = torch.tensor(sample.stream.mask)
        ids, attended, sampled = ids.to(self.device), attended.to(self.device), sampled[:, 1:].to(self.device)
        advantages = torch.cat([torch.from_numpy(sample.advantages) for sample in samples]).to(self.device)
        reference = None
        if self.reference is not None:
            with torch.no_grad():
                reference = self._logprobs(self.reference, ids, attended)[sampled]
        logprobs = self._logprobs(self.model, ids, attended)[sampled]
        ratio = (logprobs - logprobs.detach()).exp()
        clipped = ratio.clamp(1 - self.clip["low"], 1 + self.clip["high"])
        loss = torch.maximum(-advantages * ratio, -advantages * clipped)
        if reference is not None:
            loss = loss + 0.01 * ((reference - logprobs).exp() + logprobs - reference - 1.0)
        return loss.sum()

    def _logprobs(self, model: torch.nn.Module, ids: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """Return the log-probabilities of all tokens but the first, float32 [B, L - 1]."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            logits = model(input_ids=ids, attention_mask=attended, use_cache=False).logits[:, :-1]
        return torch.log_softmax(logits.float(), -1).gather(-1, ids[:, 1:, None]).squeeze(-1)
