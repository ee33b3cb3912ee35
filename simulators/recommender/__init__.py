"""The recommender: pages of a catalogue for users with wants of their own, who come back or do not."""

from simulators.recommender.recommender import Recommender

__all__ = ["Recommender"]
