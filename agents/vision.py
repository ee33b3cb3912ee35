"""Vision: replaces the placeholder tokens of a context's images by the images' features.

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


def require_vision(model: Any, reader: str) -> Vision:
    """Return the vision of a model that reads images. Raises ValueError, naming the `reader`, if it has none."""
    vision = get_vision(model)
    if vision is None:
        raise ValueError(f"{reader} images, and the model has no vision")
    return vision


def has_vision(config: Any) -> bool:
    """Return True if a model's config has a vision tower with a supported layout."""
    return getattr(config, "vision_config", None) is not None and config.model_type in LAYOUTS


def ban_placeholder(config: Any, logits: torch.Tensor) -> torch.Tensor:
    """Set the logit of the image placeholder in `logits` [..., V] to `BANNED`, and return the logits.

    A sampled placeholder would stand for an image that does not exist. Engines and the scorer both ban it, so that its
    probability is 0 in play and in learning.
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
    """Features of a pass's images, one row per image token, and the tokens' places in their images."""

    vision: Vision
    features: torch.Tensor
    """Features of the tokens of all images, [N, width * (1 + depth)]."""
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
        """Return model inputs for ids [B, L]: their embeddings, with row `rows` of the features where it is not -1.

        For models with features for several layers, the inputs include the features of the deeper layers.
        """
        words = model.get_input_embeddings()(ids)
        first, *deep = torch.split(self.features, words.shape[-1], -1)
        shown = rows >= 0
        embedded = torch.where(shown[..., None], first.to(words.dtype)[rows.clamp(min=0)], words)
        if not deep:
            return {"inputs_embeds": embedded}
        layers = [features[rows[shown]] for features in deep]
        return {"inputs_embeds": embedded, "visual_pos_masks": shown, "deepstack_visual_embeds": layers}

    def positions(
        self,
        places: torch.Tensor,
        rows: torch.Tensor,
        before: torch.Tensor | int = 0,
        tree: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the position ids of the tokens at `places` [B, L] in their contexts.

        They equal `places` unless the model has grid positions [3, B, L]. There an image takes as many positions as its
        longer side has tokens (M-RoPE, Wang et al. 2024). `before` are the jumps of the images before these tokens (see
        `compute_jump`). `tree` [B, L, L] marks what each token attends to, by default all before it.
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
        shown, begin = rows >= 0, places - place
        following = shown[:, 1:] & (place[:, 1:] > 0)
        split = (shown & (place > 0))[:, :1] | (following & ~shown[:, :-1]).any(-1, keepdim=True)
        if bool(split.any()):
            raise ValueError("a reply or a shared context begins within an image, which this model reads as a whole")
        image = torch.where(shown, rows - place, -1)
        same = (image[:, :, None] == image[:, None]) & (begin[:, :, None] == begin[:, None])
        return same & shown[:, :, None]


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
    near = keys[:, None] > queries[..., None] - window
    return {"full_attention": visible[:, None], "sliding_attention": (visible & near)[:, None]}


@dataclass(frozen=True)
class Images:
    """Distinct images of a forward pass, and the feature row of each of its tokens."""

    media: tuple[MediaSpan, ...]
    """One span per image."""
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
        return ImageFeatures.compute(require_vision(model, "streams have"), model, self.media, self.suffix.device)


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

    def places(of: torch.Tensor) -> torch.Tensor:
        found = [-1 if key >= 0 else rows[key] for key in of.flatten().tolist()]
        return torch.tensor(found, dtype=torch.long).reshape(of.shape)

    return Images(tuple(spans.values()), places(prefix), places(suffix))


class FeatureCache:
    """Cache of image features for a set of images, each computed when it is first looked up."""

    def __init__(self, model: Any, media: Iterable[MediaSpan]) -> None:
        """Store the images of `media` for look-ups.

        Raises ValueError if the model has no vision or an image has a wrong number of tokens, and WeightsError if the
        model's layout is not supported.
        """
        self._vision, self._model = require_vision(model, "a context has"), model
        for span in (media := set(media)):
            self._vision.grid(span)
        self._spans = {key: (span, at) for span in media for at, key in enumerate(span.token_keys())}
        self._first: dict[tuple[str, object], int] = {}
        """First row in `_seen` of each image's features, by hash and size."""
        self._seen: ImageFeatures | None = None

    def look_up(self, keys: torch.Tensor) -> tuple[ImageFeatures, torch.Tensor]:
        """Return the features and the row of each token in them, -1 for text.

        `keys` [B, W] int64 are token ids, and negative keys of image tokens.

        `keys` [B, W] int64 are the ids of text tokens and the keys (below 0) of image tokens. Raises ValueError for an
        image that cannot be read or does not fit the model.
        """
        tokens = [[self._spans[key] if key < 0 else None for key in row] for row in keys.tolist()]
        spans = {(token[0].hash, token[0].size): token[0] for row in tokens for token in row if token}
        new = [span for name, span in spans.items() if name not in self._first]
        for start in range(0, len(new), MAX_IMAGES):
            self._compute(new[start : start + MAX_IMAGES])
        assert self._seen is not None
        rows = [
            [self._first[token[0].hash, token[0].size] + token[1] if token else -1 for token in row] for row in tokens
        ]
        return self._seen, torch.tensor(rows, device=keys.device)

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
        start = 0 if self._seen is None else len(self._seen.features)
        more = ImageFeatures.compute(self._vision, self._model, media, device)
        self._seen = more if self._seen is None else self._seen.concatenate(more)
        for span in media:
            self._first[span.hash, span.size] = start
            start += span.length
