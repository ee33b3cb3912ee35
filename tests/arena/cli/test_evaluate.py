"""`arena eval`, `arena tournament`, `arena exploit` as a user types them."""

import io
import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console

from arena.cli.show_evaluate import shorten_names, show_exploitabilities
from arena.evaluate import evaluation
from arena.evaluate.exploitability import Exploitability
from arena.evaluate.played import MatchOutcome, read_outcome
from arena.play.match import Limits
from arena.play.settings import GameSpec
from arena.records import MatchRecord
from tests.factories.commands import arena, get_refusal
from tests.factories.kept_run import make_checkpointed_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_checkpointed_run(tmp_path / "run", _3="nano-3", _7="nano-7")


def test_eval_of_several_games(tmp_path: Path) -> None:
    out = tmp_path / "eval.json"
    games = "kuhn_poker,tiny_hanabi,maze"
    command = ["eval", "random", "--game", games, "--against", "first_legal", "--matches", "10"]
    result = arena(*command, "--json", "--out", out)
    assert result.code == 0, result.err
    data = json.loads(result.out)
    assert json.loads(out.read_text()) == data
    assert [(r["game"], r["against"], r["matches"]) for r in data["results"]] == [
        ("kuhn_poker", "first_legal", 10), ("tiny_hanabi", "first_legal", 10), ("maze", None, 10)
    ]  # fmt: skip
    assert [r["scored"] is None for r in data["results"]] == [False, True, True]


def test_games_of_one_seat_have_no_opponents() -> None:
    result = arena("eval", "random", "--game", "kuhn_poker,maze", "--against", "nash", "--matches", "2")
    assert result.code == 0 and "alone" in result.out


def test_commas_within_brackets_are_part_of_a_game() -> None:
    result = arena(
        "eval", "random", "--game", "openspiel:oh_hell(players=3,num_suits=2),nim", "--matches", "2", "--json"
    )
    assert result.code == 0, result.err
    assert [r["game"] for r in json.loads(result.out)["results"]] == ["openspiel:oh_hell(players=3,num_suits=2)", "nim"]


def test_eval_without_opponents_picks_them() -> None:
    result = arena("eval", "nash", "--game", "kuhn_poker", "--matches", "4")
    assert result.code == 0 and "random" in result.out
    result = arena("eval", "random", "--game", "tiny_hanabi", "--matches", "4")
    assert result.code == 0 and "itself" in result.out


CLINIC = """\
name: clinic
iterations: 1
game: {name: clinic, options: {terse: true, diseases: 6, symptoms: 12, budget: [2, 3], split: train}}
policies: {doctor: {model: nano}}
seats: {doctor: {role: nano_doctor, policy: doctor}}
"""


@pytest.mark.parametrize(
    "command",
    [
        ["eval", "noop", "--game", "clinic", "--matches", "2"],
        ["tournament", "oracle", "nano", "--game", "clinic", "--option", "person=render", "--matches", "2"],
        ["matrix", "noop", "--game", "clinic", "--persons", "terse", "--tasks", "2", "--trials", "1"],
    ],
    ids=lambda command: command[0],
)
def test_evaluation_uses_the_test_split(command: list[str], tmp_path: Path) -> None:
    result = arena(*command, "--out", tmp_path / "out.json")
    assert result.code == 0, result.err
    assert "split=test" in result.out
    data = json.loads((tmp_path / "out.json").read_text())
    assert data.get("options", data.get("results", [{}])[0].get("options"))["split"] == "test"
    assert "split=train" in arena(*command, "--split", "train").out
    assert "split=all" in arena(*command, "--option", "split=all").out


def test_run_of_the_train_split_is_evaluated_on_the_test_split(tmp_path: Path) -> None:
    run = make_checkpointed_run(tmp_path / "run", CLINIC, _3="nano-3")
    result = arena("eval", run, "--game", "clinic", "--matches", "2")
    assert result.code == 0 and "split=test" in result.out and result.err == ""
    seen = make_checkpointed_run(tmp_path / "all", CLINIC.replace("train", "all"), _3="nano-3")
    result = arena("eval", seen, "--game", "clinic", "--matches", "2")
    assert result.code == 0 and "it may have seen these deals" in result.err


def test_split_is_given_once_and_only_if_the_game_has_splits() -> None:
    assert "kuhn_poker has no splits" in get_refusal("eval", "random", "--game", "kuhn_poker", "--split", "test")
    twice = get_refusal("eval", "noop", "--game", "clinic", "--split", "test", "--option", "split=all")
    assert "--split and --option split" in twice
    assert "split must be" in get_refusal("eval", "noop", "--game", "clinic", "--split", "dev")


def test_before_and_after(run: Path) -> None:
    result = arena("eval", run, "--game", "kuhn_poker", "--matches", "2", "--before", "--json")
    assert result.code == 0, result.err
    data = json.loads(result.out)
    (before,), (after,), (change,) = data["before"], data["results"], data["changes"]
    assert (before["contender"], after["contender"]) == (f"{run}@0", str(run))
    assert after["options"] == {"illegal": "end", "penalty": 2}, "as it was trained"
    for name, (estimate, *_) in change["figures"].items():
        assert estimate == pytest.approx(after["figures"][name][0] - before["figures"][name][0]), name
    result = arena("eval", run, "--game", "kuhn_poker", "--matches", "2", "--before", "--option", "illegal=retry")
    assert result.code == 0 and "difference" in result.out and "illegal=retry" in result.out


def test_tournament_with_a_picture(tmp_path: Path) -> None:
    picture = tmp_path / "standings.png"
    command = ["tournament", "random", "nash", "first_legal", "--game", "kuhn_poker", "--matches", "20"]
    result = arena(*command, "--plot", picture)
    assert result.code == 0, result.err
    assert picture.read_bytes().startswith(b"\x89PNG")
    for words in ("60 matches, 10 deals per pair", "Elo", "rotational part", "payoff of row against column"):
        assert words in result.out
    data = json.loads(arena("tournament", "random", "nash", "--game", "kuhn_poker", "--matches", "4", "--json").out)
    assert {row["contender"] for row in data["standings"]} == {"random", "nash"}


def test_plot_without_matplotlib_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    table = ["tournament", "random", "nash", "--game", "kuhn_poker", "--matches", "4"]
    result = arena(*table)
    assert result.code == 0, result.err
    line = arena(*table, "--plot", tmp_path / "x.png")
    assert line.code == 2 and "pip install 'arena-selfplay[analysis]'" in line.line


def test_names_show_in_any_terminal_width() -> None:
    gains = {"first": 0.25, "second": 0.5}
    found = Exploitability(0.75, gains, {"first": -0.125, "second": 0.125}, 0.875, 12)
    for width in (20, 60, 80, 200):
        file = io.StringIO()
        console = Console(file=file, width=width, force_terminal=True, color_system=None)
        show_exploitabilities(console, GameSpec(name="kuhn_poker"), {f"runs/{'long' * 9}@12": found, "nash": found})
        shown = [line[:12].rstrip() for line in file.getvalue().splitlines()]
        assert "nash" in shown and "longlonglong" in shown
        assert file.getvalue().count("0.2500 / 0.5000") == 2, "figures are never folded"


def test_paths_are_shortened_if_still_distinct() -> None:
    assert shorten_names(["runs/a@3:x", "nash", "endpoint:org/m"]) == {
        "runs/a@3:x": "a@3:x", "nash": "nash", "endpoint:org/m": "endpoint:org/m"
    }  # fmt: skip
    assert shorten_names(["one/a", "two/a"]) == {"one/a": "one/a", "two/a": "two/a"}
    own, same, endless = "games/mine.py:greedy", "yours.py:greedy", f"x/{'y' * 500}"
    assert shorten_names(iter([own, "nash"])) == {own: "greedy", "nash": "nash"}
    assert shorten_names(iter([own, same])) == {own: "mine.py:greedy", same: same}
    assert len(shorten_names([endless])[endless]) == 40
    assert shorten_names([endless, endless + "y"])[endless] == endless, "shortened they would be equal"


def test_exploit_with_a_history(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "exploit.json"
    result = arena("exploit", run, "random", "nash", "--game", "kuhn_poker", "--history", "--out", out)
    assert result.code == 0, result.err
    rows = json.loads(out.read_text())["contenders"]
    assert [row["contender"] for row in rows] == [f"{run}@0", f"{run}@3", f"{run}@7", "random", "nash"]
    assert rows[3]["nash_conv"] == pytest.approx(11 / 12) and rows[4]["nash_conv"] == pytest.approx(0, abs=1e-9)
    assert len({row["nash_conv"] for row in rows}) == 5 and all(row["states"] == 12 for row in rows)
    assert "12 information states" in result.out and "NashConv" in result.out and "0.9167" in result.out


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["eval", "randm", "--game", "kuhn_poker"], "did you mean 'random'"),
        (["eval", "random", "--game", "kuhn_pokr"], "did you mean 'kuhn_poker'"),
        (["eval", "random", "--game", "kuhn_poker", "--against", "firstlegal"], "did you mean 'first_legal'"),
        (["eval", "random", "--game", "kuhn_poker", "--option", "illegal"], "write A=B"),
        (["eval", "random", "--game", "kuhn_poker", "--option", "illegal=maybe"], "illegal must be"),
        (["eval", "random", "--game", "kuhn_poker", "--before"], "has no first weights"),
        (["eval", "nano", "--game", "kuhn_poker", "--role", "playr"], "did you mean 'player'"),
        (["eval", "random", "--game", ","], "--game"),
        (["tournament", "random", "random", "--game", "kuhn_poker"], "named twice"),
        (["exploit", "random", "--game", "negotiation"], "not a game of OpenSpiel"),
        (["exploit", "tough", "--game", "kuhn_poker"], "tough"),
    ],
)
def test_bad_input_is_one_line(command: list[str], message: str) -> None:
    assert message in get_refusal(*command)


def test_ctrl_c_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, original = iter(range(20)), read_outcome

    def interrupt_at_fourth(record: MatchRecord, learned: Mapping[str, float]) -> MatchOutcome:
        if next(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return original(record, learned)

    monkeypatch.setattr(evaluation, "read_outcome", interrupt_at_fourth)
    command = ["eval", "random", "--game", "kuhn_poker", "--against", "nash", "--matches", "20"]
    result = arena(*command, "--out", tmp_path / "o.json")
    assert (result.code, result.err, list(tmp_path.iterdir())) == (130, "arena: interrupted; nothing was written\n", [])


def test_a_match_that_keeps_failing_ends_the_evaluation_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "LIMITS", Limits(turns=3))
    result = arena("eval", "random", "--game", "tic_tac_toe", "--against", "first_legal", "--matches", "2")
    assert result.code == 1 and "failed 3 times" in result.line and "turn limit" in result.line
