"""`arena export --as`: all selected rows, the original prompts, and any text that matches hold."""

import csv
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agents.chat import ChatFrame
from agents.policy import load_tokenizer_and_frame
from agents.weights import resolve
from arena.errors import ConfigError, StoreError
from arena.export.chats import Chats, Reply
from arena.export.formats import export_matches
from arena.export.pairs import list_pairs
from arena.export.selection import Selection
from arena.export.writers import write_csv, write_json_lines, write_parquet
from arena.records import MatchRecord, find_reply
from arena.store.matchlog import MatchLog
from arena.store.reader import RunReader
from arena.store.run import RunFolder
from tests.factories.commands import arena, get_refusal
from tests.factories.made_run import make_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return three iterations of four matches, the last still playing; the fourth match of each failed."""
    return make_run(tmp_path / "made").path


def read_json_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# -- tables --------------------------------------------------------------------------------------------------


def test_tables_hold_every_match_and_turn(run: Path, tmp_path: Path) -> None:
    assert arena("export", run, "--as", "csv", "--to", tmp_path / "csv").code == 0
    assert arena("export", run, "--as", "parquet", "--to", tmp_path / "parquet").code == 0
    matches, turns = (read_csv(tmp_path / "csv" / f"{name}.csv") for name in ("matches", "turns"))
    assert len(matches) == 12 and [row["status"] for row in matches].count("failed") == 3
    first = matches[0]
    assert (first["match"], first["payoff.opener"], first["report.efficiency"]) == ("0000-0000", "0.0", "0.5")
    assert first["report.deal"] == "false" and first["policy.responder"] == "shared" and first["turns"] == "2"
    assert len(turns) == sum(len(row["turns"]) for row in RunReader(run).matches())
    assert turns[1]["reward.illegal"] == "-1.0" and turns[1]["return"] == turns[1]["reward"] == "9.0"
    assert turns[1]["advantage"] == "0.125" and turns[-1]["advantage"] == "", "not credited yet"
    table = pq.read_table(tmp_path / "parquet" / "turns.parquet")
    assert table.num_rows == len(turns) and table["raw"].to_pylist() == [turn["raw"] for turn in turns]
    assert str(table.schema.field("valid").type) == "bool" and table["advantage"].to_pylist()[-1] is None


def test_exports_only_the_selection(run: Path, tmp_path: Path) -> None:
    result = arena(
        "export", run, "--as", "csv", "--iteration", 1, "--role", "the_opener", "--to", tmp_path / "a", "--json"
    )
    assert json.loads(result.out)["rows"] == {"matches": 4, "turns": 4}
    assert {row["seat"] for row in read_csv(tmp_path / "a" / "turns.csv")} == {"opener"}
    arena("export", run, "--as", "csv", "--match", "0001-0002", "--match", "0002-0000", "--to", tmp_path / "b")
    assert [row["match"] for row in read_csv(tmp_path / "b" / "matches.csv")] == ["0001-0002", "0002-0000"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--as", "cvs"], "--as cvs: there is no such format — did you mean 'csv'?"),
        (["--as", "csv", "--iteration", "9"], "--iteration 9: {run} has no such iteration (there are: 0 to 2)"),
        (["--as", "csv", "--match", "0001-0009"], "has no match '0001-0009' — did you mean '0001-000"),
        (["--as", "csv", "--policy", "sharde"], "--policy sharde: not in these matches — did you mean 'shared'?"),
        (["--as", "csv", "--role", "x"], "--role x: not in these matches (there are: the_opener, the_responder)"),
        (["--as", "csv", "--merged"], "--merged is for weights: leave it out with --as csv"),
        (["--role", "x"], "--role chooses among matches: leave it out, or give --as"),
        (["--policy", "a", "--policy", "b"], "weights are of one policy after one iteration"),
        (["--as", "chats"], "config.yaml"),
    ],
)
def test_refused_export_leaves_nothing(run: Path, tmp_path: Path, options: list[str], message: str) -> None:
    assert message.format(run=run) in get_refusal("export", run, *options, "--to", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made"]


def test_nothing_is_overwritten(run: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert "already holds something" in get_refusal("export", run, "--as", "csv", "--to", tmp_path / "out")
    assert "is a link" in get_refusal("export", run, "--as", "csv", "--to", tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()


# -- hostile text ----------------------------------------------------------------------------------------------

HOSTILE = (
    "=HYPERLINK(\"http://x\")", "@SUM(1)", 'a"b,c\n\r\nd', "\0nul\0", "\u2028\u2029\x85\x0b\x0c", "\ud800 lone",
    "\x1b[2J", '"}\n{"messages": []}', "</script><script>",
    "🂡\u202e", "x" * 1_000_000, "\ufeffbom", "---\nconfigs: []\n---",
)  # fmt: skip


def test_any_text_stays_in_one_row(run: Path, tmp_path: Path) -> None:
    rows = [{"text": text, "n": n, "x": float("nan")} for n, text in enumerate(HOSTILE)]
    schema = pa.schema([("text", pa.string()), ("n", pa.int64()), ("x", pa.float64())])
    batches = [rows[:3], [], rows[3:]]
    assert write_csv(tmp_path / "csv", schema, batches) == (len(HOSTILE), 3)
    assert write_json_lines(tmp_path / "jsonl", schema, batches) == len(HOSTILE)
    assert write_parquet(tmp_path / "parquet", schema, batches) == len(HOSTILE)
    csv.field_size_limit(2_000_000)
    expected = [text.replace("\ud800", "\ufffd") for text in HOSTILE]
    assert [row["text"] for row in read_csv(tmp_path / "csv")] == [text.replace("\0", "\ufffd") for text in expected]
    assert [row["text"] for row in read_json_lines(tmp_path / "jsonl")] == expected
    assert (tmp_path / "jsonl").read_bytes().isascii() and read_json_lines(tmp_path / "jsonl")[0]["x"] is None
    assert pq.read_table(tmp_path / "parquet")["text"].to_pylist() == expected


def test_formula_cells_are_noted(run: Path, tmp_path: Path) -> None:
    result = arena("export", run, "--as", "csv", "--to", tmp_path / "plain")
    assert result.err == ""
    record = MatchRecord.from_json(RunReader(run).match("0002-0000"))
    turns = tuple(turn._replace(raw="=1+1") for turn in record.turns)
    log = MatchLog(run / "log")
    log.extend([replace(record, identity=replace(record.identity, deal=7), turns=turns)])
    log.close()
    result = arena("export", run, "--as", "csv", "--to", tmp_path / "out")
    assert result.err.startswith("arena: 2 cells begin like a formula (= + - @), and a model may have written them")


# -- chats -----------------------------------------------------------------------------------------------------


def encode_prompt(frame: ChatFrame, messages: list[dict[str, str]]) -> list[int]:
    """Return the token ids of a chat up to its last reply."""
    system, *rest = messages
    ids = frame.open(system["content"])
    for user, reply in zip(rest[::2], rest[1::2], strict=True):
        ids += frame.ask(user["content"])
        ids += [*frame.encode(reply["content"]), frame.stop_id] if reply is not rest[-1] else []
        ids += frame.close("stop") if reply is not rest[-1] else []
    return ids


def test_chat_has_the_tokens_that_the_model_read(grouped_run: Path) -> None:
    """The prompts, encoded in the chat frame, are the ids of the log until a reply is cut short by its limit."""
    frame, reader = load_tokenizer_and_frame(resolve("nano"))[1], RunReader(grouped_run)
    chats = Chats(reader, Selection())
    compared = 0
    for _, replies in chats.iterations():
        cut_short = set[tuple[str, str]]()
        for reply in replies:
            record, seat = MatchRecord.from_json(reader.match(reply.row["id"])), reply.turn["seat"]
            stream, begin, _ = find_reply(record.streams[seat], reply.turn["index"])
            is_cut_short = (
                reply.turn["finish"] != "stop" or frame.encode(reply.turn["raw"]) != stream.ids[begin : _ - 1]
            )
            if begin and (reply.row["id"], seat) not in cut_short:
                chat = [*reply.prompt, {"role": "assistant", "content": reply.turn["raw"]}]
                assert encode_prompt(frame, chat) == stream.ids[:begin]
                compared += len(reply.prompt) > 2
            cut_short |= {(reply.row["id"], seat)} if is_cut_short else set()
    assert not chats.left_out and compared > 0, "some prompts hold earlier replies"


def test_chats_are_one_for_each_seat_of_a_match(grouped_run: Path, tmp_path: Path) -> None:
    assert arena("export", grouped_run, "--as", "chats", "--to", tmp_path / "out").code == 0
    rows = read_json_lines(tmp_path / "out" / "chats.jsonl")
    finished = [row for row in RunReader(grouped_run).matches() if row["status"] == "finished"]
    seats = {(row["id"], turn["seat"]) for row in finished for turn in row["turns"]}
    assert {(row["match"], row["seat"]) for row in rows} == seats and len(rows) == len(seats)
    for row in rows:
        kinds = [message["role"] for message in row["messages"]]
        assert kinds == ["system", *["user", "assistant"] * (len(kinds) // 2)] and row["opening"] == 2
    by_id = {row["id"]: row for row in finished}
    for row in rows:
        replies = [turn["raw"] for turn in by_id[row["match"]]["turns"] if turn["seat"] == row["seat"]]
        assert [m["content"] for m in row["messages"] if m["role"] == "assistant"] == replies


def make_reply(
    turn: int, prompt: list[dict[str, str]], raw: str, reward: float, match: str = "0001-0000", **more: Any
) -> Reply:
    """Return a reply at the only seat of a match."""
    row = {"id": match, "iteration": 1, "game": "g", "payoffs": {"a": 1.0}, "started": "2026", **more}
    return Reply(
        row,
        {"index": turn, "seat": "a", "role": "r", "policy": "p", "version": 1, "raw": raw, "valid": True},
        prompt,
        {"role": "assistant", "content": raw},
        "",
        reward,
    )


def user_message(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant_message(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


class FixedChats(Chats):
    """Chats with fixed replies."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = replies

    def iterations(self) -> Iterator[tuple[int, Iterator[Reply]]]:
        yield 1, iter(self.replies)


def test_reset_memory_starts_a_new_chat() -> None:
    window = FixedChats(
        make_reply(0, [user_message("one")], "1", 0.0),
        make_reply(2, [user_message("one"), assistant_message("1"), user_message("two")], "2", 0.0),
        make_reply(4, [user_message("two"), assistant_message("2"), user_message("three")], "3", 0.0),
    )
    (rows,) = window.rows()
    assert [[message["content"] for message in row["messages"]] for row in rows] == [
        ["one", "1", "two", "2"],
        ["two", "2", "three", "3"],
    ]
    assert [(row["first_turn"], row["opening"]) for row in rows] == [(0, 1), (4, 3)]


def test_match_that_cannot_be_replayed_is_left_out_with_a_note(grouped_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(grouped_run, tmp_path / "run")
    reader = RunReader(run)
    rows = reader.log.read(1)
    rows[0]["rules"] = 99
    rows[1]["turns"][0]["messages"] = [{"sender": "referee", "text": "edited"}]
    (run / "log" / "0001.parquet").unlink()
    log = MatchLog(run / "log")
    log.extend([MatchRecord.from_json(row) for row in rows])
    log.close()
    (tmp_path / "out").mkdir()
    _, notes = export_matches(reader, Selection(), "chats", tmp_path / "out")
    assert notes == ["2 matches were left out, 1 of them because the rules of negotiation have changed since"]
    exported = {row["match"] for row in read_json_lines(tmp_path / "out" / "chats.jsonl")}
    assert not exported & {rows[0]["id"], rows[1]["id"]} and exported


# -- pairs -----------------------------------------------------------------------------------------------------


def test_pairs_prefer_the_better_of_two_replies(grouped_run: Path, tmp_path: Path) -> None:
    result = arena("export", grouped_run, "--as", "pairs", "--to", tmp_path / "out")
    assert result.code == 0, result.err
    rows = read_json_lines(tmp_path / "out" / "pairs.jsonl")
    reader, credit = (
        RunReader(grouped_run),
        {(row.match, row.turn): row.reward for row in RunReader(grouped_run).credit(1)},
    )
    for row in rows:
        assert row["chosen_return"] > row["rejected_return"] and row["chosen"] != row["rejected"]
        for side in ("chosen", "rejected"):
            match = reader.match(row[f"{side}_match"])
            turn = match["turns"][row["turn"]]
            assert row[side] == [{"role": "assistant", "content": turn["raw"]}] and turn["seat"] == row["seat"]
        same_prompt = [row for row in rows if row["replies"] == 2]
        for row in same_prompt:
            match = reader.match(row["chosen_match"])
            later = [t["index"] for t in match["turns"][row["turn"] :] if t["seat"] == row["seat"]]
            assert row["chosen_return"] == pytest.approx(sum(credit[match["id"], index] for index in later))


def test_repeated_text_counts_with_its_mean_return() -> None:
    prompt = [user_message("go")]
    replies = [("a", 1.0), ("a", 5.0), ("b", 2.5), ("c", 3.0 + 1e-12)]
    (rows,) = list_pairs(
        FixedChats(*(make_reply(0, prompt, raw, reward, f"0001-000{n}") for n, (raw, reward) in enumerate(replies)))
    )
    (row,) = rows
    assert (row["chosen"], row["chosen_return"]) == ([assistant_message("c")], 3.0 + 1e-12)
    assert (row["rejected_match"], row["rejected_return"], row["replies"]) == ("0001-0002", 2.5, 4)


def test_equal_or_inherited_replies_are_no_pair() -> None:
    prompt = [user_message("go")]
    same = FixedChats(make_reply(0, prompt, "a", 1.0), make_reply(0, prompt, "b", 1.0, "0001-0001"))
    other = FixedChats(make_reply(0, prompt, "a", 1.0), make_reply(0, [user_message("come")], "b", 2.0, "0001-0001"))
    branch = FixedChats(make_reply(0, prompt, "a", 1.0), make_reply(0, prompt, "b", 2.0, "0001-0000-b2", parent_turn=2))
    assert [list(list_pairs(chats)) for chats in (same, other, branch)] == [[[]]] * 3


def test_run_without_pairs_suggests_groups(grouped_run: Path, tmp_path: Path) -> None:
    line = get_refusal("export", grouped_run, "--as", "pairs", "--to", tmp_path / "out", "--match", "0001-0000")
    assert "no two replies to one prompt" in line and "play.group" in line and not (tmp_path / "out").exists()


def test_untrusted_run_is_refused(run: Path) -> None:
    with pytest.raises(ConfigError):
        Chats(RunReader(run), Selection())


def test_an_empty_run_has_nothing(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", "game: x\n", {})
    with pytest.raises(StoreError, match="has no matches of this selection"):
        export_matches(RunReader(tmp_path / "run"), Selection(), "csv", tmp_path)
