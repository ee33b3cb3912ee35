"""The stage `judge`: a model reads finished matches and scores a seat's conduct by a rubric."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from agents.role import MIN_TEMPERATURE, Sampling
from agents.templates import BadTemplate
from arena.credit.asking import AskContext, Budget, ExperimentFacts, Question, asks
from arena.credit.batch import Floats, TurnBatch
from arena.credit.rewards.agreement import RewardHackingAlarm, compare_with_payoffs, measure_position_bias
from arena.credit.rewards.columns import Columns
from arena.credit.rubric import (
    Mode,
    Rubric,
    RubricOrPath,
    make_pair_question,
    make_ranking_question,
    make_score_question,
    quote_match,
)
from arena.credit.verdicts import read_ranking, read_scores, read_winner
from arena.parts.part_config import AskedPolicy
from arena.parts.spec import Positive
from arena.records import Trajectory

CACHE_SIZE = 20_000
"""Maximum cached verdicts; the oldest are dropped."""
RETRY_TEMPERATURE = 0.7
"""Lowest temperature of retries, because greedy decoding would repeat the answer."""

Verdict = list[float]
JudgeQuestion = tuple[Question, Callable[[str], Verdict | None]]
"""A question with the parser of its answers."""


class Judge:
    """Measurer of the stage `judge`: asks for verdicts, caches them by content, and computes rewards from them."""

    def __init__(
        self,
        context: AskContext,
        state: Mapping[str, Any],
        *,
        policy: str,
        rubric: Rubric,
        mode: Mode,
        rounds: int | None,
        most: int,
        attempts: int,
        temperature: float,
        max_tokens: int,
        calls: int | None,
        tokens: int | None,
        fallback: Literal["zero", "mean", "drop"],
        window: int,
    ) -> None:
        self._context, self._policy, self._rubric, self._mode = context, policy, rubric, mode
        self._rounds, self._max_group, self._attempts, self._fallback = rounds, most, attempts, fallback
        self._sampling = Sampling(temperature=temperature, max_tokens=max_tokens)
        self._budget = Budget(calls, tokens, state.get("budget", {}))
        self._cache: dict[str, Verdict | None] = {key: json.loads(text) for key, text in state.get("cache", {}).items()}
        self._alarm = RewardHackingAlarm(window, mode == "score", state.get("trend", {}))
        self._reported_budget = self._budget.state()
        """The budget's counters at the last report."""
        self._new_keys: set[str] = set()
        """Keys of the verdicts requested since the last report."""
        self._unanswered = Counter[str]()
        """Questions without a reply since the last report, by reason."""
        self._shown_warnings: set[str] = set()
        """Warnings already shown."""
        self._figures: dict[int, dict[str, float]] = {}

    async def measure(self, k: int, trajectories: Sequence[Trajectory]) -> list[NDArray[np.float32]]:
        """Return each trajectory's rewards by turn: the judge's value on the last turn, or the fallback."""
        judged_trajectories = [trajectory for trajectory in trajectories if trajectory.seat in self._rubric.seats]
        texts = [self._show_match(trajectory) for trajectory in judged_trajectories]
        counts = _VerdictCounts()
        by_mode = {"score": self._judge_scores, "pairwise": self._judge_pairs, "groupwise": self._judge_groups}
        values = await by_mode[self._mode](judged_trajectories, texts, counts)
        known = [value for value in values if value is not None]
        fallback = {"zero": 0.0, "mean": float(np.mean(known)) if known else 0.0, "drop": np.nan}[self._fallback]
        self._figures[k] = counts.compute_figures(self._new_keys) | compare_with_payoffs(
            judged_trajectories, values, by_deal=self._mode != "score"
        )
        self._figures[k] |= {"fallback": 1.0 - len(known) / len(judged_trajectories)} if judged_trajectories else {}
        rewards, remaining = [np.zeros(len(trajectory.turns), np.float32) for trajectory in trajectories], iter(values)
        for trajectory, reward in zip(trajectories, rewards, strict=True):
            if trajectory.seat in self._rubric.seats:
                value = next(remaining)
                reward[-1] = fallback if value is None else value
        return rewards

    def report(self, k: int) -> dict[str, float]:
        """Return the iteration's figures, and warn the user if the reward rises while the payoff falls."""
        figures = self._figures.pop(k, {})
        self._figures = {j: later for j, later in self._figures.items() if j > k}
        budget = self._budget.state()
        figures |= {name: float(budget[name] - self._reported_budget[name]) for name in budget}
        figures |= {f"unanswered_{failure}": float(count) for failure, count in sorted(self._unanswered.items())}
        if self._unanswered["budget"]:
            self._warn_once(k, "its budget is spent")
        if figures.get("unreadable") == 1.0:
            self._warn_once(k, "no answer is readable: is max_tokens too low, or the model too weak?")
        self._reported_budget, self._new_keys, self._unanswered = budget, set(), Counter()
        if warning := self._alarm.add(figures.get("value"), figures.get("payoff"), figures.get("agreement")):
            self._context.note(f"iteration {k}: judge of {self._rubric.pays}: {warning}")
        return figures | {"alarm": float(self._alarm.is_raised)}

    def _warn_once(self, k: int, warning: str) -> None:
        if warning not in self._shown_warnings:
            self._shown_warnings.add(warning)
            self._context.note(f"iteration {k}: judge of {self._rubric.pays}: {warning}")

    def state(self) -> dict[str, Any]:
        """Return the cached verdicts, the budget's counters, and the alarm's state."""
        newest = [*self._cache.items()][-CACHE_SIZE:]
        self._cache = dict(newest)
        cache = {key: json.dumps(verdict) for key, verdict in newest}
        return {"budget": self._budget.state(), "trend": self._alarm.state(), "cache": cache}

    # -- values by mode ------------------------------------------------------------------------------------------

    async def _judge_scores(
        self, trajectories: Sequence[Trajectory], texts: Sequence[str | None], counts: "_VerdictCounts"
    ) -> "_Values":
        rubric = self._rubric
        read_reply = partial(read_scores, names=[criterion.name for criterion in rubric.criteria], scale=rubric.scale)
        questions = [
            None if text is None else (make_score_question(rubric, trajectory.seat, text), read_reply)
            for trajectory, text in zip(trajectories, texts, strict=True)
        ]
        verdicts = await self._get_verdicts(questions, counts)
        return [None if verdict is None else rubric.scale_scores(verdict) for verdict in verdicts]

    async def _judge_pairs(
        self, trajectories: Sequence[Trajectory], texts: Sequence[str | None], counts: "_VerdictCounts"
    ) -> "_Values":
        """Return each match's mean result against other matches of its group. Each pair is judged in both orders."""
        pairs = [
            pair for group in _group_by_deal(trajectories, texts) for pair in _pair_neighbours(group, self._rounds)
        ]
        pair_texts = [(texts[i] or "", texts[j] or "") for i, j in pairs]
        questions = [
            None
            if one == other
            else (make_pair_question(self._rubric, trajectories[i].seat, *order), _read_pair)  # equal texts tie
            for (i, _), (one, other) in zip(pairs, pair_texts, strict=True)
            for order in ((one, other), (other, one))
        ]
        answers = await self._get_verdicts(questions, counts)
        results: dict[int, list[float]] = defaultdict(list)
        for (i, j), (one, other), ab, ba in zip(pairs, pair_texts, answers[::2], answers[1::2], strict=True):
            if ab and ba:
                counts.position_biases += [2 * ab[0] - 1, 2 * ba[0] - 1]
                counts.consistent.append(float(ab[0] == 1 - ba[0]))
            result = 0.5 if one == other else (ab[0] + 1 - ba[0]) / 2 if ab and ba else None
            if result is not None:
                results[i].append(result)
                results[j].append(1 - result)
        return [float(np.mean(results[i])) if results[i] else None for i in range(len(trajectories))]

    async def _judge_groups(
        self, trajectories: Sequence[Trajectory], texts: Sequence[str | None], counts: "_VerdictCounts"
    ) -> "_Values":
        """Return each match's value by its rank among at most `most` different matches of its group."""
        chunks = [
            group[start : start + self._max_group]
            for group in _group_by_deal(trajectories, texts)
            for start in range(0, len(group), self._max_group)
        ]
        # sorted by hash, which players cannot influence
        text_lists = [sorted({texts[i] or "" for i in chunk}, key=_digest) for chunk in chunks]
        questions = [
            (
                make_ranking_question(self._rubric, trajectories[chunk[0]].seat, items),
                partial(read_ranking, count=len(items)),
            )
            if len(items) > 1
            else None
            for chunk, items in zip(chunks, text_lists, strict=True)
        ]
        values: list[float | None] = [None] * len(trajectories)
        verdicts = await self._get_verdicts(questions, counts)
        for chunk, items, verdict in zip(chunks, text_lists, verdicts, strict=True):
            if verdict and (bias := measure_position_bias(verdict)) is not None:
                counts.position_biases.append(bias)
            if len(items) == 1 < len(chunk):
                verdict = [0.5]
            if verdict:
                for i in chunk:
                    values[i] = verdict[items.index(texts[i] or "")]
        return values

    # -- verdicts ------------------------------------------------------------------------------------------------

    async def _get_verdicts(
        self, questions: Sequence[JudgeQuestion | None], counts: "_VerdictCounts"
    ) -> list[Verdict | None]:
        """Return the verdict on each question, from the cache or newly requested; None without a question or verdict.

        Questions with unreadable answers are asked up to `attempts` times, and then cached as unreadable.
        """
        keys = [self._hash_question(question[0]) if question else None for question in questions]
        pairs = zip(keys, questions, strict=True)
        waiting = {key: question for key, question in pairs if key and question and key not in self._cache}
        self._new_keys |= waiting.keys()
        for attempt in range(self._attempts):
            waiting = await self._ask(waiting, attempt) if waiting else {}
        self._cache |= dict.fromkeys(waiting)
        counts.add([key for key in keys if key], self._cache)
        return [self._cache.get(key) if key else None for key in keys]

    async def _ask(self, questions: Mapping[str, JudgeQuestion], attempt: int) -> dict[str, JudgeQuestion]:
        """Ask all questions once, cache the readable verdicts, and return the questions with unreadable answers."""
        changes = {"temperature": max(self._sampling.temperature, RETRY_TEMPERATURE)} if attempt else {}
        sampling = self._sampling.model_copy(update=changes)
        seeds = [(int(key[:8], 16), attempt) for key in questions]
        texts = [question for question, _ in questions.values()]
        replies = await self._context.asker.ask(self._policy, texts, sampling, seeds, self._budget)
        unreadable = {}
        for (key, question), reply in zip(questions.items(), replies, strict=True):
            verdict = None if reply.text is None else question[1](reply.text)
            if verdict is not None:
                self._cache[key] = verdict
            elif reply.text is not None:
                unreadable[key] = question
            else:
                self._unanswered[reply.failure] += 1
        return unreadable

    def _hash_question(self, question: Question) -> str:
        """Return the cache key of a question. The weights need no key, because the policy is frozen."""
        return _digest(json.dumps([self._policy, self._sampling.model_dump(), self._mode, *question]))

    def _show_match(self, trajectory: Trajectory) -> str | None:
        """Return the text of the trajectory's match for the judge; None if the rubric's template fails on it."""
        rules = self._context.rules(trajectory.game, trajectory.seed) if self._rubric.sees.rules else ""
        try:
            return quote_match(self._rubric, trajectory, rules)
        except BadTemplate as error:
            self._context.note(f"rubric {self._rubric.rubric}: template: match {trajectory.match}: {error}")
            return None


_Values = list[float | None]


class _VerdictCounts:
    """Counts of verdicts, cached or new, in one pass over an iteration's matches."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.unreadable = self.unanswered = 0
        self.position_biases: list[float] = []
        """Preference for the first position, from -1 to 1, by verdict."""
        self.consistent: list[float] = []
        """For each pair, 1 if the verdicts on both orders agree, else 0."""

    def add(self, keys: Sequence[str], cache: Mapping[str, Verdict | None]) -> None:
        """Count verdicts by their keys. In the cache, None is an unreadable answer; a missing key, no answer."""
        self.keys += keys
        self.unreadable += sum(key in cache and cache[key] is None for key in keys)
        self.unanswered += sum(key not in cache for key in keys)

    def compute_figures(self, new_keys: set[str]) -> dict[str, float]:
        """Return the shares of verdicts that are `unreadable`, `unanswered` and `cached`, and how consistent they are.

        `new_keys` are the keys of newly requested verdicts; repeated texts count as cached. Comparisons also have
        `position_bias`, the mean preference for the first position, and pairs `consistent`, the share of pairs whose
        orders agree.
        """
        total = len(self.keys)
        figures = {"unreadable": self.unreadable / total, "unanswered": self.unanswered / total} if total else {}
        figures |= {"cached": 1.0 - len(new_keys & {*self.keys}) / total} if total else {}
        figures |= {"position_bias": float(np.mean(self.position_biases))} if self.position_biases else {}
        return figures | ({"consistent": float(np.mean(self.consistent))} if self.consistent else {})


def _group_by_deal(trajectories: Sequence[Trajectory], texts: Sequence[str | None]) -> list[list[int]]:
    """Group the indices of the trajectories with a text by deal and seat."""
    groups: dict[tuple[str, int, str], list[int]] = {}
    for i, (trajectory, text) in enumerate(zip(trajectories, texts, strict=True)):
        if text is not None:
            groups.setdefault((trajectory.game, trajectory.seed, trajectory.seat), []).append(i)
    return [*groups.values()]


def _pair_neighbours(group: Sequence[int], rounds: int | None) -> Iterator[tuple[int, int]]:
    """Yield pairs of each member with the next `rounds` members, or with all others if None. No pair occurs twice."""
    n = len(group)
    reach = n // 2 if rounds is None else min(rounds, n // 2)
    for step in range(1, reach + 1):
        for place in range(n if 2 * step < n else n // 2):
            yield group[place], group[(place + step) % n]


def _read_pair(answer: str) -> Verdict | None:
    winner = read_winner(answer)
    return None if winner is None else [winner]


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def _check_temperature(temperature: float) -> float:
    if 0 < temperature < MIN_TEMPERATURE:
        raise ValueError(f"{temperature:g} is too low: give 0 (greedy), or {MIN_TEMPERATURE:g} to 10")
    return temperature


def _check(facts: ExperimentFacts, *, rubric: Rubric, mode: Mode, fallback: str, **settings: Any) -> None:
    """Raise ValueError unless the run has the rubric's seats and, for comparisons, plays each deal several times."""
    for seat in rubric.sees.acts:
        if seat not in facts.seats:
            raise ValueError(f"rubric {rubric.rubric}: sees.acts: no game has the seat '{seat}'")
    for seat in rubric.seats:
        if seat not in facts.trained:
            raise ValueError(f"rubric {rubric.rubric}: seats: no trained policy has the seat '{seat}'")
    if mode != "score" and facts.plays_deals_once:
        raise ValueError(f"mode {mode} compares matches of one deal: set play.group, such as play.group=8")
    if fallback == "drop" and facts.has_replay:  # replay would learn from scores of NaN
        raise ValueError("fallback drop cannot be combined with learn.replay: set fallback to zero or mean")


@asks(Judge, lambda *, rubric, **settings: f"judge.{rubric.pays}", _check)
def judge(
    batch: TurnBatch,
    rewards: Columns,
    *,
    policy: Annotated[str, Field(min_length=1), AskedPolicy()],
    rubric: RubricOrPath,
    mode: Mode = "score",
    rounds: Positive | None = 2,
    most: Annotated[int, Field(ge=2, le=64)] = 8,
    attempts: Annotated[int, Field(ge=1, le=10)] = 2,
    temperature: Annotated[float, Field(ge=0, le=10), AfterValidator(_check_temperature)] = 0.0,
    max_tokens: Annotated[int, Field(ge=1, le=100_000)] = 128,
    calls: Positive | None = None,
    tokens: Positive | None = None,
    fallback: Literal["zero", "mean", "drop"] = "zero",
    window: Annotated[int, Field(ge=4, le=1000)] = 10,
) -> dict[str, Floats]:
    """Score a seat's conduct by a rubric with a model, as a reward in [0, 1] on the seat's last turn.

    `policy` is a frozen policy of the run or an endpoint. It reads each finished match as the rubric shows it. The
    rubric names the reward. Values by `mode`: `score`: the weighted mean of the criteria's scores. `pairwise`: the mean
    result (1, ½ or 0) against the next `rounds` matches of the same deal (null: all); each pair is judged in both
    orders, and is unreadable unless both answers are readable. `groupwise`: the rank among at most `most` matches of
    the deal, from 1 to 0.

    Verdicts are cached by content, so a repeated text costs nothing. A question with an unreadable answer is asked up
    to `attempts` times in all. `calls` and `tokens` limit the whole run. A match without a verdict, for example beyond
    the budget, gets the `fallback`: 0, the mean of the iteration's others, or it is dropped. The run warns if over
    `window` iterations the value rises while the payoff falls (Mann-Kendall, both at 5 %). For comparisons, whose mean
    is constant, it warns if the payoff falls while they agree with it less than chance.

    A judge that gives all matches the same value carries no signal.
    """
    return {rubric.pays: batch.measure(f"judge.{rubric.pays}")}
