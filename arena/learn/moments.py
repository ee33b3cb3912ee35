"""AdamW's moments of each parameter under any ZeRO stage: save, load and reset."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from agents.policy import trainable_parameters

MOMENTS = ("exp_avg", "exp_avg_sq")
MASTER = "master"
"""The float32 master copy of a bfloat16 parameter."""


class Moments:
    """AdamW's state in a DeepSpeed engine, as full tensors: both moments of each parameter.

    Includes the float32 master copies of bfloat16 parameters, because these alone have the full precision.
    """

    def __init__(self, engine: Any, model: Any, zero_stage: int) -> None:
        self.engine, self.model, self.zero_stage = engine, model, zero_stage
        if zero_stage:
            self._create_zero_moments()

    def named_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield (`PARAMETER.KEY`, tensor) for every moment and master copy, float32 on the CPU.

        Under ZeRO, all ranks must iterate together, because each of them holds a part.
        """
        for name, _ in self.shapes():
            yield name, self.get(name)

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield the name and shape of every moment and master copy, in the order of `named_tensors`."""
        for name, parameter in trainable_parameters(self.model).items():
            moments = (
                self.engine.optimizer.state.get(parameter, {}) if self.zero_stage == 0 else _list_state_keys(parameter)
            )
            shape = tuple(getattr(parameter, "ds_shape", parameter.shape))
            yield from ((f"{name}.{key}", shape) for key in _list_state_keys(parameter) if key in moments)

    def get(self, name: str) -> torch.Tensor:
        """Return a moment or master copy by its name `PARAMETER.KEY`. Under ZeRO all ranks must call it together."""
        parameter, _, key = name.rpartition(".")
        value = self._get(trainable_parameters(self.model)[parameter], key)
        assert value is not None, name
        return value.detach().cpu().contiguous()

    def load(self, state: Mapping[str, torch.Tensor], steps: int) -> None:
        """Restore the tensors of `named_tensors` by name, and set the optimiser's number of steps."""
        for name, parameter in trainable_parameters(self.model).items():
            for key in _list_state_keys(parameter):
                if (value := state.get(f"{name}.{key}")) is not None:
                    self._set(parameter, key, value.to(self.engine.device), steps)

    def reset(self) -> None:
        """Set all moments and the optimiser's step count to zero."""
        for parameter in trainable_parameters(self.model).values():
            for key in MOMENTS:
                if (moment := self._get(parameter, key)) is not None:
                    self._set(parameter, key, torch.zeros_like(moment), 0)

    def _get(self, parameter: torch.nn.Parameter, key: str) -> torch.Tensor | None:
        if self.zero_stage == 0:
            return self.engine.optimizer.state.get(parameter, {}).get(key)  # type: ignore[no-any-return]
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

        if key == MASTER:
            return safe_get_full_fp32_param(parameter)  # type: ignore[no-any-return]
        return safe_get_full_optimizer_state(parameter, key)  # type: ignore[no-any-return]

    def _set(self, parameter: torch.nn.Parameter, key: str, value: torch.Tensor, steps: int) -> None:
        if self.zero_stage == 0:
            slot = self.engine.optimizer.state[parameter]
            slot[key] = value
            slot["step"] = torch.tensor(float(steps), device=value.device)  # fused AdamW needs it on the same device
            return
        from deepspeed.utils import safe_set_full_fp32_param, safe_set_full_optimizer_state

        if key == MASTER:
            safe_set_full_fp32_param(parameter, value)
            return
        safe_set_full_optimizer_state(parameter, value, key)
        for slot in self.engine.optimizer.optimizer.state.values():  # offloaded state is not on the model's device
            slot["step"] = torch.tensor(float(steps), device=slot[key].device)

    def _create_zero_moments(self) -> None:
        """Create ZeRO's moments, so that they can be loaded or saved before the first step."""
        zero = self.engine.optimizer
        parameters = [part for group in zero.optimizer.param_groups for part in group["params"]]
        for part in zero.fp32_partitioned_groups_flat if self.zero_stage == 3 else parameters:
            moments = {key: torch.zeros_like(part) for key in MOMENTS}
            zero.optimizer.state[part] = {"step": torch.tensor(0.0, device=part.device), **moments}
        if self.zero_stage < 3:
            zero._lazy_init_hp_params_optimizer_state()


def _list_state_keys(parameter: torch.nn.Parameter) -> tuple[str, ...]:
    return (*MOMENTS, MASTER) if parameter.dtype == torch.bfloat16 else MOMENTS
