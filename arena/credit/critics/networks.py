"""Networks of critics in pairs of two (twins), their targets and losses."""

import torch


class Twin(torch.nn.Module):
    """Two independent networks with one hidden layer each, over the same features."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.inner, self.inner_bias = _create_uniform(features, hidden, features), _create_uniform(1, hidden, features)
        self.outer, self.outer_bias = _create_uniform(hidden, 1, hidden), _create_uniform(1, 1, hidden)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return the outputs of both networks, [2, B], for features [B, features]."""
        both = features.expand(2, *features.shape)
        hidden = torch.baddbmm(self.inner_bias, both, self.inner).relu()
        return torch.baddbmm(self.outer_bias, hidden, self.outer).squeeze(-1)


def _create_uniform(rows: int, columns: int, inputs: int) -> torch.nn.Parameter:
    """Create a parameter [2, rows, columns], uniform within ± 1 / √inputs, torch's default for linear layers."""
    return torch.nn.Parameter(torch.empty(2, rows, columns).uniform_(-(inputs**-0.5), inputs**-0.5))


class Networks(torch.nn.Module):
    """Two pairs of networks: `q` values a state with a reply (Q1, Q2), `v` a state alone (V1, V2)."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.q, self.v = Twin(2 * features, hidden), Twin(features, hidden)


def compute_q_targets(
    rewards: torch.Tensor, last: torch.Tensor, next_values: torch.Tensor, gamma: float
) -> torch.Tensor:
    """Return the targets of Q: r + γ V(s'), or r at a trajectory's `last` turn. `next_values` is V(s')."""
    return rewards + torch.where(last, 0.0, gamma * next_values)


def twin_loss(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the sum of both networks' mean squared errors. `outputs` and `target` are [2, B]."""
    return (outputs - target).square().mean(1).sum()


def expectile_loss(values: torch.Tensor, targets: torch.Tensor, expectile: float) -> torch.Tensor:
    """Return the sum over both networks of the mean of |expectile - 1(u < 0)| u², with u = target - value.

    `values` are [2, B], `targets` [B]. The loss is minimal at the targets' expectile: their mean for .5, near their
    maximum for values near 1.
    """
    gaps = targets - values
    return ((expectile - (gaps < 0).to(gaps.dtype)).abs() * gaps.square()).mean(1).sum()
