"""Games whose seats are not rivals have no win rate, and commands say so."""

from pathlib import Path

import pytest

from arena.cli.show_evaluate import explain_no_win_rate
from arena.cli.summary import _list_figures, find_games_without_rivals
from arena.evaluate.evaluation import Result, make_game
from arena.play.settings import GameSpec
from tests.factories.commands import arena


def make_result(game: str, seats: tuple[str, ...], **options: object) -> Result:
    spec = GameSpec(name=game, options=options)
    return Result(
        game=spec,
        contender="runs/a",
        against="random",
        seats=seats,
        matches=1,
        figures={},
        scored=None,
        illegal={},
        ended={},
    )


def test_seats_are_rivals_in_games_but_not_in_simulators() -> None:
    assert not make_game(GameSpec(name="proposer_solver", options={})).rivals
    assert make_game(GameSpec(name="kuhn_poker", options={})).rivals
    assert "proposer and solver are not rivals" in explain_no_win_rate(
        [make_result("proposer_solver", ("proposer", "solver"))]
    )
    assert explain_no_win_rate([make_result("kuhn_poker", ("first", "second"))]) == ""
    assert explain_no_win_rate([make_result("maze", ("walker",))]) == "", "a single seat has no opponent"


def test_evaluation_without_rivals_explains_the_missing_win_rate() -> None:
    result = arena("eval", "oracle", "--game", "proposer_solver", "--against", "random", "--matches", "4")
    assert result.code == 0, result.err
    assert "a win rate is not meaningful" in result.out and "draw" not in result.out
    rivals = arena("eval", "random", "--game", "kuhn_poker", "--against", "nash", "--matches", "4")
    assert "not meaningful" not in rivals.out and "draw" in rivals.out


def test_summary_omits_win_rate_without_rivals() -> None:
    seats = {"solver": {"policy": "shared", "trained": True}, "proposer": {"policy": "random", "trained": False}}
    row = {"game": "a_game", "payoffs": {"solver": 1.0, "proposer": 0.0}, "report": {}, "seats": seats, "turns": []}
    simulated = {**row, "report": {"score": 1.0, "success": True}}
    assert "win rate against random" in [name for name, _ in _list_figures([row])]
    assert not any(name.startswith("win rate") for name, _ in _list_figures([simulated]))


def test_summary_lists_games_without_rivals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seats = {"solver": {"policy": "shared", "trained": True}, "proposer": {"policy": "random", "trained": False}}
    row = {"game": "clinic", "payoffs": {"a": 1.0, "b": 0.0}, "report": {"score": 1.0, "success": True}, "seats": seats}
    monkeypatch.setattr(
        "arena.cli.summary._read_end_matches", lambda run: [[row], [{**row, "game": "kuhn", "report": {}}]]
    )
    assert find_games_without_rivals(tmp_path) == ["clinic"]
