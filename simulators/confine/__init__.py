"""The only place where code of models is run: SQL under an authorizer, Python in a cell of its own."""

from simulators.base import SimulatorFault


class ConfineError(SimulatorFault):
    """This system cannot confine what a model wrote; the text says what is missing and how to get it."""
