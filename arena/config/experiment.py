"""The experiment: all settings of a run, and the checks across its sections."""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from agents.engines.spec import EngineSpec
from agents.players.spend import EndpointSpec
from agents.precision import Precision
from arena.config.study import StudySpec
from arena.credit.critics import list_critic_measures
from arena.credit.replay import REPLAY
from arena.credit.settings import CreditSpec
from arena.errors import ConfigError
from arena.league.settings import LeagueSpec
from arena.learn.settings import PolicySpec, UpdateSpec
from arena.panels.settings import EvaluateSpec
from arena.parts.apportion import apportion
from arena.parts.part_config import PartConfig
from arena.parts.paths import Folder
from arena.parts.schedules import Clock
from arena.parts.spec import Name, Seed, Spec
from arena.play.parts.base import Setup, check_parts
from arena.play.settings import GameSpec, PlaySpec, SeatSpec, SourceSpec, TableSpec
from arena.scale.settings import ScaleSpec
from arena.store.settings import CheckpointSpec
from arena.trackers.settings import TrackerNames

MAX_ITERATIONS = 10**5
ROW_LOSSES = ("likelihood", "dpo", "kto")
"""Losses that can learn from a data set."""


class LearnSpec(UpdateSpec):
    """Settings of the updates, one per iteration and policy. Parts are named as in `arena list`."""

    replay: Annotated[PartConfig | None, REPLAY.or_none()] = None
    """Replay of trajectories from earlier iterations."""


class Experiment(Spec):
    """All settings of one run."""

    name: Name
    """Name of the run, and first part of its folder's name."""
    seed: Seed = 0
    """Seed of all random choices."""
    iterations: Annotated[int, Field(ge=1, le=MAX_ITERATIONS)]
    """Number of iterations. Each one plays, learns and publishes new weights."""
    precision: Literal["auto", "fp32", "bf16", "bf16-true"] = "fp32"
    """Precision of play and learning. `bf16` computes matrix products in bfloat16. `bf16-true` also stores the weights
    in bfloat16, which halves the model's memory; the optimiser keeps float32 master weights. `auto` times both when the
    run starts and records the faster of bf16 and fp32 in its config."""
    threads: Annotated[int, Field(ge=1, le=1024)] | Literal["auto"] | None = "auto"
    """CPU threads of torch. `auto` times several numbers when the run starts and records the fastest in its config.
    null is torch's default."""
    game: GameSpec | None = None
    """The game of the run, together with `seats`."""
    roles: Folder | None = None
    """Folder with role files, searched after the built-in roles."""
    policies: dict[Name, PolicySpec]
    """Policies with weights, by name."""
    seats: dict[str, SeatSpec] | None = None
    """Role and policy at each seat of `game`."""
    tables: Annotated[list[TableSpec], Field(min_length=1)] | None = None
    """Several games in one run; replaces `game` and `seats`."""
    league: LeagueSpec | None = None
    """Opponents of the league: past versions and fixed policies."""
    evaluate: EvaluateSpec | None = None
    """Evaluation during and after training. It does not affect learning."""
    play: PlaySpec = PlaySpec()
    """Settings of play, such as the number of matches."""
    credit: CreditSpec = CreditSpec()
    """Settings of credit, which turns rewards into advantages."""
    learn: LearnSpec = LearnSpec()
    """Settings of the updates: loss, learning rate, regularisers."""
    engine: EngineSpec = EngineSpec()
    """Engine that generates tokens."""
    endpoint: EndpointSpec = EndpointSpec()
    """Server of the policies named `endpoint:MODEL`."""
    endpoints: dict[Name, EndpointSpec] = {}
    """Further servers by name, for policies named `endpoint@NAME:MODEL`."""
    checkpoint: CheckpointSpec = CheckpointSpec()
    """Settings of checkpoints: how often they are saved and how many are kept."""
    tracker: TrackerNames = ["tensorboard"]
    """Trackers of metrics and sample matches: `tensorboard`, `trackio`, `wandb`, or [] for none."""
    source: SourceSpec | None = None
    """Source to learn from without play: another run's log, or a data set. null plays new matches."""
    scale: ScaleSpec | None = None
    """Trainer ranks and engines as Ray processes. null runs everything in one process."""
    study: StudySpec | None = None
    """The claim to test and how to test it (`arena study`). A single run ignores it."""

    @property
    def resolved_precision(self) -> Precision:
        """Precision of the run. Raises ValueError if it is `auto`, which `arena.preflight.fit_to_machine` replaces."""
        if self.precision == "auto":
            raise ValueError("precision is still auto: use the experiment that arena.preflight.fit_to_machine returns")
        return Precision(self.precision)

    @property
    def learns_rows(self) -> bool:
        """True if the run learns from the rows of a data set, without play."""
        return self.source is not None and self.source.data is not None

    @property
    def overlaps(self) -> bool:
        """True if matches are played while policies learn."""
        return self.source is None and self.play.overlaps

    def all_tables(self) -> list[TableSpec]:
        """Return the run's games with their seats: `tables`, or one table made of `game` and `seats`.

        The seats' tools are added to the options of their game.
        """
        tables = self.tables
        if tables is None:
            tables = [TableSpec(game=self.game, seats=self.seats)] if self.game and self.seats is not None else []
        return [table.with_tools() for table in tables]

    def with_tables(self, tables: list[TableSpec]) -> "Experiment":
        """Return a copy of the experiment with `tables`, one per game, instead of its games and seats."""
        if self.tables is not None:
            return self.model_copy(update={"tables": tables})
        return self.model_copy(update={"game": tables[0].game, "seats": tables[0].seats})

    def servers(self) -> dict[str, EndpointSpec]:
        """Return the settings of all endpoint servers by name; the server of `endpoint` has the name ""."""
        return {"": self.endpoint, **self.endpoints}

    def trained(self, policy: str) -> bool:
        """Return True if `policy` is one of `policies` and learns; False for scripted policies and endpoints."""
        return policy in self.policies and self.policies[policy].train

    def playing(self) -> dict[str, PolicySpec]:
        """Return the settings of all policies that the run uses, by name: at its seats, in its league and in credit.

        In a run that learns from a data set, these include the trained policies.
        """
        names = {seat.policy for table in self.all_tables() for seat in table.seats.values()} | self.credit.policies
        names |= {o.policy for o in self.league.opponents if o.policy} if self.league else set()
        names |= {name for name, policy in self.policies.items() if policy.train} if self.learns_rows else set()
        return {name: self.policies[name] for name in sorted(names & set(self.policies))}

    # -- checks across sections -------------------------------------------------------------------------------

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        """Check that every rollout part can work with the other settings."""
        games = [(table.game.name, table.game.options) for table in self.all_tables()]
        try:
            check_parts(self.play.parts, Setup(play=self.play, has_entropy=self.engine.entropy, games=games))
        except ValueError as error:
            raise ConfigError(str(error)) from None
        return self

    @model_validator(mode="after")
    def _check_tables(self) -> Self:
        """Raise ConfigError unless either `game` and `seats` or `tables` is given, and each game gets a match.

        A run that learns from a data set needs no game.
        """
        if self.learns_rows and self.tables is None and self.game is None and self.seats is None:
            self._forbid_games()
            return self
        for field in ("game", "seats"):
            is_given = getattr(self, field) is not None
            if self.tables is None and not is_given:
                raise ConfigError(f"{field}: missing: give `game` and `seats`, or `tables` for several games")
            if self.tables is not None and is_given:
                raise ConfigError(
                    f"{field}: given together with `tables`: give one of the two (`{field}: null` removes this one)"
                )
        counts = apportion(self.play.deals, [table.share for table in self.all_tables()])
        if 0 in counts:
            raise ConfigError(
                f"tables[{counts.index(0)}].share: too small for one of the {self.play.matches} matches of "
                "an iteration: raise it, or play.matches"
            )
        return self

    def _forbid_games(self) -> None:
        """Raise ConfigError if a setting needs a game, which this run lacks."""
        imitating = [f"policies.{name}.imitate" for name, policy in self.policies.items() if policy.imitate]
        needing = {"league": self.league, "evaluate": self.evaluate, "learn.demonstrations": self.learn.demonstrations}
        if fields := [*imitating, *(name for name, setting in needing.items() if setting)]:
            raise ConfigError(f"{fields[0]}: needs a game: give `game` and `seats`, or remove it")

    @model_validator(mode="after")
    def _check_data_set(self) -> Self:
        """Raise ConfigError if the loss does not suit the source (data set or play) or the aggregate.

        Also raises it if a run that learns from a data set has no trained policy.
        """
        if self.learns_rows:
            if self.learn.loss.name not in ROW_LOSSES:
                names = f"{', '.join(ROW_LOSSES[:-1])} or {ROW_LOSSES[-1]}"
                raise ConfigError(f"learn.loss: {self.learn.loss.name} needs play: a data set is learned by {names}")
            if not any(policy.train for policy in self.policies.values()):
                raise ConfigError("source.data: no policy learns from it: set a policy's `train: true`")
        elif "baselines" in self.learn.loss.needs:
            raise ConfigError(f"learn.loss: {self.learn.loss.name} learns from labelled completions: set source.data")
        if self.learn.loss.name == "kto" and self.learn.aggregate.name != "turn_mean":
            raise ConfigError("learn.loss: kto is a mean over completions: set learn.aggregate: turn_mean")
        return self

    @model_validator(mode="after")
    def _check_critic(self) -> Self:
        """Raise ConfigError unless the critic computes the values that estimators and other parts of credit need."""
        rule, by_critic = self.credit, list_critic_measures()
        values = frozenset[str]().union(*by_critic.values())
        computed = by_critic[rule.critic.name] if rule.critic else frozenset[str]()
        for place, part in rule.parts():
            required = part.needs & values
            if required - computed:
                fitting = " or ".join(name for name, gives in by_critic.items() if required <= gives)
                instead = f", not {rule.critic.name}" if rule.critic else ""
                raise ConfigError(f"credit.{place}: {part.name} needs credit.critic: {fitting}{instead}")
        return self

    @model_validator(mode="after")
    def _check_groups(self) -> Self:
        """Check that each deal is played several times, as a group or by branches, if credit compares its matches."""
        is_played_once = self.play.group == 1 and self.play.max_matches == self.play.matches
        parts = [part for place, part in self.credit.parts() if place != "transforms"]
        for part in (inner for outer in parts for inner in (outer, *outer.parts)):
            by = part.with_defaults().settings.get("by") or ()
            if is_played_once and "seed" in by:
                raise ConfigError(
                    f"credit: {part.name} compares matches of one deal, but each deal is played once: set play.group, "
                    f"such as play.group=8, or set another `by` for {part.name} than {', '.join(by)}"
                )
        return self

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        """Raise ConfigError if a loss or estimator compares two replies to one prompt, but lacks a setting it needs."""
        credit, learn = self.credit, self.learn
        of_pairs = "pairs" in learn.loss.needs
        if not of_pairs and "refuel" not in (part.name for part in (credit.estimator, *credit.estimator.parts)):
            return self
        requirements = {} if self.learns_rows else {"play.parts: [branches]": self.play.part("branches") is not None}
        if of_pairs:
            if not self.learns_rows:
                requirements["credit.estimator: refuel"] = credit.estimator.name == "refuel"
                requirements["credit.transforms: []"] = not credit.transforms
            requirements["learn.aggregate: turn_mean"] = learn.aggregate.name == "turn_mean"
        if missing := [setting for setting, is_set in requirements.items() if not is_set]:
            part = f"learn.loss: {learn.loss.name}" if of_pairs else "credit.estimator: refuel"
            raise ConfigError(f"{part} compares two replies in the same context: set {' and '.join(missing)}")
        return self

    @model_validator(mode="after")
    def _check_demonstrations(self) -> Self:
        """Raise ConfigError if patches are imitated without the part `patch`, or a weight is negative or infinite."""
        if (demonstrations := self.learn.demonstrations) is None:
            return self
        if demonstrations.patches and not self.play.part("patch"):
            raise ConfigError("learn.demonstrations.patches: set play.parts to [{patch: {expert: oracle}}] or the like")
        for k in range(1, self.iterations + 1):
            weight: float = demonstrations.weight(Clock(k, self.iterations))
            if not 0 <= weight < math.inf:
                raise ConfigError(f"learn.demonstrations.weight: {weight:g} in iteration {k}: must be 0 or more")
            if demonstrations.mixed and weight > 1:
                raise ConfigError(f"learn.demonstrations.weight: {weight:g} in iteration {k}: with `mixed` at most 1")
        return self

    @model_validator(mode="after")
    def _check_league(self) -> Self:
        """Raise ConfigError unless a league has an opponent in every iteration and a game with two trained seats.

        Fixed opponents must not be trained policies.
        """
        if self.league is None:
            return self
        for k in range(1, self.iterations + 1):
            if not any(opponent.is_drawn_in(k) for opponent in self.league.opponents):
                raise ConfigError(
                    f"league.opponents: no opponent has a weight above 0 in iteration {k}: change weight, from, until"
                )
        for opponent in self.league.opponents:
            if opponent.policy and self.trained(opponent.policy):
                raise ConfigError(
                    f"league.opponents: fixed opponent '{opponent.policy}' is a trained policy: "
                    "name a scripted policy or a policy with `train: false`, or use `play: past`"
                )
        if not any(sum(self.trained(s.policy) for s in t.seats.values()) > 1 for t in self.all_tables()):
            raise ConfigError(
                "league: opponents replace trained policies, and no game has two seats with trained policies "
                "(`league: null` turns the league off)"
            )
        return self
