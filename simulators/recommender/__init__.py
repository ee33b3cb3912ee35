"""Recommender simulator: show pages of a catalogue to users with hidden tastes, who come back if pleased."""

from simulators.recommender.recommender import Recommender

__all__ = ["Recommender"]
