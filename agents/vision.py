"""Vision: compute the features of a context's images, which replace the embeddings of their placeholder tokens.

The tower and the connector run once per distinct image of a pass. `agents.eyes` has a class per family of models, with
what differs between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from agents.eyes.layout import Vision
from agents.layouts import LAYOUTS, create_vision
from agents.stream import MediaSpan, Stream

BANNED = -1e30
"""Logit of the image placeholder: finite, so that its term in the entropy is 0 and not NaN."""
MAX_IMAGES = 32
"""Maximum number of images that the vision tower processes at once when a context is read."""


def get_vision(model: Any) -> Vision | None:
    """Return the model's vision, with its folder's image processor if `load_model` loaded it; None for a text model.

    Raises WeightsError for an unsupported layout.
    """
    return getattr(model, "vision", None) or create_vision(model.config)


def require_vision(model: Any, reason: str) -> Vision:
    """Return a model's vision. Raises ValueError if it has none; its message begins with `reason`."""
    vision = get_vision(model)
    if vision is None:
        raise ValueError(f"{reason}, but the model has no vision")
    return vision


def has_vision(config: Any) -> bool:
    """Return True if a model's config has a vision tower with a supported layout."""
    return getattr(config, "vision_config", None) is not None and config.model_type in LAYOUTS


def ban_placeholder(config: Any, logits: torch.Tensor) -> torch.Tensor:
    """Set the logit of the image placeholder in `logits` [..., V] to `BANNED` in place, and return the logits.

    A sampled placeholder would count as an image that does not exist. Engines and the scorer both call this, so that
    its probability is 0 in play and in learning. Does nothing for a model without vision.
    """
    if has_vision(config):
        logits[..., config.image_token_id] = BANNED
    return logits


def text_body(model: Any) -> Any:
    """Return the language model without its head, which maps embeddings to hidden states."""
    body = model.base_model
    return getattr(body, "text_model", None) or getattr(body, "language_model", None) or body


@dataclass(frozen=True)
class ImageFeatures:
    """Features of the images of a forward pass, one row per image token, and the tokens' places in their images."""

    vision: Vision
    features: torch.Tensor
    """[N, width * (1 + depth)], features of the tokens of all images; see `Vision.depth`."""
    grids: torch.Tensor
    """Rows and columns of each token's image, and the token's index in it, [N, 3] int64."""

    @classmethod
    def compute(cls, vision: Vision, model: Any, media: Sequence[MediaSpan], device: torch.device) -> ImageFeatures:
        """Compute the features of the images in `media`, in that order.

        Raises ValueError, with the image's hash, for one that cannot be read or has a wrong number of tokens.
        """
        pixels = [vision.load_pixels(span).to(device) for span in media]
        grids = [(*vision.grid(span), place) for span in media for place in range(span.length)]
        return cls(vision, vision.features(model, pixels), torch.tensor(grids, device=device))

    def concatenate(self, more: ImageFeatures) -> ImageFeatures:
        """Return these images followed by others."""
        features, grids = torch.cat([self.features, more.features]), torch.cat([self.grids, more.grids])
        return ImageFeatures(self.vision, features, grids)

    def embed(self, model: Any, ids: torch.Tensor, rows: torch.Tensor) -> dict[str, Any]:
        """Return the model's arguments with the embeddings of ids [B, L] and of images.

        `rows` [B, L] are the rows of the features for image tokens, or -1 for ids. Models that add features at several
        layers (DeepStack) get those of the further layers as separate arguments.
        """
        words = model.get_input_embeddings()(ids)
        first, *deep = torch.split(self.features, words.shape[-1], -1)
        is_image = rows >= 0
        embedded = torch.where(is_image[..., None], first.to(words.dtype)[rows.clamp(min=0)], words)
        if not deep:
            return {"inputs_embeds": embedded}
        layers = [features[rows[is_image]] for features in deep]
        return {"inputs_embeds": embedded, "visual_pos_masks": is_image, "deepstack_visual_embeds": layers}

    def positions(
        self,
        places: torch.Tensor,
        rows: torch.Tensor,
        before: torch.Tensor | int = 0,
        tree: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the position ids of tokens at `places` [B, L] of their contexts: [3, B, L] with M-RoPE, else `places`.

        With M-RoPE (Wang et al. 2024) an image takes as many positions as its longer side has tokens. `before` are the
        jumps of the images before these tokens (see `compute_jump`). `tree` [B, L, L] marks the tokens to which each
        token attends; by default these are all tokens before it.
        """
        if not self.vision.has_grid_positions:
            return places
        _, width, place = self.grids[rows.clamp(min=0)].unbind(-1)
        ends, place = self._place_jumps(rows), torch.where(rows >= 0, place, 0)
        with torch.autocast(rows.device.type, enabled=False):  # bfloat16 would round the sums
            passed = ends.cumsum(-1) if tree is None else (tree.float() @ ends.float()[..., None])[..., 0].long()
        start = places + before + passed - ends - place
        return torch.stack([start, start + place // width, start + place % width])

    def compute_jumps(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the sum of the images' jumps (see `compute_jump`) in each row of tokens [..., L]: [...] int64."""
        return self._place_jumps(rows).sum(-1) if self.vision.has_grid_positions else torch.zeros_like(rows[..., 0])

    def _place_jumps(self, rows: torch.Tensor) -> torch.Tensor:
        """Return each image's jump at its last token, and 0 at all other tokens."""
        height, width, place = self.grids[rows.clamp(min=0)].unbind(-1)
        is_end = (rows >= 0) & (place == height * width - 1)
        return torch.where(is_end, torch.maximum(height, width) - height * width, 0)

    def same_image_mask(self, places: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Return a mask of the pairs of tokens [B, L] that belong to the same image: [B, L, L] bool.

        Raises ValueError if the tokens begin within an image, because its earlier tokens could not attend to them.
        """
        place = self.grids[rows.clamp(min=0)][..., 2]
        is_image, begin = rows >= 0, places - place
        following = is_image[:, 1:] & (place[:, 1:] > 0)
        split = (is_image & (place > 0))[:, :1] | (following & ~is_image[:, :-1]).any(-1, keepdim=True)
        if bool(split.any()):
            raise ValueError("a reply or a shared context begins within an image, which this model reads as a whole")
        image = torch.where(is_image, rows - place, -1)
        same = (image[:, :, None] == image[:, None]) & (begin[:, :, None] == begin[:, None])
        return same & is_image[:, :, None]


def compute_jump(vision: Vision, span: MediaSpan) -> int:
    """Return an image's jump, its number of positions minus its number of tokens; at most 0."""
    height, width = vision.grid(span)
    return max(height, width) - span.length if vision.has_grid_positions else 0


def build_layer_masks(
    model: Any, visible: torch.Tensor, queries: torch.Tensor, keys: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Return attention masks by kind of layer: sliding layers get the model's window.

    `visible` [B, Q, S] marks which tokens at places `keys` [B, S] those at `queries` [B, Q] may attend to.
    """
    window = model.config.get_text_config().sliding_window or 1 << 30
    in_window = keys[:, None] > queries[..., None] - window
    return {"full_attention": visible[:, None], "sliding_attention": (visible & in_window)[:, None]}


@dataclass(frozen=True)
class Images:
    """Distinct images of a forward pass, and the feature row of each of its tokens."""

    media: tuple[MediaSpan, ...]
    """Span of each image."""
    prefix: torch.Tensor
    """Row of the features for each token of the shared prefix, [P] int64; -1 for text."""
    suffix: torch.Tensor
    """The same for the tokens of each row, [B, L] int64."""

    def to(self, device: torch.device) -> Images:
        """Return a copy with all tensors on the device."""
        return Images(self.media, self.prefix.to(device), self.suffix.to(device))

    def compute_features(self, model: Any) -> ImageFeatures:
        """Compute the images' features, with gradients.

        Raises ValueError if the model has no vision, or if an image cannot be read or does not fit the model. Raises
        WeightsError for an unsupported layout.
        """
        vision = require_vision(model, "streams have images")
        return ImageFeatures.compute(vision, model, self.media, self.suffix.device)


def collect_images(streams: Sequence[Stream], prefix: torch.Tensor, suffix: torch.Tensor) -> Images | None:
    """Return the images of streams whose keys are in `prefix` [P] and `suffix` [B, L]; None if they have no images.

    Raises ValueError if two images have the same keys, or if spans of one image differ in their number of tokens.
    """
    spans = {(span.hash, span.size): span for stream in streams for span in stream.media}
    if not spans:
        return None
    if any(spans[span.hash, span.size].length != span.length for stream in streams for span in stream.media):
        raise ValueError("one image has different numbers of tokens in a pass")
    keys = [key for span in spans.values() for key in span.token_keys()]
    rows = {key: row for row, key in enumerate(keys)}
    if len(rows) < len(keys):
        raise ValueError("two images have the same first 48 bits of their hashes")

    def find_rows(keys: torch.Tensor) -> torch.Tensor:
        found = [-1 if key >= 0 else rows[key] for key in keys.flatten().tolist()]
        return torch.tensor(found, dtype=torch.long).reshape(keys.shape)

    return Images(tuple(spans.values()), find_rows(prefix), find_rows(suffix))


class FeatureCache:
    """Cache of image features, which are computed without gradients when a forward pass first needs an image."""

    def __init__(self, model: Any, media: Iterable[MediaSpan]) -> None:
        """Prepare for the images of `media`; none is computed yet.

        Raises ValueError if the model has no vision or an image has a wrong number of tokens, and WeightsError if the
        model's layout is not supported.
        """
        self._vision, self._model = require_vision(model, "a context has images"), model
        for span in (media := set(media)):
            self._vision.grid(span)
        self._spans = {key: (span, at) for span in media for at, key in enumerate(span.token_keys())}
        self._first: dict[tuple[str, object], int] = {}
        """First row in `_features` of each image, by hash and size."""
        self._features: ImageFeatures | None = None

    def look_up(self, keys: torch.Tensor) -> tuple[ImageFeatures, torch.Tensor]:
        """Return the features and, for each of the keys [B, W] int64, its row in them; -1 for text.

        `keys` [B, W] int64 are token ids, and negative keys of image tokens.

        `keys` [B, W] int64 are the ids of text tokens and the keys (below 0) of image tokens. Raises ValueError for an
        image that cannot be read or does not fit the model.
        """
        tokens = [[self._spans[key] if key < 0 else None for key in row] for row in keys.tolist()]
        spans = {(token[0].hash, token[0].size): token[0] for row in tokens for token in row if token}
        new = [span for name, span in spans.items() if name not in self._first]
        for start in range(0, len(new), MAX_IMAGES):
            self._compute(new[start : start + MAX_IMAGES])
        assert self._features is not None
        rows = [
            [self._first[token[0].hash, token[0].size] + token[1] if token else -1 for token in row] for row in tokens
        ]
        return self._features, torch.tensor(rows, device=keys.device)

    @property
    def has_jumps(self) -> bool:
        """Whether an image can take fewer positions than tokens."""
        return self._vision.has_grid_positions

    def compute_jump(self, keys: Sequence[int]) -> int:
        """Return the next token's position minus the number of `keys`: the sum of their images' jumps.

        `keys` are token ids and the keys of whole images.
        """
        found = (self._spans[key] for key in keys if key < 0)
        return sum(compute_jump(self._vision, span) for span, at in found if at == span.length - 1)

    def _compute(self, media: Sequence[MediaSpan]) -> None:
        device = self._model.get_input_embeddings().weight.device
        start = 0 if self._features is None else len(self._features.features)
        more = ImageFeatures.compute(self._vision, self._model, media, device)
        self._features = more if self._features is None else self._features.concatenate(more)
        for span in media:
            self._first[span.hash, span.size] = start
            start += span.length
