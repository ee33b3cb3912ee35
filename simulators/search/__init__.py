"""Search: a world of invented documents that writes its own questions, and games of looking things up in it."""

from simulators.search.planner import SearchPlanner
from simulators.search.search import Search
from simulators.search.selfplay import SearchSelfplay

__all__ = ["Search", "SearchPlanner", "SearchSelfplay"]
