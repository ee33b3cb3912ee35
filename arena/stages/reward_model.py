"""Stage kind `reward_model`: train a model that scores conversations, from pairs or labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from agents.names import nearest
from arena.credit.rewards.reward_model import WEIGHTS
from arena.errors import ConfigError
from arena.learn.divergence import Nonfinite
from arena.parts.paths import Folder, ModelName
from arena.parts.spec import Count, Name, Positive
from arena.play.watchers import Watcher
from arena.reward_models.examples import Objective
from arena.stages.base import StageContext
from arena.store import checkpoints

Share = Annotated[float, Field(gt=0, lt=1)]


@dataclass(frozen=True, kw_only=True)
class RewardModelLoop:
    """Pipeline stage that trains a reward model."""

    settings: Mapping[str, Any]
    """Settings of the stage, and those that it shares with others: seed, precision and kept checkpoints."""

    async def run(self, folder: Path, watcher: Watcher) -> None:
        """Train to the end, as `arena.reward_models.loop.train` does."""
        from arena.reward_models.loop import train  # loads torch

        await train(folder, self.settings, watcher)

    def weights(self, folder: Path) -> Mapping[str, Path]:
        """Return the folder of the newest weights, under the name `reward_model`."""
        newest = max(checkpoints.iterations(folder), default=0)
        return {WEIGHTS: checkpoints.folder_of(folder, newest) / "policies" / WEIGHTS}


def reward_model(
    context: StageContext,
    *,
    policy: Name,
    data: Folder | None = None,
    log: Folder | None = None,
    model: ModelName | None = None,
    loss: Objective = "bradley_terry",
    outcome: Annotated[str, Field(min_length=1)] = "payoff",
    within: Literal["deal", "game"] = "deal",
    partners: Count = 4,
    margin: Annotated[float, Field(ge=0)] = 0.0,
    most: Positive = 20_000,
    held_out: Share = 0.1,
    epochs: Count = 1,
    batch: Positive = 32,
    lr: Annotated[float, Field(gt=0)] | None = None,
    warmup_steps: Annotated[int, Field(ge=0, le=10**6)] = 10,
    grad_clip: Annotated[float, Field(gt=0)] = 1.0,
    token_budget: Positive = 4096,
    nonfinite: Nonfinite = "stop",
    iterations: Count = 10,
) -> RewardModelLoop:
    """Train a reward model: the body of `policy`'s newest weights, or of `model`, with a scalar head that starts at 0.

    It scores a conversation by its last token, as the policy reads it. `data` is a file or folder of preference pairs
    (`prompt`, `chosen`, `rejected`, and `margin` if any) or labelled completions (`prompt`, `completion`, `label`).
    `log` is a run; its newest `most` conversations by `policy` are used. A pair is two conversations of the same seat
    and deal, or with `within: game` of any two deals, with different `outcome`. There are up to `partners` pairs per
    conversation. `outcome` is `payoff`, `credited` (the sum of the weighted rewards) or a reward's name.

    `bradley_terry`: -log σ(r_chosen - r_rejected - m), m the row's margin, or `margin` times the difference of the
    outcomes. `logistic`: cross-entropy of the label, which for a log is whether the outcome is above 0. `squared`:
    ½ (r - outcome)². Trains by AdamW on `batch` examples per step, in a new random order each epoch; `lr` is by default
    1e-5, and 5e-4 below ten million parameters. The share `held_out` of the prompts or deals is held out.

    After each of `iterations` equal parts of the steps, metrics get accuracy, mean margin and calibration, also on
    held-out examples, and a checkpoint is saved.
    """
    settings = {name: value for name, value in locals().items() if name != "context"}
    shared, policies = context.shared, context.shared.get("policies") or {}
    if policy not in policies:
        raise ConfigError(f"policy: there is no policy '{policy}'{nearest(policy, policies)}")
    if (data is None) == (log is None):
        raise ConfigError("give `data: FILE` or `log: RUN`: one of them has the examples")
    settings["model"] = model or str(context.weights.get(policy) or policies[policy].get("model"))
    settings |= {"seed": context.seed, "bf16": str(shared.get("precision")).startswith("bf16")}
    settings["keep"] = (shared.get("checkpoint") or {}).get("keep", 2)
    return RewardModelLoop(settings=settings)
