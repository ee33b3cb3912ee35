"""A scalar head on a language model's body, which gives a number per selected token, and its optimiser."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from agents.costs import costs
from agents.scoring import StreamBatch, pack, predictors, split_rows
from arena.learn.divergence import require_finite, step_counts
from arena.learn.moments import MOMENTS

if TYPE_CHECKING:
    from agents.packing import Costs
    from agents.stream import Stream
    from arena.learn.divergence import Nonfinite

Floats = NDArray[np.float32]


class ScalarHead(torch.nn.Module):
    """A language model's body with a linear head that maps the state before each sampled token to a number."""

    def __init__(self, model: Any, head: torch.nn.Linear, bf16: bool = False) -> None:
        """Use the body of `model` and `head`, which starts at 0."""
        super().__init__()
        self.model, self.head, self.bf16 = model, head, bf16

    @property
    def device(self) -> torch.device:
        """Device of the head."""
        return self.head.weight.device

    @property
    def costs(self) -> Costs:
        """Fixed costs of a forward pass, to pack streams by."""
        return costs(self.model, self.bf16)

    def forward(self, batch: StreamBatch) -> torch.Tensor:
        """Return one number per sampled token of the batch, [N] float32."""
        with torch.autocast(batch.suffix.device.type, torch.bfloat16, enabled=self.bf16):
            hidden = predictors(self.model.base_model, batch)
        return self.head(hidden.float()).squeeze(-1)  # type: ignore[no-any-return]

    def learning(self) -> dict[str, torch.nn.Parameter]:
        """Return the parameters to train by name: body and scalar head, without a language model's own head."""
        body = {f"body.{name}": p for name, p in self.model.base_model.named_parameters()}
        return body | {f"head.{name}": p for name, p in self.head.named_parameters()}

    def predict(self, streams: Sequence[Stream], token_budget: int) -> list[Floats]:
        """Return the numbers of every stream's sampled tokens, in stream order, without gradient."""
        by_stream: list[Floats] = [np.zeros(0, np.float32)] * len(streams)
        with torch.no_grad():
            for batch in pack(streams, [1.0] * len(streams), token_budget, costs=self.costs):
                for i, values in split_rows(batch, self(batch.to(self.device))):
                    by_stream[i] = values
        return by_stream


def zero_head(model: Any, bias: bool) -> torch.nn.Linear:
    """Return a linear layer from the hidden states of `model` to a number, all zero, on the model's device."""
    width = model.config.get_text_config(decoder=True).hidden_size
    head = torch.nn.Linear(width, 1, bias=bias, device=next(model.parameters()).device)
    for parameter in head.parameters():
        torch.nn.init.zeros_(parameter)
    return head


class HeadOptimiser:
    """AdamW on a `ScalarHead`, with clipped gradients and checks that all numbers are finite."""

    def __init__(
        self, model: ScalarHead, lr: float, nonfinite: Nonfinite, label: str, advice: str, setting: str = ""
    ) -> None:
        """Create the optimiser. `label`, `advice` and `setting` are parts of errors: whose, the cure, and that of
        `nonfinite`, by default learn.nonfinite."""
        self.model, self.nonfinite, self.label, self.advice = model, nonfinite, label, advice
        self._setting = setting or "learn.nonfinite"
        self.steps = self.skipped = 0
        """Steps taken, and steps skipped because their gradient is not finite."""
        self._adamw = torch.optim.AdamW(model.learning().values(), lr=lr, weight_decay=0.0)

    def step(self, grad_clip: float) -> float:
        """Take a step with the accumulated gradient, clear it, and return its norm before it is clipped to `grad_clip`.

        If the norm is not finite, the step is skipped and counted, or DivergedError is raised, by `nonfinite`.
        """
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.learning().values(), grad_clip))
        if step_counts(norm, self.nonfinite, self.label, self.advice, setting=self._setting):
            self._adamw.step()
            self.steps += 1
        else:
            self.skipped += 1
        self._adamw.zero_grad()
        return norm

    def set_rate(self, lr: float) -> None:
        """Set the learning rate of the next steps."""
        for group in self._adamw.param_groups:
            group["lr"] = lr

    def require_finite(self) -> None:
        """Raise DivergedError unless all trained parameters are finite."""
        require_finite(self.model.learning().values(), self.label, "its weights are not finite", self.advice)

    def save(self, file: Path) -> None:
        """Write head, moments and number of steps to a safetensors file."""
        state = {f"head.{name}": p.detach() for name, p in self.model.head.named_parameters()}
        for name, parameter in self.model.learning().items():
            slot = self._adamw.state.get(parameter, {})
            state |= {f"{name}.{key}": slot[key] for key in MOMENTS if key in slot}
        save_file({n: t.cpu().contiguous() for n, t in state.items()}, file, {"steps": str(self.steps)})

    def load(self, file: Path) -> None:
        """Restore what `save` wrote; the body was loaded with the model."""
        state, device = load_file(file), self.model.device
        with safe_open(file, framework="pt") as opened:
            self.steps = int(opened.metadata()["steps"])
        with torch.no_grad():
            for name, parameter in self.model.head.named_parameters():
                parameter.copy_(state[f"head.{name}"])
        for name, parameter in self.model.learning().items() if self.steps else ():
            moments = {key: state[f"{name}.{key}"].to(device) for key in MOMENTS if f"{name}.{key}" in state}
            if moments:
                self._adamw.state[parameter] = {"step": torch.tensor(float(self.steps)), **moments}
