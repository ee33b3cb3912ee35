"""Phone of a customer: settings, state, tools, and instructions about it."""
