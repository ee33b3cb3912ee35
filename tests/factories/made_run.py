"""A small run folder written by the real store, with negotiations that improve each iteration."""

from pathlib import Path

from agents.stream import Stream
from arena.records import MatchRecord, Seating, trajectories
from arena.store.run import RunFolder
from games.contracts import MatchId, Message
from tests.factories.records import make_match_record, make_turn

SEATS = ("opener", "responder")


def make_match(iteration: int, number: int, failed: bool = False) -> MatchRecord:
    """Return a match of two turns: an offer with talk and a hidden thought, then an acceptance; or a failed one."""
    gain = float(iteration + number)
    rewards = [{"deal": gain}, {"deal": 10.0 - gain, "illegal": -1.0}]
    acts = ["OFFER 1 0 2", "ACCEPT"]
    turns = tuple(
        make_turn(
            i, rewards[i], seat, role=f"the_{seat}", version=iteration, messages=(Message.of("referee", "Your turn."),),
            raw=f"{acts[i]} | $fair$ [/b]", public="$fair$ [/b]", private="\x1b[2Jgreed" if i == 0 else "",
            action=acts[i], valid=i == 0, tokens=7, seconds=0.25,
        )
        for i, seat in enumerate(SEATS)
    )  # fmt: skip
    return make_match_record(
        identity=MatchId(iteration, number),
        game="negotiation",
        options={"talk": True},
        seed=number,
        seats={seat: Seating(f"the_{seat}", "shared", iteration, True, "model") for seat in SEATS},
        status="failed" if failed else "finished",
        reason="time limit: 9.0 s of 8 s" if failed else "",
        payoffs={} if failed else {"opener": gain, "responder": 10.0 - gain},
        report={} if failed else {"deal": number > 0, "efficiency": 0.5, "end": "accept"},
        turns=turns[:1] if failed else turns,
        streams={seat: (Stream([1, 2], [False, True], [0.0, -0.5], [-1, 0]),) for seat in SEATS},
        started="2026-01-01T00:00:00.250+00:00",
        seconds=1.5,
    )


def make_run(path: Path, iterations: int = 3, live: bool = True, shift: float = 0.0) -> RunFolder:
    """Write a run; with `live` its last iteration is neither sealed nor credited."""
    run = RunFolder.create(path, "game: negotiation\n", {"python": "3.11"})
    for iteration in range(iterations):
        records = [make_match(iteration, number) for number in range(3)] + [make_match(iteration, 3, failed=True)]
        for record in records:
            run.log.extend([record])
        if live and iteration == iterations - 1:
            break
        run.log.seal(iteration)
        credited = [
            one.credited([sum(t.rewards.values()) for t in one.turns], [0.125 for _ in one.turns])
            for record in records
            for one in trajectories(record)
        ]
        run.log.write_credit(iteration, credited)
        figures = {"reward": {"opener": iteration + shift}, "kl": None, "note": "x", "valid_rate": 0.5}
        run.metrics.append({"iteration": iteration, **figures})
    run.log.close()
    return run
