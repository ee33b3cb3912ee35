"""Run folders as tables, compared cell by cell with a plain row-by-row reader."""

import subprocess
import sys
from dataclasses import replace
from datetime import datetime
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import analysis
from agents.stream import Stream
from analysis.columns import RUN_COLUMNS, TABLES, doc
from analysis.frames import to_array
from arena.errors import ConfigError, StoreError
from arena.records import MatchRecord, trajectories
from arena.store.lines import LogError
from arena.store.reader import LogReader, RunReader
from arena.store.run import RunFolder
from games.contracts import Image, Message
from tests.factories.made_run import make_match, make_run


def test_live_run_is_read_completely(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    log = analysis.load(tmp_path / "run")
    assert log.iterations.columns.tolist() == ["run", "iteration", "reward.opener", "kl", "note", "valid_rate"]
    assert log.iterations["reward.opener"].tolist() == [0.0, 1.0]
    sizes = {name: len(getattr(log, name)) for name in TABLES}
    assert sizes == {"runs": 1, "iterations": 2, "matches": 12, "seats": 24, "turns": 21, "messages": 21, "tokens": 48}


def test_every_column_is_one_of_those_that_are_described(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    log = analysis.load(tmp_path / "run")
    for name, schema in TABLES.items():
        table = log.table(name)
        known = pa.schema([field.remove_metadata() for field in schema])
        assert pa.schema(list(table.schema)[: len(known)]).equals(known), name
        grown = RUN_COLUMNS.get(name, ("", ""))[0].rstrip("…")
        assert name in RUN_COLUMNS or len(table.schema) == len(known)
        assert all(column.startswith(grown) for column in table.column_names[len(known) :])
        assert all(dtype.kind for dtype in getattr(log, name).dtypes) and all(map(doc, schema))


def test_matches_hold_the_report_and_seats_the_payoffs(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    log = analysis.load(tmp_path / "run")
    matches, seats = log.matches.set_index("match"), log.seats.set_index(["match", "seat"])
    won = matches.loc["0001-0002"]
    assert won["report.end"] == "accept" and won["started"] == pd.Timestamp("2026-01-01T00:00:00.250Z")
    assert won["turns"] == 2 and won["run"] == "run"
    assert (
        seats.loc[("0001-0002", "opener"), "payoff"] == 3.0 and seats.loc[("0001-0002", "responder"), "payoff"] == 7.0
    )
    rows: dict[Any, Any] = seats.to_dict("index")
    opener, stopped = rows["0001-0002", "opener"], matches.loc["0001-0003"]
    assert [opener[name] for name in ("role", "trained", "kind")] == ["the_opener", True, "model"]
    assert str(stopped["reason"]).startswith("time limit")
    assert pd.isna(rows["0001-0003", "opener"]["payoff"]) and pd.isna(stopped["report.deal"])
    assert matches["report.deal"].mean() == pytest.approx(2 / 3)


def test_turns_hold_rewards_and_credit(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    turns: dict[Any, Any] = analysis.load(tmp_path / "run").turns.set_index(["match", "turn"]).to_dict("index")
    credited, waiting, failed = turns["0001-0002", 1], turns["0002-0002", 1], turns["0001-0003", 0]
    assert (credited["reward.deal"], credited["reward.illegal"], credited["reward"]) == (7.0, -1.0, 6.0)
    assert credited["advantage"] == 0.125 and not credited["valid"] and credited["role"] == "the_responder"
    assert waiting["reward"] == 5.0 and pd.isna(waiting["advantage"])
    assert pd.isna(failed["advantage"]) and failed["reward.illegal"] == 0.0


def test_messages_and_tokens_are_those_that_were_read_and_sampled(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    log = analysis.load(tmp_path / "run")
    messages = log.messages[log.messages["match"] == "0001-0002"]
    assert messages[["turn", "seat", "place", "sender", "text"]].to_numpy().tolist() == [
        [0, "opener", 0, "referee", "Your turn."],
        [1, "responder", 0, "referee", "Your turn."],
    ]
    tokens = log.table("tokens", ["seat", "segment", "place", "turn", "id", "sampled", "logprob"]).slice(0, 2)
    assert tokens.to_pylist() == [
        {"seat": "opener", "segment": 0, "place": 0, "turn": None, "id": 1, "sampled": False, "logprob": None},
        {"seat": "opener", "segment": 0, "place": 1, "turn": 0, "id": 2, "sampled": True, "logprob": -0.5},
    ]


def test_filters_exclude_other_rows(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    few = analysis.load(tmp_path / "run", iterations=[1, 2], seats=["opener"], policies=["shared"])
    assert few.matches["iteration"].unique().tolist() == [1, 2] and few.iterations["iteration"].tolist() == [1]
    for name in ("seats", "turns", "messages", "tokens"):
        assert getattr(few, name)["seat"].unique().tolist() == ["opener"], name
    for none in (
        analysis.load(few.readers["run"].path, games=["chess"]),
        analysis.load(tmp_path / "run", iterations=[7]),
    ):
        assert {len(getattr(none, name)) for name in ("matches", "seats", "turns", "messages", "tokens")} == {0}
    assert few.frame("turns", ["action"])["action"].tolist() == ["OFFER 1 0 2"] * 8
    strangers = analysis.load(tmp_path / "run", policies=["nobody"])
    assert (
        len(strangers.matches) == 12 and strangers.turns.empty and strangers.tokens.empty and strangers.messages.empty
    )


@pytest.mark.parametrize("option", ["games", "seats", "policies"])
def test_a_bare_name_is_no_list_of_names(tmp_path: Path, option: str) -> None:
    with pytest.raises(ConfigError, match=rf"{option} takes a list of names: write {option}=\['opener'\]"):
        analysis.load(make_run(tmp_path / "run").path, **{option: "opener"})  # type: ignore[arg-type]


def test_only_the_columns_that_are_asked_for_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "run")
    requests: list[set[str]] = []
    known = LogReader.table
    monkeypatch.setattr(
        LogReader, "table", lambda self, k, columns: requests.append({*columns}) or known(self, k, columns)
    )
    frame = analysis.load(tmp_path / "run").frame("turns", ["role", "reward.deal"])
    assert frame.columns.tolist() == ["role", "reward.deal"]
    assert set().union(*requests) == {"id", "iteration", "game", "turns.index", "turns.role", "turns.rewards"}


def test_several_runs_share_the_tables(tmp_path: Path) -> None:
    paths = [tmp_path / "a" / "run", tmp_path / "b" / "run", tmp_path / "other"]
    for path in paths:
        make_run(path)
    log = analysis.load(paths)
    assert log.runs["run"].tolist() == [str(path) for path in paths]
    assert log.turns.groupby("run").size().tolist() == [21, 21, 21]
    assert analysis.load(paths[1:]).runs["run"].tolist() == ["run", "other"]
    with pytest.raises(StoreError, match="is given twice: remove one"):
        analysis.load([paths[0], paths[0]])
    with pytest.raises(StoreError, match="no run to load"):
        analysis.load([])


def test_a_run_that_has_not_played_yet_has_empty_tables(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", "a: 1\n", {})
    log = analysis.load(str(tmp_path / "run"))
    for name, schema in TABLES.items():
        assert log.table(name).schema.names == schema.names and len(log.table(name)) == (name == "runs")


def test_runs_table_has_the_experiment(tmp_path: Path) -> None:
    about = {"commands": [{"time": "2026-01-01T00:00:00+00:00"}], "versions": {"arena-selfplay": "0.1.0"}}
    experiment = {"learn": {"lr": 3e-4}, "seed": 1, "roles": None, "stages": ["a"]}
    RunFolder.create(tmp_path / "run", "a: 1\n", about | {"experiment": experiment})
    (row,) = analysis.load(tmp_path / "run").runs.to_dict("records")
    assert row["config.learn.lr"] == 3e-4 and row["config.stages"] == '["a"]' and row["config.seed"] == 1
    assert row["started"] == pd.Timestamp("2026-01-01", tz="UTC") and row["arena"] == "0.1.0"


@pytest.mark.parametrize(
    ("name", "columns", "line"),
    [
        ("turn", None, "there is no table 'turn' — did you mean 'turns'?"),
        ("turns", ["advantag"], "turns has no column 'advantag' — did you mean 'advantage'?"),
        ("matches", ["report.del"], "matches has no column 'report.del' — did you mean 'report.deal'?"),
    ],
)
def test_unknown_names_suggest_the_nearest(tmp_path: Path, name: str, columns: list[str] | None, line: str) -> None:
    make_run(tmp_path / "run")
    with pytest.raises(StoreError) as error:
        analysis.load(tmp_path / "run").table(name, columns)
    assert str(error.value).startswith(line)


# Against reading row by row

GAMES: dict[str, Any] = {
    "haggle": (("opener", "responder"), ("deal", "illegal"), {"deal": st.booleans(), "end": st.text(max_size=3)}),
    "quiz": (("solver",), ("richtig", "größe", "deal"), {"deal": st.floats(-9, 9), "solved": st.booleans()}),
    "coin": (("x", "o"), (), {"heads": st.integers(0, 9)}),
    "mute": ((), (), {}),
}
"""Seats, names of rewards, and report of each game."""
NUMBERS = st.floats(-1e9, 1e9)


@st.composite
def draw_streams(draw: st.DrawFn) -> Stream:
    """Draw a stream of a few tokens, some of them sampled."""
    stream, measured = Stream(), draw(st.booleans())
    for turn in range(draw(st.integers(0, 2))):
        stream.observe(draw(st.lists(st.integers(0, 99), max_size=3)))
        size = draw(st.integers(0, 3))
        logprobs = draw(st.lists(st.sampled_from([-0.5, 0.0]), min_size=size, max_size=size))
        stream.append_sampled([7] * size, logprobs, turn, [0.25 * turn] * size if measured else None)
    return stream


IMAGE = Image("ab" * 32, "image/png", 3, 4)
messages = st.builds(Message.of, st.just("x"), st.text(max_size=3), st.lists(st.just(IMAGE), max_size=2))


@st.composite
def draw_records(draw: st.DrawFn, iteration: int, number: int) -> MatchRecord:
    """Draw a match of any game, failed or finished."""
    game = draw(st.sampled_from(sorted(GAMES)))
    seats, names, report = GAMES[game]
    record, failed = make_match(iteration, number), draw(st.booleans())
    turns = [
        record.turns[0]._replace(
            index=index,
            seat=draw(st.sampled_from(seats)),
            raw=draw(st.text(max_size=5)),
            valid=draw(st.booleans()),
            rewards=draw(st.dictionaries(st.sampled_from(names), NUMBERS) if names else st.just({})),
            seconds=draw(st.floats(0, 9)),
            messages=tuple(draw(st.lists(messages, max_size=2))),
            source=draw(st.sampled_from(["policy", "patch"])),
        )
        for index in range(draw(st.integers(0, 4)) if seats else 0)
    ]
    return replace(
        record,
        identity=record.identity.branch(2) if draw(st.booleans()) else record.identity,
        group=draw(st.sampled_from([-1, 4])),
        stage=draw(st.sampled_from(["", "train"])),
        source=draw(st.sampled_from(["played", "branched"])),
        game=game,
        seed=draw(st.sampled_from([0, 2**63 - 1, 2**64 - 1])),
        seats={seat: record.seats["opener"] for seat in seats},
        status="failed" if failed else "finished",
        payoffs={} if failed else {seat: draw(NUMBERS) for seat in seats},
        report={} if failed else draw(st.fixed_dictionaries(report)),
        turns=tuple(turns),
        streams={seat: (draw(draw_streams()),) for seat in seats},
        started=draw(st.sampled_from(["2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00.250+00:00"])),
    )


@st.composite
def draw_iterations(draw: st.DrawFn) -> list[tuple[bool, bool, list[MatchRecord]]]:
    """Draw iterations: whether sealed, whether credited, and the matches in order of completion."""
    matches = [
        [draw(draw_records(k, n)) for n in range(draw(st.integers(0, 4)))] for k in range(draw(st.integers(0, 3)))
    ]
    return [(draw(st.booleans()), draw(st.booleans()), draw(st.permutations(each))) for each in matches]


def write_run(path: Path, log: list[tuple[bool, bool, list[MatchRecord]]]) -> None:
    """Write a run folder with this log."""
    run = RunFolder.create(path, "a: 1\n", {})
    for iteration, (sealed, credited, played) in enumerate(log):
        run.log.extend(played)
        if played and sealed:
            run.log.seal(iteration)
        if credited:
            played_trajectories = [one for record in played for one in trajectories(record)]
            worth = [[turn.seconds - 1 for turn in one.turns] for one in played_trajectories]
            run.log.write_credit(
                iteration, (one.credited(w, w) for one, w in zip(played_trajectories, worth, strict=True))
            )
    run.log.close()


USUAL = {"group": -1, "parent": "", "parent_turn": -1, "stage": "", "source": "played"}
"""Of a match whose row does not say."""


def build_expected_tables(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the expected tables as lists of dictionaries."""
    reader = RunReader(path)
    credit = {(c.match, c.turn): (c.reward, c.advantage) for k in reader.iterations() for c in reader.credit(k)}
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in ("matches", "seats", "turns", "messages", "tokens")}
    for row in reader.matches():
        key = {"run": "run", "match": row["id"], "iteration": row["iteration"]}
        figures = {f"report.{name}": value for name, value in row["report"].items()}
        of_match = {"turns": len(row["turns"]), "started": datetime.fromisoformat(row["started"])}
        came = {name: row.get(name, usual) for name, usual in USUAL.items()} | {"deal": row["deal"]}
        fields = is_chosen(row, "game rules status reason attempt seed seconds")
        rows["matches"].append(key | fields | came | of_match | figures)
        for seat, seating in row["seats"].items():
            rows["seats"].append(key | {"seat": seat, "payoff": row["payoffs"].get(seat)} | seating)
        for turn in row["turns"]:
            at = key | {"turn": turn["index"]}
            plain = (reduce(add, turn["rewards"].values(), 0.0), None)
            reward, advantage = credit.get((row["id"], turn["index"]), plain)
            known = {"game": row["game"], "reward": reward, "advantage": advantage}
            named = {f"reward.{name}": value for name, value in turn["rewards"].items()}
            rows["turns"].append(
                {"source": "policy"}
                | at
                | is_chosen(turn, " ".join(turn.keys() - {"index", "messages", "rewards"}))
                | known
                | named
            )
            for position, message in enumerate(turn["messages"]):
                rows["messages"].append(at | {"seat": turn["seat"], "place": position, "images": []} | message)
        for seat, streams in row["streams"].items():
            for segment, stream in enumerate(streams):
                where = key | {"seat": seat, "segment": segment}
                entropies = stream.get("entropy") or [None] * len(stream["ids"])
                tokens = zip(stream["ids"], stream["mask"], stream["logprobs"], stream["turns"], entropies, strict=True)
                for position, (id, sampled, logprob, turn, entropy) in enumerate(tokens):
                    fields = {"logprob": logprob if sampled else None, "turn": turn if turn >= 0 else None}
                    fields["entropy"] = entropy if sampled else None
                    fields["advantage"] = credit.get((row["id"], turn), (None, None))[1] if sampled else None
                    fields |= {"ratio": None, "gap": None}
                    rows["tokens"].append(where | {"place": position, "id": id, "sampled": sampled} | fields)
    return rows


def is_chosen(row: dict[str, Any], names: str) -> dict[str, Any]:
    return {name: row[name] for name in names.split()}


@pytest.mark.slow
@given(draw_iterations())
def test_arbitrary_logs_match_the_reference_tables(
    tmp_path_factory: pytest.TempPathFactory, log: list[tuple[bool, bool, list[MatchRecord]]]
) -> None:
    path = tmp_path_factory.mktemp("any") / "run"
    write_run(path, log)
    frames = analysis.load(path)
    for name, known in build_expected_tables(path).items():
        columns = dict.fromkeys([*TABLES[name].names, *(column for row in known for column in row)])
        gaps = {column: 0.0 if column.startswith("reward.") else None for column in columns}
        table = frames.table(name)
        assert table.column_names == list(columns)
        assert table.to_pylist() == [gaps | row for row in known]


@given(st.lists(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)))
def test_mixed_values_share_one_column(values: list[Any]) -> None:
    column = to_array(values)
    assert len(column) == len(values) and [value is None for value in column.to_pylist()] == [v is None for v in values]
    if not any(isinstance(value, str) for value in values):
        assert all(
            a == b or float(a) == float(b) for a, b in zip(column.to_pylist(), values, strict=True) if b is not None
        )


def test_damaged_log_is_refused_in_one_line(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    for name, reason in (("0002.jsonl", ":1: this line is damaged"), ("0001.parquet", "cannot be read")):
        full = (run.log.folder / name).read_bytes()
        (run.log.folder / name).write_bytes(full.replace(b"{", b"#", 1) if name.endswith("l") else full[:-9])
        with pytest.raises(LogError, match=f"{name}.*{reason}"):
            _ = analysis.load(run.path).turns
        (run.log.folder / name).write_bytes(full)
    _ = analysis.load(run.path).turns


def test_refuses_non_run_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"is not a run folder: it has no config\.yaml$"):
        analysis.load(tmp_path)
    with pytest.raises(StoreError, match="there is no folder"):
        analysis.load(tmp_path / "nowhere")


def test_neither_torch_nor_the_players_nor_matplotlib_are_loaded(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    code = """if True:
        import analysis, analysis.plots, sys
        analysis.load(sys.argv[1]).turns
        # These read files and import nothing heavy.
        light = {"agents", "agents.cgroups", "games", "games.plain_files", "games.adapters"}
        light |= {"games.adapters.loading", "games.adapters.modules", "games.names"}
        heavy = {"torch", "transformers", "agents", "games", "matplotlib", "IPython"}
        assert not heavy & {name.split(".")[0] for name in sys.modules.keys() - light}
    """
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], check=True)
