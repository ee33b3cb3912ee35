"""Alarms: six kinds of failure that a good reward curve can hide.

Each compares a figure of single matches in the last third of a run's iterations with an earlier third, and rings where
the difference leaves out 0 at `LEVEL` (difference_ci) and is large enough to matter (`LEAST`). The level is high
because many figures are looked at; the least effect is there because training moves honest figures, too. An alarm says
where to look (`arena show`), not what is true.

collapse       a role's valid acts, or the outcome, fall from what they had been in the best earlier third
repetition     a role says the same sentence in many of its turns, as it did not at first
role drift     a role talks like another one did at first (naive Bayes of its words)
one-sidedness  among learners one seat wins nearly all matches, as it did not at first
truncation     many of a role's replies are cut at their limit of tokens, since when does not matter
reward hack    learners' reward rises while the outcome that the game verifies falls
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.frames import Frames, numeric
from arena.plain import printable
from arena.statistics import ANY, SHARE, Bounds, Interval, difference_ci, mean_ci

LEVEL = 0.9999
LEAST: Mapping[str, float] = {
    "collapse": 0.25, "repetition": 0.4, "role drift": 0.3, "one-sidedness": 0.2, "reward hack": 0.1,
    "truncation": 0.2,
}  # fmt: skip
"""How much a share must have changed."""
NEARLY_ALL = 0.9
WORDS = 3
"""Words from which on a line is talk, and not an act's name."""
OUTCOMES = ("success", "solved", "won", "correct", "deal", "trade", "efficiency")
"""What a game verifies of a match, the strictest first: shares, of which the first that is there counts."""


class Alarm(NamedTuple):
    """An alarm: its kind, whom it is about, and the figure before and after with 95 % intervals."""

    run: str
    name: str
    who: str
    before: Interval
    after: Interval

    def __str__(self) -> str:
        figures = f"{self.before.estimate:.2f} before, {self.after.estimate:.2f} in the last third"
        return f"{self.run}: {self.name}, {printable(self.who)}: {figures}"


def alarms(log: Frames) -> list[Alarm]:
    """All that ring, run by run; none for runs of fewer than three iterations.

    >>> alarms(log)
    []
    """
    frames = _frames(log)
    return [alarm for run in log.readers for alarm in _of_run(run, *(f[f["run"] == run] for f in frames))]


def _frames(log: Frames) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Finished matches with the third of their run that they are in, their seats, and their turns."""
    matches = log.matches[log.matches["status"] == "finished"].copy()
    parts = [own.rank(method="dense").astype("float64") for _, own in matches.groupby("run")["iteration"]]
    ranks = pd.concat(parts) if parts else pd.Series(dtype="float64")
    most = ranks.groupby(matches["run"]).transform("max") if parts else ranks
    matches["third"] = np.where(most < 3, -1, np.ceil(3 * ranks / most) - 1).astype(int)
    place = matches[matches["third"] >= 0][["run", "match", "third"]]
    return matches, log.seats.merge(place, on=["run", "match"]), log.turns.merge(place, on=["run", "match"])


def _of_run(run: str, matches: pd.DataFrame, seats: pd.DataFrame, turns: pd.DataFrame) -> Iterator[Alarm]:
    held = seats[["match", "seat", "trained"]]
    own = turns.merge(held[held["trained"]], on=["match", "seat"])
    outcome = _outcome(matches)
    judged = matches.dropna(subset=[outcome])[["match", "third", outcome]] if outcome else matches.iloc[:0]
    judged = judged.rename(columns={outcome: "value"}).astype({"value": "float64"} if outcome else {})
    judged = judged if outcome and judged["value"].between(0, 1).all() else judged.iloc[:0]
    talk = own[own["public"].map(lambda said: len(said.split()) >= WORDS).astype(bool)]
    for role, acts in own.groupby("role"):
        yield from _fallen(run, f"valid acts of {role}", _by_match(acts, acts["valid"].astype("float64")))
    for role, replies in own[own["finish"] != "script"].groupby("role"):
        yield from _truncated(
            run, f"replies of {role}", _by_match(replies, (replies["finish"] == "length").astype("float64"))
        )
    if len(judged):
        yield from _fallen(run, outcome, judged)
        yield from _hacked(run, outcome, judged, _by_match(own, own["reward"].astype("float64")))
    for role, lines in talk.groupby("role"):
        commonest = lines.groupby("iteration")["public"].transform(lambda said: said.mode().iloc[0])
        yield from _risen(
            run, "repetition", str(role), _by_match(lines, (lines["public"] == commonest).astype("float64"))
        )
    yield from _drifted(run, talk)
    yield from _one_sided(run, seats)


def _outcome(matches: pd.DataFrame) -> str:
    """The column of what a run's game verifies; "" where it reports none as a number. Other runs have other columns."""
    known = (matches[name] for name in map("report.{}".format, OUTCOMES) if name in matches.columns)
    return next((str(own.name) for own in known if own.notna().any() and numeric(own)), "")


def _by_match(turns: pd.DataFrame, values: pd.Series[Any]) -> pd.DataFrame:
    """A mean per match: turns of one match are not independent."""
    return turns.assign(value=values).groupby(["match", "third"])["value"].mean().reset_index()


def _thirds(frame: pd.DataFrame) -> list[list[float]]:
    return [frame.loc[frame["third"] == third, "value"].tolist() for third in range(3)]


def _change(before: list[float], after: list[float], bounds: Bounds = SHARE) -> Interval:
    """NaN ends, which nothing rings for, where one of the two has fewer than two matches."""
    if not before or not after:
        return Interval(*[float("nan")] * 3)
    return difference_ci(before, after, bounds, LEVEL)


def _fallen(run: str, who: str, frame: pd.DataFrame) -> Iterator[Alarm]:
    first, second, last = _thirds(frame)
    best = max((part for part in (first, second) if part), key=np.mean, default=[])
    change = _change(best, last)
    if change.high < 0 and change.estimate <= -LEAST["collapse"]:
        yield Alarm(run, "collapse", who, mean_ci(best, SHARE), mean_ci(last, SHARE))


def _risen(run: str, name: str, who: str, frame: pd.DataFrame, least_after: float = 0.0) -> Iterator[Alarm]:
    first, _, last = _thirds(frame)
    change = _change(first, last)
    if change.low > 0 and change.estimate >= LEAST[name] and float(np.mean(last)) >= least_after:
        yield Alarm(run, name, who, mean_ci(first, SHARE), mean_ci(last, SHARE))


def _truncated(run: str, who: str, frame: pd.DataFrame) -> Iterator[Alarm]:
    first, _, last = _thirds(frame)
    share = mean_ci(last, SHARE, LEVEL)
    if share.low > 0 and share.estimate >= LEAST["truncation"]:
        yield Alarm(run, "truncation", who, mean_ci(first, SHARE), mean_ci(last, SHARE))


def _hacked(run: str, outcome: str, judged: pd.DataFrame, rewards: pd.DataFrame) -> Iterator[Alarm]:
    first, _, last = _thirds(judged)
    earned, _, earns = _thirds(rewards)
    fallen, risen = _change(first, last), _change(earned, earns, ANY)
    if risen.low > 0 and fallen.high < 0 and fallen.estimate <= -LEAST["reward hack"]:
        yield Alarm(run, "reward hack", outcome, mean_ci(first, SHARE), mean_ci(last, SHARE))


def _drifted(run: str, talk: pd.DataFrame) -> Iterator[Alarm]:
    """Words are learned from every other match of the first third, and the rest of it is what to compare with."""
    first = talk[talk["third"] == 0]
    even = first["match"].isin(sorted(first["match"].unique())[::2])
    counts = {str(role): _words(lines) for role, lines in first[even].groupby("role")}
    if len(counts) < 2:
        return
    vocabulary = pd.Index(sorted({word for own in counts.values() for word in own.index}))
    logs = pd.DataFrame({role: np.log((own.reindex(vocabulary).fillna(0) + 1) / (own.sum() + len(vocabulary)))
                         for role, own in counts.items()})  # fmt: skip
    rest = talk.drop(index=first[even].index)
    guessed = _likeliest(rest["public"], logs)
    strange = rest.assign(value=(guessed != rest["role"]).astype("float64"))[guessed != ""]
    for role, lines in strange.groupby("role"):
        if role in counts:
            yield from _risen(run, "role drift", str(role), _by_match(lines, lines["value"]))


def _words(lines: pd.DataFrame) -> pd.Series[Any]:
    return lines["public"].str.lower().str.split().explode().value_counts().astype("float64")


def _likeliest(said: pd.Series[Any], logs: pd.DataFrame) -> pd.Series[Any]:
    """The role whose words each of these are; "" where none of them is known, which is nobody's."""
    words = said.str.lower().str.split().explode()
    known = words[words.isin(logs.index)]
    evidence = logs.reindex(known).set_axis(known.index).groupby(level=0).sum()
    return evidence.idxmax(axis=1).reindex(said.index, fill_value="")


def _one_sided(run: str, seats: pd.DataFrame) -> Iterator[Alarm]:
    """Alarms over one-sided wins among learners alone: beating a fixed opponent always is what was wanted."""
    among = seats[seats.groupby("match")["trained"].transform("min").astype(bool)].dropna(subset=["payoff"])
    best = among.groupby("match")["payoff"].transform("max")
    wins = among.assign(won=(among["payoff"] == best).astype("float64"))
    wins["value"] = np.where(wins.groupby("match")["won"].transform("sum") == 1, wins["won"], 0.5 * wins["won"])
    for seat, own in wins.groupby("seat"):
        if among["seat"].nunique() > 1:
            yield from _risen(run, "one-sidedness", str(seat), own[["match", "third", "value"]], NEARLY_ALL)
