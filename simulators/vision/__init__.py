"""Visual worlds drawn from a seed, whose answers need a closer look."""

from simulators.vision.zoom import Zoom

__all__ = ["Zoom"]
