"""Exceptions of agents, each with a one-line message. Importing this module loads nothing else."""


class ChatError(Exception):
    """Raised if a tokenizer or its chat template cannot be used; the message says why and how to fix it."""


class RoleError(Exception):
    """Raised if a role is invalid or cannot be rendered; the message names role or file, field and reason."""


class ContextFull(Exception):
    """Raised if the context has no room for another turn and no further summary may be written."""

    @classmethod
    def of(cls, used: int, reply: int, positions: int) -> "ContextFull":
        """Return the error for a reply of up to `reply` tokens after `used` ones, in a context of `positions`."""
        return cls(f"context limit: {used:,} tokens and a reply of up to {reply:,} of {positions:,}")


class WeightsError(Exception):
    """Raised if weights cannot be found or loaded; the message says why and how to fix it."""


class PatternError(Exception):
    """Raised if a search with a regular expression exceeds its time limit."""


class ScriptedPolicyError(ValueError):
    """Raised if a scripted policy is unknown or cannot play the game."""


class EngineError(Exception):
    """Raised if an inference engine cannot be started or cannot serve a policy."""


class EngineDied(EngineError):
    """Raised for pending requests if an engine process died or hung. It is replaced; requests can be retried."""


class EnginesLost(EngineError):
    """Raised if all inference engines are gone and none can be restarted, so play has to stop."""


class EndpointError(Exception):
    """Raised if an OpenAI-compatible endpoint gives no usable reply."""


class HarnessError(Exception):
    """Raised if an agent program cannot be started, crashes, or ends without an act; the message says which."""
