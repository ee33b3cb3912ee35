"""Build a model's arguments for a decoding pass: ids or embeddings with image features, positions and masks."""

from collections.abc import Collection, Sequence
from typing import Any

import torch

from agents.packing import Ids
from agents.stream import MediaSpan
from agents.vision import FeatureCache, build_layer_masks, get_vision, has_vision, text_body


class Inputs:
    """Builder of the model's arguments for passes over requests' tokens and images. Call it with a pass's tokens."""

    def __init__(self, model: Any, media: Collection[MediaSpan]) -> None:
        """Prepare for the requests' images, which are computed when a pass first needs them.

        Raises ValueError if the model has no vision or an image has a wrong number of tokens.
        """
        self._model = model
        self._features = FeatureCache(model, media) if media else None
        vision = get_vision(model) if has_vision(model.config) else None
        self._is_bidirectional = vision is not None and vision.is_bidirectional
        """Whether tokens of one image attend to each other in both directions."""

    @property
    def has_images(self) -> bool:
        """True if any context has images."""
        return self._features is not None

    def compute_jump(self, ids: Ids) -> int:
        """Return the next token's position minus the number of `ids`, which are token ids and keys of images."""
        return self._features.compute_jump(ids) if self._features and self._features.has_jumps else 0

    def stack_jumps(self, jumps: Sequence[int]) -> torch.Tensor | int:
        """Return the jumps of rows as a tensor [B, 1]; 0 if all are 0."""
        return torch.tensor(jumps, device=next(self._model.parameters()).device)[:, None] if any(jumps) else 0

    def __call__(
        self, tokens: torch.Tensor, mask: torch.Tensor, places: torch.Tensor, jumps: torch.Tensor | int
    ) -> dict[str, Any]:
        """Return the model's arguments for tokens [B, W], ids and images' keys, at `places` [B, W] of their contexts.

        `jumps` [B, 1] are those of the contexts before the tokens. The bool mask marks the columns that hold tokens,
        [B, S], or the columns to which each token attends, [B, 1, W, S].
        """
        has_images = self._features is not None and bool((tokens < 0).any())
        features, rows = self._features.look_up(tokens) if self._features and has_images else (None, tokens)
        inputs: dict[str, Any] = {"attention_mask": mask.long() if mask.dim() == 2 else mask}
        if self._is_bidirectional:
            width, keys = tokens.shape[1], mask.long().cumsum(-1) - 1
            visible = mask[:, None] & (keys[:, None] <= places[..., None])
            visible[..., -width:] |= torch.eye(width, dtype=torch.bool, device=mask.device)  # or padding would be NaN
            if features is not None:
                visible[..., -width:] |= features.same_image_mask(places, rows)
            inputs["attention_mask"] = build_layer_masks(self._model, visible, places, keys)
        if features is None:
            return inputs | {"input_ids": tokens, "position_ids": places + jumps}
        tree = mask[:, 0, :, -tokens.shape[1] :] if mask.dim() == 4 else None
        positions = features.positions(places, rows, jumps, tree)
        return inputs | features.embed(self._model, tokens.clamp(min=0), rows) | {"position_ids": positions}


def compute_last_logits(model: Any, inputs: dict[str, Any]) -> torch.Tensor:
    """Run a model and return the logits [B, vocabulary] of the last column."""
    if "visual_pos_masks" not in inputs:
        return model(**inputs, logits_to_keep=1).logits[:, -1]  # type: ignore[no-any-return]
    hidden = text_body(model)(**inputs).last_hidden_state  # the full model does not accept features of further layers
    return model.get_output_embeddings()(hidden[:, -1])  # type: ignore[no-any-return]
