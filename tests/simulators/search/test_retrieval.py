"""Searching by words, by meaning and by both; queries and corpora that cannot be used."""

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


def test_words_find_the_texts_that_hold_them_best_first() -> None:
    index = Index(TEXTS, "hashed")
    assert index.find("fox", 3) == [2, 0]
    assert index.find("RED hen!", 1) == [1]
    assert index.find("zebra", 3) == []


def test_a_hybrid_fuses_the_ranks_of_both() -> None:
    index = Index(TEXTS, "hashed")
    words, meaning = index.find("red hen", 4), index.find("red hen", 4, "dense")
    score = {n: sum(1 / (60 + hits.index(n) + 1) for hits in (words, meaning) if n in hits) for n in range(4)}
    assert index.find("red hen", 4, "hybrid") == sorted(score, key=lambda n: (-score[n], n))


def test_equal_scores_keep_the_order_of_the_pages() -> None:
    index = Index(["same words"] * 50, "hashed")
    assert index.find("words", 7) == list(range(7))


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("x" * 2**20, "a query has at most 1,000 characters, not 1,048,576"),
        ("", "needs words"),
        ("?!…\n", "needs words"),
    ],
)
def test_a_query_that_cannot_be_searched_for_is_one_line(query: str, why: str) -> None:
    for retriever in ("bm25", "dense", "hybrid"):
        with pytest.raises(ValueError, match=re.escape(why)) as refused:
            Index(TEXTS, "hashed").find(query, 3, retriever)
        assert "\n" not in str(refused.value)


def test_an_index_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="the corpus is empty"):
        Index([], "hashed")


def test_one_library_serves_all_matches() -> None:
    games = [Search(pages=100) for _ in range(3)]
    for seed, game in enumerate(games):
        game.reset(seed=seed)
    assert len({id(each.library) for game in games for each in (game, game.clone())}) == 1
    assert load_library(Key(100)) is games[0].library


def test_a_session_counts_and_refuses() -> None:
    shelf = load_library(Key(100))
    work, title = Session(shelf, Budget(2, 1, 3), "bm25", shows_pages=False), shelf.titles[0]
    with pytest.raises(ValueError, match="no search has found"):
        work.open(title)
    assert f"[{title}]" in work.search(title)
    assert work.open(title) == shelf.pages[title]
    with pytest.raises(ValueError, match="no pages may be opened any more"):
        work.open(title)
    with pytest.raises(ValueError, match="at most 1,000"):
        work.search("y" * 1001)
    assert work.search("zzzz") == "nothing"
    with pytest.raises(ValueError, match="no searches are left"):
        work.search(title)
    assert (work.calls, work.left) == (3, {"searches": 0, "opens": 0})


def test_exact_match_and_f1_are_those_of_squad() -> None:
    assert is_exact("The  Song, of Rix!", ["song of rix"]) and not is_exact("", ["a"]) and not is_exact("The", ["the"])
    assert compute_f1("the song of Rix", ["The Song of Kelm"]) == pytest.approx(2 / 3)
    assert compute_f1("x", ["y", "x"]) == 1.0 and compute_f1("", ["y"]) == 0.0


GOOD = [
    {"title": "Aardvark", "text": "The aardvark has hair. It eats ants."},
    {"title": "Bass", "text": "The bass has fins."},
    {
        "question": "Which animal eats ants?",
        "answer": ["aardvark", "the aardvark"],
        "evidence": ["Aardvark"],
        "hops": 1,
    },
]


def _corpus(tmp_path, rows):
    file = tmp_path / "corpus.jsonl"
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    file.write_bytes(b"\n".join(lines))
    return str(file)


def test_a_corpus_of_ones_own_is_played(tmp_path) -> None:
    game = Search(pages=_corpus(tmp_path, GOOD), show="pages")
    game.reset(seed=0)
    assert game.public()["question"] == "Which animal eats ants?"
    game.step('search(query="eats ants")')
    assert "eats ants" in game.messages("solver")[0].text
    game.step("ANSWER Aardvark.")
    assert game.report()["success"] and game.report()["recall"] == 1.0


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([], "the corpus is empty"),
        (GOOD[:2], "nothing is asked"),
        (GOOD[2:], "the corpus is empty"),
        ([GOOD[0], b"{"], ", row 2: it is not JSON"),
        ([GOOD[0], b"\xff\xfe"], ", row 2: it is not UTF-8"),
        ([b"[" * 100_000], ", row 1: it is not JSON"),
        ([GOOD[0], [1]], ", row 2: a row is an object"),
        ([GOOD[0], GOOD[0]], ", row 2: there is a page called 'Aardvark' already"),
        ([{"title": "A", "text": 3}], ", row 1: text must be a text"),
        ([{"title": "\u200b", "text": "x"}], ", row 1: title has nothing that can be read"),
        ([{"title": "A", "text": "x" * 30_000}], ", row 1: text has 30,000 characters, over 20,000"),
        ([*GOOD, {"question": "Q?", "answer": "!"}], ", row 4: an answer needs a word"),
        ([*GOOD, {"question": "Q?", "answer": []}], ", row 4: answer must be a text"),
        ([*GOOD, {"question": "Q?", "answer": "b", "hops": 9}], ", row 4: hops must be a whole number from 1 to 4"),
        (
            [*GOOD, {"question": "Q?", "answer": "b", "evidence": ["Zebra"]}],
            ", row 4: the evidence 'Zebra' is the title",
        ),
        ([b'{"title": "A", "title": "B", "text": "x"}'], ", row 1: title is given twice"),
        ([b'"' + b"x" * 1_000_001 + b'"'], ", row 1: it has 1,000,003 bytes, over 1,000,000"),
        ([*GOOD, {"question": "Q?", "answer": ["b"] * 101}], ", row 4: there are 101 answers, over 100"),
        ([*GOOD, {"question": "Q?", "answer": "b", "evidence": ["A"] * 101}], ", row 4: there are 101 titles"),
    ],
)
def test_a_broken_corpus_is_one_line_with_file_and_row(tmp_path, rows, why: str) -> None:
    path = _corpus(tmp_path, rows)
    with pytest.raises(ValueError, match=re.escape(why)) as refused:
        Search(pages=path)
    assert path in str(refused.value) and "\n" not in str(refused.value)


def test_a_corpus_that_is_no_file_is_one_line(tmp_path) -> None:
    for path in (tmp_path, tmp_path / "none", "/dev/zero", "a\0b", "x" * 5_000):
        with pytest.raises(ValueError, match="the corpus cannot be read") as refused:
            load_corpus(str(path))
        assert len(str(refused.value)) < 300


def test_a_corpus_may_begin_with_a_byte_order_mark_and_needs_questions_of_its_split(tmp_path) -> None:
    path = _corpus(tmp_path, [b"\xef\xbb\xbf" + json.dumps(GOOD[0]).encode(), *GOOD[1:]])
    refusals = 0
    for split in ("train", "test"):
        try:
            Search(pages=path, split=split).reset(seed=0)
        except ValueError as why:
            assert f"is in the split {split}" in str(why)
            refusals += 1
    assert refusals == 1, "its one question is in one of the two"
