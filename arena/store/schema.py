"""The match log's columns: the name, type and meaning of every field.

A file lacks a column of `DEFAULTS` if all its values would be the default. Increase SCHEMA_VERSION with every change
except a new column of this kind: older files stay readable.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from arena.store.lines import LogError

UNREAD = ("summary", "replaced", "request")
"""Sources of turns that no game read, as in `games.contracts`, which readers of logs do not load."""
SCHEMA_VERSION = 4
DEFAULTS: Mapping[str, Any] = {
    "seats.instruction": "",
    "group": -1,
    "parent": "",
    "parent_turn": -1,
    "stage": "",
    "source": "played",
    "turns.source": "policy",
    "turns.messages.images": [],
    "streams.entropy": [],
    "streams.media": [],
    "advantages": [],
    "ratios": [],
    "gaps": [],
}
"""Default values of the optional fields."""
_VERSION_KEY = b"arena.schema_version"


class CreditRow(NamedTuple):
    """Weighted reward and advantage of one turn of one match, a row of the credit file."""

    match: str
    turn: int
    seat: str
    reward: float
    advantage: float


def _field(name: str, kind: Any, doc: str) -> Any:
    return pa.field(name, kind, nullable=False, metadata={"doc": doc})


def _list(kind: Any) -> Any:
    return pa.list_(pa.field("item", kind, nullable=False))


def _schema(fields: Iterable[Any]) -> Any:
    return pa.schema(list(fields), metadata={_VERSION_KEY: str(SCHEMA_VERSION)})


_NAMED = pa.struct(
    [
        _field("name", pa.string(), "name of the reward part"),
        _field("value", pa.float64(), "its unweighted sum over the turn"),
    ]
)
_IMAGE = pa.struct(
    [
        _field("place", pa.int32(), "characters of text before the image"),
        _field("hash", pa.string(), "SHA-256 of the bytes in hex, which names the file in log/blobs"),
        _field("media", pa.string(), "media type, such as image/png"),
        _field("width", pa.int32(), "width in pixels"),
        _field("height", pa.int32(), "height in pixels"),
    ]
)
_MESSAGE = pa.struct(
    [
        _field("sender", pa.string(), "seat, or referee"),
        _field("text", pa.string(), "text of the message"),
        _field("images", _list(_IMAGE), "images, in order of place"),
    ]
)
_SEAT = pa.struct(
    [
        _field("seat", pa.string(), "seat in the game"),
        _field("role", pa.string(), "name of the role file"),
        _field("policy", pa.string(), "named weights or scripted policy"),
        _field("version", pa.int32(), "version of the policy"),
        _field("trained", pa.bool_(), "true if the policy learns from this seat"),
        _field("kind", pa.string(), "model, brain, endpoint or human"),
        _field("instruction", pa.string(), "instruction at the end of the system prompt; empty if none"),
    ]
)
_SPAN = pa.struct(
    [
        _field("start", pa.int32(), "index of the image's first token"),
        _field("length", pa.int32(), "number of tokens that hold the image"),
        _field("hash", pa.string(), "SHA-256 of the bytes in hex, which names the file in log/blobs"),
        _field("height", pa.int32(), "height in pixels to which the model scales it; 0 if it scales all alike"),
        _field("width", pa.int32(), "width, likewise"),
    ]
)
_PAYOFF = pa.struct(
    [
        _field("seat", pa.string(), "seat in the game"),
        _field("value", pa.float64(), "payoff by the game's rules"),
    ]
)
_TURN = pa.struct(
    [
        _field("index", pa.int16(), "number of the turn in the match, from 0"),
        _field("seat", pa.string(), "seat that moved"),
        _field("role", pa.string(), "role of the seat"),
        _field("policy", pa.string(), "policy of the seat"),
        _field("version", pa.int32(), "version of the policy that wrote the turn"),
        _field("messages", _list(_MESSAGE), "messages new to the seat since its last turn"),
        _field("raw", pa.string(), "whole reply"),
        _field("public", pa.string(), "speech that the other seats see"),
        _field("private", pa.string(), "thought that no other seat sees"),
        _field("action", pa.string(), "act passed to the game"),
        _field("valid", pa.bool_(), "true if the game could read the act and allows it"),
        _field("rewards", _list(_NAMED), "unweighted named rewards until the seat's next turn"),
        _field("finish", pa.string(), "why the reply ended: stop, length or script"),
        _field("tokens", pa.int32(), "tokens of the reply"),
        _field("seconds", pa.float64(), "wall time of the turn"),
        _field("situation", pa.string(), "the game's name for the situation of the turn; empty if it has none"),
        _field(
            "source",
            pa.string(),
            "author of the turn: policy, summary, replaced, patch, demonstration or voted; tool is reserved",
        ),
    ]
)
_STREAM = pa.struct(
    [
        _field("seat", pa.string(), "seat of the tokens"),
        _field("segment", pa.int16(), "number of the stream within the seat, from 0"),
        _field("ids", _list(pa.int32()), "token ids as read and sampled"),
        _field("mask", _list(pa.bool_()), "true if the policy sampled the token"),
        _field("logprobs", _list(pa.float32()), "natural log under the sampling distribution; else 0"),
        _field("turns", _list(pa.int16()), "index of the turn that sampled the token; -1 if none"),
        _field("entropy", _list(pa.float32()), "entropy of the sampling distribution in nats; else 0; empty if off"),
        _field("media", _list(_SPAN), "images among the tokens, in order; empty if none"),
    ]
)
MATCHES = _schema(
    [
        _field(
            "id", pa.string(), "iteration-deal, with -rN for repetition N after failures, -bT for a branch at turn T"
        ),
        _field("iteration", pa.int32(), "iteration of the match"),
        _field("deal", pa.int32(), "number of the match among the deals of its iteration, from 0"),
        _field("group", pa.int32(), "number of the group of matches with one seed; -1 if none"),
        _field("parent", pa.string(), "id of the match that this one branches from; empty if none"),
        _field("parent_turn", pa.int16(), "first turn that differs from the parent's; -1 if none"),
        _field("stage", pa.string(), "purpose of the match, such as train; empty if unknown"),
        _field("source", pa.string(), "played, branched, patched, replayed, recalled or demonstration"),
        _field("game", pa.string(), "name of the game"),
        _field("options", pa.string(), "options of the game as JSON"),
        _field("rules", pa.int16(), "version of the game's rules; 0 if unknown"),
        _field("seed", pa.uint64(), "seed of the game's generator"),
        _field("status", pa.string(), "finished or failed"),
        _field("reason", pa.string(), "why it failed or was cut off"),
        _field("attempt", pa.int16(), "number of repetitions after failures"),
        _field("started", pa.string(), "ISO 8601, UTC"),
        _field("seconds", pa.float64(), "wall time of the match"),
        _field("report", pa.string(), "the game's own figures as JSON"),
        _field("payoffs", _list(_PAYOFF), "payoffs; empty if it failed"),
        _field("seats", _list(_SEAT), "players"),
        _field("turns", _list(_TURN), "turns in order"),
        _field("streams", _list(_STREAM), "token record of every seat with a model"),
    ]
)
CREDIT = _schema(
    [
        _field("match", pa.string(), "id of the match"),
        _field("turn", pa.int16(), "index of the turn"),
        _field("seat", pa.string(), "seat that moved"),
        _field("reward", pa.float64(), "weighted sum of the turn's named rewards"),
        _field("advantage", pa.float64(), "normalised advantage"),
        _field("advantages", _list(pa.float32()), "advantage of each token, if they differ; else empty"),
        _field("ratios", _list(pa.float32()), "p after learning / p before, by token; empty if off"),
        _field("gaps", _list(pa.float32()), "trainer's log p before learning less the sampler's, by token; or empty"),
    ]
)


def drop_fields(schema: Any, names: Collection[str]) -> Any:
    """Return the Arrow schema without the fields `names`. Dotted names lead into lists: `turns.messages.images`."""
    return pa.schema(list(_drop_fields(schema, names)), metadata=schema.metadata)


def _drop_fields(fields: Iterable[Any], names: Collection[str], parent: str = "") -> Iterator[Any]:
    for field in fields:
        name = f"{parent}{field.name}"
        if name not in names:
            inner = item_fields(field)
            yield _replace_items(field, _drop_fields(inner, names, f"{name}.")) if inner else field


def select_fields(fields: Iterable[Any], columns: Collection[str]) -> Iterator[Any]:
    """Yield the Arrow fields that `columns` names. A dotted name keeps one field of a list's items: `turns.seat`."""
    for field in fields:
        inner = [name.removeprefix(f"{field.name}.") for name in columns if name.startswith(f"{field.name}.")]
        if field.name in columns:
            yield field
        elif inner:
            yield _replace_items(field, select_fields(item_fields(field), inner))


def field_paths(fields: Iterable[Any], parent: str = "") -> Iterator[str]:
    """Yield the dotted names of all fields, with those of lists' items: `turns`, `turns.messages`, `turns.index`."""
    for field in fields:
        name = f"{parent}{field.name}"
        yield name
        yield from field_paths(item_fields(field), f"{name}.")


def item_fields(field: Any) -> list[Any]:
    """Return the fields of the structs in a list field; [] for any other field."""
    kind = field.type.value_type if pa.types.is_list(field.type) else None
    return [*kind] if kind is not None and pa.types.is_struct(kind) else []


def _replace_items(field: Any, inner: Iterable[Any]) -> Any:
    return field.with_type(pa.list_(field.type.value_field.with_type(pa.struct(list(inner)))))


def find_absent_fields(schema: Any, columns: Any, metadata: Mapping[bytes, bytes] | None, path: Path) -> set[str]:
    """Return the dotted names of the optional fields of `schema` that the Parquet file at `path` lacks.

    `columns` and `metadata` are the file's own. Raises LogError if it is not a match log, or has another schema version
    or other columns. No checksum covers a Parquet file's footer, which names the columns.
    """
    version = (metadata or {}).get(_VERSION_KEY, b"")
    if not version.isdigit() or len(version) > 9:
        raise LogError(f"{path} is not a match log of Arena: it names no schema version")
    if int(version) != SCHEMA_VERSION:
        raise LogError(f"{path} has {explain_version(int(version))}")
    known = {*field_paths(columns)}
    absent = {name for name in field_paths(schema) if name in DEFAULTS and name not in known}
    if not columns.equals(drop_fields(schema, absent)):
        raise LogError(f"{path} cannot be read: its columns are not those of a match log")
    return absent


def explain_version(version: object) -> str:
    """Return the part of an error message after a log's name that explains an unsupported schema version."""
    return (
        f"schema version {str(version)[:20]}, and this Arena reads version {SCHEMA_VERSION}: "
        "use the Arena that wrote it, or play the run again"
    )
