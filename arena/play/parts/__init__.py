"""Rollout parts by name: plug-ins that plan, expand, control or observe an iteration's matches."""

from collections.abc import Callable, Mapping

from arena.parts.part_config import Kind
from arena.play.parts.adaptive import adaptive
from arena.play.parts.base import RolloutPart
from arena.play.parts.branches import branches
from arena.play.parts.horizon import horizon
from arena.play.parts.instructions import instructions
from arena.play.parts.patch import patch
from arena.play.parts.resample import resample
from arena.play.parts.screened import screened
from arena.play.parts.stop import stop
from arena.play.parts.trees import trees

ROLLOUT_PARTS: Mapping[str, Callable[..., RolloutPart]] = {
    part.__name__: part for part in (adaptive, branches, horizon, instructions, patch, resample, screened, stop, trees)
}
ROLLOUT_PART = Kind("part", ROLLOUT_PARTS)
