"""Visual worlds drawn from a seed, whose answers need a closer look."""

from simulators.vision.frames import Frames
from simulators.vision.reach import Reach
from simulators.vision.transform import Transform
from simulators.vision.zoom import Zoom

__all__ = ["Frames", "Reach", "Transform", "Zoom"]
