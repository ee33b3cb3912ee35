"""Comparison of a study with its repeat on another instruction set."""

from typing import Any

import instruction_sets


def _make_study(**effects: tuple[float, float, float] | None) -> dict[str, Any]:
    """Return a record with an effect (estimate, low, high) per control; None for the mechanism's own arm."""
    names = ("estimate", "low", "high")
    summary = {
        control: {"first_arm_minus": None if effect is None else dict(zip(names, effect, strict=True))}
        for control, effect in effects.items()
    }
    return {"summary": summary}


def test_effects_agree_if_each_lies_in_the_interval_of_the_other() -> None:
    published = _make_study(arm=None, close=(0.2, 0.1, 0.3), far=(0.2, 0.1, 0.3), narrow=(0.2, 0.0, 0.4))
    repeated = _make_study(arm=None, close=(0.25, 0.15, 0.35), far=(0.35, 0.15, 0.55), narrow=(0.3, 0.28, 0.32))
    rows = instruction_sets.compare_effects(published, repeated)
    assert {row["control"]: row["agrees"] for row in rows} == {"close": True, "far": False, "narrow": False}


def test_controls_without_a_repeat_are_left_out() -> None:
    rows = instruction_sets.compare_effects(_make_study(zero=(0.2, 0.1, 0.3), old=(0.2, 0.1, 0.3)),
                                            _make_study(zero=(0.2, 0.1, 0.3)))  # fmt: skip
    assert [row["control"] for row in rows] == ["zero"]
