"""Settings of the inference engine."""

import sys
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from agents.engines.kinds import ENGINES, check_kind, import_engine

if TYPE_CHECKING:
    from agents.engines.base import Capabilities


class EngineSpec(BaseModel):
    """Settings of the inference engine: `in_process`, `vllm`, or another of `arena list engines`."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True)

    kind: Annotated[str, AfterValidator(check_kind), Field(json_schema_extra={"enum": [*ENGINES]})] = "in_process"
    """`in_process`: transformers on the trainer's own weights; `vllm`: a separate server, which has to be installed."""
    max_batch: Annotated[int, Field(ge=1, le=10**5)] = 256
    """Maximum number of replies decoded at once."""
    cache_mb: Annotated[int, Field(ge=1, le=10**8)] = 2048
    """Megabytes of attention caches kept between turns: per policy, or per base model with vllm."""
    max_model_len: Annotated[int, Field(ge=16, le=10**8)] = 4096
    """Maximum tokens of a context with its reply with vllm, capped by the model's positions."""
    max_loras: Annotated[int, Field(ge=1, le=1024)] = 8
    """Maximum adapters of one base in a vllm batch; further ones wait."""
    entropy: bool = False
    """Whether to log the entropy of each sampled token's distribution; in_process only."""

    @property
    def capabilities(self) -> "Capabilities":
        """Capabilities of this kind of engine. Imports its module."""
        return import_engine(self.kind).capabilities

    @property
    def max_context(self) -> int:
        """Maximum tokens of a context with its reply that the engine supports for any model."""
        return self.max_model_len if self.capabilities.limits_context else sys.maxsize
