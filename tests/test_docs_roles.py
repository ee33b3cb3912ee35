"""Tests of docs/roles.md: every variable, filter, format, key and limit is documented, and the example is a role."""

import re
from pathlib import Path

from agents.role import SYSTEM_VARIABLES, TURN_VARIABLES, Role, Sampling, read_role
from agents.templates import MAX_STEPS, MAX_TEXT, SANDBOX

PAGE = Path("docs/roles.md").read_text(encoding="utf-8")


def test_every_name_is_documented() -> None:
    documented = set(re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)))
    filters = set(SANDBOX.filters) - {"counted", "metered", "spelled"}
    listed = set(re.findall(r"`(\w+)`", PAGE.split("Filters: ")[1].split("\n\n")[0]))
    assert listed == filters
    assert set(TURN_VARIABLES) | set(SYSTEM_VARIABLES) <= documented
    assert {"free", "tagged", "json", "whole"} <= documented and set(Sampling.model_fields) <= documented
    assert f"{MAX_STEPS:,} steps" in PAGE and f"{MAX_TEXT:,} characters" in PAGE


def test_the_example_is_a_role(tmp_path: Path) -> None:
    shown = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert shown is not None
    (tmp_path / "role.yaml").write_text(shown[1])
    role = read_role(tmp_path / "role.yaml")
    assert set(role.model_fields_set) == set(Role.model_fields), "every key is shown"
