"""Questions with answers that can be checked: tasks of reasoning-gym, and tasks that one role writes for another."""

from simulators.reasoning.critique import Critique
from simulators.reasoning.debate import Debate
from simulators.reasoning.proposer import ProposerSolver
from simulators.reasoning.tasks import Reasoning

__all__ = ["Critique", "Debate", "ProposerSolver", "Reasoning"]
