"""Built-in tools."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulators.toolbox.builtin import calculator, python


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("2 + 3 * 4", "14"), ("(2 + 3) * 4", "20"), ("-7 // 2", "-4"), ("-7 % 3", "2"), ("7 / 2", "3.5"),
        ("2 ** 10", "1024"), ("2 ** -1", "0.5"), ("+3 - -3", "6"), ("1e3 * 2", "2000.0"), (" 1 ", "1"),
        ("12345678901234567890 * 10", "123456789012345678900"),
    ],
)  # fmt: skip
def test_the_calculator_follows_the_usual_precedence(expression: str, result: str) -> None:
    assert calculator(expression) == result


@pytest.mark.parametrize(
    "expression",
    [
        "", "1 +", "x", "True", "__import__('os')", "(1).real", "[1]", "'a' * 3", "1 < 2", "1 if 1 else 2", "1j",
        "1 / 0", "0 ** -1", "9 ** 9 ** 9", "(9 ** 99) ** 99", "2.0 ** 99999", "(-1) ** 0.5", "(" * 300 + ")" * 300,
        "9" * 500,
    ],
)  # fmt: skip
def test_calculator_refuses_other_text(expression: str) -> None:
    with pytest.raises(ValueError):
        calculator(expression)


@given(st.text(alphabet="0123456789+-*/%(). e", max_size=40))
def test_any_text_gives_a_number_or_is_refused(expression: str) -> None:
    try:
        result = calculator(expression)
    except ValueError:
        return
    assert len(result) <= 310
    float(result)


def test_code_runs_in_a_cell() -> None:
    assert python("import os\nprint(6 * 7, os.path.exists('/etc/passwd'))") == "42 False"
