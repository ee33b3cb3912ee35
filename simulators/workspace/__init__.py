"""Workspace simulator: an agent changes files, tickets and a calendar by typed tools until they are as a task wants."""

from simulators.workspace.workspace import Workspace

__all__ = ["Workspace"]
