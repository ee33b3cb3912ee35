"""Layouts of Qwen2-VL, Qwen2.5-VL and Qwen3-VL: images keep their proportions and have positions by row and column.

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
    """Number of patches along each side of a token."""
    frames: int = 2
    """Number of frames in a patch. The tower is made for videos; an image is repeated as all frames."""

    defaults: ClassVar[Preprocessing] = Preprocessing(
        mean=(0.48145466, 0.4578275, 0.40821073), std=(0.26862954, 0.26130258, 0.27577711), resample=3
    )
    has_grid_positions: ClassVar[bool] = True
    expands_alone: ClassVar[bool] = True

    @classmethod
    def create(cls, config: Any, folder: Path | None) -> Self:
        """Return the layout of a model's config, with the settings of the image processor in `folder`, if any."""
        vision = config.vision_config
        layout = cls(
            image_token=config.image_token_id,
            tokens=0,
            size=0,
            preprocessing=read_preprocessing(folder, cls.defaults) if folder else cls.defaults,
            depth=len(getattr(vision, "deepstack_visual_indexes", None) or ()),
            patch=vision.patch_size,
            merge=vision.spatial_merge_size,
            frames=vision.temporal_patch_size,
        )
        if min(layout.patch, layout.merge, layout.frames) < 1:
            raise WeightsError(f"a {config.model_type} with patches of {layout.patch} pixels cannot be used")
        if layout.preprocessing.min_pixels > layout.limit_pixels(None):
            raise WeightsError(f"{folder}: min_pixels is more than max_pixels")
        return layout

    @property
    def side(self) -> int:
        """Width and height of a token in pixels."""
        return self.patch * self.merge

    def limit_pixels(self, max_pixels: int | None) -> int:
        """Return the maximum number of pixels of a scaled image, with at most `MAX_IMAGE_TOKENS` tokens."""
        limits = (
            self.preprocessing.max_pixels,
            MAX_IMAGE_TOKENS * self.side**2,
            MAX_SIDE**2,
            max_pixels or MAX_SIDE**2,
        )
        return min(limits)

    def fit(self, height: int, width: int, max_pixels: int | None = None) -> Fit:
        """Return the number of tokens and the scaled size of an image, with at most `max_pixels` after scaling.

        The sides become multiples of a token's side, as in transformers' `smart_resize`. Raises ValueError if one side
        is more than `MAX_RATIO` times the other, or if the maximum is less than one token.
        """
        side, maximum = self.side, self.limit_pixels(max_pixels)
        minimum = min(self.preprocessing.min_pixels, maximum)
        if maximum < side**2:
            raise ValueError(f"images.pixels: a token has {side**2} pixels, so an image cannot have {maximum}")
        if max(height, width) > MAX_RATIO * min(height, width):
            raise ValueError(f"an image of {width} x {height} pixels is more than {MAX_RATIO} times as long as wide")
        rows, columns = round(height / side), round(width / side)
        if rows * columns * side**2 > maximum:
            ratio = math.sqrt(height * width / maximum)
            rows, columns = (max(1, math.floor(length / ratio / side)) for length in (height, width))
        elif rows * columns * side**2 < minimum:
            ratio = math.sqrt(minimum / (height * width))
            rows, columns = (math.ceil(length * ratio / side) for length in (height, width))
        while rows * columns * side**2 > maximum:  # if a side was rounded up
            rows, columns = (rows - 1, columns) if rows > columns else (rows, columns - 1)
        return Fit(rows * columns, (rows * side, columns * side))

    def grid(self, span: MediaSpan) -> tuple[int, int]:
        """Return the numbers of rows and columns of a span's tokens.

        Raises ValueError if the image's size or number of tokens does not fit the model.
        """
        height, width = span.size or (0, 0)
        rows, columns = height // self.side, width // self.side
        if not span.length == rows * columns > 0 or (rows * self.side, columns * self.side) != span.size:
            grid_text = f"{width} x {height}" if span.size else "no stated number of"
            raise ValueError(
                f"an image of {grid_text} pixels has {rows * columns} tokens in the model, not {span.length}"
            )
        return rows, columns

    def scale_image(self, data: bytes, size: tuple[int, int] | None = None) -> torch.Tensor:
        """Decode an image and scale it to `size` (height, width), by default that of `fit`: float32 [3, H, W]."""
        if size is None:
            image = decode_picture(data)
            size = self.fit(image.height, image.width).size
        return super().scale_image(data, size)

    def cut_patches(self, pixels: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the images' patches [P, 3 * frames * patch * patch] and grids [M, 3], the inputs of the tower."""
        flat, grids = list[torch.Tensor](), list[tuple[int, int, int]]()
        for image in pixels:
            rows, columns = (length // self.patch for length in image.shape[1:])
            patches = image.reshape(
                3, rows // self.merge, self.merge, self.patch, columns // self.merge, self.merge, -1
            )
            patches = patches.permute(1, 4, 2, 5, 0, 3, 6)[:, :, :, :, :, None].expand(
                -1, -1, -1, -1, -1, self.frames, -1, -1
            )
            flat.append(patches.reshape(rows * columns, -1))
            grids.append((1, rows, columns))
        return torch.cat(flat), torch.tensor(grids, device=flat[0].device)

    def features(self, model: Any, pixels: Sequence[torch.Tensor] | torch.Tensor) -> torch.Tensor:
        """Return the features [N, width] of images [3, height, width]."""
        patches, grids = self.cut_patches([*pixels])
        features: torch.Tensor = model.base_model.visual(patches, grid_thw=grids, return_dict=True).pooler_output
        return features

    def tower(self, model: Any) -> list[torch.nn.Module | torch.nn.Parameter]:
        """Return the parts of the vision tower without its mergers, which are the connector."""
        visual = model.base_model.visual
        return [part for name, part in visual.named_children() if "merger" not in name]

    def make_token(self, max_pixels: int | None = None) -> ImageToken:
        """Return the image placeholder for a chat frame; images are scaled to at most `max_pixels`."""
        return super().make_token(max_pixels)._replace(fit=_ImageFit(self, max_pixels))


@dataclass(frozen=True)
class _ImageFit:
    """Function from an image's height and width to its `Fit`, with at most `max_pixels`."""

    vision: Qwen2
    max_pixels: int | None

    def __call__(self, height: int, width: int) -> Fit:
        return self.vision.fit(height, width, self.max_pixels)


@dataclass(frozen=True)
class Qwen3(Qwen2):
    """Layout of Qwen3-VL, whose first layers add features of inner layers of the tower to image tokens (DeepStack)."""

    defaults: ClassVar[Preprocessing] = Preprocessing(min_pixels=65536, max_pixels=16777216, resample=3)

    def features(self, model: Any, pixels: Sequence[torch.Tensor] | torch.Tensor) -> torch.Tensor:
        """Return the features [N, width * (1 + depth)] of images [3, height, width]."""
        patches, grids = self.cut_patches([*pixels])
        output = model.base_model.visual(patches, grid_thw=grids, return_dict=True)
        return torch.cat([output.pooler_output, *output.deepstack_features], -1)
