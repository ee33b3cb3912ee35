"""Control of a match: expert acts replace wrong ones, rules stop a match, and horizons follow a schedule."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import games
from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.sources import text_layer
from arena.credit.assign import assign
from arena.credit.batch import TurnBatch
from arena.credit.estimators.steps import compute_broken_returns
from arena.credit.samples import make_samples
from arena.credit.settings import CreditSpec
from arena.errors import ConfigError
from arena.play.branches import Branch
from arena.play.joining import ForkPoint, find_difference
from arena.play.parts.patch import patch_metrics
from arena.play.plans import plan_iteration
from arena.play.settings import GameSpec, PlaySpec
from arena.play.tables import make_table
from arena.play.texts import normalise_act
from arena.records import POLICY_SOURCES, MatchRecord, trained_trajectories, trajectories
from games.base import TextGame
from games.maze import Maze
from tests.factories.babble import FRAME, POLICIES, drop_times
from tests.factories.rollout_parts import make_part, plan_with
from tests.factories.texts import MAZE
from tests.factories.walks import PATCHED, RandomWalkEngine, play_walk


def test_patched_match_follows_the_expert() -> None:
    records = [play_walk(number, **PATCHED) for number in range(10)]
    for number, record in enumerate(records):
        check_expert_path(record, number)
    sources = {turn.source for record in records for turn in record.turns}
    assert sources == {"policy", "replaced", "patch"}
    marks = [turn.rewards.get("match") for r in records for turn in r.turns if turn.source == "policy"]
    assert set(marks) == {1.0}


def check_expert_path(record: MatchRecord, number: int) -> None:
    assert record.status == "finished" and record.report["efficiency"] == 1.0
    game = Maze(size=3)
    game.reset(seed=number)
    read = [turn for turn in record.turns if turn.source != "replaced"]
    for turn in read:
        assert normalise_act(turn.action) == normalise_act(game.find_step())
        game.step(turn.action)
    for turn, after in zip(record.turns, record.turns[1:], strict=False):
        if turn.source == "replaced":
            assert (after.source, after.index, after.messages) == ("patch", turn.index + 1, ())
            assert normalise_act(turn.action) != normalise_act(after.action) and turn.rewards == {} and turn.tokens > 0


def test_patch_enters_the_context_as_the_policys_own() -> None:
    engine, seen = RandomWalkEngine(), 0
    record = play_walk(1, engine, **PATCHED)
    asked = {request.seed[-1]: request.ids for request in engine.requests}
    for turn, later in zip(record.turns, record.turns[2:], strict=False):
        if turn.source != "replaced" or later.index not in asked:
            continue
        wrong, right = FRAME.encode(turn.raw), FRAME.encode(record.turns[turn.index + 1].raw)
        before = asked[turn.index]
        assert asked[later.index][: len(before) + len(right)] == (*before, *right)
        assert asked[later.index][: len(before) + len(wrong)] != (*before, *wrong)
        seen += 1
    assert seen


def test_patches_are_never_learned() -> None:
    """Even if patches counted among the policy's own sources, it would not learn from them."""
    records = [play_walk(number, **PATCHED) for number in range(20)]
    assert sum(turn.source == "patch" for record in records for turn in record.turns) > 20
    for sources in (POLICY_SOURCES, (*POLICY_SOURCES, "patch")):
        credited = assign(
            TurnBatch(trained_trajectories(records)), CreditSpec.model_validate({"estimator": "step_episode"})
        )
        samples = make_samples(credited, {"nano_player": 1.0}, sources)
        learned = sum(int(sample.learned.sum()) for sample in samples)
        own = sum(t.tokens for record in records for t in record.turns if t.source in ("policy", "replaced"))
        assert learned == own and all(t.tokens == 0 for r in records for t in r.turns if t.source == "patch")
    replies = {(r.id, t.index): t.raw for r in records for t in r.turns if t.source in ("policy", "replaced")}
    for record in records:
        for stream in record.streams["walker"]:
            for turn in {t for t in stream.turns if t >= 0}:
                ids = [token for token, own in zip(stream.ids, stream.turns, strict=True) if own == turn]
                assert FRAME.decode(ids) == replies[record.id, turn], "trained ids are sampled ids"


def test_reward_of_a_patch_is_not_credited() -> None:
    record = play_walk(2, options={"reward": "goal", "cost": 0.0}, **PATCHED)
    (trajectory,) = trajectories(record)
    assert record.payoffs == {"walker": 1.0}
    last = record.turns[-1]
    earned = sum(turn.rewards.get("goal", 0.0) for turn in trajectory.turns)
    assert earned == (0.0 if last.source == "patch" else 1.0)
    assert [t.index for t in trajectory.turns] == [t.index for t in record.turns if t.source != "patch"]


@pytest.mark.parametrize("max_length", [0, 1, 2])
def test_match_stops_at_the_wrong_act_after_the_last_patch(max_length: int) -> None:
    for number in range(5):
        record = play_walk(number, patch={"expert": "oracle", "most": max_length}, options={"stake": 0.25})
        wrong = [turn for turn in record.turns if turn.source == "replaced"]
        patches = [turn for turn in record.turns if turn.source == "patch"]
        if record.report["ended"] == "stopped":
            assert (len(wrong), len(patches)) == (max_length + 1, max_length) and record.turns[-1] is wrong[-1]
            assert wrong[-1].rewards == {"stake": -0.25}, "giving up does not pay"
        else:
            assert len(wrong) == len(patches) <= max_length


def test_returns_do_not_cross_a_patch() -> None:
    records = [play_walk(number, **PATCHED) for number in range(10)]
    batch = TurnBatch(trained_trajectories(records))
    rewards = np.arange(1.0, len(batch.owner) + 1)
    matched = batch.column(lambda turn: turn.rewards.get("match", 0.0)) > 0
    returns = compute_broken_returns(batch, rewards, matched, 0.5)
    for row, turn in enumerate(batch.turns):
        if turn.source == "replaced":
            assert returns[row] == rewards[row]
            if row and not batch.last[row - 1]:
                assert returns[row - 1] == rewards[row - 1]


def test_semi_online_performance() -> None:
    records = [play_walk(number, **PATCHED) for number in range(30)]
    figures = patch_metrics(records)
    progress, success, agreed, acts = [], [], 0, 0
    for record in records:
        sources = [turn.source for turn in record.turns if turn.source != "patch"]
        first = sources.index("replaced") if "replaced" in sources else len(sources)
        progress.append(first / record.report["shortest"])  # type: ignore[operator]
        success.append("replaced" not in sources)
        agreed, acts = agreed + sources.count("policy"), acts + len(sources)
    assert figures["progress"] == pytest.approx(np.mean(progress))
    assert figures["success"] == pytest.approx(np.mean(success))
    assert figures["sop"] == pytest.approx((np.mean(progress) + np.mean(success)) / 2)
    assert figures["agreed"] == pytest.approx(agreed / acts) and patch_metrics([play_walk(1)]) == {}


def test_a_branch_repeats_patches() -> None:
    record = play_walk(3, **PATCHED)
    for turn in range(1, len(record.turns)):
        if record.turns[turn].source == "patch":
            continue
        again = play_walk(3, branch=Branch(record, turn), **PATCHED)
        assert again.status == "finished", again.reason
        original, repeated = drop_times(record)["turns"][:turn], drop_times(again)["turns"][:turn]
        assert [{**t, "rewards": {}} for t in original] == [{**t, "rewards": {}} for t in repeated]


def test_replay_of_the_log_skips_unread_turns() -> None:
    record = play_walk(4, **PATCHED)
    assert find_difference(ForkPoint(record, len(record.turns) - 1), Maze(size=3)) == ""
    assert MatchRecord.from_json(record.to_json()).turns == record.turns


# -- stops -------------------------------------------------------------------------------------------------


def test_repeated_acts_stop_a_match() -> None:
    record = play_walk(0, RandomWalkEngine(("NORTH",)), stop={"repeated": 3}, options={"stake": 0.5})
    acts = [turn.action for turn in record.turns]
    assert record.report["ended"] == "stopped" and acts == ["NORTH"] * 3
    assert record.turns[-1].rewards["stake"] == -0.5 and record.report["solved"] is False


def test_illegal_acts_in_a_row_stop_a_match() -> None:
    record = play_walk(0, RandomWalkEngine(("hm",)), stop={"illegal": 1})
    assert (record.report["ended"], len(record.turns)) == ("stopped", 1)


def test_a_match_that_ends_by_itself_is_not_stopped() -> None:
    for number in range(20):
        record = play_walk(number, stop={"repeated": 1000}, **PATCHED)
        assert record.report["ended"] == "solved"


@pytest.mark.parametrize("k", [1, 2, 3, 9])
def test_a_horizon_grows_with_the_iterations(k: int) -> None:
    horizon = {"turns": {"steps": {"values": [2, 4], "every": 2}}}
    for number in range(5):
        record = play_walk(number, k=k, horizon=horizon, options={"max_turns": 50, "size": 5})
        max_length = 2 if k <= 2 else 4
        assert len(record.turns) <= max_length
        assert record.report["ended"] == ("stopped" if len(record.turns) == max_length else "solved")


def test_a_horizon_sets_a_games_option() -> None:
    rule = PlaySpec(matches=4)
    part = make_part("horizon", option="max_turns", turns={"steps": {"values": [2, 4], "every": 1}})
    table = make_table(GameSpec(name="maze", options={"size": 3, "max_turns": 9}), {"walker": "nano_player"})
    table = replace(table, holders={"walker": "p"})
    for k, length in ((1, 2), (2, 4), (7, 4)):
        plans = plan_with(part, plan_iteration(rule, 0, k, [table], POLICIES, None), k)
        assert {plan.options["max_turns"] for plan in plans} == {length}
        assert all(table.matches(plan) for plan in plans)


STOPPABLE = ("kuhn_poker", "negotiation", "tic_tac_toe", "hanabi", "recall", "text_navigation", "wordle", "sheriff")


def test_every_game_can_be_stopped() -> None:
    for name in STOPPABLE:
        game: TextGame = games.make(name)
        for acts in range(4):
            game.reset(seed=acts)
            for _ in range(acts):
                legal = game.legal(game.agent_selection)
                if game.ended or not legal:
                    break
                game.step(legal[0])
            if not game.ended:
                mover = game.agent_selection
                paid = game.payoffs()
                game.stop("stopped")
                assert game.payoffs() == {**paid, mover: paid[mover] - game.stake}, name
                assert game.report()["ended"] == "stopped" and all(game.truncations.values())


# -- settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("play", "message"),
    [
        ("{parts: [patch]}", "expert"),
        ("{parts: [{patch: {expert: oracle, most: -1}}]}", "greater than or equal to 0"),
        ("{parts: [{stop: {repeated: -1}}]}", "greater than or equal to 0"),
        ("{parts: [{horizon: {turns: {stairs: 3}}}]}", "stairs"),
        ("{parts: [{horizon: {turns: 3, option: max_turn}}]}", "max_turn"),
    ],
)
def test_invalid_rules_are_refused_in_one_line(play: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        compose([text_layer("here", MAZE + f"play: {play}\n")])
    assert "\n" not in str(error.value)


def test_rules_are_taken_from_the_experiment() -> None:
    rules = "play: {parts: [{patch: {expert: oracle}}, {stop: {repeated: 4}}, {horizon: {turns: 3}}]}\n"
    experiment: Any = compose([text_layer("here", MAZE + rules)])
    assert isinstance(experiment, Experiment)
    assert [part.name for part in experiment.play.parts] == ["patch", "stop", "horizon"]
