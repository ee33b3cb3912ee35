"""Comparison of runs by their last iterations, with intervals over seeds or matches, paired if possible.

Runs that differ only in their seed form an arm. If any arm has several runs, the sample is runs, and arms with the same
seeds are compared seed by seed; an arm of one run then has no interval. If every arm has one run, the sample is
matches, which says nothing about other seeds; runs with the same deals are compared deal by deal.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from os.path import commonprefix
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from analysis.frames import Frames, is_numeric, load
from arena.errors import StoreError
from arena.plain import printable
from arena.statistics import Bounds, Interval, Values, difference_ci, mean_ci, paired_ci, range_of

Unit = Literal["seeds", "matches"]
Pairing = Literal["by seed", "by deal", ""]
ALL_GAMES = "all games"
IGNORED_SETTINGS = ("config.seed", "config.name", "config.threads", "config.play.in_flight", "config.engine.max_batch")
"""Settings that may differ between the runs of an arm."""
VALID = "valid per match"
"""A match's share of valid actions. `valid_rate` instead weighs all actions of an iteration alike."""
_KEYS = ["run", "match", "iteration", "game", "seed"]
_SEPARATORS = "-_.@/"
"""Separators between an arm's name and the number of its seed."""


@dataclass(frozen=True)
class Arm:
    """Runs that differ only in their seed, compared as one group."""

    label: str
    """Common prefix of the runs' names, or the first run's name."""
    runs: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """Result of a comparison for one figure of one game: each arm's mean, and differences."""

    game: str
    figure: str
    bounds: Bounds
    """Range of the figure's values, for its intervals."""
    means: tuple[Interval, ...]
    """Mean of each arm."""
    differences: tuple[Interval, ...]
    """Differences to the first arm, one for each other arm."""
    paired: Pairing
    """How values were paired for the differences."""
    iqm: tuple[Interval, ...] = ()
    """Interquartile means over runs, if every arm has at least four."""


@dataclass(frozen=True)
class Comparison:
    """Result of `compare`: the arms, and a `Row` for each game and figure."""

    arms: tuple[Arm, ...]
    unit: Unit
    """Sampling unit of the intervals: seeds or matches."""
    rows: tuple[Row, ...]
    differs: Mapping[str, tuple[str, ...]]
    """Settings that differ between arms, with each arm's value."""
    values: pd.DataFrame
    """A row per finished match: run, match, iteration, game, seed, and its figures."""
    last: int
    """Number of iterations per run that were compared."""


def compare(
    runs: Frames | Sequence[str | Path], last: int = 5, figures: Collection[str] = (), resamples: int = 2000
) -> Comparison:
    """Compare the last iterations of runs, figure by figure, between arms: groups of runs that differ only in the seed.

    `last` is the number of iterations per run, `figures` limits the figures, `resamples` is the size of the bootstrap.
    Raises StoreError for fewer than two arms or an unknown figure.

    >>> compare([first, second], last=1, figures=["payoff opener"]).rows[0].differences[0].estimate
    0.0
    """
    log = runs if isinstance(runs, Frames) else load(runs)
    arms = group_arms(log)
    if len(arms) < 2:
        raise StoreError("nothing to compare: give runs that differ in more than their seed")
    values = collect_figures(log)
    known = [column for column in values.columns if column not in _KEYS]
    for figure in figures:
        if figure not in known:
            near = get_close_matches(figure, known, n=1)
            hint = f" — did you mean '{printable(near[0])}'?" if near else ""
            raise StoreError(
                f"there is no figure '{printable(figure)}'{hint} (figures: {', '.join(map(printable, known))})"
            )
    ends = values[values["iteration"] > values.groupby("run")["iteration"].transform("max") - last]
    unit: Unit = "seeds" if any(len(arm.runs) > 1 for arm in arms) else "matches"
    wanted = [figure for figure in known if not figures or figure in figures]
    by_game = [(str(game), own) for game, own in ends.groupby("game", sort=False)]
    games = [*by_game, (ALL_GAMES, ends)] if len(by_game) > 1 and unit == "seeds" else by_game
    seeds = log.runs.get("config.seed", log.runs["run"])
    known_seeds = {run: run if pd.isna(seed) else seed for run, seed in zip(log.runs["run"], seeds, strict=True)}
    sampled = _Sample(arms, unit, known_seeds)
    rows = [
        row for game, own in games for figure in wanted if (row := sampled.compare_figure(game, figure, own, resamples))
    ]
    return Comparison(tuple(arms), unit, tuple(rows), _find_differing_settings(log, arms), values, last)


def group_arms(log: Frames) -> list[Arm]:
    """Group runs whose settings are equal apart from the seed, and label each group by its runs' common prefix.

    If a prefix is empty, or two are equal, the labels are the groups' first runs.

    >>> group_arms(log)
    [Arm(label='latest', runs=('latest',))]
    """
    settings = [name for name in log.runs.columns if name.startswith("config.") and name not in IGNORED_SETTINGS]
    grouped: dict[tuple[str, ...], list[str]] = {}
    for row in log.runs.to_dict("records"):
        key = tuple(str(row[name]) for name in settings) or (row["run"],)
        grouped.setdefault(key, []).append(row["run"])
    groups = [tuple(own) for own in grouped.values()]
    stems = [_common_prefix(runs) for runs in groups]
    unclear = len({*stems}) < len(stems) or not all(stems)
    return [Arm(runs[0] if unclear else stem, runs) for stem, runs in zip(stems, groups, strict=True)]


def _common_prefix(runs: tuple[str, ...]) -> str:
    """Return the run names' common prefix without trailing seed digits and separators."""
    if len(runs) == 1:
        return runs[0]
    alike = commonprefix(runs)  # noqa: RUF071  of characters: these are names, not paths
    if any(run[len(alike) :][:1].isdigit() for run in runs):  # lr-10, lr-11 begin with lr-1
        alike = re.sub(rf"(?:^|(?<=[{_SEPARATORS}]))\d+$", "", alike)
    return alike.rstrip(_SEPARATORS)


def collect_figures(log: Frames) -> pd.DataFrame:
    """Return a row per finished match of a complete deal: run, match, iteration, game, seed, and figures as columns.

    Figures are `valid per match`, `learners payoff` (mean), `payoff SEAT`, and the numbers in the match's report. A
    number in the report that has the name of another column keeps its prefix: `report.game`.

    >>> collect_figures(log).loc[0, ["match", "valid per match", "payoff opener", "efficiency"]].to_dict()
    {'match': '0000-0000', 'valid per match': 0.5, 'payoff opener': 0.0, 'efficiency': 0.5}
    """
    matches = log.complete
    reported = [name for name in matches.columns if name.startswith("report.")]
    taken = {*_KEYS, *reported, VALID, "learners payoff", *(f"payoff {seat}" for seat in log.seats["seat"].unique())}
    told = {name: name if name[7:] in taken else name[7:] for name in reported if is_numeric(matches[name])}
    values = matches[[*_KEYS, *told]].rename(columns=told).astype(dict.fromkeys(told.values(), "float64"))
    acts = log.frame("turns", ["run", "match", "valid"]).astype({"valid": "float64"})
    valid = acts.groupby(["run", "match"])["valid"].mean().rename(VALID).reset_index()
    paid = log.seats.pivot(index=["run", "match"], columns="seat", values="payoff").astype("float64")
    paid.columns = pd.Index([f"payoff {seat}" for seat in paid.columns])
    learners = log.seats[log.seats["trained"]].groupby(["run", "match"])["payoff"].mean().astype("float64")
    paid.insert(0, "learners payoff", learners)
    whole = values.merge(valid, "left", ["run", "match"]).merge(paid.reset_index(), "left", ["run", "match"])
    return whole[[*_KEYS, VALID, *paid.columns, *told.values()]]


@dataclass(frozen=True)
class _Sample:
    """Sample of arms, with the sampling unit of their intervals: seeds or matches."""

    arms: Sequence[Arm]
    unit: Unit
    seeds: Mapping[str, Any]
    """Seed of each run."""

    def compare_figure(self, game: str, figure: str, ends: pd.DataFrame, resamples: int) -> Row | None:
        """Compare a figure between all arms, for one game or all games, over `ends`, the last iterations' matches.

        Returns None if an arm lacks the figure or all matches have the same value.
        """
        known = ends.dropna(subset=[figure])
        own = [known[known["run"].isin(arm.runs)] for arm in self.arms]
        if any(len({*part["game"]}) < len({*ends["game"]}) for part in own) or known[figure].nunique() < 2:
            return None
        bounds = range_of(f"report.{figure}", known[figure].tolist())
        by = [self._values_by_unit(part, figure) for part in own]
        samples = [list(one.values()) for one in by]
        alike = len(by[0]) > 1 and all(one.keys() == by[0].keys() for one in by)
        differences = tuple(
            paired_ci(samples[0], [one[key] for key in by[0]], bounds)
            if alike
            else difference_ci(samples[0], [*one.values()], bounds)
            for one in by[1:]
        )
        several = self.unit == "seeds" and all(len(sample) >= 4 for sample in samples)
        iqm = tuple(iqm_ci(_means_by_game(part, figure), resamples=resamples) for part in own) if several else ()
        how: Pairing = "" if not alike else "by seed" if self.unit == "seeds" else "by deal"
        return Row(game, figure, bounds, tuple(mean_ci(one, bounds) for one in samples), differences, how, iqm)

    def _values_by_unit(self, matches: pd.DataFrame, figure: str) -> dict[Any, float]:
        """Return an arm's values: a mean per seed, with games weighted equally, or one per (iteration, deal's seed).

        If two runs have the same seed, values are keyed by run, so that they are not paired with another arm's.
        """
        if self.unit == "matches":
            return matches.groupby(["iteration", "seed"])[figure].mean().to_dict()
        means = matches.groupby(["run", "game"])[figure].mean().groupby("run").mean()
        by_seed = {self.seeds[str(run)]: float(mean) for run, mean in means.items()}
        return by_seed if len(by_seed) == len(means) else {run: float(mean) for run, mean in means.items()}


def _means_by_game(matches: pd.DataFrame, figure: str) -> dict[str, list[float]]:
    """Return a list of the runs' means of a figure for each game."""
    means = matches.groupby(["game", "run"])[figure].mean()
    return {str(game): own.tolist() for game, own in means.groupby("game")}


def _find_differing_settings(log: Frames, arms: Sequence[Arm]) -> dict[str, tuple[str, ...]]:
    """Return the settings that differ between arms, without `config.`, and each arm's value as text."""
    table = log.runs.set_index("run").loc[[arm.runs[0] for arm in arms]]
    settings = [name for name in table.columns if name.startswith("config.") and name not in IGNORED_SETTINGS]
    told = {name[7:]: tuple("–" if pd.isna(v) else str(v) for v in table[name]) for name in settings}
    return {name: values for name, values in told.items() if len({*values}) > 1}


def interquartile_mean(scores: Sequence[float]) -> float:
    """Return the mean of the values without the lowest and highest quarter, each rounded down to a number of values.

    Raises ValueError if there are no values or one is not finite.

    >>> interquartile_mean([0, 1, 2, 99])
    1.5
    """
    ordered = np.sort(np.asarray(scores, dtype=np.float64))
    if len(ordered) == 0 or not np.isfinite(ordered).all():
        raise ValueError("an interquartile mean needs finite numbers, at least one")
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def iqm_ci(scores: Mapping[str, Values], level: float = 0.95, resamples: int = 2000, seed: int = 0) -> Interval:
    """Return the interquartile mean over all runs and games, with a stratified bootstrap interval that resamples runs.

    `scores` maps each game to one value per run; the scales of games must be comparable. Like any bootstrap interval,
    it is too narrow for few runs: use `mean_ci` for 3 to 5 seeds. Source: Agarwal et al. 2021, "Deep Reinforcement
    Learning at the Edge of the Statistical Precipice" (NeurIPS). Their library, rliable, is not compatible with current
    numpy and pandas.

    >>> iqm_ci({"kuhn_poker": [0.4, 0.5, 0.6, 0.5], "negotiation": [0.7, 0.8, 0.7, 0.9]}).estimate
    0.625
    """
    rng, strata = np.random.default_rng(seed), [np.asarray(own, dtype=np.float64) for own in scores.values()]
    estimate = interquartile_mean([value for own in strata for value in own])
    drawn = np.concatenate([rng.choice(own, (resamples, len(own))) for own in strata], axis=1)
    drawn.sort(axis=1)
    cut = drawn.shape[1] // 4
    means = drawn[:, cut : drawn.shape[1] - cut].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate, float(low), float(high))
