"""Code repair simulator: edit, test and submit a small repository of failing functions."""

from simulators.repair.repair import Repair

__all__ = ["Repair"]
