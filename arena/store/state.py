"""Schema of a checkpoint's `state.json`: the state of a run without weights and optimisers.

Reading validates it as untrusted input, because its hash proves its integrity but not its author.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from arena.errors import StoreError
from arena.store.checkpoints import Checkpoint
from arena.store.files import explain_errors
from games.plain_files import read_plain

STATE = "state.json"
Figure = Annotated[float, Field(ge=-1e12, le=1e12)]
Count = Annotated[int, Field(ge=0, le=2**53)]
Pair = Annotated[list[Figure], Field(min_length=2, max_length=2)]
Deviation = Annotated[float, Field(gt=0, le=1e6)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class EntropyBand(_Part):
    """State of the regulariser `entropy_band`: lists with a value per position in a reply."""

    now: Count
    mean: list[Figure] = []
    iterations: list[Figure] = []
    sums: list[Figure] = []
    counts: list[Figure] = []


class RegulariserState(_Part):
    """State of a policy's regularisers, in the checkpoint."""

    entropy_band: EntropyBand | None = None


class PolicyState(_Part):
    """State of one trained policy: its version, and its optimiser steps in all and of imitation."""

    version: Count
    steps: Count
    imitated: Count = 0
    memory: RegulariserState


class EstimatorState(_Part):
    """State of the advantage estimators, by name. A user's own estimator may store other keys."""

    rae: dict[str, Figure] = {}
    weighted_sum: "dict[str, EstimatorState]" = {}


Entry = Annotated[list[str | Figure], Field(min_length=5, max_length=5)]


class CreditState(_Part):
    """State of the advantage estimators (`memory`) and of the replay buffer (`replay`)."""

    memory: EstimatorState = EstimatorState()
    replay: dict[str, list[Entry] | dict[str, list[Figure]]] = {}


class PoolState(_Part):
    """Pool of past versions that may be opponents again, as lists of the iterations of their weights."""

    members: list[Count]
    recent: list[Count]
    sealed: list[Count] = []
    held: list[Count] = []


class SeatState(_Part):
    """Player at a seat of a planned match."""

    role: str
    policy: str
    version: Count
    trained: bool
    kind: Literal["model", "brain", "endpoint", "human"]


class LateState(_Part):
    """State of a planned match that the last update did not wait for."""

    iteration: Count
    deal: Count
    draws: list[Count]
    game: str
    options: dict[str, Any]
    seed: Annotated[int, Field(ge=0, lt=2**64)]
    group: Annotated[int, Field(ge=-1, le=2**53)]
    stage: str
    capped: str
    seats: dict[str, SeatState]


class PlayState(_Part):
    """State of play: matches that updates did not wait for. The parts check their own states."""

    late: list[LateState] = []


class LeagueState(_Part):
    """State of the league: the pool of past versions, and win rates."""

    pool: PoolState | None = None
    win_rates: dict[str, Pair] = {}


class State(_Part):
    """Schema of a checkpoint's `state.json`."""

    iteration: Count
    policies: dict[str, PolicyState] = {}
    ratings: dict[str, Annotated[tuple[Figure, Deviation], Field(strict=False)]] = {}
    credit: CreditState = CreditState()
    league: LeagueState = LeagueState()
    play: PlayState = PlayState()


def read_state(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return a checkpoint's validated `state.json` as a dict. Raises StoreError naming the first invalid field."""
    path = checkpoint.folder / STATE
    with explain_errors(path, "reading"):
        text = read_plain(path)
    try:
        state = State.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field_name = ".".join(str(step) for step in first["loc"])[:80]
        raise StoreError(
            f"{path}: {field_name + ': ' if field_name else ''}{first['msg'][:200]}: restore it from a copy"
        ) from None
    if state.iteration != checkpoint.iteration:
        raise StoreError(f"{path} is of iteration {state.iteration}: restore it from a copy")
    found: dict[str, Any] = json.loads(text)
    return found


@contextmanager
def blame_checkpoint(checkpoint: Checkpoint | None) -> Iterator[None]:
    """Convert errors in the block to a one-line StoreError that blames the checkpoint, unless it is None."""
    from safetensors import SafetensorError

    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError, SafetensorError) as error:
        if checkpoint is None:
            raise
        reason = f"{type(error).__name__}: {error}"[:200]
        raise StoreError(f"{checkpoint.folder} cannot be resumed from: {reason}: restore it from a copy") from None
