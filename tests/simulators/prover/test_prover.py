"""The prover by rewriting: conformance, acts, subgoals, and its players."""

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


def start_game(equation: str, proof: tuple[str, ...] = (), **options: Any) -> Prover:
    """Start a match about this equation."""
    game = Prover(**options)
    game.reset(seed=0)
    game.proof = RewriteProof(Theorem(read_equation(equation), proof), "a")
    return game


def get_proof(game: Prover) -> RewriteProof:
    assert isinstance(game.proof, RewriteProof)
    return game.proof


def read_last_message(game: Prover) -> str:
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
def test_passes_the_conformance_kit_over_many_seeds(
    options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert passes_over_many_seeds(lambda: Prover(**options), options, capsys)


def test_a_proof_by_hand() -> None:
    game = start_game("(a+0)*b = b*a")
    for act, goal in (("ZERO 1", "a*b = b*a"), ("comm 1", "")):
        game.step(act)
        assert game.public()["goal"] == goal
    report = game.report()
    assert report["success"] and report["tactics"] == 2 and report["ended"] == "proved"
    assert game.payoffs() == {"prover": 1.0}


def test_the_right_side_can_be_rewritten_too() -> None:
    game = start_game("a = (a+0)*1")
    for act in ("zero 1", "one 1"):
        game.step(act)
    assert game.report()["success"]


def test_inapplicable_tactic_costs_a_turn_and_is_reported() -> None:
    game = start_game("a+b = b+a", depth=1)
    turns_left = game.turns_left
    game.step("dist 1")
    assert game.infos["prover"]["valid"] and game.turns_left == turns_left - 1
    assert read_last_message(game) == "No change: dist does not apply at 1."
    game.step("comm 7")
    assert "at 7" in read_last_message(game) and not game.ended
    terse_game = start_game("a+b = b+a", terse=True)
    terse_game.step("dist 1")
    assert read_last_message(terse_game) == "no"


@pytest.mark.parametrize(
    "act", ["", "prove it", "comm", "comm x", "comm 0", "comm 100", "have a", "have a+b+c = a", "h0"]
)
def test_other_text_is_illegal(act: str) -> None:
    game = start_game("a+b = b+a")
    game.step(act)
    assert not game.infos["prover"]["valid"] and game.public()["goal"] == "a+b = b+a"


@settings(max_examples=50)
@given(st.lists(st.text(max_size=30) | st.sampled_from(["comm 1", "have a = b", "drop", "h1", "left 2"]), max_size=8))
def test_no_text_raises(acts: list[str]) -> None:
    game = start_game("a+(b+c) = (c+b)+a")
    for act in acts:
        if not game.ended:
            game.step(act)
    assert game.ended or game.public()["goal"]


def test_running_out_of_turns_earns_nothing() -> None:
    game = start_game("a+b = a*b", depth=1, max_turns=2)
    game.step("comm 1")
    game.step("comm 1")
    assert game.report()["ended"] == "turns" and game.payoffs() == {"prover": 0.0}


# -- subgoals ----------------------------------------------------------------------------------------------


def test_a_proved_subgoal_becomes_a_lemma() -> None:
    game = start_game("(a+b)*c = (b+a)*c")
    game.step("have a+b = b+a")
    assert game.public()["goal"] == "a+b = b+a" and game.public()["open"] == 2
    game.step("h1")
    assert "there is no lemma" in read_last_message(game)
    game.step("comm 1")
    assert game.public()["goal"] == "(a+b)*c = (b+a)*c" and game.public()["lemmas"] == {"h1": "a+b = b+a"}
    game.step("h1")
    assert game.report()["success"]


def test_lemma_is_the_subgoal_as_stated() -> None:
    game = start_game("a*b = c")
    for act in ("have (a*1)*b = b*a", "one 1", "comm 1"):
        game.step(act)
    assert game.public()["lemmas"] == {"h1": "(a*1)*b = b*a"}


def test_a_false_subgoal_can_be_dropped_and_proves_nothing() -> None:
    game = start_game("0 = 1", max_turns=9)
    game.step("have 0 = 1")
    assert read_last_message(game) == "No change: that is known or open already."
    game.step("have a = 0")
    game.step("drop")
    assert game.public()["goal"] == "0 = 1" and game.public()["lemmas"] == {}
    game.step("drop")
    assert "cannot be dropped" in read_last_message(game)


def test_goals_and_lemmas_are_bounded() -> None:
    game = start_game("a+b = a*b", max_turns=100)
    for act in ("have a = b", "have b = c"):
        game.step(act)
    game.step("have c = d")
    assert read_last_message(game) == "No change: too many goals and lemmas."


# -- drawn theorems ----------------------------------------------------------------------------------------


def test_hidden_proofs_have_the_wanted_length_and_prove() -> None:
    rng = np.random.default_rng(0)
    for length in (1, 2, 5, 8):
        for _ in range(20):
            theorem = draw_theorem(rng, draw_shape(rng, (4, 5)), length)
            assert theorem is not None and len(theorem.proof) == length and is_proof(theorem.equation, theorem.proof)
            terms = [state[0] for state, _ in RewriteProof(theorem, "").list_states()] + [theorem.equation[1]]
            assert len(set(terms)) == length + 1  # no term repeats


def test_small_terms_have_no_long_proofs() -> None:
    """With + and * mixed, only the operands can be swapped: four terms in total."""
    shape: Term = ("+", "a", ("*", "a", "a"))
    rng = np.random.default_rng(0)
    assert draw_theorem(rng, shape, 6) is None and draw_theorem(rng, shape, 1) is not None
    game = Prover(depth=8, operators=2)
    game.reset(seed=0)
    assert len(get_proof(game).hidden_proof) == 8


def to_shape(term: Term) -> Term:
    return "a" if isinstance(term, str) else (term[0], to_shape(term[1]), to_shape(term[2]))


def test_train_and_test_share_no_shape() -> None:
    shapes_by_split: dict[str, set[Term]] = {"train": set(), "test": set()}
    for split, shapes in shapes_by_split.items():
        game = Prover(split=split, operators=[2, 4])
        for seed in range(300):
            game.reset(seed=seed)
            shapes.add(to_shape(get_proof(game).theorem[0]))
    assert (
        len(shapes_by_split["train"]) > 100
        and len(shapes_by_split["test"]) > 30
        and not shapes_by_split["train"] & shapes_by_split["test"]
    )


@pytest.mark.parametrize("depth", [0, 9, [3, 1], [1, 2, 3], "12", 1.5, None, [1, True]])
def test_refuses_invalid_depths(depth: Any) -> None:
    with pytest.raises(ValueError, match="depth must be"):
        Prover(depth=depth)


def test_turn_limit_must_allow_the_hidden_proof() -> None:
    with pytest.raises(ValueError, match="max_turns must be a whole number of at least 4"):
        Prover(depth=4, max_turns=3)
    assert conformance.play(Prover(depth=4, max_turns=4), 0, "oracle")["success"]


# -- situations, clones and players ------------------------------------------------------------------------


def test_equal_goals_are_equal_situations() -> None:
    first, second = start_game("a+b = c"), start_game("a+b = c")
    for act in ("comm 1", "comm 1", "dist 1"):
        first.step(act)
    assert first.situation("prover") == second.situation("prover")
    second.step("have a = b")
    assert first.situation("prover") != second.situation("prover")


def test_clone_is_independent() -> None:
    game = start_game("a+b = b+a")
    twin = game.clone()
    twin.step("have a = b")
    assert game.public()["open"] == 1 and twin.public()["open"] == 2
    assert game.hides_nothing()


def test_floor_is_the_success_rate_of_random_tactics() -> None:
    """Five draws from 63 pairs of rule and number: if one pair proves it, 1 - (62 / 63)**5 = .077."""
    assert 0.05 < Prover(depth=1).floor < 0.2
    assert Prover(depth=4).floor < 0.04


def test_flawed_player_sometimes_succeeds() -> None:
    def compute_success_rate(depth: int) -> float:
        return sum(bool(conformance.play(Prover(depth=depth), s, "flawed")["success"]) for s in range(60)) / 60

    rates = {depth: compute_success_rate(depth) for depth in (1, 4)}
    assert 0.3 < rates[4] < rates[1] < 1.0


# -- planning ----------------------------------------------------------------------------------------------


def test_search_is_breadth_first() -> None:
    rng = np.random.default_rng(0)
    goal = read_equation("a+b = b+a")
    assert search(goal, 10, rng) == (("comm 1",), 1)
    assert search(read_equation("a+b = a*b"), 10, rng).nodes == 2  # only comm applies, back and forth
    assert search(goal, 0, rng) == (None, 0)


def test_pieces_join_the_two_sides() -> None:
    game = Prover(depth=5, operators=4)
    game.reset(seed=3)
    proof = get_proof(game)
    for count in (1, 2, 3, 5):
        plan = cut_into_pieces(proof, count)
        assert len(plan) == count and plan[0][0] == proof.theorem[0] and plan[-1][1] == proof.theorem[1]
        assert all(piece[1] == next_piece[0] for piece, next_piece in pairwise(plan))


def test_subgoals_save_most_of_the_search() -> None:
    game, nodes = Prover(depth=6, operators=4), {1: 0, 6: 0}
    for seed in range(20):
        game.reset(seed=seed)
        for count in nodes:
            planner = Planner(np.random.default_rng(seed), budget=20_000)
            assert planner.prove(get_proof(game), count)
            nodes[count] += planner.nodes
    assert 4 * nodes[6] < nodes[1]


def test_cached_proofs_are_reused_only_if_valid() -> None:
    game = Prover(depth=4)
    game.reset(seed=1)
    planner = Planner(np.random.default_rng(0))
    acts = planner.prove(get_proof(game), 4)
    nodes_before = planner.nodes
    assert planner.prove(get_proof(game), 4) == acts and planner.nodes == nodes_before
    planner.cache = dict.fromkeys(planner.cache, ("comm 1",))
    assert planner.prove(get_proof(game), 4) and planner.nodes > nodes_before
    assert all(is_proof(goal, tactics) for goal, tactics in planner.cache.items())


def test_failed_plans_are_retried_with_more_pieces() -> None:
    game = Prover(depth=8, operators=4, max_turns=30)
    for seed in range(10):
        game.reset(seed=seed)
        planner = Planner(np.random.default_rng(seed), budget=40)
        acts = planner.prove(get_proof(game))
        for act in acts:
            game.step(act)
        assert game.report()["success"], format_equation(get_proof(game).theorem)


def test_the_planner_writes_subgoals_and_their_proofs() -> None:
    assert all(conformance.play(Prover(depth=6, max_turns=20), seed, "planner")["success"] for seed in range(10))
