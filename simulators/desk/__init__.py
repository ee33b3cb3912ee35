"""Service desk simulator: an agent with tools serves a simulated customer within a policy."""

from simulators.desk.desk import Desk

__all__ = ["Desk"]
