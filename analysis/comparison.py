"""Comparison of runs by their last iterations, with intervals over seeds or matches, paired if possible.

Runs that differ only in their seed form an arm. If any arm has several runs, the sample is runs, and arms with the same
seeds are compared seed by seed; an arm of one run then has no interval. If every arm has one run, the sample is
matches, which says nothing about other seeds; runs with the same deals are compared deal by deal.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from analysis.frames import Frames, is_numeric, load
from arena.errors import StoreError
from arena.plain import printable
from arena.statistics import Bounds, Interval, Values, difference_ci, mean_ci, paired_ci, range_of
from games.names import nearest

Unit = Literal["seeds", "matches"]
Pairing = Literal["by seed", "by deal", ""]
ALL_GAMES = "all games"
IGNORED_SETTINGS = ("config.seed", "config.name", "config.threads", "config.play.in_flight", "config.engine.max_batch")
"""Settings that may differ between the runs of an arm."""
VALID = "valid per match"
"""A match's share of valid actions. `valid_rate` instead weights all actions of an iteration equally."""
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

    `last` is the number of iterations per run, `figures` selects figures (default: all), and `resamples` is the number
    of bootstrap resamples. Raises StoreError for fewer than two arms or an unknown figure.

    >>> compare([first, second], last=1, figures=["payoff opener"]).rows[0].differences[0].estimate
    0.0
    """
    log = runs if isinstance(runs, Frames) else load(runs)
    arms = group_arms(log)
    if len(arms) < 2:
        raise StoreError("nothing to compare: give runs that differ in more than their seed")
    values = collect_figures(log)
    known_figures = [column for column in values.columns if column not in _KEYS]
    for figure in figures:
        if figure not in known_figures:
            known = [printable(name) for name in known_figures]
            hint = nearest(figure, known)
            raise StoreError(f"there is no figure '{printable(figure)}'{hint} (figures: {', '.join(known)})")
    last_matches = values[values["iteration"] > values.groupby("run")["iteration"].transform("max") - last]
    unit: Unit = "seeds" if any(len(arm.runs) > 1 for arm in arms) else "matches"
    selected = [figure for figure in known_figures if not figures or figure in figures]
    matches_by_game = [(str(game), game_matches) for game, game_matches in last_matches.groupby("game", sort=False)]
    games = (
        [*matches_by_game, (ALL_GAMES, last_matches)]
        if len(matches_by_game) > 1 and unit == "seeds"
        else matches_by_game
    )
    seeds = log.runs.get("config.seed", log.runs["run"])
    known_seeds = {run: run if pd.isna(seed) else seed for run, seed in zip(log.runs["run"], seeds, strict=True)}
    sample = _Sample(arms, unit, known_seeds)
    rows = [
        row
        for game, game_matches in games
        for figure in selected
        if (row := sample.compare_figure(game, figure, game_matches, resamples))
    ]
    return Comparison(tuple(arms), unit, tuple(rows), _find_differing_settings(log, arms), values, last)


def group_arms(log: Frames) -> list[Arm]:
    """Group runs whose settings differ only in `IGNORED_SETTINGS`, such as the seed, and label each group.

    A label is the common prefix of the group's run names. If a prefix is empty or two are equal, every label is the
    name of the group's first run.

    >>> group_arms(log)
    [Arm(label='latest', runs=('latest',))]
    """
    settings = [name for name in log.runs.columns if name.startswith("config.") and name not in IGNORED_SETTINGS]
    grouped: dict[tuple[str, ...], list[str]] = {}
    for row in log.runs.to_dict("records"):
        key = tuple(str(row[name]) for name in settings) or (row["run"],)
        grouped.setdefault(key, []).append(row["run"])
    groups = [tuple(names) for names in grouped.values()]
    prefixes = [_common_prefix(runs) for runs in groups]
    is_ambiguous = len({*prefixes}) < len(prefixes) or not all(prefixes)
    return [Arm(runs[0] if is_ambiguous else prefix, runs) for prefix, runs in zip(prefixes, groups, strict=True)]


def _common_prefix(runs: tuple[str, ...]) -> str:
    """Return the run names' common prefix without trailing seed digits and separators."""
    if len(runs) == 1:
        return runs[0]
    prefix = commonprefix(runs)  # noqa: RUF071  of characters: these are names, not paths
    if any(run[len(prefix) :][:1].isdigit() for run in runs):  # lr-10, lr-11 begin with lr-1
        prefix = re.sub(rf"(?:^|(?<=[{_SEPARATORS}]))\d+$", "", prefix)
    return prefix.rstrip(_SEPARATORS)


def collect_figures(log: Frames) -> pd.DataFrame:
    """Return a row per match of `log.complete`: run, match, iteration, game, seed, and figures as columns.

    Figures are `valid per match`, `learners payoff` (mean), `payoff SEAT`, and the numbers in the match's report. A
    reported number that has the name of another column keeps its prefix: `report.game`.

    >>> collect_figures(log).loc[0, ["match", "valid per match", "payoff opener", "efficiency"]].to_dict()
    {'match': '0000-0000', 'valid per match': 0.5, 'payoff opener': 0.0, 'efficiency': 0.5}
    """
    matches = log.complete
    reported = [name for name in matches.columns if name.startswith("report.")]
    reserved = {*_KEYS, *reported, VALID, "learners payoff", *(f"payoff {seat}" for seat in log.seats["seat"].unique())}
    figure_names = {name: name if name[7:] in reserved else name[7:] for name in reported if is_numeric(matches[name])}
    values = (
        matches[[*_KEYS, *figure_names]]
        .rename(columns=figure_names)
        .astype(dict.fromkeys(figure_names.values(), "float64"))
    )
    acts = log.frame("turns", ["run", "match", "valid"]).astype({"valid": "float64"})
    valid = acts.groupby(["run", "match"])["valid"].mean().rename(VALID).reset_index()
    payoffs = log.seats.pivot(index=["run", "match"], columns="seat", values="payoff").astype("float64")
    payoffs.columns = pd.Index([f"payoff {seat}" for seat in payoffs.columns])
    learners = log.seats[log.seats["trained"]].groupby(["run", "match"])["payoff"].mean().astype("float64")
    payoffs.insert(0, "learners payoff", learners)
    joined = values.merge(valid, "left", ["run", "match"]).merge(payoffs.reset_index(), "left", ["run", "match"])
    return joined[[*_KEYS, VALID, *payoffs.columns, *figure_names.values()]]


@dataclass(frozen=True)
class _Sample:
    """Arms to compare, and the sampling unit of the intervals: seeds or matches."""

    arms: Sequence[Arm]
    unit: Unit
    seeds: Mapping[str, Any]
    """Seed of each run."""

    def compare_figure(self, game: str, figure: str, last_matches: pd.DataFrame, resamples: int) -> Row | None:
        """Compare a figure between all arms, for one game or `ALL_GAMES`, in the last iterations' matches.

        Returns None if an arm lacks the figure in a game, or all matches have the same value.
        """
        with_figure = last_matches.dropna(subset=[figure])
        matches_by_arm = [with_figure[with_figure["run"].isin(arm.runs)] for arm in self.arms]
        if (
            any(len({*part["game"]}) < len({*last_matches["game"]}) for part in matches_by_arm)
            or with_figure[figure].nunique() < 2
        ):
            return None
        bounds = range_of(f"report.{figure}", with_figure[figure].tolist())
        values_by_arm = [self._values_by_unit(part, figure) for part in matches_by_arm]
        samples = [list(values.values()) for values in values_by_arm]
        is_paired = len(values_by_arm[0]) > 1 and all(
            values.keys() == values_by_arm[0].keys() for values in values_by_arm
        )
        differences = tuple(
            paired_ci(samples[0], [values[key] for key in values_by_arm[0]], bounds)
            if is_paired
            else difference_ci(samples[0], [*values.values()], bounds)
            for values in values_by_arm[1:]
        )
        has_iqm = self.unit == "seeds" and all(len(sample) >= 4 for sample in samples)
        iqm = (
            tuple(iqm_ci(_means_by_game(part, figure), resamples=resamples) for part in matches_by_arm)
            if has_iqm
            else ()
        )
        pairing: Pairing = "" if not is_paired else "by seed" if self.unit == "seeds" else "by deal"
        return Row(
            game, figure, bounds, tuple(mean_ci(values, bounds) for values in samples), differences, pairing, iqm
        )

    def _values_by_unit(self, matches: pd.DataFrame, figure: str) -> dict[Any, float]:
        """Return an arm's values: a mean per seed, with games weighted equally, or per deal: (iteration, deal's seed).

        If two runs have the same seed, the keys are runs instead of seeds, so that other arms' values are not paired
        with them.
        """
        if self.unit == "matches":
            return matches.groupby(["iteration", "seed"])[figure].mean().to_dict()
        means = matches.groupby(["run", "game"])[figure].mean().groupby("run").mean()
        by_seed = {self.seeds[str(run)]: float(mean) for run, mean in means.items()}
        return by_seed if len(by_seed) == len(means) else {run: float(mean) for run, mean in means.items()}


def _means_by_game(matches: pd.DataFrame, figure: str) -> dict[str, list[float]]:
    """Return the runs' means of a figure, by game."""
    means = matches.groupby(["game", "run"])[figure].mean()
    return {str(game): run_means.tolist() for game, run_means in means.groupby("game")}


def _find_differing_settings(log: Frames, arms: Sequence[Arm]) -> dict[str, tuple[str, ...]]:
    """Return each arm's value, as text, of the settings that differ between arms. Keys lack the prefix `config.`."""
    table = log.runs.set_index("run").loc[[arm.runs[0] for arm in arms]]
    settings = [name for name in table.columns if name.startswith("config.") and name not in IGNORED_SETTINGS]
    values_by_setting = {name[7:]: tuple("–" if pd.isna(v) else str(v) for v in table[name]) for name in settings}
    return {name: values for name, values in values_by_setting.items() if len({*values}) > 1}


def interquartile_mean(scores: Sequence[float]) -> float:
    """Return the mean of the values without the lowest and highest quarter, `len(scores) // 4` values each.

    Raises ValueError if there are no values or one is not finite.

    >>> interquartile_mean([0, 1, 2, 99])
    1.5
    """
    ordered = np.sort(np.asarray(scores, dtype=np.float64))
    if len(ordered) == 0 or not np.isfinite(ordered).all():
        raise ValueError("an interquartile mean needs at least one value, all finite")
    trimmed_count = len(ordered) // 4
    return float(ordered[trimmed_count : len(ordered) - trimmed_count].mean())


def iqm_ci(scores: Mapping[str, Values], level: float = 0.95, resamples: int = 2000, seed: int = 0) -> Interval:
    """Return the interquartile mean over all runs and games, with a stratified bootstrap interval that resamples runs.

    `scores` maps each game to one value per run; the scales of games must be comparable. Like any bootstrap interval,
    it is too narrow for few runs: use `mean_ci` for 3 to 5 seeds. Source: Agarwal et al. 2021, "Deep Reinforcement
    Learning at the Edge of the Statistical Precipice" (NeurIPS). Their library, rliable, is not compatible with current
    numpy and pandas.

    >>> iqm_ci({"kuhn_poker": [0.4, 0.5, 0.6, 0.5], "negotiation": [0.7, 0.8, 0.7, 0.9]}).estimate
    0.625
    """
    rng, strata = np.random.default_rng(seed), [np.asarray(values, dtype=np.float64) for values in scores.values()]
    estimate = interquartile_mean([value for values in strata for value in values])
    samples = np.concatenate([rng.choice(values, (resamples, len(values))) for values in strata], axis=1)
    samples.sort(axis=1)
    trimmed_count = samples.shape[1] // 4
    means = samples[:, trimmed_count : samples.shape[1] - trimmed_count].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate, float(low), float(high))
