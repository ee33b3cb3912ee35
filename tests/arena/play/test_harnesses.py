"""Matches of agent programs: exact tokens, the same match again, every fault its reason, and nothing left running."""

import asyncio
import hashlib
import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from arena.play.match import Limits
from arena.records import MatchRecord, trajectories
from games.contracts import UNREAD
from tests.factories.babble import drop_times
from tests.factories.harness import assert_exact_tokens, make_command, make_lineup, play_matches
from tests.factories.thorough import THOROUGH
from tests.factories.tool_templates import TOOL_FAMILIES

SDK = [("sdk_tools", api, streams) for api in ("chat", "responses") for streams in ("plain", "stream")]


def matches(harness: str, count: int = 2, **settings: Any) -> tuple[list[MatchRecord], list[str]]:
    """Finished matches of a program, whose tokens are checked, and the notes."""
    on, engine, notes = make_lineup(harness, **settings)
    records = asyncio.run(play_matches(on, count))
    for record in records:
        assert record.status == "finished", record.reason
        assert_exact_tokens(record, engine)
    return records, notes


@pytest.mark.parametrize(
    "program",
    [pytest.param(one, marks=pytest.mark.slow if n else (), id=" ".join(one)) for n, one in enumerate(SDK)],
)
def test_the_unmodified_sdk_in_a_loop_with_tools(program: tuple[str, ...]) -> None:
    pytest.importorskip("openai")
    records, notes = matches(make_command(*program), 3)
    for record in records:
        assert len(record.streams["agent"]) == 1, "what the SDK sends extends the conversation"
        assert [turn.source for turn in record.turns] == ["request"] * (len(record.turns) - 1) + ["policy"]
        assert [turn.index for turn in record.turns] == list(range(len(record.turns)))
    assert not notes and any(len(record.turns) > 2 for record in records)
    assert any(turn.raw.count("<tool_call>\n{") > 1 for record in records for turn in record.turns), "parallel calls"


@pytest.mark.slow
def test_both_apis_give_the_same_matches() -> None:
    pytest.importorskip("openai")
    by_api = [[drop_times(record) for record in matches(make_command(*program))[0]] for program in SDK[1:3]]
    assert by_api[0] == by_api[1]


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("family", [*TOOL_FAMILIES, "nano"])
def test_a_loop_that_rewrites_json_extends_its_conversation(family: str) -> None:
    records, notes = matches(make_command("graph_loop"), 6, family=family)
    assert all(len(record.streams["agent"]) == 1 for record in records)
    assert "temperature is ignored" in notes[0]
    drifts = [note for note in notes if "template drift" in note]
    assert len(drifts) == (family not in ("qwen25", "qwen_xml", "llama31", "lfm2")), notes


def test_a_rewritten_history_opens_streams_that_are_named() -> None:
    records, notes = matches(make_command("rewriter"))
    for record in records:
        assert 3 <= len(record.streams["agent"]) < len(record.turns)
        (trajectory,) = trajectories(record)
        assert trajectory.contexts().keys() == {turn.index for turn in record.turns}
    assert sum("opens a new stream" in note for note in notes) == 2


def test_the_same_seed_gives_the_same_match_alone_or_among_others() -> None:
    for program in ("graph_loop", "rewriter"):
        several, alone = (matches(make_command(program), count)[0] for count in (5, 1))
        assert drop_times(several[0]) == drop_times(alone[0])
        assert drop_times(several[0])["turns"] != drop_times(several[1])["turns"]


def test_requests_at_once_get_the_same_replies_in_any_order() -> None:
    runs = [matches(make_command("rewriter", "at_once"), 1)[0][0] for _ in range(3)]
    assert len({tuple(sorted(turn.raw for turn in record.turns)) for record in runs}) == 1


REASONS = {
    "crash": ("game", "it ended with status 1: out of ideas"),
    "killed": ("game", "by signal 9"),
    "hang": ("limit", "turn time limit: agent took over 3 s"),
    "late": ("limit", "turn time limit: agent took over 3 s"),
    "garbage": ("game", "not UTF-8"),
    "silent": ("game", "without an act"),
    "endless": ("game", "more than 1,000,000 bytes"),
}
ACTS = {
    "orphans": "done",
    "huge": "413",
    "long": "400 context_length_exceeded",
    "fork": "forked",
    "wrong_key": "401 invalid_api_key",
    "retry": "retried",
    "malformed": "400 400 400 400 400",
}


def test_every_fault_has_its_reason_and_harms_no_other_match(tmp_path: Path) -> None:
    """200 matches with faults in all (28 in the quick suite), beside healthy ones; no process is left."""
    repeats = 15 if THOROUGH else 2
    faults = [fault for fault in (*REASONS, *ACTS) for _ in range(repeats)]

    async def one(number: int, fault: str, room: asyncio.Semaphore) -> None:
        async with room:
            seconds = 3.0 if fault in ("hang", "late") else 60.0
            on, engine, _ = make_lineup(
                make_command("faults", fault, str(tmp_path / f"{number}")), limits=Limits(turn_seconds=seconds)
            )
            (record,) = await play_matches(on)
        if fault in ACTS:
            assert (record.status, record.turns[-1].action) == ("finished", ACTS[fault]), record.reason
            assert record.payoffs == {"agent": 0.0}
            assert_exact_tokens(record, engine)
            return
        kind, words = REASONS[fault]
        assert record.failure and (record.status, record.failure.kind) == ("failed", kind) and words in record.reason
        assert record.payoffs == {} and not trajectories(record)

    async def all_of_them() -> None:
        room = asyncio.Semaphore(4)
        await asyncio.gather(*(one(number, fault, room) for number, fault in enumerate(faults)))

    asyncio.run(all_of_them())
    pids = [int(line) for file in tmp_path.iterdir() for line in file.read_text().split()]
    assert len(pids) == repeats * (len(REASONS) + len(ACTS) + 3)
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]


def test_a_program_scores_its_match_only_where_the_game_lets_it(tmp_path: Path) -> None:
    (record,), _ = matches(make_command("faults", "reward", str(tmp_path / "a")), 1)
    assert record.payoffs == {"agent": 0.25} and record.turns[-1].rewards == {"reward": 0.25}
    assert record.turns[0].rewards == {} or len(record.turns) == 1
    (tmp_path / "score.py").write_text("def score(row, answer): return {'length': len(answer), 'known': row['gold']}")
    (tmp_path / "tasks.jsonl").write_text('{"task": "Say 400.", "gold": 2}\n')
    options = {"file": str(tmp_path / "tasks.jsonl"), "reward": f"{tmp_path}/score.py:score"}
    (record,), _ = matches(make_command("faults", "reward", str(tmp_path / "b")), 1, **options)
    assert record.turns[-1].action == "400" and record.turns[-1].rewards == {"length": 3.0, "known": 2.0}


def test_limits_of_turns_bound_a_program(tmp_path: Path) -> None:
    on, _, _ = make_lineup(make_command("rewriter"), limits=Limits(turns=3, turn_seconds=60.0))
    (record,) = asyncio.run(play_matches(on))
    assert record.status == "failed" and record.reason == "turn limit: 3 turns taken" and len(record.turns) == 3
    assert all(turn.source in UNREAD for turn in record.turns)


@contextmanager
def serving() -> Iterator[str]:
    """URL of an agent program that runs already: it asks once and answers with what it got."""

    class Agent(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path == "/broken":
                return self.send_error(500)
            import urllib.request

            body = json.dumps({"model": "m", "messages": [{"role": "user", "content": told["messages"][-1]["text"]}]})
            key = {"Authorization": f"Bearer {told['OPENAI_API_KEY']}"}
            asked = urllib.request.Request(f"{told['OPENAI_BASE_URL']}/chat/completions", body.encode(), key)
            said = json.load(urllib.request.urlopen(asked))["choices"][0]["message"]["content"]
            answer = json.dumps({"act": said or "-"}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Agent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def test_a_program_behind_a_url_is_told_where_to_ask() -> None:
    with serving() as url:
        records, _ = matches(f"{url}/play", 4)
        assert Counter(len(record.turns) for record in records) == {1: 4}
        on, _, _ = make_lineup(f"{url}/broken")
        (record,) = asyncio.run(play_matches(on))
        assert record.status == "failed" and "status 500" in record.reason
    on, _, _ = make_lineup(f"{url}/play")
    (record,) = asyncio.run(play_matches(on))
    assert record.status == "failed" and "agent program http://127" in record.reason


def test_a_program_plays_all_turns_of_a_game_that_has_several() -> None:
    """The same process reads each observation as a line and answers with a line."""
    records, _ = matches(make_command("graph_loop"), 2, game="desk")
    for record in records:
        acts = [turn for turn in record.turns if turn.seat == "agent" and turn.source == "policy"]
        assert len(acts) > 1 and all(turn.messages for turn in acts)
        assert [turn.index for turn in record.turns] == list(range(len(record.turns)))
    assert drop_times(records[0]) == drop_times(matches(make_command("graph_loop"), 1, game="desk")[0][0])


def test_pictures_of_a_program_stand_in_its_stream_and_are_kept() -> None:
    (record,), _ = matches(make_command("looker"), 1, family="seeing")
    (stream,) = record.streams["agent"]
    assert len(stream.media) == 3 and set(record.pictures) == {span.hash for span in stream.media}
    for span in stream.media:
        assert not any(stream.mask[span.start : span.start + span.length])
        assert hashlib.sha256(record.pictures[span.hash]).hexdigest() == span.hash


def test_a_policy_that_cannot_see_refuses_a_programs_pictures() -> None:
    on, _, _ = make_lineup(make_command("looker"), family="nano")
    (record,) = asyncio.run(play_matches(on, 1))
    assert record.status == "failed" and record.pictures == {}
