"""A small repository of failing functions, to be edited, run and submitted."""

from simulators.repair.repair import Repair

__all__ = ["Repair"]
