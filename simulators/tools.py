"""Tools: typed Python functions that a model calls. A call is a turn of its own, and its result is the observation.

    tools = [Tool.of(shop.find_order), Tool.of(shop.refund)]
    for call in read_calls(text):
        game.tell(run(tools, call), seat)

Model output never raises here: an unknown name, invalid arguments and failures inside a tool become texts for the
model. Only SimulatorFault is raised.
"""

from __future__ import annotations

import difflib
import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from games.base import to_one_line
from games.calls import Call, read_calls
from games.untrusted_json import decode_text
from simulators.base import SimulatorFault

__all__ = ["Call", "Content", "Tool", "describe", "read_calls", "run", "run_with_pictures", "type_hints"]

RESULT_LENGTH = 2_000
"""Maximum number of characters of a result."""
MAX_PROBLEMS = 3
"""Maximum number of wrong arguments reported at once."""


@dataclass(frozen=True)
class Shape:
    """Description of a tool for prompts, and the validator of its arguments."""

    name: str
    description: str
    signature: str
    """Signature for prompts, such as `find_order(order_id: str, full: bool = false)`."""
    parameters: Mapping[str, Any]
    """JSON schema of the arguments."""
    names: tuple[str, ...]
    arguments: type[BaseModel]
    """Model that validates the arguments; its fields are p0, p1, … so that a parameter may have any name."""


SHAPES: WeakKeyDictionary[Any, Shape] = WeakKeyDictionary()
"""Cache of shapes by function: many matches create tools from the same methods."""


@dataclass(frozen=True)
class Content:
    """Result of a tool with pictures: a text, and the bytes of the picture files."""

    text: str
    pictures: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Tool:
    """Tool that a model may call: `shape` describes it, `function` runs it. Create one with `Tool.of`.

    The function takes validated arguments, returns text, JSON-able data or `Content`, and raises ValueError to refuse.
    """

    shape: Shape
    function: Callable[..., Any]

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Self:
        """Create a tool from a function's name, first docstring line and annotations.

        Parameters may be str, int, float, bool, Literal, lists of these, and X | None. Raises ValueError for other
        types or without a docstring.
        """
        key = getattr(function, "__func__", function)
        if key not in SHAPES:
            SHAPES[key] = _build_shape(function)
        return cls(SHAPES[key], function)

    @property
    def name(self) -> str:
        """Name by which a model calls the tool."""
        return self.shape.name

    @property
    def definition(self) -> dict[str, Any]:
        """Definition in OpenAI's format, which chat templates print."""
        shape = self.shape
        function = {"name": shape.name, "description": shape.description, "parameters": shape.parameters}
        return {"type": "function", "function": function}


def describe(tools: Sequence[Tool], style: Literal["json", "signatures"] = "signatures") -> str:
    """Describe the tools for a prompt, one per line.

    "signatures" gives lines such as `find_order(order_id: str): Find an order.`; "json" gives JSON objects in the
    format on which Hermes and Qwen were trained.
    """
    if style == "signatures":
        return "\n".join(f"{tool.shape.signature}: {tool.shape.description}" for tool in tools)
    return "\n".join(_to_json(tool.definition) for tool in tools)


def run(tools: Sequence[Tool], call: Call, max_characters: int = RESULT_LENGTH) -> str:
    """Run the call with one of the tools and return the result for the model: text or compact JSON.

    A result longer than `max_characters` is cut, with a note. For any failure the result starts with `Error:`; only
    SimulatorFault is raised.
    """
    return run_with_pictures(tools, call, max_characters).text


def run_with_pictures(tools: Sequence[Tool], call: Call, max_characters: int = RESULT_LENGTH) -> Content:
    """Run the call as `run` does and return the result with its pictures. Does not check the pictures' format."""
    result = _call_tool(tools, call)
    content = result if isinstance(result, Content) else Content(result)
    # Lone surrogates cannot be encoded.
    text = content.text.encode("utf-8", "replace").decode("utf-8")
    if len(text) > max_characters:
        text = f"{text[:max_characters]}… (cut: {max_characters:,} of {len(text):,} characters)"
    return Content(text, content.pictures)


def _call_tool(tools: Sequence[Tool], call: Call) -> str | Content:
    name = to_one_line(call.name, 64)
    if call.problem:
        return f"Error: {name + ': ' if name else ''}{call.problem}."
    tool = next((tool for tool in tools if tool.name == call.name), None)
    if tool is None:
        return f'Error: there is no tool "{name}"{_suggest(name, [tool.name for tool in tools])}.'
    arguments, problems = _validate(tool.shape, call)
    if problems:
        return f"Error: {'; '.join(problems)}. Use {tool.shape.signature}."
    try:
        result = tool.function(**arguments)
        return result if isinstance(result, str | Content) else _to_json(result)
    except SimulatorFault:
        raise
    except TimeoutError:
        return f"Error: {tool.name} took too long."
    except ValueError as refusal:
        return f"Error: {refusal}"
    except Exception as error:  # noqa: BLE001 the model is told that the tool failed; the match continues
        # Its text may contain secrets.
        return f"Error: {tool.name} failed ({type(error).__name__})."


def _validate(shape: Shape, call: Call) -> tuple[dict[str, Any], list[str]]:
    """Validate a call's arguments. Returns the values by parameter name, and up to `MAX_PROBLEMS` problems."""
    if len(call.positional) > len(shape.names):
        return {}, [f"{shape.name} takes {len(shape.names)} arguments, not {len(call.positional)}"]
    placed = dict(zip(shape.names, call.positional, strict=False))
    duplicates = [name for name in placed if name in call.arguments]
    if duplicates:
        return {}, [f'argument "{duplicates[0]}" is given twice']
    values = {**placed, **call.arguments}
    try:
        if call.as_text:
            values = _decode(shape, values)
        validated = shape.arguments.model_validate(values)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        return {}, [_describe_problem(shape, e["type"], e["loc"], e["msg"]) for e in errors[:MAX_PROBLEMS]]
    set_fields = validated.model_fields_set  # a parameter that is left out keeps its own default
    fields = {name: f"p{index}" for index, name in enumerate(shape.names)}
    return {name: getattr(validated, field) for name, field in fields.items() if field in set_fields}, []


def _decode(shape: Shape, texts: Mapping[str, Any]) -> dict[str, Any]:
    """Decode arguments whose parameter does not accept text: from JSON, or Python's True, False and None.

    Texts that cannot be decoded, and arguments whose parameter accepts text, stay unchanged.
    """
    try:
        shape.arguments.model_validate(texts)
    except ValidationError as error:
        wrong = {part["loc"][0] for part in error.errors(include_url=False, include_input=False) if part["loc"]}
        return {name: decode_text(text) if name in wrong else text for name, text in texts.items()}
    return dict(texts)


def _describe_problem(shape: Shape, kind: str, location: tuple[int | str, ...], why: str) -> str:
    name = to_one_line(str(location[0]) if location else "", 64)
    if kind == "missing":
        return f'argument "{name}" is missing'
    if kind == "extra_forbidden":
        return f'there is no argument "{name}"{_suggest(name, shape.names)}'
    return f'argument "{name}": {to_one_line(why[:1].lower() + why[1:])}'


def _suggest(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=2)
    if near:
        return f" (did you mean {' or '.join(near)}?)"
    return f" (there are {', '.join(names)})" if names else ""


def _build_shape(function: Callable[..., Any]) -> Shape:
    name = function.__name__
    description = (inspect.getdoc(function) or "").strip().partition("\n")[0]
    if not description:
        raise ValueError(f"tool {name} needs a docstring: its first line tells the model what it does")
    hints = type_hints(function)
    fields: dict[str, Any] = {}
    signature = []
    parameters = list(inspect.signature(function).parameters.values())
    for index, parameter in enumerate(parameters):
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ValueError(f"tool {name}: {parameter} has no name that a model can give")
        hint = hints.get(parameter.name)
        if hint is None or not _is_supported(hint):
            raise ValueError(
                f"tool {name}: annotate {parameter.name} with str, int, float, bool, Literal, list[…] or … | None"
            )
        required = parameter.default is parameter.empty
        fields[f"p{index}"] = (hint, Field(... if required else parameter.default, alias=parameter.name))
        signature.append(
            f"{parameter.name}: {_name_type(hint)}" + ("" if required else f" = {_to_json(parameter.default)}")
        )
    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    model = create_model(name, __config__=config, **fields)
    return Shape(
        name=name,
        description=description,
        signature=f"{name}({', '.join(signature)})",
        parameters=_without_titles(model.model_json_schema()),
        names=tuple(parameter.name for parameter in parameters),
        arguments=model,
    )


def type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of a tool's parameters and result by name. Raises ValueError for an unresolvable annotation."""
    try:
        return typing.get_type_hints(function)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise ValueError(
            f"tool {function.__name__}: an annotation cannot be resolved: {to_one_line(str(error))}. Import its types "
            "at the top of the file"
        ) from None


def _is_supported(hint: Any) -> bool:
    """Return True if a tool's parameter may have this type: str, int, float, bool, Literal, lists, unions of them."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType, list):
        return all(part is types.NoneType or _is_supported(part) for part in parts)
    return hint in (str, int, float, bool) or origin is Literal


def _name_type(hint: Any) -> str:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return "|".join(_to_json(part) for part in parts)
    if origin is list:
        return f"list[{_name_type(parts[0])}]"
    if parts:
        return "|".join("null" if part is types.NoneType else _name_type(part) for part in parts)
    return str(hint.__name__)


def _without_titles(schema: Any) -> Any:
    """Return the JSON schema without pydantic's titles, which repeat the names. A parameter named title is kept."""
    if isinstance(schema, list):
        return [_without_titles(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_titles(value) for key, value in schema.items() if key != "title" or not isinstance(value, str)
    }


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
