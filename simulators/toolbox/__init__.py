"""Tools that a configuration gives to seats of any game: Python functions, MCP servers and confined code."""
