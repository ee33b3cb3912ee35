"""Tools for any seat of any game: Python functions, MCP servers and confined code, given by configuration."""

from simulators.toolbox.equipment import equip

__all__ = ["equip"]
