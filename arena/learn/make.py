"""Make trainers."""

from agents.policy import Policy
from arena.learn.base import Trainer
from arena.learn.settings import UpdateSpec
from arena.learn.trainer import PolicyTrainer


def local_trainer(policy: Policy, rule: UpdateSpec, bf16: bool) -> Trainer:
    """A trainer in this process: its module is the one that the policy holds."""
    return PolicyTrainer(policy.name, policy.model, rule, bf16, policy.base)
