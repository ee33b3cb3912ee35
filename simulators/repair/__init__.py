"""A small repository of failing functions to edit, test and submit."""

from simulators.repair.repair import Repair

__all__ = ["Repair"]
