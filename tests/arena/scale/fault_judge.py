"""Check whether a run lost, doubled or mis-scored a match, by recomputing everything in its folder.

    python -m tests.arena.scale.fault_judge RUN

Planned matches come from the seed, payoffs and rewards from playing each match's acts on a fresh game, credit from the
log, log-probabilities from the checkpoints. Prints counts and findings; exits with 1 if there are findings.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import torch

import games
from agents.policy import load_module, load_tokenizer_and_frame
from agents.stream import Stream
from arena.cli.loop import wait
from arena.config import own_files
from arena.config.experiment import Experiment
from arena.config.saved_config import load_experiment
from arena.config.seating import resolve_tables
from arena.credit.compare import compare, name_columns
from arena.errors import StoreError
from arena.play.plans import plan_iteration
from arena.records import MatchRecord, Turn, find_reply, trained_trajectories
from arena.store import checkpoints
from arena.store.losses import find_incomplete_deals
from arena.store.reader import RunReader, log_path
from arena.store.run import RunFolder
from arena.store.state import read_state
from games.contracts import ILLEGAL, Deal

TOLERANCE = 1e-3
"""Tolerance of fp32 log-probabilities computed in other batches; other weights differ by more."""
Kind = Literal["lost", "doubled", "wrong", "folder"]


class Finding(NamedTuple):
    """A fault found in a run, with its kind."""

    kind: Kind
    what: str


@dataclass
class Verdict:
    """Counts of what was examined, and the findings."""

    counts: Counter[str] = field(default_factory=Counter)
    found: list[Finding] = field(default_factory=list)

    def add(self, kind: Kind, what: str) -> None:
        """Add a finding."""
        self.found.append(Finding(kind, what))


def judge(run: Path) -> Verdict:
    """Return the verdict on a run that has ended."""
    verdict, reader = Verdict(), RunReader(run)
    experiment = own_files.with_own_roles(run, load_experiment(run, trust=True), trust=True)
    if not _check_folder(run, experiment, verdict):
        return verdict
    tables = resolve_tables(experiment)
    for k in range(1, experiment.iterations + 1):
        plans = plan_iteration(experiment.play, experiment.seed, k, tables, {}, None)
        records = [MatchRecord.from_json(row) for row in reader.log.read(k)]
        _check_plans(k, {plan.id: plan for plan in plans}, records, verdict)
        for record in (record for record in records if record.status == "finished"):
            _replay_match(record, verdict)
            _check_tokens(record, verdict)
        _check_logprobs(run, experiment, k, records, verdict)
        _check_credited_turns(k, reader, records, verdict)
    _check_credit_values(run, experiment, reader, verdict)
    return verdict


def _check_folder(run: Path, experiment: Experiment, verdict: Verdict) -> bool:
    """Check logs, metrics and checkpoints; return False if the logs cannot be read."""
    log, before = run / "log", len(verdict.found)
    if open_logs := sorted(path.name for path in log.glob("*.jsonl")):
        verdict.add("folder", f"open logs of a run that has ended: {open_logs}")
    for k in range(1, experiment.iterations + 1):
        path = log_path(log, k, "parquet")
        if not path.exists():
            verdict.add("lost", f"iteration {k} has no log")
            continue
        ids = Counter(pq.read_table(path, columns=["id"])["id"].to_pylist())
        verdict.found += [
            Finding("doubled", f"match {id} is in {path.name} {n} times") for id, n in ids.items() if n > 1
        ]
    readable = len(verdict.found) == before
    rows = RunReader(run).metrics()
    if [row["iteration"] for row in rows] != list(range(1, experiment.iterations + 1)):
        verdict.add("folder", f"metrics.jsonl has rows of iterations {[row['iteration'] for row in rows]}")
    for k in checkpoints.iterations(run):
        try:
            checkpoints.at_iteration(run, k)
        except StoreError as error:
            verdict.add("folder", str(error))
    torn_checkpoints: list[str] = []
    newest = RunFolder.open(run).newest_valid(torn_checkpoints.append)
    verdict.found += [Finding("folder", why) for why in torn_checkpoints]
    if newest is None or newest.iteration != experiment.iterations:
        verdict.add("folder", f"the newest valid checkpoint is of iteration {newest and newest.iteration}")
    return readable


def _check_plans(k: int, plans: dict[str, Any], records: Sequence[MatchRecord], verdict: Verdict) -> None:
    """Check that each planned match is finished once, by its last attempt, with the planned deal and seats."""
    attempts: dict[str, list[MatchRecord]] = {id: [] for id in plans}
    for record in records:
        planned = str(record.identity.first_attempt)
        if planned not in plans:
            verdict.add("doubled", f"match {record.id} was never planned")
            continue
        attempts[planned].append(record)
        plan = plans[planned]
        if (record.game, record.options, record.seed) != (plan.game, plan.options, plan.seed):
            verdict.add("wrong", f"match {record.id} is of another deal than planned")
        if {s: (x.role, x.policy) for s, x in record.seats.items()} != {
            s: (x.role, x.policy) for s, x in plan.seats.items()
        }:
            verdict.add("wrong", f"match {record.id} has others in its seats than planned")
        if record.status == "failed" and (not record.reason or record.payoffs):
            verdict.add("wrong", f"match {record.id} failed without a reason, or was paid")
    for id, tries in attempts.items():
        tries.sort(key=lambda record: record.attempt)
        ends = [record.status for record in tries]
        verdict.counts.update(planned=1, finished=ends.count("finished"), failed_attempts=ends.count("failed"))
        if "finished" not in ends:
            reason = tries[-1].reason if tries else "not in the log"
            verdict.add("lost", f"match {id} was not finished in {len(ends)} attempts: {reason}")
        elif ends.count("finished") > 1 or ends[-1] != "finished":
            verdict.add("doubled", f"match {id} was played on after it had finished: {ends}")
        if [record.attempt for record in tries] != list(range(len(tries))):
            verdict.add("lost", f"match {id} has attempts {[record.attempt for record in tries]}")
    versions = {turn.version for record in records for turn in record.turns if record.seats[turn.seat].trained}
    if len(versions) > 1:
        verdict.add("wrong", f"iteration {k} was played by versions {sorted(versions)}")


def _replay_match(record: MatchRecord, verdict: Verdict) -> None:
    """Replay the record's acts on a fresh game and compare messages, validity, rewards, payoffs and report."""
    game = games.start_match(Deal(record.game, record.options, record.seed))
    earned: list[dict[str, float]] = []
    latest: dict[str, dict[str, float]] = {seat: {} for seat in record.seats}
    replayed_turns: list[tuple[Any, ...]] = []
    for turn in record.turns:
        if not game.agents or game.terminations[game.agent_selection] or game.agent_selection != turn.seat:
            verdict.add("wrong", f"match {record.id}: turn {turn.index} of {turn.seat} could not be played again")
            return
        messages = game.messages(turn.seat)
        game.step(turn.action)
        valid = bool(game.infos[turn.seat].get("valid"))
        replayed_turns.append((turn.seat, messages, valid))
        if any(earlier.seat == turn.seat for earlier in record.turns[: turn.index]):
            latest[turn.seat] = {}
        earned.append(latest[turn.seat])
        waived = turn.seat if turn.finish == "length" and not valid else ""  # by default, roles excuse cut replies
        for seat in record.seats:
            for name, value in game.infos[seat]["rewards"].items():
                if (seat, name) != (waived, ILLEGAL):
                    latest[seat][name] = latest[seat].get(name, 0.0) + value
    verdict.counts.update(replayed=1, turns=len(record.turns))
    if not all(game.terminations.values()):
        verdict.add("wrong", f"match {record.id} is finished in the log, and its game is not")
        return
    replayed = {
        "payoffs": dict(game.payoffs()),
        "report": dict(game.report()),
        "rewards": earned,
        "turns": replayed_turns,
    }
    logged = {
        "payoffs": record.payoffs, "report": record.report, "rewards": [turn.rewards for turn in record.turns],
        "turns": [(turn.seat, turn.messages, turn.valid) for turn in record.turns],
    }  # fmt: skip
    for field_name, value in replayed.items():
        if logged[field_name] != value:
            verdict.add(
                "wrong", f"match {record.id}: {field_name} are {logged[field_name]!r:.200}, played again {value!r:.200}"
            )


def _list_sampled_turns(record: MatchRecord) -> Iterator[tuple[Turn, Stream, int, int]]:
    """Yield the turns of models, each with its stream and the start and end of its tokens."""
    for turn in record.turns:
        if record.seats[turn.seat].kind == "model":
            yield turn, *find_reply(record.streams[turn.seat], turn.index)


def _check_tokens(record: MatchRecord, verdict: Verdict) -> None:
    """Check that each model turn owns the stated number of sampled tokens, and that each token has a turn."""
    owned = 0
    for turn, stream, start, end in _list_sampled_turns(record):
        owned += end - start
        if end - start != turn.tokens or not all(stream.mask[start:end]):
            verdict.add("wrong", f"match {record.id}: turn {turn.index} has {end - start} tokens, not {turn.tokens}")
    sampled = sum(stream.sampled_count for streams in record.streams.values() for stream in streams)
    verdict.counts.update(tokens=sampled)
    if sampled != owned:
        verdict.add("wrong", f"match {record.id} has {sampled} sampled tokens, its turns {owned}")


def _find_weights(run: Path, experiment: Experiment, k: int, policy: str) -> tuple[Path | None, int | None]:
    """Return the folder and version of the weights that play iteration `k`, None where they are not stored."""
    if k - 1 in checkpoints.iterations(run):
        checkpoint = checkpoints.at_iteration(run, k - 1)
        return checkpoint.policy(policy), int(read_state(checkpoint)["policies"][policy]["version"])
    model = Path(experiment.policies[policy].model)
    return model if k == 1 and model.is_dir() else None, None


def _check_logprobs(
    run: Path, experiment: Experiment, k: int, records: Sequence[MatchRecord], verdict: Verdict
) -> None:
    """Check each sampled token's text and log-probability against the weights of its version."""
    for policy in (name for name in experiment.policies if experiment.trained(name)):
        folder, version = _find_weights(run, experiment, k, policy)
        if folder is None:
            continue
        model, (_, frame) = load_module(folder, frozen=True), load_tokenizer_and_frame(folder)
        for record in (record for record in records if record.status == "finished"):
            turns = [place for place in _list_sampled_turns(record) if record.seats[place[0].seat].policy == policy]
            scored = {id(stream): _compute_logprobs(model, stream) for _, stream, _, _ in turns}
            for turn, stream, start, end in turns:
                where, logged = f"match {record.id}: turn {turn.index}", np.array(stream.logprobs[start:end])
                gap = np.abs(logged - scored[id(stream)][start:end]).max(initial=0.0)
                if gap > TOLERANCE:
                    verdict.add("wrong", f"{where} is {gap:.3g} off the log-probabilities of version {turn.version}")
                if frame.decode(stream.ids[start:end]) != turn.raw:
                    verdict.add("wrong", f"{where} has other tokens than its text")
                if version not in (None, turn.version):
                    verdict.add("wrong", f"{where} was written by version {turn.version}, not {version}")
                verdict.counts.update(scored=end - start)


@torch.inference_mode()
def _compute_logprobs(model: Any, stream: Stream) -> np.ndarray:
    """Return the log-probability [T] of each token given the previous ones, at temperature 1; 0 for the first."""
    ids = torch.tensor([stream.ids])
    logits = model(input_ids=ids).logits[0, :-1].float()
    return np.concatenate([[0.0], torch.log_softmax(logits, -1).gather(-1, ids[0, 1:, None])[:, 0].numpy()])


def _check_credited_turns(k: int, reader: RunReader, records: Sequence[MatchRecord], verdict: Verdict) -> None:
    """Check that credit has each turn of a trained policy once, and that the metrics' counts match the log."""
    incomplete = find_incomplete_deals(((r.game, r.seed), r.id, r.status) for r in records)
    complete = [record for record in records if (record.game, record.seed) not in incomplete]
    expected = Counter((t.match, turn.index) for t in trained_trajectories(complete) for turn in t.turns)
    actual = Counter((row.match, row.turn) for row in reader.credit(k))
    if expected - actual:
        verdict.add("lost", f"iteration {k}: {(expected - actual).total()} turns have no credit")
    if actual - expected:
        verdict.add("doubled", f"iteration {k}: credit has {(actual - expected).total()} turns too many")
    row = next((row for row in reader.metrics() if row["iteration"] == k), {})
    statuses = Counter(record.status for record in records)
    finished = [record for record in complete if record.status == "finished"]
    counted = {"matches": len(finished), "failed": statuses["failed"], "left_out": statuses["finished"] - len(finished)}
    counted["turns"] = sum(len(record.turns) for record in finished)
    for name, value in counted.items():
        if row.get(name) != value:
            verdict.add("wrong", f"iteration {k}: metrics count {row.get(name)} {name}, the log has {value}")


def _check_credit_values(run: Path, experiment: Experiment, reader: RunReader, verdict: Verdict) -> None:
    """Check that rewards and advantages recomputed from the log equal those stored."""
    credit = experiment.credit
    recomputed = wait(
        compare(run, credit, [credit.estimator], seed=experiment.seed, length=experiment.iterations)
    ).turns
    name = name_columns([credit.estimator])[0]
    table = {
        (row.match, row.turn): (row.reward, row.advantage) for k in reader.iterations() for row in reader.credit(k)
    }
    for match, turn, reward, advantage in recomputed[["match", "turn", "reward", name]].itertuples(index=False):
        logged = table.get((match, turn))
        if logged and not np.allclose(logged, (reward, advantage), atol=1e-6):
            verdict.add(
                "wrong", f"match {match}: credit of turn {turn} is {logged}, computed again {reward, advantage}"
            )
        verdict.counts.update(credited=1)


def main() -> None:
    """Judge the run that the command line names."""
    verdict = judge(Path(sys.argv[1]))
    print(json.dumps({**verdict.counts, "found": Counter(finding.kind for finding in verdict.found)}))
    for finding in verdict.found[:20]:
        print(*finding, sep=": ")
    raise SystemExit(bool(verdict.found))


if __name__ == "__main__":
    main()
