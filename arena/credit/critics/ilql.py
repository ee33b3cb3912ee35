"""Critics of whole replies for offline learning: implicit Q-learning and Monte-Carlo returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from arena.credit.batch import CreditedTrajectory, TurnBatch
from arena.credit.critics.archer import Archer, ArcherSettings, Transitions, TurnBuffer
from arena.credit.critics.networks import compute_q_targets, expectile_loss, twin_loss

if TYPE_CHECKING:
    from arena.credit.critics.base import CriticContext


class Ilql(Archer):
    """Critic of implicit Q-learning: values of the best policy within the data. Samples no replies."""

    name = "ilql"

    def __init__(self, context: CriticContext, settings: ArcherSettings, expectile: float) -> None:
        super().__init__(context, settings)
        self.expectile = expectile

    def _compute_losses(
        self, transitions: Transitions, states: torch.Tensor, replies: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the losses of Q and V, both on the replayed transitions; current replies have no effect."""
        with torch.no_grad():
            next_values = self.networks.v(transitions.next_states).amin(0)
            q_target = compute_q_targets(transitions.rewards, transitions.last, next_values, self.settings.gamma)
            v_target = self.target.q(transitions.pairs).amin(0)
        v_loss = expectile_loss(self.networks.v(transitions.states), v_target, self.expectile)
        return twin_loss(self.networks.q(transitions.pairs), q_target), v_loss


class MonteCarlo(Ilql):
    """Critic of the policy that sampled the data: Q regresses on the turns' returns, and V is the mean of Q."""

    name = "monte_carlo"

    def __init__(self, context: CriticContext, settings: ArcherSettings) -> None:
        super().__init__(context, settings, expectile=0.5)

    def _make_buffer(self, credited: Sequence[CreditedTrajectory]) -> TurnBuffer:
        """Return the turns with their returns as rewards, each as the end of a trajectory: Q's target is the return."""
        rows = super()._make_buffer(credited)
        batch = TurnBatch([c.trajectory for c in credited if c.trajectory.turns])
        rewards = np.concatenate([np.zeros(0), *(c.rewards for c in credited)])
        rows.rewards = torch.from_numpy(batch.returns(rewards, self.settings.gamma)).float()
        rows.last = torch.ones_like(rows.last)
        return rows
