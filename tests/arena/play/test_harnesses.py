"""Matches of agent programs: exact tokens, determinism, a reason for every fault, and no leftover processes."""

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


def play_harness_matches(harness: str, count: int = 2, **settings: Any) -> tuple[list[MatchRecord], list[str]]:
    """Return finished matches of a program, whose tokens are checked, and the notes."""
    table, engine, notes = make_lineup(harness, **settings)
    records = asyncio.run(play_matches(table, count))
    for record in records:
        assert record.status == "finished", record.reason
        assert_exact_tokens(record, engine)
    return records, notes


@pytest.mark.parametrize(
    "program",
    [pytest.param(words, marks=pytest.mark.slow if n else (), id=" ".join(words)) for n, words in enumerate(SDK)],
)
def test_unmodified_sdk_in_a_tool_loop(program: tuple[str, ...]) -> None:
    pytest.importorskip("openai")
    records, notes = play_harness_matches(make_command(*program), 3)
    for record in records:
        assert len(record.streams["agent"]) == 1, "what the SDK sends extends the conversation"
        assert [turn.source for turn in record.turns] == ["request"] * (len(record.turns) - 1) + ["policy"]
        assert [turn.index for turn in record.turns] == list(range(len(record.turns)))
    assert not notes and any(len(record.turns) > 2 for record in records)
    assert any(turn.raw.count("<tool_call>\n{") > 1 for record in records for turn in record.turns), "parallel calls"


@pytest.mark.slow
def test_both_apis_give_the_same_matches() -> None:
    pytest.importorskip("openai")
    by_api = [
        [drop_times(record) for record in play_harness_matches(make_command(*program))[0]] for program in SDK[1:3]
    ]
    assert by_api[0] == by_api[1]


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("family", [*TOOL_FAMILIES, "nano"])
def test_loop_that_rewrites_json_extends_its_conversation(family: str) -> None:
    records, notes = play_harness_matches(make_command("graph_loop"), 6, family=family)
    assert all(len(record.streams["agent"]) == 1 for record in records)
    assert "temperature is ignored" in notes[0]
    drifts = [note for note in notes if "template drift" in note]
    assert len(drifts) == (family not in ("qwen25", "qwen_xml", "llama31", "lfm2")), notes


def test_a_rewritten_history_opens_streams_that_are_named() -> None:
    records, notes = play_harness_matches(make_command("rewriter"))
    for record in records:
        assert 3 <= len(record.streams["agent"]) < len(record.turns)
        (trajectory,) = trajectories(record)
        assert trajectory.contexts().keys() == {turn.index for turn in record.turns}
    assert sum("opens a new stream" in note for note in notes) == 2


def test_same_seed_gives_the_same_match_alone_or_with_others() -> None:
    for program in ("graph_loop", "rewriter"):
        several, alone = (play_harness_matches(make_command(program), count)[0] for count in (5, 1))
        assert drop_times(several[0]) == drop_times(alone[0])
        assert drop_times(several[0])["turns"] != drop_times(several[1])["turns"]


def test_concurrent_requests_get_the_same_replies() -> None:
    runs = [play_harness_matches(make_command("rewriter", "at_once"), 1)[0][0] for _ in range(3)]
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

    async def play_faulty(number: int, fault: str, slots: asyncio.Semaphore) -> None:
        async with slots:
            seconds = 3.0 if fault in ("hang", "late") else 60.0
            table, engine, _ = make_lineup(
                make_command("faults", fault, str(tmp_path / f"{number}")), limits=Limits(turn_seconds=seconds)
            )
            (record,) = await play_matches(table)
        if fault in ACTS:
            assert (record.status, record.turns[-1].action) == ("finished", ACTS[fault]), record.reason
            assert record.payoffs == {"agent": 0.0}
            assert_exact_tokens(record, engine)
            return
        kind, words = REASONS[fault]
        assert record.failure and (record.status, record.failure.kind) == ("failed", kind) and words in record.reason
        assert record.payoffs == {} and not trajectories(record)

    async def play_all_faults() -> None:
        slots = asyncio.Semaphore(4)
        await asyncio.gather(*(play_faulty(number, fault, slots) for number, fault in enumerate(faults)))

    asyncio.run(play_all_faults())
    pids = [int(line) for file in tmp_path.iterdir() for line in file.read_text().split()]
    assert len(pids) == repeats * (len(REASONS) + len(ACTS) + 3)
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]


def test_program_scores_its_match_only_if_the_game_allows_it(tmp_path: Path) -> None:
    (record,), _ = play_harness_matches(make_command("faults", "reward", str(tmp_path / "a")), 1)
    assert record.payoffs == {"agent": 0.25} and record.turns[-1].rewards == {"reward": 0.25}
    assert record.turns[0].rewards == {} or len(record.turns) == 1
    (tmp_path / "score.py").write_text("def score(row, answer): return {'length': len(answer), 'known': row['gold']}")
    (tmp_path / "tasks.jsonl").write_text('{"task": "Say 400.", "gold": 2}\n')
    options = {"file": str(tmp_path / "tasks.jsonl"), "reward": f"{tmp_path}/score.py:score"}
    (record,), _ = play_harness_matches(make_command("faults", "reward", str(tmp_path / "b")), 1, **options)
    assert record.turns[-1].action == "400" and record.turns[-1].rewards == {"length": 3.0, "known": 2.0}


def test_turn_limit_bounds_a_program(tmp_path: Path) -> None:
    table, _, _ = make_lineup(make_command("rewriter"), limits=Limits(turns=3, turn_seconds=60.0))
    (record,) = asyncio.run(play_matches(table))
    assert record.status == "failed" and record.reason == "turn limit: 3 turns taken" and len(record.turns) == 3
    assert all(turn.source in UNREAD for turn in record.turns)


@contextmanager
def serve_agent() -> Iterator[str]:
    """Yield the URL of a running agent program that asks once and answers with the reply."""

    class Agent(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path == "/broken":
                return self.send_error(500)
            import urllib.request

            body = json.dumps(
                {"model": "m", "messages": [{"role": "user", "content": request["messages"][-1]["text"]}]}
            )
            key = {"Authorization": f"Bearer {request['OPENAI_API_KEY']}"}
            completion_request = urllib.request.Request(
                f"{request['OPENAI_BASE_URL']}/chat/completions", body.encode(), key
            )
            reply = json.load(urllib.request.urlopen(completion_request))["choices"][0]["message"]["content"]
            answer = json.dumps({"act": reply or "-"}).encode()
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


def test_program_behind_a_url_receives_the_endpoint() -> None:
    with serve_agent() as url:
        records, _ = play_harness_matches(f"{url}/play", 4)
        assert Counter(len(record.turns) for record in records) == {1: 4}
        table, _, _ = make_lineup(f"{url}/broken")
        (record,) = asyncio.run(play_matches(table))
        assert record.status == "failed" and "status 500" in record.reason
    table, _, _ = make_lineup(f"{url}/play")
    (record,) = asyncio.run(play_matches(table))
    assert record.status == "failed" and "agent program http://127" in record.reason


def test_a_program_plays_all_turns_of_a_game_that_has_several() -> None:
    """The same process reads each observation as a line and answers with a line."""
    records, _ = play_harness_matches(make_command("graph_loop"), 2, game="desk")
    for record in records:
        acts = [turn for turn in record.turns if turn.seat == "agent" and turn.source == "policy"]
        assert len(acts) > 1 and all(turn.messages for turn in acts)
        assert [turn.index for turn in record.turns] == list(range(len(record.turns)))
    assert drop_times(records[0]) == drop_times(play_harness_matches(make_command("graph_loop"), 1, game="desk")[0][0])


def test_images_of_a_program_are_in_its_stream_and_kept() -> None:
    (record,), _ = play_harness_matches(make_command("looker"), 1, family="seeing")
    (stream,) = record.streams["agent"]
    assert len(stream.media) == 3 and set(record.pictures) == {span.hash for span in stream.media}
    for span in stream.media:
        assert not any(stream.mask[span.start : span.start + span.length])
        assert hashlib.sha256(record.pictures[span.hash]).hexdigest() == span.hash


def test_blind_policy_refuses_images_of_a_program() -> None:
    table, _, _ = make_lineup(make_command("looker"), family="nano")
    (record,) = asyncio.run(play_matches(table, 1))
    assert record.status == "failed" and record.pictures == {}
