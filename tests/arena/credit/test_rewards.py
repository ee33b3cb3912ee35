"""Reward stages: numbers worked by hand, invariances, and refusals before play."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from agents.stream import Stream
from arena.config.kinds import choose
from arena.config.layers import compose, to_yaml
from arena.config.sources import text_layer
from arena.credit.assign import compute_named_rewards, compute_turn_rewards
from arena.credit.batch import TurnBatch
from arena.credit.rewards import STAGES
from arena.credit.settings import CreditSpec
from arena.errors import ConfigError
from arena.parts.schedules import Clock
from arena.records import Trajectory, Turn
from games.contracts import Message
from tests.factories.judges import RUBRIC
from tests.factories.records import make_turn, wrap_turns

Columns = dict[str, list[float]]


def make_trajectory(
    length: int, match: str = "m", role: str = "solver", seed: int = 0, **columns: Sequence[Any]
) -> Trajectory:
    """Return a trajectory of turns 0, 2, 4, …; columns named like a turn's field set it, the others are rewards."""
    turns = []
    for k in range(length):
        row = {name: values[k] for name, values in columns.items()}
        rewards = {name: float(value) for name, value in row.items() if name not in Turn._fields}
        fields = {name: value for name, value in row.items() if name in Turn._fields}
        turns.append(make_turn(2 * k, rewards, role, **fields))
    return wrap_turns(turns, match=match, game="quiz", seat=role, role=role, seed=seed)


def apply_stages(
    trajectories: list[Trajectory], *stages: Any, clock: Clock = Clock(), seed: int = 0, **measures: Any
) -> Columns:
    """Return all named rewards after the stages, as flat lists."""
    batch = TurnBatch(trajectories, clock, np.random.default_rng(seed), measures=measures)
    return {n: c.tolist() for n, c in compute_named_rewards(batch, CreditSpec(stages=list(stages)).stages).items()}


# -- the form of a reply -----------------------------------------------------------------------------------


def test_reply_rules_by_hand() -> None:
    trajectory = make_trajectory(3, tokens=[5, 30, 48], finish=["stop", "stop", "length"], valid=[True, False, True])
    assert apply_stages([trajectory], {"valid_act": {"bonus": 0.5}})["valid_act"] == [0.5, 0, 0.5]
    assert apply_stages([trajectory], {"cut_off": {"penalty": 0.25}})["cut_off"] == [0, 0, -0.25]
    # beyond 10 free tokens: 0, 20 and 38 of them, at 0.01 each
    assert apply_stages([trajectory], {"length": {"penalty": 0.01, "free": 10}})["length"] == pytest.approx(
        [0, -0.2, -0.38]
    )


def test_turn_with_several_attempts_is_penalised() -> None:
    trajectory = make_trajectory(4, raw=["\\boxed{1}", "\\boxed{1} Wait \\boxed{2}", "none", "\\boxed{1}" * 3])
    assert apply_stages([trajectory], "unit")["unit"] == [0, -1, 0, -1]
    assert apply_stages([trajectory], {"unit": {"penalty": 0.5, "pattern": "Wait"}})["unit"] == [0, 0, 0, 0]
    assert apply_stages([trajectory], {"unit": {"penalty": 0.5, "pattern": "[01]"}})["unit"] == [0, 0, 0, -0.5]


def test_overlong_is_the_ramp_of_dapo() -> None:
    # max 48, buffer 16: free up to 32; at 40 half way, (32 - 40)/16 = -0.5; at 48 -1, and no less beyond
    trajectory = make_trajectory(5, tokens=[1, 32, 40, 48, 90])
    rewards = apply_stages([trajectory], {"overlong": {"max_tokens": 48, "buffer": 16}})["overlong"]
    assert rewards == [0, 0, -0.5, -1, -1]
    assert (
        apply_stages([trajectory], {"overlong": {"max_tokens": 48, "buffer": 16, "weight": 2.0}})["overlong"][2] == -1
    )


def test_format_by_pattern_or_by_validity() -> None:
    trajectory = make_trajectory(
        3, raw=["<answer>4</answer>", "it is 4", "<answer>5"], valid=[False, True, True], action=["", "go", "go"]
    )
    tags = {"format": {"pattern": r"\A<answer>.*</answer>\Z", "match": 0.5, "miss": -2.0}}
    assert apply_stages([trajectory], tags)["format"] == [0.5, -2, -2]
    assert apply_stages([trajectory], {"format": {"pattern": "^go$", "text": "action"}})["format"] == [-1, 0, 0]
    assert apply_stages([trajectory], "format")["format"] == [-1, 0, 0], "without a pattern: whether the act is valid"


# -- rewards out of rewards --------------------------------------------------------------------------------


def test_clip_bounds_a_reward() -> None:
    trajectory = make_trajectory(3, deal=[-5, 0.5, 9])
    assert apply_stages([trajectory], {"clip": {"part": "deal", "between": [-1, 2]}})["deal"] == [-1, 0.5, 2]
    assert apply_stages([trajectory], {"clip": {"part": "deal", "between": [None, 2]}})["deal"] == [-5, 0.5, 2]


def test_gate_by_hand() -> None:
    """As in G-RA: tool rewards count only after a submission, and with both gates only after a solution."""
    trajectories = [
        make_trajectory(3, submitted=[0, 0, 0], tools=[1, 1, 1], solved=[0, 0, 0]),
        make_trajectory(3, submitted=[0, 0, 1], tools=[1, 0, 1], solved=[0, 0, 0]),
        make_trajectory(2, submitted=[0, 1], tools=[1, 0], solved=[0, 2]),
    ]
    assert apply_stages(trajectories, {"gate": {"on": {"submitted": 0}, "parts": ["tools"]}})["tools"] == [
        0,
        0,
        0,
        1,
        0,
        1,
        1,
        0,
    ]
    both = {"gate": {"on": {"submitted": 0, "solved": 1}, "parts": ["tools"]}}
    assert apply_stages(trajectories, both)["tools"] == [0, 0, 0, 0, 0, 0, 1, 0], "solved in all: 0, 0, 2"
    threshold_one = {"gate": {"on": {"submitted": 1}, "parts": ["tools"]}}
    assert not any(apply_stages(trajectories, threshold_one)["tools"]), "the total has to exceed the threshold"


def test_gated_parts_gate_later_ones() -> None:
    trajectory = make_trajectory(2, first=[0, 0], second=[5, 5], third=[1, 1])
    rewards = apply_stages([trajectory], {"gate": {"on": {"first": 0, "second": 0}, "parts": ["third"]}})
    assert rewards["first"] == [0, 0] and rewards["second"] == [0, 0] and rewards["third"] == [0, 0]


reward_pairs = st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5)), min_size=1, max_size=4)


@settings(deadline=None)
@given(st.lists(reward_pairs, min_size=1, max_size=5), st.floats(0, 6))
def test_gating_never_raises_a_total_of_non_negative_rewards(turns: list[Any], threshold: float) -> None:
    trajectories = [make_trajectory(len(t), won=[a for a, _ in t], tools=[b for _, b in t]) for t in turns]
    batch = TurnBatch(trajectories)
    ungated = batch.totals(compute_turn_rewards(batch, CreditSpec()))
    stage = {"gate": {"on": {"won": threshold}, "parts": ["tools"]}}
    gated = batch.totals(compute_turn_rewards(batch, CreditSpec.model_validate(dict(stages=[stage]))))
    won = batch.totals(np.array([a for t in turns for a, _ in t]))
    assert (gated <= ungated + 1e-9).all()
    assert gated == pytest.approx(np.where(won > threshold, ungated, won))


def test_dense_by_hand() -> None:
    # a win with 2 positive sub-goals: halves; a loss with 1 of at most 4: a quarter; a win with none stays nothing
    trajectories = [
        make_trajectory(3, quest=[1, 0, 1], won=[0, 0, 1]),
        make_trajectory(2, quest=[0, 1], won=[0, 0]),
        make_trajectory(1, quest=[0], won=[1]),
    ]
    stage = {"dense": {"part": "quest", "outcome": "won", "maximum": 4}}
    assert apply_stages(trajectories, stage)["quest"] == [0.5, 0, 0.5, 0, 0.25, 0]


@settings(deadline=None)
@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=6), min_size=1, max_size=4), st.booleans())
def test_dense_totals_at_most_one(quests: list[list[float]], won: bool) -> None:
    trajectories = [make_trajectory(len(q), quest=q, won=[0.0] * (len(q) - 1) + [float(won)]) for q in quests]
    scaled = apply_stages(trajectories, {"dense": {"part": "quest", "outcome": "won", "maximum": 6}})["quest"]
    assert (TurnBatch(trajectories).totals(np.array(scaled)) <= 1 + 1e-9).all()


def test_outcome_only_moves_each_part_to_the_last_turn() -> None:
    trajectories = [make_trajectory(3, deal=[1, 2, 4], chat=[0.5, 0, 0]), make_trajectory(1, deal=[8], chat=[1])]
    assert apply_stages(trajectories, "outcome_only") == {"deal": [0, 0, 7, 8], "chat": [0, 0, 0.5, 1]}
    assert apply_stages(trajectories, {"outcome_only": {"parts": ["deal"]}}) == {
        "deal": [0, 0, 7, 8],
        "chat": [0.5, 0, 0, 1],
    }


def test_shuffle_permutes_a_reward_within_each_group() -> None:
    trajectories = [make_trajectory(3, seed=i % 2, gain=[10 * i + k for k in (1, 2, 3)]) for i in range(6)]
    before = [10 * i + k for i in range(6) for k in (1, 2, 3)]
    first, repeated, other_seed = (
        apply_stages(trajectories, {"shuffle": {"part": "gain"}}, seed=seed)["gain"] for seed in (1, 1, 2)
    )
    assert first == repeated != other_seed and first != before
    for seed in (0, 1):
        rows = [r for r in range(18) if (r // 3) % 2 == seed]
        assert sorted(first[r] for r in rows) == sorted(before[r] for r in rows)
    without_last = apply_stages(trajectories, {"shuffle": {"part": "gain", "last": False}}, seed=1)["gain"]
    assert without_last[2::3] == before[2::3] and sorted(without_last) == sorted(before) and without_last != before


# -- rewards before the end --------------------------------------------------------------------------------


def test_tool_bonus_is_capped_and_decays() -> None:
    trajectory = make_trajectory(5, raw=["<tool_call>", "x", "<tool_call> <tool_call>", "<tool_call>", "<tool_call>"])
    stage = {"tool_bonus": {"bonus": 0.1, "cap": 0.25}}
    # 0.1, –, 0.2, then only 0.05 are left under the cap, then nothing
    assert apply_stages([trajectory], stage)["tool_bonus"] == pytest.approx([0.1, 0, 0.1, 0.05, 0])
    # in iteration 101 the weight is (1 + cos(π 100/200)) / 2 = 1/2; from 201 on it is 0
    assert apply_stages([trajectory], stage, clock=Clock(101, 300))["tool_bonus"] == pytest.approx(
        [0.05, 0, 0.05, 0.025, 0]
    )
    assert apply_stages([trajectory], stage, clock=Clock(201, 300))["tool_bonus"] == pytest.approx([0] * 5)
    named = {"tool_bonus": {"part": "searched", "weight": 2.0}}
    assert apply_stages([make_trajectory(3, searched=[1, 0, -1])], named)["tool_bonus"] == pytest.approx([0.2, 0, 0])


def make_messages(*texts: str, sender: str = "tool") -> list[tuple[Message, ...]]:
    """Return the new messages of each turn: none on the first, then one each."""
    return [(), *((Message.of(sender, text),) for text in texts)]


def test_tool_success_rewards_the_call_not_the_reply() -> None:
    # four calls: two that worked, a traceback, an error in a line; no message follows the last turn
    messages = make_messages(
        "12", "Traceback (most recent call last):\n  x\nNameError: x", "7\n[stopped: out of time]", "0"
    )
    first = make_trajectory(5, messages=messages)
    assert apply_stages([first], {"tool_success": {"bonus": 0.5}})["tool_success"] == [0.5, 0, 0, 0.5, 0]
    # the next trajectory's first turn is no answer to the last turn of the one before
    second = make_trajectory(2, match="n", messages=[(Message.of("tool", "1"),), (Message.of("user", "2"),)])
    assert apply_stages([first, second], {"tool_success": {}})["tool_success"] == [0.1, 0, 0, 0.1, 0, 0, 0]
    by_pattern = {"tool_success": {"sender": "user", "failed": "2"}}
    assert apply_stages([second], by_pattern)["tool_success"] == [0, 0]
    failing = make_trajectory(2, messages=make_messages("Error: there is no tool"))
    assert apply_stages([failing], {"tool_success": {}})["tool_success"] == [0, 0]


def test_graded_failure_by_hand() -> None:
    stage = {"graded_failure": {"part": "right"}}
    call, text_only = "<code>x</code>", "x"
    # right is 1 however many calls; wrong is -1 + 0.1 n, and at most -0.6: from the fourth call on
    for raws, right, total in [
        ([call, text_only], 1.0, 1.0),
        ([text_only], 0.0, -1.0),
        ([call, text_only], 0.0, -0.9),
        ([call] * 3, 0.0, -0.7),
        ([call] * 6, 0.0, -0.6),
        ([call, text_only], 0.5, -0.9),
    ]:
        trajectory = make_trajectory(len(raws), raw=raws, right=[0.0] * (len(raws) - 1) + [right])
        assert apply_stages([trajectory], stage)["right"] == pytest.approx([0.0] * (len(raws) - 1) + [total])
    uncredited_calls = {"graded_failure": {"part": "right", "call": 0.0}}
    assert apply_stages([make_trajectory(3, raw=[call] * 3, right=[0, 0, 0])], uncredited_calls)["right"] == [0, 0, -1]


def test_pivotal_by_hand() -> None:
    # EPO: 1 where marked, goal/10 on the last turn (marked or not); both parts are replaced
    trajectory = make_trajectory(4, pivot=[0, 3, 0, 1], goal=[0, 0, 2, 5])
    rewards = apply_stages([trajectory], {"pivotal": {"part": "pivot", "goal": "goal"}})
    assert rewards == {"pivot": [0] * 4, "goal": [0] * 4, "pivotal": [0, 1, 0, 0.7]}
    assert apply_stages(
        [make_trajectory(2, pivotal=[1, 0], goal=[0, 5])], {"pivotal": {"part": "pivotal", "goal": "goal"}}
    ) == {
        "pivotal": [1, 0.5],
        "goal": [0, 0],
    }


def make_with_logprobs(logprobs: list[float], reference: list[float]) -> tuple[Trajectory, dict[str, Any]]:
    """Return a trajectory of two turns of two tokens each, and its `old` and `reference` log-probabilities."""
    trajectory = make_trajectory(2)
    stream = Stream()
    for turn in trajectory.turns:
        stream.observe([1])
        stream.append_sampled([5, 6], [-1.0, -1.0], turn.index)
    trajectory = replace(trajectory, trained=True, streams=(stream,))
    return trajectory, {"old": [np.array(logprobs, np.float32)], "reference": [np.array(reference, np.float32)]}


def test_kl_penalty_by_hand() -> None:
    trajectory, measures = make_with_logprobs([-1, -2, -1, -3], [-2, -1, -1, -3])
    # d = reference - old = -1, 1 | 0, 0.  k1: 1 - 1 = 0.  k2: 1/2 + 1/2 = 1.  k3: e^-1 + 1 - 1 + e - 1 - 1 = 1.0862
    k3 = np.exp(-1) + np.e - 2
    for kind, first_turn in {"k1": 0.0, "k2": 1.0, "k3": k3}.items():
        rewards = apply_stages([trajectory], {"kl_penalty": {"weight": 0.5, "kind": kind}}, **measures)["kl_penalty"]
        assert rewards == pytest.approx([-0.5 * first_turn, 0])
    assert CreditSpec.model_validate(dict(stages=["kl_penalty"])).needs == {"old", "reference"}


logprob_lists = st.lists(st.floats(-50, 0, width=32), min_size=4, max_size=4)


@settings(deadline=None)
@given(logprob_lists, logprob_lists)
def test_k2_and_k3_are_never_positive(old: list[float], reference: list[float]) -> None:
    trajectory, measures = make_with_logprobs(old, reference)
    for kind in ("k2", "k3"):
        assert max(apply_stages([trajectory], {"kl_penalty": {"kind": kind}}, **measures)["kl_penalty"]) <= 1e-12


# -- repeated attempts -------------------------------------------------------------------------------------


def test_first_and_later_attempts_are_separated() -> None:
    trajectories = [make_trajectory(3, right=[1, 0.5, 0.25]), make_trajectory(1, right=[1])]
    rewards = apply_stages(trajectories, {"attempts": {"part": "right"}})
    assert rewards["right"] == [0, 0, 0, 0]
    assert rewards["first_attempt"] == [1, 0, 0, 1] and rewards["later_attempts"] == [0, 0.5, 0.25, 0]


def test_unary_decay_by_hand() -> None:
    trajectories = [
        make_trajectory(1, right=[1]),
        make_trajectory(3, right=[0, 0, 1]),
        make_trajectory(2, right=[-1, 0]),
    ]
    assert apply_stages(trajectories, {"unary_decay": {"part": "right"}})["right"] == [1, 0, 0, 0.25, 0, 0]
    assert apply_stages(trajectories, {"unary_decay": {"part": "right", "base": 1}})["right"] == [1, 0, 0, 1, 0, 0]


def test_repetition_by_hand() -> None:
    # 4 valid answers, "Lion" = "lion" and "a  cat" = "A cat": 2 different ones, -0.5 (1 - 2/4); nothing valid: 0
    answers = make_trajectory(5, action=["Lion", "lion", "a  cat", " A cat ", "dog"], valid=[1, 1, 1, 1, 0])
    invalid = make_trajectory(2, action=["x", "x"], valid=[0, 0])
    assert apply_stages([answers, invalid], "repetition")["repetition"] == [0, 0, 0, 0, -0.25, 0, 0]
    # only guesses are answers: two, both lions, in one turn each; questions may be asked twice
    questions = make_trajectory(4, action=["ASK fur", "ASK fur", "GUESS lion", "GUESS Lion | sure"], valid=[1, 1, 1, 1])
    guesses = {"repetition": {"pattern": "(?i)guess ([a-z]+)", "weight": 1.0}}
    assert apply_stages([questions], guesses)["repetition"] == [0, 0, 0, -0.5]


def test_repetition_penalty_is_zero_without_repetition() -> None:
    """UFO: five different wrong answers cost nothing, one answer five times -0.5 · 4/5."""
    different = make_trajectory(5, action=["a", "b", "c", "d", "e"])
    same = make_trajectory(5, action=["a"] * 5)
    assert apply_stages([different, same], "repetition")["repetition"][4::5] == pytest.approx([0, -0.4])


def compute_returns(trajectories: list[Trajectory], credited: str) -> list[float]:
    batch = TurnBatch(trajectories)
    stage = {"self_correction": {"part": "right", "credited": credited}}
    column = compute_named_rewards(batch, CreditSpec.model_validate(dict(stages=[stage])).stages)["self_correction"]
    return batch.returns(column, 1.0).tolist()


def test_self_correction_credits_the_chosen_attempts() -> None:
    # corrected: 10 (1 - 0); spoilt: 10 (0 - 1), with a third turn; a single attempt is compared with nothing
    trajectories = [
        make_trajectory(2, right=[0, 1]),
        make_trajectory(3, right=[1, 0, 0]),
        make_trajectory(1, right=[1]),
    ]
    assert compute_returns(trajectories, "both") == [10, 10, -10, -10, 0, 0]
    assert compute_returns(trajectories, "second") == [0, 10, 0, -10, 0, 0]
    assert compute_returns(trajectories, "all") == [10, 10, -10, -10, -10, 0]


def test_bonus_rewards_tanking_unless_only_the_second_attempt_is_credited() -> None:
    """SCoRe's hazard: wrong then right beats right twice by α - 1 = 9 in the first attempt's return."""
    honest, tanked = make_trajectory(2, right=[1, 1]), make_trajectory(2, right=[0, 1])
    batch = TurnBatch([honest, tanked])
    for credited, gap in {"both": 9.0, "all": 9.0, "second": -1.0}.items():
        stage = {"self_correction": {"part": "right", "credited": credited}}
        first = batch.returns(compute_turn_rewards(batch, CreditSpec.model_validate(dict(stages=[stage]))))[[0, 2]]
        assert first[1] - first[0] == pytest.approx(gap)


def test_default_return_rewards_a_correct_first_answer() -> None:
    """At α = 1, whatever the second is: its return is r_1 + r_2; credited to both attempts it would be 2 r_2."""
    for second in (0, 1):
        batch = TurnBatch([make_trajectory(2, right=[first, second]) for first in (0, 1)])
        stages = [{"self_correction": {"part": "right", "alpha": 1.0}}]
        returns = batch.returns(compute_turn_rewards(batch, CreditSpec.model_validate(dict(stages=stages))))
        wrong, right = returns[[0, 2]].tolist()
        assert right - wrong == 1.0


def test_margin_and_quality_by_hand() -> None:
    # R = 0 1 1: Q of the earlier ones = –, 0, 1/2; margin (1 - 0)/2, (1 - 1/2)/2
    trajectory = make_trajectory(3, right=[0, 1, 1])
    assert apply_stages([trajectory], {"margin": {"part": "right"}})["margin"] == [0, 0.5, 0.25]
    # quality: 0·1 - 1·0 = 0, then 1/2·1 - 1/2·0 = 1/2, halved by α
    assert apply_stages([trajectory], {"quality": {"part": "right"}})["quality"] == [0, 0, 0.25]
    # Q + R - 1 at the corners: right after right 1, wrong after wrong -1, a change 0
    corners = [make_trajectory(2, right=[q, r]) for q in (0, 1) for r in (0, 1)]
    assert apply_stages(corners, {"quality": {"part": "right", "alpha": 1.0}})["quality"][1::2] == [-1, 0, 0, 1]


def test_margin_over_the_match_uses_all_seats_earlier_rounds() -> None:
    # a debate of two: rounds (0, 1) and then (1, 0); the mean of the first round is 1/2 for both
    trajectories = [make_trajectory(2, "m", "pro", right=[0, 1]), make_trajectory(2, "m", "contra", right=[1, 0])]
    trajectories.append(make_trajectory(2, "other", "pro", right=[1, 1]))
    by_match = {"margin": {"part": "right", "alpha": 1.0, "over": "match"}}
    assert apply_stages(trajectories, by_match)["margin"] == [0, 0.5, 0, -0.5, 0, 0]
    assert apply_stages(trajectories, {"margin": {"part": "right", "alpha": 1.0}})["margin"] == [0, 1, 0, -1, 0, 0]


# -- invariances of all stages -----------------------------------------------------------------------------

SETTINGS: dict[str, dict[str, Any]] = {
    "overlong": {"max_tokens": 8, "buffer": 4},
    "clip": {"part": "right", "between": [0.2, 0.6]},
    "gate": {"on": {"right": 0.5}, "parts": ["tools"]},
    "dense": {"part": "tools", "outcome": "right", "maximum": 3},
    "information_gain": {"outcome": "right"},
    "pivotal": {"part": "tools", "goal": "right"},
    "tool_bonus": {"part": "tools"},
    "tool_success": {},
    "graded_failure": {"part": "tools"},
    "attempts": {"part": "right"},
    "unary_decay": {"part": "right"},
    "self_correction": {"part": "right"},
    "margin": {"part": "right", "over": "match"},
    "quality": {"part": "right"},
    "judge": {"policy": "wise", "rubric": RUBRIC},
    "belief": {"policy": "wise"},
    "reward_model": {"model": "nano"},
}
STAGE_MEASURES = ("judge.good", "belief.process", "reward_model.learned")
"""Measures that these stages read."""
DETERMINISTIC = sorted(set(STAGES) - {"shuffle", "kl_penalty"})

turn_values = st.tuples(
    st.integers(1, 12), st.booleans(), st.sampled_from([0, 0.5, 1]), st.sampled_from([0, 1]), st.floats(-9, 0)
)
turn_lists = st.lists(st.lists(turn_values, min_size=1, max_size=4), min_size=1, max_size=6)


def make_measured_trajectory(turns: list[Any], i: int, role: str = "solver") -> tuple[Trajectory, np.ndarray]:
    tokens, valid, right, tools, gold = zip(*turns, strict=True)
    columns = {"tokens": tokens, "valid": valid, "right": right, "tools": tools, "action": [f"{t}" for t in tokens]}
    return make_trajectory(len(turns), f"{role}{i}", role, i % 2, **columns), np.array(gold, np.float32)


def apply_stage_by_match(pairs: list[tuple[Trajectory, np.ndarray]], name: str) -> dict[str, dict[str, list[float]]]:
    values = [g for _, g in pairs]
    batch = TurnBatch([t for t, _ in pairs], measures=dict.fromkeys(("gold", *STAGE_MEASURES), values))
    columns = compute_named_rewards(batch, [choose("stage", name, **SETTINGS.get(name, {}))])
    cuts = {n: np.split(c, batch.starts[1:-1]) for n, c in columns.items()}
    return {t.match: {n: cuts[n][i].tolist() for n in cuts} for i, (t, _) in enumerate(pairs)}


@pytest.mark.slow_after(8)
@pytest.mark.parametrize("name", DETERMINISTIC)
@settings(max_examples=40)
@given(turn_lists, turn_lists, st.randoms())
def test_order_and_other_roles_change_nothing(
    name: str, own_turns: list[Any], other_turns: list[Any], rng: Any
) -> None:
    pairs = [make_measured_trajectory(turns, i) for i, turns in enumerate(own_turns)]
    alone = apply_stage_by_match(pairs, name)
    mixed = pairs + [make_measured_trajectory(turns, i, "judge") for i, turns in enumerate(other_turns)]
    rng.shuffle(mixed)
    together = apply_stage_by_match(mixed, name)
    for match, columns in alone.items():
        assert columns.keys() <= together[match].keys()
        for column, values in columns.items():
            assert together[match][column] == pytest.approx(values, abs=1e-6)


@pytest.mark.parametrize("name", sorted(STAGES))
def test_empty_batch_is_no_error(name: str) -> None:
    measures: dict[str, Any] = {name: [] for name in ("gold", "old", "reference", *STAGE_MEASURES)}
    stage_settings = {"part": "right"} if name == "shuffle" else SETTINGS.get(name, {})
    empty = compute_named_rewards(TurnBatch([], measures=measures), [choose("stage", name, **stage_settings)])
    assert all(not len(column) for column in empty.values())


# -- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ({"format": {"pattern": "(a"}}, "'(a' is no regular expression: missing ) at position"),
        ({"repetition": {"pattern": "*"}}, "'*' is no regular expression: nothing to repeat"),
        (
            {"clip": {"part": "deal", "between": [2, -1]}},
            "the lower bound 2 is above the upper bound -1: write [low, high]",
        ),
        ({"clip": {"part": "deal", "between": [None, None]}}, "give a lower or an upper bound"),
        ({"clip": {"part": "deal"}}, "between"),
        ({"gate": {"on": {}, "parts": ["tools"]}}, "at least 1"),
        ({"gate": {"on": {"won": 0}, "parts": []}}, "at least 1"),
        ({"dense": {"part": "a", "outcome": "b", "maximum": 0}}, "greater than 0"),
        ({"overlong": {"max_tokens": 48, "buffer": 0}}, "greater than or equal to 1"),
        ({"unary_decay": {"part": "right", "base": 0.5}}, "greater than or equal to 1"),
        ({"self_correction": {"part": "right", "credited": "third"}}, "'second', 'both' or 'all'"),
        ({"tool_bonus": {"weight": "linnear"}}, "unknown schedule 'linnear' — did you mean 'linear'?"),
        ({"kl_penalty": {"kind": "k4"}}, "'k1', 'k2' or 'k3'"),
        ({"information_gain": {"gold": "answer"}}, "outcome"),
        ({"margin": {"part": "right", "alfa": 1}}, "unknown setting of stage margin — did you mean 'alpha'?"),
        ({"unary_decay": {"part": ""}}, "at least 1 character"),
    ],
)
def test_invalid_settings_give_one_line(stage: Any, message: str) -> None:
    with pytest.raises(ValidationError) as error:
        CreditSpec(stages=[stage])
    assert message in str(error.value)


RUN = """\
name: x
iterations: 1
policies: {p: {model: nano}}
game: {name: wordle}
seats: {guesser: {role: nano_player, policy: p}}
play: {matches: 4, group: 2}
"""


def test_error_names_the_file_and_line() -> None:
    text = RUN + "credit:\n  stages:\n    - valid_act\n    - format: {pattern: '(a'}\n"
    with pytest.raises(ConfigError, match=r"mine\.yaml:10: .*no regular expression") as error:
        compose([text_layer("mine.yaml", text)])
    assert "\n" not in str(error.value)


def test_settings_round_trip_through_yaml() -> None:
    stages = [{name: SETTINGS.get(name, {})} for name in DETERMINISTIC if name != "reward_model"]
    config = compose([text_layer("a", RUN)])
    config = config.model_copy(update={"credit": CreditSpec.model_validate(dict(stages=stages))})
    reloaded = compose([text_layer("b", to_yaml(config))])
    assert reloaded.credit == config.credit and to_yaml(reloaded) == to_yaml(config)
    gate = next(s for s in reloaded.credit.stages if s.name == "gate")
    assert gate.settings["on"] == {"right": 0.5}
