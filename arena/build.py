"""The parts of a run, wired together: from an experiment, and what its folder keeps of it, to what the lab works with.

Each part is given what it needs when it is made, so the order below is the only one there is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.engines.base import Engine
from agents.players.servers import Endpoints
from agents.role import Role
from arena.config.experiment import Experiment, PoolSpec
from arena.credit.critics import critic_for
from arena.credit.critics.base import Critic, Measures
from arena.credit.gold import gold_of
from arena.credit.iteration import Crediting
from arena.credit.measures import measure
from arena.credit.names import declared
from arena.errors import StoreError
from arena.league.matchmaking import Matchmaker, WinRates
from arena.league.pool import Pool
from arena.league.ratings import Ratings
from arena.play.demonstrations import Demonstrations
from arena.play.lineup import Lineup
from arena.play.match import Limits
from arena.play.tables import Table, set_tables
from arena.policies import Policies
from arena.records import Trajectory
from arena.store import checkpoints
from arena.store.run import RunFolder
from arena.store.state import STATE, read_state, restoring


@dataclass(frozen=True)
class Parts:
    """What a lab works with."""

    done: int
    """Iterations that are committed."""
    restored: bool
    """Whether they, or the warm start alone, came from a checkpoint."""
    tables: Sequence[Table]
    roles: Mapping[str, Role]
    """By name: a role's name is the same role at every table."""
    engine: Engine
    policies: Policies
    pool: Pool
    win_rates: WinRates
    ratings: Ratings
    matchmaker: Matchmaker | None
    critic: Critic | None
    crediting: Crediting
    lineup: Lineup
    demonstrations: Demonstrations

    @property
    def temperatures(self) -> dict[str, float]:
        """At which each role's replies are sampled."""
        return {name: role.sampling.temperature for name, role in self.roles.items()}


def build(
    run: RunFolder,
    experiment: Experiment,
    engine: Engine,
    note: Callable[[str], None],
    doing: Callable[[str], None],
) -> Parts:
    """All parts as the newest valid checkpoint has them, dropping whatever is newer; without one, from the start.

    The engine is open. `note` hears why a newer checkpoint is not taken, `doing` what takes a while.
    """
    checkpoint = run.resume_point(note, experiment.checkpoint.every)
    done = checkpoint.iteration if checkpoint else 0
    run.discard_after(done if checkpoint else -1)
    state = read_state(checkpoint) if checkpoint else {}
    league = state.get("league", {})

    tables = set_tables(experiment)
    roles = {role.role: role for table in tables for role in table.roles.values()}
    with restoring(checkpoint):
        policies = Policies(experiment, engine, checkpoint, state.get("policies", {}), doing)

    pool = _pool(run, experiment, league.get("pool"))
    if checkpoint and experiment.league and not pool.versions:
        raise StoreError(f"{checkpoint.folder / STATE}: league.pool lists no version to meet: restore it from a copy")
    pool.check(policies.trainers)
    win_rates = WinRates(league.get("win_rates"))
    ratings = Ratings(state.get("ratings"), len({table.game.name for table in tables}) > 1)
    spec = experiment.league
    matchmaker = Matchmaker(spec.opponents, pool, win_rates) if spec else None

    known = {"seed": experiment.seed, "nonfinite": experiment.learn.nonfinite}
    critic = critic_for(experiment.credit, **known, policies=policies, engine=engine, roles=roles)
    if critic and checkpoint and (checkpoint.folder / "critic").is_dir():
        with restoring(checkpoint):
            critic.load(checkpoint.folder / "critic")
    temperatures = {name: role.sampling.temperature for name, role in roles.items()}
    gold = gold_of(experiment.credit)
    says_what_it_pays = declared([table.make_game() for table in tables])

    def measured(needs: frozenset[str], trajectories: Sequence[Trajectory]) -> Measures:
        return measure(needs, trajectories, policies, temperatures, gold, critic)

    crediting = Crediting(experiment, measured, run.reader.log, state.get("credit", {}), says_what_it_pays)
    limits = Limits(**experiment.play.limits.model_dump())
    lineup = Lineup(tables, policies, engine, experiment.seed, limits, Endpoints(experiment.servers()))
    demonstrations = Demonstrations(experiment, lineup, policies.trainers)
    policies.hold_on_to(beginnings(run, experiment, policies))
    return Parts(
        done, checkpoint is not None, tables, roles, engine, policies, pool, win_rates, ratings, matchmaker, critic,
        crediting, lineup, demonstrations,
    )  # fmt: skip


def beginnings(run: RunFolder, experiment: Experiment, policies: Policies) -> dict[str, Path]:
    """What the KL holds on to, by policy: its weights before learning from reward, after a warm start if it has one."""
    warm_start = run.path / "checkpoints" / "0000"
    return {
        name: checkpoints.verify(warm_start).policy(name)
        if experiment.policies[name].imitate and warm_start.is_dir()
        else policies[name].source
        for name in policies.trainers
    }


def _pool(run: RunFolder, experiment: Experiment, state: dict[str, list[int]] | None) -> Pool:
    """The pool as it was, without whatever the folder holds that came later."""
    league = experiment.league
    lag = max((o.lag or 0 for o in league.opponents), default=0) if league else 0
    pool = Pool(run.path, league.pool if league else PoolSpec(), lag, state)
    pool.sweep()
    return pool
