"""Parts of an experiment that are chosen by name: estimators, reward stages, losses and their kin.

A part is a function in a table. Its keyword-only parameters are its settings: their annotations are checked by
pydantic, and a name or setting that does not exist is an error. In YAML a part is its name, or its name with
settings: `estimator: mars`, `estimator: {rae: {decay: 0.9}}`. A function of one's own is named by its file:
`estimator: lone_winner.py:lone_winner`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, wraps
from inspect import Parameter, getdoc, isfunction, signature
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError, create_model, field_validator
from pydantic_core import InitErrorDetails, PydanticCustomError, core_schema

from agents.names import nearest
from arena.config.kinds import parts_of, plural
from arena.config.paths import anywhere
from arena.config.presets import PRESETS
from arena.errors import ConfigError

PLACE = "x-part"
"""In the JSON Schema of a model: here stands a part of this kind, or several of them by name."""
LARGEST = 1e9
"""Of any number that is set in a part."""


@dataclass(frozen=True, eq=False)
class Chosen:
    """A part by name with its settings; those not given are the function's defaults. Call it like the function."""

    kind: str
    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, *given: Any) -> Any:
        return part(self.kind, self.name)(*given, **self.settings)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Chosen) and (self.kind, self.plain()) == (other.kind, other.plain())

    def __hash__(self) -> int:
        return hash((self.kind, self.name))

    @property
    def needs(self) -> frozenset[str]:
        """What has to be measured beforehand for it or for a part inside it, such as `entropy`."""
        inner = (part.needs for part in self.parts)
        return frozenset(getattr(part(self.kind, self.name), "needs", ())).union(*inner)

    @property
    def rewards(self) -> set[str]:
        """The rewards that its settings name."""
        hints = get_type_hints(part(self.kind, self.name), include_extras=True)
        named = (_rewards_in(hints[name], value) for name, value in self.whole().settings.items())
        return {name for names in named for name in names}

    @property
    def parts(self) -> "list[Chosen]":
        """The parts among its settings."""
        return _parts_in(self.whole().settings)

    def whole(self) -> "Chosen":
        """The same with every default written out."""
        return _choose(self.kind, {self.name: dict(self.settings)})

    def plain(self) -> Any:
        """As in YAML, with every default."""
        settings = {name: _plain(value) for name, value in self.whole().settings.items()}
        if (self.kind, self.name) == ("schedule", "constant"):
            return settings["value"]
        return {self.name: settings} if settings else self.name


@dataclass(frozen=True)
class Kind:
    """Annotation of a field that holds a part: `Annotated[Chosen, Kind("estimator")]`; `optional`: or None."""

    name: str
    optional: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """A part is read by name and written with every default."""
        return core_schema.no_info_plain_validator_function(
            lambda value: None if value is None and self.optional else _choose(self.name, value),
            serialization=core_schema.plain_serializer_function_ser_schema(_plain),
        )

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        """A place for what `arena.config.schema` writes of this kind."""
        place = {PLACE: self.name}
        return {"anyOf": [place, {"type": "null"}]} if self.optional else place


@dataclass(frozen=True)
class RewardName:
    """Annotation of a setting, or of what it holds, that names a reward: one of the game's, or of a stage's."""


@dataclass(frozen=True)
class Kinds:
    """Annotation of a field that holds several parts by name: `Annotated[dict[str, Chosen], Kinds("regulariser")]`."""

    name: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Each entry is a part's name with its settings; written with every default."""

        def read(value: Any) -> dict[str, Chosen]:
            if not isinstance(value, Mapping):
                raise PydanticCustomError("part_error", f"a mapping of {plural(self.name)} by name belongs here")
            return {n: v if isinstance(v, Chosen) else _choose(self.name, {n: v}) for n, v in value.items()}

        def write(value: dict[str, Chosen]) -> dict[str, Any]:
            return {n: {k: _plain(v) for k, v in chosen.whole().settings.items()} for n, chosen in value.items()}

        return core_schema.no_info_plain_validator_function(
            read, serialization=core_schema.plain_serializer_function_ser_schema(write)
        )

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        """A place for what `arena.config.schema` writes of all parts of this kind."""
        return {PLACE: plural(self.name)}


def choose(kind: str, name: str, /, **settings: Any) -> Chosen:
    """A part by name, its settings checked; ValueError for a name or setting that does not exist or fit."""
    return _choose(kind, {name: settings})


def part(kind: str, name: str) -> Callable[..., Any]:
    """The part of that name: one of ours, or `path/to/file.py:function`. ValueError where there is none."""
    from games.adapters.loading import file_of

    if path := file_of(name):
        return _from_file(path, name.rpartition(":")[2])
    known = parts_of(kind)
    if name not in known:
        hint = elsewhere(name, kind) or nearest(name, [*known, *(PRESETS if kind == "loss" else ())])
        raise ValueError(f"unknown {kind} '{name}'{hint} (arena list {plural(kind)})")
    return known[name]


def _from_file(path: Path, name: str) -> Callable[..., Any]:
    """A function of somebody's file, which says in one line what went wrong in it."""
    from games.adapters.loading import member, told

    function = member(path, name, isfunction, "function", "functions")

    @wraps(function)
    def guarded(*given: Any, **settings: Any) -> Any:
        try:
            return function(*given, **settings)
        except Exception as error:
            raise ConfigError(f"{path}:{name} failed: {told(error, path)}") from error

    return guarded


def needs(*measures: str) -> Callable[[Any], Any]:
    """Mark a part with what it finds in `batch.measures`; see `arena.credit.measures` for what there is."""

    def mark(function: Any) -> Any:
        function.needs = measures
        return function

    return mark


def gives(*measures: str) -> Callable[[Any], Any]:
    """Mark a critic with the measures that it takes."""

    def mark(function: Any) -> Any:
        function.gives = frozenset(measures)
        return function

    return mark


def given_by_critics() -> dict[str, frozenset[str]]:
    """By critic, the values that it gives."""
    return {name: getattr(critic, "gives", frozenset()) for name, critic in parts_of("critic").items()}


def described(kind: str) -> list[dict[str, str]]:
    """Each part of a kind: its name, its settings with their defaults, and its first line of documentation."""
    return [
        {kind: name, "settings": ", ".join(_told(n, p) for n, p in _settings(function).items()) or "–", "what": line}
        for name, function in parts_of(kind).items()
        for line in [(getdoc(function) or "").split("\n", 1)[0]]
    ]


def _choose(kind: str, value: Any) -> Chosen:
    if isinstance(value, Chosen):
        return value
    if kind == "schedule" and isinstance(value, int | float) and not isinstance(value, bool):
        name, value = "constant", {"constant": {"value": value}}
    if isinstance(value, Mapping) and len(value) > 1:
        named = " and ".join(map(str, value))
        raise PydanticCustomError("part_error", f"one {kind} belongs here, not {named}")
    name, given = next(iter(value.items()), ("", {})) if isinstance(value, Mapping) else (value, {})
    if not isinstance(name, str) or not name:
        raise PydanticCustomError("part_error", f"a name is missing: one of {', '.join(parts_of(kind))}")
    name = anywhere(name)
    try:
        part(kind, name)  # also where its settings are known: whether the file may be read is asked anew
        settings = settings_model(kind, name).model_validate({} if given is None else given)
    except ValidationError as error:
        raise _renamed(error, kind, name) from None
    except ValueError as error:
        raise PydanticCustomError("part_error", str(error).replace("{", "{{").replace("}", "}}")) from None
    return Chosen(kind, name, {field: getattr(settings, field) for field in type(settings).model_fields})


FIELDS = {
    "estimator": "credit.estimator", "stage": "credit.stages", "transform": "credit.transforms",
    "selector": "credit.select", "critic": "credit.critic", "loss": "learn.loss",
    "clip": "learn.loss.policy_gradient.clip", "correction": "learn.loss.policy_gradient.correction",
    "aggregate": "learn.aggregate", "regulariser": "learn.regularisers", "replay": "learn.replay",
}  # fmt: skip
"""Where a part of a kind is named in an experiment."""


def elsewhere(name: str, kind: str) -> str:
    """What to add to an error: where in an experiment this name belongs, "" where nowhere."""
    places = [f"{other} ({FIELDS[other]})" for other in FIELDS if other != kind and name in parts_of(other)]
    places += ["preset (learn.loss)"] if kind != "loss" and name in PRESETS else []
    return (
        ": it is " + " or ".join(f"{'an' if place[0] in 'ae' else 'a'} {place}" for place in places) if places else ""
    )


@cache
def settings_model(kind: str, name: str) -> type[BaseModel]:
    """The settings of a part as a strict model."""
    function = part(kind, name)
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise ValueError(f"{kind} {name}: its annotations cannot be read: {error}") from None
    fields: dict[str, Any] = {
        setting: (hints[setting], ... if parameter.default is Parameter.empty else parameter.default)
        for setting, parameter in _settings(function).items()
    }
    return create_model(f"{name} settings", __base__=_Settings, **fields)


class _Settings(BaseModel):
    """Base of all parts' settings."""

    model_config = ConfigDict(strict=True, extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _within_reach(cls, value: Any) -> Any:
        """Numbers with which sums and products stay finite, in float32 too."""
        for number in _numbers_in(value):
            if abs(number) > LARGEST:
                raise ValueError(f"a number between {-LARGEST:g} and {LARGEST:g} belongs here")
        return value


def _numbers_in(value: Any) -> Iterator[float]:
    if isinstance(value, int | float):
        yield value
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for item in inner:
        yield from _numbers_in(item)


def _settings(function: Callable[..., Any]) -> dict[str, Parameter]:
    return {n: p for n, p in signature(function).parameters.items() if p.kind is Parameter.KEYWORD_ONLY}


def _told(name: str, parameter: Parameter) -> str:
    if parameter.default is Parameter.empty:
        return f"{name} (required)"
    return f"{name}={_plain(parameter.default)}"


def _renamed(error: ValidationError, kind: str, name: str) -> ValidationError:
    """The same errors below the part's name, with the nearest setting for one that does not exist."""
    known = list(_settings(part(kind, name)))
    errors: list[InitErrorDetails] = []
    for fault in error.errors(include_url=False):
        what: Any = fault["type"]
        if what == "extra_forbidden" and len(fault["loc"]) == 1:
            listed = f" (it has: {', '.join(known)})" if known else " (it has none)"
            message = f"unknown setting of {kind} {name}{nearest(str(fault['loc'][0]), known) or listed}"
            what = PydanticCustomError("part_error", message.replace("{", "{{").replace("}", "}}"))
        elif what in ("part_error", "value_error"):
            what = PydanticCustomError("part_error", fault["msg"].replace("{", "{{").replace("}", "}}"))
        details: InitErrorDetails = {"type": what, "loc": (name, *fault["loc"]), "input": fault["input"]}
        if "ctx" in fault and isinstance(what, str):
            details["ctx"] = fault["ctx"]
        errors.append(details)
    return ValidationError.from_exception_data(f"{kind} {name}", errors)


def _parts_in(value: Any) -> list[Chosen]:
    """Every part inside a value of settings."""
    if isinstance(value, Chosen):
        return [value]
    if isinstance(value, BaseModel):
        value = dict(value)
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [part for item in inner for part in _parts_in(item)]


def _rewards_in(hint: Any, value: Any) -> Iterator[str]:
    """Every name of a reward inside a value of settings that is annotated so."""
    kind, arguments = get_origin(hint), get_args(hint)
    if kind is Annotated:
        if isinstance(value, str) and any(isinstance(mark, RewardName) for mark in arguments[1:]):
            yield value
        yield from _rewards_in(arguments[0], value)
    elif kind in (Union, UnionType):
        for arm in arguments:
            yield from _rewards_in(arm, value)
    elif kind in (list, tuple) and isinstance(value, list | tuple):
        for item in value:
            yield from _rewards_in(arguments[0], item)
    elif kind is dict and isinstance(value, Mapping):
        for side, items in zip(arguments, ([*value.keys()], [*value.values()]), strict=True):
            for item in items:
                yield from _rewards_in(side, item)


def _plain(value: Any) -> Any:
    if isinstance(value, Chosen):
        return value.plain()
    if isinstance(value, BaseModel):
        value = dict(value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
