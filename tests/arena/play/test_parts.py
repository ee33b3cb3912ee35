"""Rollout parts: hooks, order, parts from a user's file, and their errors."""

import json
from pathlib import Path

import pytest

from arena.store.run import RunFolder
from tests.factories.clusters import ROOT
from tests.factories.commands import NO_IMITATION, TINY, arena
from tests.factories.labs import make_warm_experiment, read_log, resume_lab, run_lab, stop_lab
from tests.factories.traces import assert_same_runs

HALF = '''
"""Every second match of an iteration is not played, and the longest reply so far is remembered."""

from dataclasses import replace

from arena.play.control import MatchControl, Replace, Stop
from arena.play.parts.base import Expansion, RolloutPart, declare


def check(setup, *, keep, act):
    if setup.play.group > 1:
        raise ValueError("groups would be cut: set play.group to 1")


@declare(check=check, rewards=("polite",))
def half(context, *, keep: int = 2, act: str = ""):
    """Play every second match."""
    return Half(keep, act)


class Acts(MatchControl):
    def __init__(self, act):
        self.act, self.count = act, 0

    def before(self, view, act):
        self.count += 1
        if self.act and self.count == 1:
            return Replace(self.act)
        return Stop("enough") if self.count > 4 else super().before(view, act)


class Half(RolloutPart):
    def __init__(self, keep, act):
        self.keep, self.act, self.turns, self.again = keep, act, 0, {}

    async def plan(self, k, plans):
        return plans[:: self.keep]

    async def expand(self, k, progress):
        if k in self.again or not progress.records:
            return Expansion()
        self.again[k] = True
        return Expansion(deals=1)

    def control(self, plan, game):
        return Acts(self.act)

    def observe(self, k, records):
        self.turns = max([self.turns, *(len(record.turns) for record in records)])

    def metrics(self, records):
        return {"half": {"matches": float(len(records))}}

    def state(self):
        return self.turns

    def load(self, state):
        self.turns = state
'''


@pytest.fixture
def part_file(tmp_path: Path) -> Path:
    file = tmp_path / "half.py"
    file.write_text(HALF)
    return file


def run_parts(folder: Path, parts: str, *settings: str) -> tuple[int, str]:
    more = [part for config in settings for part in ("--set", config)]
    result = arena(*TINY, *NO_IMITATION, "--set", f"play.parts={parts}", *more, "--out", folder)
    return result.code, result.err


def test_a_users_part_plans_expands_controls_observes_and_is_saved(part_file: Path, tmp_path: Path) -> None:
    code, err = run_parts(tmp_path / "run", f"[{{'{part_file}:half': {{act: ACCEPT}}}}]", "play.matches=8")
    assert code == 0, err
    folder = RunFolder.open(tmp_path / "run")
    rows = [row for row in folder.reader.matches() if row["iteration"] == 1]
    assert len(rows) == 8 // 2 + 1, "half of the plans, and one more deal of which the only match is kept"
    for row in rows:
        sources = [turn["source"] for turn in row["turns"]]
        assert sources[:2] == ["replaced", "patch"] and row["turns"][1]["action"] == "ACCEPT"
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert metrics[0]["half"] == {"matches": 5.0}
    states = sorted((tmp_path / "run").glob("checkpoints/*/state.json"))
    assert json.loads(states[-1].read_text())["play"]["parts"] == [max(len(row["turns"]) for row in rows)]


def test_the_documented_part_plays_long_matches_twice(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "control.md").read_text("utf-8")
    (tmp_path / "twice.py").write_text(page.partition("```python\n# twice.py\n")[2].partition("```")[0])
    code, err = run_parts(tmp_path / "run", f"[{{'{tmp_path / 'twice.py'}:twice': {{turns: 2}}}}]", "play.matches=8")
    assert code == 0, err
    rows = [row for row in RunFolder.open(tmp_path / "run").reader.matches() if row["iteration"] == 1]
    first = [row for row in rows if int(row["id"].split("-")[1]) < 8]
    assert len(first) == 8 and len(rows) == 8 + sum(len(row["turns"]) >= 2 for row in first) > 8


def test_parts_apply_in_their_order(part_file: Path, tmp_path: Path) -> None:
    """Only planned matches are branched: half of the matches are not, whichever part comes first."""
    for number, parts in enumerate((f"[branches, '{part_file}:half']", f"['{part_file}:half', branches]")):
        code, err = run_parts(tmp_path / f"{number}", parts, "play.matches=8", "iterations=1")
        assert code == 0, err
        rows = list(RunFolder.open(tmp_path / f"{number}").reader.matches())
        assert len(rows) == 10 and sum("-b" in row["id"] for row in rows) == 5


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ("half", "unknown part 'half'"),
        ("'{own}:hlaf'", "hlaf"),
        ("{{'{own}:half': {{kep: 3}}}}", "unknown setting of part"),
        ("{{'{own}:half': {{keep: many}}}}", "keep"),
    ],
)
def test_a_wrong_name_or_setting_is_refused_in_one_line(
    parts: str, message: str, part_file: Path, tmp_path: Path
) -> None:
    code, err = run_parts(tmp_path / "run", f"[{parts.format(own=part_file)}]")
    assert code == 2 and message in err and err.count("\n") == 1


FAULTS = [
    ("return plans[:: self.keep]", "return plans[self.nothing]", "half: plan failed: line 37: AttributeError"),
    ("return plans[:: self.keep]", "return None", "half: plan returned nothing, not a list of plans"),
    ("return plans[:: self.keep]", "return ['x']", "half: plan, in a list, returned str, not MatchPlan"),
    ("return plans[:: self.keep]", "return plans + plans", "match 0001-0000 is planned twice"),
    ("return plans[:: self.keep]", "return []", "they left no match of iteration 1 to play"),
    ("if setup.play.group > 1:", "if setup.play.grp > 1:", "AttributeError"),
    ("return Half(keep, act)", "return Halff(keep, act)", "half failed: NameError"),
    ("return Half(keep, act)", "return None", "half returned nothing, not a RolloutPart"),
    ("self.again[k] = True", "raise OSError('gone')", "half: expand failed: line 42: OSError: gone"),
    ("return Expansion(deals=1)", "return 7", "half: expand returned int, not Expansion"),
    ("return Expansion(deals=1)", "return Expansion(deals=-1)", "expand asked for -1 deals"),
    ("return Expansion(deals=1)", "return Expansion(deals=10**9)", "more than 1,000,000 deals"),
    ("return Acts(self.act)", "return 7", "half: control returned int, not MatchControl"),
    ("self.count += 1", "1 / 0", "half: control.before failed: line 26: ZeroDivisionError"),
    ("return Replace(self.act)", "return None", "control.before returned nothing, not a decision"),
    ("return Replace(self.act)", "return Replace(7)", "control.before: Replace takes a text, not int"),
    ('{"half": {"matches": float(len(records))}}', "7", "half: metrics returned int, not dict"),
    ("float(len(records))", "float('nan')", "metrics: 'half' holds more than finite numbers"),
    ('{"half": {', '{"turns": {', "metrics already have a section 'turns'"),
    ("return self.turns", "return object()", "half: state failed: TypeError"),
]


@pytest.mark.slow_after(9)
@pytest.mark.parametrize(("before", "after", "message"), FAULTS)
def test_a_fault_of_a_users_part_is_one_line(
    before: str, after: str, message: str, part_file: Path, tmp_path: Path
) -> None:
    assert before in HALF
    part_file.write_text(HALF.replace(before, after))
    code, err = run_parts(tmp_path / "run", f"[{{'{part_file}:half': {{act: ACCEPT}}}}]")
    assert code == 2 and message in err and err.count("\n") == 1 and "Traceback" not in err


def test_only_acts_of_models_are_replaced(part_file: Path, tmp_path: Path) -> None:
    code, err = run_parts(tmp_path / "run", f"[{{'{part_file}:half': {{act: ACCEPT}}}}]", "seats.opener.policy=random")
    assert code == 2 and "the act of opener cannot be replaced: no model with weights plays it" in err


def test_users_part_can_refuse_a_setup(part_file: Path, tmp_path: Path) -> None:
    code, err = run_parts(tmp_path / "run", f"['{part_file}:half']", "play.group=2", "play.matches=4")
    assert code == 2 and "half: groups would be cut: set play.group to 1" in err


TEXTS = "{nano_opener: {texts: [take more, share all], every: 1, size: 3, writer: shared}}"
PARTS = {
    "adaptive": ["play.parts=[{adaptive: {cap: max_turns}}]", "play.pool=3", "play.group=4", "credit.estimator=grpo"],
    "branches": ["play.parts=[branches]"],
    "horizon": ["play.parts=[{horizon: {turns: {steps: {values: [2, 3, 4], every: 1}}, option: max_turns}}]"],
    "instructions": [f"play.parts=[{{instructions: {{roles: {TEXTS}}}}}]"],
    "patch": ["play.parts=[{patch: {expert: 'exploiter:fair_split'}}, {stop: {repeated: 3}}]"],
    "resample": ["play.parts=[{resample: {rounds: 3}}]", "play.group=2", "credit.select=[zero_variance]"],
    "trees": ["play.parts=[{trees: {trigger: random, first: 2}}]", "play.group=4", "credit.estimator=grpo"],
}  # fmt: skip


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", PARTS)
def test_killed_run_with_a_part_resumes_bit_equal(name: str, warm: str, tmp_path: Path) -> None:
    """Stopped at a match of the second iteration, whose plans depend on the part's state after the first."""
    small = [
        "play.matches=12",
        "play.in_flight=4",
        "iterations=3",
        "credit.stages=[]",
        "checkpoint={every: 1, keep: 9}",
    ]
    config = make_warm_experiment(warm, *small, *PARTS[name])
    run_lab(tmp_path / "whole", config)
    *_, stop, _ = (row["id"] for row in read_log(tmp_path / "whole") if row["iteration"] == 2)
    stop_lab(tmp_path / "killed", config, "match", stop)
    resume_lab(tmp_path / "killed", config)
    assert_same_runs(tmp_path / "killed", tmp_path / "whole")
