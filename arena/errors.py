"""What ends a command with one line for the user; here, since who catches it need not load who raises it."""


class _OneLine(Exception):
    """Its message stays on one line, whatever name or value it repeats."""

    def __init__(self, message: str) -> None:
        """A line's end becomes a blank."""
        super().__init__(" ".join(message.splitlines()))


class ConfigError(_OneLine):
    """An experiment that cannot be run; the message is one line that says what, where and how to fix it."""


class PlayError(_OneLine):
    """Matches kept failing; the message says why in one line."""


class Interrupted(Exception):
    """Somebody stopped the run; the message says how to go on."""


class StoreError(_OneLine):
    """Something is wrong with a run folder; the message is one line that says what to do."""


class GateError(Exception):
    """Sampler and trainer disagree on the same tokens; the message has the numbers."""


class DivergedError(Exception):
    """An update went to numbers that are not finite; the message says whose, where, and what to try."""


class OutOfMemory(_OneLine):
    """The accelerator's memory was not enough; the message says what makes a run need less."""
