"""Recommender simulator: serve pages of a catalogue to users with hidden tastes, who come back or do not."""

from simulators.recommender.recommender import Recommender

__all__ = ["Recommender"]
