"""A run folder of matches of free dialogue, written by the real store."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from arena.records import MatchRecord, Seating
from arena.store.run import RunFolder
from games.contracts import MatchId, Message
from tests.factories.records import make_match_record, make_turn

SEATS = ("opener", "responder")


def make_dialogue(
    iteration: int, number: int, lines: Sequence[str], seats: Mapping[str, str] | None = None,
    payoffs: Mapping[str, float] | None = None,
) -> MatchRecord:  # fmt: skip
    """Return a match in which the seats say these lines in turn; `seats` maps seats to policies."""
    seats = seats or dict.fromkeys(SEATS, "shared")
    order = list(seats)
    turns = tuple(
        make_turn(
            i, {}, seat := order[i % len(order)], role=f"the_{seat}", policy=seats[seat], version=iteration,
            messages=tuple(
                Message.of(order[j % len(order)], lines[j]) for j in range(max(0, i - len(order) + 1), i)
            ),
            raw=line, public=line, action=line, finish="script", tokens=0,
        )
        for i, line in enumerate(lines)
    )  # fmt: skip
    return make_match_record(
        identity=MatchId(iteration, number), game="parley", seed=number,
        seats={seat: Seating(f"the_{seat}", who, iteration, who == "shared", "brain") for seat, who in seats.items()},
        payoffs=dict(payoffs or dict.fromkeys(order, 0.0)), turns=turns, seconds=0.1,
    )  # fmt: skip


def make_dialogue_run(path: Path, *iterations: Sequence[Sequence[str]]) -> Path:
    """Write a run whose iterations (from 0) hold matches of these lines."""
    return write_run(
        path,
        [
            [make_dialogue(k, number, lines) for number, lines in enumerate(matches)]
            for k, matches in enumerate(iterations)
        ],
    )


def write_run(path: Path, iterations: Sequence[Sequence[MatchRecord]]) -> Path:
    """Write a run of these matches, iteration by iteration from 0."""
    run = RunFolder.create(path, "game: parley\n", {"python": "3.11"})
    for k, records in enumerate(iterations):
        run.log.extend(records)
        run.log.seal(k)
        run.metrics.append({"iteration": k, "valid_rate": 1.0})
    run.log.close()
    return path
