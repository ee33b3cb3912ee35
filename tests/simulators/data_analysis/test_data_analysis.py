"""The analyst's acts, state shared by cells, rewards, and match state."""

import json
import pickle
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulators import conformance
from simulators.confine.code import find_obstacle
from simulators.conformance import play
from simulators.data_analysis import DataAnalysis, packaged
from simulators.data_analysis.acts import Act, read_act
from simulators.data_analysis.session import MAX_CODE, Session
from simulators.data_analysis.tables import draw_tables

SPLITS: tuple[Literal["train", "test"], ...] = ("train", "test")
needs_confinement = pytest.mark.skipif(bool(find_obstacle()), reason=find_obstacle())


def start_game(seed: int = 3, **options: Any) -> DataAnalysis:
    game = DataAnalysis(**options)
    game.reset(seed=seed)
    return game


def read_last_message(game: DataAnalysis) -> str:
    return str(game.observe("analyst")["messages"][-1]["text"])


@needs_confinement
@pytest.mark.slow_after(1)
@pytest.mark.parametrize("options", [{"tables": "csv"}, {"terse": True, "tables": "sqlite"}], ids=str)
def test_passes_the_conformance_kit(options: dict[str, Any]) -> None:
    findings = conformance.check(lambda: DataAnalysis(**options), seeds=2, acts=30)
    assert [finding for finding in findings if finding.ok is False] == []


@needs_confinement
@pytest.mark.slow
@pytest.mark.parametrize("source", ["generated", "packaged"])
def test_oracle_is_always_right(source: Any) -> None:
    if source == "packaged" and not packaged.list_identities():
        pytest.skip("needs scikit-learn or statsmodels")
    game = DataAnalysis(source=source, depth=3)
    for seed in range(100):
        report = play(game, seed, "oracle")
        assert report["success"], report


@pytest.mark.parametrize(
    ("reply", "act"),
    [
        ("sql select 1", Act("sql", "select 1")),
        ("SQL: select 1", Act("sql", "select 1")),
        ("code\nx = 1\nprint(x)", Act("code", "x = 1\nprint(x)")),
        ("code\n    indented", Act("code", "    indented")),
        ("answer 7\nsurely", Act("answer", "7")),
        ("I look.\n```python\nprint(1)\n```\nThen I answer 7.", Act("code", "print(1)")),
        ("SQL is best.\n```sql\nselect 1\n```", Act("sql", "select 1")),
        ("<code>\n```python\nprint(1)\n```\n</code>", Act("code", "print(1)")),
        ("<code>print(1)</code>", Act("code", "print(1)")),
        ("<think>hm</think><answer>Oslo</answer>", Act("answer", "Oslo")),
        ("```python\nprint(1)", Act("code", "print(1)")),
        ("answers 7", None), ("it is 7", None), ("code", None), ("<answer> </answer>", None), ("", None),
    ],
)  # fmt: skip
def test_parses_acts(reply: str, act: Act | None) -> None:
    assert read_act(reply) == act


PIECES = st.sampled_from(
    ["```", "python\n", "sql", "<code>", "</code>", "<answer>", "answer", "\n", " ", "7", "\ud800"]
)


@given(st.lists(st.one_of(PIECES, st.text(max_size=8)), max_size=30).map("".join))
def test_any_reply_parses_or_is_refused(reply: str) -> None:
    act = read_act(reply)
    assert act is None or (act.text.strip() and act.verb in ("code", "sql", "answer"))


@needs_confinement
def test_cells_share_names_and_errors_leave_the_state_unchanged() -> None:
    session = Session(draw_tables(1, terse=True), "csv")
    assert session.run_python("x = [1]\nprint('once')") == "once"
    assert session.run_python("x.append(len(t)); y = 1 / 0").startswith("Error: ZeroDivisionError")
    assert session.run_python("x") == "[1]"
    assert session.run_python("raise SystemExit").startswith("Error: SystemExit")
    assert session.run_python("x +").startswith("Error: SyntaxError")
    assert session.run_python("len(open('t.csv').readlines()) - len(t), sorted(s[0])") == "(1, ['g', 'k'])"
    assert session.cells == ["x = [1]\nprint('once')", "x", "len(open('t.csv').readlines()) - len(t), sorted(s[0])"]


@needs_confinement
def test_a_database_is_a_file_for_python_and_open_to_sql_that_reads() -> None:
    data = draw_tables(1, terse=True)
    session = Session(data, "sqlite")
    count = len(data.main.rows)
    code = "import sqlite3\nsqlite3.connect('data.db').execute('select count(*) from t').fetchone()[0]"
    assert session.run_python(code) == session.run_sql("select count(*) from t", terse=True) == str(count)
    assert json.loads(session.run_sql("select count(*) as n from t", terse=False)) == {
        "columns": ["n"],
        "rows": [[count]],
    }
    assert session.run_sql("delete from t", terse=True).startswith("Error: ")
    assert session.run_sql("select count(*) from t", terse=True) == str(count)
    assert session.run_sql("select g from t where g='none'", terse=True) == "-"


@needs_confinement
def test_cells_have_no_pandas_and_no_host_files() -> None:
    session = Session(draw_tables(1, terse=True), "json")
    assert session.run_python("import pandas").startswith("Error: ModuleNotFoundError")
    assert session.run_python("open('/etc/passwd')").startswith("Error: ")


@needs_confinement
def test_warnings_are_output_and_early_process_exit_is_an_error() -> None:
    session = Session(draw_tables(1, terse=True), "csv")
    assert session.run_python("import os, sys\nx = 1\nprint('careful', file=sys.stderr)") == "careful"
    assert session.run_python("os._exit(0)") == "Error: the cell ended its process"
    assert session.run_python("sys.stdout.close()").startswith("Error: ")
    assert session.run_python("x") == "1", "the cell that ended the process changed the state"


@needs_confinement
@pytest.mark.slow
def test_a_cell_that_never_ends_is_stopped() -> None:
    session = Session(draw_tables(1, terse=True), "json")
    assert "out of time" in session.run_python("while True: pass") and session.cells == []


@needs_confinement
def test_cells_are_bounded() -> None:
    session = Session(draw_tables(1, terse=True), "csv", cells=["#" * (MAX_CODE - 5)])
    assert session.run_python("print(1)").startswith("Error: all cells may have")
    assert len(Session(draw_tables(1, terse=True), "csv").run_python("print('x' * 99999)")) < 2_000


@needs_confinement
def test_match_state_is_code_text() -> None:
    """A match's state is the text of its cells, and its clone is independent."""
    game = start_game(tables="csv", max_turns=30)
    before = len(pickle.dumps(game.session))
    for _ in range(4):
        game.step("code\nbig = list(range(100_000))")
    assert len(pickle.dumps(game.session)) - before < 400
    twin = game.clone()
    twin.step("code\nbig = 7")
    game.step("code\nlen(big)")
    twin.step("code\nbig")
    assert read_last_message(game) == "100000" and read_last_message(twin) == "7"


@needs_confinement
def test_rewards_and_report() -> None:
    game = start_game(tables="sqlite", terse=True)
    game.step("sql selec 1")
    assert read_last_message(game).startswith("Error: ")
    game.step(f"sql {game.question.code.sql}")
    game.step(f"answer {read_last_message(game)}")
    report = game.report()
    assert game.payoffs() == {"analyst": 1.0} and report["success"] and report["ended"] == "right"
    assert (report["runs"], report["errors"], report["turns"]) == (2, 1, 3) and report["depth"] == len(
        game.question.kinds
    )
    game = start_game(tables="csv")
    game.step("sql select 1")
    assert read_last_message(game) == "Error: there is no database: write Python"
    game.step("answer 123456")
    assert game.payoffs() == {"analyst": 0.0} and game.report()["ended"] == "wrong"


@needs_confinement
def test_no_answer_earns_nothing() -> None:
    game = start_game(tables="sqlite", max_turns=2)
    game.step("sql select 1")
    game.step("sql select 1")
    assert game.report()["ended"] == "turns" and game.payoffs() == {"analyst": 0.0}


@needs_confinement
def test_the_flawed_player_is_right_about_half_of_the_time() -> None:
    game = DataAnalysis(terse=True, tables="sqlite", split="train")
    reports = [play(game, seed, "flawed") for seed in range(120)]
    assert 0.4 < sum(bool(report["success"]) for report in reports) / 120 < 0.7
    assert 0.15 < sum(float(report["errors"]) for report in reports) / 120 < 0.45


@needs_confinement
def test_train_and_test_share_no_table() -> None:
    shapes: list[set[str]] = []
    for split in SPLITS:
        game = DataAnalysis(split=split, terse=True)
        tables = set()
        for seed in range(60):
            game.reset(seed=seed)
            tables.add(repr(game.data.main))
        shapes.append(tables)
    assert len(shapes[0]) == len(shapes[1]) == 60 and not shapes[0] & shapes[1]
    if packaged.list_identities():
        names = []
        for split in SPLITS:
            game = DataAnalysis(split=split, source="packaged", depth=1)
            parts = set()
            for seed in range(60):
                game.reset(seed=seed)
                parts.add(repr(game.data.main))
            names.append(parts)
        assert names[1] and not names[0] & names[1]


@needs_confinement
def test_packaged_tables_need_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="needs scikit-learn or statsmodels"):
        DataAnalysis(source="packaged")


@needs_confinement
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 4}, "depth"), ({"tables": "xls"}, "tables"), ({"source": "web"}, "source"),
        ({"source": "packaged", "terse": True}, "terse"), ({"max_turns": 0}, "max_turns"),
    ],
)  # fmt: skip
def test_refuses_invalid_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataAnalysis(**options)
