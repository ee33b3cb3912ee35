"""study.json or sweep.json: what the runs have shown, and enough to go on where no run's folder is left."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from arena.config.study import StudySpec
from arena.errors import StoreError
from arena.store.files import explained
from arena.store.manifest import digest
from arena.store.reader import SEAL
from games.plain_files import read_plain

RESULT = "study.json"
Curve = Annotated[list[Annotated[float, Field(ge=-1e9, le=1e9)]], Field(min_length=1)]


class StatedRule(BaseModel):
    """A rule, and what was known when it was stated."""

    time: str
    rule: str
    """Its hash: `StudySpec.rule`."""
    runs: int
    """Whole runs that there were already: more than 0 where a rule was changed after runs."""


class Look(BaseModel):
    """One look at what the runs have shown; a summary of the same runs by the same rule is no further look."""

    time: str
    commit: str
    """Commit of Arena's checkout, or its version where it is installed."""
    rule: str
    seeds: int
    """How many of each arm were asked for."""
    runs: int
    """Whole runs that were seen."""
    verdict: str


class KeptRun(BaseModel):
    """One run that came to its end."""

    arm: str
    seed: int
    seconds: float
    """Seconds of play, credit and learning, all iterations together."""
    curve: Curve
    """The figure, iteration by iteration."""
    also: dict[str, Curve] = {}
    """Secondary figures, iteration by iteration; of an evaluation the value before and the one after. The first arm
    has all, others those that their mechanism knows."""
    gauges: dict[str, float | None] = {}
    """The mean of each gauge over the iterations that have it; null where none has."""
    steps: int | None = None
    """Optimiser steps of all policies, those of replay too; null where an older Arena did not count."""
    tokens: int | None = None
    """Tokens learned from, each as often as a step did."""


class Record(BaseModel):
    """Contents of study.json that are read again; the rest follows from them."""

    name: str
    """Name of the recipe."""
    study: StudySpec
    experiment: dict[str, Any]
    """Experiment of all runs, without its section `study`."""
    seeds: int
    """Number of seeds of each arm that were asked for last."""
    arms: dict[str, Any]
    """Those that were asked for last, the first one first."""
    runs: list[KeptRun]
    """All that the study's folder has ever known."""
    rules: list[StatedRule] = []
    """Rules in the order in which they were stated; of a record of an older Arena none."""
    looks: list[Look] = []
    """Looks in their order; none where they were not recorded."""

    @model_validator(mode="after")
    def _are_its_own(self) -> Self:
        lengths: dict[str, int] = {}
        for run in self.runs:
            if run.arm not in self.study.names:
                raise ValueError(f"'{run.arm}' is none of its arms ({', '.join(self.study.names)})")
            needed = self.study.also if run.arm == self.study.arm else ()
            if missing := [name for name in needed if name not in run.also]:
                raise ValueError(f"{run.arm}, seed {run.seed} lacks the figure {missing[0]}")
            if lengths.setdefault(run.arm, len(run.curve)) != len(run.curve):
                raise ValueError(f"{run.arm}, seed {run.seed} has another number of iterations than other seeds")
        return self


def read_record(place: Path, note: Callable[[str], None] = lambda why: None) -> Record:
    """A study.json; StoreError where it is none, or was edited.

    `note` is called where it has no hash of itself: then nobody can tell.
    """
    with explained(place, "reading"):
        text = read_plain(place)
    try:
        body = json.loads(text)
        seal = body.pop(SEAL, None) if isinstance(body, dict) else None
        record = Record.model_validate(body)
    except (ValueError, RecursionError) as error:
        said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise StoreError(f"{place} cannot be read as a study's results: {said}") from None
    if seal is None:
        note(f"{place} is of an older Arena: nothing tells whether it is as it was written")
    elif seal != digest(body):
        raise StoreError(f"{place} is not as it was written: restore it from a copy")
    return record


def recorded(place: Path, note: Callable[[str], None] = lambda why: None) -> Record | None:
    """Read what was recorded in a file, None where nothing is there yet; errors and `note` as above."""
    return read_record(place, note) if place.exists() else None


def kept_runs(record: Record | None) -> dict[tuple[str, int], KeptRun]:
    """The runs of a record, by arm and seed."""
    return {(run.arm, run.seed): run for run in record.runs} if record else {}
