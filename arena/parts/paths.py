"""Paths in an experiment: text that may name a file or folder, and its absolute form."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os.path import expanduser, isdir, isfile
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

STAGE = "stage:"
"""Prefix of a text that names a pipeline's stage instead of a path."""


class PathAnnotation:
    """Base of annotations of fields whose values may name files."""

    def anchor_value(self, value: Any) -> Any:
        """Return the value with absolute paths."""
        raise NotImplementedError


@dataclass(frozen=True)
class Anchor(PathAnnotation):
    """Annotation of a field that may hold a path. `absolute` makes paths absolute and keeps other texts unchanged."""

    absolute: Callable[[str], str]

    def anchor_value(self, value: Any) -> Any:
        """Return a text as `absolute` does, and other values and names of a pipeline's stages unchanged."""
        return self.absolute(value) if isinstance(value, str) and not value.startswith(STAGE) else value


def anchor_paths(value: Any, hint: Any = None) -> Any:
    """Return a copy of a model or of plain settings with absolute paths in fields annotated by a `PathAnnotation`.

    `hint` is the annotation or model of plain settings.
    """
    if isinstance(value, BaseModel):
        hints = get_type_hints(type(value), include_extras=True)
        return value.model_copy(
            update={name: anchor_paths(getattr(value, name), hints[name]) for name in type(value).model_fields}
        )
    kind, arguments = get_origin(hint), get_args(hint)
    if kind is Annotated:
        marks = [mark for mark in arguments[1:] if isinstance(mark, PathAnnotation)]
        return marks[0].anchor_value(value) if marks else anchor_paths(value, arguments[0])
    if kind in (Union, UnionType):
        for option in arguments:
            value = anchor_paths(value, option)
        return value
    if kind is list and isinstance(value, list):
        return [anchor_paths(item, arguments[0]) for item in value]
    if kind is dict and isinstance(value, Mapping):
        return {key: anchor_paths(item, arguments[1]) for key, item in value.items()}
    if isinstance(hint, type) and isinstance(value, Mapping) and issubclass(hint, BaseModel):
        hints = get_type_hints(hint, include_extras=True)
        return {key: anchor_paths(item, hints.get(key)) for key, item in value.items()}
    return value


def absolute(path: str) -> str:
    """Return the path as an absolute one, with `~` expanded and links resolved."""
    return str(Path(expanduser(path)).resolve())


def absolute_name(name: str) -> str:
    """Return `file.py:name` with the file's absolute path, and any other name of a game or part unchanged."""
    from games.adapters.loading import file_of

    file = file_of(name)
    return f"{file}:{name.rpartition(':')[2]}" if file else name


def _anchor_role(name: str) -> str:
    return absolute(name) if name.endswith((".yaml", ".yml")) else name


def _anchor_option(text: str) -> str:
    """Return the absolute path if the text of a game's option is an existing file or `file.py:name`, else the text."""
    likely = bool(Path(text).suffix) and "\0" not in text and len(text) < 1000
    return absolute(text) if likely and isfile(expanduser(text)) else absolute_name(text)


def absolute_model(name: str) -> str:
    """Return the absolute path of a model folder, and any other model name unchanged."""
    from agents.weights import resolve

    path = absolute(name)
    return path if isdir(path) and str(resolve(name)) == path else name


def _anchor_command(harness: str) -> str:
    from agents.harness.command import make_paths_absolute

    return make_paths_absolute(harness)


@dataclass(frozen=True)
class _ToolAnchor(PathAnnotation):
    """Annotation of a list of tool sources, whose files (functions, commands of MCP servers) are paths."""

    def anchor_value(self, value: Any) -> Any:
        """Return the list with absolute paths."""
        return [self._source(source) for source in value] if isinstance(value, list) else value

    def _source(self, source: Any) -> Any:
        if isinstance(source, str):
            return absolute_name(source)
        anchors = {"function": absolute_name, "mcp": _anchor_command}
        return {key: anchors[key](part) if key in anchors else part for key, part in source.items()}


Folder = Annotated[str, Anchor(absolute)]
RoleName = Annotated[str, Anchor(_anchor_role)]
"""A role's name, or a file that ends in .yaml."""
GameName = Annotated[str, Anchor(absolute_name)]
"""A game's name, or file.py:Class."""
PolicyName = Annotated[str, Anchor(absolute_name)]
"""A policy's or a scripted policy's name, or file.py:function."""
Harness = Annotated[str, Anchor(_anchor_command)]
"""Command or URL of an agent program."""
OptionValue = Annotated[Any, Anchor(_anchor_option)]
"""Value of a game's option: anything, including a file."""
Tools = Annotated[list[str | dict[str, Any]], _ToolAnchor()]
"""Sources of a seat's tools."""
ModelName = Annotated[str, Anchor(absolute_model)]
"""A model's name, or a folder."""
