"""Visual worlds: games whose pictures are drawn from a seed and must be looked at closely."""

from simulators.vision.frames import Frames
from simulators.vision.pages import Pages
from simulators.vision.reach import Reach
from simulators.vision.rooms import Rooms
from simulators.vision.rooms3d import Rooms3D
from simulators.vision.transform import Transform
from simulators.vision.zoom import Zoom

__all__ = ["Frames", "Pages", "Reach", "Rooms", "Rooms3D", "Transform", "Zoom"]
