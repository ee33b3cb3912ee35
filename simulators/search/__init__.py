"""Search: a world of invented documents that writes its own questions, and games of looking things up in it."""

from simulators.search.search import Search

__all__ = ["Search"]
