"""Runs of earlier schemas, as the Arena of their time left them: read, credited, shown and reported as ever."""

import shutil
from pathlib import Path

import pytest

import analysis
from arena.config.saved_config import experiment_of
from arena.credit.assign import assign
from arena.credit.batch import TurnBatch
from arena.parts.schedules import Clock
from arena.records import MatchRecord, trained
from arena.store.reader import RunReader
from arena.store.schema import CREDIT, MATCHES, SCHEMA_VERSION
from tests.factories.commands import arena

KEPT = Path(__file__).parent / "kept"
VERSIONS = range(1, SCHEMA_VERSION)


@pytest.fixture(params=VERSIONS)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(KEPT / f"schema_{request.param}", tmp_path / f"schema_{request.param}"))


def test_every_match_is_read_as_it_is_by_rows_and_by_columns(run: Path) -> None:
    reader = RunReader(run)
    rows = list(reader.matches())
    records = [MatchRecord.from_json(row) for row in rows]
    assert len(records) >= 8 and [record.id for record in records] == [row["id"] for row in rows]
    assert all(record.source == "played" and record.group == -1 and record.stage == "" for record in records)
    table = reader.table(MATCHES.names)
    assert table.schema.equals(MATCHES)
    for record, row in zip(records, table.to_pylist(), strict=True):
        parent, turn = record.identity.parent, record.identity.turn
        assert (row["deal"], row["parent"]) == (record.identity.deal, str(parent or ""))
        assert row["parent_turn"] == (-1 if turn is None else turn)
        assert [turn["source"] for turn in row["turns"]] == ["policy"] * len(record.turns)
        assert not any(stream["entropy"] for stream in row["streams"])
    assert any(record.identity.parent for record in records) == (run.name == "schema_3"), "that run was branched"


def test_kept_credit_is_what_is_worked_out_from_the_log(run: Path) -> None:
    reader, experiment, memory = RunReader(run), experiment_of(run), dict[str, object]()
    for k in reader.iterations():
        found = trained(map(MatchRecord.from_json, reader.log.read(k)))
        credited = assign(TurnBatch(found, Clock(k, experiment.iterations), memory=memory), experiment.credit)
        again = {
            (item.trajectory.match, turn.index): (float(reward), float(advantage))
            for item in credited
            for turn, reward, advantage in zip(item.trajectory.turns, item.rewards, item.advantages, strict=True)
        }
        assert {(row.match, row.turn): (row.reward, row.advantage) for row in reader.credit(k)} == again and again
        assert reader.log.credit_table(k, CREDIT.names).schema.equals(CREDIT)


@pytest.mark.slow_after(1)
def test_the_commands_take_it(run: Path, tmp_path: Path) -> None:
    match = str(RunReader(run).table(["id"])["id"][-1])
    page = tmp_path / "page.html"
    for command in (
        ["show", run],
        ["show", run, match],
        ["credit", run, "--estimators", "mars,reinforce"],
        ["report", run, "--out", page],
    ):
        told = arena(*command)
        assert told.code == 0, (command, told)
    assert page.stat().st_size > 1000


def test_analysis_loads_every_table(run: Path) -> None:
    found = analysis.load(run)
    assert len(found.matches) >= 8 and len(found.turns) > 8 and found.turns["advantage"].notna().any()
    assert set(found.matches["source"]) == {"played"} and set(found.turns["source"]) == {"policy"}
    assert found.messages["images"].map(len).sum() == 0 and len(found.messages) > 4
    assert found.tokens["entropy"].isna().all() and found.tokens["logprob"].notna().any()
