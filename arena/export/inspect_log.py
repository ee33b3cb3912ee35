"""Eval logs for Inspect, one per iteration and game. Each chat is a sample, with payoff and return as its scores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from arena.errors import ConfigError
from arena.export.chats import Chats
from arena.export.selection import Row
from arena.plain import to_plain

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample, EvalScore

SCORES = ("payoff", "return")


def write(chats: Chats, to: Path) -> int:
    """Write an Inspect log per iteration and game into the folder `to`. Returns the total number of samples.

    Each row of `Chats.rows` is a sample. Raises ConfigError if Inspect is not installed.
    """
    try:
        from inspect_ai.log import write_eval_log
    except ImportError:
        raise ConfigError("--as inspect needs Inspect: pip install 'arena-selfplay[inspect]'") from None
    count = 0
    for batch in chats.rows():
        by_game = defaultdict[str, list[Row]](list)
        for row in batch:
            by_game[row["game"]].append(to_plain(row, "chat", gaps=True))
        for number, (game, rows) in enumerate(by_game.items()):
            log = _make_log(chats.reader.path.resolve().name, game, rows)
            write_eval_log(log, str(to / f"{rows[0]['iteration']:04d}-{number}.eval"), "eval")
            count += len(rows)
    return count


def _make_log(run: str, game: str, rows: Sequence[Row]) -> EvalLog:
    from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalResults, EvalSpec, EvalStats

    iteration, times = rows[0]["iteration"], sorted(row["started"] for row in rows)
    name = f"{run}-{iteration:04d}-{game}"
    spec = EvalSpec(
        eval_id=name,
        run_id=run,
        task_id=name,
        created=times[0],
        task=f"{game} {run} iteration {iteration}",
        dataset=EvalDataset(name=run, samples=len(rows)),
        model=" ".join(["arena/", *sorted({row["policy"] for row in rows})]).replace("/ ", "/"),
        config=EvalConfig(),
        metadata={"run": run, "iteration": iteration, "game": game},
    )
    scores = [_make_score(name, [row[name] for row in rows if row[name] is not None]) for name in SCORES]
    results = EvalResults(total_samples=len(rows), completed_samples=len(rows), scores=scores)
    stats = EvalStats(started_at=times[0], completed_at=times[-1])
    return EvalLog(
        status="success", eval=spec, results=results, stats=stats, samples=[_make_sample(row) for row in rows]
    )


def _make_score(name: str, values: Sequence[float]) -> EvalScore:
    from inspect_ai.log import EvalMetric, EvalScore

    error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    values_by_metric = {"mean": fmean(values) if values else 0.0, "stderr": error}
    metrics = {metric: EvalMetric(name=metric, value=value) for metric, value in values_by_metric.items()}
    return EvalScore(name=name, scorer=name, scored_samples=len(values), metrics=metrics)


def _make_sample(row: Row) -> EvalSample:
    from inspect_ai.log import EvalSample
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser, ModelOutput
    from inspect_ai.scorer import Score

    classes = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}
    messages = [classes[message["role"]](content=message["content"]) for message in row["messages"]]
    answer = row["messages"][-1]["content"]
    return EvalSample(
        id=f"{row['match']}/{row['seat']}/{row['first_turn']}",
        epoch=1,
        input=messages[: row["opening"]],
        target="",
        messages=messages,
        output=ModelOutput.from_content(row["policy"], answer),
        scores={name: Score(value=row[name], answer=answer) for name in SCORES if row[name] is not None},
        metadata={name: value for name, value in row.items() if name not in ("messages", "tools", *SCORES)},
    )
