"""Which engine serves tokens, and the making of it: the only place that does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from agents.engines.base import Engine


class EngineSpec(BaseModel):
    """What serves tokens."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True)

    kind: Literal["in_process"] = "in_process"
    """`in_process`: transformers, on the trainer's own weights."""
    max_batch: Annotated[int, Field(ge=1)] = 256
    """The most replies that are written at once."""
    cache_mb: Annotated[int, Field(ge=1)] = 2048
    """Attention caches kept between turns, per policy."""


def make_engine(spec: EngineSpec, bf16: bool = False) -> Engine:
    """The engine of a spec, not yet open; with `bf16` it computes as a trainer under autocast does."""
    from agents.engines.in_process import InProcessEngine

    return InProcessEngine(bf16, spec.max_batch, spec.cache_mb << 20)
