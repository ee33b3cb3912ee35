"""One trainable policy's learning: its weights, its optimiser, and the update from credited streams."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from agents.model_folder import quietly
from agents.scoring import StreamBatch, StreamScorer, pack, score_streams
from agents.stream import Stream
from arena.learn.distributed import deepspeed
from arena.learn.losses import LOSSES, kl_k3


class GateError(Exception):
    """Sampler and trainer disagree on the same tokens; the message has the numbers."""


@dataclass(frozen=True)
class Sample:
    """A stream to learn from; arrays are float32 with one entry per sampled token."""

    stream: Stream
    advantages: np.ndarray
    behaviour: np.ndarray
    """Log-probabilities at sampling time."""
    temperature: float
    reference: np.ndarray | None = None
    """Log-probabilities under the frozen reference, when a KL to it is asked for."""

    def with_reference(self, logprobs: np.ndarray) -> "Sample":
        """The same sample with the reference's view of it."""
        return replace(self, reference=logprobs)


@dataclass(frozen=True)
class LearnRule:
    """How an update is made. Everything an experiment may set about learning."""

    loss: str = "ppo_clip"
    lr: float = 1e-5
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    warmup_steps: int = 0
    epochs: int = 1
    minibatches: int = 1
    token_budget: int = 2048
    clip_low: float = 0.2
    clip_high: float = 0.2
    kl: float = 0.0
    entropy: float = 0.0
    grad_clip: float = 1.0
    zero_stage: int = 0
    bf16: bool = False
    gate_tolerance: float = 0.05

    @property
    def steps(self) -> int:
        """Optimiser steps per update."""
        return self.epochs * self.minibatches


class PolicyTrainer:
    """DeepSpeed around one policy. The model's parameters are the ones the in-process engine serves."""

    def __init__(self, name: str, model: torch.nn.Module, rule: LearnRule) -> None:
        self.name, self.rule = name, rule
        self.model: Any = model
        self.steps = 0
        """Optimiser steps taken in the life of this policy."""
        self.scorer = StreamScorer(model, rule.bf16)
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=rule.lr, betas=rule.betas, weight_decay=rule.weight_decay, fused=True
        )
        self.engine, *_ = deepspeed().initialize(
            model=self.scorer, optimizer=optimizer, config=_deepspeed_config(rule), dist_init_required=False
        )
        self.device = self.engine.device
        if rule.zero_stage:
            self._make_moments()

    def score(self, streams: Sequence[Stream], temperatures: Sequence[float]) -> list[np.ndarray]:
        """Log-probabilities of the sampled tokens under the current weights, without gradient."""
        return score_streams(self.engine, streams, temperatures, self.rule.token_budget)

    def update(self, samples: Sequence[Sample], rng: np.random.Generator) -> dict[str, float]:
        """Learn from samples: `rule.steps` optimiser steps. Returns what happened, as means over tokens.

        Raises GateError, before any weight has changed, if the samples' behaviour log-probabilities are not
        those of the current weights.
        """
        watch = _Watch()
        old: list[np.ndarray] | None = None
        if self.rule.steps > 1:  # with a single step the first forward of the update is the old policy's
            old = self.score([s.stream for s in samples], [s.temperature for s in samples])
            self._gate(np.concatenate([o - s.behaviour for o, s in zip(old, samples, strict=True)]))
        self.engine.train()
        for _ in range(self.rule.epochs):
            order = rng.permutation(len(samples))
            for part in np.array_split(order, self.rule.minibatches):
                self._step(samples, old, part.tolist(), watch, gated=old is None)
        self.engine.eval()
        return watch.means()

    def imitate(
        self, samples: Sequence[Sample], lr: float, epochs: int, minibatches: int, rng: np.random.Generator
    ) -> None:
        """Learn to write what the samples hold, by maximum likelihood; the optimiser starts afresh afterwards."""
        rule, self.rule = (
            self.rule,
            replace(
                self.rule, loss="nll", lr=lr, epochs=epochs, minibatches=minibatches, warmup_steps=_IMITATION_WARMUP
            ),
        )
        self.engine.train()
        for _ in range(epochs):
            for part in np.array_split(rng.permutation(len(samples)), minibatches):
                self._step(samples, None, part.tolist(), _Watch(), gated=False)  # brains have no probabilities
        self.engine.eval()
        self.rule, self.steps = rule, 0
        self._forget_moments()

    def _step(
        self, samples: Sequence[Sample], old: list[np.ndarray] | None, part: list[int], watch: "_Watch", *, gated: bool
    ) -> None:
        """One optimiser step on some of the samples, in micro-batches of at most the token budget."""
        streams = [s.stream for s in samples]
        temperatures = [s.temperature for s in samples]
        total = sum(len(samples[i].advantages) for i in part)
        if not total:
            return
        gaps = []
        for batch in pack(streams, temperatures, self.rule.token_budget, part):
            scores = self.engine(batch.to(self.device))
            now = scores.logprobs.detach()
            behaviour = self._gather(batch, [s.behaviour for s in samples])
            before = now if old is None else self._gather(batch, old)
            gaps.append((now - behaviour).cpu().numpy())
            advantages = self._gather(batch, [s.advantages for s in samples])
            token = LOSSES[self.rule.loss](scores.logprobs, before, advantages, self.rule.clip_low, self.rule.clip_high)
            objective = token.loss - self.rule.entropy * scores.entropy
            if samples[part[0]].reference is not None:
                reference = self._gather(batch, [s.reference for s in samples])
                divergence = kl_k3(scores.logprobs, reference)
                objective = objective + self.rule.kl * divergence
                watch.add("kl", divergence)
            self.engine.backward(objective.sum() / total)
            watch.add("loss", objective)
            watch.add("entropy", scores.entropy)
            watch.add("clipped", token.clipped.float())
            watch.add("advantage_size", advantages.abs())
        if gated:
            self._gate(np.concatenate(gaps))
        watch.gap(np.concatenate(gaps))
        self._set_lr()
        self.engine.step()
        self.steps += 1
        watch.norm(self.engine.get_global_grad_norm())

    def _gather(self, batch: StreamBatch, arrays: Sequence[np.ndarray | None]) -> torch.Tensor:
        """Per-token values of the batch's streams, [N] float32, in the order of its sampled tokens."""
        chosen = [arrays[i] for i in batch.index]
        return torch.from_numpy(np.concatenate(chosen)).float().to(self.device)  # type: ignore[arg-type]

    def _gate(self, gaps: np.ndarray) -> None:
        size = np.abs(gaps)
        if not size.mean() <= self.rule.gate_tolerance:  # also stops at NaN
            raise GateError(
                f"policy '{self.name}': the sampler's and the trainer's log-probabilities differ by "
                f"{size.mean():.4g} on average ({size.max():.4g} at most) over {len(size)} tokens; "
                f"learn.gate_tolerance is {self.rule.gate_tolerance:g}"
            )

    def _set_lr(self) -> None:
        warm = min(1.0, (self.steps + 1) / (self.rule.warmup_steps + 1))
        for group in self.engine.optimizer.param_groups:
            group["lr"] = self.rule.lr * warm

    def _gathered(self) -> Any:
        """Context in which every parameter is whole, also under ZeRO-3."""
        return deepspeed().zero.GatheredParameters(list(self.model.parameters()), enabled=self.rule.zero_stage == 3)

    def save(self, folder: Path) -> None:
        """Write weights in the Hugging Face layout and the optimiser's state by parameter name."""
        self.save_weights(folder)
        state = {}
        for name, parameter in self.model.named_parameters():
            for key in _MOMENTS:
                state[f"{name}.{key}"] = self._moment(parameter, key)
        state = {name: value.detach().cpu().contiguous() for name, value in state.items() if value is not None}
        save_file(state, folder / "optimizer.safetensors", metadata={"steps": str(self.steps)})

    def save_weights(self, folder: Path) -> None:
        """Write weights alone, in the Hugging Face layout."""
        with self._gathered(), quietly():
            self.model.save_pretrained(folder)

    def load_optimizer(self, folder: Path, steps: int) -> None:
        """Take up the optimiser's state again; the weights come with the model given to the constructor."""
        state = load_file(folder / "optimizer.safetensors")
        self.steps = steps
        for name, parameter in self.model.named_parameters():
            for key in _MOMENTS:
                if (value := state.get(f"{name}.{key}")) is not None:
                    self._set_moment(parameter, key, value.to(self.device))

    def _moment(self, parameter: torch.nn.Parameter, key: str) -> torch.Tensor | None:
        if self.rule.zero_stage == 0:
            return self.engine.optimizer.state.get(parameter, {}).get(key)  # type: ignore[no-any-return]
        from deepspeed.utils import safe_get_full_optimizer_state

        return safe_get_full_optimizer_state(parameter, key)  # type: ignore[no-any-return]

    def _set_moment(self, parameter: torch.nn.Parameter, key: str, value: torch.Tensor) -> None:
        if self.rule.zero_stage == 0:
            slot = self.engine.optimizer.state[parameter]
            slot[key] = value
            slot["step"] = torch.tensor(float(self.steps))
            return
        from deepspeed.utils import safe_set_full_optimizer_state

        safe_set_full_optimizer_state(parameter, value, key)
        for slot in self.engine.optimizer.optimizer.state.values():
            slot["step"] = torch.tensor(float(self.steps))

    def _make_moments(self) -> None:
        """ZeRO makes the moments at its first step: too late to be loaded, or saved, before it."""
        zero = self.engine.optimizer
        whole = [part for group in zero.optimizer.param_groups for part in group["params"]]
        for part in zero.fp32_partitioned_groups_flat if self.rule.zero_stage == 3 else whole:
            moments = {key: torch.zeros_like(part) for key in _MOMENTS}
            zero.optimizer.state[part] = {"step": torch.tensor(0.0), **moments}
        if self.rule.zero_stage < 3:
            zero._lazy_init_hp_params_optimizer_state()

    def _forget_moments(self) -> None:
        for parameter in self.model.parameters():
            for key in _MOMENTS:
                if (moment := self._moment(parameter, key)) is not None:
                    self._set_moment(parameter, key, torch.zeros_like(moment))


_MOMENTS = ("exp_avg", "exp_avg_sq")
_IMITATION_WARMUP = 10


class _Watch:
    """Means over tokens of what an update did."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.counts: dict[str, int] = {}

    def add(self, name: str, values: torch.Tensor) -> None:
        self.sums[name] = self.sums.get(name, 0.0) + float(values.detach().sum())
        self.counts[name] = self.counts.get(name, 0) + values.numel()

    def norm(self, value: Any) -> None:
        if value is not None:
            self.sums["grad_norm"] = self.sums.get("grad_norm", 0.0) + float(value)
            self.counts["grad_norm"] = self.counts.get("grad_norm", 0) + 1

    def gap(self, gaps: np.ndarray) -> None:
        if "logprob_gap" not in self.sums:  # later steps differ from the sampler because they learned
            self.sums["logprob_gap"], self.counts["logprob_gap"] = float(np.abs(gaps).sum()), len(gaps)

    def means(self) -> dict[str, float]:
        return {name: self.sums[name] / max(1, self.counts[name]) for name in self.sums}


def _deepspeed_config(rule: LearnRule) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "managed_gradient_accumulation": False,
        "gradient_clipping": rule.grad_clip,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {"stage": rule.zero_stage, "overlap_comm": False},
        "steps_per_print": 10**9,
        "wall_clock_breakdown": False,
    }
