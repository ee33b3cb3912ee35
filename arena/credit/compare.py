"""Comparison of estimators on one match log: the advantages that each assigns to every turn.

Nothing is played or learned. Rewards and turns are read from the log in order, so that stateful estimators get the same
history as in a run. Trajectories that replay substituted are included as the run's own credit saw them. Trajectories
that replay added are left out, because replay and not the estimator set their advantages. Selection and transforms are
not applied.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from arena.credit.assign import compute_turn_rewards, estimate_advantages
from arena.credit.batch import CreditedTrajectory, Floats, TokenAdvantages, TurnBatch, average_over_turns
from arena.credit.critics import CRITIC, CRITICS, create_critic
from arena.credit.replay import Recall, apply_recalls
from arena.credit.settings import CreditSpec
from arena.errors import ConfigError
from arena.parts.chance import generator
from arena.parts.part_config import PartConfig
from arena.parts.schedules import Clock
from arena.records import MatchRecord, trained_trajectories
from arena.store.losses import select_complete
from arena.store.reader import RunReader
from games.contracts import MatchId


@dataclass(frozen=True)
class Comparison:
    """Advantages that several estimators assign to the same turns, with statistics over them.

    `turns` has one row per turn and one column per estimator, besides columns such as `match`, `role` and `reward`.
    `estimators` are the names of the estimators' columns.
    """

    turns: pd.DataFrame
    """One row per turn of a trained policy, in order: `iteration`, `match`, `turn`, `seat`, `role`, `policy`, `game`,
    `valid`, `said`, `reward`, and one float column per estimator."""
    estimators: list[str]
    """Column names of the estimators."""

    def overview(self) -> pd.DataFrame:
        """Return a summary with one row per estimator.

        Columns: `mean` and population `deviation` of its advantages, and their shares of `zeros` and of positives
        (`praised`); values within ±1e-9 are zeros.
        """
        values = self.turns[self.estimators]
        rows = {
            "mean": values.mean(),
            "deviation": values.std(ddof=0),
            "zeros": (values.abs() < ZERO).mean(),
            "praised": (values >= ZERO).mean(),
        }
        return pd.DataFrame(rows)

    def correlations(self, method: str = "pearson") -> pd.DataFrame:
        """Return the correlation matrix of the estimators by pandas' `method`; NaN for constant advantages."""
        constant = [name for name in self.estimators if self.turns[name].std(ddof=0) < ZERO]
        matrix = self.turns[self.estimators].corr(method=method)  # type: ignore[arg-type]
        matrix.loc[constant, :] = matrix.loc[:, constant] = np.nan
        return matrix

    def bias(self) -> pd.DataFrame:
        """Return each role's mean advantage by each estimator, in standard deviations of that estimator.

        One row per game and role; NaN for constant advantages. Values far from 0 show favoured or disfavoured roles.
        """
        deviations = self.turns[self.estimators].std(ddof=0)
        means = self.turns.groupby(["game", "role"])[self.estimators].mean()
        return means / deviations.where(deviations >= ZERO)

    def most_disputed(self) -> str:
        """Return the match whose standardised advantages differ most between estimators, summed over its turns."""
        values = self.turns[self.estimators]
        scaled = (values - values.mean()) / values.std(ddof=0).clip(lower=ZERO)
        spread = (scaled.max(axis=1) - scaled.min(axis=1)).groupby(self.turns["match"], sort=False).sum()
        return str(spread.idxmax())


ZERO = 1e-9
"""Smaller absolute values count as 0."""


async def compare(
    run: Path | str,
    rule: CreditSpec,
    estimators: Sequence[PartConfig],
    iterations: Sequence[int] | None = None,
    *,
    seed: int = 0,
    length: int = 1,
) -> Comparison:
    """Compute the advantages that each estimator would give the trained turns of a run, from its match log.

    `rule` is the run's own credit rule, which determines the rewards; `seed` and `length` (number of iterations) are
    the run's too. The result covers `iterations`, by default all. Earlier iterations are processed too, for stateful
    estimators and critics. The critic is the run's own if the log suffices for it, otherwise `linear`. Raises
    ConfigError if an estimator needs measurements that no log holds, if an estimator is named twice, or if the run has
    no trained turn.
    """
    reader, names = RunReader(run), name_columns(estimators)
    offline_estimators = [_OfflineEstimator(config, rule.critic, seed) for config in estimators]
    frames = []
    last = max(iterations, default=-1) if iterations is not None else None
    recalls = {row["iteration"]: [Recall(**one) for one in row.get("recalled", ())] for row in reader.metrics()}
    for k in reader.iterations():
        if last is not None and k > last:  # later iterations do not affect earlier ones
            break
        trajectories_in_log = trained_trajectories(
            map(MatchRecord.from_json, select_complete(list(reader.log.read(k))))
        )
        trajectories = apply_recalls(trajectories_in_log, recalls.get(k, ()), reader.log)
        if not trajectories:
            continue
        batch = TurnBatch(trajectories, Clock(k, length))
        rewards = _load_rewards(reader, batch, rule)
        advantages = [await estimator(batch, rewards) for estimator in offline_estimators]
        if iterations is None or k in iterations:
            frames.append(_build_frame(k, batch, rewards).assign(**dict(zip(names, advantages, strict=True))))
    if not frames:
        raise ConfigError(f"{run} has no turn of a trained policy to assign credit to: choose another run or iteration")
    table = pd.concat(frames, ignore_index=True)
    return Comparison(table.sort_values(["iteration", "match", "turn"], ignore_index=True, kind="stable"), names)


class _OfflineEstimator:
    """Estimator with its own state and critic, called with the iterations of a log in order."""

    def __init__(self, estimator: PartConfig, run_critic: PartConfig | None, seed: int) -> None:
        self.estimator, self.memory, self.seed = estimator, dict[str, Any](), seed
        self.critic = None
        if estimator.needs:
            self.critic = create_critic(_choose_offline_critic(estimator, run_critic), estimator, seed=seed)

    async def __call__(self, batch: TurnBatch, rewards: Floats) -> Floats:
        """Return the advantages of an iteration's turns, [T], and then fit the critic to them."""
        rng = generator(self.seed, batch.clock.iteration, "credit")
        measures = await self.critic.predict(batch.trajectories) if self.critic else {}
        estimate = estimate_advantages(
            self.estimator, replace(batch, memory=self.memory, rng=rng, measures=measures), rewards
        )
        turn_advantages = (
            average_over_turns(batch, estimate.values) if isinstance(estimate, TokenAdvantages) else estimate
        )
        if self.critic:
            cuts = batch.starts[1:-1]
            parts = zip(batch.trajectories, np.split(rewards, cuts), np.split(turn_advantages, cuts), strict=True)
            await self.critic.fit(
                [CreditedTrajectory(trajectory=t, rewards=r, advantages=a) for t, r, a in parts],
                generator(self.seed, batch.clock.iteration, "critic"),
            )
        return turn_advantages


def _choose_offline_critic(estimator: PartConfig, run_critic: PartConfig | None) -> PartConfig:
    """Return a critic for which a log suffices: the run's, else `linear`. Raises ConfigError if neither fits."""
    offline = [run_critic] if run_critic and "policies" not in run_critic.needs else []
    for critic in (*offline, PartConfig(CRITIC, "linear")):
        if estimator.needs <= CRITICS[critic.name].gives:  # type: ignore[attr-defined]
            return critic
    raise ConfigError(
        f"estimator {estimator.name} needs {', '.join(sorted(estimator.needs))}, which no match log holds"
    )


def name_columns(estimators: Sequence[PartConfig]) -> list[str]:
    """Return one column name per estimator: its name, with its settings if several share the name.

    Estimators from a user's file are named without the folder, unless two names would then be equal. Raises ConfigError
    if an estimator is named twice with the same settings.
    """
    names_with_folder, short = [c.name for c in estimators], [c.name.rpartition("/")[2] for c in estimators]
    are_distinct = len(set(short)) == len(set(names_with_folder))
    names = [
        f"{label}({', '.join(f'{name}={value}' for name, value in c.to_plain()[c.name].items())})"
        if names_with_folder.count(c.name) > 1 and isinstance(c.to_plain(), dict)
        else label
        for c, label in zip(estimators, short if are_distinct else names_with_folder, strict=True)
    ]
    if len(set(names)) < len(names):
        raise ConfigError(f"{next(n for n in names if names.count(n) > 1)} is named twice: remove one")
    return names


def _load_rewards(reader: RunReader, batch: TurnBatch, spec: CreditSpec) -> Floats:
    """Return each turn's total reward, [T]: by the run's reward stages, or from its log if a stage needs a model."""
    if not any(stage.needs for stage in spec.stages):
        return compute_turn_rewards(batch, spec)
    iterations = {MatchId.parse(t.match).iteration for t in batch.trajectories}  # replayed ones are older
    logged = {(row.match, row.turn): row.reward for k in sorted(iterations) for row in reader.credit(k)}
    pairs = [(t.match, turn.index) for t in batch.trajectories for turn in t.turns]
    return np.array([logged.get(pair, 0.0) for pair in pairs])


def _build_frame(k: int, batch: TurnBatch, rewards: Floats) -> pd.DataFrame:
    owners = [batch.trajectories[m] for m in batch.owner]
    return pd.DataFrame(
        {
            "iteration": k,
            "match": [t.match for t in owners],
            "turn": [turn.index for turn in batch.turns],
            "seat": [t.seat for t in owners],
            "role": [t.role for t in owners],
            "policy": [t.policy for t in owners],
            "game": [t.game for t in owners],
            "valid": [turn.valid for turn in batch.turns],
            "said": [turn.raw for turn in batch.turns],
            "reward": rewards,
        }
    )
