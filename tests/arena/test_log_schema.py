"""Every field of schema 4 is played, logged, credited, learned from, shown and loaded.

Nested branches come from a planner that is plugged in here, and images from a game that shows one; neither changes
Arena's code.
"""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import analysis
from agents.engines.make import check_engine
from agents.engines.spec import EngineSpec
from agents.errors import EngineError
from agents.players.model import ScriptedPlayer
from agents.players.scripted import make_scripted
from agents.stream import Stream
from arena.cli.loop import wait
from arena.config.layers import to_yaml
from arena.credit.branches import find_pairs
from arena.lab import Lab
from arena.play.match import Limits, MatchPlan, play_match
from arena.play.parts.base import Progress
from arena.play.source import Attempts, PlaySource
from arena.records import MatchRecord, Seating, find_reply, trained_trajectories
from arena.store.arrow import credit_to_table, matches_to_table
from arena.store.lines import LogError
from arena.store.reader import RunReader
from arena.store.run import RunFolder
from arena.store.schema import CREDIT, MATCHES
from games.contracts import Image, MatchId, Message
from games.negotiation import Negotiation
from tests.factories.commands import arena
from tests.factories.labs import RecordingWatcher, make_warm_experiment, read_weight_files
from tests.factories.pictures import make_png


@dataclass(frozen=True)
class NestedBranching(PlaySource):
    """Source that branches every branch once more."""

    async def play(self, plans: list[MatchPlan]) -> Attempts:
        """Play these plans and, if they are branches, a branch of each."""
        records, failures = await super().play(plans)
        if not plans or plans[0].identity.parent is None:
            return records, failures
        (part,), k = self.parts, plans[0].identity.iteration
        await part.plan(k, plans)
        progress = Progress(ended=records, records=records, given_up=[], deals=0)
        more, failed = await super().play([*(await part.expand(k, progress)).plans])
        return [*records, *more], [*failures, *failed]


PNG = make_png(64, 48)
IMAGE = Image(hashlib.sha256(PNG).hexdigest(), "image/png", 64, 48)


class Shop(Negotiation):
    """Negotiation that shows each seat an image when it moves."""

    def messages(self, seat: str) -> tuple[Message, ...]:
        """Return the game's messages and one with an image."""
        return (*super().messages(seat), Message.of("referee", "", [IMAGE]))

    def picture(self, hash: str) -> bytes:
        """Return the image's bytes."""
        return {IMAGE.hash: PNG}[hash]


class Forger(Shop):
    """Game whose images have other bytes than announced."""

    def picture(self, hash: str) -> bytes:
        """Return wrong bytes."""
        return PNG + b"!"


def run_lab(folder: Path, warm: str, *assignments: str, is_nested: bool = False) -> Path:
    config = make_warm_experiment(warm, "iterations=1", "game.options.illegal=retry", *assignments)

    async def run_to_the_end() -> None:
        lab = await Lab.open(RunFolder.create(folder, to_yaml(config), {}), config, RecordingWatcher())
        if is_nested:
            assert isinstance(lab.parts.source, PlaySource)
            lab.parts = replace(lab.parts, source=NestedBranching(**vars(lab.parts.source)))
        try:
            await lab.run()
        finally:
            await lab.close()

    wait(run_to_the_end())
    return folder


@pytest.fixture(scope="module")
def plain_run(warm: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_lab(tmp_path_factory.mktemp("plain") / "run", warm)


@pytest.fixture(scope="module")
def branched_run(warm: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_lab(tmp_path_factory.mktemp("deeper") / "run", warm, "play.parts=[branches]", is_nested=True)


# -- a branch inside a branch ------------------------------------------------------------------------------


@pytest.mark.slow
def test_nested_branches_pass_through_the_whole_pipeline(branched_run: Path, plain_run: Path) -> None:
    # Played, and logged: each inner branch is its parent, itself a branch, until they part.
    reader = RunReader(branched_run)
    records = {r.id: r for r in map(MatchRecord.from_json, reader.log.read(1))}
    inner = {r.id: r for r in records.values() if r.identity.parent and r.identity.parent.parent}
    assert len(inner) == 6 and len(records) == 18
    new = 0
    for record in inner.values():
        parent, turn = records[str(record.identity.parent)], record.identity.turn
        assert turn is not None and record.source == "branched" and record.seed == parent.seed
        assert [t.raw for t in record.turns[:turn]] == [t.raw for t in parent.turns[:turn]]
        seat = record.turns[turn].seat
        (first, start, _), (second, parent_start, _) = (find_reply(r.streams[seat], turn) for r in (record, parent))
        for name in ("ids", "mask", "logprobs", "turns"):
            assert getattr(first, name)[:start] == getattr(second, name)[:parent_start]
        new += record.turns[turn].raw != parent.turns[turn].raw
    assert new, "branches draw anew from the branch point on"

    # Credited: every turn of every branch once, and inner branches are paired with their parents.
    learned = trained_trajectories(records.values())
    assert {(row.match, row.turn) for row in reader.credit(1)} == {
        (t.match, turn.index) for t in learned for turn in t.turns
    }
    paired = find_pairs(learned)
    assert any(learned[pair.second].match in inner for pair in paired)
    in_pairs = [(i, pair.place) for pair in paired for i in (pair.first, pair.second)]
    assert len(in_pairs) == len(set(in_pairs)), "a turn is in one pair at most"
    assert arena("credit", branched_run, "--estimators", "mars").code == 0

    # Learned from.
    (row,) = reader.metrics()
    assert row["matches"] == 18 and row["selection"]["trajectories"] == len(learned)
    assert read_weight_files(branched_run, 1) != read_weight_files(plain_run, 1)

    # Shown.
    deepest = next(iter(inner.values()))
    shown = arena("show", branched_run, deepest.id)
    turn = deepest.identity.turn
    assert turn is not None and shown.code == 0
    assert f"a branch of {deepest.identity.parent} from turn {turn + 1} on" in shown.out

    # Loaded.
    matches = analysis.load(branched_run).matches.set_index("match")
    assert matches["parent"].to_dict() == {name: str(r.identity.parent or "") for name, r in records.items()}
    assert {name: records[name].source for name in matches.index} == matches["source"].to_dict()
    assert (matches["group"] == -1).all() and set(matches["stage"]) == {"train"}
    assert matches.loc[[*inner], "parent_turn"].tolist() == [r.identity.turn for r in inner.values()]


# -- tokens ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def token_run(warm: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = ("engine.entropy=true", "learn.keep_tokens=true", "credit.transforms=[whiten]")
    return run_lab(tmp_path_factory.mktemp("measured") / "run", warm, *settings)


@pytest.mark.slow
def test_entropy_is_logged_and_loaded_and_changes_nothing(token_run: Path, plain_run: Path) -> None:
    def read_streams(run: Path) -> list[Stream]:
        records = map(MatchRecord.from_json, RunReader(run).log.read(1))
        return [stream for record in records for streams in record.streams.values() for stream in streams]

    streams = read_streams(token_run)
    for stream, other in zip(streams, read_streams(plain_run), strict=True):
        assert replace(stream, entropy=[]) == other, "another field changed"
        assert all((value > 0) <= own for value, own in zip(stream.entropy, stream.mask, strict=True))
    entropies = [v for s in streams for v, own in zip(s.entropy, s.mask, strict=True) if own]
    assert len(entropies) > 20
    tokens = analysis.load(token_run).tokens
    assert tokens["entropy"].notna().tolist() == tokens["sampled"].tolist() and np.isclose(
        tokens["entropy"].sum(), sum(entropies)
    )


def test_token_credit_is_logged(token_run: Path, plain_run: Path) -> None:
    reader = RunReader(token_run)
    rows = reader.log.credit_table(1, CREDIT.names).to_pylist()
    tokens = {
        (record.id, turn.index): turn.tokens
        for record in map(MatchRecord.from_json, reader.log.read(1))
        for turn in record.turns
    }
    for row in rows:
        sizes = {len(row[name]) for name in ("advantages", "ratios", "gaps")}
        assert sizes == {tokens[row["match"], row["turn"]]}
        assert row["advantage"] == pytest.approx(np.mean(row["advantages"]), abs=1e-6)
    gaps = [gap for row in rows for gap in row["gaps"]]
    ratios = np.array([ratio for row in rows for ratio in row["ratios"]])
    assert np.mean(np.abs(gaps)) < 1e-4, "the sampler and the trainer share their weights"
    assert (ratios > 0).all() and np.abs(ratios - 1).max() > 1e-4, "the update changes the ratios"
    assert reader.credit(1)[0]._fields == ("match", "turn", "seat", "reward", "advantage")


def test_token_credit_is_loaded_with_the_tokens(token_run: Path, plain_run: Path) -> None:
    credit = {(c["match"], c["turn"]): c for c in RunReader(token_run).log.credit_table(1, CREDIT.names).to_pylist()}
    tokens = analysis.load(token_run).tokens
    sampled = tokens[tokens["sampled"]]
    assert len(sampled) and not tokens[~tokens["sampled"]][["advantage", "ratio", "gap"]].notna().any(axis=None)
    for (match, turn), rows in sampled.groupby(["match", "turn"]):
        for column, source in (("advantage", "advantages"), ("ratio", "ratios"), ("gap", "gaps")):
            assert rows[column].tolist() == pytest.approx(credit[match, turn][source])
    tokens = analysis.load(plain_run).tokens
    of_turn = {(c.match, c.turn): c.advantage for c in RunReader(plain_run).credit(1)}
    sampled = tokens[tokens["sampled"]]
    expected = [of_turn[key] for key in zip(sampled["match"], sampled["turn"], strict=True)]
    assert sampled["advantage"].tolist() == expected, "a turn's tokens share its advantage"
    assert not tokens[["ratio", "gap"]].notna().any(axis=None)


def test_credit_of_tokens_that_does_not_fit_them_is_refused(token_run: Path, tmp_path: Path) -> None:
    edited = shutil.copytree(token_run, tmp_path / "run")
    file = edited / "log" / "0001.credit.parquet"
    rows = RunReader(edited).log.credit_table(1, CREDIT.names).to_pylist()
    rows[0]["gaps"].append(0.5)
    pq.write_table(credit_to_table(rows), file, write_page_checksum=True)
    with pytest.raises(LogError, match="credit's gaps do not match the tokens of a turn"):
        _ = analysis.load(edited).tokens


EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "does not match its columns, 0001-0077": lambda row: row.update(deal=77),
    "is no match id": lambda row: row.update(parent="../x", parent_turn=1),
    "0 or more": lambda row: row.update(parent="0001-0000", parent_turn=-5),
    "must have as many entropies": lambda row: next(s for s in row["streams"].values() if s)[0].update(entropy=[1.0]),
    "SHA-256": lambda row: row["turns"][0]["messages"].append(
        {"sender": "referee", "text": "", "images": [{"place": 0, **vars(IMAGE), "hash": "../../../etc/passwd"}]}
    ),
}


@pytest.mark.parametrize("message", EDITS)
def test_an_edited_match_ends_a_command_with_one_line(plain_run: Path, tmp_path: Path, message: str) -> None:
    edited = shutil.copytree(plain_run, tmp_path / "run")
    shutil.rmtree(edited / "checkpoints")  # a checkpoint's hashes would be checked first
    rows = RunReader(edited).log.read(1)
    EDITS[message](rows[0])
    pq.write_table(matches_to_table(rows), edited / "log" / "0001.parquet", write_page_checksum=True)
    commands = [["credit", str(edited)]] + [["show", str(edited), rows[0]["id"]]] * (message == "SHA-256")
    for command in commands:
        line = arena(*command).line
        assert message in line and line.endswith("restore the log from a copy")


def test_duplicate_match_in_a_sealed_log_is_refused(plain_run: Path, tmp_path: Path) -> None:
    edited = shutil.copytree(plain_run, tmp_path / "run")
    rows = RunReader(edited).log.read(1)
    pq.write_table(matches_to_table([*rows, rows[0]]), edited / "log" / "0001.parquet", write_page_checksum=True)
    with pytest.raises(LogError, match="has a match twice: restore"):
        RunReader(edited).log.read(1)


def list_columns(file: Path) -> set[str]:
    """Return the columns of a Parquet file, including nested ones such as `turns.messages.text`."""
    schema = pq.ParquetFile(file).schema
    return {schema.column(i).path.replace(".list.element", "") for i in range(len(schema))}


def test_disabled_fields_take_no_column(plain_run: Path) -> None:
    log, credit = (
        list_columns(plain_run / "log" / "0001.parquet"),
        list_columns(plain_run / "log" / "0001.credit.parquet"),
    )
    assert {"deal", "stage", "turns.messages.text"} <= log
    off = {"group", "parent", "parent_turn", "source", "turns.source", "streams.entropy", "turns.messages.images.hash"}
    assert not off & log and not (plain_run / "log" / "blobs").exists()
    assert credit == {"match", "turn", "seat", "reward", "advantage"}
    assert RunReader(plain_run).table(MATCHES.names).schema.equals(MATCHES)


def test_vllm_refuses_entropies() -> None:
    with pytest.raises(EngineError, match=r"engine\.entropy: vllm does not report .* to in_process"):
        check_engine(EngineSpec(kind="vllm", entropy=True))


def test_match_with_a_wrong_image_fails_alone() -> None:
    seats = {seat: Seating("", "random", 0, False, "brain") for seat in ("opener", "responder")}
    plan = MatchPlan(identity=MatchId(0, 0), game="negotiation", options={}, seed=3, seats=seats)
    for game, status in ((Shop(), "finished"), (Forger(), "failed")):
        players = {seat: ScriptedPlayer(make_scripted("random", i, game)) for i, seat in enumerate(seats)}
        record = wait(play_match(plan, game, players, Limits()))
        assert record.status == status, record.reason
    assert "does not match its bytes" in record.reason and not record.pictures
