"""What models write is run here, and nowhere else: SQL under an authorizer, Python in a cell of its own."""

from simulators.base import SimulatorFault


class ConfineError(SimulatorFault):
    """This system cannot confine what a model wrote; the text says what is missing and how to get it."""
