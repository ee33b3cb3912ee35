"""Table of the layouts by `model_type` in config.json, and settings of a policy's vision. Imports no torch."""

from dataclasses import dataclass

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
class Sight:
    """Settings of a policy's vision."""

    most_pixels: int | None = None
    """Maximum pixels of an image after scaling; None for the model's own."""
    frozen: bool = False
    """Whether the vision tower is not trained; the connector is."""


WHOLE = Sight()
"""No limit but the model's own, and all of it is trained."""
