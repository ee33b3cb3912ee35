"""Every alarm is raised by its planted change and by nothing else; honest runs raise none."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import analysis
from analysis import alarms as alarms_of
from analysis.alarms import alarms
from arena.records import MatchRecord, trajectories
from arena.store.run import RunFolder
from tests.factories.made_run import SEATS, make_match

ITERATIONS, MATCHES = 9, 24
SHARED = ["the", "a", "to", "of", "for", "it", "and", "you", "we", "that", "this", "one", "take", "give", "more"]
OWN = {
    "opener": ["offer", "sell", "price", "mine", "keep", "best"],
    "responder": ["want", "buy", "need", "please", "cheap", "yours"],
}
PLANTED = ("collapse", "repetition", "role drift", "one-sidedness", "reward hack", "truncation")


def make_negotiation(rng: np.random.Generator, k: int, number: int, planted: str) -> MatchRecord:
    """Return a negotiation that improves with the iterations; planted changes begin in the last third."""
    progress, late = k / (ITERATIONS - 1), planted if k >= 6 else ""
    deal = bool(rng.random() < (0.15 if late == "reward hack" else 0.7 + 0.2 * progress))
    gain = float(abs(rng.normal(3)) if late == "one-sidedness" else rng.normal(0, 3))
    turns = []
    for index in range(6):
        seat = SEATS[index % 2]
        talks = SEATS[0] if late == "role drift" else seat
        words = [str(w) for w in (*rng.choice(SHARED, 4), *rng.choice(OWN[talks], 3))]
        if late == "repetition" and rng.random() < 0.9:
            words = OWN[seat]
        words_said = " ".join(words if late == "repetition" else rng.permutation(words))
        valid = bool(rng.random() < (0.3 if late == "collapse" else 0.7 + 0.25 * progress))
        earned = float(rng.normal(2.0 if late == "reward hack" else progress + deal, 0.5))
        turn = make_match(k, number).turns[index % 2]
        finish = "length" if late == "truncation" and rng.random() < 0.5 else "stop"
        turns.append(turn._replace(finish=finish, index=index, public=words_said, valid=valid, rewards={"r": earned}))
    paid = {"opener": gain, "responder": -gain}
    report: dict[str, float | bool | str] = {"deal": deal}
    return replace(make_match(k, number), turns=tuple(turns), payoffs=paid, report=report, streams={})


def make_run(path: Path, seed: int, planted: str = "") -> analysis.Frames:
    rng, folder = np.random.default_rng(seed), RunFolder.create(path, "a: 1\n", {})
    for k in range(ITERATIONS):
        records = [make_negotiation(rng, k, number, planted) for number in range(MATCHES)]
        folder.log.extend(records)
        folder.log.seal(k)
        credited = [one for record in records for one in trajectories(record)]
        worth: list[Any] = [[sum(turn.rewards.values()) for turn in one.turns] for one in credited]
        folder.log.write_credit(k, (one.credited(w, w) for one, w in zip(credited, worth, strict=True)))
    return analysis.load(path)


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("planted", PLANTED)
@pytest.mark.parametrize("seed", range(3))
def test_planted_change_raises_its_alarm_only(tmp_path: Path, planted: str, seed: int) -> None:
    rang = alarms(make_run(tmp_path / "run", seed, planted))
    # an outcome that falls so far has collapsed, too
    assert {alarm.name for alarm in rang} == {planted} | ({"collapse"} if planted == "reward hack" else set())
    assert all(str(alarm).startswith(f"run: {alarm.name}, ") for alarm in rang)


@pytest.mark.slow
@pytest.mark.parametrize("count", [4, pytest.param(100, marks=pytest.mark.slow)])
def test_honest_runs_raise_no_alarm(tmp_path: Path, count: int) -> None:
    """Runs that learn and chat at random. A false alarm rate of 1 in 33 would pass with 5 % only."""
    assert [alarm for seed in range(count) for alarm in alarms(make_run(tmp_path / f"{seed}", seed))] == []


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("success", ["yes", [True], None])
def test_other_runs_reports_hide_no_outcome(tmp_path: Path, success: Any) -> None:
    """A text, a list or None as `success` beside the falling figure, in the same and in another run."""
    make_run(tmp_path / "run", 0, "reward hack")
    other = RunFolder.create(tmp_path / "other", "a: 1\n", {})
    other.log.extend([replace(make_match(k, 0), report={"success": success, "deal": True}) for k in range(3)])
    other.log.close()
    rang = alarms(analysis.load([tmp_path / "other", tmp_path / "run"]))
    assert ("run", "reward hack", "report.deal") in {(alarm.run, alarm.name, alarm.who) for alarm in rang}


def test_unknown_words_are_attributed_to_no_role() -> None:
    logs = pd.DataFrame({"buyer": [-1.0, -2.0], "seller": [-2.0, -1.0]}, index=["want", "offer"])
    texts = pd.Series(["I want", "an Offer", "zum zum zum", ""], index=[5, 3, 8, 0])
    assert alarms_of._classify_role(texts, logs).to_dict() == {5: "buyer", 3: "seller", 8: "", 0: ""}
    assert alarms_of._classify_role(texts[:0], logs).empty


def test_new_words_raise_no_drift_alarm(tmp_path: Path) -> None:
    """In the last third all roles use new words equally."""
    folder = RunFolder.create(tmp_path / "run", "a: 1\n", {})
    for k in range(ITERATIONS):
        made_up = [make_negotiation(np.random.default_rng((k, n)), k, n, "") for n in range(MATCHES)]
        for record in made_up:
            texts = [f"zum {k} {t.index} {record.id}" if k >= 6 else t.public for t in record.turns]
            turns = tuple(t._replace(public=one) for t, one in zip(record.turns, texts, strict=True))
            folder.log.extend([replace(record, turns=turns)])
    folder.log.close()
    assert [alarm for alarm in alarms(analysis.load(tmp_path / "run")) if alarm.name == "role drift"] == []


def test_short_and_empty_runs_raise_no_alarm(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "empty", "a: 1\n", {})
    assert alarms(analysis.load(tmp_path / "empty")) == []


# -- acts ----------------------------------------------------------------------------------------------------


def find_alarms(path: Path, iterations: int, acts: Any, deal: Any = lambda k: 0.5) -> list[str]:
    """Return the alarms of a run whose acts are drawn by `acts(k, rng)`; `?` is illegal, `deal` is a probability."""
    folder = RunFolder.create(path, "a: 1\n", {})
    for k in range(iterations):
        for number in range(60):
            rng, played, turns = np.random.default_rng((k, number)), make_match(k, number), []
            for i in range(6):
                act = acts(k, rng)
                taken = played.turns[i % 2]._replace(index=i, public="", valid=act[0] != "?", action=act, rewards={})
                turns.append(taken)
            gain, report = float(rng.normal(0, 3)), {"deal": bool(rng.random() < deal(k))}
            even = {"opener": gain, "responder": -gain}
            folder.log.extend([replace(played, turns=tuple(turns), payoffs=even, report=report, streams={})])  # type: ignore[arg-type]
    folder.log.close()
    return [f"{alarm.name}, {alarm.who}" for alarm in alarms(analysis.load(path))]


BOTH = ["the_opener", "the_responder"]


@pytest.mark.parametrize("iterations", [2, 9])
def test_constant_policy_raises_alarm_from_second_iteration(tmp_path: Path, iterations: int) -> None:
    """Kuhn poker's acts are single words, and a policy may collapse in the first update."""

    def one(k: int, rng: np.random.Generator) -> str:
        return str(rng.choice(["BET", "PASS"])) if k == 0 else "BET"

    rang = find_alarms(tmp_path / "run", iterations, one)
    assert sorted(rang) == sorted(f"{name}, {role}" for name in ("one act", "few acts") for role in BOTH)


def test_loss_of_act_diversity_raises_alarm(tmp_path: Path) -> None:
    rang = find_alarms(tmp_path / "run", 6, lambda k, rng: f"OFFER {rng.integers(2 if k > 1 else 200)}")
    assert sorted(rang) == [f"few acts, {role}" for role in BOTH]


def test_preference_for_one_act_raises_no_alarm(tmp_path: Path) -> None:
    """As in a healthy run of Kuhn poker: 85 % BET, then back."""
    assert (
        find_alarms(tmp_path / "run", 9, lambda k, rng: "BET" if rng.random() < 0.5 + 0.12 * min(k, 3) else "PASS")
        == []
    )


def test_convergence_with_more_reward_raises_no_alarm(tmp_path: Path) -> None:
    def settled(k: int, rng: np.random.Generator) -> str:
        return "ACCEPT" if k > 1 else str(rng.integers(9))

    assert find_alarms(tmp_path / "run", 6, settled, lambda k: min(0.9, 0.2 + 0.3 * k)) == []


@pytest.mark.parametrize(("acts", "rings"), [(["LOOK"] * 4, True), (["GO 1", "GO 1"] * 2, True), (None, False)])
def test_more_reward_with_fewer_solved_raises_alarm(acts: list[str] | None, rings: bool) -> None:
    """From 8 % solved, no fall can reach the .1 that `reward hack` requires."""
    rows = []
    for number in range(1800):
        rng, third = np.random.default_rng(number), number // 600
        own = [f"GO {rng.integers(40)}" for _ in range(4)] if acts is None or third < 2 else acts
        rewards = rng.normal(float(third == 2), 0.5, 4).tolist()
        solved = float(rng.random() < (0.01 if third == 2 else 0.08))
        head = {"match": f"{number}", "iteration": third, "third": third, "seat": "one", "role": "walker"}
        rows += [{**head, "action": a, "reward": r, "value": solved} for a, r in zip(own, rewards, strict=True)]
    turns = pd.DataFrame(rows)
    rewarded = alarms_of._average_by_match(turns, turns["reward"])
    judged = turns[["match", "third", "value"]].drop_duplicates("match")
    assert not [*alarms_of._check_reward_hack("run", "solved", judged, rewarded)]
    assert [alarm.name for alarm in alarms_of._check_idleness("run", judged, rewarded, turns)] == ["idleness"] * rings


def test_decreasing_gibberish_raises_no_alarm(tmp_path: Path) -> None:
    """Fewer kinds of illegal acts are no loss of diversity."""

    def learning(k: int, rng: np.random.Generator) -> str:
        return str(rng.choice(["BET", "PASS"])) if k > 1 or rng.random() < 0.2 else f"? {rng.integers(10**6)}"

    assert find_alarms(tmp_path / "run", 6, learning) == []


@pytest.mark.parametrize("iterations", [2, 9])
def test_gibberish_after_first_update_raises_alarm(tmp_path: Path, iterations: int) -> None:
    """Kuhn poker at lr 5e-3: legal acts 1.00 in iteration 1, .02 in iteration 2; thirds would mix the two."""

    def broken(k: int, rng: np.random.Generator) -> str:
        return str(rng.choice(["BET", "PASS"])) if k == 0 else f"? {rng.integers(10**6)}"

    rang = find_alarms(tmp_path / "run", iterations, broken)
    assert sorted(rang) == [f"collapse, valid acts of {role}" for role in BOTH]
