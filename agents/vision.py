"""Vision: the images of a context as features in place of its placeholder tokens.

Models in the layout of Idefics3 and SmolVLM (Marafioti et al. 2025) have a vision tower, a connector and a causal
language model with one position per token. The tower and the connector run once per distinct image of a pass. Models
with other positions for images, such as Qwen2-VL, are refused: their attention caches need positions of the whole past.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from agents.errors import WeightsError
from agents.model_config import VISION_TYPES
from agents.stream import MediaSpan, Stream

LARGEST = 4096
"""Maximum width and height of an image, in pixels."""


def has_vision(config: Any) -> bool:
    """Return True if a model's config has a vision tower. Raises WeightsError for an unsupported layout."""
    if getattr(config, "vision_config", None) is None:
        return False
    if config.model_type not in VISION_TYPES:
        raise WeightsError(f"a model of type {config.model_type} sees in another layout than {', '.join(VISION_TYPES)}")
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
        from PIL import Image, UnidentifiedImageError

        try:
            with Image.open(io.BytesIO(data)) as image:
                if max(image.size) > LARGEST:
                    raise ValueError(f"an image of {image.width} x {image.height} pixels is too large")
                scaled = image.convert("RGB").resize((self.size, self.size), Image.Resampling.BILINEAR)
        except UnidentifiedImageError:  # whose message is the address of an object
            raise ValueError("the image cannot be read: its format is unknown") from None
        except (OSError, SyntaxError, Image.DecompressionBombError) as error:
            raise ValueError(f"the image cannot be read: {error}") from None
        # Zeros everywhere would count as padding; 127.5 is no level of a byte, so no pixel is 0.
        levels = torch.from_numpy(np.asarray(scaled, np.float32).copy()).permute(2, 0, 1)
        return levels / 127.5 - 1.0

    def pixels_of(self, span: MediaSpan) -> torch.Tensor:
        """Return `pixels` of a span's image. Raises ValueError, with its hash, for an image that cannot be read."""
        try:
            return self.pixels(span.data)
        except ValueError as error:
            raise ValueError(f"image {span.hash}: {error}") from None

    def features(self, model: Any, pixels: torch.Tensor) -> torch.Tensor:
        """Return the features [M * tokens, width] of images [M, 3, size, size] by the tower and the connector."""
        body, tower = model.base_model, model.base_model.vision_model
        patch = tower.embeddings.patch_embedding
        patches = patch(pixels.to(patch.weight.dtype)).flatten(2).transpose(1, 2)
        # In place of the model's own positions, which rounding misplaces on most grids: 11 of 6 x 6 in bfloat16.
        places = tower.embeddings.position_embedding(torch.arange(patches.shape[1], device=pixels.device))
        hidden = tower.encoder(inputs_embeds=patches + places, attention_mask=None).last_hidden_state
        features: torch.Tensor = body.connector(tower.post_layernorm(hidden))
        return features.reshape(-1, features.shape[-1])


@dataclass(frozen=True)
class Images:
    """Distinct images of a forward pass, and the places of their features in its rows."""

    media: tuple[MediaSpan, ...]
    """A span of each image; M in all."""
    tokens: int
    """Number of tokens per image."""
    prefix: torch.Tensor
    """[P] int64, row of the features [M * tokens, width] for each token of the shared prefix; -1 for text."""
    suffix: torch.Tensor
    """[B, L] int64, the same for the tokens of each row."""

    def to(self, device: torch.device) -> Images:
        """Return the images with all tensors on a device."""
        return Images(self.media, self.tokens, self.prefix.to(device), self.suffix.to(device))

    def load(self, vision: Vision) -> torch.Tensor:
        """Return the pixels [M, 3, size, size]. Raises ValueError for images of another number of tokens."""
        if self.tokens != vision.tokens:
            raise ValueError(f"images have {self.tokens} tokens, and the model has {vision.tokens} for each")
        return torch.stack([vision.pixels_of(span) for span in self.media]).to(self.suffix.device)


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

    return Images(tuple(spans.values()), lengths.pop(), places(prefix), places(suffix))


def embed(model: Any, ids: torch.Tensor, features: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the input embeddings of ids, with features [N, width] at the tokens whose `rows` are not -1."""
    words = model.get_input_embeddings()(ids)
    return torch.where((rows >= 0)[..., None], features.to(words.dtype)[rows.clamp(min=0)], words)


class Features:
    """Features of the images among some keys, computed without gradients when a pass first needs an image."""

    def __init__(self, model: Any, media: Iterable[MediaSpan]) -> None:
        """Raise ValueError if the model has no vision, and WeightsError if its layout is not supported."""
        vision = Vision.of(model.config)
        if vision is None:
            raise ValueError("a context has images, and the model has no vision")
        self._model, self._vision = model, vision
        self._spans = {key: (span, at) for span in set(media) for at, key in enumerate(span.token_keys())}
        self._rows: dict[str, int] = {}
        """First row in `_known` of each image's features, by hash."""
        self._known: torch.Tensor | None = None

    def embed(self, keys: torch.Tensor) -> torch.Tensor:
        """Return the input embeddings [B, W, width] of ids, and of images' keys, [B, W] int64.

        Raises ValueError for an image that cannot be read, or that has another number of tokens than the model's.
        """
        wanted = [[self._spans[key] if key < 0 else None for key in row] for row in keys.tolist()]
        new = {one[0].hash: one[0] for row in wanted for one in row if one and one[0].hash not in self._rows}
        spans = [*new.values()]
        for start in range(0, len(spans), MOST_IMAGES):
            self._compute(spans[start : start + MOST_IMAGES])
        rows = [[self._rows[one[0].hash] + one[1] if one else -1 for one in row] for row in wanted]
        known = self._known if self._known is not None else keys.new_zeros((1, 1), dtype=torch.float32)
        return embed(self._model, keys.clamp(min=0), known, torch.tensor(rows, device=keys.device))

    def _compute(self, media: Sequence[MediaSpan]) -> None:
        if wrong := next((span for span in media if span.length != self._vision.tokens), None):
            raise ValueError(f"an image has {wrong.length} tokens, and the model has {self._vision.tokens} for each")
        device = self._model.get_input_embeddings().weight.device
        pixels = torch.stack([self._vision.pixels_of(span) for span in media]).to(device)
        features = self._vision.features(self._model, pixels)
        start = 0 if self._known is None else len(self._known)
        self._known = features if self._known is None else torch.cat([self._known, features])
        self._rows |= {span.hash: start + i * self._vision.tokens for i, span in enumerate(media)}


MOST_IMAGES = 32
"""Maximum number of images that pass through the vision tower at once when a context is read."""


def text_body(model: Any) -> Any:
    """Return the language model of a model with vision, which maps embeddings to hidden states."""
    return model.base_model.text_model
