"""Calibration: worked by hand, and near 0 for who believes the exact posterior of an honest patient."""

import pandas as pd
import pytest

from analysis.calibration import calibration
from simulators.clinic import Clinic
from simulators.conformance import play


def frame(reports):
    return pd.DataFrame([{f"report.{name}": value for name, value in report.items()} for report in reports])


def test_by_hand():
    """Bins of 0.5: 0.2 and 0.4, of which one is right; 0.8, right; who named nothing is left out."""
    rows = [(True, 0.2, 0.5, "a"), (False, 0.4, 0.4, "b"), (True, 0.8, 0.8, "a"), (False, 0.0, 0.9, "")]
    names = ("success", "posterior_named", "posterior_best", "diagnosis")
    found = calibration(frame([dict(zip(names, row, strict=True)) for row in rows]), bins=2)
    assert found.accuracy.estimate == pytest.approx(2 / 3) and found.believed.estimate == pytest.approx(1.4 / 3)
    assert found.regret.estimate == pytest.approx(0.1)
    assert found.brier.estimate == pytest.approx((0.64 + 0.16 + 0.04) / 3)
    assert found.bins["matches"].tolist() == [2, 1]
    assert found.bins["believed"].tolist() == pytest.approx([0.3, 0.8])
    assert found.error == pytest.approx((2 * abs(0.5 - 0.3) + abs(1 - 0.8)) / 3)


def test_a_chance_of_one_is_in_the_last_bin():
    certain = {"success": True, "posterior_named": 1.0, "posterior_best": 1.0, "diagnosis": "a"}
    assert calibration(frame([certain, certain])).bins.index.tolist() == [9]


def test_frames_of_other_games_are_refused():
    with pytest.raises(ValueError, match="of matches of the clinic"):
        calibration(pd.DataFrame({"report.success": [True]}))
    none = {"success": False, "posterior_named": 0.0, "posterior_best": 0.5, "diagnosis": ""}
    with pytest.raises(ValueError, match="no match ended in a diagnosis"):
        calibration(frame([none]))


@pytest.mark.slow
def test_the_exact_posterior_is_calibrated_and_a_guess_is_regretted():
    asker = calibration(frame([play(Clinic(persona="mixed"), seed, "asker") for seed in range(300)]))
    assert asker.error < 0.08 and asker.regret.estimate == pytest.approx(0, abs=1e-9)
    assert asker.accuracy.low < asker.believed.estimate < asker.accuracy.high
    guess = calibration(frame([play(Clinic(persona="mixed"), seed, "random") for seed in range(100)]))
    assert guess.regret.low > 0.2 and guess.accuracy.estimate < 0.15


def test_a_lying_patient_breaks_it():
    lied = [play(Clinic(person="free", budget=12), seed, "asker", "random") for seed in range(150)]
    assert calibration(frame(lied)).error > 0.3
