"""Checks of the data sets that an experiment names, and what follows from them: hashes and the number of iterations."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from arena.config.experiment import MOST_ITERATIONS, Experiment
from arena.data.rows import DataSet, RowOrder
from arena.data.units import UnitSplitter
from arena.errors import ConfigError
from arena.play.lessons import LOSS_OF, open_data
from arena.play.settings import RunRows, UnitsSpec


def with_data_sets(experiment: Experiment, doing: Callable[[str], None], exported: Path | None = None) -> Experiment:
    """Validate every row of the experiment's data sets, and return it with their hashes.

    With `source.epochs` the number of iterations is that of the batches in all passes. `exported` are the rows of a
    source that names a run, which is not checked without them. `doing` is called with each slow step. Raises
    ConfigError, with file and row, for a malformed row, and if the loss or a setting does not fit the rows. Returns
    other experiments unchanged.
    """
    return _with_demonstrations(_with_source(experiment, doing, exported), doing)


def _with_source(experiment: Experiment, doing: Callable[[str], None], exported: Path | None) -> Experiment:
    source = experiment.source
    path = exported if source is None or isinstance(source.data, RunRows | None) else Path(source.data)
    if source is None or path is None:
        return experiment
    rows = _checked(path, source.sha256, "source.data", doing, source.units)
    learn, loss = experiment.learn, LOSS_OF[rows.kind]
    if learn.loss.name != loss:
        raise ConfigError(f"source.data: {path} has {rows.kind}: set learn.loss: {loss}, not {learn.loss.name}")
    if rows.kind == "labels" and min(source.batch, len(rows)) < 2 * learn.minibatches:
        raise ConfigError("source.batch: kto compares completions of a step: at least 2 for each of learn.minibatches")
    try:
        order = RowOrder(len(rows), experiment.seed, source.held_out, source.epochs)
    except ValueError as error:
        raise ConfigError(f"source.{error}") from None
    fixed = source.model_copy(update={"sha256": rows.sha256})
    iterations = order.batches(source.batch) if source.epochs else experiment.iterations
    if iterations > MOST_ITERATIONS:
        raise ConfigError(f"source.epochs: {iterations:,} iterations: at most {MOST_ITERATIONS:,}; raise source.batch")
    return experiment.model_copy(update={"source": fixed, "iterations": iterations})


def _with_demonstrations(experiment: Experiment, doing: Callable[[str], None]) -> Experiment:
    given = experiment.learn.demonstrations
    if given is None or given.data is None:
        return experiment
    rows = _checked(Path(given.data), given.sha256, "learn.demonstrations.data", doing)
    if rows.kind not in ("chats", "texts"):
        raise ConfigError(f"learn.demonstrations.data: {given.data} has {rows.kind}: only chats and texts are imitated")
    learn = experiment.learn.model_copy(update={"demonstrations": given.model_copy(update={"sha256": rows.sha256})})
    return experiment.model_copy(update={"learn": learn})


def _checked(
    path: Path, sha256: str | None, field: str, doing: Callable[[str], None], units: UnitsSpec | None = None
) -> DataSet:
    """Return a data set with all rows validated, and their replies split if they have `units`; its files are closed."""
    rows = open_data(path, sha256, field)
    try:
        if units and rows.kind != "chats":
            raise ConfigError(f"source.units: only the replies of chats are split, and {path} has {rows.kind}")
        doing(f"checking {len(rows):,} rows of {path}")
        rows.check(partial(UnitSplitter(units.end, units.between).check, rows) if units else lambda number: None)
    finally:
        rows.close()
    return rows
