"""The customer's phone: its settings, its state and tools, and instructions about it."""
