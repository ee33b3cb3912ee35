"""Interface of the layouts of vision-language models, one class per family, with defaults for common ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch

from agents.chat_images import Fit, ImageToken
from agents.errors import WeightsError
from agents.eyes.preprocessing import Preprocessing, read_preprocessing
from agents.stream import MAX_IMAGE_TOKENS, MediaSpan
from games.pictures import MAX_SIDE, decode_picture


@dataclass(frozen=True)
class Vision:
    """Image layout of one vision-language model; by default all images are scaled to one square.

    Subclasses for families override what differs. A layout depends only on the config and the processor's settings.
    """

    image_token: int
    """Id of the placeholder token."""
    tokens: int
    """Number of placeholder tokens, and of features, per image; 0 if it depends on the image's size."""
    size: int
    """Width and height in pixels to which images are scaled; 0 if it depends on the image."""
    preprocessing: Preprocessing
    depth: int = 0
    """Number of layers of the language model after the first to which image features are added (DeepStack)."""

    defaults: ClassVar[Preprocessing] = Preprocessing()
    has_grid_positions: ClassVar[bool] = False
    """Whether an image's tokens have positions by row and column (M-RoPE, Wang et al. 2024)."""
    is_bidirectional: ClassVar[bool] = False
    """Whether tokens of one image attend to each other in both directions. Contexts then cannot be joined to trees."""

    expands_alone: ClassVar[bool] = False
    """Whether the processor replaces an image's placeholder by more of them, without texts around them."""

    @property
    def side(self) -> int:
        """Width and height of a token in pixels; 0 if tokens do not correspond to squares of the image."""
        return 0

    @classmethod
    def create(cls, config: Any, folder: Path | None) -> Self:
        """Return the layout of a model's config, with the settings of the image processor in `folder`, if any.

        Raises WeightsError for a config that the layout does not support.
        """
        settings = read_preprocessing(folder, cls.defaults) if folder else cls.defaults
        tokens, size = cls.measure(config)
        if not 0 < tokens <= MAX_IMAGE_TOKENS or not 0 < size <= MAX_SIDE:
            raise WeightsError(f"a {config.model_type} with images of {size} pixels and {tokens} tokens cannot be used")
        return cls(int(config.image_token_id), tokens, size, settings)

    @classmethod
    def measure(cls, config: Any) -> tuple[int, int]:
        """Return the number of tokens per image and its width and height in pixels, for `create`."""
        raise NotImplementedError

    def fit(self, height: int, width: int, max_pixels: int | None = None) -> Fit:
        """Return the tokens and the scaled size of an image of these pixels, with at most `max_pixels` after scaling.

        Raises ValueError for an image or a maximum that the model does not support.
        """
        if max_pixels is not None and max_pixels < self.size**2:
            raise ValueError(f"the model scales every image to {self.size} x {self.size} pixels: remove images.pixels")
        return Fit(self.tokens, None)

    def grid(self, span: MediaSpan) -> tuple[int, int]:
        """Return the numbers of rows and columns of a span's tokens.

        Raises ValueError if the image's size or number of tokens does not fit the model.
        """
        if span.length != self.tokens:
            raise ValueError(f"images have {span.length} tokens, and the model has {self.tokens} for each")
        if span.size not in (None, (self.size, self.size)):  # an edited log may state any size
            raise ValueError(f"images have {self.size} x {self.size} pixels in the model, not {span.size}")
        return 1, self.tokens

    def scale_image(self, data: bytes, size: tuple[int, int] | None = None) -> torch.Tensor:
        """Decode an image and scale it to `size` (height, width), by default the model's: float32 [3, height, width].

        Raises ValueError if the data is not an image (see `games.pictures.decode_picture`).
        """
        return torch.from_numpy(self.preprocessing.normalise(decode_picture(data), *(size or (self.size, self.size))))

    def load_pixels(self, span: MediaSpan) -> torch.Tensor:
        """Decode and scale a span's image. Raises ValueError, naming its hash, if it cannot be read."""
        self.grid(span)
        try:
            return self.scale_image(span.data, span.size)
        except ValueError as error:
            raise ValueError(f"image {span.hash}: {error}") from None

    def features(self, model: Any, pixels: Sequence[torch.Tensor] | torch.Tensor) -> torch.Tensor:
        """Run tower and connector on images; return the features [N, width * (1 + depth)] of their tokens."""
        images = pixels if isinstance(pixels, torch.Tensor) else torch.stack([*pixels])
        features: torch.Tensor = model.base_model.get_image_features(images, return_dict=True).pooler_output
        return features.reshape(-1, features.shape[-1])

    def tower(self, model: Any) -> list[torch.nn.Module | torch.nn.Parameter]:
        """Return the parts of the vision tower, without the connector."""
        return [model.base_model.vision_tower]

    def make_token(self, max_pixels: int | None = None) -> ImageToken:
        """Return the image placeholder for a chat frame; images are scaled to at most `max_pixels`.

        Raises WeightsError if the model cannot have this maximum.
        """
        try:
            self.fit(28, 28, max_pixels)
        except ValueError as error:
            raise WeightsError(str(error)) from None
        return ImageToken(self.image_token, self.tokens)
