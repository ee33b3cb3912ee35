"""Recall of searches in the simulator `search`'s library, accuracy of its scripted readers, and its memory.

    python benchmarks/search.py                      # 1,000 and 10,000 pages
    python benchmarks/search.py --quick              # 100 pages, few questions: does it run?
    python benchmarks/search.py --large              # 100,000 pages: recall and memory
    python benchmarks/search.py --minilm 1000        # MiniLM's embeddings for libraries of up to 1,000 pages
    python benchmarks/search.py --gates              # only the checks of proposed questions

`recall`: the share of a chain's evidence pages among the first k hits. The query is the complete question (`question`),
or there is one query per fact, as the player `reader` asks (`steps`). `players`: the share of right answers of
`closed_book` (sees no page), `reader` (searches within the budget) and `open_book` (is given the evidence). `memory`:
of a new process by retriever, with pages and index, and with 1,000 matches in flight that share them and have searched
once; `most_mb` is the peak. Pages and questions depend only on the seed 0. MiniLM takes at least 10 ms per page. Writes
results/search.json, or results/search_large.json.

`gates`: the share of a proposer's questions, in terse worlds of 20 pages, that a set of checks admits, and the share of
unsound questions among these: questions that, by the graph of facts, have no answer, a different one, or several.
Writes results/search_gates.json.
"""

import argparse
import json
import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from processes import read_status

from arena.doctor import describe_environment
from arena.statistics import SHARE, mean_ci
from simulators.conformance import play
from simulators.embedding import Embedding
from simulators.search import Search
from simulators.search.checker import CHECKS, Check
from simulators.search.library import Key, Library, load_library
from simulators.search.players import find_answer, write_backward_query
from simulators.search.programs import Chain, find_ends
from simulators.search.questions import SORTS, Question, draw_question
from simulators.search.retrieval import RETRIEVERS, Retriever
from simulators.search.selfplay import SearchSelfplay

RESULTS = Path(__file__).parent / "results"
HOPS, DEPTHS = (1, 2, 3, 4), (1, 5, 10)
IN_FLIGHT, MATCHES = 1_000, 500


def round_mean(values: list[float]) -> list[float]:
    """Return the mean of shares and the ends of its 95 % interval, rounded."""
    return [round(value, 3) for value in mean_ci(values, SHARE)]


def make_queries(question: Question, library: Library) -> list[tuple[str, frozenset[str]]]:
    """Return, for each step of a question's chain, the query for its fact and the titles of the pages that state it."""
    assert question.program is not None and library.world is not None
    chain, queries = question.program.chains[0], []
    for index, step in enumerate(chain.steps):
        (entity,) = find_ends(Chain(chain.start, chain.steps[:index]), library.world) if index else [chain.start]
        if step.startswith("^"):
            queries.append(
                (write_backward_query(entity, step[1:], terse=False), library.world.subjects(entity, step[1:]))
            )
        else:
            queries.append((entity, frozenset([entity])))
    return queries


def measure_recall(pages: int, questions: int, retriever: Retriever, embedding: Embedding) -> dict[str, Any]:
    """Return the recall of complete questions and of stepwise queries, by hops and depth, and the time per query."""
    library, rows = load_library(Key(pages, embedding=embedding)), {}
    assert library.world is not None
    library.index.find("anything", 1, retriever)  # builds the index before the clock starts
    began, query_count = time.process_time(), 0
    for hops in HOPS:
        rng = np.random.default_rng([0, hops])
        found: dict[str, list[list[float]]] = {"question": [], "steps": []}
        for _ in range(questions):
            question = draw_question(library.world, rng, ["chain"], (hops, hops))
            steps = make_queries(question, library)
            for mode, pairs in {"question": [(question.text, question.evidence)], "steps": steps}.items():
                hits = [
                    [library.titles[hit] for hit in library.index.find(q, max(DEPTHS), retriever)] for q, _ in pairs
                ]
                query_count += len(pairs)
                found[mode].append([_mean_recall(hits, [pages for _, pages in pairs], k) for k in DEPTHS])
        rows[str(hops)] = {
            mode: {f"at {k}": round_mean([row[n] for row in by_question]) for n, k in enumerate(DEPTHS)}
            for mode, by_question in found.items()
        }
    return {"by_hops": rows, "cpu_milliseconds_per_query": round(1000 * (time.process_time() - began) / query_count, 2)}


def _mean_recall(hits: list[list[str]], evidence: list[frozenset[str]], depth: int) -> float:
    shares = [len(pages & {*found[:depth]}) / len(pages) for found, pages in zip(hits, evidence, strict=True)]
    return float(np.mean(shares))


def measure_players(pages: int, matches: int) -> dict[str, Any]:
    """Return the shares of right answers by sort of question and number of hops."""
    shares_by_case: dict[str, Any] = {}
    for sort in SORTS:
        for hops in HOPS:
            game = Search(pages=pages, sorts=[sort], hops=hops)
            shares = {}
            for player in ("closed_book", "reader"):
                reports = [play(game, seed, player) for seed in range(matches)]
                shares[player] = round_mean([float(report["score"]) for report in reports])
            shares["open_book"] = round_mean([_answer_open_book(game, seed) for seed in range(matches)])
            shares_by_case[f"{sort}, {hops}"] = shares
    return shares_by_case


def _answer_open_book(game: Search, seed: int) -> float:
    game.reset(seed=seed)
    texts = [game.library.pages[title] for title in sorted(game.question.evidence)]
    return float(find_answer(game.question.text, texts, terse=False) == game.question.answer)


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


def measure_gates(count: int) -> dict[str, Any]:
    """Return the share of admitted questions and the share of unsound ones among these, by proposer and checks."""
    shares_by_proposer: dict[str, Any] = {}
    for proposer in ("random", "reader"):
        for name, checks in GATES.items():
            game = SearchSelfplay(checks=checks, **TERSE)
            reports = [play(game, seed, proposer) for seed in range(count)]
            admitted = [float(report["accepted"]) for report in reports]
            unsound = [1.0 - float(report["sound"]) for report in reports if report["accepted"]]
            shares_by_proposer.setdefault(proposer, {})[name] = {
                "admitted": round_mean(admitted),
                "unsound": round_mean(unsound) if unsound[1:] else None,
            }
    return shares_by_proposer


def measure_memory(pages: int, retriever: Retriever, embedding: Embedding) -> dict[str, Any]:
    """Return a new process's MB before loading, with the library, and with many matches in flight, and its CPU time."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        measured: dict[str, Any] = pool.apply(_measure_own_memory, (pages, retriever, embedding))
    return measured


def _measure_own_memory(pages: int, retriever: Retriever, embedding: Embedding) -> dict[str, Any]:
    before, began = _read_megabytes(), time.process_time()
    library = load_library(Key(pages, embedding=embedding))
    library.index.find("anything", 1, retriever)
    loaded, seconds = _read_megabytes(), time.process_time() - began
    games = []
    for seed in range(IN_FLIGHT):
        game = Search(pages=pages, retriever=retriever, embedding=embedding)
        game.reset(seed=seed)
        game.step(f'search(query="{game.question.text[:200].replace(chr(34), "")}")')
        games.append(game)
    assert all(game.library is library for game in games)
    return {
        "before_mb": before,
        "with_library_mb": loaded,
        f"with_{IN_FLIGHT}_matches_mb": _read_megabytes(),
        "most_mb": _read_megabytes("VmHWM"),
        "cpu_seconds_to_make": round(seconds, 1),
    }


def _read_megabytes(field: str = "VmRSS") -> int:
    return round(read_status(field) / 2**20)


def list_arms(pages: int, minilm: int) -> Iterator[tuple[Retriever, Embedding]]:
    """Yield the retrievers to compare on `pages` pages, each with an embedding. MiniLM only up to `minilm` pages."""
    yield "bm25", "hashed"
    for retriever in RETRIEVERS[1:]:
        yield retriever, "hashed"
        if pages <= minilm:
            yield retriever, "minilm"


def main() -> None:
    """Run the chosen measurements and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="100 pages, few questions")
    parser.add_argument("--large", action="store_true", help="100,000 pages: recall and memory")
    parser.add_argument("--questions", type=int, default=200, help="questions for each number of hops")
    parser.add_argument("--minilm", type=int, default=1000, help="pages up to which MiniLM is measured")
    parser.add_argument("--gates", action="store_true", help="only measure the checks of proposed questions")
    options = parser.parse_args()
    if options.gates:
        file = RESULTS / "search_gates.json"
        shares = {"environment": describe_environment(), "seed": 0, "matches": MATCHES, "gates": measure_gates(MATCHES)}
        file.write_text(json.dumps(shares, indent=1) + "\n")
        print(f"written: {file}")
        return
    questions = 10 if options.quick else options.questions
    sizes = (100,) if options.quick else (100_000,) if options.large else (1_000, 10_000)
    file = RESULTS / f"search{'-quick' * options.quick}{'_large' * options.large}.json"
    result: dict[str, Any] = {"environment": describe_environment(), "seed": 0, "questions": questions}
    result |= {"recall": {}, "players": {}, "memory": {}}

    def keep() -> None:
        file.write_text(json.dumps(result, indent=1) + "\n")

    for pages in sizes:
        for retriever, embedding in list_arms(pages, options.minilm):
            name = retriever if retriever == "bm25" else f"{retriever} ({embedding})"
            result["recall"].setdefault(str(pages), {})[name] = measure_recall(pages, questions, retriever, embedding)
            keep()
            result["memory"].setdefault(str(pages), {})[name] = measure_memory(pages, retriever, embedding)
            keep()
    if not options.large:
        result["players"][str(sizes[0])] = measure_players(sizes[0], questions)
        keep()
    print(f"written: {file}")


if __name__ == "__main__":
    main()
