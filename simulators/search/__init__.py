"""Search games: look up answers in a world of invented documents, which generates its own questions."""

from simulators.search.planner import SearchPlanner
from simulators.search.search import Search
from simulators.search.selfplay import SearchSelfplay

__all__ = ["Search", "SearchPlanner", "SearchSelfplay"]
