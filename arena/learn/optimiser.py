"""DeepSpeed around one policy's model: gradient sums, clipping and AdamW under any ZeRO stage."""

import math
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from agents.policy import trainable_parameters
from agents.scoring import StreamScorer
from arena.learn.distributed import get_deepspeed
from arena.learn.moments import Moments
from arena.learn.settings import UpdateSpec


class Optimiser:
    """AdamW on the trainable parameters of a policy's model, inside a DeepSpeed engine.

    `engine` scores batches and backpropagates losses, `step` updates the weights, and `moments` holds the state.
    """

    def __init__(self, scorer: StreamScorer, rule: UpdateSpec) -> None:
        self.scorer, self.rule, self._norm = scorer, rule, 0.0
        optimizer = torch.optim.AdamW(
            list(trainable_parameters(scorer.model).values()),
            lr=rule.lr,
            betas=rule.betas,
            weight_decay=rule.weight_decay,
            fused=True,
        )
        if rule.zero_stage == 0:
            optimizer.register_step_pre_hook(self._clip)
        self.engine: Any
        """DeepSpeed's engine: a call scores a `StreamBatch`, `backward` adds a loss's gradient."""
        self.engine, *_ = get_deepspeed().initialize(
            model=scorer,
            optimizer=optimizer,
            config=_make_deepspeed_config(rule, has_masters(scorer)),
            dist_init_required=False,
        )
        if rule.zero_stage == 0 and self.engine.world_size == 1:
            self.engine.enable_backward_allreduce = False  # with one rank it would only copy all gradients twice
        self.moments = Moments(self.engine, scorer.model, rule.zero_stage)

    def step(self, lr: float) -> float:
        """Take one step unless the gradient is not finite; clear the gradient and return its norm before clipping."""
        for group in self.engine.optimizer.param_groups:
            group["lr"] = lr
        self.engine.step()  # ZeRO skips a step with a non-finite gradient, as `_clip` does
        return float(self._norm if self.rule.zero_stage == 0 else self.engine.get_global_grad_norm())

    def _clip(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Clip gradients before AdamW's step, and clear them if their norm is not finite. Used without ZeRO.

        DeepSpeed does not report the norm without ZeRO. Parameters without a gradient and their moments stay unchanged.
        """
        from deepspeed.runtime.utils import clip_grad_norm_

        self._norm = float(clip_grad_norm_(self.scorer.parameters(), self.rule.grad_clip or math.inf))
        if not math.isfinite(self._norm):
            optimizer.zero_grad(set_to_none=True)


def has_masters(scorer: StreamScorer) -> bool:
    """Return True if some trained weights are bfloat16, so that the optimiser holds float32 master copies."""
    return any(parameter.dtype == torch.bfloat16 for parameter in trainable_parameters(scorer.model).values())


def gather_parameters(parameters: Iterable[torch.nn.Parameter], zero_stage: int) -> AbstractContextManager[Any]:
    """Return a context in which these parameters are complete, also under ZeRO-3; all ranks must enter it together."""
    if zero_stage < 3:
        return nullcontext()
    context: AbstractContextManager[Any] = get_deepspeed().zero.GatheredParameters(list(parameters))
    return context


def _make_deepspeed_config(rule: UpdateSpec, has_masters: bool) -> dict[str, Any]:
    offload, precision = {}, {}
    if rule.offload_optimizer:
        offload = {"offload_optimizer": {"device": "cpu", "pin_memory": torch.cuda.is_available()}}
    if has_masters:  # sum the gradients of micro-batches in float32
        precision = {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}
    return {
        **precision,
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "managed_gradient_accumulation": False,
        "gradient_clipping": rule.grad_clip if rule.zero_stage else 0.0,  # without ZeRO: `Optimiser._clip`
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {"stage": rule.zero_stage, "overlap_comm": False, **offload},
        "steps_per_print": 10**9,
        "wall_clock_breakdown": False,
    }
