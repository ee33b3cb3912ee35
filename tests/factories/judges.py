"""Rubrics, short matches, and a judge whose answers come from a local server."""

import re
from collections.abc import Callable
from typing import Any

from agents.players.servers import Endpoints
from agents.players.spend import EndpointSpec
from arena.credit.asking import AskContext, Asker
from arena.credit.rewards.judge import Judge
from arena.credit.rubric import Rubric
from arena.records import Seating, Trajectory, trajectories
from games.contracts import MatchId, Message
from tests.factories.records import make_match_record, make_turn
from tests.factories.server import Server, make_completion, reply_with

RUBRIC: dict[str, Any] = {
    "rubric": "goodness", "seats": ["agent"], "pays": "good", "criteria": [{"name": "good", "ask": "Is it good?"}],
    "sees": {"acts": ["agent"]},
}  # fmt: skip


def make_rubric(**changes: Any) -> Rubric:
    """Return a rubric of one criterion that shows the agent's acts."""
    return Rubric.model_validate(RUBRIC | changes)


def make_talk(
    text: str, number: int = 0, seed: int = 0, payoff: float = 0.0, turns: int = 1, private: str = "", **changes: Any
) -> Trajectory:
    """Return the agent's trajectory of a match in which a person says hi and the agent says `text` in every turn."""
    all_turns = [make_turn(0, {}, "person", policy="script", action="hi")]
    for k in range(turns):
        messages = (Message.of("person", "hi"), Message.of("tool", "3 rows")) if k == 0 else ()
        all_turns.append(make_turn(k + 1, {}, "agent", action=text, private=private, messages=messages))
    seats = {
        "person": Seating("person", "script", 0, False, "brain"),
        "agent": Seating("agent", "shared", 1, True, "model"),
    }
    record = make_match_record(
        identity=MatchId(1, number), seed=seed, seats=seats, payoffs={"agent": payoff},
        report=changes.get("report", {}), turns=tuple(all_turns),
    )  # fmt: skip
    return next(one for one in trajectories(record) if one.seat == "agent")


def serve_judge(answer: Callable[[str], str], usage: tuple[int, int] = (10, 2)) -> Server:
    """Return a server that replies to a question's text with `answer(text)`."""

    def reply(handler: Any) -> None:
        reply_with(make_completion(answer(handler.body["messages"][1]["content"]), usage=usage))(handler)

    return Server(reply)


def make_judge(server: Server, notes: list[str] | None = None, state: Any = None, **settings: Any) -> Judge:
    """Return a judge that asks this server."""
    fields: dict[str, Any] = {
        "policy": "endpoint:wise", "rubric": make_rubric(), "mode": "score", "rounds": None, "most": 8, "attempts": 2,
        "temperature": 0.0, "max_tokens": 16, "calls": None, "tokens": None, "fallback": "zero", "window": 4,
    }  # fmt: skip
    engine: Any = None  # no policy is asked
    asker = Asker({}, engine, Endpoints({"": EndpointSpec(url=server.url, attempts=1, seconds=5.0)}))
    noted = [] if notes is None else notes
    return Judge(AskContext(asker, lambda game, seed: "", noted.append), state or {}, **fields | settings)


def find_quotes(text: str) -> list[str]:
    """Return the matches that a question quotes, without bars."""
    quotes = re.findall(r"(?:^\| .*\n)+", text, re.MULTILINE)
    return [re.sub(r"^\| ", "", run, flags=re.MULTILINE).strip() for run in quotes]
