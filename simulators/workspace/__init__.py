"""Workspace simulator: an agent does tasks on files, tickets and a calendar with typed tools."""

from simulators.workspace.workspace import Workspace

__all__ = ["Workspace"]
