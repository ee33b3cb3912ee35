"""Shop domain: tables, policy, customers' goals, and tools."""
