"""A run's evaluations against a panel: one JSON line each, with the payoff of every deal."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from arena.store.contents import PANEL
from arena.store.lines import LogError, read_lines

Finite = Annotated[float, Field(allow_inf_nan=False)]
Deals = list[Finite | None]
"""A value per deal; null where its match could not be finished."""


class Cell(BaseModel):
    """One member of a panel, met from one seat."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    member: str
    seat: str
    """Seat of the judged contender; the member takes all the others."""
    payoff: Deals
    valid: Deals
    """The share of acts there that were legal."""
    deal: Deals | None = None
    """1 where it ended with a deal, else 0; null in games without deals."""
    best_response: Deals | None = None
    """Payoff of best play there, by deal, where theory knows it."""


class Evaluation(BaseModel):
    """Payoffs of a contender against every member of a panel, from every seat, on the same deals."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    iteration: int | None = None
    """Iteration of the run whose weights these were; null out of a run."""
    contender: str
    panel: str
    """Its name."""
    key: str
    """Key of what was played: evaluations of one key are of the same deals, members and seats, in the same order."""
    game: str
    options: dict[str, Any]
    seed: int
    deals: int
    cells: list[Cell]
    best_against_mixture: dict[str, Deals] = {}
    """Payoff, over the members, of the best play that does not know which it meets, by seat and deal, where known."""
    failed: dict[str, int] = {}
    """Failed attempts by reason; their deals were played again."""
    seconds: float = 0.0

    @model_validator(mode="after")
    def _whole(self) -> "Evaluation":
        lists = [values for c in self.cells for values in (c.payoff, c.valid, c.deal, c.best_response)]
        lists += self.best_against_mixture.values()
        if not self.cells or any(values is not None and len(values) != self.deals for values in lists):
            raise ValueError(f"every cell has {self.deals} deals")
        return self


def read_evaluations(run: Path) -> list[Evaluation]:
    """All that the run keeps, oldest first, [] where there is none; LogError for a line that is no evaluation.

    One iteration has one evaluation of a key: the last.
    """
    path, found = run / PANEL, dict[tuple[int | None, str], Evaluation]()
    for number, row in enumerate(read_lines(path), start=1):
        try:
            evaluation = Evaluation.model_validate(row)
        except ValidationError:
            raise LogError(f"{path}:{number}: this line is no evaluation: restore the file from a copy") from None
        found[evaluation.iteration, evaluation.key] = evaluation
    return list(found.values())


def of_latest(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """Evaluations comparable with the last one, oldest first: on the same deals, members and seats."""
    return [e for e in evaluations if e.key == evaluations[-1].key]
