"""Terms, equations and rewrite rules: parsing inverts formatting, and rules preserve values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulators.prover.rules import RULES, apply_lemma, list_successors, rewrite
from simulators.prover.terms import (
    LEAVES,
    MAX_OPERATORS,
    Equation,
    Term,
    count_operators,
    format_equation,
    format_numbered,
    format_term,
    read_equation,
)

TERMS: st.SearchStrategy[Term] = st.recursive(
    st.sampled_from(LEAVES),
    lambda parts: st.tuples(st.sampled_from("+*"), parts, parts),
    max_leaves=MAX_OPERATORS // 2,
)


def evaluate(term: Term, assignment: dict[str, int]) -> int:
    if isinstance(term, str):
        return assignment.get(term, int(term) if term.isdigit() else 0)
    left, right = evaluate(term[1], assignment), evaluate(term[2], assignment)
    return left + right if term[0] == "+" else left * right


def parse(text: str) -> Equation:
    return read_equation(text)


@given(TERMS, TERMS)
def test_parsing_inverts_formatting(left: Term, right: Term) -> None:
    assert parse(format_equation((left, right))) == (left, right)


@given(st.text(max_size=60) | st.text(alphabet="ab01+*() =", max_size=60))
def test_any_text_parses_or_raises_value_error(text: str) -> None:
    try:
        equation = parse(text)
    except ValueError:
        return
    assert parse(format_equation(equation)) == equation


@pytest.mark.parametrize(
    "text",
    ["a", "a = b = c", "a+b+c = a", "(a = a", "a) = a", "() = a", "a+ = a", "e = a", "((a+b) = a", "a = ²", "(" * 150],
)
def test_refuses_invalid_equations(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


def test_refuses_too_large_terms() -> None:
    term = "a"
    for _ in range(MAX_OPERATORS):
        term = f"({term}+a)"
    assert count_operators(parse(f"{term} = a")[0]) == MAX_OPERATORS
    with pytest.raises(ValueError, match="operators"):
        parse(f"({term}+a) = a")


@given(TERMS, TERMS, st.tuples(*[st.integers(0, 9)] * 4))
def test_every_rule_preserves_the_value(left: Term, right: Term, values: tuple[int, ...]) -> None:
    assignment = dict(zip("abcd", values, strict=True))
    for _, after in list_successors((left, right)):
        assert [evaluate(side, assignment) for side in after] == [
            evaluate(left, assignment),
            evaluate(right, assignment),
        ]
        assert max(map(count_operators, after)) <= MAX_OPERATORS


@pytest.mark.parametrize(
    ("before", "tactic", "after"),
    [
        ("a+b = c", "comm 1", "b+a = c"),
        ("c = a*b", "comm 1", "c = b*a"),  # operators are numbered across both sides
        ("a+(b+c) = d", "left 1", "(a+b)+c = d"),
        ("a+(b+c) = d", "left 2", None),
        ("a+(b*c) = d", "left 1", None),
        ("(a*b)*c = d", "right 2", "a*(b*c) = d"),
        ("a*(b+c) = d", "dist 1", "(a*b)+(a*c) = d"),
        ("(a+b)*c = d", "dist 2", None),
        ("(a*b)+(a*c) = d", "fact 2", "a*(b+c) = d"),
        ("(a*b)+(c*a) = d", "fact 2", None),
        ("b+0 = d", "zero 1", "b = d"),
        ("b*0 = d", "zero 1", "0 = d"),
        ("0+b = d", "zero 1", None),
        ("b*1 = d", "one 1", "b = d"),
        ("b+1 = d", "one 1", None),
        ("a+a = d", "comm 1", None),  # swapping equal operands changes nothing
        ("a+b = d", "comm 2", None),
        ("a+b = d", "comm 0", None),
    ],
)
def test_rules_by_hand(before: str, tactic: str, after: str | None) -> None:
    rule, number = tactic.split()
    result = rewrite(parse(before), rule, int(number))
    assert (result and format_equation(result)) == after


def test_operators_are_numbered_in_the_order_of_the_text() -> None:
    assert format_numbered(parse("(a+b)*c = 1*(0+b)")) == "(a +1 b) *2 c = 1 *3 (0 +4 b)"


def test_rule_that_exceeds_the_size_limit_does_not_apply() -> None:
    factor: Term = "a"
    for _ in range(5):
        factor = ("*", factor, "b")
    equation = (("*", factor, ("+", "c", factor)), "a")  # 12 operators; distributing would give 18
    assert count_operators(equation[0]) == MAX_OPERATORS
    assert all(rewrite(equation, "dist", number) is None for number in range(1, 13))


def test_a_lemma_is_used_at_its_first_occurrence() -> None:
    lemma = parse("a+b = b+a")
    assert apply_lemma(parse("(c*(a+b))+(a+b) = a"), lemma) == parse("(c*(b+a))+(a+b) = a")
    assert apply_lemma(parse("c = (a+b)"), lemma) == parse("c = (b+a)")
    assert apply_lemma(parse("c = b+a"), lemma) is None


@given(TERMS)
def test_successors_match_rewrite(term: Term) -> None:
    equation = (term, "a")
    successors = dict(list_successors(equation))
    for rule in RULES:
        for number in range(1, count_operators(term) + 2):
            assert successors.get(f"{rule} {number}") == rewrite(equation, rule, number)
    assert format_term(term) in format_equation(equation)
