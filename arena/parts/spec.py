"""Base class and common field types of an experiment's settings."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

STRICT = ConfigDict(strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)
"""Unknown keys and wrong types are errors."""
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Positive = Annotated[int, Field(ge=1, le=10**9)]
"""Positive number. The limit is beyond any use, but within the integers of torch and NumPy."""
Count = Annotated[int, Field(ge=1, le=10**4)]
"""Number of sequential repetitions, such as an update's passes."""
Matches = Annotated[int, Field(ge=1, le=10**6)]
"""Number of matches, which are all planned and held in memory at once."""


class Spec(BaseModel):
    """Base of all settings of an experiment: unknown keys and wrong types are errors."""

    model_config = STRICT
