"""Alarms: kinds of failure that a good reward curve can hide.

Each alarm compares a figure per match in the last third of a run's iterations with an earlier third. It is raised if
the interval of the difference at `LEVEL` (difference_ci) excludes 0 and the difference exceeds the minimum effect in
`MIN_CHANGE`. The level is high because many figures are tested; the minimum effect is needed because figures also
change in sound training. An alarm says where to look (`arena show`), and does not give the cause.

  collapse       a role's valid actions, or the outcome, fall below the best earlier part
  repetition     a role says the same sentence in many of its turns, unlike in the first third
  role drift     a role talks as another role did in the first third (naive Bayes on words)
  one-sidedness  one seat wins nearly all matches among learners, unlike in the first third
  truncation     many of a role's replies are cut at their token limit, even if this was so from the start
  reward hack    learners' reward rises while the outcome that the game verifies falls
  one act        nearly all actions of a role are the same, unlike in the most varied earlier part
  few acts       the entropy of a role's valid actions falls to a quarter or less
  idleness       reward rises, the verified outcome halves, and more actions are empty, repeated or the commonest one

`collapse`, `one act` and `few acts` also compare with the first iteration, and need only two iterations. `one act` and
`few acts` are not raised if learners benefit: if the verified outcome has risen or, in a game without one that is not
zero-sum, their payoff.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.frames import Frames, is_numeric
from arena.plain import printable
from arena.statistics import ANY, SHARE, Bounds, Interval, difference_ci, mean_ci
from arena.store.schema import UNREAD

LEVEL = 0.9999
"""Confidence level of the intervals that decide on alarms."""
MIN_CHANGE: Mapping[str, float] = {
    "collapse": 0.25, "repetition": 0.4, "role drift": 0.3, "one-sidedness": 0.2, "reward hack": 0.1,
    "truncation": 0.2,
    "one act": 0.2, "idleness": 0.2,
}  # fmt: skip
"""Minimum change of a share for an alarm."""
NEARLY_ALL = 0.9
"""Minimum share of matches that one seat wins, for `one-sidedness`."""
ONE_ACT, FEW_ACTS, VARIED = 0.95, 0.25, 0.3
"""For `one act`: minimum share of the most frequent action. For `few acts`: maximum share of the earlier entropy of
actions, and minimum of that entropy in nats (with less, a role had no choice).
"""
HALF = 0.5
MIN_WORDS = 3
"""Minimum number of words for a public message to count as talk; shorter messages are names of actions."""
OUTCOMES = ("success", "solved", "won", "correct", "deal", "trade", "efficiency")
"""Outcomes that a game verifies, the strictest first. The first one reported counts."""


class Alarm(NamedTuple):
    """Warning about a run: its kind (`name`), subject (`who`), and the figure before and after with 95 % intervals."""

    run: str
    name: str
    who: str
    before: Interval
    after: Interval

    def __str__(self) -> str:
        figures = f"{self.before.estimate:.2f} before, {self.after.estimate:.2f} in the last third"
        return f"{self.run}: {self.name}, {printable(self.who)}: {figures}"


def alarms(log: Frames) -> list[Alarm]:
    """Check the runs for nine kinds of failure that a good reward curve can hide, such as collapse and repetition.

    Returns an alarm for each failure found, run by run. Runs of a single iteration have none.

    >>> alarms(log)
    []
    """
    frames = _add_thirds(log)
    return [alarm for run in log.readers for alarm in _check_run(run, *(f[f["run"] == run] for f in frames))]


def _add_thirds(log: Frames) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return finished matches, their seats and their turns, with a column `third`: 0 to 2, by the run's iterations.

    Runs of one iteration have -1 as `third`, and their seats and turns are left out.
    """
    matches = log.complete.copy()
    rank_parts = [group.rank(method="dense").astype("float64") for _, group in matches.groupby("run")["iteration"]]
    ranks = pd.concat(rank_parts) if rank_parts else pd.Series(dtype="float64")
    last_rank = ranks.groupby(matches["run"]).transform("max") if rank_parts else ranks
    matches["third"] = np.where(last_rank < 2, -1, np.ceil(3 * ranks / last_rank) - 1).astype(int)
    thirds = matches[matches["third"] >= 0][["run", "match", "third"]]
    return matches, log.seats.merge(thirds, on=["run", "match"]), log.turns.merge(thirds, on=["run", "match"])


def _check_run(run: str, matches: pd.DataFrame, seats: pd.DataFrame, turns: pd.DataFrame) -> Iterator[Alarm]:
    trained_flags = seats[["match", "seat", "trained"]]
    learner_turns = turns.merge(trained_flags[trained_flags["trained"]], on=["match", "seat"])
    outcome = _find_outcome(matches)
    verified = matches.dropna(subset=[outcome])[["match", "third", outcome]] if outcome else matches.iloc[:0]
    verified = verified.rename(columns={outcome: "value"}).astype({"value": "float64"} if outcome else {})
    verified = verified if outcome and verified["value"].between(0, 1).all() else verified.iloc[:0]
    talk = learner_turns[learner_turns["public"].map(lambda text: len(text.split()) >= MIN_WORDS).astype(bool)]
    game_turns = learner_turns[~learner_turns["source"].isin(UNREAD)].sort_values("turn", kind="stable")
    has_gained = _has_gained(verified if len(verified) else _learner_payoffs(seats))
    opening = matches.loc[matches["iteration"] == matches["iteration"].min(), "match"]
    for role, acts in learner_turns.groupby("role"):
        yield from _check_fall(
            run, f"valid acts of {role}", _average_by_match(acts, acts["valid"].astype("float64")), opening
        )
    for role, replies in learner_turns[learner_turns["finish"] != "script"].groupby("role"):
        yield from _check_truncation(
            run, f"replies of {role}", _average_by_match(replies, (replies["finish"] == "length").astype("float64"))
        )
    for role, acts in game_turns.groupby("role") if not has_gained else ():
        yield from _check_narrowing(run, str(role), acts, opening)
    if len(verified):
        yield from _check_fall(run, outcome, verified, opening)
        rewards = _average_by_match(learner_turns, learner_turns["reward"].astype("float64"))
        yield from _check_reward_hack(run, outcome, verified, rewards)
        yield from _check_idleness(run, verified, rewards, game_turns)
    for role, lines in talk.groupby("role"):
        commonest = lines.groupby("iteration")["public"].transform(lambda text: text.mode().iloc[0])
        yield from _check_rise(
            run, "repetition", str(role), _average_by_match(lines, (lines["public"] == commonest).astype("float64"))
        )
    yield from _check_drift(run, talk)
    yield from _check_one_sidedness(run, seats)


def _find_outcome(matches: pd.DataFrame) -> str:
    """Return the first column of `OUTCOMES` that the run's matches report as numbers; "" if there is none."""
    report_columns = (matches[name] for name in map("report.{}".format, OUTCOMES) if name in matches.columns)
    return next((str(column.name) for column in report_columns if column.notna().any() and is_numeric(column)), "")


def _average_by_match(turns: pd.DataFrame, values: pd.Series[Any]) -> pd.DataFrame:
    """Return a row per match: match, third, and `value`, the mean of `values` over its turns.

    `values` has one value per row of `turns`. Matches are the units of all comparisons, because the turns of a match
    are not independent.
    """
    return turns.assign(value=values).groupby(["match", "third"])["value"].mean().reset_index()


def _split_thirds(frame: pd.DataFrame) -> list[list[float]]:
    return [frame.loc[frame["third"] == third, "value"].tolist() for third in range(3)]


def _compare(before: list[float], after: list[float], bounds: Bounds = SHARE) -> Interval:
    """Return the mean of `after` minus that of `before`, with its interval at `LEVEL`. NaN if either is empty."""
    if not before or not after:
        return Interval(*[float("nan")] * 3)
    return difference_ci(before, after, bounds, LEVEL)


def _earlier_parts(frame: pd.DataFrame, opening: pd.Series[Any]) -> list[list[float]]:
    """Return the values of the first iteration's matches (`opening`), the first third and the second third.

    The last third is compared with these parts. Empty parts are left out.
    """
    first = frame[frame["match"].isin(opening) & (frame["third"] < 2)]
    return [part for part in (first["value"].tolist(), *_split_thirds(frame)[:2]) if part]


def _check_fall(run: str, subject: str, frame: pd.DataFrame, opening: pd.Series[Any]) -> Iterator[Alarm]:
    last = _split_thirds(frame)[2]
    best = max(_earlier_parts(frame, opening), key=np.mean, default=[])
    change = _compare(best, last)
    if change.high < 0 and change.estimate <= -MIN_CHANGE["collapse"]:
        yield Alarm(run, "collapse", subject, mean_ci(best, SHARE), mean_ci(last, SHARE))


def _check_rise(run: str, name: str, subject: str, frame: pd.DataFrame, min_after: float = 0.0) -> Iterator[Alarm]:
    first, _, last = _split_thirds(frame)
    change = _compare(first, last)
    if change.low > 0 and change.estimate >= MIN_CHANGE[name] and float(np.mean(last)) >= min_after:
        yield Alarm(run, name, subject, mean_ci(first, SHARE), mean_ci(last, SHARE))


def _check_truncation(run: str, subject: str, frame: pd.DataFrame) -> Iterator[Alarm]:
    first, _, last = _split_thirds(frame)
    share = mean_ci(last, SHARE, LEVEL)
    if share.low > 0 and share.estimate >= MIN_CHANGE["truncation"]:
        yield Alarm(run, "truncation", subject, mean_ci(first, SHARE), mean_ci(last, SHARE))


def _check_reward_hack(run: str, outcome: str, verified: pd.DataFrame, rewards: pd.DataFrame) -> Iterator[Alarm]:
    first, _, last = _split_thirds(verified)
    first_rewards, _, last_rewards = _split_thirds(rewards)
    outcome_change, reward_change = _compare(first, last), _compare(first_rewards, last_rewards, ANY)
    if reward_change.low > 0 and outcome_change.high < 0 and outcome_change.estimate <= -MIN_CHANGE["reward hack"]:
        yield Alarm(run, "reward hack", outcome, mean_ci(first, SHARE), mean_ci(last, SHARE))


def _learner_payoffs(seats: pd.DataFrame) -> pd.DataFrame:
    """Return the learners' mean payoff by match; empty for zero-sum games."""
    payoffs = seats.dropna(subset=["payoff"]).astype({"payoff": "float64"})
    sums = payoffs.groupby("match")["payoff"].agg(["sum", "size"])
    if len(sums) and ((sums["sum"].abs() < 1e-9) & (sums["size"] > 1)).mean() > HALF:
        return payoffs.iloc[:0].assign(value=0.0)
    return _average_by_match(learners := payoffs[payoffs["trained"]], learners["payoff"])


def _has_gained(values: pd.DataFrame) -> bool:
    """Return True if `value` rose significantly (95 %) from the earliest third with matches to the last."""
    *before, last = _split_thirds(values)
    first = next((part for part in before if part), [])
    return bool(first and last and difference_ci(first, last, ANY).low > 0)


def _is_commonest(acts: pd.DataFrame) -> pd.Series[Any]:
    """Return a boolean per row: True if its action is the most frequent one of its iteration."""
    return acts["action"] == acts.groupby("iteration")["action"].transform(lambda actions: actions.mode().iloc[0])


def _check_narrowing(run: str, role: str, acts: pd.DataFrame, opening: pd.Series[Any]) -> Iterator[Alarm]:
    """Yield `one act` if nearly all actions of a role have become the same, and `few acts` if their entropy fell."""
    frame = _average_by_match(acts, _is_commonest(acts).astype("float64"))
    varied, last = min(_earlier_parts(frame, opening), key=np.mean, default=[]), _split_thirds(frame)[2]
    change = _compare(varied, last)
    if change.low > 0 and change.estimate >= MIN_CHANGE["one act"] and np.mean(last) >= ONE_ACT:
        yield Alarm(run, "one act", role, mean_ci(varied, SHARE), mean_ci(last, SHARE))
    legal = acts[acts["valid"]]  # losing kinds of illegal actions does no harm
    sizes = legal.groupby("iteration")["action"].transform("size").astype("float64")
    counts = legal.groupby(["iteration", "action"])["action"].transform("size").astype("float64")
    frame = _average_by_match(legal, pd.Series(-np.log(counts / sizes)))  # the mean of -log p is the entropy
    varied, last = max(_earlier_parts(frame, opening), key=np.mean, default=[]), _split_thirds(frame)[2]
    earlier_entropy = float(np.mean(varied)) if varied else 0.0
    if (
        earlier_entropy >= VARIED
        and _compare(varied, last, ANY).high < 0
        and np.mean(last) <= FEW_ACTS * earlier_entropy
    ):
        yield Alarm(run, "few acts", role, mean_ci(varied, ANY), mean_ci(last, ANY))


def _check_idleness(run: str, verified: pd.DataFrame, rewards: pd.DataFrame, acts: pd.DataFrame) -> Iterator[Alarm]:
    """Yield `idleness` for each role with more idle actions, if rewards rise and the verified outcome halves.

    An action is idle if it is empty, repeats the seat's previous one, or is the most frequent one of its iteration.
    """
    first, _, last = _split_thirds(verified)
    first_rewards, _, last_rewards = _split_thirds(rewards)
    if not first or not last or _compare(first, last).high >= 0 or np.mean(last) > HALF * np.mean(first):
        return
    if _compare(first_rewards, last_rewards, ANY).low <= 0:
        return
    for role, role_acts in acts.groupby("role"):
        is_repeated = role_acts["action"] == role_acts.groupby(["match", "seat"])["action"].shift()
        is_idle = _is_commonest(role_acts) | is_repeated.fillna(False) | (role_acts["action"].str.strip() == "")
        yield from _check_rise(run, "idleness", str(role), _average_by_match(role_acts, is_idle.astype("float64")))


def _check_drift(run: str, talk: pd.DataFrame) -> Iterator[Alarm]:
    """Yield `role drift` for roles whose messages are misclassified more often than in the first third.

    A naive Bayes classifier learns the words in every other match of the first third, and is tested on the remaining
    matches.
    """
    first = talk[talk["third"] == 0]
    is_training_match = first["match"].isin(sorted(first["match"].unique())[::2])
    counts = {str(role): _count_words(lines) for role, lines in first[is_training_match].groupby("role")}
    if len(counts) < 2:
        return
    vocabulary = pd.Index(sorted({word for words in counts.values() for word in words.index}))
    logs = pd.DataFrame({role: np.log((words.reindex(vocabulary).fillna(0) + 1) / (words.sum() + len(vocabulary)))
                         for role, words in counts.items()})  # fmt: skip
    test_talk = talk.drop(index=first[is_training_match].index)
    predicted = _classify_role(test_talk["public"], logs)
    misclassified = test_talk.assign(value=(predicted != test_talk["role"]).astype("float64"))[predicted != ""]
    for role, lines in misclassified.groupby("role"):
        if role in counts:
            yield from _check_rise(run, "role drift", str(role), _average_by_match(lines, lines["value"]))


def _count_words(lines: pd.DataFrame) -> pd.Series[Any]:
    return lines["public"].str.lower().str.split().explode().value_counts().astype("float64")


def _classify_role(texts: pd.Series[Any], log_probabilities: pd.DataFrame) -> pd.Series[Any]:
    """Return the most probable role of each text by its words, or "" if none of them is known.

    `log_probabilities` has the log probability of each word (row) by role (column).
    """
    words = texts.str.lower().str.split().explode()
    known = words[words.isin(log_probabilities.index)]
    evidence = log_probabilities.reindex(known).set_axis(known.index).groupby(level=0).sum()
    return evidence.idxmax(axis=1).reindex(texts.index, fill_value="")


def _check_one_sidedness(run: str, seats: pd.DataFrame) -> Iterator[Alarm]:
    """Yield `one-sidedness` for a seat that wins nearly all matches among learners, unlike in the first third.

    Leaves out matches against others, because learners should beat fixed opponents.
    """
    learner_seats = seats[seats.groupby("match")["trained"].transform("min").astype(bool)].dropna(subset=["payoff"])
    best = learner_seats.groupby("match")["payoff"].transform("max")
    wins = learner_seats.assign(won=(learner_seats["payoff"] == best).astype("float64"))
    wins["value"] = np.where(wins.groupby("match")["won"].transform("sum") == 1, wins["won"], 0.5 * wins["won"])
    for seat, seat_wins in wins.groupby("seat"):
        if learner_seats["seat"].nunique() > 1:
            yield from _check_rise(run, "one-sidedness", str(seat), seat_wins[["match", "third", "value"]], NEARLY_ALL)
