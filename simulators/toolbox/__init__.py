"""Tools that a configuration gives to seats of any game: Python functions, MCP servers and confined code."""

from simulators.toolbox.equipment import equip

__all__ = ["equip"]
