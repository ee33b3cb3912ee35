"""The turns of a run as `arena credit` judges them, for a page in which one chooses the estimator."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any


def judged(run: Path, estimators: str, iteration: int, trust: bool = False) -> list[dict[str, Any]]:
    """The turns of one iteration with `reward` and a column for each of these estimators, as `arena credit` has them.

    ConfigError, one line, for an estimator that is none, or that no log is enough for. Not to be called within a loop.
    """
    from arena.cli.credit import parsed
    from arena.config.saved_config import experiment_of
    from arena.credit.compare import compare

    given = experiment_of(run, trust=trust)
    comparison = asyncio.run(
        compare(run, given.credit, parsed(estimators), [iteration], seed=given.seed, length=given.iterations)
    )
    kept = comparison.turns[["match", "turn", "reward", *comparison.estimators]]
    rows: list[dict[str, Any]] = json.loads(kept.to_json(orient="records", double_precision=15))
    return rows


def estimators() -> list[dict[str, str]]:
    """All estimators by name, with a line on each, as `arena list estimators` has them."""
    from arena.cli.catalogue import entries

    return entries("estimators")
