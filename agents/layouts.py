"""Vision layouts (classes in `agents.eyes`) by `model_type`, and a policy's vision settings. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.errors import WeightsError

if TYPE_CHECKING:
    from agents.eyes.layout import Vision

LAYOUTS = {
    "idefics3": "agents.eyes.idefics:Idefics",
    "smolvlm": "agents.eyes.idefics:Idefics",
    "qwen2_vl": "agents.eyes.qwen:Qwen2",
    "qwen2_5_vl": "agents.eyes.qwen:Qwen2",
    "qwen3_vl": "agents.eyes.qwen:Qwen3",
    "internvl": "agents.eyes.internvl:InternVL",
    "gemma3": "agents.eyes.gemma:Gemma3",
}


@dataclass(frozen=True)
class VisionSettings:
    """Settings of a policy's vision."""

    max_pixels: int | None = None
    """Maximum pixels of an image after scaling; None for the model's own maximum."""
    frozen: bool = False
    """Whether to exclude the vision tower from training; the connector is trained in any case."""


DEFAULT_VISION = VisionSettings()
"""The model's own maximum, with the vision tower trained."""


def is_vision_config(settings: Mapping[str, Any]) -> bool:
    """Return True if a config.json with these settings describes a supported model with vision."""
    return settings.get("model_type") in LAYOUTS


def create_vision(config: Any, folder: Path | None = None) -> Vision | None:
    """Create the vision of a model from its config and the image processor in `folder`, if any; None for a text model.

    Raises WeightsError for a layout that is not supported.
    """
    if getattr(config, "vision_config", None) is None:
        return None
    if config.model_type not in LAYOUTS:
        raise WeightsError(f"vision of model type {config.model_type} is not supported (only {', '.join(LAYOUTS)})")
    module, _, name = LAYOUTS[config.model_type].partition(":")
    vision: Vision = getattr(import_module(module), name).create(config, folder)
    return vision
