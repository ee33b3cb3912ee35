"""Search for texts in runs: by meaning, by words, by a regular expression, or with a condition in SQL.

Meaning: sentence vectors, ranked by cosine similarity. Words: BM25 (Robertson and Zaragoza 2009), in which rare words
count more. Regular expressions: RE2, in linear time; results come in the order of the log. Equal texts are one result,
at their first occurrence, with a count.

A turn's text is its action and public message; a thought is its private text; a match is one line per turn. MiniLM
reads 256 word pieces at a time, so a long text is split into chunks of whole lines. Its vector is the normalised mean
of the chunks' vectors, weighted by length.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from analysis.columns import TABLES
from analysis.frames import Frames, load
from analysis.query import run_query
from arena.errors import ConfigError, StoreError
from arena.plain import clean_text, printable
from games import names

if TYPE_CHECKING:
    from numpy.typing import NDArray

By = Literal["meaning", "words", "regex"]
SEARCHES: tuple[By, ...] = ("meaning", "words", "regex")
Unit = Literal["turns", "thoughts", "matches"]
UNITS: tuple[Unit, ...] = ("turns", "thoughts", "matches")
Embedding = Literal["minilm", "hashed"]
"""Embedding model: `minilm` compares meaning, `hashed` only words (simulators/embedding.py)."""
KEYS = {"turns": ["run", "match", "turn"], "thoughts": ["run", "match", "turn"], "matches": ["run", "match"]}
"""Key columns of each unit."""
CHUNK_CHARACTERS = 700
"""Characters per embedded chunk: about 200 word pieces."""


def find(
    runs: Frames | str | Path,
    query: str,
    by: By = "meaning",
    of: Unit = "turns",
    where: str = "",
    n: int = 10,
    embedding: Embedding = "minilm",
) -> pd.DataFrame:
    """Search texts and return the `n` best as rows: score, times (occurrences), key, iteration, …, text, before.

    `of` selects turns, private thoughts or whole matches. `before` is the preceding turn, "" if there is none; results
    that are matches lack it. The score is NaN for a regular expression or without a query. `where` is one SQL condition
    on the columns of `turns`, or of `matches` if `of="matches"`. With a condition the query may be empty; results then
    come in the order of the log. Raises ConfigError for an invalid query or condition, or a missing optional
    dependency.

    >>> found = find(log, "is it accepted, or accept", by="words", n=2)
    >>> found[["times", "match", "turn", "text"]].values.tolist()
    [[9, '0000-0000', 1, 'ACCEPT | $fair$ [/b]']]
    >>> find(log, r"OFFER \\d 0", by="regex", where="iteration = 2")["match"].tolist()
    ['0002-0000']
    """
    if by not in SEARCHES:
        raise ConfigError(f"unknown search by '{by}' (one of: {', '.join(SEARCHES)})")
    if n < 1:
        raise ConfigError(f"n is {n}: ask for at least one result")
    if not query.strip() and not where.strip():
        raise ConfigError("nothing to search for: give a query, or a condition in SQL")
    log, query = runs if isinstance(runs, Frames) else load(runs), clean_text(query)  # logged texts are cleaned, too
    texts = _merge_equal(_filter(collect_texts(log, of), log, of, where))
    texts.insert(0, "score", _score(texts["text"].tolist(), query, by, embedding) if len(texts) else np.zeros(0))
    minimum = -np.inf if by == "meaning" else 0.0
    best = texts[texts["score"] > minimum].sort_values("score", ascending=False, kind="stable")
    if by == "regex" or not query.strip():
        best = best.assign(score=np.nan)
    return _add_context(best.head(n).reset_index(drop=True), log, of)


def nearest(log: Frames, match: str, n: int = 10, embedding: Embedding = "minilm") -> pd.DataFrame:
    """Return the `n` matches whose texts are most similar to one match's: score (cosine), times, run, match, …, text.

    Matches with the same text are left out. Raises StoreError, with the nearest name, for an unknown match.

    >>> nearest(log, "0000-0003", embedding="hashed")[["times", "match"]].values.tolist()
    [[9, '0000-0000']]
    """
    match_texts = collect_texts(log, "matches")
    query_texts = match_texts.loc[match_texts["match"] == match, "text"].tolist()
    if not query_texts:
        hint = names.nearest(match, map(printable, match_texts["match"]))
        raise StoreError(f"there is no match '{printable(match[:64])}' with any text{hint}")
    texts = _merge_equal(match_texts[match_texts["text"] != query_texts[0]].reset_index(drop=True))
    if texts.empty:
        return texts.assign(score=0.0)
    texts.insert(0, "score", (embed(texts["text"].tolist(), embedding) @ embed(query_texts[:1], embedding)[0]).round(4))
    return texts.sort_values("score", ascending=False, kind="stable").head(n).reset_index(drop=True)


def collect_texts(log: Frames, of: Unit = "turns") -> pd.DataFrame:
    """Return all non-empty texts, one per row in the order of the log: run, match, iteration and text.

    Turns and thoughts also have turn, seat, role and policy. Raises ConfigError for an unknown unit.

    >>> collect_texts(log).loc[0, ["match", "seat", "text"]].tolist()
    ['0000-0000', 'opener', 'OFFER 1 0 2 | $fair$ [/b]']
    >>> print(collect_texts(log, "matches").loc[0, "text"])
    opener: OFFER 1 0 2 | $fair$ [/b]
    responder: ACCEPT | $fair$ [/b]
    """
    if of not in UNITS:
        raise ConfigError(f"unknown unit of text '{of}' (one of: {', '.join(UNITS)})")
    columns = ["private"] if of == "thoughts" else ["action", "public"]
    turns = log.frame("turns", ["run", "match", "iteration", "turn", "seat", "role", "policy", *columns])
    if of == "thoughts":
        turns["text"] = turns["private"]
    else:
        joined = [
            " | ".join(dict.fromkeys(part for part in pair if part))
            for pair in zip(turns["action"], turns["public"], strict=True)
        ]
        turns["text"] = pd.Series(joined, dtype=turns["seat"].dtype, index=turns.index)
    rows = turns.drop(columns=columns)
    if of == "matches":
        rows["text"] = rows["seat"] + ": " + rows["text"]
        rows = rows.groupby(["run", "match", "iteration"], sort=False)["text"].agg("\n".join).reset_index()
    return rows[rows["text"].str.strip() != ""].reset_index(drop=True)


def embed(texts: Sequence[str], embedding: Embedding = "minilm") -> NDArray[np.float32]:
    """Return unit vectors of texts as an array [n, d]. Raises ConfigError if the embedding is unknown or not installed.

    >>> both = embed(["I walk away.", "I walk away!"], "hashed")
    >>> both.shape, float(both[0] @ both[1]).__round__(3)
    ((2, 256), 1.0)
    """
    from simulators.embedding import EMBEDDINGS, embed_catalogue

    if embedding not in EMBEDDINGS:
        raise ConfigError(f"unknown embedding '{embedding}' (one of: {', '.join(EMBEDDINGS)})")
    chunks = [list(_split_chunks(text)) for text in texts]
    flat = list(dict.fromkeys(chunk for text_chunks in chunks for chunk in text_chunks))
    if not flat:
        return np.zeros((0, 1), np.float32)
    try:
        vectors = embed_catalogue(flat, embedding)
    except ValueError:
        raise ConfigError(
            "search by meaning needs sentence-transformers: pip install 'arena-selfplay[analysis,maps]'"
        ) from None
    chunk_index = {chunk: number for number, chunk in enumerate(flat)}
    sums = np.stack([sum(len(chunk) * vectors[chunk_index[chunk]] for chunk in text_chunks) for text_chunks in chunks])
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    return np.ascontiguousarray(sums / np.where(lengths > 0, lengths, 1), np.float32)


def _split_chunks(text: str) -> Iterator[str]:
    """Split the text into chunks of whole lines, up to `CHUNK_CHARACTERS` long. Longer lines are split, too."""
    chunk = ""
    for line in text.splitlines() or [text]:
        if chunk and len(chunk) + len(line) >= CHUNK_CHARACTERS:
            yield chunk
            chunk = ""
        chunk = f"{chunk}\n{line}" if chunk else line
        while len(chunk) > CHUNK_CHARACTERS:
            yield chunk[:CHUNK_CHARACTERS]
            chunk = chunk[CHUNK_CHARACTERS:]
    if chunk or not text.strip():
        yield chunk or " "


def _add_context(results: pd.DataFrame, log: Frames, of: Unit) -> pd.DataFrame:
    """Add the column `before`, the seat and text of the turn before each result, unless results are matches."""
    if of == "matches":
        return results
    turns = collect_texts(log)
    turns = turns[turns["match"].isin(results["match"])]
    lines = turns["seat"] + ": " + turns["text"]
    lines_by_key = dict(zip(zip(turns["run"], turns["match"], turns["turn"], strict=True), lines, strict=True))
    keys = zip(results["run"], results["match"], results["turn"], strict=True)
    return results.assign(before=[lines_by_key.get((run, match, turn - 1), "") for run, match, turn in keys])


def _filter(texts: pd.DataFrame, log: Frames, of: Unit, where: str) -> pd.DataFrame:
    """Return the rows that satisfy the SQL condition `where`, or all rows if it is empty.

    Raises ConfigError if `where` is more than a condition.
    """
    if not where.strip():
        return texts
    keys = KEYS[of]
    table = "matches" if of == "matches" else "turns"
    selected = run_query(log, f"select distinct {', '.join(keys)} from {table} where ({where}\n)")
    # A condition that closes our parenthesis and adds a union could return other columns.
    if selected.schema.types != [TABLES[table].field(key).type for key in keys]:
        raise ConfigError(f"'{printable(where)[:64]}' is more than a condition: write one, such as: iteration = 3")
    return texts.merge(selected.to_pandas(types_mapper=pd.ArrowDtype).astype(texts.dtypes[keys].to_dict()), on=keys)


def _merge_equal(texts: pd.DataFrame) -> pd.DataFrame:
    """Keep the first row of each distinct text, and add the number of its occurrences as column `times`."""
    times = texts.groupby("text", sort=False)["text"].transform("size")
    texts.insert(0, "times", times.astype("int64"))
    return texts.drop_duplicates("text", ignore_index=True)


def _score(texts: list[str], query: str, by: By, embedding: Embedding) -> Any:
    """Return a score per text [n]: cosine by meaning, BM25 by words, 1 or 0 by a regular expression.

    BM25 and expressions score 0 for no match; cosines have no such threshold. Without a query, all scores are 1.
    """
    if not query.strip():
        return np.ones(len(texts))
    if by == "words":
        return _score_by_words(texts, query)
    if by == "regex":
        return match_regex(pa.array(texts, pa.string()), query).to_numpy(zero_copy_only=False).astype(np.float64)
    return embed(texts, embedding) @ embed([query], embedding)[0]


def _score_by_words(texts: list[str], query: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # bm25s warns about missing progress bar widgets, which we do not show
            import bm25s
    except ImportError:
        raise ConfigError("search by words needs bm25s: pip install 'arena-selfplay[analysis]'") from None
    query_words, *tokenized = bm25s.tokenize(
        [query, *texts], token_pattern=r"(?u)\b\w+\b", stopwords="en", return_ids=False, show_progress=False
    )
    vocabulary = {word for words in tokenized for word in words}
    known_words = [word for word in query_words if word in vocabulary]
    if not known_words:
        return np.zeros(len(texts))
    ranking = bm25s.BM25()
    ranking.index(tokenized, show_progress=False)
    return np.asarray(ranking.get_scores(known_words), np.float64)


def match_regex(texts: Any, query: str) -> Any:
    """Return a boolean Arrow array: True for texts that contain a match of the RE2 expression.

    Raises ConfigError if it is invalid.

    >>> match_regex(pa.array(["yes", "no"]), "^y").to_pylist()
    [True, False]
    """
    try:
        return pc.match_substring_regex(texts, query)
    except pa.ArrowInvalid as error:
        reason = printable(str(error)).removeprefix("Invalid regular expression: ")
        raise ConfigError(f"'{printable(query)[:64]}' is not a regular expression (RE2): {reason}") from None
