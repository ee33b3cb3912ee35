"""Rehearsal of a study: two iterations of each arm, and the estimated time of the whole study."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from statistics import fmean

from arena.config.arms import require_study
from arena.config.experiment import Experiment
from arena.errors import StoreError
from arena.evaluate.held_out import FILE as EVALUATION
from arena.store.contents import METRICS
from arena.store.evaluations import read_evaluations
from arena.store.reader import RunReader, read_metrics

REHEARSED = 2
"""Iterations of each run of a rehearsal."""
PARTS = ("play", "learn", "commit")
"""Parts of an iteration's seconds, without its panel."""


def make_rehearsal(experiment: Experiment) -> Experiment:
    """Return the study with two iterations per arm, on a seed that its rule does not judge, and without a claim."""
    spec = require_study(experiment)
    arms = {arm: [*settings, f"iterations={REHEARSED}"] for arm, settings in spec.arms.items()}
    rule = spec.verdict.model_copy(update={"better_than": []})
    sample: dict[str, object] = {"first_seed": spec.first_tuning_seed(1), "seeds": None, "tuned_on": []}
    changed = {"arms": arms, "verdict": rule, **sample, "last": 1, "minutes": None}
    return experiment.model_copy(update={"iterations": REHEARSED, "study": spec.model_copy(update=changed)})


def estimate_seconds(run: Path, experiment: Experiment) -> float | None:
    """Return the estimated seconds of a run of `experiment`, from the finished short run in folder `run`.

    Iterations and panels are counted by their number; the start, imitation and evaluations are counted once. Returns
    None if the short run is unfinished or its files are damaged.
    """
    try:
        rows, evaluations = read_metrics(run / METRICS), read_evaluations(run)
        seconds = [sum(row["seconds"].get(part, 0.0) for part in PARTS) for row in rows]
        panel = evaluations[-1].seconds if evaluations else 0.0
        between = sum(row["seconds"].get("panel", 0.0) for row in rows)
        started = datetime.fromisoformat(RunReader(run).environment()["commands"][0]["time"]).timestamp()
        last = run / (EVALUATION if (run / EVALUATION).exists() else METRICS)
        once = max(0.0, last.stat().st_mtime - started - sum(seconds) - between)
        return float(once + experiment.iterations * fmean(seconds) + count_panels(experiment) * panel)
    except (OSError, StoreError, ValueError, LookupError, TypeError, AttributeError):
        return None


def count_panels(experiment: Experiment) -> int:
    """Return the number of panel evaluations after iterations of a run, without the one before the first."""
    if experiment.evaluate is None or experiment.evaluate.panel is None:
        return 0
    every, last = experiment.evaluate.every, experiment.iterations
    return sum(k == last or bool(every and k % every == 0) for k in range(1, last + 1))
