"""Errors of agents, one line each for the user; in a light module, so that catching them loads nothing else."""


class ChatError(Exception):
    """A tokenizer that no chat frame can be made from: one line which says why and how to fix it."""


class RoleError(Exception):
    """A role that cannot be used; its text is one line that says which, where and why."""


class ContextFull(Exception):
    """A context that holds no further turn, though all was summed up that may be: its text says so in one line."""


class WeightsError(Exception):
    """Weights that cannot be had: one line which says what is wrong and how to fix it."""


class PatternError(Exception):
    """A regular expression that takes too long on a text; the message is one line."""


class ScriptedPolicyError(ValueError):
    """An unknown scripted policy, or one that cannot play this game; the message is one line."""


class EngineError(Exception):
    """An engine that cannot serve; the message is one line."""


class EngineDied(EngineError):
    """An engine's process died or hung while it owed replies; it is replaced, and the same may be asked again."""


class EnginesLost(EngineError):
    """Every engine is gone and none can be started again: nothing can be played any more."""


class EndpointError(Exception):
    """No reply could be had; the message is one line."""
