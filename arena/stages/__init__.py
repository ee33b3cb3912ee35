"""Kinds of pipeline stages by name. A new kind is a file with its function, and one entry in this table."""

from collections.abc import Mapping

from arena.parts.chosen import Kind
from arena.stages.base import Stage, StageContext, StageLoop
from arena.stages.play import play
from arena.stages.reward_model import reward_model

PIPELINE_STAGES: Mapping[str, Stage] = {kind.__name__: kind for kind in (play, reward_model)}
PIPELINE_STAGE = Kind("pipeline_stage", PIPELINE_STAGES)

__all__ = ["PIPELINE_STAGE", "PIPELINE_STAGES", "Stage", "StageContext", "StageLoop"]
