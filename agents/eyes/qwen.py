"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: images keep their proportions and have positions by row and column.

Sources: Wang et al. 2024 (Qwen2-VL, smart resizing and M-RoPE), Meng et al. 2024 (DeepStack, in Qwen3-VL).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch

from agents.chat_images import Fit, ImageToken
from agents.errors import WeightsError
from agents.eyes.layout import Vision
from agents.eyes.preprocessing import Preprocessing, read_preprocessing
from agents.stream import MAX_IMAGE_TOKENS, MediaSpan
from games.pictures import MAX_SIDE, decode_picture

MAX_RATIO = 200
"""Maximum ratio of an image's sides."""


@dataclass(frozen=True)
class Qwen2(Vision):
    """Layout of Qwen2-VL and Qwen2.5-VL."""

    patch: int = 14
    """Width and height of a patch in pixels."""
    merge: int = 2
    """Patches per row and per column of a token."""
    frames: int = 2
    """Copies of an image in a patch, which holds a video's frames in time."""

    defaults: ClassVar[Preprocessing] = Preprocessing(
        mean=(0.48145466, 0.4578275, 0.40821073), std=(0.26862954, 0.26130258, 0.27577711), resample=3
    )
    has_grid_positions: ClassVar[bool] = True
    expands_alone: ClassVar[bool] = True

    @classmethod
    def create(cls, config: Any, folder: Path | None) -> Self:
        """Return the layout of a model's config, with the settings of the image processor in `folder`, if any."""
        vision = config.vision_config
        made = cls(
            image_token=config.image_token_id,
            tokens=0,
            size=0,
            preprocessing=read_preprocessing(folder, cls.defaults) if folder else cls.defaults,
            depth=len(getattr(vision, "deepstack_visual_indexes", None) or ()),
            patch=vision.patch_size,
            merge=vision.spatial_merge_size,
            frames=vision.temporal_patch_size,
        )
        if min(made.patch, made.merge, made.frames) < 1:
            raise WeightsError(f"a {config.model_type} with patches of {made.patch} pixels cannot be used")
        if made.preprocessing.min_pixels > made.limit_pixels(None):
            raise WeightsError(f"{folder}: min_pixels is more than max_pixels")
        return made

    @property
    def side(self) -> int:
        """Width and height in pixels of a token."""
        return self.patch * self.merge

    def limit_pixels(self, most_pixels: int | None) -> int:
        """Return the maximum pixels of an image, so that it has at most `MAX_IMAGE_TOKENS` tokens."""
        return min(
            self.preprocessing.max_pixels, MAX_IMAGE_TOKENS * self.side**2, MAX_SIDE**2, most_pixels or MAX_SIDE**2
        )

    def fit(self, height: int, width: int, most_pixels: int | None = None) -> Fit:
        """Return the tokens and the scaled size of an image of these pixels, with at most `most_pixels` after scaling.

        Sides become multiples of a token's, as in transformers' `smart_resize`. Raises ValueError if one side is more
        than `MAX_RATIO` times the other, or if the maximum is less than one token.
        """
        side, most = self.side, self.limit_pixels(most_pixels)
        least = min(self.preprocessing.min_pixels, most)
        if most < side**2:
            raise ValueError(f"images.pixels: a token has {side**2} pixels, so an image cannot have {most}")
        if max(height, width) > MAX_RATIO * min(height, width):
            raise ValueError(f"an image of {width} x {height} pixels is more than {MAX_RATIO} times as long as wide")
        rows, columns = round(height / side), round(width / side)
        if rows * columns * side**2 > most:
            ratio = math.sqrt(height * width / most)
            rows, columns = (max(1, math.floor(length / ratio / side)) for length in (height, width))
        elif rows * columns * side**2 < least:
            ratio = math.sqrt(least / (height * width))
            rows, columns = (math.ceil(length * ratio / side) for length in (height, width))
        while rows * columns * side**2 > most:  # where one was rounded up
            rows, columns = (rows - 1, columns) if rows > columns else (rows, columns - 1)
        return Fit(rows * columns, (rows * side, columns * side))

    def grid(self, span: MediaSpan) -> tuple[int, int]:
        """Return the rows and columns of a span's tokens. Raises ValueError if its size does not fit the model."""
        height, width = span.size or (0, 0)
        rows, columns = height // self.side, width // self.side
        if not span.length == rows * columns > 0 or (rows * self.side, columns * self.side) != span.size:
            shown = f"{width} x {height}" if span.size else "no stated number of"
            raise ValueError(f"an image of {shown} pixels has {rows * columns} tokens in the model, not {span.length}")
        return rows, columns

    def scale_image(self, data: bytes, size: tuple[int, int] | None = None) -> torch.Tensor:
        """Decode an image and scale it to `size` (height, width), or as `fit` does: float32 [3, height, width]."""
        if size is None:
            image = decode_picture(data)
            size = self.fit(image.height, image.width).size
        return super().scale_image(data, size)

    def cut_patches(self, pixels: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return images' patches [P, 3 * frames * patch * patch] and grids [M, 3], as the tower takes them."""
        flat, grids = list[torch.Tensor](), list[tuple[int, int, int]]()
        for image in pixels:
            rows, columns = (length // self.patch for length in image.shape[1:])
            cut = image.reshape(3, rows // self.merge, self.merge, self.patch, columns // self.merge, self.merge, -1)
            cut = cut.permute(1, 4, 2, 5, 0, 3, 6)[:, :, :, :, :, None].expand(-1, -1, -1, -1, -1, self.frames, -1, -1)
            flat.append(cut.reshape(rows * columns, -1))
            grids.append((1, rows, columns))
        return torch.cat(flat), torch.tensor(grids, device=flat[0].device)

    def features(self, model: Any, pixels: Sequence[torch.Tensor] | torch.Tensor) -> torch.Tensor:
        """Return the features [N, width] of images [3, height, width]."""
        patches, grids = self.cut_patches([*pixels])
        features: torch.Tensor = model.base_model.visual(patches, grid_thw=grids, return_dict=True).pooler_output
        return features

    def tower(self, model: Any) -> list[torch.nn.Module | torch.nn.Parameter]:
        """Return the vision tower; its mergers are the connector."""
        visual = model.base_model.visual
        return [part for name, part in visual.named_children() if "merger" not in name]

    def make_token(self, most_pixels: int | None = None) -> ImageToken:
        """Return the placeholder for a chat frame, with at most `most_pixels` per image."""
        return super().make_token(most_pixels)._replace(fit=_ImageFit(self, most_pixels))


@dataclass(frozen=True)
class _ImageFit:
    """Function from an image's height and width to its `Fit`, with at most `most_pixels`."""

    vision: Qwen2
    most_pixels: int | None

    def __call__(self, height: int, width: int) -> Fit:
        return self.vision.fit(height, width, self.most_pixels)


@dataclass(frozen=True)
class Qwen3(Qwen2):
    """Layout of Qwen3-VL, whose first layers add features of the tower's inner layers to the images' tokens."""

    defaults: ClassVar[Preprocessing] = Preprocessing(min_pixels=65536, max_pixels=16777216, resample=3)

    def features(self, model: Any, pixels: Sequence[torch.Tensor] | torch.Tensor) -> torch.Tensor:
        """Return the features [N, width * (1 + depth)] of images [3, height, width]."""
        patches, grids = self.cut_patches([*pixels])
        found = model.base_model.visual(patches, grid_thw=grids, return_dict=True)
        return torch.cat([found.pooler_output, *found.deepstack_features], -1)
