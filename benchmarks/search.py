"""Recall of the library's searches, right answers of its readers, and its weight in memory.

    python benchmarks/search.py                      # 1,000 and 10,000 pages
    python benchmarks/search.py --quick              # 100 pages, few questions: does it run?
    python benchmarks/search.py --large              # 100,000 pages: recall and memory
    python benchmarks/search.py --minilm 1000        # MiniLM's embeddings up to so many pages (10 ms a page or more)
    python benchmarks/search.py --gates              # written questions alone: what the checks admit

`recall`: of the pages that a chain's answer rests on, the share among the first k hits, where the query is the whole
question (`question`) or one query for each fact, in turn, as the player `reader` asks (`steps`). `players`: the share
of right answers of `closed_book` (no page), `reader` (searches, within the budget) and `open_book` (is given the
evidence). `memory`: of a process by itself, by retriever: with the pages and all that it searches, and with 1,000
matches in flight that share them and each have searched once; `most_mb` is the most that it ever took. Pages and
questions are functions of the seed 0. Writes results/search.json, or results/search_large.json.

`gates`: of the questions that a proposer writes in terse worlds of 20 pages, the share that some of the checks admit,
and of those the share that is unsound: by the graph, what their words ask has no answer, another, or several. Writes
results/search_gates.json.
"""

import argparse
import json
import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from arena.doctor import describe_environment
from arena.statistics import SHARE, mean_ci
from simulators.conformance import play
from simulators.embedding import Embedding
from simulators.search import Search
from simulators.search.checker import CHECKS, Check
from simulators.search.library import Key, Library, library
from simulators.search.players import answer_from, backwards
from simulators.search.programs import Chain, ends
from simulators.search.questions import SORTS, Question, draw
from simulators.search.retrieval import RETRIEVERS, Retriever
from simulators.search.selfplay import SearchSelfplay

RESULTS = Path(__file__).parent / "results"
HOPS, DEPTHS = (1, 2, 3, 4), (1, 5, 10)
IN_FLIGHT, MATCHES = 1_000, 500


def rounded(values: list[float]) -> list[float]:
    """The mean and the ends of its 95 % interval."""
    return [round(value, 3) for value in mean_ci(values, SHARE)]


def queries(question: Question, shelf: Library) -> list[tuple[str, frozenset[str]]]:
    """For each step of a chain the query that looks its fact up, and the titles of the pages that state it."""
    assert question.program is not None and shelf.world is not None
    chain, asked = question.program.chains[0], []
    for place, step in enumerate(chain.steps):
        (here,) = ends(Chain(chain.start, chain.steps[:place]), shelf.world) if place else [chain.start]
        if step.startswith("^"):
            asked.append((backwards(here, step[1:], terse=False), shelf.world.subjects(here, step[1:])))
        else:
            asked.append((here, frozenset([here])))
    return asked


def recall(pages: int, questions: int, retriever: Retriever, embedding: Embedding) -> dict[str, Any]:
    """Recall by hops, at each depth with an interval, of whole questions and of queries step by step."""
    shelf, rows = library(Key(pages, embedding=embedding)), {}
    assert shelf.world is not None
    shelf.index.find("anything", 1, retriever)  # made before the clock starts
    began, asked = time.process_time(), 0
    for hops in HOPS:
        rng = np.random.default_rng([0, hops])
        found: dict[str, list[list[float]]] = {"question": [], "steps": []}
        for _ in range(questions):
            question = draw(shelf.world, rng, ["chain"], (hops, hops))
            steps = queries(question, shelf)
            for way, pairs in {"question": [(question.text, question.evidence)], "steps": steps}.items():
                hits = [[shelf.titles[hit] for hit in shelf.index.find(q, max(DEPTHS), retriever)] for q, _ in pairs]
                asked += len(pairs)
                found[way].append([_mean_recall(hits, [pages for _, pages in pairs], k) for k in DEPTHS])
        rows[str(hops)] = {
            way: {f"at {k}": rounded([row[n] for row in by_question]) for n, k in enumerate(DEPTHS)}
            for way, by_question in found.items()
        }
    return {"by_hops": rows, "cpu_milliseconds_per_query": round(1000 * (time.process_time() - began) / asked, 2)}


def _mean_recall(hits: list[list[str]], wanted: list[frozenset[str]], depth: int) -> float:
    shares = [len(pages & {*found[:depth]}) / len(pages) for found, pages in zip(hits, wanted, strict=True)]
    return float(np.mean(shares))


def players(pages: int, matches: int) -> dict[str, Any]:
    """Shares of right answers, by sort of question and by hops."""
    told: dict[str, Any] = {}
    for sort in SORTS:
        for hops in HOPS:
            game = Search(pages=pages, sorts=[sort], hops=hops)
            shares = {}
            for player in ("closed_book", "reader"):
                reports = [play(game, seed, player) for seed in range(matches)]
                shares[player] = rounded([float(report["score"]) for report in reports])
            shares["open_book"] = rounded([_open_book(game, seed) for seed in range(matches)])
            told[f"{sort}, {hops}"] = shares
    return told


def _open_book(game: Search, seed: int) -> float:
    game.reset(seed=seed)
    texts = [game.library.pages[title] for title in sorted(game.question.evidence)]
    return float(answer_from(game.question.text, texts, terse=False) == game.question.answer)


GATES: dict[str, tuple[Check, ...]] = {
    "nothing": (), "the reader": ("gate",), "the program": ("program", "hops", "absent", "evidence"), "both": CHECKS,
}  # fmt: skip
TERSE: dict[str, Any] = {
    "terse": True,
    "pages": 20,
    "worlds": 48,
    "hops": [1, 2],
    "backwards": False,
    "searches": 4,
    "illegal": "end",
}


def gates(matches: int) -> dict[str, Any]:
    """Shares of questions admitted, and of those unsound, by who writes them and what checks them."""
    told: dict[str, Any] = {}
    for proposer in ("random", "reader"):
        for name, checks in GATES.items():
            game = SearchSelfplay(checks=checks, **TERSE)
            reports = [play(game, seed, proposer) for seed in range(matches)]
            admitted = [float(report["accepted"]) for report in reports]
            unsound = [1.0 - float(report["sound"]) for report in reports if report["accepted"]]
            told.setdefault(proposer, {})[name] = {
                "admitted": rounded(admitted),
                "unsound": rounded(unsound) if unsound[1:] else None,
            }
    return told


def memory(pages: int, retriever: Retriever, embedding: Embedding) -> dict[str, Any]:
    """Megabytes of a process, before and with the library, and with many matches in flight; its CPU time so far."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        measured: dict[str, Any] = pool.apply(_weigh, (pages, retriever, embedding))
    return measured


def _weigh(pages: int, retriever: Retriever, embedding: Embedding) -> dict[str, Any]:
    before, began = _megabytes(), time.process_time()
    shelf = library(Key(pages, embedding=embedding))
    shelf.index.find("anything", 1, retriever)
    loaded, seconds = _megabytes(), time.process_time() - began
    games = []
    for seed in range(IN_FLIGHT):
        game = Search(pages=pages, retriever=retriever, embedding=embedding)
        game.reset(seed=seed)
        game.step(f'search(query="{game.question.text[:200].replace(chr(34), "")}")')
        games.append(game)
    assert all(game.library is shelf for game in games)
    return {
        "before_mb": before,
        "with_library_mb": loaded,
        f"with_{IN_FLIGHT}_matches_mb": _megabytes(),
        "most_mb": _megabytes("VmHWM"),
        "cpu_seconds_to_make": round(seconds, 1),
    }


def _megabytes(what: str = "VmRSS") -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(what))
    return round(int(line.split()[1]) / 1024)


def arms(pages: int, minilm: int) -> Iterator[tuple[Retriever, Embedding]]:
    """Retrievers to compare over so many pages, with each embedding that is measured there."""
    yield "bm25", "hashed"
    for retriever in RETRIEVERS[1:]:
        yield retriever, "hashed"
        if pages <= minilm:
            yield retriever, "minilm"


def main() -> None:
    """Measure and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="100 pages, few questions")
    parser.add_argument("--large", action="store_true", help="100,000 pages: recall and memory")
    parser.add_argument("--questions", type=int, default=200, help="questions for each number of hops")
    parser.add_argument("--minilm", type=int, default=1000, help="pages up to which MiniLM is measured")
    parser.add_argument("--gates", action="store_true", help="measure what the checks admit, and nothing else")
    args = parser.parse_args()
    if args.gates:
        file = RESULTS / "search_gates.json"
        shares = {"environment": describe_environment(), "seed": 0, "matches": MATCHES, "gates": gates(MATCHES)}
        file.write_text(json.dumps(shares, indent=1) + "\n")
        print(f"written: {file}")
        return
    questions = 10 if args.quick else args.questions
    sizes = (100,) if args.quick else (100_000,) if args.large else (1_000, 10_000)
    file = RESULTS / f"search{'-quick' * args.quick}{'_large' * args.large}.json"
    told: dict[str, Any] = {"environment": describe_environment(), "seed": 0, "questions": questions}
    told |= {"recall": {}, "players": {}, "memory": {}}

    def keep() -> None:
        file.write_text(json.dumps(told, indent=1) + "\n")

    for pages in sizes:
        for retriever, embedding in arms(pages, args.minilm):
            name = retriever if retriever == "bm25" else f"{retriever} ({embedding})"
            told["recall"].setdefault(str(pages), {})[name] = recall(pages, questions, retriever, embedding)
            keep()
            told["memory"].setdefault(str(pages), {})[name] = memory(pages, retriever, embedding)
            keep()
    if not args.large:
        told["players"][str(sizes[0])] = players(sizes[0], questions)
        keep()
    print(f"written: {file}")


if __name__ == "__main__":
    main()
