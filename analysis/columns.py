"""Columns of every table: name, Arrow type and meaning. `RUN_COLUMNS` describes further columns that depend on a run.

Keys are the same in all tables: (run, match), (run, match, turn) or (run, match, seat).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from arena.store.schema import CREDIT, MATCHES


def _field(name: str, kind: Any, doc: str) -> Any:
    return pa.field(name, kind, metadata={"doc": doc})


def _log_fields(names: str, fields: Any) -> list[Any]:
    """Return the match log's fields of these space-separated names as nullable fields, with their documentation."""
    known = {field.name: field for field in fields}
    return [known[name].with_nullable(True) for name in names.split()]


def _item_fields(name: str) -> Any:
    """Return the fields of the structs in a list column of the match log, such as `turns`."""
    return MATCHES.field(name).type.value_field.type


RUN = _field("run", pa.string(), "name of the run's folder, or its path if several have that name")
MATCH = _field("match", pa.string(), "id of the match")
ITERATION = _field("iteration", pa.int32(), "iteration that played it")
TURN = _field("turn", pa.int16(), "number of the turn in the match, from 0")
_KEY = [RUN, MATCH, ITERATION]

_IMAGES = pa.list_(
    pa.struct(
        {"place": pa.int32(), "hash": pa.string(), "media": pa.string(), "width": pa.int32(), "height": pa.int32()}
    )
)

TABLES: Mapping[str, Any] = {
    "runs": pa.schema(
        [
            RUN,
            _field("path", pa.string(), "path of its folder"),
            _field("started", pa.timestamp("us", "UTC"), "start time of its first command"),
            _field("arena", pa.string(), "version of Arena at the start"),
        ]
    ),
    "iterations": pa.schema([RUN, _field("iteration", pa.int32(), "number of the iteration")]),
    "matches": pa.schema(
        [
            *_KEY,
            *_log_fields("game rules status reason attempt seed deal group parent parent_turn stage source", MATCHES),
            _field("turns", pa.int32(), "number of turns"),
            _field("started", pa.timestamp("us", "UTC"), "start time"),
            *_log_fields("seconds", MATCHES),
        ]
    ),
    "seats": pa.schema(
        [
            *_KEY,
            *_log_fields("seat role policy version trained kind", _item_fields("seats")),
            _field("payoff", pa.float64(), "payoff by the game's rules; null if the match failed"),
        ]
    ),
    "turns": pa.schema(
        [
            *_KEY,
            TURN,
            *_log_fields("game", MATCHES),
            *_log_fields("seat role policy version action public private raw valid", _item_fields("turns")),
            _field("reward", pa.float64(), "weighted sum of its rewards; plain sum before credit"),
            _field("advantage", CREDIT.field("advantage").type, "advantage assigned by credit; null before credit"),
            *_log_fields("finish tokens seconds situation source", _item_fields("turns")),
        ]
    ),
    "messages": pa.schema(
        [
            *_KEY,
            TURN,
            _field("seat", pa.string(), "seat that read it before its turn"),
            _field("place", pa.int32(), "index among that seat's new messages, from 0"),
            *_log_fields("sender text", _item_fields("turns").field("messages").type.value_field.type),
            _field("images", _IMAGES, "images of the message, in order of place; the bytes are in log/blobs"),
        ]
    ),
    "tokens": pa.schema(
        [
            *_KEY,
            *_log_fields("seat segment", _item_fields("streams")),
            _field("place", pa.int32(), "index in the stream, from 0"),
            _field("turn", pa.int16(), "turn that sampled it; null for read tokens"),
            _field("id", pa.int32(), "token id as seen or sampled"),
            _field("sampled", pa.bool_(), "whether the policy sampled it"),
            _field("logprob", pa.float32(), "log probability under the sampling distribution; null for read tokens"),
            _field("entropy", pa.float32(), "its entropy in nats; null for read tokens, or if not logged"),
            _field(
                "advantage", pa.float64(), "its own advantage or its turn's; null for read tokens and before credit"
            ),
            _field("ratio", pa.float32(), "probability after learning / before; null if not logged"),
            _field("gap", pa.float32(), "log p of the trainer before learning minus the sampler's; null if not logged"),
        ]
    ),
}
RUN_COLUMNS: Mapping[str, tuple[str, str]] = {
    "runs": ("config.…", "settings of the experiment, nested names joined by dots: `config.learn.lr`"),
    "iterations": ("…", "the iteration's metrics, nested names joined by dots: `learn.shared.kl`"),
    "matches": ("report.…", "the game's own figures: `report.deal`; null if the match has none"),
    "turns": ("reward.…", "named rewards, unweighted: `reward.deal`; 0 without one"),
}
"""Columns that depend on the run, by table: their form and meaning."""


def doc(field: Any) -> str:
    """Return the documentation of a column, an Arrow field of `TABLES`.

    >>> doc(TABLES["turns"].field("advantage"))
    'advantage assigned by credit; null before credit'
    """
    return str(field.metadata[b"doc"].decode())
