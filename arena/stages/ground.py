"""Stage kind `ground`: connect the image tokens of a policy with words, by lessons of a game."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from agents.smollm2 import NAME as DEFAULT
from arena.errors import ConfigError
from arena.learn.divergence import Nonfinite
from arena.parts.spec import Count, Name, Positive
from arena.play.settings import GameSpec
from arena.play.watchers import Watcher
from arena.stages.base import StageContext, TrainingStage, require_policy

Share = Annotated[float, Field(gt=0, le=1e6)]
Kind = Annotated[str, Field(min_length=1, max_length=64)]


def ground(
    context: StageContext,
    *,
    policy: Name,
    kinds: Kind | Annotated[dict[Kind, Share], Field(min_length=1, max_length=64)],
    game: GameSpec | None = None,
    loss: Literal["tokens", "words"] = "tokens",
    system: Annotated[str, Field(max_length=4000)] = "",
    steps: Positive,
    batch: Annotated[Positive, Field(le=4096)] = 32,
    lessons: Annotated[Positive, Field(le=10**5)] = 2048,
    lr: Annotated[float, Field(gt=0, le=1e3)] = 1e-3,
    warmup_steps: Annotated[int, Field(ge=0, le=10**6)] = 20,
    decay: Annotated[float, Field(gt=0, le=1)] = 0.1,
    grad_clip: Annotated[float, Field(gt=0)] = 1.0,
    held_out: Annotated[Positive, Field(le=10**4)] = 64,
    nonfinite: Nonfinite = "stop",
    iterations: Count = 4,
) -> TrainingStage:
    """Teach a policy with vision which words its image tokens stand for, by a game's lessons (`GroundingLessons`).

    `kinds` is a kind of the game's lessons, or several with their shares of a batch. `lessons` of each are drawn, and
    every step takes `batch` random ones. `game` is by default the shared one, and `system` the text before each lesson.

    The loss `tokens` trains all weights: at each image token in a labelled cell the language model predicts the cell's
    word, and after the prompt the answer. `words` trains only vision tower and connector, without running the language
    model: the features of these tokens approach its embeddings of the words. A label is a single token of the policy's.

    Trains by AdamW; the learning rate rises over `warmup_steps` and falls linearly to the share `decay`. After each of
    `iterations` equal parts of the steps a checkpoint is saved, and metrics get `accuracy` (of labels, the mean over
    words) and `answered` (of the answers' tokens), also on `held_out` other lessons of each kind.
    """
    settings = {name: value for name, value in locals().items() if name != "context"}
    spec, shared_game = require_policy(context, policy), context.shared.get("game")
    chosen_game = game or (GameSpec.model_validate(shared_game) if shared_game else None)
    if chosen_game is None:
        raise ConfigError("game: name the game that gives the lessons")
    settings["game"] = chosen_game.model_dump(mode="json")
    settings["kinds"] = {kinds: 1.0} if isinstance(kinds, str) else dict(kinds)
    settings["model"] = str(context.weights.get(policy) or spec.get("model", DEFAULT))
    return TrainingStage(context, policy, settings, _train)


async def _train(folder: Path, settings: Mapping[str, Any], watcher: Watcher) -> None:
    from arena.grounding.training import train  # loads torch

    await train(folder, settings, watcher)
