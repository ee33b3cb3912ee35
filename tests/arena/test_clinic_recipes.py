"""The clinic's recipes train their policies, and the terse role shows everything a doctor knows."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from agents.role import load_role
from games.base import TextGame
from games.contracts import View
from simulators.clinic import Clinic
from simulators.clinic.signs import LETTERS
from simulators.extractor import Stance
from tests.factories.commands import arena

SMALL = [
    "iterations=2", "play.matches=8", "play.in_flight=8", "play.group=4", "checkpoint.every=1", "checkpoint.keep=9",
]  # fmt: skip
TERSE: dict[str, Any] = {"terse": True, "diseases": 20, "symptoms": 24}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "policies", "figures"),
    [("clinic-nano", ["doctor"], set()), ("clinic_both-nano", ["doctor", "patient"], {"told_wrong", "told_unread"})],
)
def test_a_recipe_trains_its_policies(recipe: str, policies: list[str], figures: set[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    imitation = [
        f"policies.{p}.imitate={{scripted: [random], matches: 128, epochs: 2, minibatches: 16, lr: 3e-3}}"
        for p in policies
    ]
    settings = [part for setting in (*SMALL, *imitation) for part in ("--set", setting)]
    result = arena("run", "selfplay", "--recipe", recipe, "--out", run, *settings)
    assert result.code == 0, result.err
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 2 and all({"success", "posterior_best", *figures} <= row["report"].keys() for row in rows)
    for policy in policies:
        before, after = (
            load_file(run / "checkpoints" / k / "policies" / policy / "model.safetensors") for k in ("0000", "0002")
        )
        assert any(not np.array_equal(before[name], after[name]) for name in before)


def render_turn(game: TextGame, first: bool = False) -> str:
    """Return what the terse role shows in the doctor's current turn."""
    return load_role("nano_doctor").render_turn(View.of(game, "doctor"), first=first)


def test_the_terse_doctor_sees_each_fact_in_one_letter() -> None:
    game = Clinic(**TERSE, budget=9)
    game.reset(seed=1)
    record = game.patient.record
    complaint = "".join(LETTERS[symptom] for symptom in record.complaint)
    assert render_turn(game, first=True) == f"{complaint}9"
    expected = complaint
    marks: dict[Stance, str] = {"inform": "{}", "deny": "{}", "unknown": "{}?"}
    for symptom in [s for s in range(len(record.answers)) if s not in record.complaint][:6]:
        game.step(f"A{LETTERS[symptom]}")
        stance, letter = record.answers[symptom], LETTERS[symptom]
        expected += marks[stance].format(letter.upper() if stance == "deny" else letter)
    assert render_turn(game) == f"{expected}3"
    game.step("T2")
    tested = "".join("+" if is_present else "-" for is_present in record.findings[3:6])
    assert render_turn(game) == f"{expected}2{tested}2"
