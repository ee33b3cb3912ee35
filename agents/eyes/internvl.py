"""InternVL (Chen et al. 2024) as in transformers: one square tile per image, a projector after a pixel shuffle."""

from __future__ import annotations

from typing import Any, ClassVar

from agents.chat_images import ImageToken
from agents.eyes.layout import Vision
from agents.eyes.preprocessing import Preprocessing


class InternVL(Vision):
    """Layout of InternVL. An image is one tile, as with `crop_to_patches: false`."""

    defaults: ClassVar[Preprocessing] = Preprocessing(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), resample=3)

    @classmethod
    def measure(cls, config: Any) -> tuple[int, int]:
        """Return the number of tokens per image, and its width and height in pixels.

        Returns (0, 0) if images or patches are not square, or if the patches along a side cannot be joined to tokens.
        """
        (height, width), (patch, other) = config.vision_config.image_size, config.vision_config.patch_size
        side, factor = height // patch, round(1 / config.downsample_ratio)
        return (0, 0) if height != width or patch != other or side % factor else ((side // factor) ** 2, height)

    def make_token(self, max_pixels: int | None = None) -> ImageToken:
        """Return the image placeholder for a chat frame; the processor writes <img> and </img> around it."""
        return super().make_token(max_pixels)._replace(edges=("<img>", "</img>"))
