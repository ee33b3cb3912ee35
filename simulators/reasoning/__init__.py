"""Games about questions with checkable answers: tasks of reasoning-gym, or tasks that one seat writes for others."""

from simulators.reasoning.critique import Critique
from simulators.reasoning.debate import Debate
from simulators.reasoning.proposer import ProposerSolver
from simulators.reasoning.tasks import Reasoning

__all__ = ["Critique", "Debate", "ProposerSolver", "Reasoning"]
