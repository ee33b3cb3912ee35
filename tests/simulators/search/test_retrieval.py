"""Lexical, dense and hybrid search; refusal of invalid queries and corpora."""

import json
import re

import pytest

from simulators.search import Search
from simulators.search.corpus import load_corpus
from simulators.search.library import Key, load_library
from simulators.search.retrieval import Index
from simulators.search.scoring import compute_f1, is_exact
from simulators.search.session import Budget, Session

TEXTS = ["the red fox runs", "the red hen sleeps", "a fox and a fox and a hen", "nothing here"]


def test_lexical_search_ranks_texts_by_score() -> None:
    index = Index(TEXTS, "hashed")
    assert index.find("fox", 3) == [2, 0]
    assert index.find("RED hen!", 1) == [1]
    assert index.find("zebra", 3) == []


def test_hybrid_search_fuses_both_rankings() -> None:
    index = Index(TEXTS, "hashed")
    words, meaning = index.find("red hen", 4), index.find("red hen", 4, "dense")
    score = {n: sum(1 / (60 + hits.index(n) + 1) for hits in (words, meaning) if n in hits) for n in range(4)}
    assert index.find("red hen", 4, "hybrid") == sorted(score, key=lambda n: (-score[n], n))


def test_equal_scores_keep_the_order_of_the_pages() -> None:
    index = Index(["same words"] * 50, "hashed")
    assert index.find("words", 7) == list(range(7))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("x" * 2**20, "a query has at most 1,000 characters, not 1,048,576"),
        ("", "needs words"),
        ("?!…\n", "needs words"),
    ],
)
def test_refuses_invalid_queries_in_one_line(query: str, message: str) -> None:
    for retriever in ("bm25", "dense", "hybrid"):
        with pytest.raises(ValueError, match=re.escape(message)) as refused:
            Index(TEXTS, "hashed").find(query, 3, retriever)
        assert "\n" not in str(refused.value)


def test_refuses_an_empty_index() -> None:
    with pytest.raises(ValueError, match="the corpus is empty"):
        Index([], "hashed")


def test_one_library_serves_all_matches() -> None:
    games = [Search(pages=100) for _ in range(3)]
    for seed, game in enumerate(games):
        game.reset(seed=seed)
    assert len({id(match.library) for game in games for match in (game, game.clone())}) == 1
    assert load_library(Key(100)) is games[0].library


def test_session_counts_calls_and_enforces_the_budget() -> None:
    library = load_library(Key(100))
    session, title = Session(library, Budget(2, 1, 3), "bm25", shows_pages=False), library.titles[0]
    with pytest.raises(ValueError, match="no search has found"):
        session.open(title)
    assert f"[{title}]" in session.search(title)
    assert session.open(title) == library.pages[title]
    with pytest.raises(ValueError, match="no pages may be opened any more"):
        session.open(title)
    with pytest.raises(ValueError, match="at most 1,000"):
        session.search("y" * 1001)
    assert session.search("zzzz") == "nothing"
    with pytest.raises(ValueError, match="no searches are left"):
        session.search(title)
    assert (session.calls, session.remaining_calls) == (3, {"searches": 0, "opens": 0})


def test_exact_match_and_f1_are_those_of_squad() -> None:
    assert is_exact("The  Song, of Rix!", ["song of rix"]) and not is_exact("", ["a"]) and not is_exact("The", ["the"])
    assert compute_f1("the song of Rix", ["The Song of Kelm"]) == pytest.approx(2 / 3)
    assert compute_f1("x", ["y", "x"]) == 1.0 and compute_f1("", ["y"]) == 0.0


CORPUS = [
    {"title": "Aardvark", "text": "The aardvark has hair. It eats ants."},
    {"title": "Bass", "text": "The bass has fins."},
    {
        "question": "Which animal eats ants?",
        "answer": ["aardvark", "the aardvark"],
        "evidence": ["Aardvark"],
        "hops": 1,
    },
]


def write_corpus(tmp_path, rows):
    file = tmp_path / "corpus.jsonl"
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    file.write_bytes(b"\n".join(lines))
    return str(file)


def test_plays_a_corpus_from_a_file(tmp_path) -> None:
    game = Search(pages=write_corpus(tmp_path, CORPUS), show="pages")
    game.reset(seed=0)
    assert game.public()["question"] == "Which animal eats ants?"
    game.step('search(query="eats ants")')
    assert "eats ants" in game.messages("solver")[0].text
    game.step("ANSWER Aardvark.")
    assert game.report()["success"] and game.report()["recall"] == 1.0


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "the corpus is empty"),
        (CORPUS[:2], "there are no questions"),
        (CORPUS[2:], "the corpus is empty"),
        ([CORPUS[0], b"{"], ", row 2: it is not JSON"),
        ([CORPUS[0], b"\xff\xfe"], ", row 2: it is not UTF-8"),
        ([b"[" * 100_000], ", row 1: it is not JSON"),
        ([CORPUS[0], [1]], ", row 2: a row is an object"),
        ([CORPUS[0], CORPUS[0]], ", row 2: another page has the title 'Aardvark'"),
        ([{"title": "A", "text": 3}], ", row 1: text must be a text"),
        ([{"title": "\u200b", "text": "x"}], ", row 1: title has no readable characters"),
        ([{"title": "A", "text": "x" * 30_000}], ", row 1: text has 30,000 characters, over 20,000"),
        ([*CORPUS, {"question": "Q?", "answer": "!"}], ", row 4: an answer needs a word"),
        ([*CORPUS, {"question": "Q?", "answer": []}], ", row 4: answer must be a text"),
        ([*CORPUS, {"question": "Q?", "answer": "b", "hops": 9}], ", row 4: hops must be a whole number from 1 to 4"),
        (
            [*CORPUS, {"question": "Q?", "answer": "b", "evidence": ["Zebra"]}],
            ", row 4: no page has the title 'Zebra'",
        ),
        ([b'{"title": "A", "title": "B", "text": "x"}'], ", row 1: it is not JSON with unique keys"),
        ([b'"' + b"x" * 1_000_001 + b'"'], ", row 1: it has 1,000,003 bytes, over 1,000,000"),
        ([*CORPUS, {"question": "Q?", "answer": ["b"] * 101}], ", row 4: there are 101 answers, over 100"),
        ([*CORPUS, {"question": "Q?", "answer": "b", "evidence": ["A"] * 101}], ", row 4: there are 101 titles"),
    ],
)
def test_refuses_invalid_corpus_by_file_and_row(tmp_path, rows, message: str) -> None:
    path = write_corpus(tmp_path, rows)
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        Search(pages=path)
    assert path in str(refused.value) and "\n" not in str(refused.value)


def test_refuses_unreadable_corpus_in_one_line(tmp_path) -> None:
    for path in (tmp_path, tmp_path / "none", "/dev/zero", "a\0b", "x" * 5_000):
        with pytest.raises(ValueError, match="the corpus cannot be read") as refused:
            load_corpus(str(path))
        assert len(str(refused.value)) < 300


def test_corpus_may_have_a_bom_and_needs_questions_of_its_split(tmp_path) -> None:
    path = write_corpus(tmp_path, [b"\xef\xbb\xbf" + json.dumps(CORPUS[0]).encode(), *CORPUS[1:]])
    refusals = 0
    for split in ("train", "test"):
        try:
            Search(pages=path, split=split).reset(seed=0)
        except ValueError as error:
            assert f"is in the split {split}" in str(error)
            refusals += 1
    assert refusals == 1, "the question is in exactly one split"
