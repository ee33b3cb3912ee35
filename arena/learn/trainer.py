"""One trainable policy's learning: its weights, its optimiser, and the update from credited streams."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from agents.policy import trainable
from agents.scoring import StreamScorer, StreamScores, pack, scan_streams, split_rows, start_cost
from agents.stream import Stream
from arena.config.experiment import ImitateSpec, LearnSpec
from arena.config.schedules import Clock
from arena.errors import GateError
from arena.learn.batches import Sample, token_batch
from arena.learn.distributed import deepspeed
from arena.learn.divergence import require_finite, step_counts
from arena.learn.moments import Moments
from arena.learn.pairs import in_pairs, rival_changes, together
from arena.learn.watch import Watch
from arena.process import give_back

Item = TypeVar("Item")


class PolicyTrainer:
    """DeepSpeed around one policy. The model's parameters are the ones the in-process engine serves."""

    def __init__(self, name: str, model: torch.nn.Module, rule: LearnSpec, bf16: bool = False) -> None:
        self.name, self.rule, self._clock = name, rule, Clock()
        self.tolerance = rule.gate_tolerance or (0.05 if bf16 else 1e-4)
        """The gate's, as a mean over tokens."""
        self.model: Any = model
        self.masters = any(parameter.dtype == torch.bfloat16 for parameter in trainable(model).values())
        """Whether the weights are bfloat16, and the optimiser holds float32 masters of them."""
        self.steps = 0
        """Optimiser steps taken in the life of this policy."""
        self.scorer = StreamScorer(model, bf16, rule.gradient_checkpointing)
        self._start = start_cost(model)
        self._norm = 0.0
        """Of the last step's gradient, before clipping, without ZeRO."""
        self.memory: dict[str, Any] = {}
        """What regularisers remember from iteration to iteration, as JSON."""

    @cached_property
    def _made(self) -> tuple[Any, Moments]:
        """DeepSpeed's engine and its optimiser's state, made when learning first asks: play waits for neither."""
        rule = self.rule
        optimizer = torch.optim.AdamW(
            list(trainable(self.model).values()),
            lr=rule.lr,
            betas=rule.betas,
            weight_decay=rule.weight_decay,
            fused=True,
        )
        if rule.zero_stage == 0:
            optimizer.register_step_pre_hook(self._clip)
        engine, *_ = deepspeed().initialize(
            model=self.scorer,
            optimizer=optimizer,
            config=_deepspeed_config(rule, self.masters),
            dist_init_required=False,
        )
        if rule.zero_stage == 0 and engine.world_size == 1:
            engine.enable_backward_allreduce = False  # alone, it would copy all gradients twice for nothing
        return engine, Moments(engine, self.model, rule.zero_stage)

    @property
    def engine(self) -> Any:
        """DeepSpeed around the model."""
        return self._made[0]

    @property
    def moments(self) -> Moments:
        """The optimiser's state."""
        return self._made[1]

    @property
    def device(self) -> Any:
        """Where the model learns."""
        return self.engine.device

    def look(self, streams: Sequence[Stream], temperatures: Sequence[float]) -> list[StreamScores]:
        """Log-probabilities and entropies of the sampled tokens under the current weights, without gradient."""
        return scan_streams(self.engine, streams, temperatures, self.rule.token_budget)

    def update(self, samples: Sequence[Sample], rng: np.random.Generator, clock: Clock = Clock()) -> dict[str, float]:
        """Learn from samples: `rule.steps` optimiser steps. Returns what happened, as means over tokens.

        Raises GateError, before any weight has changed, if the samples' behaviour log-probabilities are not
        those of the current weights.

        To the loss of what was played, every step adds `rule.shown.weight` times the mean of -log p over its part of
        what is shown. Gate, ratio and regularisers have nothing to do with that: nobody sampled it with a probability.
        """
        watch, self._clock = Watch(), clock
        place = f"policy '{self.name}', iteration {clock.iteration}"
        weight = self.rule.shown.weight(clock) if self.rule.shown else 0.0
        shown = [s for s in samples if s.source == "shown" and weight]
        samples = [s for s in samples if s.source != "shown"]
        units = [[i] for i in range(len(samples))]
        if self._pairs:
            samples = in_pairs(samples)
            units = together(samples)
        old: list[np.ndarray] | None = None
        if self.rule.steps > 1:  # with a single step the first forward of the update is the old policy's
            old = [s.logprobs for s in self.look([s.stream for s in samples], [s.temperature for s in samples])]
            self._gate([o - s.behaviour for o, s in zip(old, samples, strict=True) if s.source == "played"])
        self.engine.train()
        for epoch in range(self.rule.epochs):
            parts, lessons = _parts(units, self.rule.minibatches, rng), _parts(shown, self.rule.minibatches, rng)
            for number, (part, lesson) in enumerate(zip(parts, lessons, strict=True), 1):
                which = [i for unit in part for i in unit]
                where = f"{place}, epoch {epoch + 1}, minibatch {number}"
                self._step(samples, old, which, watch, where, lesson, weight, gated=old is None)
        self.engine.eval()
        self._require_finite([*samples, *shown], place, f"lower learn.lr ({self.rule.lr:g})")
        return watch.means()

    def imitate(
        self,
        samples: Sequence[Sample],
        spec: ImitateSpec,
        rng: np.random.Generator,
        stepped: Callable[[], None] = lambda: None,
    ) -> int:
        """Learn to write what the samples hold, by maximum likelihood; the optimiser starts afresh afterwards.

        `stepped` hears of every optimiser step that was due. Returns how many were left out (`rule.nonfinite`).
        """
        total, steps, watch = spec.epochs * spec.minibatches, 0, Watch()
        place, advice = f"policy '{self.name}', imitation", f"lower policies.{self.name}.imitate.lr ({spec.lr:g})"
        self.engine.train()
        for epoch in range(spec.epochs):
            for number, part in enumerate(_parts(samples, spec.minibatches, rng), 1):
                if part:
                    self._backward_shown(part, 1.0, watch)
                    decay = 1.0 - steps / total if spec.decay else 1.0
                    lr = spec.lr * decay * warmth(steps, _IMITATION_WARMUP)
                    self._optimise(lr, watch, f"{place}, epoch {epoch + 1}, minibatch {number}", advice)
                    steps += 1
                stepped()
        self.engine.eval()
        self._require_finite(samples, place, advice)
        self.moments.forget()
        return watch.skipped

    def _step(
        self,
        samples: Sequence[Sample],
        old: list[np.ndarray] | None,
        part: list[int],
        watch: Watch,
        where: str,
        shown: Sequence[Sample] = (),
        weight: float = 0.0,
        *,
        gated: bool,
    ) -> None:
        """One optimiser step on some of the samples, and on what is shown beside them."""
        weights = self._weights(samples, part)
        learned = any(w.any() for w in weights.values())
        if not learned and not shown:
            return
        gaps = self._backward(samples, old, part, weights, watch) if learned else []
        self._backward_shown(shown, weight, watch)
        if gated:
            self._gate(gaps)
        watch.gap(gaps)
        lr = self.rule.lr * warmth(self.steps, self.rule.warmup_steps)
        self.steps += self._optimise(lr, watch, where, f"lower learn.lr ({self.rule.lr:g}) or learn.grad_clip")

    def _backward(
        self,
        samples: Sequence[Sample],
        old: list[np.ndarray] | None,
        part: list[int],
        weights: Mapping[int, np.ndarray],
        watch: Watch,
    ) -> list[np.ndarray]:
        """Add the gradient of some of the samples' loss, in micro-batches of at most the token budget.

        Returns how far the sampler's log-probabilities are from the present ones.
        """
        gaps = []
        streams, temperatures = [s.stream for s in samples], [s.temperature for s in samples]
        rivals = self._rivals(samples, old, part) if self._pairs else None
        for batch in pack(streams, temperatures, self.rule.token_budget, part, self._start):
            scores = self.engine(batch.to(self.device))
            tokens = token_batch(batch, scores, samples, old, self._clock, self.memory, rivals)
            gaps += [
                g for i, g in split_rows(batch, tokens.logprobs - tokens.behaviour) if samples[i].source == "played"
            ]
            weight = torch.from_numpy(np.concatenate([weights[i] for i in batch.index])).float().to(self.device)
            token = self.rule.loss(tokens)
            objective = token.loss
            for name, regulariser in self.rule.regularisers.items():
                if "reference" not in regulariser.needs or tokens.reference is not None:
                    term = regulariser(tokens, token)
                    objective = objective + term
                    watch.add(f"{name}_term", term[tokens.learned])
            self.engine.backward((objective * weight).sum())
            if self.rule.gradient_checkpointing:
                give_back()
            watch.step(tokens, objective, token)
        return gaps

    def _backward_shown(self, shown: Sequence[Sample], weight: float, watch: Watch) -> None:
        """Add the gradient of `weight` times the mean of -log p over what is shown."""
        count = sum(int(s.learned.sum()) for s in shown)
        streams, temperatures = [s.stream for s in shown], [s.temperature for s in shown]
        for batch in pack(streams, temperatures, self.rule.token_budget, start=self._start):
            scores = self.engine(batch.to(self.device))
            learned = np.concatenate([shown[i].learned for i in batch.index])
            loss = -scores.logprobs[torch.from_numpy(learned).to(self.device)]
            self.engine.backward(loss.sum() * (weight / count))
            watch.add("shown_loss", loss)

    @property
    def _pairs(self) -> bool:
        """Whether the loss looks at pairs of answers."""
        return "pairs" in self.rule.loss.needs

    def _rivals(
        self, samples: Sequence[Sample], old: list[np.ndarray] | None, part: list[int]
    ) -> dict[int, np.ndarray]:
        """By sample, what has become of the other answer of each token's pair: at the weights that take the step."""
        chosen = [samples[i] for i in part]
        changes = [np.zeros(len(s.advantages), np.float32) for s in chosen]
        if old is not None:  # else this is the first step of the update, and nothing has changed yet
            now = self.look([s.stream for s in chosen], [s.temperature for s in chosen])
            changes = [n.logprobs - old[i] for n, i in zip(now, part, strict=True)]
        return dict(zip(part, rival_changes(chosen, changes), strict=True))

    def _weights(self, samples: Sequence[Sample], part: Sequence[int]) -> dict[int, np.ndarray]:
        """What each token of the step weighs in its loss, by sample."""
        chosen = [samples[i] for i in part]
        sizes = [len(s.advantages) for s in chosen]
        if not sum(sizes):
            return {}
        streams = np.repeat(np.arange(len(chosen)), sizes)
        turns = np.unique(np.stack([streams, np.concatenate([s.turns for s in chosen])]), axis=1, return_inverse=True)
        learned = np.concatenate([s.learned for s in chosen])
        weights = self.rule.aggregate(turns[1].reshape(-1), streams, learned)
        return dict(zip(part, np.split(weights, np.cumsum(sizes)[:-1]), strict=True))

    def _gate(self, gaps: Sequence[np.ndarray]) -> None:
        size = np.abs(np.concatenate(gaps)) if gaps else np.zeros(1)
        if not size.mean() <= self.tolerance:  # also stops at NaN
            raise GateError(
                f"policy '{self.name}': the sampler's and the trainer's log-probabilities differ by "
                f"{size.mean():.4g} on average ({size.max():.4g} at most) over {len(size)} tokens; "
                f"learn.gate_tolerance is {self.tolerance:g}"
            )

    def _optimise(self, lr: float, watch: Watch, where: str, advice: str) -> bool:
        """One step of the optimiser; whether it was taken. DivergedError, with where and advice, stops the run."""
        for group in self.engine.optimizer.param_groups:
            group["lr"] = lr
        self.engine.step()  # ZeRO leaves a step out whose gradient is not finite, as `_clip` does
        norm = float(self._norm if self.rule.zero_stage == 0 else self.engine.get_global_grad_norm())
        taken = step_counts(norm, self.rule.nonfinite, where, advice)
        watch.optimised(norm, taken)
        return taken

    def _clip(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Before AdamW's own step: DeepSpeed's clipping, whose norm DeepSpeed itself forgets without ZeRO.

        Parameters without a gradient stay as they are, and so do their moments.
        """
        from deepspeed.runtime.utils import clip_grad_norm_

        self._norm = float(clip_grad_norm_(self.scorer.parameters(), self.rule.grad_clip or math.inf))
        if not math.isfinite(self._norm):
            optimizer.zero_grad(set_to_none=True)

    def _require_finite(self, samples: Sequence[Sample], where: str, advice: str) -> None:
        """DivergedError unless the weights are finite, and what they say of the shortest of the samples' streams."""
        with self.gathered():
            require_finite(trainable(self.model).values(), where, "the weights are not finite", advice)
        if not samples:
            return
        shortest = min(samples, key=lambda s: len(s.stream.ids))
        scores = self.look([shortest.stream], [shortest.temperature])
        said = [torch.from_numpy(s.logprobs) for s in scores]
        require_finite(said, where, "log-probabilities under the new weights are not finite", advice)

    def gathered(self) -> Any:
        """Context in which every parameter is whole, also under ZeRO-3."""
        if self.rule.zero_stage < 3:
            return nullcontext()
        return deepspeed().zero.GatheredParameters(list(self.model.parameters()))

    def save(self, folder: Path) -> None:
        """Write the optimiser's state by parameter name."""
        save_file(self.moments.state(), folder / "optimizer.safetensors", metadata={"steps": str(self.steps)})

    def load_optimizer(self, folder: Path, steps: int) -> None:
        """Take up the optimiser's state again; the weights come with the model given to the constructor."""
        self.steps = steps
        self.moments.load(load_file(folder / "optimizer.safetensors"), steps)


_IMITATION_WARMUP = 10


def warmth(steps: int, warmup: int) -> float:
    """The share of the learning rate that the step after so many takes: it grows in a straight line over `warmup`."""
    return min(1.0, (steps + 1) / (warmup + 1))


def _parts(items: Sequence[Item], count: int, rng: np.random.Generator) -> list[list[Item]]:
    """All items in a random order, cut into so many parts."""
    return [[items[i] for i in part] for part in np.array_split(rng.permutation(len(items)), count)]


def _deepspeed_config(rule: LearnSpec, masters: bool) -> dict[str, Any]:
    offload, precision = {}, {}
    if rule.offload_optimizer:
        offload = {"offload_optimizer": {"device": "cpu", "pin_memory": torch.cuda.is_available()}}
    if masters:  # gradients of micro-batches are summed in float32 all the same
        precision = {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}
    return {
        **precision,
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "managed_gradient_accumulation": False,
        "gradient_clipping": rule.grad_clip if rule.zero_stage else 0.0,  # without ZeRO: `PolicyTrainer._clip`
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {"stage": rule.zero_stage, "overlap_comm": False, **offload},
        "steps_per_print": 10**9,
        "wall_clock_breakdown": False,
    }
