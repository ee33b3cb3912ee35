"""Settings of the inference engine."""

import sys
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class EngineSpec(BaseModel):
    """Settings of the inference engine."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True)

    kind: Literal["in_process", "vllm"] = "in_process"
    """`in_process`: transformers, on the trainer's own weights; `vllm`: a server beside, which has to be installed."""
    max_batch: Annotated[int, Field(ge=1, le=10**5)] = 256
    """The most replies that are written at once."""
    cache_mb: Annotated[int, Field(ge=1, le=10**8)] = 2048
    """Megabytes of attention caches kept between turns: per policy, with vllm per base model."""
    max_model_len: Annotated[int, Field(ge=16, le=10**8)] = 4096
    """With vllm, the most tokens of a context and its reply; never more than the model's positions."""
    max_loras: Annotated[int, Field(ge=1, le=1024)] = 8
    """With vllm, adapters of one base in a batch; further ones wait."""
    entropy: bool = False
    """Whether the log keeps the entropy of the distribution that each token was sampled from; in_process only."""

    @property
    def max_context(self) -> int:
        """Maximum tokens of a context with its reply that the engine supports for any model."""
        return self.max_model_len if self.kind == "vllm" else sys.maxsize
