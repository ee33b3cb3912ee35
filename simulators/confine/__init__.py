"""The only package that runs model-written code: SQL under an authorizer, Python in an isolated cell."""

from simulators.base import SimulatorFault


class ConfineError(SimulatorFault):
    """Raised if this system cannot confine model-written code; the message says how to fix it."""
