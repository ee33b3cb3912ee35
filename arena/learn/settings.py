"""Settings of policies and learning."""

from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, model_validator

from agents.adapter_config import AdapterSpec
from agents.layouts import VisionSettings
from arena.learn.aggregates import AGGREGATE
from arena.learn.divergence import Nonfinite
from arena.learn.losses import LOSS
from arena.learn.regularisers import REGULARISER
from arena.parts.part_config import Kinds, PartConfig
from arena.parts.paths import Folder, ModelName, PolicyName
from arena.parts.schedules import SCHEDULE
from arena.parts.spec import Count, Matches, Spec

Beta = Annotated[float, Field(ge=0, lt=1)]


MAX_STEPS = 10**6
"""Maximum optimiser steps of an update; all are planned before the first."""


class ImitateSpec(Spec):
    """Settings of a warm start, in which a policy imitates scripted policies before it learns from reward."""

    scripted: Annotated[list[PolicyName], Field(min_length=1)]
    """Scripted policies to imitate. Every match has some of them, drawn at random, at the policy's own tables and in
    the seats that they can play."""
    against: list[PolicyName] = []
    """Opponents in these matches: one random seat has a scripted policy to imitate, and the other seats have some of
    these, which are not imitated. By default the scripted policies play each other."""
    matches: Matches = 256
    """Number of matches that the scripted policies play."""
    epochs: Count = 4
    """Passes over all the matches."""
    minibatches: Count = 8
    """Optimiser steps per epoch."""
    lr: Annotated[float, Field(gt=0)] = 1e-3
    """Learning rate."""
    decay: bool = False
    """Decay lr linearly to 0, so that many small steps end as stably as few large ones."""

    @model_validator(mode="after")
    def _check_steps(self) -> Self:
        return _check_step_count(self)


class ImagesSpec(Spec):
    """Settings of a policy's input images."""

    pixels: Annotated[int, Field(ge=1, le=1 << 26)]
    """Maximum pixels of an image; larger ones are scaled down, which takes fewer tokens. For models that keep an
    image's proportions, such as Qwen's."""


class PolicySpec(Spec):
    """Settings of a named policy: model or adapter, whether it trains, and a warm start."""

    model: ModelName
    """`smollm2-135m-instruct`, `nano`, a local folder, or a Hugging Face id; an adapter's folder in peft's layout,
    whose training continues; or another run's weights, `runs/first@12:buyer`."""
    adapter: AdapterSpec | None = None
    """Train a small adapter on the model instead of all its weights. Policies on one model then share it."""
    train: bool = True
    """False freezes the policy."""
    reference: ModelName | None = None
    """Model that the KL and credit compare the policy with, named like `model`, such as a teacher with the same
    tokenizer. null is the policy's own weights before it learns from reward."""
    imitate: ImitateSpec | None = None
    """A warm start before the first iteration."""
    images: ImagesSpec | None = None
    """Limits of input images; null leaves them to the model."""
    freeze: list[Literal["vision"]] = []
    """Parts that are not trained: `vision` is the vision tower, without its connector to the language model."""

    @model_validator(mode="after")
    def _check_training(self) -> Self:
        if self.adapter and not self.train:
            raise ValueError("a new `adapter` of a frozen policy changes nothing: remove it")
        if self.imitate and not self.train:
            raise ValueError("a frozen policy cannot imitate: remove `imitate`, or train it with rewards of weight 0")
        if self.reference and not self.train:
            raise ValueError("a frozen policy has no use for a reference: remove `reference`")
        if self.freeze and (self.adapter or not self.train):
            raise ValueError("neither an adapter nor a frozen policy trains the vision tower: remove `freeze`")
        return self

    @property
    def vision_settings(self) -> VisionSettings:
        """Settings of the policy's vision."""
        return VisionSettings(self.images.pixels if self.images else None, "vision" in self.freeze)


class DemonstrationsSpec(Spec):
    """Settings of demonstrations to imitate in every update, in addition to learning from play."""

    weight: Annotated[PartConfig, SCHEDULE] = PartConfig(SCHEDULE, "constant", {"value": 0.1})
    """Weight of the mean -log p over their tokens, added to the loss of played matches: a number or a schedule."""
    scripted: list[PolicyName] = []
    """Scripted policies that demonstrate. Every match has some of them, drawn at random, at the policy's tables and in
    the seats that they can play."""
    run: Folder | None = None
    """Or the folder of a run, whose logged matches of the same games are replayed in the policy's format."""
    best: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Share of `run` to draw from: of each game and seat, the matches with that seat's highest payoffs."""
    patches: bool = False
    """Or the expert's acts that the part `patch` puts into the iteration's matches."""
    data: Folder | None = None
    """Or a data set of chats or texts: a JSON Lines or Parquet file, or a folder of the `datasets` library."""
    matches: Matches = 8
    """Matches demonstrated to each policy per iteration, or rows of `data`; all patches are used."""
    mixed: bool = False
    """Multiply the loss of played matches by 1 - weight, as in DataMind: (1 - μ) RL + μ imitation."""
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    """Hash of the files of `data`; null takes it at the run's start and saves it in the config."""

    @model_validator(mode="after")
    def _require_one_source(self) -> Self:
        if bool(self.scripted) + (self.run is not None) + self.patches + (self.data is not None) != 1:
            raise ValueError("give exactly one source: `scripted: […]`, `run: FOLDER`, `data: FILE` or `patches: true`")
        return self


class UpdateSpec(Spec):
    """Settings of the update that each policy gets per iteration: loss, regularisers, optimiser, memory and checks.

    Parts are named as in `arena list`, with their settings if any.
    """

    loss: Annotated[PartConfig, LOSS] = PartConfig(LOSS, "policy_gradient")
    """Loss per sampled token."""
    aggregate: Annotated[PartConfig, AGGREGATE] = PartConfig(AGGREGATE, "token_mean")
    """Aggregate of token losses: a mean over tokens, turns or streams."""
    regularisers: Annotated[dict[str, PartConfig], Kinds(REGULARISER)] = {"kl": PartConfig(REGULARISER, "kl")}
    """Regularisers by name. `kl` pulls towards the policy's reference, by default its initial weights; weight 0 loads
    no reference."""
    demonstrations: DemonstrationsSpec | None = None
    """Demonstrations to imitate in addition to learning from the policy's own play."""
    lr: Annotated[float, Field(ge=0)] = 2e-5  # of nano 5e-4 (arena.config.layers)
    """AdamW's learning rate."""
    betas: Annotated[tuple[Beta, Beta], Field(strict=False)] = (0.9, 0.95)
    """AdamW's decay of the first and of the second moment."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """AdamW's weight decay, per step and unit of lr."""
    warmup_steps: Annotated[int, Field(ge=0, le=10**9)] = 0
    """Optimiser steps of linear learning rate warm-up from 0."""
    epochs: Count = 1
    """Passes over the played samples per update."""
    minibatches: Count = 1
    """Optimiser steps per epoch."""
    token_budget: Annotated[int, Field(ge=1, le=10**7)] = 2048
    """Maximum padded tokens per forward pass."""
    gradient_checkpointing: bool = False
    """Store only each layer's input for the backward pass, which recomputes the rest: less memory for about a third
    more arithmetic, the same gradient."""
    offload_reference: bool = False
    """Release the reference's weights before each update, and reload them from their folder afterwards."""
    grad_clip: Annotated[float, Field(ge=0)] = 1.0
    """Maximum norm of a step's gradient; 0 is no limit."""
    zero_stage: Literal[0, 1, 2, 3] = 0
    """DeepSpeed's ZeRO: 1 shards the optimiser's state over ranks, 2 gradients too, 3 weights too."""
    offload_optimizer: bool = False
    """Keep the optimiser's state (8 bytes a weight, with ZeRO's own copy of the weights 12) in CPU memory, and compute
    its steps there: ZeRO-Offload (Ren et al. 2021, arXiv 2101.06840). Needs zero_stage 1, 2 or 3."""
    gate_tolerance: Annotated[float, Field(gt=0)] | None = None
    """Mean |sampler - trainer| log-probability at which the run stops; null is 0.0001 in fp32, 0.1 in bf16."""
    keep_tokens: bool = False
    """Store per-token values in the credit file: the advantage if the tokens of a turn differ, the ratio p after the
    update / p before, and the log-probability gap between trainer and sampler. Costs two more passes over the tokens.
    """
    nonfinite: Nonfinite = "stop"
    """Treatment of a step whose gradient is not finite, also of critics: stop the run, or skip the step and count it
    (`skipped` in the metrics). Weights that are not finite always stop the run before they are published."""

    @model_validator(mode="after")
    def _check_steps(self) -> Self:
        return _check_step_count(self)

    @model_validator(mode="after")
    def _check_offload(self) -> Self:
        if self.offload_optimizer and not self.zero_stage:
            raise ValueError("`offload_optimizer` is ZeRO's: set zero_stage to 1, 2 or 3")
        return self

    @property
    def steps(self) -> int:
        """Number of optimiser steps per update."""
        return self.epochs * self.minibatches

    @property
    def uses_reference(self) -> bool:
        """True if the loss or a regulariser with a weight other than 0 compares the policy with its reference."""
        if "reference" in self.loss.needs:
            return True
        needing = (r for r in self.regularisers.values() if "reference" in r.needs)
        return any(any(weight.to_plain() for weight in r.parts) or not r.parts for r in needing)

    @property
    def uses_distributions(self) -> bool:
        """True if a regulariser compares the policy with its reference over the whole vocabulary."""
        return self.uses_reference and any("distribution" in r.needs for r in self.regularisers.values())


Steps = TypeVar("Steps", bound=ImitateSpec | UpdateSpec)


def _check_step_count(spec: Steps) -> Steps:
    """Return the settings unchanged. Raises ValueError if an update has more than MAX_STEPS steps."""
    if (steps := spec.epochs * spec.minibatches) > MAX_STEPS:
        raise ValueError(f"`epochs` times `minibatches` are {steps:,} steps of an update: at most {MAX_STEPS:,}")
    return spec
