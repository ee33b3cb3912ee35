"""Parts of an experiment that are chosen by name: estimators, reward stages, losses and others.

A part is a function in a table. Its keyword-only parameters are its settings. Pydantic validates them by their
annotations. An unknown name or setting is an error, unless the function takes `**settings`. In YAML, a part is its
name, or its name with settings: `estimator: mars`, `estimator: {rae: {decay: 0.9}}`. A user's own function is named by
its file: `estimator: lone_winner.py:lone_winner`. A kind is a name with its table, defined next to the functions.

Only the annotations of settings are evaluated, so a part may take tensors of a library that is not loaded yet.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, wraps
from inspect import Parameter, getdoc, isfunction, signature, unwrap
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError, create_model, field_validator
from pydantic_core import InitErrorDetails, PydanticCustomError, core_schema

from arena.errors import ConfigError
from arena.parts.paths import PathAnnotation, absolute_name, anchor_paths
from games.names import nearest

PLACE = "x-part"
"""Key that marks a field with a part, or several by name, in a model's JSON Schema. Its value is the kind."""
LARGEST = 1e9
"""Maximum absolute value of numbers in a part's settings."""


@dataclass(frozen=True)
class Kind(PathAnnotation):
    """Kind of parts, also the annotation of a field that holds one: `Annotated[PartConfig, Kind("clip", CLIPS)]`."""

    name: str
    table: Mapping[str, Callable[..., Any]] = field(compare=False, repr=False)
    """All parts of the kind by name. It may be filled later, because some parts contain others."""
    number: str | None = field(default=None, compare=False)
    """Name of the part that a bare number stands for; the number is its setting `value`."""
    optional: bool = field(default=False, compare=False)
    """True if the field may hold None instead."""

    @property
    def plural(self) -> str:
        """Plural of the kind's name, as in `arena list`."""
        return f"{self.name}es" if self.name.endswith("s") else f"{self.name}s"

    def or_none(self) -> "Kind":
        """Return a copy of this kind as the annotation of a field that may also hold None."""
        return replace(self, optional=True)

    def anchor_value(self, value: Any) -> Any:
        """Return a part in its YAML form, with absolute paths in its name and settings."""
        if isinstance(value, str):
            return absolute_name(value)
        return Kinds(self).anchor_value(value)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Return a pydantic schema that parses a part by name, and serialises it with all default settings."""
        return core_schema.no_info_plain_validator_function(
            lambda value: None if value is None and self.optional else _choose(self, value),
            serialization=core_schema.plain_serializer_function_ser_schema(_to_plain),
        )

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        """Return a placeholder JSON Schema, which `arena.config.schema` replaces by this kind's schema."""
        place = {PLACE: self.name}
        return {"anyOf": [place, {"type": "null"}]} if self.optional else place


@dataclass(frozen=True)
class Kinds(PathAnnotation):
    """Annotation of a field that holds parts by name: `Annotated[dict[str, PartConfig], Kinds(REGULARISER)]`."""

    kind: Kind

    def anchor_value(self, value: Any) -> Any:
        """Return parts in their YAML form, with absolute paths in their names and settings."""
        if not isinstance(value, Mapping):
            return value
        return {absolute_name(name): _anchor_settings(self.kind, name, settings) for name, settings in value.items()}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Return a pydantic schema that parses a mapping of part names to settings, and serialises all defaults."""

        def read(value: Any) -> dict[str, PartConfig]:
            if not isinstance(value, Mapping):
                raise PydanticCustomError("part_error", f"expected a mapping of {self.kind.plural} by name")
            return {n: v if isinstance(v, PartConfig) else _choose(self.kind, {n: v}) for n, v in value.items()}

        def write(value: dict[str, PartConfig]) -> dict[str, Any]:
            return {
                n: {k: _to_plain(v) for k, v in config.with_defaults().settings.items()} for n, config in value.items()
            }

        return core_schema.no_info_plain_validator_function(
            read, serialization=core_schema.plain_serializer_function_ser_schema(write)
        )

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        """Return a placeholder JSON Schema, which `arena.config.schema` replaces by that of all parts of this kind."""
        return {PLACE: self.kind.plural}


@dataclass(frozen=True, eq=False)
class PartConfig:
    """Name and settings of a part; missing settings are the function's defaults. Call it to call the part."""

    kind: Kind
    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, *arguments: Any) -> Any:
        return part(self.kind, self.name)(*arguments, **self.settings)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartConfig) and (self.kind, self.to_plain()) == (other.kind, other.to_plain())

    def __hash__(self) -> int:
        return hash((self.kind, self.name))

    @property
    def needs(self) -> frozenset[str]:
        """Names of the measures, such as `entropy`, that this part or a part in its settings reads from the batch."""
        declared = getattr(part(self.kind, self.name), "needs", ())
        own = declared(**self.with_defaults().settings) if callable(declared) else declared
        return frozenset(own).union(*(inner.needs for inner in self.parts))

    @property
    def rewards(self) -> set[str]:
        """Names of rewards in the settings that are annotated with `RewardName`."""
        return self._find_marked_names(RewardName)

    @property
    def policies(self) -> set[str]:
        """Names of policies and endpoints in the settings that are annotated with `AskedPolicy`."""
        return self._find_marked_names(AskedPolicy)

    def _find_marked_names(self, mark: type) -> set[str]:
        hints = _evaluate_hints(part(self.kind, self.name))
        marked_names = (
            _find_marked(hints.get(name), value, mark) for name, value in self.with_defaults().settings.items()
        )
        return {name for names in marked_names for name in names}

    @property
    def parts(self) -> "list[PartConfig]":
        """The parts in its settings, without the parts inside these parts."""
        return _find_parts(self.with_defaults().settings)

    def with_defaults(self) -> "PartConfig":
        """Return a copy with all default settings filled in."""
        return _choose(self.kind, {self.name: dict(self.settings)})

    def to_plain(self) -> Any:
        """Return the part as plain YAML values with every default: a name, {name: settings}, or a bare number."""
        settings = {name: _to_plain(value) for name, value in self.with_defaults().settings.items()}
        if self.name == self.kind.number:
            return settings["value"]
        return {self.name: settings} if settings else self.name


@dataclass(frozen=True)
class RewardName:
    """Annotation of a setting, or of its items, whose value is the name of a game's or stage's reward."""


@dataclass(frozen=True)
class AskedPolicy:
    """Annotation of a setting, or of its items, whose value is a policy or endpoint that the part asks."""


def choose(kind: Kind, name: str, /, **settings: Any) -> PartConfig:
    """Return a part by name with validated settings. Raises ValueError for an unknown name or an invalid setting."""
    return _choose(kind, {name: settings})


def part(kind: Kind, name: str) -> Callable[..., Any]:
    """Return a part's function by name: a built-in, or `path/to/file.py:function`. Raises ValueError if unknown."""
    from games.adapters.loading import file_of

    if path := file_of(name):
        return _load_from_file(path, name.rpartition(":")[2])
    if name not in kind.table:
        raise make_unknown_error(name, kind.name, kind.plural, nearest(name, kind.table))
    return kind.table[name]


def accepts_any_setting(kind: Kind, name: str) -> bool:
    """Return True if a part accepts any setting (`**settings`). Raises ValueError for an unknown part."""
    return any(p.kind is Parameter.VAR_KEYWORD for p in signature(part(kind, name)).parameters.values())


def make_unknown_error(name: str, kind: str, plural: str, hint: str) -> PydanticCustomError:
    """Return the validation error for an unknown name of a kind, with name, kind, plural and hint as its context."""
    message = "unknown {kind} '{name}'{hint} (arena list {plural})"
    return PydanticCustomError("part_error", message, {"name": name, "kind": kind, "plural": plural, "hint": hint})


def _load_from_file(path: Path, name: str) -> Callable[..., Any]:
    """Load a function from a user's file and wrap it, so that its exceptions become ConfigErrors of one line."""
    from games.adapters.loading import error_line, import_member

    function = import_member(path, name, isfunction, "function", "functions")

    @wraps(function)
    def guard(*arguments: Any, **settings: Any) -> Any:
        try:
            return function(*arguments, **settings)
        except Exception as error:
            raise ConfigError(f"{path}:{name} failed: {error_line(error, path)}") from error

    return guard


def needs(*measures: str) -> Callable[[Any], Any]:
    """Return a decorator that marks a part with the measures (`arena.credit.measures`) that it reads from the batch."""

    def mark(function: Any) -> Any:
        function.needs = measures
        return function

    return mark


def gives(*measures: str) -> Callable[[Any], Any]:
    """Return a decorator that marks a critic with the names of the measures that it computes."""

    def mark(function: Any) -> Any:
        function.gives = frozenset(measures)
        return function

    return mark


def describe_parts(kind: Kind) -> list[dict[str, str]]:
    """Return a row per part of a kind: name, settings with defaults, and first line of the docstring."""
    return [
        {kind.name: name, "settings": settings or "–", "description": (getdoc(function) or "").split("\n", 1)[0]}
        for name, function in kind.table.items()
        for settings in [", ".join(_format_settings(kind, name))]
    ]


def _choose(kind: Kind, value: Any) -> PartConfig:
    if isinstance(value, PartConfig):
        return value
    if kind.number and isinstance(value, int | float) and not isinstance(value, bool):
        value = {kind.number: {"value": value}}
    if isinstance(value, Mapping) and len(value) > 1:
        names = " and ".join(map(str, value))
        raise PydanticCustomError("part_error", f"expected one {kind.name}, not {names}")
    name, arguments = next(iter(value.items()), ("", {})) if isinstance(value, Mapping) else (value, {})
    if not isinstance(name, str) or not name:
        raise PydanticCustomError("part_error", f"a name is missing: one of {', '.join(kind.table)}")
    name = absolute_name(name)
    try:
        part(kind, name)  # even if its settings are cached: checks again if the file is trusted
        settings = settings_model(kind, name).model_validate({} if arguments is None else arguments)
    except ValidationError as error:
        raise _relocate_errors(error, kind, name) from None
    except PydanticCustomError:
        raise
    except ValueError as error:
        raise PydanticCustomError("part_error", str(error).replace("{", "{{").replace("}", "}}")) from None
    return PartConfig(kind, name, dict(settings))


@cache
def settings_model(kind: Kind, name: str) -> type[BaseModel]:
    """Return a strict model of a part's settings, its keyword-only parameters. Raises ValueError if that fails."""
    function = part(kind, name)
    settings = _get_settings(function)
    for setting, parameter in settings.items():
        if parameter.annotation is Parameter.empty:
            raise ValueError(f"{kind.name} {name}: annotate its setting {setting}, as in {setting}: float")
    defaults = {setting: p.default for setting, p in settings.items() if p.default is not Parameter.empty}
    try:
        json.dumps(_to_plain(defaults), allow_nan=False)  # a run's config.yaml contains every default
        hints = _evaluate_hints(function)
        fields: Any = {setting: (hints[setting], defaults.get(setting, ...)) for setting in settings}
        return create_model(
            f"{name} settings", __base__=_AnySettings if accepts_any_setting(kind, name) else _Settings, **fields
        )
    except Exception as error:  # noqa: BLE001 annotations and defaults in a user's file may be anything
        raise ValueError(f"{kind.name} {name}: its settings cannot be read: {error}") from None


def _evaluate_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the evaluated annotations of a part's settings by name. Strings are evaluated in the part's module."""
    annotations = {n: p.annotation for n, p in _get_settings(function).items() if p.annotation is not Parameter.empty}
    unwrapped = unwrap(function)
    namespace = getattr(unwrapped, "__globals__", None) or vars(sys.modules[unwrapped.__module__])
    return get_type_hints(SimpleNamespace(__annotations__=annotations), globalns=namespace, include_extras=True)


class _Settings(BaseModel):
    """Base class of the models of parts' settings."""

    model_config = ConfigDict(strict=True, extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _check_numbers(cls, value: Any) -> Any:
        """Reject numbers that are so large that sums and products could overflow float32."""
        for number in _find_numbers(value):
            if abs(number) > LARGEST:
                raise ValueError(f"expected a number between {-LARGEST:g} and {LARGEST:g}")
        return value


class _AnySettings(_Settings):
    """Base class of the settings of a part that also accepts other settings."""

    model_config = ConfigDict(extra="allow")


def _find_numbers(value: Any) -> Iterator[float]:
    if isinstance(value, int | float):
        yield value
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for item in inner:
        yield from _find_numbers(item)


def _anchor_settings(kind: Kind, name: str, settings: Any) -> Any:
    """Return a part's settings with absolute paths where they are annotated as paths."""
    if not isinstance(settings, Mapping):
        return settings
    hints = _evaluate_hints(part(kind, name))
    return {setting: anchor_paths(value, hints.get(setting)) for setting, value in settings.items()}


def _get_settings(function: Callable[..., Any]) -> dict[str, Parameter]:
    return {n: p for n, p in signature(function).parameters.items() if p.kind is Parameter.KEYWORD_ONLY}


def _format_settings(kind: Kind, name: str) -> list[str]:
    texts = [_format_setting(n, p) for n, p in _get_settings(part(kind, name)).items()]
    return [*texts, "any of an experiment"] if accepts_any_setting(kind, name) else texts


def _format_setting(name: str, parameter: Parameter) -> str:
    return f"{name} (required)" if parameter.default is Parameter.empty else f"{name}={_to_plain(parameter.default)}"


def _relocate_errors(error: ValidationError, kind: Kind, name: str) -> ValidationError:
    """Return the validation errors located below the part's name. Unknown settings get the nearest match as a hint."""
    known = list(_get_settings(part(kind, name)))
    errors: list[InitErrorDetails] = []
    for fault in error.errors(include_url=False):
        fault_type: Any = fault["type"]
        if fault_type == "extra_forbidden" and len(fault["loc"]) == 1:
            known_names = f" (it has: {', '.join(known)})" if known else " (it has none)"
            message = f"unknown setting of {kind.name} {name}{nearest(str(fault['loc'][0]), known) or known_names}"
            fault_type = PydanticCustomError("part_error", message.replace("{", "{{").replace("}", "}}"))
        elif fault_type == "missing" and len(fault["loc"]) == 1:  # a bare name in YAML has no line for the setting
            fault_type = PydanticCustomError("part_error", f"{kind.name} {name} needs the setting `{fault['loc'][0]}`")
        elif fault_type == "part_error" and "kind" in fault.get("ctx", {}):
            fault_type = make_unknown_error(**fault["ctx"])
        elif fault_type in ("part_error", "value_error"):
            fault_type = PydanticCustomError("part_error", fault["msg"].replace("{", "{{").replace("}", "}}"))
        details: InitErrorDetails = {"type": fault_type, "loc": (name, *fault["loc"]), "input": fault["input"]}
        if "ctx" in fault and isinstance(fault_type, str):
            details["ctx"] = fault["ctx"]
        errors.append(details)
    return ValidationError.from_exception_data(f"{kind.name} {name}", errors)


def _find_parts(value: Any) -> list[PartConfig]:
    """Return the parts in a setting's value, searching mappings, lists and models, but not the parts found."""
    if isinstance(value, PartConfig):
        return [value]
    if isinstance(value, BaseModel):
        value = dict(value)
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [part for item in inner for part in _find_parts(item)]


def _find_marked(hint: Any, value: Any, mark: type) -> Iterator[str]:
    """Yield the strings in a setting's value that its annotation `hint` marks with an instance of `mark`."""
    kind, arguments = get_origin(hint), get_args(hint)
    if kind is Annotated:
        if isinstance(value, str) and any(isinstance(argument, mark) for argument in arguments[1:]):
            yield value
        yield from _find_marked(arguments[0], value, mark)
    elif kind in (Union, UnionType):
        for option in arguments:
            yield from _find_marked(option, value, mark)
    elif kind in (list, tuple) and isinstance(value, list | tuple):
        for item in value:
            yield from _find_marked(arguments[0], item, mark)
    elif kind is dict and isinstance(value, Mapping):
        for side, items in zip(arguments, ([*value.keys()], [*value.values()]), strict=True):
            for item in items:
                yield from _find_marked(side, item, mark)


def _to_plain(value: Any) -> Any:
    if isinstance(value, PartConfig):
        return value.to_plain()
    if isinstance(value, BaseModel):
        value = dict(value)
    if isinstance(value, Mapping):
        return {name: _to_plain(item) for name, item in value.items()}
    return [_to_plain(item) for item in value] if isinstance(value, list | tuple) else value
