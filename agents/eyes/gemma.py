"""Gemma 3 (Gemma Team 2025): square images whose tokens attend to each other in both directions."""

from __future__ import annotations

from typing import Any, ClassVar

from agents.chat_images import ImageToken
from agents.eyes.layout import Vision


class Gemma3(Vision):
    """Layout of Gemma 3. Images are not cut into tiles, as with `do_pan_and_scan: false`."""

    is_bidirectional: ClassVar[bool] = True

    @classmethod
    def measure(cls, config: Any) -> tuple[int, int]:
        """Return the number of tokens per image, and its width and height in pixels."""
        return config.mm_tokens_per_image, config.vision_config.image_size

    def make_token(self, max_pixels: int | None = None) -> ImageToken:
        """Return the image placeholder for a chat frame; the template writes <start_of_image> for an image."""
        edges = ("\n\n<start_of_image>", "<end_of_image>\n\n")
        return super().make_token(max_pixels)._replace(mark="<start_of_image>", edges=edges)
