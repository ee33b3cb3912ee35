"""Replies cut at their token limit are marked, and excused or penalised as the role says."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from agents.engines.base import Completion
from agents.role import Role, load_role
from arena.cli import show
from arena.cli.loop import wait
from arena.credit.assign import assign
from arena.credit.batch import TurnBatch
from arena.credit.samples import make_samples
from arena.credit.settings import CreditSpec
from arena.league.ratings import Ratings
from arena.metrics import compute_iteration_metrics
from arena.play.contenders import ModelContender, play_one
from arena.play.match import Limits, MatchPlan
from arena.records import MatchRecord, Seating, is_excused, trained_trajectories
from games.contracts import MatchId
from tests.factories.babble import FRAME, POLICIES

REPLIES = ("NOR", "NORTH", "NORTH |", "nothing legal")
FINISHES = ("length", "stop", "length", "stop")


class ScriptedEngine:
    """Engine with fixed replies: an act cut in the middle, a legal one, one cut in its talk, an illegal one."""

    max_context = 10**9

    def __init__(self) -> None:
        self.count = 0

    async def generate(self, requests: Any) -> list[Completion]:
        return [self._one() for _ in requests]

    def _one(self) -> Completion:
        text, finish = REPLIES[self.count % 4], FINISHES[self.count % 4]
        self.count += 1
        ids = (*FRAME.encode(text), *([FRAME.stop_id] if finish == "stop" else []))
        return Completion(ids, (-1.0,) * len(ids), finish, 3)  # type: ignore[arg-type]

    def forget(self, key: str) -> None:
        pass


def play_maze(truncated: str) -> MatchRecord:
    role = load_role("nano_player")
    role = role.model_copy(update={"sampling": role.sampling.model_copy(update={"truncated": truncated})})
    contender = ModelContender("p", ScriptedEngine(), lambda game, seat: (POLICIES["p"], role))  # type: ignore[arg-type]
    seats = {"walker": Seating("nano_player", "p", 3, True, "model")}
    plan = MatchPlan(identity=MatchId(1, 0), game="maze", options={"size": 3, "max_turns": 3}, seed=0, seats=seats)
    return wait(play_one(plan, {"walker": contender}, 5, Limits()))


def test_cut_reply_is_excused_only_if_the_role_says_so() -> None:
    for truncated, charged in (("excused", False), ("illegal", True)):
        record = play_maze(truncated)
        assert MatchRecord.from_json(record.to_json()) == record
        cut, legal, cut_in_talk, illegal = record.turns[:4]
        assert [turn.finish for turn in record.turns[:4]] == list(FINISHES)
        assert [turn.valid for turn in record.turns[:4]] == [False, True, True, False]
        assert ("illegal" in cut.rewards) is charged and illegal.rewards["illegal"] == -1
        assert [is_excused(turn) for turn in (cut, legal, cut_in_talk, illegal)] == [not charged, False, False, False]
        assert record.payoffs == play_maze("illegal").payoffs, "the rules themselves do not change"


def test_only_excused_replies_are_left_out_of_the_loss() -> None:
    for truncated in ("excused", "illegal"):
        (trajectory,) = trained_trajectories([play_maze(truncated)])
        (credited,) = assign(TurnBatch([trajectory]), CreditSpec())
        learned = np.ones(len(trajectory.turns), bool) if credited.learned is None else credited.learned
        excused = [k for k, turn in enumerate(trajectory.turns) if not learned[k]]
        assert excused == [k for k, turn in enumerate(trajectory.turns) if is_excused(turn)]
        assert bool(excused) is (truncated == "excused")
        samples = make_samples([credited], {"nano_player": 1.0})
        inside = {int(place) for sample in samples for place in sample.places[sample.learned]}
        assert inside == {*range(len(trajectory.turns))} - {*excused}


def test_truncated_rate_is_a_metric() -> None:
    record = play_maze("excused")
    credited = assign(TurnBatch(trained_trajectories([record])), CreditSpec())
    row = compute_iteration_metrics(1, [record], [], credited, {}, Ratings(), {"play": 1.0})
    cut = sum(turn.finish == "length" for turn in record.turns)
    assert row["truncated_rate"] == pytest.approx(cut / len(record.turns))
    assert row["selection"]["out_of_loss"] == sum(map(is_excused, record.turns)) > 0
    other = replace(record, game="other")
    both = compute_iteration_metrics(1, [record, other], [], credited, {}, Ratings(), {"play": 1.0})
    assert both["report"]["maze.truncated_rate"] == row["truncated_rate"]


def test_show_marks_cut_replies(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(width=200, force_terminal=False)
    for turn in play_maze("excused").to_json()["turns"][:2]:
        show._show_turn(console, turn, None)
    first, second = capsys.readouterr().out.split(" 2. ")
    assert f"cut at its limit of {len(FRAME.encode('NOR'))} tokens" in first and "cut" not in second


def test_role_sets_the_treatment_of_cut_replies() -> None:
    assert Role.model_validate({"role": "r"}).sampling.truncated == "illegal"
    assert Role.model_validate({"role": "r", "sampling": {"truncated": "excused"}}).sampling.truncated == "excused"
    with pytest.raises(ValueError, match="excused"):
        Role.model_validate({"role": "r", "sampling": {"truncated": "free"}})
