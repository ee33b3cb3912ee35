"""Tokenizers with tool templates and their chat frames."""

from typing import Any

import pytest

from agents.chat import ChatFrame
from tests.factories.tool_templates import TOOL_FAMILIES, build_tool_tokenizer


@pytest.fixture(scope="session")
def tokenizers() -> dict[str, Any]:
    """Return the tokenizer of each family with tools."""
    return {family: build_tool_tokenizer(family) for family in TOOL_FAMILIES}


@pytest.fixture(scope="session")
def frames(tokenizers: dict[str, Any]) -> dict[str, ChatFrame]:
    """Return the chat frame of each family with tools."""
    return {family: ChatFrame(tokenizer) for family, tokenizer in tokenizers.items()}
