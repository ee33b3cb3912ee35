"""Record of a study or sweep (study.json, sweep.json): the results of all finished runs.

It suffices to continue the study without the run folders.
"""

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from arena.config.study import StudySpec
from arena.errors import StoreError
from arena.store.manifest import read_sealed

RESULT = "study.json"
Curve = Annotated[list[Annotated[float, Field(ge=-1e9, le=1e9)]], Field(min_length=1)]


class RecordedRun(BaseModel):
    """Results of one finished run of a study: its figures at each iteration, its seconds and its work."""

    arm: str
    seed: int
    seconds: float
    """Seconds of play, credit and learning over all iterations."""
    curve: Curve
    """The figure at each iteration."""
    also: dict[str, Curve] = {}
    """Secondary figures at each iteration; figures of an evaluation have two values, before and after learning. The
    study's own arm has all of them, other arms those that their mechanism knows."""
    gauges: dict[str, float | None] = {}
    """Mean of each gauge over the iterations that have it; null if none has."""
    steps: int | None = None
    """Optimiser steps of all policies, including replay; null if not counted."""
    tokens: int | None = None
    """Learned tokens, counted once per optimiser step that uses them; null if not counted."""


class Record(BaseModel):
    """Data of study.json that is read again; the rest of the file is derived from it."""

    name: str
    """Name of the recipe."""
    study: StudySpec
    experiment: dict[str, Any]
    """Experiment of all runs, without its section `study`."""
    seeds: int
    """Number of seeds of each arm that the last command asked for."""
    arms: dict[str, Any]
    """Arms that the last command asked for, the study's own first."""
    runs: list[RecordedRun]
    """All finished runs of the study's folder."""

    @model_validator(mode="after")
    def _check_runs(self) -> Self:
        lengths: dict[str, int] = {}
        for run in self.runs:
            if run.arm not in self.study.names:
                raise ValueError(f"'{run.arm}' is none of its arms ({', '.join(self.study.names)})")
            required = self.study.also if run.arm == self.study.arm else ()
            if missing := [name for name in required if name not in run.also]:
                raise ValueError(f"{run.arm}, seed {run.seed} lacks the figure {missing[0]}")
            if lengths.setdefault(run.arm, len(run.curve)) != len(run.curve):
                raise ValueError(f"{run.arm}, seed {run.seed} has another number of iterations than other seeds")
        return self


def read_record(place: Path) -> Record:
    """Read a study.json or sweep.json. Raises StoreError if it is not one, or if it does not match its own hash."""
    try:
        return Record.model_validate(read_sealed(place))
    except ValidationError as error:
        raise StoreError(f"{place} cannot be read as a study's results: {error.errors()[0]['msg']}") from None


def find_record(place: Path) -> Record | None:
    """Read a study.json, or return None if there is no file. Raises StoreError if it is damaged, like `read_record`."""
    return read_record(place) if place.exists() else None


def index_runs(record: Record | None) -> dict[tuple[str, int], RecordedRun]:
    """Return a record's runs by arm and seed; {} without a record."""
    return {(run.arm, run.seed): run for run in record.runs} if record else {}
