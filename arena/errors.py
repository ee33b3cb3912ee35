"""What ends a command with one line for the user; here, since who catches it need not load who raises it."""


class ConfigError(Exception):
    """An experiment that cannot be run; the message is one line that says what, where and how to fix it."""


class PlayError(Exception):
    """Matches kept failing; the message says why in one line."""


class Interrupted(Exception):
    """Somebody stopped the run; the message says how to go on."""


class StoreError(Exception):
    """Something is wrong with a run folder; the message is one line that says what to do."""


class GateError(Exception):
    """Sampler and trainer disagree on the same tokens; the message has the numbers."""


class DivergedError(Exception):
    """An update went to numbers that are not finite; the message says whose, where, and what to try."""
