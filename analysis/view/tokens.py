"""Tokens of a match that each seat's model read or sampled, with their logged figures."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from analysis import flatten
from analysis.columns import TABLES
from analysis.view.index import Index
from analysis.view.services import Decode
from arena.errors import StoreError
from arena.store.arrow import complete_table, matches_to_table
from arena.store.reader import parse_iteration
from arena.store.schema import MATCHES

FIGURES = ("logprob", "entropy", "advantage", "ratio", "gap")
MAX_TOKENS = 20_000
"""Maximum number of tokens of a match."""


def read_tokens(index: Index, id: str, decode: Decode | None) -> dict[str, Any]:
    """Return a match's tokens as `streams`, one per seat and segment, and the number `left_out` beyond `MAX_TOKENS`.

    Each stream has lists of equal length: `id`, `text` (empty without tokenizer), `sampled`, `turn`, and the figures
    that the log has, which `kept` names. Raises StoreError for an unknown match.
    """
    number = parse_iteration(id)
    if number is None or number not in index.iterations():
        raise StoreError("this run does not have this match")
    columns = ["policy", *(name for name in TABLES["tokens"].names)]
    if (row := index.find_open_match(number, id)) is not None:
        log = complete_table(matches_to_table([row]), MATCHES, flatten.list_leaves("tokens", columns))
    else:
        log = index.reader.log.table(number, flatten.list_leaves("tokens", columns), [id])
    figures = ["match", "turn", "advantage", *flatten.TOKEN_CREDIT.values()]
    credit = index.reader.log.credit_table(number, figures, [id])
    table = flatten.add_token_credit(flatten.tokens(log), credit, log["id"])
    first_tokens = table.slice(0, MAX_TOKENS)
    return {
        "kept": [name for name in FIGURES if first_tokens[name].null_count < len(first_tokens)],
        "left_out": len(table) - len(first_tokens),
        "streams": [_make_stream(first_tokens.filter(mask), index, decode) for mask in _stream_masks(first_tokens)],
    }


def _stream_masks(table: Any) -> list[Any]:
    """Return an Arrow mask of rows for each stream (a seat's segment), in order."""
    pairs = dict.fromkeys(zip(table["seat"].to_pylist(), table["segment"].to_pylist(), strict=True))
    return [
        pc.and_(pc.equal(table["seat"], seat), pc.equal(table["segment"], pa.scalar(segment, pa.int16())))
        for seat, segment in pairs
    ]


def _make_stream(tokens: Any, index: Index, decode: Decode | None) -> dict[str, Any]:
    ids = tokens["id"].to_pylist()
    policy = tokens["policy"][0].as_py()
    texts = list(decode(index.reader.path, policy, ids)) if decode and policy else []
    return {
        "seat": tokens["seat"][0].as_py(),
        "segment": tokens["segment"][0].as_py(),
        "id": ids,
        "text": texts if len(texts) == len(ids) else [],
        "sampled": tokens["sampled"].to_pylist(),
        "turn": tokens["turn"].to_pylist(),
        **{name: tokens[name].to_pylist() for name in FIGURES if tokens[name].null_count < len(tokens)},
    }
