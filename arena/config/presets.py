"""Presets of the learning settings under the names of papers and libraries, such as `learn.loss: grpo`.

A preset sets `learn.loss`, `aggregate` and `regularisers`. Other settings of its layer override it; it overrides
earlier layers. A run's config.yaml holds the expanded settings, not the preset's name. A preset does not set the
estimator: `goes_with` names the one of the paper.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from arena.errors import ConfigError


@dataclass(frozen=True)
class Preset:
    """Settings of `learn` (loss, aggregate, regularisers) that a paper or library uses, and their source."""

    learn: Mapping[str, Any]
    """Settings of `learn`."""
    goes_with: str
    """Settings outside `learn` that the source's method needs, as text."""
    source: str
    """Paper or library."""


def _preset(
    clip: Mapping[str, Any], aggregate: Any, goes_with: str, source: str, *, ratio: str = "token", kl: float = 0.0
) -> Preset:
    loss = {"policy_gradient": {"ratio": ratio, "clip": clip, "correction": "uncorrected"}}
    return Preset({"loss": loss, "aggregate": aggregate, "regularisers": {"kl": {"weight": kl}}}, goes_with, source)


def _ppo(low: float, high: float) -> dict[str, Any]:
    return {"ppo": {"low": low, "high": high}}


UNCLIPPED: dict[str, Any] = {"unclipped": {}}
SUMMED = {"constant_length": {"length": 1}}
"""The sum over a stream's tokens, mean over streams."""

PRESETS = {
    "ppo": _preset(
        _ppo(0.2, 0.2), "token_mean", "credit: {estimator: gae_token, critic: value_head}",
        "Schulman et al. 2017; TRL, verl",
    ),
    "grpo": _preset(_ppo(0.2, 0.2), "stream_mean", "credit.estimator: grpo", "Shao et al. 2024, beta .04", kl=0.04),
    "dr_grpo": _preset(
        _ppo(0.2, 0.2), {"constant_length": {"length": 1024}}, "credit.estimator: dr_grpo; length: the longest answer",
        "Liu et al. 2025",
    ),
    "bnpo": _preset(_ppo(0.2, 0.2), "token_mean", "credit.estimator: grpo", "TRL's loss_type bnpo"),
    "dapo": _preset(
        _ppo(0.2, 0.28), "token_mean", "credit: {estimator: grpo, select: [zero_variance], stages: [overlong]}",
        "Yu et al. 2025",
    ),
    "gspo": _preset(
        _ppo(3e-4, 4e-4), "stream_mean", "credit.estimator: grpo", "Zheng et al. 2025", ratio="sequence"
    ),
    "luspo": _preset(_ppo(2e-3, 2.5e-3), SUMMED, "credit.estimator: grpo", "TRL's loss_type luspo", ratio="sequence"),
    "cispo": _preset(
        {"cispo": {"low": 1.0, "high": 4.0}}, "token_mean", "credit.estimator: grpo",
        "MiniMax-M1 (Chen et al. 2025), high as ScaleRL",
    ),
    "reinforce": _preset(UNCLIPPED, SUMMED, "credit.estimator: reinforce", "Williams 1992"),
    "rloo": _preset(
        UNCLIPPED, SUMMED, "credit: {estimator: rloo, stages: [kl_penalty]}", "Ahmadian et al. 2024"
    ),
    "reinforce_pp": _preset(
        _ppo(0.2, 0.2), "token_mean", "credit: {estimator: reinforce_pp, stages: [kl_penalty]}", "Hu 2025"
    ),
}  # fmt: skip


def find_preset(data: Mapping[str, Any], source: str) -> Preset | None:
    """Return the preset that `learn.loss` names in `data`; None if it names another loss or nothing.

    Raises ConfigError, which names `source`, if the preset is given settings.
    """
    learn = data.get("learn")
    loss = learn.get("loss") if isinstance(learn, Mapping) else None
    name, settings = next(iter(loss.items()), (None, None)) if isinstance(loss, Mapping) else (loss, None)
    if not isinstance(name, str) or name not in PRESETS or (isinstance(loss, Mapping) and len(loss) > 1):
        return None
    if settings:
        instead = PRESETS[name].learn["loss"]["policy_gradient"]
        raise ConfigError(
            f"{source}: learn.loss: {name} is a preset and takes no settings: write out its loss, "
            f"policy_gradient: {{ratio: {instead['ratio']}, clip: {next(iter(instead['clip']))}}}, and set that"
        )
    return PRESETS[name]
