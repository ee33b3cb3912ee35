"""Stage kind `reward_model`: train a model that scores conversations, from pairs or labels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from arena.credit.rewards.reward_model import WEIGHTS
from arena.errors import ConfigError
from arena.learn.divergence import Nonfinite
from arena.parts.paths import Folder, ModelName
from arena.parts.spec import Count, Name, Positive
from arena.play.watchers import Watcher
from arena.reward_models.examples import Objective
from arena.stages.base import StageContext, TrainingStage, require_policy

Share = Annotated[float, Field(gt=0, lt=1)]


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
) -> TrainingStage:
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
    spec = require_policy(context, policy)
    if (data is None) == (log is None):
        raise ConfigError("give `data: FILE` or `log: RUN`: one of them has the examples")
    settings["model"] = model or str(context.weights.get(policy) or spec.get("model"))
    return TrainingStage(context, WEIGHTS, settings, _train)


async def _train(folder: Path, settings: Mapping[str, Any], watcher: Watcher) -> None:
    from arena.reward_models.loop import train  # loads torch

    await train(folder, settings, watcher)
