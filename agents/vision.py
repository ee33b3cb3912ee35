"""Vision: the images of a context as features in place of its placeholder tokens.

Models in the layout of Idefics3 and SmolVLM (Marafioti et al. 2025) have a vision tower, a connector and a causal
language model with one position per token. The tower and the connector run once per distinct image of a pass. Models
with other positions for images, such as Qwen2-VL, are refused: their attention caches need positions of the whole past.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from agents.errors import WeightsError
from agents.stream import Stream

MODEL_TYPES = ("idefics3", "smolvlm")
"""Values of `model_type` in config.json of the supported layouts."""
LARGEST = 4096
"""Maximum width and height of an image, in pixels."""

Source = Callable[[str], bytes]
"""Function from an image's hash to its encoded bytes. Raises KeyError if there is no such image."""


def has_vision(config: Any) -> bool:
    """Return True if a model's config has a vision tower. Raises WeightsError for an unsupported layout."""
    if getattr(config, "vision_config", None) is None:
        return False
    if config.model_type not in MODEL_TYPES:
        raise WeightsError(f"a model of type {config.model_type} sees in another layout than {', '.join(MODEL_TYPES)}")
    return True


@dataclass(frozen=True)
class Vision:
    """Image side of a vision-language model: size and placeholders of an image, and its features."""

    image_token: int
    """Id of the placeholder token."""
    tokens: int
    """Number of placeholder tokens, and of features, per image."""
    size: int
    """Width and height in pixels to which images are scaled."""

    @classmethod
    def of(cls, config: Any) -> Vision | None:
        """Return the vision of a model's config; None for a text model. Raises WeightsError for another layout."""
        if not has_vision(config):
            return None
        vision = config.vision_config
        side = vision.image_size // vision.patch_size
        return cls(config.image_token_id, side * side // config.scale_factor**2, vision.image_size)

    def pixels(self, data: bytes) -> torch.Tensor:
        """Decode an image and scale it to the model's size: float32 [3, size, size] from -1 to 1.

        Raises ValueError for data that is no image, or for one larger than `LARGEST` pixels.
        """
        from PIL import Image

        try:
            with Image.open(io.BytesIO(data)) as image:
                if max(image.size) > LARGEST:
                    raise ValueError(f"an image of {image.width} x {image.height} pixels is too large")
                scaled = image.convert("RGB").resize((self.size, self.size), Image.Resampling.BILINEAR)
        except (OSError, SyntaxError, Image.DecompressionBombError) as error:
            raise ValueError(f"the image cannot be read: {error}") from None
        # Zeros everywhere would count as padding; 127.5 is no level of a byte, so no pixel is 0.
        levels = torch.from_numpy(np.asarray(scaled, np.float32).copy()).permute(2, 0, 1)
        return levels / 127.5 - 1.0

    def features(self, model: Any, pixels: torch.Tensor) -> torch.Tensor:
        """Return the features [M * tokens, width] of images [M, 3, size, size] by the tower and the connector."""
        body = model.base_model
        weight = next(body.vision_model.parameters())
        found = body.get_image_features(pixel_values=pixels[:, None].to(weight.dtype), return_dict=True).pooler_output
        features: torch.Tensor = found.reshape(-1, found.shape[-1])
        return features


@dataclass(frozen=True)
class Images:
    """Distinct images of a forward pass, and the places of their features in its rows."""

    hashes: tuple[str, ...]
    """Hash of each image; M in all."""
    tokens: int
    """Number of tokens per image."""
    prefix: torch.Tensor
    """[P] int64, row of the features [M * tokens, width] for each token of the shared prefix; -1 for text."""
    suffix: torch.Tensor
    """[B, L] int64, the same for the tokens of each row."""

    def to(self, device: torch.device) -> Images:
        """Return the images with all tensors on a device."""
        return Images(self.hashes, self.tokens, self.prefix.to(device), self.suffix.to(device))

    def load(self, vision: Vision, source: Source) -> torch.Tensor:
        """Return the pixels [M, 3, size, size]. Raises ValueError for images of another size in tokens, or missing."""
        if self.tokens != vision.tokens:
            raise ValueError(f"images have {self.tokens} tokens, and the model has {vision.tokens} for each")
        return torch.stack([_pixels(vision, source, name) for name in self.hashes]).to(self.suffix.device)


def images_in(streams: Sequence[Stream], prefix: torch.Tensor, suffix: torch.Tensor) -> Images | None:
    """Return the images of streams whose keys are in `prefix` [P] and `suffix` [B, L]; None without images.

    Raises ValueError if images differ in their number of tokens, or two have the same keys.
    """
    spans = {span.hash: span for stream in streams for span in stream.media}
    if not spans:
        return None
    lengths = {span.length for stream in streams for span in stream.media}
    if len(lengths) > 1:
        raise ValueError(f"images of one pass have different numbers of tokens: {sorted(lengths)}")
    keys = [key for span in spans.values() for key in span.token_keys()]
    rows = {key: row for row, key in enumerate(keys)}
    if len(rows) < len(keys):
        raise ValueError("two images have the same first 48 bits of their hashes")

    def places(of: torch.Tensor) -> torch.Tensor:
        found = [-1 if key >= 0 else rows[key] for key in of.flatten().tolist()]
        return torch.tensor(found, dtype=torch.long).reshape(of.shape)

    return Images(tuple(spans), lengths.pop(), places(prefix), places(suffix))


def embed(model: Any, ids: torch.Tensor, features: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the input embeddings of ids, with features [N, width] at the tokens whose `rows` are not -1."""
    words = model.get_input_embeddings()(ids)
    return torch.where((rows >= 0)[..., None], features.to(words.dtype)[rows.clamp(min=0)], words)


def _pixels(vision: Vision, source: Source, name: str) -> torch.Tensor:
    try:
        return vision.pixels(source(name))
    except KeyError:
        raise ValueError(f"there is no image {name}") from None
    except ValueError as error:
        raise ValueError(f"image {name}: {error}") from None


def text_body(model: Any) -> Any:
    """Return the language model of a model with vision, which maps embeddings to hidden states."""
    return model.base_model.text_model


def no_images(name: str) -> bytes:
    """Source without images."""
    raise KeyError(name)
