"""Airline domain: tables, policy, customers' goals, and tools."""
