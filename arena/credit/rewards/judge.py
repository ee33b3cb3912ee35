"""The stage `judge`: a model that reads finished matches values a seat's conduct by a rubric."""

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
from arena.credit.asking import AskContext, Budget, Question, Seated, asks
from arena.credit.batch import Floats, TurnBatch
from arena.credit.rewards.agreement import Trend, position_bias, with_payoffs
from arena.credit.rewards.columns import Columns
from arena.credit.rubric import GivenRubric, Mode, Rubric, pair_question, ranking_question, score_question, shown_match
from arena.credit.verdicts import read_ranking, read_scores, read_winner
from arena.parts.chosen import AskedPolicy
from arena.parts.spec import Positive
from arena.records import Trajectory

CACHED = 20_000
"""Maximum cached verdicts; the oldest are dropped."""
RETRY_TEMPERATURE = 0.7
"""Lowest temperature of further attempts, since a greedy one would repeat itself."""

Verdict = list[float]
Asked = tuple[Question, Callable[[str], Verdict | None]]
"""A question and the parser of its answers."""


class Judge:
    """Judge of a run: asks for verdicts, caches them by content, and turns them into values of trajectories."""

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
        self._rounds, self._most, self._attempts, self._fallback = rounds, most, attempts, fallback
        self._sampling = Sampling(temperature=temperature, max_tokens=max_tokens)
        self._budget = Budget(calls, tokens, state.get("budget", {}))
        self._cache: dict[str, Verdict | None] = {key: json.loads(text) for key, text in state.get("cache", {}).items()}
        self._trend = Trend(window, mode == "score", state.get("trend", {}))
        self._reported = self._budget.state()
        """Counters of the budget at the last report."""
        self._asked: set[str] = set()
        """Keys of the verdicts that were asked for since the last report."""
        self._silent = Counter[str]()
        """Questions without a reply since the last report, by reason."""
        self._told: set[str] = set()
        """Warnings that were shown."""
        self._figures: dict[int, dict[str, float]] = {}

    async def measure(self, k: int, trajectories: Sequence[Trajectory]) -> list[NDArray[np.float32]]:
        """Return each trajectory's rewards by turn: the judge's value on the last turn, or the fallback."""
        mine = [one for one in trajectories if one.seat in self._rubric.seats]
        shown = [self._shown(one) for one in mine]
        count = _Count()
        by_mode = {"score": self._scores, "pairwise": self._pairwise, "groupwise": self._groupwise}
        values = await by_mode[self._mode](mine, shown, count)
        known = [value for value in values if value is not None]
        instead = {"zero": 0.0, "mean": float(np.mean(known)) if known else 0.0, "drop": np.nan}[self._fallback]
        self._figures[k] = count.figures(self._asked) | with_payoffs(mine, values, by_deal=self._mode != "score")
        self._figures[k] |= {"fallback": 1.0 - len(known) / len(mine)} if mine else {}
        rewards, rest = [np.zeros(len(one.turns), np.float32) for one in trajectories], iter(values)
        for one, paid in zip(trajectories, rewards, strict=True):
            if one.seat in self._rubric.seats:
                value = next(rest)
                paid[-1] = instead if value is None else value
        return rewards

    def report(self, k: int) -> dict[str, float]:
        """Return the iteration's figures, and tell the user if the reward rises while the payoff falls."""
        figures = self._figures.pop(k, {})
        self._figures = {j: own for j, own in self._figures.items() if j > k}
        spent = self._budget.state()
        figures |= {name: float(spent[name] - self._reported[name]) for name in spent}
        figures |= {f"unanswered_{why}": float(count) for why, count in sorted(self._silent.items())}
        if self._silent["budget"]:
            self._warn_once(k, "its budget is spent")
        if figures.get("unreadable") == 1.0:
            self._warn_once(k, "no answer is readable: is max_tokens too low, or the model too weak?")
        self._reported, self._asked, self._silent = spent, set(), Counter()
        if warning := self._trend.add(figures.get("value"), figures.get("payoff"), figures.get("agreement")):
            self._context.note(f"iteration {k}: judge of {self._rubric.pays}: {warning}")
        return figures | {"alarm": float(self._trend.is_raised)}

    def _warn_once(self, k: int, warning: str) -> None:
        if warning not in self._told:
            self._told.add(warning)
            self._context.note(f"iteration {k}: judge of {self._rubric.pays}: {warning}")

    def state(self) -> dict[str, Any]:
        """Return the cached verdicts, the counters of the budget and the figures of the alarm's window."""
        kept = [*self._cache.items()][-CACHED:]
        self._cache = dict(kept)
        cache = {key: json.dumps(verdict) for key, verdict in kept}
        return {"budget": self._budget.state(), "trend": self._trend.state(), "cache": cache}

    # -- values by mode ------------------------------------------------------------------------------------------

    async def _scores(self, mine: Sequence[Trajectory], shown: Sequence[str | None], count: "_Count") -> "_Values":
        rubric = self._rubric
        read = partial(read_scores, names=[criterion.name for criterion in rubric.criteria], scale=rubric.scale)
        texts = zip(mine, shown, strict=True)
        asked = [None if text is None else (score_question(rubric, one.seat, text), read) for one, text in texts]
        verdicts = await self._verdicts(asked, count)
        return [None if verdict is None else rubric.value(verdict) for verdict in verdicts]

    async def _pairwise(self, mine: Sequence[Trajectory], shown: Sequence[str | None], count: "_Count") -> "_Values":
        """Return each match's mean result against others of its group, by the verdicts on both orders of each pair."""
        pairs = [pair for group in _groups(mine, shown) for pair in _ring(group, self._rounds)]
        texts = [(shown[i] or "", shown[j] or "") for i, j in pairs]
        asked = [
            None if one == other else (pair_question(self._rubric, mine[i].seat, *order), _read_pair)  # equal texts tie
            for (i, _), (one, other) in zip(pairs, texts, strict=True)
            for order in ((one, other), (other, one))
        ]
        answers = await self._verdicts(asked, count)
        won: dict[int, list[float]] = defaultdict(list)
        for (i, j), (one, other), ab, ba in zip(pairs, texts, answers[::2], answers[1::2], strict=True):
            if ab and ba:
                count.firsts += [2 * ab[0] - 1, 2 * ba[0] - 1]
                count.consistent.append(float(ab[0] == 1 - ba[0]))
            result = 0.5 if one == other else (ab[0] + 1 - ba[0]) / 2 if ab and ba else None
            if result is not None:
                won[i].append(result)
                won[j].append(1 - result)
        return [float(np.mean(won[i])) if won[i] else None for i in range(len(mine))]

    async def _groupwise(self, mine: Sequence[Trajectory], shown: Sequence[str | None], count: "_Count") -> "_Values":
        """Return each match's value by its rank among at most `most` different matches of its group."""
        chunks = [
            group[start : start + self._most]
            for group in _groups(mine, shown)
            for start in range(0, len(group), self._most)
        ]
        # An order of the texts that no player chooses.
        lists = [sorted({shown[i] or "" for i in chunk}, key=_digest) for chunk in chunks]
        asked = [
            (ranking_question(self._rubric, mine[chunk[0]].seat, texts), partial(read_ranking, count=len(texts)))
            if len(texts) > 1
            else None
            for chunk, texts in zip(chunks, lists, strict=True)
        ]
        values: list[float | None] = [None] * len(mine)
        for chunk, texts, verdict in zip(chunks, lists, await self._verdicts(asked, count), strict=True):
            if verdict and (bias := position_bias(verdict)) is not None:
                count.firsts.append(bias)
            if len(texts) == 1 < len(chunk):
                verdict = [0.5]
            if verdict:
                for i in chunk:
                    values[i] = verdict[texts.index(shown[i] or "")]
        return values

    # -- verdicts ------------------------------------------------------------------------------------------------

    async def _verdicts(self, asked: Sequence[Asked | None], count: "_Count") -> list[Verdict | None]:
        """Return the verdict on each question, cached or asked for; None for no question or without a verdict.

        An unreadable answer is asked for again, up to `attempts` times, and then cached as such.
        """
        keys = [self._key(one[0]) if one else None for one in asked]
        waiting = {key: one for key, one in zip(keys, asked, strict=True) if key and one and key not in self._cache}
        self._asked |= waiting.keys()
        for attempt in range(self._attempts):
            waiting = await self._ask(waiting, attempt) if waiting else {}
        self._cache |= dict.fromkeys(waiting)
        count.add([key for key in keys if key], self._cache)
        return [self._cache.get(key) if key else None for key in keys]

    async def _ask(self, asked: Mapping[str, Asked], attempt: int) -> dict[str, Asked]:
        """Ask once, cache the readable verdicts, and return the questions with unreadable answers."""
        hotter = {"temperature": max(self._sampling.temperature, RETRY_TEMPERATURE)} if attempt else {}
        sampling = self._sampling.model_copy(update=hotter)
        seeds = [(int(key[:8], 16), attempt) for key in asked]
        questions = [question for question, _ in asked.values()]
        heard = await self._context.asker.ask(self._policy, questions, sampling, seeds, self._budget)
        unreadable = {}
        for (key, one), reply in zip(asked.items(), heard, strict=True):
            verdict = None if reply.text is None else one[1](reply.text)
            if verdict is not None:
                self._cache[key] = verdict
            elif reply.text is not None:
                unreadable[key] = one
            else:
                self._silent[reply.why] += 1
        return unreadable

    def _key(self, question: Question) -> str:
        """Return the key of a question in the cache. A frozen policy of a run keeps its weights."""
        return _digest(json.dumps([self._policy, self._sampling.model_dump(), self._mode, *question]))

    def _shown(self, one: Trajectory) -> str | None:
        """Return the trajectory's match as the judge sees it; None if the rubric's template fails on it."""
        rules = self._context.rules(one.game, one.seed) if self._rubric.sees.rules else ""
        try:
            return shown_match(self._rubric, one, rules)
        except BadTemplate as error:
            self._context.note(f"rubric {self._rubric.rubric}: template: match {one.match}: {error}")
            return None


_Values = list[float | None]


class _Count:
    """Counts of one pass over an iteration's matches."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.unreadable = self.unanswered = 0
        self.firsts: list[float] = []
        """Preference for what stands first, from -1 to 1."""
        self.consistent: list[float] = []

    def add(self, keys: Sequence[str], cache: Mapping[str, Verdict | None]) -> None:
        """Add verdicts that were needed, by their keys in the cache."""
        self.keys += keys
        self.unreadable += sum(key in cache and cache[key] is None for key in keys)
        self.unanswered += sum(key not in cache for key in keys)

    def figures(self, asked: set[str]) -> dict[str, float]:
        """Return shares of the needed verdicts: unreadable, unanswered, and cached (in repeated texts, too)."""
        needed = len(self.keys)
        figures = {"unreadable": self.unreadable / needed, "unanswered": self.unanswered / needed} if needed else {}
        figures |= {"cached": 1.0 - len(asked & {*self.keys}) / needed} if needed else {}
        figures |= {"position_bias": float(np.mean(self.firsts))} if self.firsts else {}
        return figures | ({"consistent": float(np.mean(self.consistent))} if self.consistent else {})


def _groups(mine: Sequence[Trajectory], shown: Sequence[str | None]) -> list[list[int]]:
    """Return the indices of the shown trajectories by deal and seat."""
    groups: dict[tuple[str, int, str], list[int]] = {}
    for i, (one, text) in enumerate(zip(mine, shown, strict=True)):
        if text is not None:
            groups.setdefault((one.game, one.seed, one.seat), []).append(i)
    return [*groups.values()]


def _ring(group: Sequence[int], rounds: int | None) -> Iterator[tuple[int, int]]:
    """Yield each member of the group with its next `rounds` ones (None: with all others), no pair twice."""
    n = len(group)
    far = n // 2 if rounds is None else min(rounds, n // 2)
    for step in range(1, far + 1):
        for place in range(n if 2 * step < n else n // 2):
            yield group[place], group[(place + step) % n]


def _read_pair(answer: str) -> Verdict | None:
    winner = read_winner(answer)
    return None if winner is None else [winner]


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def _computable(temperature: float) -> float:
    if 0 < temperature < MIN_TEMPERATURE:
        raise ValueError(f"{temperature:g} is too low: give 0 (greedy), or {MIN_TEMPERATURE:g} to 10")
    return temperature


def _check(seated: Seated, *, rubric: Rubric, mode: Mode, fallback: str, **settings: Any) -> None:
    """Raise ValueError unless the rubric's seats are the run's, and its deals are played several times to compare.

    Replay would learn scores without a value.
    """
    for seat in rubric.sees.acts:
        if seat not in seated.seats:
            raise ValueError(f"rubric {rubric.rubric}: sees.acts: no game has the seat '{seat}'")
    for seat in rubric.seats:
        if seat not in seated.trained:
            raise ValueError(f"rubric {rubric.rubric}: seats: no trained policy has the seat '{seat}'")
    if mode != "score" and seated.is_alone:
        raise ValueError(f"mode {mode} compares matches of one deal: set play.group, such as play.group=8")
    if fallback == "drop" and seated.has_replay:
        raise ValueError("fallback drop does not go with learn.replay: set fallback to zero or mean")


@asks(Judge, lambda *, rubric, **settings: f"judge.{rubric.pays}", _check)
def judge(
    batch: TurnBatch,
    rewards: Columns,
    *,
    policy: Annotated[str, Field(min_length=1), AskedPolicy()],
    rubric: GivenRubric,
    mode: Mode = "score",
    rounds: Positive | None = 2,
    most: Annotated[int, Field(ge=2, le=64)] = 8,
    attempts: Annotated[int, Field(ge=1, le=10)] = 2,
    temperature: Annotated[float, Field(ge=0, le=10), AfterValidator(_computable)] = 0.0,
    max_tokens: Annotated[int, Field(ge=1, le=100_000)] = 128,
    calls: Positive | None = None,
    tokens: Positive | None = None,
    fallback: Literal["zero", "mean", "drop"] = "zero",
    window: Annotated[int, Field(ge=4, le=1000)] = 10,
) -> dict[str, Floats]:
    """Pay the value in [0, 1] that a model gives a seat's conduct by a rubric, on the seat's last turn.

    `policy` is a frozen policy of the run or an endpoint; it reads each finished match as the rubric shows it. Adds the
    reward that the rubric names. `score`: the weighted mean of the criteria's scores. `pairwise`: the mean result (1, ½
    or 0) against the next `rounds` matches of the same deal (null: all), each pair asked in both orders and unreadable
    unless both answers are readable. `groupwise`: the rank among at most `most` matches of the deal, from 1 to 0.

    Verdicts are cached by content, so that a repeated text costs nothing. An unreadable answer is asked for again, in
    all up to `attempts` times. `calls` and `tokens` limit the whole run. A match without a verdict, also beyond the
    budget, gets the `fallback`: 0, the mean of the iteration's others, or it is dropped. A run warns if over `window`
    iterations the value rises while the payoff falls (Mann-Kendall, both at 5 %); in comparisons, whose mean is
    constant, if the payoff falls while they agree with it less than chance.

    Zero: a judge that gives all matches the same value.
    """
    return {rubric.pays: batch.measure(f"judge.{rubric.pays}")}
