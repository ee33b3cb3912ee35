"""Evaluations: outcomes by hand, deals shared by all seats, intervals over deals, what failed."""

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import games
from arena.cli.loop import wait
from arena.errors import ConfigError, PlayError
from arena.evaluate import evaluation
from arena.evaluate.evaluation import Result, compute_change, count_matches, evaluate, list_lineups, play_lineups
from arena.evaluate.played import MatchOutcome
from arena.evaluate.specs import ContenderLoader
from arena.play.contenders import Contender
from arena.play.match import Limits
from arena.play.settings import GameSpec
from arena.statistics import rate_ci
from games.nim import Nim
from tests.factories.commands import arena
from tests.factories.kept_run import SEPARATE, SHARED, make_checkpointed_run

KUHN, TTT = GameSpec(name="kuhn_poker"), GameSpec(name="tic_tac_toe")


def load_contenders(*specs: str) -> list[Contender]:
    return wait(ContenderLoader().load(*specs))


def evaluate_pair(contender: str, against: str, game: GameSpec, matches: int = 40, seed: int = 0) -> Result:
    player, opponent = load_contenders(contender, against)
    (result,) = wait(evaluate(player, [opponent], game, matches, seed))
    return result


def compute_score(payoffs: dict[str, float], seats: list[str], offender: str = "") -> float:
    return MatchOutcome(payoffs, {}, {}, offender, {}).score(seats)


def test_outcomes_by_hand() -> None:
    assert [compute_score({"a": 2, "b": 1}, [seat]) for seat in "ab"] == [1.0, 0.0]
    assert [compute_score({"a": 1, "b": 1}, [seat]) for seat in "ab"] == [0.5, 0.5]
    assert [compute_score({"a": 3, "b": 3, "c": 0}, [seat]) for seat in "abc"] == [0.5, 0.5, 0.0]
    assert compute_score({"a": 0, "b": 2, "c": 2}, ["a"]) == 0.0
    # An illegal end: its author loses and no seat wins, regardless of payoffs.
    assert [compute_score({"a": -5, "b": 0}, [seat], "a") for seat in "ab"] == [0.0, 0.5]


def test_tokens_are_those_of_the_evaluated_seats() -> None:
    outcome = MatchOutcome({"a": 1, "b": 0}, {"a": 2, "b": 1}, {"a": 0, "b": 0}, "", {}, tokens={"a": 7, "b": 0})
    assert outcome.figures(["a"], False)["tokens"] == outcome.figures(["a", "b"], False)["tokens"] == 7
    assert "tokens" not in outcome.figures(["b"], False), "scripts sample none"


def test_every_seat_plays_the_same_deals() -> None:
    contender, opponent = load_contenders("random", "first_legal")
    seats = ("first", "second")
    tables = list_lineups(contender, opponent, "kuhn_poker", seats)
    assert [[t[s].name for s in seats] for t in tables] == [["random", "first_legal"], ["first_legal", "random"]]
    lineups = [{"first": opponent, "second": opponent}] * 2
    first, second = wait(play_lineups(lineups, KUHN, 30, 7))[0]
    first_payoffs, second_payoffs = ([p.payoffs for p in matches if p] for matches in (first, second))
    assert len(first_payoffs) == 30 and first_payoffs == second_payoffs, "one deal, one seed"
    assert len({tuple(payoffs.values()) for payoffs in first_payoffs}) > 1, "deals differ"
    assert [p.payoffs for p in wait(play_lineups(lineups[:1], KUHN, 30, 8))[0][0] if p] != first_payoffs


def test_run_is_evaluated_at_its_training_seats(tmp_path: Path) -> None:
    run = make_checkpointed_run(tmp_path / "run", SEPARATE, _9="nano-7")
    one_policy, other_policy, opponent = load_contenders(f"{run}:one", f"{run}:two", "random")
    seats = ("first", "second")
    assert list_own_seats(one_policy, opponent, "tic_tac_toe", seats) == ["first"], "the other seat was random's"
    assert list_own_seats(other_policy, opponent, "tic_tac_toe", seats) == ["first", "second"], (
        "it never played that game"
    )
    assert list_own_seats(other_policy, opponent, "negotiation", ("opener", "responder")) == ["responder"]
    (result,) = wait(evaluate(one_policy, [opponent], TTT, 4, 0))
    assert result.matches == 4 and len(result.figures["payoff"]) == 4 and result.scored is not None
    assert count_matches(one_policy, [opponent], TTT, 4) == 4


def list_own_seats(player: Contender, opponent: Contender, game: str, seats: tuple[str, ...]) -> list[str]:
    """Return the seats of `player`, lineup by lineup."""
    return [seat for table in list_lineups(player, opponent, game, seats) for seat in seats if table[seat] is player]


@pytest.mark.slow
def test_missing_role_for_a_new_game_is_reported(tmp_path: Path) -> None:
    run = make_checkpointed_run(tmp_path / "run", SHARED, _9="nano-7")
    few = ["--matches", "2"]
    result = arena("eval", run, "--game", "nim", *few)
    assert (
        result.code == 0 and "never played nim, and none of its roles (" in result.line and "nano_player" in result.line
    )
    assert arena("eval", run, "--game", "nim", "--role", "nano_player", *few).err == ""
    assert arena("eval", run, "--game", "kuhn_poker", *few).err == ""
    assert "never played nim" in arena("play", "--game", "nim", "--seat", f"0={run}", "--seat", "1=random").err


def test_only_the_seats_in_use_need_a_policy(tmp_path: Path) -> None:
    run = make_checkpointed_run(tmp_path / "run", SEPARATE, _9="nano-7")
    both, opponent = load_contenders(str(run), "random")
    assert wait(evaluate(both, [opponent], TTT, 2, 0))[0].matches == 2
    with pytest.raises(ConfigError, match="none at tic_tac_toe's second: name one"):
        wait(evaluate(opponent, [both], TTT, 2, 0))


def test_deal_and_seat_luck_cancels_between_equals() -> None:
    result = evaluate_pair("nash:0", "nash:0.0", GameSpec(name="kuhn_poker"), 60)
    assert result.matches == 60 and len(result.figures["payoff"]) == 30
    always = evaluate_pair("first_legal", "random", GameSpec(name="nim"), 20)
    assert {round(v, 6) for v in always.figures["win"]} <= {0.0, 0.5, 1.0}


def test_stronger_contender_wins() -> None:
    result = evaluate_pair("minimax", "random", TTT, 20)
    assert result.scored is not None and result.scored["loss"] == 0 and result.scored["win"] > 12
    assert result.rate("win").low > 0.5 and result.mean("payoff").low > 0
    assert result.mean("invalid") == pytest.approx(rate_ci(0, 10)), "never in ten deals"


def test_self_play_recovers_the_value_of_kuhn_poker() -> None:
    player, opponent = load_contenders("nash", "nash:0.1")
    (result,) = wait(evaluate(player, [opponent], KUHN, 1200, 3))
    low, high = result.mean("payoff")[1:]
    assert low < 0 < high, "both seats of every deal are played, so the first seat's loss cancels"


def test_three_seats() -> None:
    player, opponent = load_contenders("contributor", "free_rider")
    (result,) = wait(evaluate(player, [opponent], GameSpec(name="public_goods"), 7, 0))
    assert result.matches == 9 and len(result.figures["payoff"]) == 3
    assert result.scored == {"win": 0, "draw": 0, "loss": 9}


def test_single_seat_has_no_opponent() -> None:
    player, opponent = load_contenders("random", "nash")  # which could not play it
    (result,) = wait(evaluate(player, [opponent], GameSpec(name="maze"), 5, 0))
    assert (result.against, result.matches, result.scored) == ("", 5, None)
    assert "solved" in result.figures and "turns" in result.figures


def test_partners_have_no_wins() -> None:
    player, opponent = load_contenders("random", "first_legal")
    with_other, with_itself = wait(evaluate(player, [opponent, player], GameSpec(name="tiny_hanabi"), 20, 0))
    assert with_other.scored is None and with_itself.scored is None
    assert with_other.matches == with_itself.matches == 20 and len(with_itself.figures["payoff"]) == 20
    assert with_other.mean("payoff").estimate > 0


def test_invalid_rate_is_not_replaced_by_the_simulators_count() -> None:
    (noop,) = wait(ContenderLoader().load("noop"))
    (result,) = wait(evaluate(noop, [], GameSpec(name="clinic"), 4, 0))
    assert result.mean("invalid").estimate == 1.0  # though each match counts two: the act, and the one asked for again


def test_illegal_acts_and_endings_are_counted_separately() -> None:
    nano, script = wait(ContenderLoader("nano_kuhn").load("nano", "random"))
    (result,) = wait(evaluate(nano, [script], GameSpec(name="kuhn_poker", options={"illegal": "end"}), 4, 0))
    assert result.illegal == {"own": 4, "other": 0} and result.ended == {"illegal": 4}
    assert result.mean("invalid").estimate == 1.0 and result.mean("payoff").estimate == -2.0
    (swapped,) = wait(evaluate(script, [nano], GameSpec(name="kuhn_poker", options={"illegal": "end"}), 4, 0))
    assert swapped.scored == {"win": 0, "draw": 4, "loss": 0}, "nobody wins by another's blunder"
    assert swapped.illegal == {"own": 0, "other": 4}


def test_difference_is_paired_by_deal() -> None:
    def result(*payoffs: float) -> Result:
        return Result(
            game=KUHN,
            contender="a",
            against="b",
            seats=("first", "second"),
            matches=4,
            figures={"payoff": list(payoffs)},
            scored=None,
            illegal={},
            ended={},
        )

    change = compute_change(result(10, -10, 5, math.nan), result(11, -9, 6, 3), "payoff")
    assert change == pytest.approx((1.0, 1.0, 1.0)), "the deals' luck is gone"


def test_figures_are_means_over_the_matches_of_a_deal() -> None:
    result = evaluate_pair("random", "hard_haggler", GameSpec(name="haggle"), 20)
    assert len(result.figures["payoff"]) == 10
    player, opponent = load_contenders("random", "hard_haggler")
    played, _ = wait(
        play_lineups(list_lineups(player, opponent, "haggle", ("seller", "buyer")), GameSpec(name="haggle"), 10, 0)
    )
    expected = [(a.payoffs["seller"] + b.payoffs["buyer"]) / 2 for a, b in zip(*played, strict=True)]
    assert result.figures["payoff"] == pytest.approx(expected)
    assert sum(result.ended.values()) == 20


def test_failing_matches_are_reported_and_not_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "LIMITS", Limits(turns=3))
    with pytest.raises(PlayError, match="turn limit: 3 turns taken"):
        evaluate_pair("random", "first_legal", TTT, 4)


def test_failing_deal_is_left_out_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cursed(Nim):
        """Nim that breaks on some deals."""

        def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
            if seed and seed % 4 == 0:
                raise RuntimeError("cursed deal")
            super().reset(seed, options)

    monkeypatch.setattr(games, "make", lambda name, **options: Cursed(**options))
    result = evaluate_pair("random", "first_legal", GameSpec(name="nim"), 80)
    left_out = sum(math.isnan(value) for value in result.figures["payoff"])
    assert 0 < left_out < 20 and result.matches == 80 - 2 * left_out
    assert result.failed == {"RuntimeError: cursed deal": 6 * left_out}
    assert not math.isnan(result.mean("payoff").estimate)


def test_failed_match_is_retried_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Shaky(Nim):
        """Nim whose every third match breaks."""

        made = 0

        def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
            type(self).made += 1
            if type(self).made % 3 == 0:
                raise RuntimeError("the table broke")
            super().reset(seed, options)

    monkeypatch.setattr(games, "make", lambda name, **options: Shaky(**options))
    player, opponent = load_contenders("random", "first_legal")
    progress = Counter[str]()
    tables = list_lineups(player, opponent, "nim", ("first", "second"))
    result = wait(
        evaluation._evaluate_against(
            player, opponent, tables, GameSpec(name="nim"), 12, 0, lambda: progress.update(["match"])
        )
    )
    assert result.matches == 12 == progress["match"] and sum(result.scored.values() if result.scored else []) == 12
    assert list(result.failed) == ["RuntimeError: the table broke"]
    assert Shaky.made == 12 + result.failed["RuntimeError: the table broke"]


@pytest.mark.parametrize(
    ("game", "message"),
    [
        (GameSpec(name="kuhn_pokr"), "unknown game 'kuhn_pokr' — did you mean 'kuhn_poker'?"),
        (GameSpec(name="nim", options={"illegal": "never"}), "nim: illegal must be"),
        (GameSpec(name="negotiation"), "mcts"),
    ],
)
def test_bad_input_gives_one_line(game: GameSpec, message: str) -> None:
    player, opponent = load_contenders("random", "mcts:5")
    with pytest.raises(ConfigError) as error:
        wait(evaluate(player, [opponent], game, 2, 0))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_intervals_shrink_with_deals() -> None:
    few, many = (evaluate_pair("random", "first_legal", KUHN, n).mean("payoff") for n in (40, 640))
    assert (many.high - many.low) < 0.5 * (few.high - few.low)


def test_json_has_no_nan() -> None:
    data = evaluate_pair("random", "first_legal", KUHN, 2).to_json()
    assert data["figures"]["payoff"][1:] == [None, None]
    assert np.isfinite(data["figures"]["payoff"][0]) and data["deals"] == 1
