"""A language model's body with a scalar head, which computes a number per sampled token, and its optimiser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from agents.costs import estimate_costs
from agents.scoring import StreamBatch, compute_hidden_states, pack, split_by_stream
from agents.vision import text_body
from arena.learn.adamw import NamedAdamW

if TYPE_CHECKING:
    from agents.packing import Costs
    from agents.stream import Stream
    from arena.learn.divergence import Nonfinite

Floats = NDArray[np.float32]


class ScalarHead(torch.nn.Module):
    """Language model with a linear head that maps the hidden state before each sampled token to a number."""

    def __init__(self, model: Any, head: torch.nn.Linear, bf16: bool = False) -> None:
        """Put `head` on the body of `model`, in place of the language model's own head."""
        super().__init__()
        self.model, self.head, self.bf16 = model, head, bf16

    @property
    def device(self) -> torch.device:
        """Device of the head."""
        return self.head.weight.device

    @property
    def costs(self) -> Costs:
        """Fixed costs of a forward pass, for packing streams."""
        return estimate_costs(self.model, self.bf16)

    def forward(self, batch: StreamBatch) -> torch.Tensor:
        """Return one number per sampled token of the batch, [N] float32."""
        with torch.autocast(batch.suffix.device.type, torch.bfloat16, enabled=self.bf16):
            image_features = None if batch.images is None else batch.images.compute_features(self.model)
            hidden = compute_hidden_states(
                self.model.base_model if image_features is None else text_body(self.model), batch, image_features
            )
        return self.head(hidden.float()).squeeze(-1)  # type: ignore[no-any-return]

    def get_trainable_parameters(self) -> dict[str, torch.nn.Parameter]:
        """Return the trainable parameters by name: body and scalar head, without the language model's own head."""
        body = {f"body.{name}": p for name, p in self.model.base_model.named_parameters()}
        return body | {f"head.{name}": p for name, p in self.head.named_parameters()}

    def predict(self, streams: Sequence[Stream], token_budget: int) -> list[Floats]:
        """Predict the numbers of each stream's sampled tokens, in the order of the streams, without gradient."""
        by_stream: list[Floats] = [np.zeros(0, np.float32)] * len(streams)
        with torch.no_grad():
            for batch in pack(streams, [1.0] * len(streams), token_budget, costs=self.costs):
                for i, values in split_by_stream(batch, self(batch.to(self.device))):
                    by_stream[i] = values
        return by_stream


def create_zero_head(model: Any, bias: bool) -> torch.nn.Linear:
    """Return a linear layer from the hidden states of `model` to a number, with zero weights, on the model's device."""
    width = model.config.get_text_config(decoder=True).hidden_size
    head = torch.nn.Linear(width, 1, bias=bias, device=next(model.parameters()).device)
    for parameter in head.parameters():
        torch.nn.init.zeros_(parameter)
    return head


class HeadOptimiser(NamedAdamW):
    """AdamW on a `ScalarHead` that saves the head together with its own state."""

    def __init__(
        self, model: ScalarHead, lr: float, nonfinite: Nonfinite, label: str, advice: str, setting: str = ""
    ) -> None:
        """Create the optimiser. `label`, `advice` and `setting` are texts for error messages, as in `NamedAdamW`."""
        head = {f"head.{name}": p for name, p in model.head.named_parameters()}
        super().__init__(model.get_trainable_parameters(), lr, nonfinite, label, advice, setting, saved=head)
