"""Search a run's texts: plain text or an expression over what was said, thought and seen; words and meaning as `find`.

Text and expressions go through the log iteration by iteration, the newest first, so that a run of any length takes
little memory, and end when there is enough to show or the time is up.
"""

from __future__ import annotations

from time import monotonic
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from analysis import flatten
from analysis.view.index import Index
from arena.errors import ConfigError
from arena.plain import printable

PARTS = {"said": ("action", "public"), "thought": ("private",), "wrote": ("raw",), "seen": ("text",)}
"""Where one looks, and in which columns of `turns`, or of `messages`, that is."""
MOST, SECONDS, AROUND, RANKED = 500, 10.0, 160, 200_000


def searched(index: Index, query: str, by: str = "text", of: str = "said") -> dict[str, Any]:
    """Turns in which the query stands: `hits` with match, turn, seat and the text around; `matches`, their ids.

    `whole` tells whether all of the run was looked through. ConfigError for an expression that is none.
    """
    if not query.strip():
        raise ConfigError("there is nothing to look for: write a few letters")
    if of not in PARTS:
        raise ConfigError(f"'{printable(of)[:64]}': look in one of {', '.join(PARTS)}")
    if by in ("words", "meaning"):
        turns = pc.sum(index.table()["turns"]).as_py() or 0
        if turns > RANKED:
            raise ConfigError(
                f"words and meaning go through up to {RANKED} turns here, not {turns}: take text, or arena find"
            )
        return _ranked(index, query, by, of)
    begun, hits, whole = monotonic(), list[dict[str, Any]](), True
    for number in reversed(index.iterations()):
        if len(hits) >= MOST or monotonic() - begun > SECONDS:
            whole = False
            break
        hits += _in(index, number, query, by, of)
    hits = hits[:MOST]
    return {"hits": hits, "matches": list(dict.fromkeys(hit["match"] for hit in hits)), "whole": whole}


def _in(index: Index, number: int, query: str, by: str, of: str) -> list[dict[str, Any]]:
    name = "messages" if of == "seen" else "turns"
    columns = ["match", "turn", "seat", *PARTS[of]]
    log = index.reader.log.table(number, flatten.leaves(name, columns))
    table = flatten.messages(log) if of == "seen" else flatten.turns(log, _NO_CREDIT)
    hit = pa.array([False] * len(table))
    for column in PARTS[of]:
        hit = pc.or_(hit, _matching(table[column].combine_chunks(), query, by))
    found = table.filter(hit).select(["match", "turn", "seat", *PARTS[of]]).slice(0, MOST).to_pylist()
    return [
        {
            **{name: row[name] for name in ("match", "turn", "seat")},
            "iteration": number,
            "text": _around(" | ".join(dict.fromkeys(row[part] for part in PARTS[of] if row[part])), query),
        }
        for row in found
    ]


_NO_CREDIT = pa.table(
    {"match": pa.array([], pa.string()), "turn": pa.array([], pa.int16()), "advantage": pa.array([], pa.float64())}
)


def _matching(texts: Any, query: str, by: str) -> Any:
    if by == "text":
        return pc.match_substring(texts, query, ignore_case=True)
    if by != "regex":
        raise ConfigError(f"nothing is found by '{printable(by)[:64]}' (one of: text, regex, words, meaning)")
    try:
        return pc.match_substring_regex(texts, query)
    except pa.ArrowInvalid as error:
        reason = printable(str(error)).removeprefix("Invalid regular expression: ")
        raise ConfigError(f"'{printable(query)[:64]}' is no regular expression (RE2): {reason}") from None


def _around(whole: str, query: str) -> str:
    """The text near the first place of the query."""
    place = max(0, whole.casefold().find(query.casefold()))
    begin = max(0, place - AROUND // 2)
    return ("…" if begin else "") + whole[begin : begin + 2 * AROUND]


def _ranked(index: Index, query: str, by: str, of: str) -> dict[str, Any]:
    """The best texts, as `arena find` ranks them."""
    from analysis.finding import find
    from analysis.frames import load

    table = find(load(index.reader.path), query, "words" if by == "words" else "meaning", _UNITS.get(of, "turns"), n=50)
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    hits = [
        {name: row[name] for name in ("match", "turn", "seat", "iteration", "score", "times")}
        | {"text": row["text"][: 2 * AROUND]}
        for row in rows
    ]
    return {"hits": hits, "matches": list(dict.fromkeys(hit["match"] for hit in hits)), "whole": True}


_UNITS: Any = {"thought": "thoughts"}
