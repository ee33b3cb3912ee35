"""A run folder as pandas frames."""

import subprocess
import sys
from dataclasses import replace
from functools import reduce
from itertools import chain
from operator import add
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import analysis
from analysis.frames import MATCH_COLUMNS, TURN_COLUMNS
from arena.errors import StoreError
from arena.records import MatchRecord, trajectories
from arena.store.lines import LogError
from arena.store.reader import RunReader
from arena.store.run import RunFolder
from tests.analysis.made_run import make_run, match


def test_a_live_run_is_read_whole(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    run = analysis.load(tmp_path / "run")
    assert run.iterations.columns.tolist() == ["iteration", "reward.opener", "kl", "note", "valid_rate"]
    assert run.iterations["reward.opener"].tolist() == [0.0, 1.0]
    assert len(run.matches) == 12 and len(run.turns) == 3 * (3 * 2 + 1)
    assert tuple(run.matches.columns[: len(MATCH_COLUMNS)]) == MATCH_COLUMNS
    assert tuple(run.turns.columns[: len(TURN_COLUMNS)]) == TURN_COLUMNS


def test_matches_hold_payoffs_and_report(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    matches = analysis.load(tmp_path / "run").matches.set_index("id")
    won = matches.loc["0001-0002"]
    assert (won["payoff.opener"], won["payoff.responder"], won["turns"]) == (3.0, 7.0, 2)
    assert won["report.end"] == "accept" and won["started"] == pd.Timestamp("2026-01-01T00:00:00.250Z")
    failed = matches.loc["0001-0003"]
    assert failed["reason"].startswith("time limit") and pd.isna(failed["payoff.opener"])
    assert matches["report.deal"].dtype == "boolean" and matches["report.deal"].mean() == pytest.approx(2 / 3)


def test_turns_hold_rewards_and_credit(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    turns = analysis.load(tmp_path / "run").turns.set_index(["match", "index"])
    credited, waiting = turns.loc[("0001-0002", 1)], turns.loc[("0002-0002", 1)]
    failed = turns.loc[("0001-0003", 0)]
    assert (credited["reward.deal"], credited["reward.illegal"], credited["reward"]) == (7.0, -1.0, 6.0)
    assert credited["advantage"] == 0.125 and not credited["valid"] and credited["role"] == "the_responder"
    assert waiting["reward"] == 5.0 and pd.isna(waiting["advantage"])
    assert pd.isna(failed["advantage"]) and failed["reward.illegal"] == 0.0
    assert turns["valid"].dtype == bool and turns["reward.deal"].dtype == "float64"


def test_a_run_that_has_not_played_yet_has_empty_frames(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", "a: 1\n", {})
    run = analysis.load(str(tmp_path / "run"))
    assert run.iterations.empty and run.matches.empty and run.turns.empty
    assert tuple(run.turns.columns) == TURN_COLUMNS and tuple(run.matches.columns) == MATCH_COLUMNS


def test_empty_frames_have_the_types_of_full_ones(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "empty", "a: 1\n", {})
    make_run(tmp_path / "full")
    empty, full = analysis.load(tmp_path / "empty"), analysis.load(tmp_path / "full")
    assert empty.turns.dtypes.equals(full.turns.dtypes[list(TURN_COLUMNS)])
    plain = [name for name in MATCH_COLUMNS if name != "started"]
    assert empty.matches.dtypes[plain].equals(full.matches.dtypes[plain])


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
def records(draw: st.DrawFn, iteration: int, number: int) -> MatchRecord:
    """A match of any of the games, failed or finished."""
    game = draw(st.sampled_from(sorted(GAMES)))
    seats, names, report = GAMES[game]
    made, failed = match(iteration, number), draw(st.booleans())
    turns = [
        made.turns[0]._replace(
            index=index,
            seat=draw(st.sampled_from(seats)),
            raw=draw(st.text(max_size=5)),
            valid=draw(st.booleans()),
            rewards=draw(st.dictionaries(st.sampled_from(names), NUMBERS) if names else st.just({})),
            seconds=draw(st.floats(0, 9)),
        )
        for index in range(draw(st.integers(0, 4)) if seats else 0)
    ]
    return replace(
        made,
        game=game,
        seed=draw(st.sampled_from([0, 2**63 - 1, 2**64 - 1])),
        seats={seat: made.seats["opener"] for seat in seats},
        status="failed" if failed else "finished",
        payoffs={} if failed else {seat: draw(NUMBERS) for seat in seats},
        report={} if failed else draw(st.fixed_dictionaries(report)),
        turns=tuple(turns),
        streams={},
        started=draw(st.sampled_from(["2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00.250+00:00"])),
    )


@st.composite
def iterations(draw: st.DrawFn) -> list[tuple[bool, bool, list[MatchRecord]]]:
    """Of each iteration: whether it is sealed, whether credited, and its matches in the order in which they ended."""
    played = [[draw(records(k, n)) for n in range(draw(st.integers(0, 4)))] for k in range(draw(st.integers(0, 3)))]
    return [(draw(st.booleans()), draw(st.booleans()), draw(st.permutations(each))) for each in played]


def write(path: Path, log: list[tuple[bool, bool, list[MatchRecord]]]) -> None:
    """A run folder with this log."""
    run = RunFolder.create(path, "a: 1\n", {})
    for iteration, (sealed, credited, played) in enumerate(log):
        run.log.extend(played)
        if played and sealed:
            run.log.seal(iteration)
        if credited:
            found = [one for record in played for one in trajectories(record)]
            worth = [[turn.seconds - 1 for turn in one.turns] for one in found]
            run.log.write_credit(iteration, (one.credited(w, w) for one, w in zip(found, worth, strict=True)))
    run.log.close()


def by_rows(path: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The matches and turns of a run, one Python dictionary after the other."""
    reader = RunReader(path)
    rows = list(reader.matches())
    credit = {(c.match, c.turn): (c.reward, c.advantage) for k in reader.iterations() for c in reader.credit(k)}
    matches, turns = [], []
    for row in rows:
        ends = chain(_named("payoff", row["payoffs"]), _named("report", row["report"]))
        matches.append({name: row[name] for name in MATCH_COLUMNS} | {"turns": len(row["turns"])} | dict(ends))
        for turn in row["turns"]:
            plain = (reduce(add, turn["rewards"].values(), 0.0), float("nan"))
            reward, advantage = credit.get((row["id"], turn["index"]), plain)
            known = {"match": row["id"], "iteration": row["iteration"], "reward": reward, "advantage": advantage}
            cells = {name: (turn | known)[name] for name in TURN_COLUMNS}
            turns.append(cells | dict(_named("reward", turn["rewards"])))
    frame, made = _frame(matches, MATCH_COLUMNS), _frame(turns, TURN_COLUMNS)
    parts = {name: made[name].fillna(0.0) for name in made.columns if name.startswith("reward.")}
    return frame.assign(started=pd.to_datetime(frame["started"], format="ISO8601", utc=True)), made.assign(**parts)


def _named(kind: str, values: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(f"{kind}.{name}", value) for name, value in values.items()]


def _frame(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=list(dict.fromkeys([*columns, *chain.from_iterable(rows)])))
    truths = [name for name in frame if {*map(type, frame[name].dropna())} == {bool} and frame[name].dtype == object]
    return frame.astype(dict.fromkeys(truths, "boolean"))


@given(iterations())
@settings(max_examples=50, deadline=None)
def test_any_log_makes_the_frames_that_its_rows_make(
    tmp_path_factory: pytest.TempPathFactory, log: list[tuple[bool, bool, list[MatchRecord]]]
) -> None:
    path = tmp_path_factory.mktemp("any") / "run"
    write(path, log)
    run = analysis.load(path)
    for frame, known in zip((run.matches, run.turns), by_rows(path), strict=True):
        # A frame without rows has types all the same.
        pd.testing.assert_frame_equal(frame, known, check_exact=True, check_dtype=len(known) > 0)


def test_a_damaged_log_is_told_in_one_line(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    for name, reason in (("0002.jsonl", ":1: this line is damaged"), ("0001.parquet", "cannot be read")):
        whole = (run.log.folder / name).read_bytes()
        (run.log.folder / name).write_bytes(whole.replace(b"{", b"#", 1) if name.endswith("l") else whole[:-9])
        with pytest.raises(LogError, match=f"{name}.*{reason}"):
            analysis.load(run.path)
        (run.log.folder / name).write_bytes(whole)
    analysis.load(run.path)


def test_what_is_no_run_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"is not a run folder: it has no config\.yaml$"):
        analysis.load(tmp_path)
    with pytest.raises(StoreError, match="there is no folder"):
        analysis.load(tmp_path / "nowhere")


def test_neither_torch_nor_the_players_nor_matplotlib_are_loaded(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    code = """if True:
        import analysis, analysis.plots, analysis.stats, sys
        analysis.load(sys.argv[1])
        heavy = {"torch", "transformers", "agents", "games", "matplotlib", "IPython"}
        assert not heavy & {name.split(".")[0] for name in sys.modules}
    """
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], check=True)
