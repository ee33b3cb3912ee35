"""Exceptions of agents, each with a one-line message. Importing this module loads nothing else."""


class ChatError(Exception):
    """The tokenizer or its chat template cannot be used; the message says why and how to fix it."""


class RoleError(Exception):
    """A role is invalid or cannot be rendered; the message names the role, the place and the reason."""


class ContextFull(Exception):
    """The context has no room for another turn, and no further summary may be written."""


class WeightsError(Exception):
    """Weights cannot be found or loaded; the message says why and how to fix it."""


class PatternError(Exception):
    """A regular expression exceeded its time limit on a text."""


class ScriptedPolicyError(ValueError):
    """A scripted policy is unknown or cannot play this game."""


class EngineError(Exception):
    """An engine cannot be started or cannot serve a policy."""


class EngineDied(EngineError):
    """An engine process died or hung with pending requests. It is replaced, and the requests can be retried."""


class EnginesLost(EngineError):
    """All engines are gone and none can be restarted, so play has to stop."""


class EndpointError(Exception):
    """An endpoint gave no usable reply."""
