"""Evaluations of a run against a panel, a fixed set of opponents: one JSON line each, with the payoff of every deal."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from arena.store.contents import PANEL
from arena.store.lines import LogError, read_lines

Finite = Annotated[float, Field(allow_inf_nan=False)]
Deals = list[Finite | None]
"""Values by deal; null if the deal's match did not finish."""


class Cell(BaseModel):
    """Results of an evaluation against one opponent (`member`) of the panel at one seat, as lists of values by deal."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    member: str
    seat: str
    """Seat of the evaluated contender. The member plays all other seats."""
    payoff: Deals
    valid: Deals
    """Share of legal acts at that seat."""
    deal: Deals | None = None
    """1 if the match ended with an agreement, else 0; null in games without agreements."""
    best_response: Deals | None = None
    """Payoff of best play at that seat, by deal, if theory knows it."""


class Evaluation(BaseModel):
    """Evaluation against a panel of fixed opponents: results by opponent and seat (`cells`), all on the same deals."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    iteration: int | None = None
    """Iteration of the evaluated weights; null outside a run."""
    contender: str
    panel: str
    """Name of the panel."""
    key: str
    """Evaluations with the same key have the same deals, members and seats, in the same order."""
    game: str
    options: dict[str, Any]
    seed: int
    deals: int
    cells: list[Cell]
    best_against_mixture: dict[str, Deals] = {}
    """Payoff of best play that does not know its opponent, as the mean over the members, by seat and deal, if known."""
    failed: dict[str, int] = {}
    """Number of failed attempts by reason. Their deals were played again."""
    seconds: float = 0.0

    @model_validator(mode="after")
    def _check_lengths(self) -> "Evaluation":
        lists = [values for c in self.cells for values in (c.payoff, c.valid, c.deal, c.best_response)]
        lists += self.best_against_mixture.values()
        if not self.cells or any(values is not None and len(values) != self.deals for values in lists):
            raise ValueError(f"every cell has {self.deals} deals")
        return self


def read_evaluations(run: Path) -> list[Evaluation]:
    """Return the run's evaluations, oldest first; [] if it has none.

    If several have the same iteration and key, only the last is returned. Raises LogError for a line that is not an
    evaluation.
    """
    path, found = run / PANEL, dict[tuple[int | None, str], Evaluation]()
    for number, row in enumerate(read_lines(path), start=1):
        try:
            evaluation = Evaluation.model_validate(row)
        except ValidationError:
            raise LogError(f"{path}:{number}: this line is not an evaluation: restore the file from a copy") from None
        found[evaluation.iteration, evaluation.key] = evaluation
    return list(found.values())


def select_latest(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """Return the evaluations on the deals, opponents and seats (`key`) of the last one, in the given order."""
    return [e for e in evaluations if e.key == evaluations[-1].key]
