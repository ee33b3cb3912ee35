"""Checks of an experiment's data sets, which also set their hashes and the number of iterations."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from arena.config.experiment import MAX_ITERATIONS, Experiment
from arena.data.rows import DataSet, RowOrder
from arena.data.units import UnitSplitter
from arena.errors import ConfigError
from arena.play.lessons import LOSS_OF_KIND, open_data
from arena.play.settings import RunRows, UnitsSpec


def with_data_sets(experiment: Experiment, announce: Callable[[str], None], exported: Path | None = None) -> Experiment:
    """Validate every row of the experiment's data sets, and return the experiment with their hashes.

    If `source.epochs` is set, `iterations` becomes the number of batches in all epochs. `exported` are the rows that
    were exported from a run that `source` names; without them, that source is not checked. `announce` is called with
    each slow step. Raises ConfigError, with file and row, for a malformed row, and if the loss or a setting does not
    fit the rows. Returns experiments without data sets unchanged.
    """
    return _with_demonstrations(_with_source(experiment, announce, exported), announce)


def _with_source(experiment: Experiment, announce: Callable[[str], None], exported: Path | None) -> Experiment:
    source = experiment.source
    path = exported if source is None or isinstance(source.data, RunRows | None) else Path(source.data)
    if source is None or path is None:
        return experiment
    rows = _open_checked(path, source.sha256, "source.data", announce, source.units)
    learn, loss = experiment.learn, LOSS_OF_KIND[rows.kind]
    if learn.loss.name != loss:
        raise ConfigError(f"source.data: {path} has {rows.kind}: set learn.loss: {loss}, not {learn.loss.name}")
    if rows.kind == "labels" and min(source.batch, len(rows)) < 2 * learn.minibatches:
        raise ConfigError("source.batch: kto compares completions of a step: at least 2 for each of learn.minibatches")
    try:
        order = RowOrder(len(rows), experiment.seed, source.held_out, source.epochs)
    except ValueError as error:
        raise ConfigError(f"source.{error}") from None
    hashed = source.model_copy(update={"sha256": rows.sha256})
    iterations = order.batches(source.batch) if source.epochs else experiment.iterations
    if iterations > MAX_ITERATIONS:
        raise ConfigError(f"source.epochs: {iterations:,} iterations: at most {MAX_ITERATIONS:,}; raise source.batch")
    return experiment.model_copy(update={"source": hashed, "iterations": iterations})


def _with_demonstrations(experiment: Experiment, announce: Callable[[str], None]) -> Experiment:
    demonstrations = experiment.learn.demonstrations
    if demonstrations is None or demonstrations.data is None:
        return experiment
    rows = _open_checked(Path(demonstrations.data), demonstrations.sha256, "learn.demonstrations.data", announce)
    if rows.kind not in ("chats", "texts"):
        raise ConfigError(
            f"learn.demonstrations.data: {demonstrations.data} has {rows.kind}: only chats and texts are imitated"
        )
    learn = experiment.learn.model_copy(
        update={"demonstrations": demonstrations.model_copy(update={"sha256": rows.sha256})}
    )
    return experiment.model_copy(update={"learn": learn})


def _open_checked(
    path: Path, sha256: str | None, field: str, announce: Callable[[str], None], units: UnitsSpec | None = None
) -> DataSet:
    """Validate all rows of a data set, and with `units` the split of their replies. Return it with closed files."""
    rows = open_data(path, sha256, field)
    try:
        if units and rows.kind != "chats":
            raise ConfigError(f"source.units: only the replies of chats are split, and {path} has {rows.kind}")
        announce(f"checking {len(rows):,} rows of {path}")
        rows.check(partial(UnitSplitter(units.end, units.between).check, rows) if units else lambda number: None)
    finally:
        rows.close()
    return rows
