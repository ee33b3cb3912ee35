"""What `arena export --as` writes: every row of what was chosen, prompts as they were, whatever text matches hold."""

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
def made(tmp_path: Path) -> Path:
    """Three iterations of four matches, the last of which is still played; the fourth match of each failed."""
    return make_run(tmp_path / "made").path


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def cells(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# -- tables --------------------------------------------------------------------------------------------------


def test_tables_hold_every_match_and_turn(made: Path, tmp_path: Path) -> None:
    assert arena("export", made, "--as", "csv", "--to", tmp_path / "csv").code == 0
    assert arena("export", made, "--as", "parquet", "--to", tmp_path / "parquet").code == 0
    matches, turns = (cells(tmp_path / "csv" / f"{name}.csv") for name in ("matches", "turns"))
    assert len(matches) == 12 and [row["status"] for row in matches].count("failed") == 3
    first = matches[0]
    assert (first["match"], first["payoff.opener"], first["report.efficiency"]) == ("0000-0000", "0.0", "0.5")
    assert first["report.deal"] == "false" and first["policy.responder"] == "shared" and first["turns"] == "2"
    assert len(turns) == sum(len(row["turns"]) for row in RunReader(made).matches())
    assert turns[1]["reward.illegal"] == "-1.0" and turns[1]["return"] == turns[1]["reward"] == "9.0"
    assert turns[1]["advantage"] == "0.125" and turns[-1]["advantage"] == "", "credit has not come yet"
    table = pq.read_table(tmp_path / "parquet" / "turns.parquet")
    assert table.num_rows == len(turns) and table["raw"].to_pylist() == [turn["raw"] for turn in turns]
    assert str(table.schema.field("valid").type) == "bool" and table["advantage"].to_pylist()[-1] is None


def test_what_is_chosen_is_all_there_is(made: Path, tmp_path: Path) -> None:
    told = arena(
        "export", made, "--as", "csv", "--iteration", 1, "--role", "the_opener", "--to", tmp_path / "a", "--json"
    )
    assert json.loads(told.out)["rows"] == {"matches": 4, "turns": 4}
    assert {row["seat"] for row in cells(tmp_path / "a" / "turns.csv")} == {"opener"}
    arena("export", made, "--as", "csv", "--match", "0001-0002", "--match", "0002-0000", "--to", tmp_path / "b")
    assert [row["match"] for row in cells(tmp_path / "b" / "matches.csv")] == ["0001-0002", "0002-0000"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--as", "cvs"], "--as cvs: there is no such format — did you mean 'csv'?"),
        (["--as", "csv", "--iteration", "9"], "--iteration 9: {run} has no matches of it (there are: 0 to 2)"),
        (["--as", "csv", "--match", "0001-0009"], "has no match '0001-0009' — did you mean '0001-000"),
        (["--as", "csv", "--policy", "sharde"], "--policy sharde: not in these matches — did you mean 'shared'?"),
        (["--as", "csv", "--role", "x"], "--role x: not in these matches (there are: the_opener, the_responder)"),
        (["--as", "csv", "--merged"], "--merged is for weights: leave it out with --as csv"),
        (["--role", "x"], "--role chooses among matches: leave it out, or give --as"),
        (["--policy", "a", "--policy", "b"], "weights are of one policy after one iteration"),
        (["--as", "chats"], "config.yaml"),
    ],
)
def test_what_cannot_be_exported_is_said_and_leaves_nothing(
    made: Path, tmp_path: Path, options: list[str], said: str
) -> None:
    assert said.format(run=made) in get_refusal("export", made, *options, "--to", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made"]


def test_nothing_is_overwritten(made: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert "already holds something" in get_refusal("export", made, "--as", "csv", "--to", tmp_path / "out")
    assert "is a link" in get_refusal("export", made, "--as", "csv", "--to", tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()


# -- hostile text ----------------------------------------------------------------------------------------------

HOSTILE = (
    "=HYPERLINK(\"http://x\")", "@SUM(1)", 'a"b,c\n\r\nd', "\0nul\0", "\u2028\u2029\x85\x0b\x0c", "\ud800 lone",
    "\x1b[2J", '"}\n{"messages": []}', "</script><script>",
    "🂡\u202e", "x" * 1_000_000, "\ufeffbom", "---\nconfigs: []\n---",
)  # fmt: skip


def test_whatever_text_stays_one_row(made: Path, tmp_path: Path) -> None:
    rows = [{"text": text, "n": n, "x": float("nan")} for n, text in enumerate(HOSTILE)]
    schema = pa.schema([("text", pa.string()), ("n", pa.int64()), ("x", pa.float64())])
    batches = [rows[:3], [], rows[3:]]
    assert write_csv(tmp_path / "csv", schema, batches) == (len(HOSTILE), 3)
    assert write_json_lines(tmp_path / "jsonl", schema, batches) == len(HOSTILE)
    assert write_parquet(tmp_path / "parquet", schema, batches) == len(HOSTILE)
    csv.field_size_limit(2_000_000)
    kept = [text.replace("\ud800", "\ufffd") for text in HOSTILE]
    assert [row["text"] for row in cells(tmp_path / "csv")] == [text.replace("\0", "\ufffd") for text in kept]
    assert [row["text"] for row in lines(tmp_path / "jsonl")] == kept
    assert (tmp_path / "jsonl").read_bytes().isascii() and lines(tmp_path / "jsonl")[0]["x"] is None
    assert pq.read_table(tmp_path / "parquet")["text"].to_pylist() == kept


def test_a_cell_that_begins_as_a_formula_is_noted(made: Path, tmp_path: Path) -> None:
    told = arena("export", made, "--as", "csv", "--to", tmp_path / "plain")
    assert told.err == ""
    record = MatchRecord.from_json(RunReader(made).match("0002-0000"))
    turns = tuple(turn._replace(raw="=1+1") for turn in record.turns)
    log = MatchLog(made / "log")
    log.append(replace(record, identity=replace(record.identity, deal=7), turns=turns))
    log.close()
    told = arena("export", made, "--as", "csv", "--to", tmp_path / "out")
    assert told.err.startswith("arena: 2 cells begin as a formula does (= + - @), and a model may have written them")


# -- chats -----------------------------------------------------------------------------------------------------


def encoded(frame: ChatFrame, messages: list[dict[str, str]]) -> list[int]:
    """A chat up to its last reply, as ids."""
    system, *rest = messages
    ids = frame.open(system["content"])
    for user, reply in zip(rest[::2], rest[1::2], strict=True):
        ids += frame.ask(user["content"])
        ids += [*frame.encode(reply["content"]), frame.stop_id] if reply is not rest[-1] else []
        ids += frame.close("stop") if reply is not rest[-1] else []
    return ids


def test_a_chat_is_what_the_model_read_token_by_token(grouped: Path) -> None:
    """Its prompts, encoded in the chat frame, are the ids of the log: up to the first reply cut short by its limit."""
    frame, reader = load_tokenizer_and_frame(resolve("nano"))[1], RunReader(grouped)
    chats = Chats(reader, Selection())
    compared = 0
    for _, said in chats.iterations():
        cut = set[tuple[str, str]]()
        for one in said:
            record, seat = MatchRecord.from_json(reader.match(one.row["id"])), one.turn["seat"]
            stream, begin, _ = find_reply(record.streams[seat], one.turn["index"])
            odd = one.turn["finish"] != "stop" or frame.encode(one.turn["raw"]) != stream.ids[begin : _ - 1]
            if begin and (one.row["id"], seat) not in cut:
                whole = [*one.prompt, {"role": "assistant", "content": one.turn["raw"]}]
                assert encoded(frame, whole) == stream.ids[:begin]
                compared += len(one.prompt) > 2
            cut |= {(one.row["id"], seat)} if odd else set()
    assert not chats.left_out and compared > 0, "some prompts hold earlier replies"


def test_chats_are_one_for_each_seat_of_a_match(grouped: Path, tmp_path: Path) -> None:
    assert arena("export", grouped, "--as", "chats", "--to", tmp_path / "out").code == 0
    rows = lines(tmp_path / "out" / "chats.jsonl")
    played = [row for row in RunReader(grouped).matches() if row["status"] == "finished"]
    seats = {(row["id"], turn["seat"]) for row in played for turn in row["turns"]}
    assert {(row["match"], row["seat"]) for row in rows} == seats and len(rows) == len(seats)
    for row in rows:
        kinds = [message["role"] for message in row["messages"]]
        assert kinds == ["system", *["user", "assistant"] * (len(kinds) // 2)] and row["opening"] == 2
    by_id = {row["id"]: row for row in played}
    for row in rows:
        replies = [turn["raw"] for turn in by_id[row["match"]]["turns"] if turn["seat"] == row["seat"]]
        assert [m["content"] for m in row["messages"] if m["role"] == "assistant"] == replies


def said(
    turn: int, prompt: list[dict[str, str]], raw: str, worth: float, match: str = "0001-0000", **more: Any
) -> Reply:
    """A reply at the only seat of a match."""
    row = {"id": match, "iteration": 1, "game": "g", "payoffs": {"a": 1.0}, "started": "2026", **more}
    return Reply(
        row,
        {"index": turn, "seat": "a", "role": "r", "policy": "p", "version": 1, "raw": raw, "valid": True},
        prompt,
        {"role": "assistant", "content": raw},
        "",
        worth,
    )


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


class Given(Chats):
    """Chats of these replies."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = replies

    def iterations(self) -> Iterator[tuple[int, Iterator[Reply]]]:
        yield 1, iter(self.replies)


def test_a_memory_that_begins_anew_begins_a_new_chat() -> None:
    window = Given(
        said(0, [user("one")], "1", 0.0), said(2, [user("one"), assistant("1"), user("two")], "2", 0.0),
        said(4, [user("two"), assistant("2"), user("three")], "3", 0.0),
    )  # fmt: skip
    (rows,) = window.rows()
    assert [[message["content"] for message in row["messages"]] for row in rows] == [
        ["one", "1", "two", "2"],
        ["two", "2", "three", "3"],
    ]
    assert [(row["first_turn"], row["opening"]) for row in rows] == [(0, 1), (4, 3)]


def test_a_match_that_cannot_be_dealt_again_is_left_out_and_said(grouped: Path, tmp_path: Path) -> None:
    run = shutil.copytree(grouped, tmp_path / "run")
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
    assert notes == ["2 matches were left out, 1 of them because the rules of negotiation were changed since"]
    kept = {row["match"] for row in lines(tmp_path / "out" / "chats.jsonl")}
    assert not kept & {rows[0]["id"], rows[1]["id"]} and kept


# -- pairs -----------------------------------------------------------------------------------------------------


def test_pairs_are_two_replies_to_one_prompt_the_better_one_chosen(grouped: Path, tmp_path: Path) -> None:
    told = arena("export", grouped, "--as", "pairs", "--to", tmp_path / "out")
    assert told.code == 0, told.err
    rows = lines(tmp_path / "out" / "pairs.jsonl")
    reader, credit = RunReader(grouped), {(row.match, row.turn): row.reward for row in RunReader(grouped).credit(1)}
    for row in rows:
        assert row["chosen_return"] > row["rejected_return"] and row["chosen"] != row["rejected"]
        for side in ("chosen", "rejected"):
            match = reader.match(row[f"{side}_match"])
            turn = match["turns"][row["turn"]]
            assert row[side] == [{"role": "assistant", "content": turn["raw"]}] and turn["seat"] == row["seat"]
        own = [row for row in rows if row["replies"] == 2]
        for row in own:
            match = reader.match(row["chosen_match"])
            later = [t["index"] for t in match["turns"][row["turn"] :] if t["seat"] == row["seat"]]
            assert row["chosen_return"] == pytest.approx(sum(credit[match["id"], index] for index in later))


def test_a_text_that_was_given_often_counts_with_its_mean() -> None:
    prompt = [user("go")]
    replies = [("a", 1.0), ("a", 5.0), ("b", 2.5), ("c", 3.0 + 1e-12)]
    (rows,) = list_pairs(
        Given(*(said(0, prompt, raw, worth, f"0001-000{n}") for n, (raw, worth) in enumerate(replies)))
    )
    (row,) = rows
    assert (row["chosen"], row["chosen_return"]) == ([assistant("c")], 3.0 + 1e-12)
    assert (row["rejected_match"], row["rejected_return"], row["replies"]) == ("0001-0002", 2.5, 4)


def test_what_came_to_the_same_or_was_repeated_by_a_branch_is_no_pair() -> None:
    prompt = [user("go")]
    same = Given(said(0, prompt, "a", 1.0), said(0, prompt, "b", 1.0, "0001-0001"))
    other = Given(said(0, prompt, "a", 1.0), said(0, [user("come")], "b", 2.0, "0001-0001"))
    branch = Given(said(0, prompt, "a", 1.0), said(0, prompt, "b", 2.0, "0001-0000-b2", parent_turn=2))
    assert [list(list_pairs(chats)) for chats in (same, other, branch)] == [[[]]] * 3


def test_a_run_without_pairs_says_how_to_get_some(grouped: Path, tmp_path: Path) -> None:
    line = get_refusal("export", grouped, "--as", "pairs", "--to", tmp_path / "out", "--match", "0001-0000")
    assert "no two replies to one prompt" in line and "play.group" in line and not (tmp_path / "out").exists()


def test_a_run_that_nobody_trusts_is_asked_about(made: Path) -> None:
    with pytest.raises(ConfigError):
        Chats(RunReader(made), Selection())


def test_an_empty_run_has_nothing(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", "game: x\n", {})
    with pytest.raises(StoreError, match="has nothing of what was chosen"):
        export_matches(RunReader(tmp_path / "run"), Selection(), "csv", tmp_path)
