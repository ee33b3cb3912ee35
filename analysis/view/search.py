"""Text search in a run: substring or regular expression over several text fields; words and meaning as in `finding`.

Substrings and expressions are searched iteration by iteration, newest first, so that a long run needs little memory.
The search ends when it has enough hits or its time is up.
"""

from __future__ import annotations

from time import monotonic
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from analysis import flatten
from analysis.finding import Unit, find, match_regex
from analysis.frames import load
from analysis.view.index import Index
from arena.errors import ConfigError
from arena.plain import printable

FIELDS = {"said": ("action", "public"), "thought": ("private",), "wrote": ("raw",), "seen": ("text",)}
"""Text fields to search, as columns of `turns` or, for `seen`, of `messages`."""
MAX_HITS, SECONDS, CONTEXT, MAX_RANKED_TURNS = 500, 10.0, 160, 200_000
_NO_CREDIT = pa.table(
    {"match": pa.array([], pa.string()), "turn": pa.array([], pa.int16()), "advantage": pa.array([], pa.float64())}
)


def search_texts(index: Index, query: str, by: str = "text", of: str = "said") -> dict[str, Any]:
    """Search a run's turns: `hits` with match, turn, seat, iteration and text, `matches` (ids), and `whole`.

    `by` is text (substring), regex, words or meaning; `of` is one of `FIELDS`. `whole` is False if only part of the
    run was searched. Raises ConfigError for an invalid query.
    """
    if not query.strip():
        raise ConfigError("nothing to search for: enter a text")
    if of not in FIELDS:
        raise ConfigError(f"cannot search in '{printable(of)[:64]}' (one of: {', '.join(FIELDS)})")
    if by in ("words", "meaning"):
        turns = pc.sum(index.table()["turns"]).as_py() or 0
        if turns > MAX_RANKED_TURNS:
            raise ConfigError(
                f"words and meaning search at most {MAX_RANKED_TURNS} turns here, not {turns}: search by text, "
                "or use arena find"
            )
        return _rank_texts(index, query, by, of)
    start, hits, is_complete = monotonic(), list[dict[str, Any]](), True
    for number in reversed(index.iterations()):
        if len(hits) >= MAX_HITS or monotonic() - start > SECONDS:
            is_complete = False
            break
        hits += _search_iteration(index, number, query, by, of)
    hits = hits[:MAX_HITS]
    return {"hits": hits, "matches": list(dict.fromkeys(hit["match"] for hit in hits)), "whole": is_complete}


def _search_iteration(index: Index, number: int, query: str, by: str, of: str) -> list[dict[str, Any]]:
    name = "messages" if of == "seen" else "turns"
    columns = ["match", "turn", "seat", *FIELDS[of]]
    log = index.reader.log.table(number, flatten.list_leaves(name, columns))
    table = flatten.messages(log) if of == "seen" else flatten.turns(log, _NO_CREDIT)
    is_hit = pa.array([False] * len(table))
    for column in FIELDS[of]:
        is_hit = pc.or_(is_hit, _match_texts(table[column].combine_chunks(), query, by))
    rows = table.filter(is_hit).select(["match", "turn", "seat", *FIELDS[of]]).slice(0, MAX_HITS).to_pylist()
    return [
        {
            **{name: row[name] for name in ("match", "turn", "seat")},
            "iteration": number,
            "text": _excerpt(" | ".join(dict.fromkeys(row[part] for part in FIELDS[of] if row[part])), query),
        }
        for row in rows
    ]


def _match_texts(texts: Any, query: str, by: str) -> Any:
    if by == "text":
        return pc.match_substring(texts, query, ignore_case=True)
    if by != "regex":
        raise ConfigError(f"unknown search by '{printable(by)[:64]}' (one of: text, regex, words, meaning)")
    return match_regex(texts, query)


def _excerpt(text: str, query: str) -> str:
    """Return the text around the query's first occurrence, or its beginning if the query does not occur."""
    position = max(0, text.casefold().find(query.casefold()))
    begin = max(0, position - CONTEXT // 2)
    return ("…" if begin else "") + text[begin : begin + 2 * CONTEXT]


def _rank_texts(index: Index, query: str, by: str, of: str) -> dict[str, Any]:
    """Return the 50 best hits of `analysis.finding.find`, in the form of `search_texts`."""
    unit: Unit = "thoughts" if of == "thought" else "turns"
    table = find(load(index.reader.path), query, "words" if by == "words" else "meaning", unit, n=50)
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    hits = [
        {name: row[name] for name in ("match", "turn", "seat", "iteration", "score", "times")}
        | {"text": row["text"][: 2 * CONTEXT]}
        for row in rows
    ]
    return {"hits": hits, "matches": list(dict.fromkeys(hit["match"] for hit in hits)), "whole": True}
