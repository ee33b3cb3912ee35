"""Find where in runs something was said: by meaning, plain words, a regular expression, or a filter in SQL.

By meaning: sentence vectors, the nearest first (cosine). By words: BM25 (Robertson and Zaragoza 2009), in which rare
words count more. By expression: RE2's, whose time is linear in the text whatever the expression, in the log's order.
Equal texts are one finding, at the first place where they were said, with how often they were.
"""

from __future__ import annotations

import warnings
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from analysis.columns import TABLES
from analysis.frames import Frames, load
from analysis.query import answer
from analysis.texts import KEYS, Embedding, Unit, index, texts, vectors
from arena.errors import ConfigError, StoreError
from arena.plain import clean_text, printable

By = Literal["meaning", "words", "regex"]
BYS: tuple[By, ...] = ("meaning", "words", "regex")


def find(
    runs: Frames | str | Path,
    query: str,
    by: By = "meaning",
    of: Unit = "turns",
    where: str = "",
    n: int = 10,
    embedding: Embedding = "minilm",
) -> pd.DataFrame:
    """The `n` texts that answer the query best: score, times (how often it was said), run, match, …, text, before.

    `before` is the turn that a turn or thought answered, "" where it was the first; a score is NaN where nothing was
    ranked: by an expression, or a condition alone. `where` is one SQL condition on the columns of `turns`, or of
    `matches` when these are looked for; with it the query may be empty, and what fulfils it comes in the log's order.
    ConfigError, one line, for a query or a condition that cannot be read, and where what `by` needs is not installed.

    >>> found = find(log, "is it accepted, or accept", by="words", n=2)
    >>> found[["times", "match", "turn", "text"]].values.tolist()
    [[9, '0000-0000', 1, 'ACCEPT | $fair$ [/b]']]
    >>> find(log, r"OFFER \\d 0", by="regex", where="iteration = 2")["match"].tolist()
    ['0002-0000']
    """
    if by not in BYS:
        raise ConfigError(f"nothing is found by '{by}' (one of: {', '.join(BYS)})")
    if n < 1:
        raise ConfigError(f"{n} findings: ask for at least one")
    if not query.strip() and not where.strip():
        raise ConfigError("there is nothing to look for: give words, or a condition in SQL")
    log, query = runs if isinstance(runs, Frames) else load(runs), clean_text(query)  # as the log's own texts are
    said = _distinct(_filtered(texts(log, of), log, of, where))
    scores = _scores(said["text"].tolist(), query, by, embedding) if len(said) else np.zeros(0)
    said.insert(0, "score", scores)
    least = -np.inf if by == "meaning" else 0.0
    best = said[said["score"] > least].sort_values("score", ascending=False, kind="stable")
    if by == "regex" or not query.strip():
        best = best.assign(score=np.nan)
    return _with_context(best.head(n).reset_index(drop=True), log, of)


def _with_context(found: pd.DataFrame, log: Frames, of: Unit) -> pd.DataFrame:
    """The findings with the turn before each, and its seat; whole matches are their own context."""
    if of == "matches":
        return found
    said = texts(log)
    said = said[said["match"].isin(found["match"])]
    spoken = said["seat"] + ": " + said["text"]
    by_place = dict(zip(zip(said["run"], said["match"], said["turn"], strict=True), spoken, strict=True))
    places = zip(found["run"], found["match"], found["turn"], strict=True)
    return found.assign(before=[by_place.get((run, match, turn - 1), "") for run, match, turn in places])


def nearest(log: Frames, match: str, n: int = 10, embedding: Embedding = "minilm") -> pd.DataFrame:
    """The matches most like one of them by meaning of all that was said: score (cosine), times, run, match, …, text.

    Matches word for word like it are left out. StoreError, with the nearest name, for an unknown match.

    >>> nearest(log, "0000-0003", embedding="hashed")[["times", "match"]].values.tolist()
    [[9, '0000-0000']]
    """
    every = texts(log, "matches")
    own = every.loc[every["match"] == match, "text"].tolist()
    if not own:
        near = get_close_matches(match[:64], every["match"].tolist(), n=1)
        hint = f" — did you mean '{printable(near[0])}'?" if near else ""
        raise StoreError(f"there is no match '{printable(match[:64])}' in which anything was said{hint}")
    said = _distinct(every[every["text"] != own[0]].reset_index(drop=True))
    if said.empty:
        return said.assign(score=0.0)
    read = index(vectors(said["text"].tolist(), embedding))
    score, place = read.search(vectors(own[:1], embedding), min(n, len(said)))
    found = said.iloc[place[0][place[0] >= 0]].reset_index(drop=True)
    found.insert(0, "score", score[0][place[0] >= 0].round(4))
    return pd.DataFrame(found)


def _filtered(said: pd.DataFrame, log: Frames, of: Unit, where: str) -> pd.DataFrame:
    """Those of which the condition is true."""
    if not where.strip():
        return said
    keys = KEYS[of]
    table = "matches" if of == "matches" else "turns"
    chosen = answer(log, f"select distinct {', '.join(keys)} from {table} where ({where}\n)")
    if chosen.schema.types != [TABLES[table].field(key).type for key in keys]:  # parentheses that end ours, and a union
        raise ConfigError(f"'{printable(where)[:64]}' is more than a condition: write one, such as: iteration = 3")
    return said.merge(chosen.to_pandas(types_mapper=pd.ArrowDtype).astype(said.dtypes[keys].to_dict()), on=keys)


def _distinct(said: pd.DataFrame) -> pd.DataFrame:
    """A row per text, its first place, and how often it was said."""
    times = said.groupby("text", sort=False)["text"].transform("size")
    said.insert(0, "times", times.astype("int64"))
    return said.drop_duplicates("text", ignore_index=True)


def _scores(said: list[str], query: str, by: By, embedding: Embedding) -> Any:
    """Score how well each text answers the query [n]; 0 is not at all, but by meaning, where all do more or less."""
    if not query.strip():
        return np.ones(len(said))
    if by == "words":
        return _by_words(said, query)
    if by == "regex":
        return _by_expression(said, query)
    return vectors(said, embedding) @ vectors([query], embedding)[0]


def _by_words(said: list[str], query: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its progress bars miss widgets in notebooks, and none is shown
            import bm25s
    except ImportError:
        raise ConfigError("plain words need bm25s: pip install 'arena-selfplay[analysis]'") from None
    asked, *read = bm25s.tokenize(
        [query, *said], token_pattern=r"(?u)\b\w+\b", stopwords="en", return_ids=False, show_progress=False
    )
    known = {word for words in read for word in words}
    wanted = [word for word in asked if word in known]
    if not wanted:
        return np.zeros(len(said))
    ranked = bm25s.BM25()
    ranked.index(read, show_progress=False)
    return np.asarray(ranked.get_scores(wanted), np.float64)


def _by_expression(said: list[str], query: str) -> Any:
    try:
        found = pc.match_substring_regex(pa.array(said, pa.string()), query)
    except pa.ArrowInvalid as error:
        reason = printable(str(error)).removeprefix("Invalid regular expression: ")
        raise ConfigError(f"'{printable(query)[:64]}' is no regular expression (RE2): {reason}") from None
    return found.to_numpy(zero_copy_only=False).astype(np.float64)
