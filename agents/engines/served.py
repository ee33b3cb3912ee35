"""Weights that the in-process engine serves for one policy."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from agents.engines.kv import KVStore
from agents.engines.multi_adapter import MultiAdapterModel
from agents.model_config import NO_LIMIT


@dataclass(kw_only=True)
class ServedPolicy:
    """Policy that the engine serves: its weights, their version, and attention caches of streams and prefixes."""

    weights: Any
    """The published module; None for a folder or an adapter."""
    bf16_copy: Any
    """The module's bfloat16 copy during play, if products are bfloat16."""
    shared_model: MultiAdapterModel | None
    """The shared model of a folder, and adapters on it."""
    version: int
    caches: KVStore
    prefixes: KVStore

    @property
    def model(self) -> Any:
        """Module that decodes: the shared model of a folder or adapters, the bfloat16 copy, or the published module."""
        if self.shared_model is not None:
            return self.shared_model.model
        return self.weights if self.bf16_copy is None else self.bf16_copy

    @property
    def vocabulary(self) -> int:
        """Number of token ids that the model accepts."""
        return int(self.model.get_input_embeddings().weight.shape[0])

    @cached_property
    def positions(self) -> int:
        """Maximum tokens of a context with its reply; NO_LIMIT if the model does not state it."""
        config = self.model.config.get_text_config(decoder=True)
        return getattr(config, "max_position_embeddings", None) or NO_LIMIT
