"""The match log's columns: every field, its type and what it means. A change here is a new SCHEMA_VERSION.

A file lacks the fields that came after it (`ADDED`), and may lack those in which every value is the usual one
(`OPTIONAL`): what a run does not use takes no byte of its log.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from arena.store.lines import LogError

UNREAD = ("summary", "replaced")
"""Sources of turns that no game read: those of `games.contracts`, for readers of logs that load no games."""
SCHEMA_VERSION = 4
ADDED: Mapping[str, tuple[int, Any]] = {
    "rules": (2, 0),
    "turns.situation": (3, ""),
    "seats.instruction": (4, ""),
    "deal": (4, -1),
    "group": (4, -1),
    "parent": (4, ""),
    "parent_turn": (4, -1),
    "stage": (4, ""),
    "source": (4, "played"),
    "turns.source": (4, "policy"),
    "turns.messages.images": (4, []),
    "streams.entropy": (4, []),
    "advantages": (4, []),
    "ratios": (4, []),
    "gaps": (4, []),
}
"""Fields that came after version 1: with which, and what a file without them is read as."""
IDENTITY = ("deal", "parent", "parent_turn")
"""Fields of these that older logs have in the printed id instead."""
OPTIONAL = frozenset(ADDED) - {"rules", "turns.situation", "deal"}
"""Fields that a file of the present version lacks where all of its values are the usual one."""
_VERSION_KEY = b"arena.schema_version"


class CreditRow(NamedTuple):
    """Credit of one turn of one match: its weighted reward and its advantage."""

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
        _field("value", pa.float64(), "its sum over the turn, unweighted"),
    ]
)
_IMAGE = pa.struct(
    [
        _field("place", pa.int32(), "characters of the text that stand before it"),
        _field("hash", pa.string(), "SHA-256 of its bytes in hex, and the name of its file in log/blobs"),
        _field("media", pa.string(), "its media type, such as image/png"),
        _field("width", pa.int32(), "in pixels"),
        _field("height", pa.int32(), "in pixels"),
    ]
)
_MESSAGE = pa.struct(
    [
        _field("sender", pa.string(), "a seat, or referee"),
        _field("text", pa.string(), "what was said publicly"),
        _field("images", _list(_IMAGE), "what was shown with it, in order of place"),
    ]
)
_SEAT = pa.struct(
    [
        _field("seat", pa.string(), "place in the game"),
        _field("role", pa.string(), "role file's name"),
        _field("policy", pa.string(), "named weights or scripted policy"),
        _field("version", pa.int32(), "version of the policy that played"),
        _field("trained", pa.bool_(), "whether the policy learns from this seat"),
        _field("kind", pa.string(), "model, brain, endpoint or human"),
        _field("instruction", pa.string(), "what ended its system prompt, of a population; empty if none"),
    ]
)
_PAYOFF = pa.struct(
    [
        _field("seat", pa.string(), "place in the game"),
        _field("value", pa.float64(), "its payoff by the game's own count"),
    ]
)
_TURN = pa.struct(
    [
        _field("index", pa.int16(), "number of the turn in the match, from 0"),
        _field("seat", pa.string(), "who moved"),
        _field("role", pa.string(), "the mover's role"),
        _field("policy", pa.string(), "the mover's policy"),
        _field("version", pa.int32(), "version of the policy that wrote this turn"),
        _field("messages", _list(_MESSAGE), "what was new to the mover since it last acted"),
        _field("raw", pa.string(), "everything it wrote"),
        _field("public", pa.string(), "what the others heard"),
        _field("private", pa.string(), "what nobody heard"),
        _field("action", pa.string(), "what the game read"),
        _field("valid", pa.bool_(), "whether the game could read and allow the act"),
        _field("rewards", _list(_NAMED), "named rewards until its next turn, unweighted"),
        _field("finish", pa.string(), "why it stopped writing: stop, length or script"),
        _field("tokens", pa.int32(), "tokens it wrote"),
        _field("seconds", pa.float64(), "wall time of the turn"),
        _field(
            "situation", pa.string(), "the situation it was taken in, as the game names it; empty where it does not"
        ),
        _field(
            "source",
            pa.string(),
            "who wrote it: policy, summary, replaced, patch, demonstration or voted; tool is reserved",
        ),
    ]
)
_STREAM = pa.struct(
    [
        _field("seat", pa.string(), "whose tokens"),
        _field("segment", pa.int16(), "number of the stream within the seat, from 0"),
        _field("ids", _list(pa.int32()), "token ids as seen and sampled"),
        _field("mask", _list(pa.bool_()), "true where the policy sampled the token"),
        _field("logprobs", _list(pa.float32()), "natural log under the distribution sampled from; else 0"),
        _field("turns", _list(pa.int16()), "index of the turn that sampled the token; -1 if none"),
        _field("entropy", _list(pa.float32()), "of the distribution sampled from, in nats; else 0; empty if not kept"),
    ]
)
MATCHES = _schema(
    [
        _field(
            "id",
            pa.string(),
            "iteration-deal, with -rN when played again after a failure, -bT for its branch at turn T",
        ),
        _field("iteration", pa.int32(), "iteration that played it"),
        _field("deal", pa.int32(), "number of the match among those dealt in its iteration, from 0"),
        _field("group", pa.int32(), "number of the group of matches with one seed; -1 if it is no group's"),
        _field("parent", pa.string(), "id of the match that it is a branch of; empty if none"),
        _field("parent_turn", pa.int16(), "first turn that is not its parent's; -1 if none"),
        _field("stage", pa.string(), "what it was played for, such as train; empty if not known"),
        _field("source", pa.string(), "played, branched, patched, replayed, recalled or demonstration"),
        _field("game", pa.string(), "name of the game"),
        _field("options", pa.string(), "the game's options, JSON"),
        _field("rules", pa.int16(), "version of the game's rules; 0 if not known (schema version 1)"),
        _field("seed", pa.uint64(), "seed of the game's generator"),
        _field("status", pa.string(), "finished or failed"),
        _field("reason", pa.string(), "why it failed, or was cut off before its end"),
        _field("attempt", pa.int16(), "0, or how often it was played again"),
        _field("started", pa.string(), "ISO 8601, UTC"),
        _field("seconds", pa.float64(), "wall time of the match"),
        _field("report", pa.string(), "the game's own figures, JSON"),
        _field("payoffs", _list(_PAYOFF), "empty when it failed"),
        _field("seats", _list(_SEAT), "who played"),
        _field("turns", _list(_TURN), "in the order of play"),
        _field("streams", _list(_STREAM), "token record of every model-backed seat"),
    ]
)
CREDIT = _schema(
    [
        _field("match", pa.string(), "id of the match"),
        _field("turn", pa.int16(), "index of the turn"),
        _field("seat", pa.string(), "who took it"),
        _field("reward", pa.float64(), "weighted sum of its named rewards"),
        _field("advantage", pa.float64(), "what the estimator made of it, normalised"),
        _field("advantages", _list(pa.float32()), "of each of its tokens, where they differ; empty if not kept"),
        _field("ratios", _list(pa.float32()), "p after learning / p before, by token; empty if not kept"),
        _field(
            "gaps", _list(pa.float32()), "log p of the trainer before learning less the sampler's, by token; or empty"
        ),
    ]
)


def schema_at(schema: Any, version: int) -> Any:
    """The schema as it was in an earlier version."""
    return without(schema, {name for name, (since, _) in ADDED.items() if since > version})


def without(schema: Any, names: Collection[str]) -> Any:
    """The schema less these fields, `turns.messages.images` being one."""
    return pa.schema(list(_fields_without(schema, names)), metadata=schema.metadata)


def _fields_without(fields: Iterable[Any], names: Collection[str], parent: str = "") -> Iterator[Any]:
    for field in fields:
        name = f"{parent}{field.name}"
        if name not in names:
            inner = items(field)
            yield with_items(field, _fields_without(inner, names, f"{name}.")) if inner else field


def narrowed(fields: Iterable[Any], columns: Collection[str]) -> Iterator[Any]:
    """The fields that are among the columns; a dot leads into the items of a list: `turns.seat`."""
    for field in fields:
        inner = [name.removeprefix(f"{field.name}.") for name in columns if name.startswith(f"{field.name}.")]
        if field.name in columns:
            yield field
        elif inner:
            yield with_items(field, narrowed(items(field), inner))


def paths(fields: Iterable[Any], parent: str = "") -> Iterator[str]:
    """The names of all fields, those within lists among them: `turns`, `turns.messages`, `turns.messages.images`."""
    for field in fields:
        name = f"{parent}{field.name}"
        yield name
        yield from paths(items(field), f"{name}.")


def items(field: Any) -> list[Any]:
    """The fields of what a list holds; [] of any other field."""
    kind = field.type.value_type if pa.types.is_list(field.type) else None
    return [*kind] if kind is not None and pa.types.is_struct(kind) else []


def with_items(field: Any, inner: Iterable[Any]) -> Any:
    """A list's field, of structs with these fields."""
    return field.with_type(pa.list_(field.type.value_field.with_type(pa.struct(list(inner)))))


def check_version(metadata: Mapping[bytes, bytes] | None, path: Path) -> int:
    """The schema's version; LogError when the Parquet metadata of the file at `path` is not ours or is too new."""
    version = (metadata or {}).get(_VERSION_KEY, b"")
    if not version.isdigit() or len(version) > 9:
        raise LogError(f"{path} is not a match log of Arena: it names no schema version")
    if int(version) > SCHEMA_VERSION:
        raise LogError(
            f"{path} has schema version {int(version)}, this Arena reads up to {SCHEMA_VERSION}: upgrade arena-selfplay"
        )
    return int(version)
