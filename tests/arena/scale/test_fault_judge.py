"""The fault judge finds lost, doubled and wrong matches, and nothing in an intact run."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from agents.role import load_role
from arena.cli.loop import wait
from arena.records import MatchRecord, is_excused
from arena.store.reader import RunReader
from tests.arena.scale.fault_judge import Verdict, judge
from tests.factories.commands import ITERATIONS
from tests.factories.labs import make_experiment, open_lab
from tests.factories.traces import flip_byte

Rows = list[dict[str, Any]]
LAST_LOG = f"{ITERATIONS:04d}.parquet"
"""Log of an iteration whose weights are stored."""


@pytest.fixture
def run_copy(uninterrupted_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(uninterrupted_run, tmp_path / "run"))


def judge_edited(run_copy: Path, change: Callable[[Rows], object], file: str = "0002.parquet") -> Verdict:
    path = run_copy / "log" / file
    table = pq.read_table(path)
    rows = table.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    return judge(run_copy)


def list_findings(verdict: Verdict, kind: str) -> str:
    return "\n".join(finding.what for finding in verdict.found if finding.kind == kind)


def test_intact_run_has_no_findings(run_copy: Path) -> None:
    verdict = judge(run_copy)
    assert verdict.found == []
    assert verdict.counts["planned"] == verdict.counts["finished"] == verdict.counts["replayed"] == 4 * ITERATIONS
    assert verdict.counts["scored"] > 0 and verdict.counts["credited"] > 0


def test_waived_penalties_of_cut_replies_are_no_findings(tmp_path: Path) -> None:
    """Untrained weights write replies up to the limit of tokens."""
    role = load_role("nano_opener").model_dump(mode="json", exclude_defaults=True) | {"role": "excused"}
    role["sampling"]["truncated"] = "excused"
    (tmp_path / "excused.yaml").write_text(yaml.safe_dump(role))
    seat = f"seats.opener.role={tmp_path / 'excused.yaml'}"
    lab = open_lab(tmp_path / "run", make_experiment("policies.shared.imitate=null", seat))
    wait(lab.run())
    turns = [turn for row in RunReader(tmp_path / "run").log.read(1) for turn in MatchRecord.from_json(row).turns]
    assert any(is_excused(turn) for turn in turns)
    assert judge(tmp_path / "run").found == []


def test_missing_match_is_lost(run_copy: Path) -> None:
    assert "match 0002-0001 was not finished" in list_findings(judge_edited(run_copy, lambda rows: rows.pop(1)), "lost")


def test_finally_failed_match_is_lost(run_copy: Path) -> None:
    def fail(rows: Rows) -> None:
        rows[1] |= {"status": "failed", "reason": "EngineDied: gone", "payoffs": []}

    assert "in 1 attempts: EngineDied: gone" in list_findings(judge_edited(run_copy, fail), "lost")


def test_match_logged_twice_is_doubled(run_copy: Path) -> None:
    assert "0002-0000 is in 0002.parquet 2 times" in list_findings(
        judge_edited(run_copy, lambda rows: rows.append(rows[0])), "doubled"
    )


def test_match_replayed_after_its_end_is_doubled(run_copy: Path) -> None:
    verdict = judge_edited(run_copy, lambda rows: rows.append(rows[0] | {"id": "0002-0000-r1", "attempt": 1}))
    assert "0002-0000 was played on after it had finished" in list_findings(verdict, "doubled")


def test_credit_given_twice_is_doubled(run_copy: Path) -> None:
    verdict = judge_edited(run_copy, lambda rows: rows.append(rows[0]), "0002.credit.parquet")
    assert "credit has 1 turns too many" in list_findings(verdict, "doubled")


def change_payoff(row: dict[str, Any]) -> None:
    row["payoffs"][0]["value"] += 1


def change_reward(row: dict[str, Any]) -> None:
    turn = next(turn for turn in row["turns"] if turn["rewards"])
    turn["rewards"][0]["value"] += 0.5


def change_deal(row: dict[str, Any]) -> None:
    row["seed"] += 1


def change_version(row: dict[str, Any]) -> None:
    row["turns"][0]["version"] -= 1


def change_token(row: dict[str, Any]) -> None:
    stream = next(s for s in row["streams"] if any(s["mask"]))
    place = stream["mask"].index(True)
    stream["ids"][place] = 5 if stream["ids"][place] != 5 else 6


def lower_logprob(row: dict[str, Any]) -> None:
    stream = next(s for s in row["streams"] if any(s["mask"]))
    stream["logprobs"][stream["mask"].index(True)] -= 0.01


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change_payoff, "payoffs are"),
        (change_reward, "rewards are"),
        (change_deal, "is of another deal than planned"),
        (change_version, f"iteration {ITERATIONS} was played by versions"),
        (change_token, "has other tokens than its text"),
        (lower_logprob, "off the log-probabilities of version"),
    ],
)
def test_changed_match_is_wrong(run_copy: Path, change: Callable[[dict[str, Any]], None], message: str) -> None:
    def change_first_rewarded(rows: Rows) -> None:
        change(next(row for row in rows if any(turn["rewards"] for turn in row["turns"])))

    assert message in list_findings(judge_edited(run_copy, change_first_rewarded, LAST_LOG), "wrong")


def test_changed_advantage_is_wrong(run_copy: Path) -> None:
    def favour(rows: Rows) -> None:
        rows[0]["advantage"] += 0.1

    assert "computed again" in list_findings(judge_edited(run_copy, favour, "0002.credit.parquet"), "wrong")


def test_doubled_metrics_row_is_found(run_copy: Path) -> None:
    rows = (run_copy / "metrics.jsonl").read_text().splitlines()
    (run_copy / "metrics.jsonl").write_text("\n".join([*rows, rows[-1]]) + "\n")
    assert "has rows of iterations" in list_findings(judge(run_copy), "folder")


def test_changed_metrics_counts_are_wrong(run_copy: Path) -> None:
    rows = [json.loads(line) for line in (run_copy / "metrics.jsonl").read_text().splitlines()]
    rows[0]["failed"] += 1
    (run_copy / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "metrics count 1 failed, the log has 0" in list_findings(judge(run_copy), "wrong")


def test_torn_checkpoint_is_found(run_copy: Path) -> None:
    flip_byte(run_copy / "checkpoints" / f"{ITERATIONS:04d}" / "manifest.json")
    assert "damaged" in list_findings(judge(run_copy), "folder")
