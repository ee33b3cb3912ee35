"""The judge of runs that went through faults finds what is lost, doubled or wrong, and nothing in a sound run."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.arena.scale.fault_judge import Verdict, judge
from tests.factories.commands import ITERATIONS
from tests.factories.traces import flip_byte

Rows = list[dict[str, Any]]
LAST = f"{ITERATIONS:04d}.parquet"
"""Of an iteration that was played by weights that are kept."""


@pytest.fixture
def run(uninterrupted_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(uninterrupted_run, tmp_path / "run"))


def edited(run: Path, change: Callable[[Rows], object], file: str = "0002.parquet") -> Verdict:
    path = run / "log" / file
    table = pq.read_table(path)
    rows = table.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    return judge(run)


def told(verdict: Verdict, kind: str) -> str:
    return "\n".join(finding.what for finding in verdict.found if finding.kind == kind)


def test_a_sound_run_has_nothing_wrong(run: Path) -> None:
    verdict = judge(run)
    assert verdict.found == []
    assert verdict.counts["planned"] == verdict.counts["finished"] == verdict.counts["replayed"] == 4 * ITERATIONS
    assert verdict.counts["scored"] > 0 and verdict.counts["credited"] > 0


def test_a_match_that_is_gone_is_lost(run: Path) -> None:
    assert "match 0002-0001 was not finished" in told(edited(run, lambda rows: rows.pop(1)), "lost")


def test_a_match_that_failed_for_good_is_lost(run: Path) -> None:
    def fail(rows: Rows) -> None:
        rows[1] |= {"status": "failed", "reason": "EngineDied: gone", "payoffs": []}

    assert "in 1 attempts: EngineDied: gone" in told(edited(run, fail), "lost")


def test_a_match_that_is_logged_twice_is_doubled(run: Path) -> None:
    assert "0002-0000 is in 0002.parquet 2 times" in told(edited(run, lambda rows: rows.append(rows[0])), "doubled")


def test_a_match_that_is_played_again_after_its_end_is_doubled(run: Path) -> None:
    again = edited(run, lambda rows: rows.append(rows[0] | {"id": "0002-0000-r1", "attempt": 1}))
    assert "0002-0000 was played on after it had finished" in told(again, "doubled")


def test_credit_of_a_turn_given_twice_is_doubled(run: Path) -> None:
    twice = edited(run, lambda rows: rows.append(rows[0]), "0002.credit.parquet")
    assert "credit has 1 turns too many" in told(twice, "doubled")


def pay(row: dict[str, Any]) -> None:
    row["payoffs"][0]["value"] += 1


def earn(row: dict[str, Any]) -> None:
    turn = next(turn for turn in row["turns"] if turn["rewards"])
    turn["rewards"][0]["value"] += 0.5


def deal(row: dict[str, Any]) -> None:
    row["seed"] += 1


def older(row: dict[str, Any]) -> None:
    row["turns"][0]["version"] -= 1


def another_token(row: dict[str, Any]) -> None:
    stream = next(s for s in row["streams"] if any(s["mask"]))
    place = stream["mask"].index(True)
    stream["ids"][place] = 5 if stream["ids"][place] != 5 else 6


def less_likely(row: dict[str, Any]) -> None:
    stream = next(s for s in row["streams"] if any(s["mask"]))
    stream["logprobs"][stream["mask"].index(True)] -= 0.01


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("change", "what"),
    [
        (pay, "payoffs are"),
        (earn, "rewards are"),
        (deal, "is of another deal than planned"),
        (older, f"iteration {ITERATIONS} was played by versions"),
        (another_token, "has other tokens than its text"),
        (less_likely, "off the log-probabilities of version"),
    ],
)
def test_a_match_that_is_not_as_it_was_played_is_wrong(
    run: Path, change: Callable[[dict[str, Any]], None], what: str
) -> None:
    def hurt(rows: Rows) -> None:
        change(next(row for row in rows if any(turn["rewards"] for turn in row["turns"])))

    assert what in told(edited(run, hurt, LAST), "wrong")


def test_an_advantage_that_the_log_does_not_give_is_wrong(run: Path) -> None:
    def favour(rows: Rows) -> None:
        rows[0]["advantage"] += 0.1

    assert "computed again" in told(edited(run, favour, "0002.credit.parquet"), "wrong")


def test_a_row_of_metrics_that_comes_twice_is_found(run: Path) -> None:
    rows = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("\n".join([*rows, rows[-1]]) + "\n")
    assert "has rows of iterations" in told(judge(run), "folder")


def test_metrics_that_count_other_matches_are_wrong(run: Path) -> None:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows[0]["failed"] += 1
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "metrics count 1 failed, the log has 0" in told(judge(run), "wrong")


def test_a_torn_checkpoint_is_found(run: Path) -> None:
    flip_byte(run / "checkpoints" / f"{ITERATIONS:04d}" / "manifest.json")
    assert "torn" in told(judge(run), "folder")
