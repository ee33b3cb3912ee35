"""Kinds of pipeline stages by name. A new kind is a file with its function, and one entry in this table."""

from collections.abc import Mapping

from arena.parts.part_config import Kind
from arena.stages.average import average
from arena.stages.base import Stage, StageContext, StageLoop
from arena.stages.data import dpo, kto, sft
from arena.stages.distil import distil
from arena.stages.expert_iteration import expert_iteration
from arena.stages.ground import ground
from arena.stages.offline import offline
from arena.stages.play import play
from arena.stages.reward_model import reward_model

KINDS = (play, sft, ground, dpo, kto, distil, offline, expert_iteration, reward_model, average)
PIPELINE_STAGES: Mapping[str, Stage] = {kind.__name__: kind for kind in KINDS}
PIPELINE_STAGE = Kind("pipeline_stage", PIPELINE_STAGES)

__all__ = ["PIPELINE_STAGE", "PIPELINE_STAGES", "Stage", "StageContext", "StageLoop"]
