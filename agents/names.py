"""Suggestions for mistyped names."""

from games.names import nearest

__all__ = ["nearest"]
