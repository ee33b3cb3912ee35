"""The experiment: what a run is, in strict models."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from agents.adapter_config import AdapterSpec
from agents.engines.spec import EngineSpec
from agents.players.spend import EndpointSpec
from arena.config.panel import Deals, GivenPanel
from arena.config.parts import Chosen, Kind, Kinds
from arena.config.paths import ContenderName, Folder, GameName, ModelName, OptionValue, RoleName
from arena.config.spec import STRICT, Name, Positive
from arena.config.study import StudySpec

Matches = Annotated[int, Field(ge=1, le=10**6)]
"""All of them are planned, and held, at once."""
Share = Annotated[float, Field(ge=0, le=1e6)]
"""Relative to others: their sum stays finite."""
Beta = Annotated[float, Field(ge=0, lt=1)]
Nonfinite = Literal["stop", "skip"]


class Spec(BaseModel):
    """Base of all parts of an experiment: unknown keys and wrong types are errors."""

    model_config = STRICT


class GameSpec(Spec):
    """Which game, with which of its options."""

    name: GameName
    """One of `arena list games`, `openspiel:…`, `pettingzoo:…`, `textarena:…`, or path/to/file.py:Class."""
    options: dict[str, OptionValue] = {}
    """What the game takes, such as `illegal: end`."""


class SeatSpec(Spec):
    """Who sits at a seat."""

    role: RoleName
    """A built-in role's name, one from the roles folder, or a path ending in .yaml."""
    policy: str
    """A name from `policies`, a brain such as `random`, `endpoint:MODEL` or `endpoint@SERVER:MODEL`."""


class TableSpec(Spec):
    """A game and who sits at it."""

    game: GameSpec
    """Which game is played there."""
    seats: dict[str, SeatSpec]
    """By the game's names for its seats."""
    share: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """Of the matches of an iteration, relative to the other tables' shares."""


class ImitateSpec(Spec):
    """A warm start: learn to speak like brains before learning from reward."""

    brains: Annotated[list[str], Field(min_length=1)]
    """Every match seats some of them, drawn at random, at the policy's own tables."""
    against: list[str] = []
    """Whom they meet instead of each other: one seat of a match, drawn at random, is held by one of the brains, the
    others by some of these, who are not imitated.
    """
    matches: Matches = 256
    """How many matches the brains play."""
    epochs: Annotated[int, Field(ge=1, le=10**4)] = 4
    """How often all of them are learned from."""
    minibatches: Positive = 8
    """Optimiser steps per epoch."""
    lr: Annotated[float, Field(gt=0)] = 1e-3
    """Learning rate."""
    decay: bool = False
    """Whether lr falls to 0 in a straight line: then many small steps end as calmly as few large ones."""


class PolicySpec(Spec):
    """Named weights."""

    model: ModelName
    """`smollm2-135m-instruct`, `nano`, a local folder, or a Hugging Face id; an adapter's folder in peft's layout,
    which goes on learning; or another run's weights, `runs/first@12:buyer`."""
    adapter: AdapterSpec | None = None
    """Learn a small adapter on the model instead of all its weights: policies on one model then share it."""
    train: bool = True
    """Whether it learns; a frozen policy stays as it is loaded."""
    imitate: ImitateSpec | None = None
    """A warm start before the first iteration."""


class LimitsSpec(Spec):
    """What one match may use before it is called off and recorded as failed; null is no limit."""

    turns: Positive | None = 100
    """Taken by all seats together."""
    tokens: Positive | None = None
    """Sampled by all seats together."""
    seconds: Annotated[float, Field(gt=0, le=1e9)] | None = 600.0
    """Wall time of the match."""
    turn_seconds: Annotated[float, Field(gt=0, le=1e9)] | None = 120.0
    """Wall time of one turn."""


class PlaySpec(Spec):
    """How the matches of an iteration are played."""

    matches: Matches = 16
    """Of one iteration, all tables together."""
    group: Matches = 1
    """How many matches share a deal, for estimators that compare within one; divides `matches`."""
    pool: Matches | None = None
    """Deals are drawn from so many, as tasks of a training set are: all of them, in a random order, before any comes
    again; null is always new ones."""
    resample: Annotated[int, Field(ge=0, le=10**4)] = 0
    """Rounds in which new deals are played in place of those that `credit.select` dropped, until none is missing."""
    branch: Annotated[int, Field(ge=0, le=10**4)] = 0
    """How many more matches part from each one, at turns of its learners drawn at random; they come on top."""
    branch_at: Literal["any", "last"] = "any"
    """At which of these turns: `last` is each match's last one alone, so there is one branch at most."""
    in_flight: Positive = 64
    """How many matches run at once."""
    attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """How often a failing match is tried before the run stops."""
    limits: LimitsSpec = LimitsSpec()
    """What one match may use."""

    @property
    def deals(self) -> int:
        """How many deals an iteration has."""
        return self.matches // self.group


class CreditSpec(Spec):
    """From rewards to advantages. Parts are named as in `arena list`, with their settings if any."""

    stages: list[Annotated[Chosen, Kind("stage")]] = []
    """Reward stages, in this order: each adds or changes named rewards."""
    weights: dict[str, Annotated[Chosen, Kind("schedule")]] = {}
    """Of each named reward, a number or a schedule; 1 if not given."""
    select: list[Annotated[Chosen, Kind("selector")]] = []
    """What learning does not hear of, or what credit leaves out of its statistics."""
    estimator: Annotated[Chosen, Kind("estimator")] = Chosen("estimator", "mars")
    """From the rewards of turns to one advantage per turn."""
    critic: Annotated[Chosen | None, Kind("critic", optional=True)] = None
    """What foresees the values that an estimator such as `gae_turn` needs."""
    transforms: list[Annotated[Chosen, Kind("transform")]] = []
    """After the estimator, in this order: from advantages to advantages."""

    @property
    def needs(self) -> frozenset[str]:
        """What models have to measure first (`arena.credit.measures`); empty where a match log alone is enough."""
        return frozenset().union(*(p.needs for p in (self.estimator, *self.stages, *self.select, *self.transforms)))


class ShownSpec(Spec):
    """Play that is shown to the learners in every update, to be imitated beside learning from their own."""

    weight: Annotated[Chosen, Kind("schedule")] = Chosen("schedule", "constant", {"value": 0.1})
    """Of the mean -log p over the shown tokens, which is added to the loss of what was played: a number or a schedule.
    """
    brains: list[str] = []
    """Who shows it: every match seats some of them, drawn at random, at the policy's own tables."""
    run: Folder | None = None
    """Or a run's folder: matches of the same games from its log, played again in the policy's own words."""
    best: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Share of `run` to draw from: of each game and seat, the matches in which that seat was paid best."""
    matches: Matches = 8
    """Shown to each policy in each iteration."""

    @model_validator(mode="after")
    def _from_one(self) -> Self:
        if bool(self.brains) == (self.run is not None):
            raise ValueError("give `brains: […]` or `run: FOLDER`: one of them shows how to play")
        return self


class LearnSpec(Spec):
    """One update per iteration and policy. Parts are named as in `arena list`, with their settings if any."""

    loss: Annotated[Chosen, Kind("loss")] = Chosen("loss", "policy_gradient")
    """Per sampled token, to be minimised."""
    aggregate: Annotated[Chosen, Kind("aggregate")] = Chosen("aggregate", "token_mean")
    """What of the tokens, turns or streams the loss is a mean over."""
    regularisers: Annotated[dict[str, Chosen], Kinds("regulariser")] = {"kl": Chosen("regulariser", "kl")}
    """By name; `kl` holds on to the policy's own beginning, with weight 0 no reference is kept."""
    shown: ShownSpec | None = None
    """Play to be imitated beside learning from one's own."""
    replay: Annotated[Chosen | None, Kind("replay", optional=True)] = None
    """What of earlier iterations is learned from once more."""
    lr: Annotated[float, Field(ge=0)] = 2e-5
    """AdamW's learning rate."""
    betas: Annotated[tuple[Beta, Beta], Field(strict=False)] = (0.9, 0.95)
    """AdamW's decay of the first and of the second moment."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """AdamW's, per step and unit of lr."""
    warmup_steps: Annotated[int, Field(ge=0, le=10**9)] = 0
    """Optimiser steps over which lr grows from 0 in a straight line."""
    epochs: Annotated[int, Field(ge=1, le=10**4)] = 1
    """How often an update goes through what was played."""
    minibatches: Positive = 1
    """Optimiser steps per epoch."""
    token_budget: Positive = 2048
    """Padded tokens per forward pass."""
    gradient_checkpointing: bool = False
    """Keep only each layer's input for the backward pass, which computes the rest anew: less memory for about a third
    more arithmetic, the same gradient."""
    offload_reference: bool = False
    """Let go of the reference's weights before each update, and load them from their folder again for the next."""
    grad_clip: Annotated[float, Field(ge=0)] = 1.0
    """Highest norm of a step's gradient; 0 is no limit."""
    zero_stage: Literal[0, 1, 2, 3] = 0
    """DeepSpeed's ZeRO: 1 shards the optimiser's state over ranks, 2 gradients too, 3 weights too."""
    offload_optimizer: bool = False
    """Keep the optimiser's state (8 bytes a weight, with ZeRO's own copy of the weights 12) in the processor's memory,
    and take its steps there: ZeRO-Offload (Ren et al. 2021, arXiv 2101.06840). Needs zero_stage 1, 2 or 3."""
    gate_tolerance: Annotated[float, Field(gt=0)] | None = None
    """Mean |sampler - trainer| log-probability at which the run stops; null is 0.0001 in fp32, 0.05 in bf16, and
    0.1 where vllm computes in bf16 throughout."""
    nonfinite: Nonfinite = "stop"
    """What a step does whose gradient is not finite: stop the run, or leave it out and count it (`skipped` in the
    metrics); critics too. Weights that are not finite always stop the run, before they are published."""

    @model_validator(mode="after")
    def _can_offload(self) -> Self:
        if self.offload_optimizer and not self.zero_stage:
            raise ValueError("`offload_optimizer` is ZeRO's: set zero_stage to 1, 2 or 3")
        return self

    @property
    def steps(self) -> int:
        """Optimiser steps per update."""
        return self.epochs * self.minibatches

    @property
    def holds_on(self) -> bool:
        """Whether some regulariser compares the policy with its own beginning."""
        held = (r for r in self.regularisers.values() if "reference" in r.needs)
        return any(any(weight.plain() for weight in r.parts) or not r.parts for r in held)


class OpponentSpec(Spec):
    """One kind of opponent, and when it is met."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    play: Literal["self", "past", "pfsp", "fixed"]
    """`self`: all seats as configured; `past`: the version of `lag` updates ago; `pfsp`: past versions that the
    learner seldom beats; `fixed`: a brain or a frozen policy."""
    weight: Share = 1.0
    """Chance of being drawn for a match, relative to the other kinds that are met in the same iteration."""
    lag: Positive | None = None
    """Of `past`: how many updates ago."""
    policy: str | None = None
    """Of `fixed`: a brain, a frozen policy, or `endpoint:MODEL`."""
    since: Annotated[Positive, Field(alias="from")] = 1
    """First iteration in which it is met."""
    until: Positive | None = None
    """Last one; null is the end of the run."""

    def met_in(self, iteration: int) -> bool:
        """Whether it may be drawn in this iteration."""
        return self.weight > 0 and self.since <= iteration and (self.until is None or iteration <= self.until)

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        for field, play, example in (("lag", "past", "lag: 1"), ("policy", "fixed", "policy: random")):
            given = getattr(self, field) is not None
            if self.play == play and not given:
                raise ValueError(f"`play: {play}` needs `{field}`, such as `{example}`")
            if given and self.play != play:
                raise ValueError(f"`{field}` belongs to `play: {play}`, not to `play: {self.play}`")
        if self.until is not None and self.until < self.since:
            raise ValueError(f"it is met from iteration {self.since} until {self.until}: never")
        return self


class PoolSpec(Spec):
    """Which past versions of the trained policies are kept to be met again."""

    every: Positive = 5
    """Iterations between two admissions; the beginning is always admitted."""
    keep: Annotated[int, Field(ge=2, le=10**6)] = 8
    """Members; beyond, the oldest but the first goes."""
    in_memory: Positive = 4
    """Past versions that are loaded at once."""


class LeagueSpec(Spec):
    """Against whom the trained policies play; without a league, against whoever is configured."""

    opponents: Annotated[list[OpponentSpec], Field(min_length=1)]
    """The mixture that each match draws from."""
    pool: PoolSpec = PoolSpec()
    """Which past versions are kept."""


class EvaluateSpec(Spec):
    """What judges a run from outside: a panel of opponents while it goes on, other games when it is over."""

    panel: GivenPanel | None = None
    """Opponents that stand still: a name (`arena list panels`), a YAML file, or written out. The weights play them
    before the first iteration and after the last."""
    every: Positive | None = None
    """And after every so many iterations."""
    deals: Deals | None = None
    """Of the panel, in place of its own number."""
    games: Annotated[list[GameSpec], Field(min_length=1)] | None = None
    """Which games, held out of training or not, the first and the last weights play on the same deals."""
    against: list[ContenderName] = ["random"]
    """In `games`, as in `arena eval`; where all seats are paid the same, the policy plays with itself instead."""
    matches: Annotated[int, Field(ge=2, le=10**6)] = 100
    """Per game and opponent, before and after each."""

    @property
    def held_out(self) -> list[GameSpec]:
        """The games that are played when the run is over; often none."""
        return self.games or []

    @model_validator(mode="after")
    def _asks_for_something(self) -> Self:
        if self.panel is None and self.games is None:
            raise ValueError("give `panel: NAME`, or `games: […]`: what is to be evaluated?")
        if self.panel is None and (self.every or self.deals):
            raise ValueError(f"`{'every' if self.every else 'deals'}` belongs to `panel`: name one, or remove it")
        return self


class CheckpointSpec(Spec):
    """How often the run is committed, and how many commits are kept."""

    every: Positive = 1
    """Iterations from one checkpoint to the next; the last one always has one."""
    keep: Positive = 2
    """The newest so many stay."""


class Experiment(Spec):
    """One run, whole."""

    name: Name
    """Of the run; its folder begins with it."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Every random choice comes from it."""
    iterations: Annotated[int, Field(ge=1, le=10**5)]
    """How often to play, learn and publish."""
    precision: Literal["auto", "fp32", "bf16", "bf16-true"] = "fp32"
    """`bf16` is that of the matrix products in play and learning; `bf16-true` of the weights themselves too, of which
    the optimiser then holds float32 masters: half the memory of a model beside them. `auto`: bf16 where a short trial
    when the run begins finds it faster, else fp32; then noted in its config."""
    threads: Annotated[int, Field(ge=1, le=1024)] | Literal["auto"] | None = "auto"
    """CPU threads of torch. `auto`: as many as are fastest by a short trial when the run begins, and then noted in its
    config; null leaves torch's own choice."""
    game: GameSpec | None = None
    """With `seats`: the only game of the run."""
    roles: Folder | None = None
    """A folder of role files, searched after the built-in ones."""
    policies: dict[Name, PolicySpec]
    """Weights by name."""
    seats: dict[str, SeatSpec] | None = None
    """Who sits at each seat of `game`."""
    tables: Annotated[list[TableSpec], Field(min_length=1)] | None = None
    """Several games in one run, instead of `game` and `seats`."""
    league: LeagueSpec | None = None
    """Past versions and others to play against."""
    evaluate: EvaluateSpec | None = None
    """What judges it from outside, and learning never hears of."""
    play: PlaySpec = PlaySpec()
    """How matches are played."""
    credit: CreditSpec = CreditSpec()
    """What turns were worth."""
    learn: LearnSpec = LearnSpec()
    """How policies learn from it."""
    engine: EngineSpec = EngineSpec()
    """What serves tokens."""
    endpoint: EndpointSpec = EndpointSpec()
    """The server of policies written `endpoint:MODEL`."""
    endpoints: dict[Name, EndpointSpec] = {}
    """Further servers by name, for policies written `endpoint@NAME:MODEL`."""
    checkpoint: CheckpointSpec = CheckpointSpec()
    """When the run is committed."""
    study: StudySpec | None = None
    """What runs of it are to show (`arena study`); a run itself does not ask."""

    @property
    def bf16(self) -> bool:
        """Whether products are bfloat16; ValueError while that is still to be tried (`arena.learn.machine.fitted`)."""
        if self.precision == "auto":
            raise ValueError("precision is still auto: take what arena.learn.machine.fitted makes of the experiment")
        return self.precision != "fp32"

    @property
    def narrow(self) -> bool:
        """Whether the weights of whole models are bfloat16."""
        return self.precision == "bf16-true"

    def all_tables(self) -> list[TableSpec]:
        """Every game of the run with who sits at it, one or several."""
        if self.tables is not None:
            return self.tables
        return [TableSpec(game=self.game, seats=self.seats)] if self.game and self.seats is not None else []

    def with_tables(self, tables: list[TableSpec]) -> "Experiment":
        """The same with other tables, as many as there are."""
        if self.tables is not None:
            return self.model_copy(update={"tables": tables})
        return self.model_copy(update={"game": tables[0].game, "seats": tables[0].seats})

    def servers(self) -> dict[str, EndpointSpec]:
        """All servers by name, "" for the one of `endpoint`."""
        return {"": self.endpoint, **self.endpoints}

    def trained(self, policy: str) -> bool:
        """Whether it is the name of a policy that learns."""
        return policy in self.policies and self.policies[policy].train
