"""A shop: its tables, its policy, what its customers ask for, and its tools."""
