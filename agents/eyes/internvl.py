"""InternVL (Chen et al. 2024) as in transformers: one square tile per image, a projector after a pixel shuffle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from agents.chat_images import ImageToken
from agents.eyes.layout import Vision
from agents.eyes.preprocessing import Preprocessing


class InternVL(Vision):
    """Layout of InternVL. An image is one tile, as with `crop_to_patches: false`."""

    defaults: ClassVar[Preprocessing] = Preprocessing(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), resample=3)

    @classmethod
    def measure(cls, config: Any) -> tuple[int, int]:
        """Return the number of tokens per image and its width and height in pixels; -1 for images that are no squares.

        An odd number of patches per side cannot be joined.
        """
        (height, width), (patch, other) = config.vision_config.image_size, config.vision_config.patch_size
        side, factor = height // patch, round(1 / config.downsample_ratio)
        return (-1, -1) if height != width or patch != other or side % factor else ((side // factor) ** 2, height)

    def features(self, model: Any, pixels: Sequence[torch.Tensor] | torch.Tensor) -> torch.Tensor:
        """Return the features [M * tokens, width] of images [3, size, size]."""
        whole = pixels if isinstance(pixels, torch.Tensor) else torch.stack([*pixels])
        features: torch.Tensor = model.base_model.get_image_features(whole, return_dict=True).pooler_output
        return features.reshape(-1, features.shape[-1])

    def tower(self, model: Any) -> list[torch.nn.Module | torch.nn.Parameter]:
        """Return the vision tower."""
        return [model.base_model.vision_tower]

    def token(self, most_pixels: int | None = None) -> ImageToken:
        """Return the placeholder for a chat frame; the processor writes <img> and </img> around it."""
        return super().token(most_pixels)._replace(edges=("<img>", "</img>"))
