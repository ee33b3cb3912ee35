"""Settings of low-rank adapters and their folders in peft's layout.

A folder may come from a stranger: settings beyond plain low-rank matrices are refused by name.
"""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from agents.errors import WeightsError
from agents.model_config import first_line, read_json

CONFIG = "adapter_config.json"
TENSORS = "adapter_model.safetensors"
MAX_RANK = 4096


class AdapterSpec(BaseModel):
    """Settings of a new low-rank adapter: rank, scale and layers (LoRA, Hu et al. 2021, arXiv 2106.09685)."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    rank: Annotated[int, Field(ge=1, le=MAX_RANK)] = 16
    """Rank of the matrices A [rank, in] and B [out, rank] of each layer."""
    alpha: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Numerator of the scale alpha / rank; null is twice the rank."""
    targets: Annotated[list[str], Field(min_length=1)] | None = None
    """Linear layers to adapt, by the last part of their names, such as `[q_proj, v_proj]`; null is all but the output
    head."""

    @property
    def scale(self) -> float:
        """Factor of the adapter's output B A x: alpha / rank, or 2 if alpha is null."""
        return 2.0 if self.alpha is None else self.alpha / self.rank


@dataclass(frozen=True)
class AdapterFolder:
    """Settings of an adapter saved in peft's layout, as `read_adapter` returns them. `scale` is the factor of B A x."""

    path: Path
    base: str
    """Base model: a name or a folder, as for `agents.weights.resolve`."""
    rank: int
    scale: float


def is_adapter(folder: Path) -> bool:
    """Return True if a folder holds an adapter (`adapter_config.json`) instead of a full model."""
    return (folder / CONFIG).is_file()


def read_adapter(folder: Path) -> AdapterFolder:
    """Read and validate the settings of a LoRA adapter in peft's layout; its matrices are not loaded.

    Raises WeightsError if a file is missing or damaged, or for settings beyond plain LoRA of one rank (such as DoRA).
    """
    config = read_json(folder, CONFIG)
    base, rank, alpha = config.get("base_model_name_or_path"), config.get("r"), config.get("lora_alpha")
    if config.get("peft_type") != "LORA":
        raise WeightsError(f"{folder}/{CONFIG}: peft_type is {_short(config.get('peft_type'))}: only LORA is served")
    if not isinstance(base, str) or not base:
        raise WeightsError(f"{folder}/{CONFIG} names no base_model_name_or_path: say which model it was trained on")
    if not isinstance(rank, int) or isinstance(rank, bool) or not 1 <= rank <= MAX_RANK:
        raise WeightsError(f"{folder}/{CONFIG}: r is {_short(rank)}, not an integer from 1 to {MAX_RANK}")
    if not isinstance(alpha, int | float) or isinstance(alpha, bool) or not 0 < alpha <= 1e6:
        raise WeightsError(f"{folder}/{CONFIG}: lora_alpha is {_short(alpha)}, not a number above 0")
    for key, value in config.items():
        if key in _UNSUPPORTED and value not in _UNSUPPORTED[key]:
            raise WeightsError(f"{folder}/{CONFIG}: {key}: {_short(value)} is not supported: merge it in peft instead")
    initialisation = config.get("init_lora_weights", True)
    if isinstance(initialisation, str) and initialisation.startswith(_BASE_CHANGING):
        raise WeightsError(f"{folder}/{CONFIG}: {initialisation} changed the base model, too: merge it in peft instead")
    try:
        has_weights = (folder / TENSORS).stat().st_size > 0
    except OSError as error:
        raise WeightsError(f"{folder} has no {TENSORS} ({first_line(error)}): save it with save_pretrained") from None
    if not has_weights:
        raise WeightsError(f"{folder}/{TENSORS} is empty: fetch it again")
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    return AdapterFolder(folder, base, rank, scale)


_UNSET: tuple[Any, ...] = (None, False, {}, [])
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "bias": (None, "none"),
    "fan_in_fan_out": _UNSET,
    "use_dora": _UNSET,
    "use_qalora": _UNSET,
    "rank_pattern": _UNSET,
    "alpha_pattern": _UNSET,
    "modules_to_save": _UNSET,
    "layer_replication": _UNSET,
    "target_parameters": _UNSET,
    "trainable_token_indices": _UNSET,
    "lora_bias": _UNSET,
    "alora_invocation_tokens": _UNSET,
}
"""Settings of peft that change an adapter's computation, with their neutral values."""
_BASE_CHANGING = ("pissa", "olora", "corda", "loftq", "eva_", "lora_ga")
"""Prefixes of peft's initialisations that also change the base's weights."""


def format_config(base: str, rank: int, scale: float, layers: list[str]) -> str:
    """Return adapter_config.json as text for peft; `layers` are the last parts of the adapted layers' names."""
    config = {
        "base_model_name_or_path": base,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "lora_alpha": scale * rank,
        "lora_dropout": 0.0,
        "peft_type": "LORA",
        "r": rank,
        "target_modules": sorted(layers),
        "task_type": "CAUSAL_LM",
    }
    return json.dumps(config, indent=1) + "\n"


TENSOR_NAME = re.compile(r"base_model\.model\.(?P<layer>.{1,512})\.lora_(?P<side>[AB])\.weight")
"""Pattern of peft's tensor names: the layer's name, and A or B."""


def _short(value: Any) -> str:
    return first_line(ValueError(json.dumps(value)))[:60]
