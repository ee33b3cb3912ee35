"""The game sql: conformance, each seat's view and rewards, and hostile acts."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from games.base import IllegalAct
from games.contracts import TOOL, View
from simulators import conformance
from simulators.sql import Sql
from simulators.sql.acts import OBSERVATION, make_result, read_names, write_names, write_sql
from simulators.sql.schemas import run_sql
from tests.simulators.promises import find_failed_checks, passes_over_many_seeds

VARIANTS: list[dict[str, Any]] = [
    {},
    {"turns": 1, "levels": 4},
    {"seats": "all"},
    {"seats": "all", "team": True},
    {"seats": "all", "terse": True, "levels": [1, 3], "split": "train"},
    {"terse": True, "illegal": "end", "split": "test"},
]


def start_game(seed: int = 3, **options: Any) -> Sql:
    game = Sql(**options)
    game.reset(seed=seed)
    return game


def read_last_message(game: Sql, seat: str = "writer") -> str:
    return game.messages(seat)[-1].text


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_passes_the_conformance_kit(options: dict[str, Any]) -> None:
    assert find_failed_checks(lambda: Sql(**options), seeds=5, acts=60) == []


@pytest.mark.slow
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_passes_the_conformance_kit_over_many_seeds(options: dict[str, Any], capsys: Any) -> None:
    assert passes_over_many_seeds(lambda: Sql(**options), options, capsys)


def test_query_is_answered_and_an_equivalent_solution_is_right() -> None:
    game = start_game(levels=1)
    game.step(f"<think>First look.</think>\n<sql>\n```sql\n{game.question.sql};\n```\n</sql>")
    assert game.messages("writer")[-1].sender == TOOL
    assert read_last_message(game).splitlines()[-1] == "You have 4 turns left."
    rows = {tuple(line.split(" | ")) for line in read_last_message(game).splitlines()[1:-1]}
    assert rows == {tuple(map(str, row)) for row in game.question.rows}
    game.step(f"<solution>SELECT * FROM ({game.question.sql}) UNION ALL {game.question.sql}</solution>")
    report = game.report()
    assert report["success"] and report["score"] == 1.0 and report["queries"] == 1 and report["errors"] == 0
    assert not report["repaired"] and game.payoffs() == {"writer": 1.0}


def test_near_misses_earn_nothing() -> None:
    for seed in range(20):
        game = start_game(seed)
        for near_miss in game.question.wrong:
            game.reset(seed=seed)
            game.step(write_sql(near_miss, terse=False, final=True))
            assert not game.report()["success"] and game.payoffs() == {"writer": 0.0}


def test_failed_query_reports_the_error_and_can_be_repaired() -> None:
    game = start_game(levels=3)
    game.step(write_sql(game.question.failing[0], terse=False, final=False))
    assert read_last_message(game).startswith("Error: no such column: ")
    game.step(write_sql(game.question.sql, terse=False, final=True))
    report = game.report()
    assert report["errors"] == report["queries"] == 1 and report["repaired"]


def test_an_error_without_a_right_solution_is_not_repaired() -> None:
    game = start_game(levels=3)
    for final in (False, True):
        game.step(write_sql(game.question.failing[0], terse=False, final=final))
    assert not game.report()["repaired"] and game.report()["errors"] == 1


@pytest.mark.parametrize(
    "act",
    [
        "", "SELECT 1", "<sql></sql>", "<sql>SELECT 1</sql><solution>SELECT 1</solution>", "<think><sql>SELECT 1</sql>",
        "<solution>SELECT 1</solution><solution>SELECT 2</solution>", "query(table=1)", "<sql>SELECT 1</solution>",
    ],
)  # fmt: skip
def test_an_act_is_one_query_or_one_solution(act: str) -> None:
    game = start_game(illegal="end")
    game.step(act)
    assert game.ended == "illegal" and game.report()["score"] == 0.0


def test_a_query_may_be_a_tool_call_but_not_on_the_last_turn() -> None:
    game = start_game(turns=2)
    assert [tool["function"]["name"] for tool in View.of(game, "writer").tools] == ["query"]
    game.step('query(sql="SELECT 1 + 1 AS two")')
    assert read_last_message(game) == "two\n2\nYou have 1 turn left."
    game.step("<sql>SELECT 1</sql>")
    assert game.infos["writer"]["valid"] is False and "last turn" in read_last_message(game)
    assert not View.of(start_game(turns=1), "writer").tools


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM {table}",
        "DROP TABLE {table}",
        "UPDATE {table} SET {column} = 0",
        "ATTACH 'x' AS y",
        "SELECT 1; SELECT 2",
    ],
)
def test_queries_cannot_change_the_database(query: str) -> None:
    game = start_game()
    table = game.schema.tables[0]
    before = game.world.rows(f"SELECT * FROM {table.name}")
    game.step(write_sql(query.format(table=table.name, column=table.columns[0].name), terse=False, final=False))
    assert read_last_message(game).startswith("Error: ") and game.world.rows(f"SELECT * FROM {table.name}") == before


def test_long_observations_are_cut_to_ten_rows() -> None:
    game = start_game()
    long_query = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) SELECT i, '{}' AS pad FROM n"
    )
    game.step(write_sql(long_query.format(100, "x" * 5), terse=False, final=False))
    assert len(read_last_message(game).splitlines()) == 102  # below 2,000 characters
    game.step(write_sql(long_query.format(100, "x" * 50), terse=False, final=False))
    lines = read_last_message(game).splitlines()
    assert len(lines) == 13 and lines[1].startswith("1 | ") and lines[11] == "(10 of 100 rows)"
    game.step(write_sql(long_query.format(10**6, "x" * 900), terse=False, final=False))
    assert len(read_last_message(game)) <= OBSERVATION + 30
    game.step(write_sql(long_query.format(10**12, "x"), terse=False, final=True))
    assert not game.report()["success"]


def test_seats_play_in_turn_and_the_judge_gets_no_messages() -> None:
    game = start_game(seats="all", levels=3)
    assert game.agent_selection == "grounder" and View.of(game, "grounder").private["schema"] == game.schema.text()
    game.step(write_names(game.question.names, game.terse))
    assert game.infos["grounder"]["rewards"] == {"linked": 1.0}
    schema = View.of(game, "writer").private["schema"]
    assert {line.partition("(")[0] for line in schema.splitlines()} == {n for n in game.question.names if "." not in n}
    game.step(f"<think>Easy.</think>{write_sql(game.question.wrong[0], terse=False, final=True)}")
    view = View.of(game, "judge")
    assert set(view.private) == {"schema", "reasoning", "sql", "result"} and not view.messages
    assert view.private["sql"] == game.question.wrong[0] and view.private["reasoning"] == "Easy."
    assert game.rewards == {"grounder": 0.0, "writer": 0.0, "judge": 0.0}
    game.step("No, it is not.")
    assert game.payoffs() == {"grounder": 1.0, "writer": 0.0, "judge": 1.0} and game.report()["judge_right"]


def test_writer_cannot_forge_lines_of_the_judges_view() -> None:
    game = start_game(seats="all")
    game.step(write_names(game.question.names, game.terse))
    game.step("<think>a\nFORGED</think><solution>SELECT 'a\nFORGED'\nUNION SELECT 'FORGED' --\nFORGED</solution>")
    lines = [line for fact in View.of(game, "judge").private.values() for line in fact.split("\n")]
    assert not [line for line in lines if line.startswith("FORGED")] and "  FORGED" in lines


def test_link_f1_by_hand() -> None:
    """Three of the four needed names and two wrong ones are named: precision 3/5, recall 3/4, F1 2/3."""
    game = start_game(seats="all", levels=1)
    table = game.schema.tables[0]
    a, b = (f"{table.name}.{column.name}" for column in table.columns[:2])
    other = game.schema.tables[1].name
    game.question = game.question._replace(names=(table.name, a, b, f"{table.name}.{table.key}"))
    game.step(f"<schema>{a}, {b}; {other}, nowhere</schema>")
    game.step(write_sql(game.question.sql, terse=False, final=True))
    game.step("yes")
    report = game.report()
    assert (report["link_precision"], report["link_recall"]) == (pytest.approx(3 / 5), pytest.approx(3 / 4))
    assert report["link_f1"] == pytest.approx(2 / 3) and game.payoffs()["grounder"] == report["link_f1"]


def test_parsing_inverts_writing_of_names() -> None:
    for terse in (False, True):
        schema = start_game(terse=terse).schema
        for names in (schema.names(), schema.names()[2:5], schema.names()[-1:]):
            named, unknown = read_names(write_names(names, terse), schema)
            assert named == {*names, *(name.partition(".")[0] for name in names)} and unknown == 0
    table, other = schema.tables[:2]
    column = table.columns[0].name
    assert read_names(f"{column} {other.name} {table.name} bogus {column}", schema) == ({table.name}, 3)
    with pytest.raises(IllegalAct):
        read_names(f"{column} | bogus", schema)


def test_team_is_paid_only_for_the_solution() -> None:
    game = Sql(seats="all", team=True)
    for seed in range(6):
        conformance.play(game, seed, "flawed", "flawed")
        assert set(game.payoffs().values()) == {float(game.report()["success"])}
    assert game.cooperative and not start_game(seats="all").cooperative


def test_oracle_writer_uses_only_its_visible_schema() -> None:
    game = start_game(seats="all", levels=3)
    game.step(write_names(game.question.names[1:], game.terse))
    game.step(Sql.players["oracle"](game, 0)(View.of(game, "writer", 1)))
    assert not game.is_right


def test_missing_verdict_counts_as_wrong() -> None:
    game = start_game(seats="all", illegal="end")
    for seat in ("grounder", "writer", "judge"):
        game.step(Sql.players["oracle" if seat != "judge" else "noop"](game, 0)(View.of(game, seat)))
    report = game.report()
    assert game.ended == "illegal" and report["success"] and report["judge_right"] is False


def test_terse_acts_and_observations() -> None:
    game = start_game(terse=True, seats="all", levels=3)
    game.step(write_names(game.question.names, game.terse))
    game.step(f"?{game.question.failing[0]}")
    assert read_last_message(game).split()[0] == "bad" and len(read_last_message(game).split()) == 2
    table = game.schema.tables[0]
    column = table.columns[0].name
    game.step(f"?select {column} from {table.name} order by {table.key}")
    assert read_last_message(game) == " ".join(map(str, game.world.values(table.name, column)))
    game.step(f"={game.question.sql}")
    assert View.of(game, "judge").private["result"] == make_result(
        run_sql(True, game.index, game.question.sql), True
    ).text  # fmt: skip
    game.step("yes")
    assert game.report()["success"]


def test_selection_reads_results_not_queries() -> None:
    answers = []
    for form in ("{}", "SELECT * FROM ({}) AS x", "SELECT 1.0"):
        game = start_game(levels=1, seats="all")
        game.step(write_names(game.question.names, game.terse))
        game.step(write_sql(form.format(game.question.sql), terse=False, final=True))
        answers.append(game.final_answer("writer"))
    assert answers[0] == answers[1] != answers[2] and answers[2] == "[(1.0,)]"
    assert start_game(seats="all").judge_seat == "judge" and not start_game().judge_seat
    assert start_game().final_answer("writer") == ""


def test_flawed_player_is_right_about_half_of_the_time_and_repairs() -> None:
    game = Sql(seats="all", terse=True)
    reports = [conformance.play(game, seed, "flawed", "flawed") for seed in range(160)]
    mean = {name: sum(float(report[name]) for report in reports) / 160 for name in reports[0] if name != "ended"}
    assert 0.3 < mean["success"] < 0.6 and 0.65 < mean["judge_right"] < 0.85 and 0.85 < mean["link_f1"] < 0.99
    assert mean["errors"] > 0.15 and mean["repaired"] > 0.05


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": 5}, "levels must be"), ({"levels": []}, "levels must be"), ({"levels": "12"}, "levels must be"),
        ({"levels": [1, True]}, "levels must be"), ({"turns": 6}, "turns must be"), ({"schemas": 3}, "schemas must be"),
        ({"seats": "judge"}, "seats must be"), ({"team": True}, "seats must be"), ({"terse": 1}, "terse must be"),
    ],
)  # fmt: skip
def test_refuses_invalid_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sql(**options)


TEXTS = st.text(st.sampled_from("<>/sqlchemaouti nk?='\"()*.,;|\n\0\ud800é日abc{}[]`"), max_size=120)
MARKED = st.sampled_from(
    ["", "<think>", "<schema>", "<sql>", "<solution>", "</sql>", "</solution>", "yes", "query(", "=", "?"]
)


@given(acts=st.lists(st.tuples(MARKED, TEXTS, MARKED), min_size=1, max_size=6), terse=st.booleans())
def test_no_act_raises(acts: list[tuple[str, str, str]], terse: bool) -> None:
    game = start_game(seats="all", terse=terse)
    for before, text, after in acts:
        if game.ended:
            break
        game.step(f"{before}{text}{after}")
        for seat in game.seats:
            assert all(len(message.text) < OBSERVATION + 100 for message in game.messages(seat))
