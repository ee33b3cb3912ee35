"""All settings of a run (the experiment), composed of the settings that each package defines."""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from agents.engines.spec import EngineSpec
from agents.players.spend import EndpointSpec
from agents.precision import Precision
from arena.config.study import StudySpec
from arena.credit.critics import given_by_critics
from arena.credit.replay import REPLAY
from arena.credit.settings import CreditSpec
from arena.errors import ConfigError
from arena.league.settings import LeagueSpec
from arena.learn.settings import PolicySpec, UpdateSpec
from arena.panels.settings import EvaluateSpec
from arena.parts.chosen import Chosen
from arena.parts.paths import Folder
from arena.parts.schedules import Clock
from arena.parts.spec import Name, Spec
from arena.play.settings import GameSpec, PlaySpec, SeatSpec, SourceSpec, TableSpec, apportion
from arena.scale.settings import ScaleSpec
from arena.store.settings import CheckpointSpec
from arena.trackers.settings import TrackerNames


class LearnSpec(UpdateSpec):
    """One update per iteration and policy. Parts are named as in `arena list`, with their settings if any."""

    replay: Annotated[Chosen | None, REPLAY.or_none()] = None
    """Replay: trajectories of earlier iterations that are learned from once more."""


class Experiment(Spec):
    """One run, whole."""

    name: Name
    """Name of the run; its folder begins with it."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Every random choice comes from it."""
    iterations: Annotated[int, Field(ge=1, le=10**5)]
    """Number of iterations, each of which plays, learns and publishes."""
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
    """Role and policy at each seat of `game`."""
    tables: Annotated[list[TableSpec], Field(min_length=1)] | None = None
    """Several games in one run, instead of `game` and `seats`."""
    league: LeagueSpec | None = None
    """Past versions and others to play against."""
    evaluate: EvaluateSpec | None = None
    """Evaluation from outside, which never reaches learning."""
    play: PlaySpec = PlaySpec()
    """Settings of play, such as the number of matches."""
    credit: CreditSpec = CreditSpec()
    """Settings of credit: from rewards to advantages."""
    learn: LearnSpec = LearnSpec()
    """Settings of updates: loss, learning rate, regularisers."""
    engine: EngineSpec = EngineSpec()
    """Engine that serves tokens."""
    endpoint: EndpointSpec = EndpointSpec()
    """The server of policies written `endpoint:MODEL`."""
    endpoints: dict[Name, EndpointSpec] = {}
    """Further servers by name, for policies written `endpoint@NAME:MODEL`."""
    checkpoint: CheckpointSpec = CheckpointSpec()
    """Settings of checkpoints: how often the run is committed."""
    tracker: TrackerNames = ["tensorboard"]
    """Programs that show figures and sample matches: `tensorboard`, `trackio`, `wandb`; [] is none."""
    source: SourceSpec | None = None
    """Source of matches; null is play."""
    scale: ScaleSpec | None = None
    """Ranks and engines in processes of their own, by Ray; null is one process."""
    study: StudySpec | None = None
    """Claim that runs of it are to test, and how (`arena study`); a run itself does not read it."""

    @property
    def settled_precision(self) -> Precision:
        """Precision of the run; ValueError while it is still `auto` (`arena.preflight.fitted` settles it)."""
        if self.precision == "auto":
            raise ValueError("precision is still auto: take what arena.preflight.fitted makes of the experiment")
        return Precision(self.precision)

    @property
    def overlaps(self) -> bool:
        """Return True if matches are played while policies learn."""
        return self.source is None and self.play.overlaps

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
        """Return True if this is the name of a policy that learns."""
        return policy in self.policies and self.policies[policy].train

    # -- what only the whole can tell -------------------------------------------------------------------------

    @model_validator(mode="after")
    def _measures_entropy(self) -> Self:
        """Check that the entropy is kept by which matches are branched."""
        trees = self.play.trees
        if trees and (trees.trigger == "entropy" or trees.first == "auto") and not self.engine.entropy:
            raise ConfigError(
                "play.trees: goes by entropy, which the engine does not keep: set engine.entropy to true, or "
                "trigger to random and `first` to a number"
            )
        return self

    @model_validator(mode="after")
    def _has_tables(self) -> Self:
        """Check that there is one table or several, each with at least one match of an iteration."""
        for field in ("game", "seats"):
            given = getattr(self, field) is not None
            if self.tables is None and not given:
                raise ConfigError(f"{field}: missing: give `game` and `seats`, or `tables` for several games")
            if self.tables is not None and given:
                raise ConfigError(
                    f"{field}: given together with `tables`: give one or the other (`{field}: null` takes it away)"
                )
        counts = apportion(self.play.deals, [table.share for table in self.all_tables()])
        if 0 in counts:
            raise ConfigError(
                f"tables[{counts.index(0)}].share: none of the {self.play.matches} matches of an iteration "
                "would be played there: raise it, or play.matches"
            )
        return self

    @model_validator(mode="after")
    def _can_overlap(self) -> Self:
        """Check that weights which are played while they learn can be copied: ZeRO-3 takes them apart."""
        if self.overlaps and self.learn.zero_stage == 3 and self.engine.kind == "in_process" and not self.scale:
            raise ConfigError(
                "play: ahead and enough have the engine serve a copy of weights that learn, which zero_stage 3 takes "
                "apart: set learn.zero_stage to 2, or play.ahead to 0 and play.enough to 1"
            )
        return self

    @model_validator(mode="after")
    def _can_cap(self) -> Self:
        """Check that the option by which adaptive play shortens matches is there to be lowered."""
        cap = self.play.adaptive.cap if self.play.adaptive else None
        for table in self.all_tables() if cap else ():
            if not isinstance(table.game.options.get(cap or ""), int):
                raise ConfigError(
                    f"play.adaptive.cap: {cap} is lowered from what the game's options say: set {cap} there, "
                    f"to a number, for {table.game.name}"
                )
        return self

    @model_validator(mode="after")
    def _has_a_horizon(self) -> Self:
        """Check that the option by which matches grow is the games' own, so that a plan is still its table's."""
        option = self.play.horizon.option if self.play.horizon else None
        for table in self.all_tables() if option else ():
            if not isinstance(table.game.options.get(option or ""), int):
                raise ConfigError(
                    f"play.horizon.option: {option} goes by the schedule in place of the game's options: set "
                    f"{option} there, too, to what evaluations are to have, for {table.game.name}"
                )
        return self

    @model_validator(mode="after")
    def _has_a_critic(self) -> Self:
        """Check that there is a critic for the parts of credit that need values."""
        rule, by_critic = self.credit, given_by_critics()
        values = frozenset[str]().union(*by_critic.values())
        given = by_critic[rule.critic.name] if rule.critic else frozenset[str]()
        for place, part in rule.parts():
            needed = part.needs & values
            if needed - given:
                fitting = " or ".join(name for name, gives in by_critic.items() if needed <= gives)
                instead = f", not {rule.critic.name}" if rule.critic else ""
                raise ConfigError(f"credit.{place}: {part.name} needs credit.critic: {fitting}{instead}")
        return self

    @model_validator(mode="after")
    def _has_groups(self) -> Self:
        """Check that parts which compare matches of one deal have several: a group, or branches of one match (ARPO)."""
        alone = self.play.group == 1 and not self.play.branch
        judging = [part for place, part in self.credit.parts() if place != "transforms"]
        for part in (inner for one in judging for inner in (one, *one.parts)):
            by = part.whole().settings.get("by") or ()
            if alone and "seed" in by:
                raise ConfigError(
                    f"credit: {part.name} compares matches of one deal, and each deal is played once: set play.group, "
                    f"such as play.group=8, or give {part.name} another `by` than {', '.join(by)}"
                )
        return self

    @model_validator(mode="after")
    def _has_pairs(self) -> Self:
        """Check that a loss over pairs of answers has pairs to compare, and the estimator and aggregate it needs."""
        credit, learn = self.credit, self.learn
        of_pairs = "pairs" in learn.loss.needs
        if not of_pairs and "refuel" not in (part.name for part in (credit.estimator, *credit.estimator.parts)):
            return self
        wanted = {"play.branch: 1": self.play.branch > 0}
        if of_pairs:
            wanted["credit.estimator: refuel"] = credit.estimator.name == "refuel"
            wanted["credit.transforms: []"] = not credit.transforms
            wanted["learn.aggregate: turn_mean"] = learn.aggregate.name == "turn_mean"
        if missing := [setting for setting, given in wanted.items() if not given]:
            where = f"learn.loss: {learn.loss.name}" if of_pairs else "credit.estimator: refuel"
            raise ConfigError(f"{where} compares two answers to the same words: set {' and '.join(missing)}")
        return self

    @model_validator(mode="after")
    def _demonstrations_are_imitated(self) -> Self:
        """Check that demonstrations have a source, and a weight that is never negative: they are not avoided."""
        if (demonstrations := self.learn.demonstrations) is None:
            return self
        if demonstrations.patches and not self.play.patch:
            raise ConfigError(
                "learn.demonstrations.patches: nothing is patched: set play.patch, such as expert: oracle"
            )
        for k in range(1, self.iterations + 1):
            weight: float = demonstrations.weight(Clock(k, self.iterations))
            if not 0 <= weight < math.inf:
                raise ConfigError(f"learn.demonstrations.weight: {weight:g} in iteration {k}: it has to be 0 or more")
        return self

    @model_validator(mode="after")
    def _has_opponents(self) -> Self:
        """Check that a league has an opponent in every iteration, and a seat for it."""
        if self.league is None:
            return self
        for k in range(1, self.iterations + 1):
            if not any(opponent.met_in(k) for opponent in self.league.opponents):
                raise ConfigError(
                    f"league.opponents: nobody has a weight above 0 in iteration {k}: change weight, from, until"
                )
        for opponent in self.league.opponents:
            if opponent.policy and self.trained(opponent.policy):
                raise ConfigError(
                    f"league.opponents: fixed opponent '{opponent.policy}' is a policy that is trained: "
                    "name a scripted policy or a policy with `train: false`, or use `play: past`"
                )
        if not any(sum(self.trained(s.policy) for s in t.seats.values()) > 1 for t in self.all_tables()):
            raise ConfigError(
                "league: its opponents take the seats of trained policies, and no game has two such seats "
                "(league: null plays without one)"
            )
        return self
