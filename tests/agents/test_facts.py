"""Facts as template values."""

from typing import Any

import pytest

from agents.facts import format_facts, format_literal
from agents.templates import compile_template, render_template


@pytest.mark.parametrize(
    "value",
    [None, True, False, 3, -0.5, "a", 'He said: "no"\n\\ x', "é \u2713", [1, [None, "x"]], {"books": 3, "b": [True]}],
)
def test_a_fact_equals_its_literal_in_a_template(value: Any) -> None:
    text = "{{ public.fact == " + format_literal(value) + " }}"
    assert render_template(compile_template(text, ("public",)), {"public": {"fact": value}}) == "True"


def test_facts_have_template_names_and_are_truncated() -> None:
    assert [*format_facts("public", {"offer": None, "pool": (3, 2)})] == ["public.offer = none", "public.pool = [3, 2]"]
    (line,) = format_facts("private", {"text": "x" * 10_000})
    assert len(line) < 400 and line.endswith("…")
