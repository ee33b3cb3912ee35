"""Idefics3 and SmolVLM (Marafioti et al. 2025): square images, a connector that joins neighbouring patches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from agents.eyes.layout import Vision
from agents.eyes.preprocessing import Preprocessing


class Idefics(Vision):
    """Layout of Idefics3 and SmolVLM."""

    defaults: ClassVar[Preprocessing] = Preprocessing(scale=1 / 127.5, mean=(1.0, 1.0, 1.0), std=(1.0, 1.0, 1.0))

    @classmethod
    def measure(cls, config: Any) -> tuple[int, int]:
        """Return the number of tokens per image and its width and height in pixels."""
        vision = config.vision_config
        return (vision.image_size // vision.patch_size) ** 2 // config.scale_factor**2, vision.image_size

    def features(self, model: Any, pixels: Sequence[torch.Tensor] | torch.Tensor) -> torch.Tensor:
        """Return the features [M * tokens, width] of images [3, size, size]."""
        body, tower = model.base_model, model.base_model.vision_model
        patch = tower.embeddings.patch_embedding
        images = pixels if isinstance(pixels, torch.Tensor) else torch.stack([*pixels])
        patches = patch(images.to(patch.weight.dtype)).flatten(2).transpose(1, 2)
        # Not the model's own positions: rounding makes them wrong on most grids, such as for 11 of 6 x 6 patches in
        # bfloat16. The model would also drop images of zeros as padding.
        places = tower.embeddings.position_embedding(torch.arange(patches.shape[1], device=images.device))
        hidden = tower.encoder(inputs_embeds=patches + places, attention_mask=None).last_hidden_state
        features: torch.Tensor = body.connector(tower.post_layernorm(hidden))
        return features.reshape(-1, features.shape[-1])

    def tower(self, model: Any) -> list[torch.nn.Module | torch.nn.Parameter]:
        """Return the vision tower."""
        return [model.base_model.vision_model]
