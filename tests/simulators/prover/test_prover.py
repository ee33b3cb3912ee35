"""The prover by rewriting: what it promises, what acts do, subgoals, and its players."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulators import conformance
from simulators.prover import Prover
from simulators.prover.planning import Planner, cut_into_pieces, is_proof, search
from simulators.prover.rewriting import RewriteProof
from simulators.prover.terms import Term, format_equation, read_equation
from simulators.prover.theorems import Theorem, draw_shape, draw_theorem
from tests.simulators.promises import find_failed_checks, passes_over_many_seeds


def on(equation: str, proof: tuple[str, ...] = (), **options: Any) -> Prover:
    """A match about this equation."""
    game = Prover(**options)
    game.reset(seed=0)
    game.proof = RewriteProof(Theorem(read_equation(equation), proof), "a")
    return game


def rewriting(game: Prover) -> RewriteProof:
    assert isinstance(game.proof, RewriteProof)
    return game.proof


def told(game: Prover) -> str:
    return str(game.observe("prover")["messages"][-1]["text"])


OPTIONS: list[dict[str, Any]] = [
    {}, {"depth": [1, 2], "terse": True}, {"depth": [2, 4], "max_turns": 20, "split": "train"},
]  # fmt: skip


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_passes_the_conformance_kit(options: dict[str, Any]) -> None:
    assert find_failed_checks(lambda: Prover(**options), seeds=6, acts=200) == []


@pytest.mark.slow
@pytest.mark.parametrize("options", [*OPTIONS, {"depth": 8, "operators": [3, 6], "split": "test"}], ids=str)
def test_over_many_seeds(options: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert passes_over_many_seeds(lambda: Prover(**options), options, capsys)


def test_a_proof_by_hand() -> None:
    game = on("(a+0)*b = b*a")
    for act, goal in (("ZERO 1", "a*b = b*a"), ("comm 1", "")):
        game.step(act)
        assert game.public()["goal"] == goal
    report = game.report()
    assert report["success"] and report["tactics"] == 2 and report["ended"] == "proved"
    assert game.payoffs() == {"prover": 1.0}


def test_the_right_side_can_be_rewritten_too() -> None:
    game = on("a = (a+0)*1")
    for act in ("zero 1", "one 1"):
        game.step(act)
    assert game.report()["success"]


def test_a_tactic_that_does_not_apply_costs_a_turn_and_is_said() -> None:
    game = on("a+b = b+a", depth=1)
    left = game.turns_left
    game.step("dist 1")
    assert game.infos["prover"]["valid"] and game.turns_left == left - 1
    assert told(game) == "No change: dist does not apply at 1."
    game.step("comm 7")
    assert "at 7" in told(game) and not game.ended
    short = on("a+b = b+a", terse=True)
    short.step("dist 1")
    assert told(short) == "no"


@pytest.mark.parametrize(
    "act", ["", "prove it", "comm", "comm x", "comm 0", "comm 100", "have a", "have a+b+c = a", "h0"]
)
def test_text_that_is_no_tactic_is_illegal(act: str) -> None:
    game = on("a+b = b+a")
    game.step(act)
    assert not game.infos["prover"]["valid"] and game.public()["goal"] == "a+b = b+a"


@settings(max_examples=50)
@given(st.lists(st.text(max_size=30) | st.sampled_from(["comm 1", "have a = b", "drop", "h1", "left 2"]), max_size=8))
def test_nothing_that_is_written_raises(acts: list[str]) -> None:
    game = on("a+(b+c) = (c+b)+a")
    for act in acts:
        if not game.ended:
            game.step(act)
    assert game.ended or game.public()["goal"]


def test_who_runs_out_of_turns_has_not_proved_it() -> None:
    game = on("a+b = a*b", depth=1, max_turns=2)
    game.step("comm 1")
    game.step("comm 1")
    assert game.report()["ended"] == "turns" and game.payoffs() == {"prover": 0.0}


# -- subgoals ----------------------------------------------------------------------------------------------


def test_a_proved_subgoal_becomes_a_lemma() -> None:
    game = on("(a+b)*c = (b+a)*c")
    game.step("have a+b = b+a")
    assert game.public()["goal"] == "a+b = b+a" and game.public()["open"] == 2
    game.step("h1")
    assert "there is no lemma" in told(game)
    game.step("comm 1")
    assert game.public()["goal"] == "(a+b)*c = (b+a)*c" and game.public()["lemmas"] == {"h1": "a+b = b+a"}
    game.step("h1")
    assert game.report()["success"]


def test_a_lemma_is_the_subgoal_as_it_was_stated_not_what_was_left_of_it() -> None:
    game = on("a*b = c")
    for act in ("have (a*1)*b = b*a", "one 1", "comm 1"):
        game.step(act)
    assert game.public()["lemmas"] == {"h1": "(a*1)*b = b*a"}


def test_a_false_subgoal_can_be_dropped_and_proves_nothing() -> None:
    game = on("0 = 1", max_turns=9)
    game.step("have 0 = 1")
    assert told(game) == "No change: that is known or open already."
    game.step("have a = 0")
    game.step("drop")
    assert game.public()["goal"] == "0 = 1" and game.public()["lemmas"] == {}
    game.step("drop")
    assert "cannot be dropped" in told(game)


def test_goals_and_lemmas_are_bounded() -> None:
    game = on("a+b = a*b", max_turns=100)
    for act in ("have a = b", "have b = c"):
        game.step(act)
    game.step("have c = d")
    assert told(game) == "No change: too many goals and lemmas."


# -- what is dealt -----------------------------------------------------------------------------------------


def test_hidden_proofs_have_the_wanted_length_and_prove() -> None:
    rng = np.random.default_rng(0)
    for length in (1, 2, 5, 8):
        for _ in range(20):
            theorem = draw_theorem(rng, draw_shape(rng, (4, 5)), length)
            assert theorem is not None and len(theorem.proof) == length and is_proof(theorem.equation, theorem.proof)
            terms = [state[0] for state, _ in RewriteProof(theorem, "").list_states()] + [theorem.equation[1]]
            assert len(set(terms)) == length + 1  # it meets no term twice


def test_from_a_small_term_no_long_walk_is_possible() -> None:
    """With + and * mixed nothing but the two operands can be swapped: four terms in all."""
    shape: Term = ("+", "a", ("*", "a", "a"))
    rng = np.random.default_rng(0)
    assert draw_theorem(rng, shape, 6) is None and draw_theorem(rng, shape, 1) is not None
    game = Prover(depth=8, operators=2)
    game.reset(seed=0)
    assert len(rewriting(game).hidden_proof) == 8


def shape_of(term: Term) -> Term:
    return "a" if isinstance(term, str) else (term[0], shape_of(term[1]), shape_of(term[2]))


def test_train_and_test_share_no_shape() -> None:
    met: dict[str, set[Term]] = {"train": set(), "test": set()}
    for split, shapes in met.items():
        game = Prover(split=split, operators=[2, 4])
        for seed in range(300):
            game.reset(seed=seed)
            shapes.add(shape_of(rewriting(game).theorem[0]))
    assert len(met["train"]) > 100 and len(met["test"]) > 30 and not met["train"] & met["test"]


@pytest.mark.parametrize("depth", [0, 9, [3, 1], [1, 2, 3], "12", 1.5, None, [1, True]])
def test_depths_that_make_no_sense_are_refused(depth: Any) -> None:
    with pytest.raises(ValueError, match="depth must be"):
        Prover(depth=depth)


def test_turns_are_enough_for_the_hidden_proof() -> None:
    with pytest.raises(ValueError, match="max_turns must be a whole number of at least 4"):
        Prover(depth=4, max_turns=3)
    assert conformance.play(Prover(depth=4, max_turns=4), 0, "oracle")["success"]


# -- situations, clones and players ------------------------------------------------------------------------


def test_equal_goals_are_equal_situations_whatever_led_there() -> None:
    one, two = on("a+b = c"), on("a+b = c")
    for act in ("comm 1", "comm 1", "dist 1"):
        one.step(act)
    assert one.situation("prover") == two.situation("prover")
    two.step("have a = b")
    assert one.situation("prover") != two.situation("prover")


def test_a_clone_goes_its_own_way() -> None:
    game = on("a+b = b+a")
    twin = game.clone()
    twin.step("have a = b")
    assert game.public()["open"] == 1 and twin.public()["open"] == 2
    assert game.hides_nothing()


def test_the_floor_is_that_of_random_tactics() -> None:
    """One of the 63 pairs of rule and number, 5 times: if one pair proves it, 1 - (62 / 63)**5 = .077."""
    assert 0.05 < Prover(depth=1).floor < 0.2
    assert Prover(depth=4).floor < 0.04


def test_the_flawed_player_is_right_in_part_of_the_matches() -> None:
    def share(depth: int) -> float:
        return sum(bool(conformance.play(Prover(depth=depth), s, "flawed")["success"]) for s in range(60)) / 60

    shares = {depth: share(depth) for depth in (1, 4)}
    assert 0.3 < shares[4] < shares[1] < 1.0


# -- planning ----------------------------------------------------------------------------------------------


def test_a_search_tries_all_of_one_length_before_a_longer_one() -> None:
    rng = np.random.default_rng(0)
    goal = read_equation("a+b = b+a")
    assert search(goal, 10, rng) == (("comm 1",), 1)
    assert search(read_equation("a+b = a*b"), 10, rng).nodes == 2  # there and back: nothing else can be tried
    assert search(goal, 0, rng) == (None, 0)


def test_pieces_join_the_two_sides() -> None:
    game = Prover(depth=5, operators=4)
    game.reset(seed=3)
    proof = rewriting(game)
    for count in (1, 2, 3, 5):
        plan = cut_into_pieces(proof, count)
        assert len(plan) == count and plan[0][0] == proof.theorem[0] and plan[-1][1] == proof.theorem[1]
        assert all(one[1] == two[0] for one, two in pairwise(plan))


def test_subgoals_save_most_of_the_search() -> None:
    game, nodes = Prover(depth=6, operators=4), {1: 0, 6: 0}
    for seed in range(20):
        game.reset(seed=seed)
        for count in nodes:
            planner = Planner(np.random.default_rng(seed), budget=20_000)
            assert planner.prove(rewriting(game), count)
            nodes[count] += planner.nodes
    assert 4 * nodes[6] < nodes[1]


def test_proved_pieces_are_not_searched_again_and_wrong_ones_do_not_count() -> None:
    game = Prover(depth=4)
    game.reset(seed=1)
    planner = Planner(np.random.default_rng(0))
    acts = planner.prove(rewriting(game), 4)
    tried = planner.nodes
    assert planner.prove(rewriting(game), 4) == acts and planner.nodes == tried
    planner.cache = dict.fromkeys(planner.cache, ("comm 1",))
    assert planner.prove(rewriting(game), 4) and planner.nodes > tried
    assert all(is_proof(goal, tactics) for goal, tactics in planner.cache.items())


def test_what_is_stuck_is_planned_again_with_more_pieces() -> None:
    game = Prover(depth=8, operators=4, max_turns=30)
    for seed in range(10):
        game.reset(seed=seed)
        planner = Planner(np.random.default_rng(seed), budget=40)
        acts = planner.prove(rewriting(game))
        for act in acts:
            game.step(act)
        assert game.report()["success"], format_equation(rewriting(game).theorem)


def test_the_planner_writes_subgoals_and_their_proofs() -> None:
    assert all(conformance.play(Prover(depth=6, max_turns=20), seed, "planner")["success"] for seed in range(10))
