"""AdamW on named parameters in this process, with gradient clipping, finiteness checks, and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from arena.learn.divergence import is_finite_step, require_finite
from arena.learn.moments import MOMENTS

if TYPE_CHECKING:
    from arena.learn.divergence import Nonfinite

BETAS = (0.9, 0.999)
NO_PARAMETERS: Mapping[str, torch.nn.Parameter] = MappingProxyType({})


class NamedAdamW:
    """AdamW optimiser of named parameters, without weight decay."""

    def __init__(
        self,
        parameters: Mapping[str, torch.nn.Parameter],
        lr: float,
        nonfinite: Nonfinite,
        label: str,
        advice: str,
        setting: str = "",
        betas: tuple[float, float] = BETAS,
        saved: Mapping[str, torch.nn.Parameter] = NO_PARAMETERS,
    ) -> None:
        """Create the optimiser. `save` writes the parameters in `saved` together with its state.

        Error messages contain `label` (the trained object), `advice` (how to fix the cause) and `setting` (the name of
        the user's setting for `nonfinite`, by default learn.nonfinite).
        """
        self.parameters, self.nonfinite, self.label, self.advice = parameters, nonfinite, label, advice
        self._setting, self._saved = setting or "learn.nonfinite", saved
        self.steps = self.skipped = 0
        """Numbers of steps taken, and of steps skipped because of a non-finite gradient."""
        self._adamw = torch.optim.AdamW(parameters.values(), lr=lr, betas=betas, weight_decay=0.0)

    def step(self, grad_clip: float) -> float:
        """Take a step with the accumulated gradient, clipped to the norm `grad_clip`, and clear the gradient.

        Returns the norm before clipping. If it is not finite, `nonfinite` decides: the step is skipped and counted, or
        DivergedError is raised.
        """
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters.values(), grad_clip))
        if is_finite_step(norm, self.nonfinite, self.label, self.advice, setting=self._setting):
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
        require_finite(self.parameters.values(), self.label, "its weights are not finite", self.advice)

    def save(self, file: Path) -> None:
        """Write the moments, the number of steps and the `saved` parameters to a safetensors file."""
        state = {name: p.detach() for name, p in self._saved.items()}
        for name, parameter in self.parameters.items():
            slot = self._adamw.state.get(parameter, {})
            state |= {f"{name}.{key}": slot[key] for key in MOMENTS if key in slot}
        save_file({n: t.cpu().contiguous() for n, t in state.items()}, file, {"steps": str(self.steps)})

    def load(self, file: Path) -> None:
        """Restore the moments, the number of steps and the `saved` parameters. The caller loads all other weights."""
        state = load_file(file)
        with safe_open(file, framework="pt") as file_tensors:
            self.steps = int(file_tensors.metadata()["steps"])
        with torch.no_grad():
            for name, parameter in self._saved.items():
                parameter.copy_(state[name])
        for name, parameter in self.parameters.items() if self.steps else ():
            moments = {key: state[f"{name}.{key}"].to(parameter.device) for key in MOMENTS if f"{name}.{key}" in state}
            if moments:
                self._adamw.state[parameter] = {"step": torch.tensor(float(self.steps)), **moments}
