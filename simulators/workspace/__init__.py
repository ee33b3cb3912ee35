"""Workspace simulator: an agent does tasks over files, tickets and a calendar by typed tools."""

from simulators.workspace.workspace import Workspace

__all__ = ["Workspace"]
