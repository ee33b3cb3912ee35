"""JSON Schemas of experiments, panels and roles for editors, generated from their models.

python -m arena.config.schema      # writes the shipped schema files
"""

import json
from inspect import getdoc
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

import arena.panels
import arena.recipes
import games
from agents.players.scripted import SCRIPTED
from agents.role import BUILT_IN, Role, list_roles
from arena.config.experiment import Experiment
from arena.config.kinds import KINDS
from arena.config.presets import PRESETS
from arena.learn.losses import LOSS
from arena.panels.settings import Panel, list_panels
from arena.parts.part_config import PLACE, Kind, PartConfig, accepts_any_setting, settings_model
from arena.parts.spec import Name
from arena.stages import PIPELINE_STAGE
from arena.store.files import STAGES
from arena.store.stages import MAX_STAGES

RECIPES = Path(arena.recipes.__path__[0])
PANELS = Path(arena.panels.__path__[0])
FILES = {
    "experiment": RECIPES / "experiment.schema.json",
    "panel": PANELS / "panel.schema.json",
    "role": BUILT_IN / "role.schema.json",
}
"""Path of each shipped schema, by kind of file."""
DIALECT = "http://json-schema.org/draft-07/schema#"
"""Draft that all editors support."""
Schema = dict[str, Any]
USER_PART = r"\.py:\w+$"
"""Pattern of the name of a part in a user's file, whose settings are unknown."""
ANY_SETTINGS: Schema = {"$ref": "#"}
"""Schema of any settings of an experiment."""
_JSON_NAME: Schema = TypeAdapter(Name).json_schema()
_OWN_SETTINGS: Schema = {"patternProperties": {USER_PART: {"type": ["object", "null"]}}, "additionalProperties": False}


class Generator(GenerateJsonSchema):
    """JSON Schema generator that also encodes default values that are parts, such as estimators and losses."""

    def encode_default(self, dft: Any) -> Any:
        """Return a field's default as JSON data; a part becomes a dict with `kind`, `name` and `settings`."""
        if isinstance(dft, PartConfig):
            return {"kind": dft.kind.name, "name": dft.name, "settings": self.encode_default(dict(dft.settings))}
        if isinstance(dft, dict):
            return {name: self.encode_default(value) for name, value in dft.items()}
        return super().encode_default(dft)


_MODELS: dict[str, type[BaseModel]] = {"panel": Panel, "role": Role}


def make_schema(kind: str) -> Schema:
    """Return the JSON Schema of a kind of file: `experiment`, `panel` or `role`."""
    return _make_experiment_schema() if kind == "experiment" else _add_header(kind, _MODELS[kind].model_json_schema())


def schema_to_text(kind: str) -> str:
    """Return the schema of `experiment`, `panel` or `role` as the JSON text that is shipped."""
    return json.dumps(make_schema(kind), indent=1, ensure_ascii=False) + "\n"


def _make_experiment_schema() -> Schema:
    """Return the schema of an experiment with all parts. Keys that other layers or stages may set are not required."""
    schema = Experiment.model_json_schema(schema_generator=Generator)
    schema.pop("required")
    definitions: Schema = schema["$defs"]
    for kind in KINDS.values():
        settings = {name: _make_settings_schema(kind, name, definitions) for name in kind.table}
        definitions[kind.plural] = {"type": "object", "properties": settings, **_OWN_SETTINGS}
        definitions[kind.name] = _make_part_schema(kind, settings)
    for overridden in ("GameSpec", "PolicySpec", "SeatSpec"):
        definitions[overridden].pop("required")
    definitions[PIPELINE_STAGE.name] = _make_stage_schema(definitions.pop(PIPELINE_STAGE.plural))
    stage_list = {
        "type": "array",
        "items": {"$ref": f"#/$defs/{PIPELINE_STAGE.name}"},
        "minItems": 1,
        "maxItems": MAX_STAGES,
    }
    stages = "Stages of a pipeline, which run one after the other and share the other settings."
    schema["properties"][STAGES] = {"description": stages, **stage_list}
    definitions["EvaluateSpec"]["properties"]["panel"]["anyOf"].insert(0, _suggest(list_panels()))
    definitions["PanelGame"]["properties"]["name"] |= _suggest(games.CLASSES)
    definitions["GameSpec"]["properties"]["name"] |= _suggest(games.CLASSES)
    definitions["SeatSpec"]["properties"]["role"] |= _suggest(list_roles())
    definitions["SeatSpec"]["properties"]["policy"] |= _suggest(SCRIPTED)
    return _add_header("experiment", _resolve_placeholders(schema))


def _suggest(names: Any) -> Schema:
    """Return a schema that accepts any text and suggests these names."""
    return {"anyOf": [{"enum": sorted(names)}, {"type": "string"}]}


def _make_settings_schema(kind: Kind, name: str, definitions: Schema) -> Schema:
    """Return the schema of a part's settings, which may be null, and add its definitions to `definitions`."""
    schema = settings_model(kind, name).model_json_schema(schema_generator=Generator)
    definitions |= schema.pop("$defs", {})
    schema.pop("title", None)
    schema = ANY_SETTINGS if accepts_any_setting(kind, name) else schema
    description = (getdoc(kind.table[name]) or "").split("\n", 1)[0]
    return {"description": description, "anyOf": [schema, {"type": "null"}]}


def _make_part_schema(kind: Kind, settings: Schema) -> Schema:
    """Return the schema of a part (estimator, loss, …): a name, its name with settings, or for a schedule a number."""
    names = [*settings, *(PRESETS if kind == LOSS else ())]
    forms: list[Schema] = [{"enum": names}, {"type": "string", "pattern": USER_PART}]
    forms.append({"allOf": [{"$ref": f"#/$defs/{kind.plural}"}], "maxProperties": 1})
    return {"anyOf": [*forms, {"type": "number"}] if kind.number else forms}


def _make_stage_schema(kinds: Schema) -> Schema:
    """Return the schema of a pipeline's stage: a kind with its settings, and its name and other settings beside it."""
    common = {"name": _JSON_NAME, "with": ANY_SETTINGS}
    return {"anyOf": [{"enum": [*kinds["properties"]]}, {**kinds, "properties": kinds["properties"] | common}]}


def _resolve_placeholders(schema: Any) -> Any:
    """Return the schema with every placeholder of a part replaced by a reference to its definition."""
    if isinstance(schema, dict):
        if PLACE in schema:
            annotations = {key: value for key, value in schema.items() if key in ("description", "default")}
            return {**annotations, "allOf": [{"$ref": f"#/$defs/{schema[PLACE]}"}]}
        return {key: _resolve_placeholders(value) for key, value in schema.items()}
    return [_resolve_placeholders(item) for item in schema] if isinstance(schema, list) else schema


def _add_header(kind: str, schema: Schema) -> Schema:
    return {"$schema": DIALECT, "$id": FILES[kind].name, **schema}


def main() -> None:
    """Write the schema files of experiments, panels and roles into the package."""
    for kind, file in FILES.items():
        file.write_text(schema_to_text(kind), "utf-8")


if __name__ == "__main__":
    main()
