"""SQL queries agree with the frames and can do nothing else."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import analysis
from analysis import commands, query
from analysis.columns import TABLES
from arena.errors import ConfigError, StoreError
from arena.store import sealed_sql
from arena.store.reader import LogReader
from tests.factories.commands import arena, get_refusal
from tests.factories.made_run import make_run


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("sql") / "run").path


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_are_those_of_the_frames(run_folder: Path, name: str) -> None:
    log = analysis.load(run_folder)
    pd.testing.assert_frame_equal(analysis.sql(log, f"select * from {name}"), getattr(log, name))
    assert analysis.sql(run_folder, f"describe {name}")["column_name"].tolist() == getattr(log, name).columns.tolist()


def test_tables_are_joined_by_their_keys(run_folder: Path) -> None:
    sql = """
        with good as (select * from matches where status = 'finished')
        select SEAT, avg("reward.deal") as deal, avg(payoff) as payoff, bool_and("report.efficiency" = 0.5) as same
        from good join turns using (run, match) join seats using (run, match, seat) group by seat order by seat
    """
    log = analysis.load(run_folder)
    turns = log.turns.merge(log.matches[log.matches["status"] == "finished"][["match"]], on="match")
    deal, payoff = turns.groupby("seat")["reward.deal"].mean(), log.seats.groupby("seat")["payoff"].mean()
    assert analysis.sql(log, sql).to_numpy().tolist() == [
        [s, deal[s], payoff[s], True] for s in ("opener", "responder")
    ]


def test_several_runs_are_asked_together(tmp_path: Path) -> None:
    paths = [make_run(tmp_path / name).path for name in ("a", "b")]
    counts = analysis.sql(paths, "select run, count(*) as n from turns group by run order by run")
    assert counts.to_numpy().tolist() == [["a", 21], ["b", 21]]


@pytest.mark.parametrize(
    ("sql", "leaves"),
    [
        ("select role, avg(advantage) from turns group by role", {"turns.index", "turns.role"}),
        ("select count(*) from matches", set()),
        ('select t."reward.deal" from turns t', {"turns.index", "turns.rewards"}),
        (
            "select sum(LOGPROB) from tokens",
            {f"streams.{name}" for name in ("seat", "ids", "mask", "logprobs", "turns")},
        ),
    ],
)
def test_only_tables_named_in_a_query_are_read(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, sql: str, leaves: set[str]
) -> None:
    reads: list[set[str]] = []
    known = LogReader.table
    monkeypatch.setattr(
        LogReader, "table", lambda self, k, columns: reads.append({*columns}) or known(self, k, columns)
    )
    analysis.sql(run_folder, sql)
    assert set().union(*reads) == leaves | {"id", "iteration", "game"}


@pytest.mark.parametrize(
    "sql",
    [
        "select turn, action as tokens, 'messages' as seats from turns",
        "select tokens, turn from turns",
        "select turns from matches",
    ],
)
def test_table_name_used_as_a_word_opens_no_table(run_folder: Path, monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    reads: list[str] = []
    known = analysis.Frames.select_existing
    monkeypatch.setattr(
        analysis.Frames, "select_existing", lambda self, name, columns: reads.append(name) or known(self, name, columns)
    )
    analysis.sql(run_folder, sql)
    assert reads == [sql.split()[-1]]


def test_table_named_in_a_function_is_read(run_folder: Path) -> None:
    assert analysis.sql(run_folder, "select count(*) from query_table('turns')").iloc[0, 0] == 21


@pytest.mark.parametrize(
    ("sql", "column"),
    [
        ("select #6 from turns", "seat"),
        ("select f from turns as t(a, b, c, d, e, f)", "seat"),
        ("select advantage, #4 from turns", "turn"),
    ],
)
def test_column_positions_are_those_of_the_full_table(run_folder: Path, sql: str, column: str) -> None:
    log = analysis.load(run_folder)
    assert analysis.sql(log, sql).iloc[:, -1].tolist() == log.turns[column].tolist()


def test_sum_of_integers_is_an_integer_unless_too_large(run_folder: Path) -> None:
    summed = query.run_query(
        analysis.load(run_folder), "select sum(seed) s, [sum(seed)] l, sum(seed) + 0.5 d from matches"
    )
    assert summed.to_pylist() == [{"s": 18, "l": [18], "d": 18.5}]
    assert arena("sql", run_folder, "select 1234567890123::hugeint as n, 123456.0::double as d").out.split() == [
        "n", "d", "1234567890123", "123456"
    ]  # fmt: skip
    (large,) = query.run_query(analysis.load(run_folder), "select 9223372036854775807::hugeint + 1 as n").to_pylist()
    assert large == {"n": 2.0**63}


@pytest.mark.parametrize("sql", ["select t from turns t limit 1", "select turns from turns limit 1"])
def test_whole_row_has_all_columns(run_folder: Path, sql: str) -> None:
    (row,) = query.run_query(analysis.load(run_folder), sql).to_pylist()
    (record,) = row.values()
    assert list(record) == analysis.load(run_folder).turns.columns.tolist()


@pytest.mark.parametrize(
    ("sql", "line"),
    [
        ("select advantag from turns", "there is no column 'advantag' — did you mean 'advantage'? in turns"),
        ('select "reward.del" from turns', "there is no column 'reward.del' — did you mean 'reward.deal'? in turns"),
        ("select x from turn", "there is no table 'turn' — did you mean 'turns'? (tables: runs, iterations, matches"),
        ("select report.deal from matches", 'a column name with a dot needs double quotes: "report.…"'),
        ("select reward.deal from turns", 'a column name with a dot needs double quotes: "reward.…"'),
        ("selec 1", 'syntax error at or near "selec": write one SELECT'),
        ("", "0 queries: write one SELECT"),
        ("select 1; select 2", "2 queries: write one SELECT"),
        ("select 'a\x1b[31m'::int", "Conversion Error: Could not convert string 'a[31m' to INT32"),
        ("select '\ud800'", "Invalid Input Error: Python Conversion Failure: cannot encode str as UTF-8"),
        (f"select {'[' * 400}1{']' * 400}", "this query is nested too deeply"),
        (f"select {'not ' * 1500}true", "write one SELECT"),
    ],
)
def test_refuses_invalid_query_in_one_line(run_folder: Path, sql: str, line: str) -> None:
    with pytest.raises(ConfigError) as error:
        analysis.sql(run_folder, sql)
    assert str(error.value).startswith(line) and "\n" not in str(error.value)


SECRET = "the secret of another file"
CANARY = SECRET
"""A variable that no query may see either."""
OUTSIDE = [
    "select * from read_csv('{file}')", "select * from read_text('{file}')", "select * from '{file}'",
    "select * from read_blob('{file}')", "select * from glob('{folder}/*')", "select * from read_json('{file}')",
    "select * from sniff_csv('{file}')", "select * from parquet_scan('{file}')", "select * from CANARY",
    "select * from frame", "select * from 'http://localhost:1/x.csv'", "select getenv('HOME')",
    "select * from query('select * from read_text(''{file}'')')",
    "copy turns to '{folder}/out.csv'", "copy (select 1) to '{folder}/out.csv'", "attach '{folder}/out.db'",
    "install httpfs", "load httpfs", "set enable_external_access = true", "pragma memory_limit = '1GB'",
    "create table t as select 1", "insert into turns select * from turns", "delete from turns", "drop view turns",
    "export database '{folder}/out'", "call pragma_version()", "update turns set role = 'x'", "begin", "vacuum",
    "create function f() as table select 1", "create secret (type s3)", "checkpoint", "explain analyze select 1",
]  # fmt: skip


@pytest.mark.parametrize("sql", OUTSIDE)
def test_query_cannot_reach_outside_the_runs(run_folder: Path, tmp_path: Path, sql: str) -> None:
    frame = pd.DataFrame({"secret": [SECRET]})
    file, before = tmp_path / "file.csv", sorted(os.listdir())
    file.write_text(SECRET)
    with pytest.raises(ConfigError) as error:
        analysis.sql(run_folder, sql.format(file=file, folder=tmp_path))
    assert SECRET not in str(error.value) and len(frame) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file.csv"] and sorted(os.listdir()) == before


@given(st.text(max_size=40))
@settings(max_examples=30, deadline=None)
def test_arbitrary_text_is_answered_or_refused_in_one_line(run_folder: Path, sql: str) -> None:
    try:
        analysis.sql(run_folder, sql)
    except ConfigError as error:
        assert "\n" not in str(error)


def test_log_texts_are_never_executed(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run").path
    texts = analysis.sql(run, "select private, public from turns where turn = 0 limit 1").to_numpy().tolist()
    assert texts == [["\x1b[2Jgreed", "$fair$ [/b]"]]


# As a command


def test_the_command_answers_as_a_table_as_json_and_as_csv(run_folder: Path) -> None:
    sql = "select seat, count(*) as n, avg(advantage) as worth from turns group by seat order by seat"
    assert arena("sql", run_folder, sql).out.splitlines() == [
        "seat        n  worth", "opener     12  0.125", "responder   9  0.125"
    ]  # fmt: skip
    assert json.loads(arena("sql", run_folder, sql, "--json").out)[0] == {"seat": "opener", "n": 12, "worth": 0.125}
    assert arena("sql", run_folder, sql, "--csv").out == "seat,n,worth\nopener,12,0.125\nresponder,9,0.125\n"
    assert json.loads(arena("sql", run_folder, "select 0.0/0 as nan, [1.5] as l, {'a': null} as d", "--json").out) == [
        {"nan": None, "l": [1.5], "d": {"a": None}}
    ]


def test_the_command_prints_no_control_characters_and_not_too_much(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = arena("sql", run_folder, "select private from turns").out
    assert "[2Jgreed" in output and "\x1b" not in output
    monkeypatch.setattr(commands, "MAX_ROWS", 2)
    assert arena("sql", run_folder, "select turn from turns").out.splitlines()[-1].startswith("… and 19 rows more")


@pytest.mark.parametrize("day", ["'infinity'::date", "['infinity'::timestamp]", "'20000-01-01'::date"])
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_date_beyond_python_is_refused_in_one_line(run_folder: Path, day: str, form: list[str]) -> None:
    assert "convert it to text" in get_refusal("sql", run_folder, f"select {day}", *form)
    assert "infinity" in arena("sql", run_folder, "select 'infinity'::date::varchar").out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["select 1"], "there is no folder nowhere"),
        (["select rol from turns"], "there is no folder nowhere"),
        (["select 1", "--json", "--csv"], "--json and --csv: give one of them"),
    ],
)
def test_command_refuses_mistakes_in_one_line(arguments: list[str], line: str) -> None:
    assert get_refusal("sql", "nowhere", *arguments) == line


def test_missing_duckdb_is_reported_with_its_installation(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    assert "pip install 'arena-selfplay[analysis]'" in get_refusal("sql", run_folder, "select 1")


def test_damaged_run_is_refused_as_damaged(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a run folder"):
        analysis.sql(tmp_path, "select 1")


ENDLESS = "with recursive t(n) as (select 1 union all select n + 1 from t) select count(*) from t"


def test_a_query_without_an_end_is_stopped_when_its_time_is_up(run_folder: Path) -> None:
    start = time.monotonic()
    with pytest.raises(ConfigError, match=r"stopped after 0\.5 s"):
        query.run_query(analysis.load(run_folder), ENDLESS, seconds=0.5)
    assert time.monotonic() - start < 20


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_query_without_an_end_is_stopped_by_a_signal(run_folder: Path, sent: signal.Signals) -> None:
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), sent))
    timer.start()
    result = arena("sql", run_folder, ENDLESS)
    timer.join()
    assert result.code == 128 + sent and "Traceback" not in result.err and result.err.count("\n") <= 1


def test_a_query_that_needs_too_much_memory_is_refused(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sealed_sql.SETTINGS, "memory_limit", "50MB")
    with pytest.raises(ConfigError, match="half of this machine's memory"):
        query.run_query(analysis.load(run_folder), "select list(a.range) from range(100000000) a")
