"""Build all objects of a run from its experiment and its folder."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agents.computing import compute
from agents.engines.base import Engine
from agents.engines.make import make_engine
from agents.engines.spec import EngineSpec
from agents.players.servers import Endpoints
from agents.precision import Precision
from agents.role import Role
from agents.weights import resolve
from arena.config.experiment import Experiment
from arena.config.saved_config import hash_identity
from arena.config.seating import resolve_tables
from arena.credit.asking import AskContext, Asker, Measurer, create_measurers
from arena.credit.critics import create_critic
from arena.credit.critics.base import Critic, Measures
from arena.credit.iteration import CreditPipeline
from arena.credit.measures import measure
from arena.credit.names import all_declare_rewards
from arena.credit.rewards.information_gain import find_gold
from arena.errors import StoreError
from arena.league.matchmaking import Matchmaker, WinRates
from arena.league.pool import Pool
from arena.league.ratings import Ratings
from arena.league.settings import PoolSpec
from arena.learn.base import MakeTrainer
from arena.learn.trainer import create_local_trainer
from arena.play.control import MatchControl
from arena.play.demonstrations import Demonstrations
from arena.play.lessons import DataSource
from arena.play.lineup import Lineup
from arena.play.logged import LogSource
from arena.play.match import Limits, MatchPlan
from arena.play.parts.base import PartContext, RolloutPart
from arena.play.parts.guard import GuardedPart
from arena.play.source import AheadSource, PlaySource, Source, load_parts
from arena.play.tables import Table
from arena.play.watchers import Watcher
from arena.policies import Policies
from arena.records import Trajectory
from arena.store import checkpoints, warm_start
from arena.store.checkpoints import Checkpoint
from arena.store.run import RunFolder
from arena.store.state import STATE, blame_checkpoint, read_state
from arena.store.warm_start import ImitationProgress
from games.adapters.loading import file_of
from games.contracts import Game, View


@dataclass(frozen=True)
class Factories:
    """Factories of a run's engine and trainers, in this process or on a cluster."""

    engine: Callable[[EngineSpec, Precision], Engine] = make_engine
    trainer: MakeTrainer = create_local_trainer


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Components of a run's training loop (`Lab`), such as policies, critic and league, made by `build`."""

    done: int
    """Number of committed iterations."""
    restored: bool
    """True if the run was restored from a checkpoint: checkpoint 0 after a warm start, or that of an iteration."""
    imitated: ImitationProgress | None
    """Progress of an interrupted warm start, if any."""
    tables: Sequence[Table]
    roles: Mapping[str, Role]
    """Roles by name; a name is the same role at every table."""
    engine: Engine
    policies: Policies
    pool: Pool
    win_rates: WinRates
    ratings: Ratings
    matchmaker: Matchmaker | None
    critic: Critic | None
    crediting: CreditPipeline
    lineup: Lineup
    demonstrations: Demonstrations
    play: PlaySource
    source: Source
    """Source of the run's matches: `play`, play ahead of learning, another run's log, or a data set, which has none."""
    lessons: DataSource | None
    """Data set to learn from, if that is the source."""

    @property
    def temperatures(self) -> dict[str, float]:
        """Sampling temperature by role name."""
        return {name: role.sampling.temperature for name, role in self.roles.items()}


async def build(
    run: RunFolder,
    experiment: Experiment,
    engine: Engine,
    watcher: Watcher,
    make_trainer: MakeTrainer = create_local_trainer,
) -> Parts:
    """Build a run's parts from its newest valid checkpoint, or initial ones if it has none. Deletes newer data.

    The engine must be open. Notes slow steps, and why newer checkpoints are invalid, to the watcher. Raises
    StoreError if the run has checkpoints but none is intact, or if the league's pool in the checkpoint is empty.
    """
    checkpoint = _select_checkpoint(run, experiment, watcher)
    state = read_state(checkpoint) if checkpoint else {}
    tables = resolve_tables(experiment)
    roles = {role.role: role for table in tables for role in table.roles.values()}
    initial, imitated = _find_initial_weights(run, checkpoint, watcher)
    states = imitated.states() if imitated else state.get("policies", {})
    with blame_checkpoint(initial):
        policies = _make_policies(experiment, engine, make_trainer)
        await policies.load(initial, states, lambda step: watcher.phase(0, step))

    pool, win_rates, matchmaker = _make_league(run, experiment, checkpoint, state.get("league", {}), policies)
    critic = await _make_critic(experiment, checkpoint, policies)
    endpoints, credit = Endpoints(experiment.servers()), state.get("credit", {})
    asker = Asker(policies, engine, endpoints)
    context = _make_ask_context(experiment, policies, asker, tables, watcher)
    asking = _make_asking(experiment, checkpoint, context, credit)
    crediting = _make_crediting(run, experiment, credit, tables, policies, critic, asking)
    parts = _make_rollout_parts(experiment, policies, asker, crediting, watcher)
    lineup = _make_lineup(experiment, tables, policies, engine, endpoints, parts, watcher)
    demonstrations = _make_demonstrations(run, experiment, lineup, policies, watcher)
    lessons = _make_lessons(run, experiment, policies, watcher)
    await policies.set_references(find_reference_weights(run, experiment, policies))
    with blame_checkpoint(checkpoint):
        late = load_parts(parts, state.get("play", {}))
    play = PlaySource(
        run=run, rule=experiment.play, policies=policies, pool=pool, matchmaker=matchmaker, lineup=lineup,
        watcher=watcher, parts=parts, iterations=experiment.iterations, late=late,
    )  # fmt: skip
    return Parts(
        done=checkpoint.iteration if checkpoint else 0, restored=checkpoint is not None, imitated=imitated,
        tables=tables, roles=roles, engine=engine,
        policies=policies, pool=pool, win_rates=win_rates, matchmaker=matchmaker, critic=critic, crediting=crediting,
        lineup=lineup, demonstrations=demonstrations, play=play, lessons=lessons,
        source=lessons or _make_source(run, experiment, watcher, play),
        ratings=Ratings(state.get("ratings"), len({table.game.name for table in tables}) > 1),
    )  # fmt: skip


def _make_demonstrations(
    run: RunFolder, experiment: Experiment, lineup: Lineup, policies: Policies, watcher: Watcher
) -> Demonstrations:
    return Demonstrations(
        spec=experiment.learn.demonstrations, lineup=lineup, learners=policies.trainers,
        attempts=experiment.play.attempts, failures=run.failures, note=watcher.note,
    )  # fmt: skip


def _make_ask_context(
    experiment: Experiment, policies: Policies, asker: Asker, tables: Sequence[Table], watcher: Watcher
) -> AskContext:
    """Return the context for the credit stages that query models."""
    uses_bf16, budget = policies.precision.uses_bf16_products, experiment.learn.token_budget
    return AskContext(asker, partial(_read_rules, tables), watcher.note, uses_bf16, budget)


def _select_checkpoint(run: RunFolder, experiment: Experiment, watcher: Watcher) -> Checkpoint | None:
    """Return the newest valid checkpoint, or None. Deletes newer data and surplus old checkpoints."""
    checkpoint = run.find_resume_point(watcher.note, experiment.checkpoint.every, experiment.play.lag)
    run.discard_after(checkpoint.iteration if checkpoint else -1)
    run.prune(experiment.checkpoint.keep)
    return checkpoint


def _find_initial_weights(
    run: RunFolder, checkpoint: Checkpoint | None, watcher: Watcher
) -> tuple[Checkpoint | None, ImitationProgress | None]:
    """Return the checkpoint to load policies from, if any, and the progress of an interrupted warm start, if any.

    If the run has a checkpoint, data of the warm start is deleted. A damaged warm start is reported and restarted.
    """
    if checkpoint:
        warm_start.discard(run.path)
        return checkpoint, None
    try:
        return warm_start.load_unfinished(run.path, hash_identity(run.path)) or (None, None)
    except StoreError as error:
        watcher.note(f"{error}: the imitation restarts")
        return None, None


def _make_asking(
    experiment: Experiment, checkpoint: Checkpoint | None, context: AskContext, credit: Mapping[str, Any]
) -> dict[str, Measurer]:
    """Create the measurers of credit stages that query models, by measure, with the checkpoint's `credit` state."""
    with blame_checkpoint(checkpoint):
        return create_measurers(experiment.credit.stages, context, credit.get("asked", {}))


def _make_rollout_parts(
    experiment: Experiment, policies: Policies, asker: Asker, crediting: CreditPipeline, watcher: Watcher
) -> list[RolloutPart]:
    """Create the experiment's rollout parts, in order, without restored state."""
    context = PartContext(
        seed=experiment.seed,
        iterations=experiment.iterations,
        policies=policies,
        asker=asker,
        missing_deals=crediting.count_missing_deals,
        note=watcher.note,
    )
    parts = ((part_config.name, part_config(context)) for part_config in experiment.play.parts)
    return [GuardedPart(part, name) if file_of(name) else part for name, part in parts]


def _make_lineup(
    experiment: Experiment,
    tables: Sequence[Table],
    policies: Policies,
    engine: Engine,
    endpoints: Endpoints,
    parts: Sequence[RolloutPart],
    watcher: Watcher,
) -> Lineup:
    """Create the lineup, which prepares the matches of a run's tables, with their limits and controls."""
    limits = Limits(**experiment.play.limits.model_dump())

    def control(plan: MatchPlan, game: Game) -> list[MatchControl]:
        return [control for part in parts if (control := part.control(plan, game))]

    harnesses = None
    if any(table.harnesses for table in tables):
        from agents.harness.server import HarnessServer  # its packages are optional

        harnesses = HarnessServer(watcher.note)
    return Lineup(
        tables=tables,
        policies=policies,
        engine=engine,
        seed=experiment.seed,
        limits=limits,
        endpoints=endpoints,
        control=control,
        harnesses=harnesses,
    )


def _make_policies(experiment: Experiment, engine: Engine, make_trainer: MakeTrainer) -> Policies:
    """Create the policies of the run's seats and its league, without loading their weights."""
    return Policies(
        experiment.playing(), experiment.learn, engine, make_trainer,
        seed=experiment.seed, precision=experiment.resolved_precision,
        scores_reference="reference" in experiment.credit.needs, learn_in_play=experiment.overlaps,
    )  # fmt: skip


def find_reference_weights(run: RunFolder, experiment: Experiment, policies: Policies) -> dict[str, Path]:
    """Return the folder of each trained policy's reference weights.

    These are its setting `reference` if set, else its weights after the warm start, else its model.
    """
    warm_start = run.path / "checkpoints" / "0000"
    specs = {name: experiment.policies[name] for name in policies.trainers}
    return {
        name: resolve(spec.reference)
        if spec.reference
        else checkpoints.verify(warm_start).policy(name)
        if spec.imitate and warm_start.is_dir()
        else policies[name].source
        for name, spec in specs.items()
    }


async def _make_critic(experiment: Experiment, checkpoint: Checkpoint | None, policies: Policies) -> Critic | None:
    """Create the critic that credit needs, restored if the checkpoint has one; None if credit needs none."""
    rule = experiment.credit
    critic = create_critic(
        rule.critic, rule.estimator, seed=experiment.seed, nonfinite=experiment.learn.nonfinite, policies=policies
    )
    if critic and checkpoint and (checkpoint.folder / "critic").is_dir():
        with blame_checkpoint(checkpoint):
            await compute(critic.load, checkpoint.folder / "critic")
    return critic


def _make_source(run: RunFolder, experiment: Experiment, watcher: Watcher, play: PlaySource) -> Source:
    """Create the source of the run's matches: another run's log, play, or play ahead of learning."""
    if experiment.source is None:
        ahead = AheadSource(play, experiment.play.ahead, experiment.iterations, watcher)
        return ahead if experiment.overlaps else play
    learners = {name: play.policies[name].positions for name, policy in experiment.policies.items() if policy.train}
    return LogSource(run, experiment.source, experiment.all_tables(), learners, watcher, experiment.seed)


def _make_lessons(run: RunFolder, experiment: Experiment, policies: Policies, watcher: Watcher) -> DataSource | None:
    """Create the data source that the run learns from; None if it learns from matches."""
    if experiment.source is None or experiment.source.data is None:
        return None
    seed, iterations = experiment.seed, experiment.iterations
    return DataSource(run, experiment.source, policies, watcher, seed=seed, iterations=iterations)


def _make_crediting(
    run: RunFolder,
    experiment: Experiment,
    state: dict[str, Any],
    tables: Sequence[Table],
    policies: Policies,
    critic: Critic | None,
    asking: Mapping[str, Measurer],
) -> CreditPipeline:
    """Create the credit pipeline, which assigns rewards and advantages, with its restored `state`."""
    temperatures = {role.role: role.sampling.temperature for table in tables for role in table.roles.values()}
    gold = find_gold(experiment.credit.stages)

    async def compute_measures(needs: frozenset[str], trajectories: Sequence[Trajectory]) -> Measures:
        return await measure(needs, trajectories, policies, temperatures, gold, critic)

    return CreditPipeline(
        experiment.credit, experiment.learn.replay, compute_measures, run.reader.log, state,
        seed=experiment.seed, iterations=experiment.iterations, deals=experiment.play.deals,
        has_declared_rewards=all_declare_rewards([table.make_game() for table in tables]),
        check=policies.require_known_tokens, measurers=asking,
    )  # fmt: skip


def _read_rules(tables: Sequence[Table], name: str, seed: int) -> str:
    """Return the rules of the game `name` as the players of the deal `seed` read them."""
    game = next(table for table in tables if table.game.name == name).make_game()
    game.reset(seed=seed)
    return View.of(game, game.agent_selection).rules


def _make_league(
    run: RunFolder, experiment: Experiment, checkpoint: Checkpoint | None, state: Mapping[str, Any], policies: Policies
) -> tuple[Pool, WinRates, Matchmaker | None]:
    """Restore the league's pool, win rates and, if there is a league, matchmaker from a checkpoint's `state`.

    Raises StoreError if the run has a league and a checkpoint, but its pool is empty.
    """
    pool = _restore_pool(run, experiment, state.get("pool"))
    if checkpoint and experiment.league and not pool.versions:
        raise StoreError(f"{checkpoint.folder / STATE}: league.pool has no past versions: restore it from a copy")
    pool.check(policies.trainers)
    win_rates = WinRates(state.get("win_rates"))
    return pool, win_rates, Matchmaker(experiment.league.opponents, pool, win_rates) if experiment.league else None


def _restore_pool(run: RunFolder, experiment: Experiment, state: dict[str, list[int]] | None) -> Pool:
    """Restore the league's pool of past versions, and delete the weights of versions that nothing refers to."""
    league = experiment.league
    lag = max((o.lag or 0 for o in league.opponents), default=0) if league else 0
    pool = Pool(run.path, league.pool if league else PoolSpec(), lag, state)
    pool.sweep()
    return pool
