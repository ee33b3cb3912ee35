"""A run in which every foreign text is hostile: scripts, markup, escapes, bidi, length."""

from pathlib import Path

from agents.stream import Stream
from arena.records import MatchRecord, Seating, Turn
from arena.store.run import RunFolder
from games.contracts import MatchId, Message

TEXTS = (
    "<script>window.pwned = 1</script>",
    "</script><img src=x onerror='window.pwned=1'><svg onload=window.pwned=1>",
    '"><iframe src="//elsewhere.example/"></iframe><a href="javascript:window.pwned=1">x</a>',
    "${window.pwned=1}{{7*7}}`${1}`<%= 1 %>",
    "\x1b[2J\x1b]8;;http://elsewhere.example\x07red\x00\x07",
    "\u202eesrever\u202c \u2066isolated \u200b\ufeff",
    "line\u2028separator\u2029 \ud800 lone",
    '"}]}</pre></div></main>{"json": "ends"}',
    "<style>*{display:none!important}</style><base href='//elsewhere.example/'>",
    "<meta http-equiv=refresh content='0;url=//elsewhere.example'><link rel=stylesheet href=//elsewhere.example/x.css>",
    "W" * 5000,
    "z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334" * 40,
)
LONG = "<b>m</b>" * 125_000


def make_hostile_match(number: int) -> MatchRecord:
    """Return a match all of whose names and texts are hostile; every sixth one is also long."""
    bad = TEXTS[number % len(TEXTS)]
    seats = (f"one {bad}"[:300], f"two {bad}"[:300])
    text = LONG if number % 6 == 0 else bad
    turns = tuple(
        Turn(
            index=i, seat=seats[i % 2], role=f"role {bad}", policy=f"policy {bad}", version=1,
            messages=(Message.of(f"referee {bad}", text), Message.of(seats[1 - i % 2], bad)),
            raw=text, public=text, private=f"thought {text}", action=bad, valid=i != 1,
            rewards={f"reward {bad}": 0.5 - i}, finish="stop", tokens=1, seconds=0.2, situation=bad,
        )
        for i in range(3)
    )  # fmt: skip
    return MatchRecord(
        identity=MatchId(1, number), game=f"game {bad}", options={f"option {bad}": bad}, seed=number,
        seats={seat: Seating(f"role {bad}", f"policy {bad}", 1, True, "model") for seat in seats},
        status="finished" if number % 4 else "failed", reason="" if number % 4 else bad,
        payoffs={seat: 1.0 for seat in seats} if number % 4 else {},
        report={f"figure {bad}": 0.5, "text": bad, f"flag {bad}": True} if number % 4 else {}, turns=turns,
        streams={seats[0]: (Stream([1, 2], [False, True], [0.0, -0.5], [-1, 0]),)},
        started="2026-01-01T00:00:00.250+00:00", seconds=1.5,
    )  # fmt: skip


def make_hostile_run(path: Path) -> Path:
    """Write a run of hostile matches, with hostile names of metrics."""
    run = RunFolder.create(path, "game: x\n", {"experiment": {"name": TEXTS[0], "game": {"name": TEXTS[1]}}})
    for number in range(len(TEXTS)):
        run.log.extend([make_hostile_match(number)])
    run.log.seal(1)
    for iteration in (1, 2):
        figures = {f"report.{bad}": 0.1 * iteration for bad in TEXTS[:3]}
        payoffs = {f"payoff.{bad}": float(iteration) for bad in TEXTS}
        run.metrics.append({"iteration": iteration, "reward": {bad: iteration for bad in TEXTS}, **figures, **payoffs})
    run.log.close()
    return path
