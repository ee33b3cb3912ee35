"""Common base of all parts of an experiment: how strict they are, names, counts."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

STRICT = ConfigDict(strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)
"""Unknown keys and wrong types are errors."""
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
Positive = Annotated[int, Field(ge=1, le=10**9)]
Count = Annotated[int, Field(ge=1, le=10**4)]
"""Of what is gone through one by one, such as the parts of an update."""
"""Far beyond any use, and still within what torch and NumPy count with."""
Matches = Annotated[int, Field(ge=1, le=10**6)]
"""All of them are planned, and held, at once."""


class Spec(BaseModel):
    """Base of all settings of an experiment: unknown keys and wrong types are errors."""

    model_config = STRICT
