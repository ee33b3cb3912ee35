"""A run folder as pandas frames."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from made_run import make_run

import analysis
from analysis.frames import MATCH_COLUMNS, TURN_COLUMNS
from arena.store.files import StoreError
from arena.store.run import RunFolder


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
