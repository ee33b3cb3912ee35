"""Time and memory of loading a log of a million turns and grouping it.

    python benchmarks/loading.py  # minutes on two cores, and 5 GB of memory

The run is made in a temporary folder. It has 100 iterations with token streams and messages, which differ only in their
matches' names; the last one is open and has no credit. Arms alternate, each in a new process: all turns as a frame with
all columns (`frames`), a query in SQL (`sql`), ten million tokens with all columns (`tokens`), and, once, pandas over
JSON lines without streams and messages, which would need too much memory. All group advantages by iteration and role,
and must agree; `tokens` groups log-probabilities by seat. Measured are wall and CPU time from the call to the groups,
without imports, and the process's peak memory. Writes results/loading.json.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from reporting import format_command, write_result

from agents.stream import Stream
from arena.doctor import describe_environment
from arena.records import MatchRecord, Seating, Turn, trajectories
from arena.store.reader import RunReader, log_path
from arena.store.run import RunFolder
from arena.store.schema import CREDIT, MATCHES
from games.contracts import MatchId, Message

HERE = Path(__file__).parents[1]
SEED = 0
TURNS, ITERATIONS = 1_000_000, 100
TARGET = {"wall_s": 5.0, "cpu_s": 10.0, "peak_mb": 1500.0}
"""Maximum figures of loading and grouping on two cores."""
SEATS = ("buyer", "seller")
WORDS = "I can not take that offer you want two books and a ball for it but hats are worth more to me so let us see"

ARMS = {
    "frames": """
log = analysis.load(run)
groups = log.turns.groupby(["iteration", "role"])["advantage"].mean()
""",
    "sql": """
asked = "select iteration, role, avg(advantage) a from turns group by all order by all"
groups = analysis.sql(run, asked).set_index(["iteration", "role"])["a"]
""",
    "tokens": """
tokens = analysis.load(run, iterations=range(19)).tokens
rows = len(tokens)
groups = tokens.groupby("seat")["logprob"].mean()
""",
    "json lines": """
matches = pd.read_json(f"{run}.jsonl", lines=True)
turns = matches[["id", "iteration"]].join(matches["turns"].explode())
of_match = turns.drop(columns="turns").reset_index(drop=True)
turns = pd.concat([of_match, pd.json_normalize(turns["turns"].tolist())], axis=1)
credit = pd.read_json(f"{run}.credit.jsonl", lines=True, dtype={"match": str})
turns = turns.merge(credit, "left", left_on=["id", "index"], right_on=["match", "turn"])
groups = turns.groupby(["iteration", "role"])["advantage"].mean()
""",
}
LOAD = """
import json, resource, sys, time
import analysis, duckdb, pandas as pd
analysis.load  # imports its modules
run, rows = sys.argv[1], None
wall, cpu = time.perf_counter(), time.process_time()
{arm}
found = {{"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}}
found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
shown = [[str(group), None if value != value else round(value, 9)] for group, value in groups.astype("float64").items()]
print(json.dumps(found | {{"rows": rows, "groups": sorted(shown, key=str)}}))
"""


# -- a run of a million turns --------------------------------------------------------------------------------


def make_run(path: Path, turns: int, iterations: int = ITERATIONS) -> None:
    """Make the run: iteration 0 through the store, renamed copies of it, and a last iteration that stays open."""
    run, size = RunFolder.create(path, "game: negotiation\n", {}), turns // iterations
    first = make_matches(0, size)
    run.log.extend(first)
    run.log.seal(0)
    rng, credited = np.random.default_rng(SEED), [each for record in first for each in trajectories(record)]
    earned = [[sum(turn.rewards.values()) for turn in each.turns] for each in credited]
    advantages = [rng.normal(size=len(rewards)).tolist() for rewards in earned]
    run.log.write_credit(0, (each.credited(r, a) for each, r, a in zip(credited, earned, advantages, strict=True)))
    for k in range(1, iterations - 1):
        for kind, schema, names in (("parquet", MATCHES, "id"), ("credit.parquet", CREDIT, "match")):
            copy_iteration(log_path(run.log.folder, 0, kind), log_path(run.log.folder, k, kind), k, schema.field(names))
    run.log.extend(make_matches(iterations - 1, size))
    run.log.close()
    for k in range(iterations - 1):
        run.metrics.append({"iteration": k, "reward": {"buyer": k / 7, "seller": 0.5}, "valid_rate": 0.9})


def copy_iteration(source: Path, target: Path, k: int, names: Any) -> None:
    """Copy a file of iteration 0 as iteration `k`, with new match names."""
    table = pq.read_table(source)
    renamed = pa.array([f"{k:04d}{name[4:]}" for name in table[names.name].to_pylist()])
    table = table.set_column(0, names, renamed)
    if "iteration" in table.column_names:
        table = table.set_column(1, MATCHES.field("iteration"), pa.array([k] * len(table), pa.int32()))
    rows = pq.read_metadata(source).row_group(0).num_rows
    pq.write_table(table, target, row_group_size=rows, compression="zstd", write_page_checksum=True)


def make_matches(k: int, turns: int) -> list[MatchRecord]:
    """Return matches of at most 14 turns, with `turns` turns in total. Every hundredth match has failed."""
    rng, matches = np.random.default_rng(SEED), list[MatchRecord]()
    while turns > 0:
        matches.append(make_match(rng, k, len(matches), min(turns, int(rng.integers(2, 15)))))
        turns -= len(matches[-1].turns)
    return matches


def make_match(rng: np.random.Generator, k: int, number: int, length: int) -> MatchRecord:
    """Return a negotiation of `length` turns: talk, offers, some private thoughts, and a token stream per seat."""
    streams, message_text, turns = {seat: Stream() for seat in SEATS}, "Your turn.", []
    for stream in streams.values():
        stream.observe(rng.integers(5, 49_000, 60).tolist())
    for index in range(length):
        seat = SEATS[index % 2]
        talk, act = draw_words(rng, 12), f"OFFER {rng.integers(3)} {rng.integers(3)} {rng.integers(3)}"
        thought = draw_words(rng, 10) if rng.random() < 0.3 else ""
        messages = (Message.of("referee", "Your turn."), Message.of(SEATS[index % 2 - 1], message_text))
        size = int(rng.integers(12, 36))
        streams[seat].observe(rng.integers(5, 49_000, 16).tolist())
        streams[seat].append_sampled(rng.integers(5, 49_000, size).tolist(), rng.normal(-1, 0.3, size).tolist(), index)
        rewards = {"deal": float(rng.integers(11))} if index == length - 1 else {}
        rewards |= {"illegal": -0.5} if rng.random() < 0.1 else {}
        raw, valid, seconds = f"{act} | {talk} {thought}", "illegal" not in rewards, float(rng.random())
        turns.append(
            Turn(
                index=index, seat=seat, role=f"haggling_{seat}", policy="shared", version=k, messages=messages, raw=raw,
                public=talk, private=thought, action=act, valid=valid, rewards=rewards, finish="stop", tokens=size,
                seconds=seconds,
            )
        )  # fmt: skip
        message_text = talk
    failed, gain = number % 100 == 99, float(rng.integers(11))
    return MatchRecord(
        identity=MatchId(k, number),
        game="negotiation",
        options={"talk": True, "max_turns": 14},
        seed=number,
        seats={seat: Seating(f"haggling_{seat}", "shared", k, True, "model") for seat in SEATS},
        status="failed" if failed else "finished",
        reason="time limit: 9.0 s of 8 s" if failed else "",
        payoffs={} if failed else {"buyer": gain, "seller": 10.0 - gain},
        report={} if failed else {"deal": gain > 2, "efficiency": gain / 10, "end": "accept"},
        turns=tuple(turns),
        streams={seat: (stream,) for seat, stream in streams.items()},
        started="2026-01-01T00:00:00.250+00:00",
        seconds=float(rng.random()),
    )


def draw_words(rng: np.random.Generator, count: int) -> str:
    """Return `count` random words."""
    return " ".join(rng.choice(WORDS.split(), count))


def write_json_lines(run: Path) -> None:
    """Write the log as JSON lines in two files beside the run: matches without streams and messages, and credit."""
    reader = RunReader(run)
    with open(f"{run}.jsonl", "w") as file:
        for row in reader.matches(streams=False):
            turns = [{name: value for name, value in turn.items() if name != "messages"} for turn in row["turns"]]
            file.write(json.dumps(row | {"turns": turns}) + "\n")
    reader.credit_table().to_pandas().to_json(f"{run}.credit.jsonl", orient="records", lines=True, double_precision=15)


# -- loading it ----------------------------------------------------------------------------------------------


def measure_load(arm: str, run: Path) -> dict[str, Any]:
    """Return the figures of one load in a new process."""
    environ = {**os.environ, "PYTHONPATH": str(HERE)}
    # -P keeps the current folder off the path
    command = [sys.executable, "-P", "-c", LOAD.format(arm=ARMS[arm]), str(run)]
    done = subprocess.run(command, env=environ, check=True, stdout=subprocess.PIPE)
    return dict(json.loads(done.stdout))


def compare_arms(run: Path, rounds: int) -> dict[str, Any]:
    """Return the figures of all arms, which alternate, and whether all arms that group turns agree."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in ARMS}
    for number in range(rounds):
        for name in ARMS:
            if number == 0 or name != "json lines":
                found[name].append(measure_load(name, run))
    groups = [load["groups"] for name, loads in found.items() for load in loads if name != "tokens"]
    return {
        "same_groups": all(each == groups[0] for each in groups),
        "groups": len(groups[0]),
        "tokens": found["tokens"][0]["rows"],
        "rounds": {name: {key: [load[key] for load in each] for key in TARGET} for name, each in found.items()},
        "median": {name: {key: median(load[key] for load in each) for key in TARGET} for name, each in found.items()},
    }


def main() -> None:
    """Make the run, load it, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        make_run(options.make, options.turns)
        return write_json_lines(options.make)
    result: dict[str, Any] = {"command": format_command(), "seed": SEED, "load_at_start": os.getloadavg()}
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        # A child inherits its parent's peak memory, so the parent of the loading processes must not make the run.
        subprocess.run([sys.executable, __file__, "--make", str(run), "--turns", str(options.turns)], check=True)
        result["log_mb"] = sum(file.stat().st_size for file in (run / "log").iterdir()) / 1e6
        result |= {"turns": options.turns} | compare_arms(run, options.rounds)
    ours = [result["median"][name] for name in ("frames", "sql", "tokens")]
    result |= {"target": TARGET, "met": all(each[key] < limit for each in ours for key, limit in TARGET.items())}
    result |= {"machine": describe_environment() | {"duckdb": duckdb.__version__}, "load_at_end": os.getloadavg()}
    write_result("loading", result)
    print(json.dumps({key: result[key] for key in ("median", "same_groups", "met")}, indent=1))


if __name__ == "__main__":
    main()
