"""A customer's phone: its settings, state and tools, and the agent's instructions about it."""
