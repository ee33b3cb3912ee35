"""Settings and spend limits of an endpoint."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from agents.errors import EndpointError


def plain_url(url: str) -> str:
    """Return the URL unchanged. Raises ValueError if it is malformed or contains a user, a password, ? or #."""
    try:
        _ = urlsplit(url).port
        is_url = re.fullmatch(r"https?://[^\s/@?#]+(/[^\s@?#]*)?", url) and url.isprintable()
    except ValueError:  # malformed brackets or port
        is_url = None
    if not is_url:
        raise ValueError("a url is http://HOST:PORT/v1 or https://…, without a user, a password, ? or #")
    return url


class EndpointSpec(BaseModel):
    """Settings of one OpenAI-compatible server, shared by all matches of a run."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True)

    url: str | None = None
    """Base URL of the API, such as http://localhost:8000/v1; default OPENAI_BASE_URL, else OpenAI's own."""
    key_variable: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")] | None = None
    """Environment variable with the key; default OPENAI_API_KEY, which is optional for a server with a url."""
    seconds: Annotated[float, Field(gt=0)] = 60.0
    """Timeout of one attempt, from request to complete reply."""
    attempts: Annotated[int, Field(ge=1, le=20)] = 4
    """Number of attempts before the match fails."""
    requests_per_minute: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """Maximum requests per minute over all matches; null is no limit."""
    images: bool = False
    """Whether the server's models have vision: a game's images are sent as data URLs, not as placeholder texts."""
    seed: bool = True
    """Whether requests carry a seed, for servers that support it."""
    max_tokens: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """Spend limit in tokens, read and written, over all matches."""
    max_cost: Annotated[float, Field(gt=0)] | None = None
    """Spend limit in the prices' currency."""
    price_in: Annotated[float, Field(ge=0)] = 0.0
    """Price of a million input tokens."""
    price_out: Annotated[float, Field(ge=0)] = 0.0
    """Price of a million output tokens."""

    @field_validator("url")
    @classmethod
    def _plain_url(cls, url: str | None) -> str | None:
        return None if url is None else plain_url(url)

    @model_validator(mode="after")
    def _check_prices(self) -> EndpointSpec:
        if self.max_cost is not None and not (self.price_in or self.price_out):
            raise ValueError("max_cost needs prices: add price_in and price_out, per million tokens")
        return self


class Spend:
    """Account of a run's input and output tokens at a server, with the server's spend limits.

    A call first reserves its maximum, so that no limit is exceeded.
    """

    def __init__(self, spec: EndpointSpec) -> None:
        self.spec, self.input_tokens, self.output_tokens = spec, 0, 0

    @property
    def cost(self) -> float:
        """Total cost so far in the prices' currency, reservations included."""
        return (self.input_tokens * self.spec.price_in + self.output_tokens * self.spec.price_out) / 1e6

    def add(self, input_tokens: int, output_tokens: int) -> None:
        """Add input and output tokens; negative numbers cancel or correct a reservation."""
        self.input_tokens, self.output_tokens = self.input_tokens + input_tokens, self.output_tokens + output_tokens

    def reserve(self, input_tokens: int, output_tokens: int) -> None:
        """Reserve tokens for one call by adding them. Raises EndpointError if the call could exceed a limit."""
        self.add(input_tokens, output_tokens)
        tokens, spec = self.input_tokens + self.output_tokens, self.spec
        over = spec.max_tokens is not None and tokens > spec.max_tokens
        too_expensive = spec.max_cost is not None and self.cost > spec.max_cost
        if over or too_expensive:
            limit = f"{spec.max_tokens} tokens" if over else f"{spec.max_cost:g}"
            self.add(-input_tokens, -output_tokens)
            used = f"{self.input_tokens + self.output_tokens} tokens" if over else f"{self.cost:.4g}"
            raise EndpointError(f"spend limit: {limit} for the whole run, {used} used, and the next call may exceed it")
