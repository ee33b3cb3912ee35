"""Reward stages: numbers worked by hand, what each must leave alone, and what is refused before anybody plays."""

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
from tests.factories.trajectories import wrap_turns

Columns = dict[str, list[float]]


def trajectory(
    length: int, match: str = "m", role: str = "solver", seed: int = 0, **columns: Sequence[Any]
) -> Trajectory:
    """Turns 0, 2, 4, …; columns named like a field of a turn fill it, the others are rewards."""
    turns = []
    for k in range(length):
        fields: dict[str, Any] = {
            "index": 2 * k, "seat": role, "role": role, "policy": "shared", "version": 1, "messages": (),
            "raw": "x", "public": "", "private": "", "action": "x", "valid": True, "rewards": {},
            "finish": "stop", "tokens": 2, "seconds": 0.0,
        }  # fmt: skip
        for name, values in columns.items():
            if name in fields:
                fields[name] = values[k]
            else:
                fields["rewards"] = {**fields["rewards"], name: float(values[k])}
        turns.append(Turn(**fields))
    return wrap_turns(tuple(turns), match=match, game="quiz", seat=role, role=role, seed=seed)


def run(found: list[Trajectory], *stages: Any, clock: Clock = Clock(), seed: int = 0, **measures: Any) -> Columns:
    """All named rewards after the stages, as flat lists."""
    batch = TurnBatch(found, clock, np.random.default_rng(seed), measures=measures)
    return {n: c.tolist() for n, c in compute_named_rewards(batch, CreditSpec(stages=list(stages)).stages).items()}


# -- the form of a reply -----------------------------------------------------------------------------------


def test_reply_rules_by_hand() -> None:
    one = trajectory(3, tokens=[5, 30, 48], finish=["stop", "stop", "length"], valid=[True, False, True])
    assert run([one], {"valid_act": {"bonus": 0.5}})["valid_act"] == [0.5, 0, 0.5]
    assert run([one], {"cut_off": {"penalty": 0.25}})["cut_off"] == [0, 0, -0.25]
    # beyond 10 free tokens: 0, 20 and 38 of them, at 0.01 each
    assert run([one], {"length": {"penalty": 0.01, "free": 10}})["length"] == pytest.approx([0, -0.2, -0.38])


def test_a_turn_with_several_attempts_costs_its_unit() -> None:
    one = trajectory(4, raw=["\\boxed{1}", "\\boxed{1} Wait \\boxed{2}", "none", "\\boxed{1}" * 3])
    assert run([one], "unit")["unit"] == [0, -1, 0, -1]
    assert run([one], {"unit": {"penalty": 0.5, "pattern": "Wait"}})["unit"] == [0, 0, 0, 0]
    assert run([one], {"unit": {"penalty": 0.5, "pattern": "[01]"}})["unit"] == [0, 0, 0, -0.5]


def test_overlong_is_dapos_ramp() -> None:
    # max 48, buffer 16: free up to 32; at 40 half way, (32 - 40)/16 = -0.5; at 48 -1, and no less beyond
    one = trajectory(5, tokens=[1, 32, 40, 48, 90])
    found = run([one], {"overlong": {"max_tokens": 48, "buffer": 16}})["overlong"]
    assert found == [0, 0, -0.5, -1, -1]
    assert run([one], {"overlong": {"max_tokens": 48, "buffer": 16, "weight": 2.0}})["overlong"][2] == -1


def test_format_by_pattern_or_by_the_games_reading() -> None:
    one = trajectory(
        3, raw=["<answer>4</answer>", "it is 4", "<answer>5"], valid=[False, True, True], action=["", "go", "go"]
    )
    tags = {"format": {"pattern": r"\A<answer>.*</answer>\Z", "match": 0.5, "miss": -2.0}}
    assert run([one], tags)["format"] == [0.5, -2, -2]
    assert run([one], {"format": {"pattern": "^go$", "text": "action"}})["format"] == [-1, 0, 0]
    assert run([one], "format")["format"] == [-1, 0, 0], "without a pattern: whether the act is valid"


# -- rewards out of rewards --------------------------------------------------------------------------------


def test_clip_keeps_a_part_between_its_bounds() -> None:
    one = trajectory(3, deal=[-5, 0.5, 9])
    assert run([one], {"clip": {"part": "deal", "between": [-1, 2]}})["deal"] == [-1, 0.5, 2]
    assert run([one], {"clip": {"part": "deal", "between": [None, 2]}})["deal"] == [-5, 0.5, 2]


def test_gate_by_hand() -> None:
    """G-RA's case: who submits nothing keeps nothing for tools; who submits but does not solve keeps no style."""
    found = [
        trajectory(3, submitted=[0, 0, 0], tools=[1, 1, 1], solved=[0, 0, 0]),
        trajectory(3, submitted=[0, 0, 1], tools=[1, 0, 1], solved=[0, 0, 0]),
        trajectory(2, submitted=[0, 1], tools=[1, 0], solved=[0, 2]),
    ]
    assert run(found, {"gate": {"on": {"submitted": 0}, "parts": ["tools"]}})["tools"] == [0, 0, 0, 1, 0, 1, 1, 0]
    both = {"gate": {"on": {"submitted": 0, "solved": 1}, "parts": ["tools"]}}
    assert run(found, both)["tools"] == [0, 0, 0, 0, 0, 0, 1, 0], "solved in all: 0, 0, 2"
    at = {"gate": {"on": {"submitted": 1}, "parts": ["tools"]}}
    assert not any(run(found, at)["tools"]), "the total has to exceed the threshold"


def test_gates_parts_are_gated_by_those_before_them() -> None:
    one = trajectory(2, first=[0, 0], second=[5, 5], third=[1, 1])
    found = run([one], {"gate": {"on": {"first": 0, "second": 0}, "parts": ["third"]}})
    assert found["first"] == [0, 0] and found["second"] == [0, 0] and found["third"] == [0, 0]


amounts = st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5)), min_size=1, max_size=4)


@settings(deadline=None)
@given(st.lists(amounts, min_size=1, max_size=5), st.floats(0, 6))
def test_gating_never_raises_a_total_of_rewards_that_are_no_penalties(turns: list[Any], threshold: float) -> None:
    found = [trajectory(len(t), won=[a for a, _ in t], tools=[b for _, b in t]) for t in turns]
    batch = TurnBatch(found)
    free = batch.totals(compute_turn_rewards(batch, CreditSpec()))
    stage = {"gate": {"on": {"won": threshold}, "parts": ["tools"]}}
    gated = batch.totals(compute_turn_rewards(batch, CreditSpec.model_validate(dict(stages=[stage]))))
    won = batch.totals(np.array([a for t in turns for a, _ in t]))
    assert (gated <= free + 1e-9).all()
    assert gated == pytest.approx(np.where(won > threshold, free, won))


def test_dense_by_hand() -> None:
    # a win with 2 positive sub-goals: halves; a loss with 1 of at most 4: a quarter; a win with none stays nothing
    found = [
        trajectory(3, quest=[1, 0, 1], won=[0, 0, 1]),
        trajectory(2, quest=[0, 1], won=[0, 0]),
        trajectory(1, quest=[0], won=[1]),
    ]
    stage = {"dense": {"part": "quest", "outcome": "won", "maximum": 4}}
    assert run(found, stage)["quest"] == [0.5, 0, 0.5, 0, 0.25, 0]


@settings(deadline=None)
@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=6), min_size=1, max_size=4), st.booleans())
def test_dense_totals_at_most_one(quests: list[list[float]], won: bool) -> None:
    found = [trajectory(len(q), quest=q, won=[0.0] * (len(q) - 1) + [float(won)]) for q in quests]
    scaled = run(found, {"dense": {"part": "quest", "outcome": "won", "maximum": 6}})["quest"]
    assert (TurnBatch(found).totals(np.array(scaled)) <= 1 + 1e-9).all()


def test_outcome_only_moves_each_part_to_the_last_turn() -> None:
    found = [trajectory(3, deal=[1, 2, 4], chat=[0.5, 0, 0]), trajectory(1, deal=[8], chat=[1])]
    assert run(found, "outcome_only") == {"deal": [0, 0, 7, 8], "chat": [0, 0, 0.5, 1]}
    assert run(found, {"outcome_only": {"parts": ["deal"]}}) == {"deal": [0, 0, 7, 8], "chat": [0.5, 0, 0, 1]}


def test_shuffle_permutes_a_part_within_each_group() -> None:
    found = [trajectory(3, seed=i % 2, gain=[10 * i + k for k in (1, 2, 3)]) for i in range(6)]
    before = [10 * i + k for i in range(6) for k in (1, 2, 3)]
    one, again, other = (run(found, {"shuffle": {"part": "gain"}}, seed=seed)["gain"] for seed in (1, 1, 2))
    assert one == again != other and one != before
    for seed in (0, 1):
        rows = [r for r in range(18) if (r // 3) % 2 == seed]
        assert sorted(one[r] for r in rows) == sorted(before[r] for r in rows)
    kept = run(found, {"shuffle": {"part": "gain", "last": False}}, seed=1)["gain"]
    assert kept[2::3] == before[2::3] and sorted(kept) == sorted(before) and kept != before


# -- on the way --------------------------------------------------------------------------------------------


def test_tool_bonus_is_capped_and_decays() -> None:
    one = trajectory(5, raw=["<tool_call>", "x", "<tool_call> <tool_call>", "<tool_call>", "<tool_call>"])
    fresh = {"tool_bonus": {"bonus": 0.1, "cap": 0.25}}
    # 0.1, –, 0.2, then only 0.05 are left under the cap, then nothing
    assert run([one], fresh)["tool_bonus"] == pytest.approx([0.1, 0, 0.1, 0.05, 0])
    # in iteration 101 the weight is (1 + cos(π 100/200)) / 2 = 1/2; from 201 on it is 0
    assert run([one], fresh, clock=Clock(101, 300))["tool_bonus"] == pytest.approx([0.05, 0, 0.05, 0.025, 0])
    assert run([one], fresh, clock=Clock(201, 300))["tool_bonus"] == pytest.approx([0] * 5)
    named = {"tool_bonus": {"part": "searched", "weight": 2.0}}
    assert run([trajectory(3, searched=[1, 0, -1])], named)["tool_bonus"] == pytest.approx([0.2, 0, 0])


def heard(*texts: str, sender: str = "tool") -> list[tuple[Message, ...]]:
    """What is new on each turn: nothing on the first, then one message each."""
    return [(), *((Message.of(sender, text),) for text in texts)]


def test_tool_success_is_of_the_call_and_not_of_the_answer() -> None:
    # four calls: two that worked, a traceback, an error in a line; the last turn's outcome nobody saw
    told = heard("12", "Traceback (most recent call last):\n  x\nNameError: x", "7\n[stopped: out of time]", "0")
    one = trajectory(5, messages=told)
    assert run([one], {"tool_success": {"bonus": 0.5}})["tool_success"] == [0.5, 0, 0, 0.5, 0]
    # the next trajectory's first turn is no answer to the last turn of the one before
    two = trajectory(2, match="n", messages=[(Message.of("tool", "1"),), (Message.of("user", "2"),)])
    assert run([one, two], {"tool_success": {}})["tool_success"] == [0.1, 0, 0, 0.1, 0, 0, 0]
    said = {"tool_success": {"sender": "user", "failed": "2"}}
    assert run([two], said)["tool_success"] == [0, 0]
    error = trajectory(2, messages=heard("Error: there is no tool"))
    assert run([error], {"tool_success": {}})["tool_success"] == [0, 0]


def test_graded_failure_by_hand() -> None:
    stage = {"graded_failure": {"part": "right"}}
    call, plain = "<code>x</code>", "x"
    # right is 1 however many calls; wrong is -1 + 0.1 n, and at most -0.6: from the fourth call on
    for raws, right, total in [
        ([call, plain], 1.0, 1.0),
        ([plain], 0.0, -1.0),
        ([call, plain], 0.0, -0.9),
        ([call] * 3, 0.0, -0.7),
        ([call] * 6, 0.0, -0.6),
        ([call, plain], 0.5, -0.9),
    ]:
        one = trajectory(len(raws), raw=raws, right=[0.0] * (len(raws) - 1) + [right])
        assert run([one], stage)["right"] == pytest.approx([0.0] * (len(raws) - 1) + [total])
    flat = {"graded_failure": {"part": "right", "call": 0.0}}
    assert run([trajectory(3, raw=[call] * 3, right=[0, 0, 0])], flat)["right"] == [0, 0, -1]


def test_pivotal_by_hand() -> None:
    # EPO: 1 where marked, goal/10 on the last turn (marked or not); both parts are replaced
    one = trajectory(4, pivot=[0, 3, 0, 1], goal=[0, 0, 2, 5])
    found = run([one], {"pivotal": {"part": "pivot", "goal": "goal"}})
    assert found == {"pivot": [0] * 4, "goal": [0] * 4, "pivotal": [0, 1, 0, 0.7]}
    assert run([trajectory(2, pivotal=[1, 0], goal=[0, 5])], {"pivotal": {"part": "pivotal", "goal": "goal"}}) == {
        "pivotal": [1, 0.5],
        "goal": [0, 0],
    }


def with_logprobs(logprobs: list[float], reference: list[float]) -> tuple[Trajectory, dict[str, Any]]:
    """Two turns of two tokens each, with what the models say of the four."""
    one = trajectory(2)
    stream = Stream()
    for turn in one.turns:
        stream.observe([1])
        stream.append_sampled([5, 6], [-1.0, -1.0], turn.index)
    one = replace(one, trained=True, streams=(stream,))
    return one, {"old": [np.array(logprobs, np.float32)], "reference": [np.array(reference, np.float32)]}


def test_kl_penalty_by_hand() -> None:
    one, said = with_logprobs([-1, -2, -1, -3], [-2, -1, -1, -3])
    # d = reference - old = -1, 1 | 0, 0.  k1: 1 - 1 = 0.  k2: 1/2 + 1/2 = 1.  k3: e^-1 + 1 - 1 + e - 1 - 1 = 1.0862
    k3 = np.exp(-1) + np.e - 2
    for kind, first in {"k1": 0.0, "k2": 1.0, "k3": k3}.items():
        found = run([one], {"kl_penalty": {"weight": 0.5, "kind": kind}}, **said)["kl_penalty"]
        assert found == pytest.approx([-0.5 * first, 0])
    assert CreditSpec.model_validate(dict(stages=["kl_penalty"])).needs == {"old", "reference"}


logprobs = st.lists(st.floats(-50, 0, width=32), min_size=4, max_size=4)


@settings(deadline=None)
@given(logprobs, logprobs)
def test_k2_and_k3_never_pay(old: list[float], reference: list[float]) -> None:
    one, said = with_logprobs(old, reference)
    for kind in ("k2", "k3"):
        assert max(run([one], {"kl_penalty": {"kind": kind}}, **said)["kl_penalty"]) <= 1e-12


# -- trying again ------------------------------------------------------------------------------------------


def test_attempts_are_told_apart() -> None:
    found = [trajectory(3, right=[1, 0.5, 0.25]), trajectory(1, right=[1])]
    named = run(found, {"attempts": {"part": "right"}})
    assert named["right"] == [0, 0, 0, 0]
    assert named["first_attempt"] == [1, 0, 0, 1] and named["later_attempts"] == [0, 0.5, 0.25, 0]


def test_unary_decay_by_hand() -> None:
    found = [trajectory(1, right=[1]), trajectory(3, right=[0, 0, 1]), trajectory(2, right=[-1, 0])]
    assert run(found, {"unary_decay": {"part": "right"}})["right"] == [1, 0, 0, 0.25, 0, 0]
    assert run(found, {"unary_decay": {"part": "right", "base": 1}})["right"] == [1, 0, 0, 1, 0, 0]


def test_repetition_by_hand() -> None:
    # 4 valid answers, "Lion" = "lion" and "a  cat" = "A cat": 2 different ones, -0.5 (1 - 2/4); nothing valid: 0
    answers = trajectory(5, action=["Lion", "lion", "a  cat", " A cat ", "dog"], valid=[1, 1, 1, 1, 0])
    silent = trajectory(2, action=["x", "x"], valid=[0, 0])
    assert run([answers, silent], "repetition")["repetition"] == [0, 0, 0, 0, -0.25, 0, 0]
    # only guesses are answers: two, both lions, in one turn each; questions may be asked twice
    asked = trajectory(4, action=["ASK fur", "ASK fur", "GUESS lion", "GUESS Lion | sure"], valid=[1, 1, 1, 1])
    guesses = {"repetition": {"pattern": "(?i)guess ([a-z]+)", "weight": 1.0}}
    assert run([asked], guesses)["repetition"] == [0, 0, 0, -0.5]


def test_ufos_optimum_is_not_to_repeat() -> None:
    """Five different wrong answers cost nothing, five times the same one -0.5 · 4/5."""
    different = trajectory(5, action=["a", "b", "c", "d", "e"])
    same = trajectory(5, action=["a"] * 5)
    assert run([different, same], "repetition")["repetition"][4::5] == pytest.approx([0, -0.4])


def returns(found: list[Trajectory], credited: str) -> list[float]:
    batch = TurnBatch(found)
    stage = {"self_correction": {"part": "right", "credited": credited}}
    column = compute_named_rewards(batch, CreditSpec.model_validate(dict(stages=[stage])).stages)["self_correction"]
    return batch.returns(column, 1.0).tolist()


def test_self_correction_reaches_the_attempts_that_it_is_said_to() -> None:
    # corrected: 10 (1 - 0); spoilt: 10 (0 - 1), with a third turn; a single attempt is compared with nothing
    found = [trajectory(2, right=[0, 1]), trajectory(3, right=[1, 0, 0]), trajectory(1, right=[1])]
    assert returns(found, "both") == [10, 10, -10, -10, 0, 0]
    assert returns(found, "second") == [0, 10, 0, -10, 0, 0]
    assert returns(found, "all") == [10, 10, -10, -10, -10, 0]


def test_the_bonus_pays_for_tanking_unless_the_second_attempt_alone_is_credited() -> None:
    """SCoRe's hazard: first wrong, then right beats right twice by α - 1 = 9 in the first attempt's return."""
    honest, tanked = trajectory(2, right=[1, 1]), trajectory(2, right=[0, 1])
    batch = TurnBatch([honest, tanked])
    for credited, gap in {"both": 9.0, "all": 9.0, "second": -1.0}.items():
        stage = {"self_correction": {"part": "right", "credited": credited}}
        first = batch.returns(compute_turn_rewards(batch, CreditSpec.model_validate(dict(stages=[stage]))))[[0, 2]]
        assert first[1] - first[0] == pytest.approx(gap)


def test_by_default_a_first_answer_is_paid_for_being_right() -> None:
    """At α = 1, whatever the second is: its return is r_1 + r_2; credited to both attempts it would be 2 r_2."""
    for second in (0, 1):
        batch = TurnBatch([trajectory(2, right=[first, second]) for first in (0, 1)])
        stages = [{"self_correction": {"part": "right", "alpha": 1.0}}]
        earned = batch.returns(compute_turn_rewards(batch, CreditSpec.model_validate(dict(stages=stages))))
        wrong, right = earned[[0, 2]].tolist()
        assert right - wrong == 1.0


def test_margin_and_quality_by_hand() -> None:
    # R = 0 1 1: Q of the earlier ones = –, 0, 1/2; margin (1 - 0)/2, (1 - 1/2)/2
    one = trajectory(3, right=[0, 1, 1])
    assert run([one], {"margin": {"part": "right"}})["margin"] == [0, 0.5, 0.25]
    # quality: 0·1 - 1·0 = 0, then 1/2·1 - 1/2·0 = 1/2, halved by α
    assert run([one], {"quality": {"part": "right"}})["quality"] == [0, 0, 0.25]
    # Q + R - 1 at the corners: right after right 1, wrong after wrong -1, a change 0
    corners = [trajectory(2, right=[q, r]) for q in (0, 1) for r in (0, 1)]
    assert run(corners, {"quality": {"part": "right", "alpha": 1.0}})["quality"][1::2] == [-1, 0, 0, 1]


def test_margin_over_the_match_takes_every_seats_earlier_rounds() -> None:
    # a debate of two: rounds (0, 1) and then (1, 0); the mean of the first round is 1/2 for both
    found = [trajectory(2, "m", "pro", right=[0, 1]), trajectory(2, "m", "contra", right=[1, 0])]
    found.append(trajectory(2, "other", "pro", right=[1, 1]))
    over = {"margin": {"part": "right", "alpha": 1.0, "over": "match"}}
    assert run(found, over)["margin"] == [0, 0.5, 0, -0.5, 0, 0]
    assert run(found, {"margin": {"part": "right", "alpha": 1.0}})["margin"] == [0, 1, 0, -1, 0, 0]


# -- what all stages leave alone ---------------------------------------------------------------------------

WHOLE: dict[str, dict[str, Any]] = {
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
MEASURED = ("judge.good", "belief.process", "reward_model.learned")
"""Measures that these stages read."""
FIXED = sorted(set(STAGES) - {"shuffle", "kl_penalty"})

turn = st.tuples(
    st.integers(1, 12), st.booleans(), st.sampled_from([0, 0.5, 1]), st.sampled_from([0, 1]), st.floats(-9, 0)
)
plays = st.lists(st.lists(turn, min_size=1, max_size=4), min_size=1, max_size=6)


def played(turns: list[Any], i: int, role: str = "solver") -> tuple[Trajectory, np.ndarray]:
    tokens, valid, right, tools, gold = zip(*turns, strict=True)
    columns = {"tokens": tokens, "valid": valid, "right": right, "tools": tools, "action": [f"{t}" for t in tokens]}
    return trajectory(len(turns), f"{role}{i}", role, i % 2, **columns), np.array(gold, np.float32)


def by_match(found: list[tuple[Trajectory, np.ndarray]], name: str) -> dict[str, dict[str, list[float]]]:
    measured = [g for _, g in found]
    batch = TurnBatch([t for t, _ in found], measures=dict.fromkeys(("gold", *MEASURED), measured))
    columns = compute_named_rewards(batch, [choose("stage", name, **WHOLE.get(name, {}))])
    cuts = {n: np.split(c, batch.starts[1:-1]) for n, c in columns.items()}
    return {t.match: {n: cuts[n][i].tolist() for n in cuts} for i, (t, _) in enumerate(found)}


@pytest.mark.slow_after(8)
@pytest.mark.parametrize("name", FIXED)
@settings(max_examples=40)
@given(plays, plays, st.randoms())
def test_the_order_of_matches_and_other_roles_matches_change_nothing(
    name: str, mine: list[Any], others: list[Any], chance: Any
) -> None:
    found = [played(turns, i) for i, turns in enumerate(mine)]
    alone = by_match(found, name)
    mixed = found + [played(turns, i, "judge") for i, turns in enumerate(others)]
    chance.shuffle(mixed)
    together = by_match(mixed, name)
    for match, columns in alone.items():
        assert columns.keys() <= together[match].keys()
        for column, values in columns.items():
            assert together[match][column] == pytest.approx(values, abs=1e-6)


@pytest.mark.parametrize("name", sorted(STAGES))
def test_nobody_to_reward_is_no_error(name: str) -> None:
    measures: dict[str, Any] = {name: [] for name in ("gold", "old", "reference", *MEASURED)}
    chosen = {"part": "right"} if name == "shuffle" else WHOLE.get(name, {})
    empty = compute_named_rewards(TurnBatch([], measures=measures), [choose("stage", name, **chosen)])
    assert all(not len(column) for column in empty.values())


# -- what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "told"),
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
def test_settings_that_cannot_be_meant_are_refused_in_one_line(stage: Any, told: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        CreditSpec(stages=[stage])
    assert told in str(refusal.value)


RUN = """\
name: x
iterations: 1
policies: {p: {model: nano}}
game: {name: wordle}
seats: {guesser: {role: nano_player, policy: p}}
play: {matches: 4, group: 2}
"""


def test_a_refusal_names_the_file_and_line() -> None:
    text = RUN + "credit:\n  stages:\n    - valid_act\n    - format: {pattern: '(a'}\n"
    with pytest.raises(ConfigError, match=r"mine\.yaml:10: .*no regular expression") as refusal:
        compose([text_layer("mine.yaml", text)])
    assert "\n" not in str(refusal.value)


def test_settings_survive_the_way_through_yaml() -> None:
    stages = [{name: WHOLE.get(name, {})} for name in FIXED if name != "reward_model"]
    given = compose([text_layer("a", RUN)])
    given = given.model_copy(update={"credit": CreditSpec.model_validate(dict(stages=stages))})
    again = compose([text_layer("b", to_yaml(given))])
    assert again.credit == given.credit and to_yaml(again) == to_yaml(given)
    gate = next(s for s in again.credit.stages if s.name == "gate")
    assert gate.settings["on"] == {"right": 0.5}
