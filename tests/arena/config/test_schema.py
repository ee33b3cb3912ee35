"""The shipped JSON Schemas: current, valid for all shipped and written files, and useful in an editor."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents import strict_yaml
from agents.role import BUILT_IN
from arena.config.layers import compose, to_yaml
from arena.config.pipeline import read_pipeline
from arena.config.schema import FILES, PANELS, RECIPES, schema_to_text
from arena.config.sources import text_layer

jsonschema = pytest.importorskip("jsonschema")
PLACES = {"experiment": RECIPES, "panel": PANELS, "role": BUILT_IN}
SHIPPED = [(kind, file) for kind, folder in PLACES.items() for file in folder.glob("*.yaml")]


def list_errors(kind: str, text: str) -> list[str]:
    """Return a schema's errors for a YAML text."""
    schema: Any = json.loads(FILES[kind].read_text("utf-8"))
    jsonschema.Draft7Validator.check_schema(schema)
    data = strict_yaml.load(text, "it")
    return [f"{list(error.path)}: {error.message}" for error in jsonschema.Draft7Validator(schema).iter_errors(data)]


@pytest.mark.parametrize("kind", FILES)
def test_schemas_are_current(kind: str) -> None:
    assert FILES[kind].read_text("utf-8") == schema_to_text(kind), "renew them: python -m arena.config.schema"
    assert json.loads(schema_to_text(kind))["$id"] == FILES[kind].name, "a name beside the files, no place in the world"


@pytest.mark.parametrize(("kind", "file"), SHIPPED, ids=lambda value: getattr(value, "stem", value))
def test_shipped_files_name_and_match_their_schema(kind: str, file: Path) -> None:
    text = file.read_text("utf-8")
    assert text.startswith(f"# yaml-language-server: $schema={FILES[kind].name}\n")
    assert not list_errors(kind, text)
    if kind == "experiment":
        layers = [text_layer(file.name, text)]
        written = read_pipeline(layers).to_yaml() if "stages" in layers[0].data else to_yaml(compose(layers))
        assert not list_errors(kind, written), "what a run's config.yaml holds"


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("experiment", "lern: {}", "lern"),
        ("experiment", "learn: {lrr: 1.0}", "lrr"),
        ("experiment", "learn: {loss: cispoo}", "cispoo"),
        ("experiment", "credit: {estimator: {mars: {gama: 1.0}}}", "gama"),
        ("experiment", "credit: {estimator: token_mean}", "token_mean"),
        ("experiment", "learn: {regularisers: {klo: {}}}", "klo"),
        ("experiment", "play: {matches: 0}", "0"),
        ("role", "role: x\nsampling: {temprature: 1}", "temprature"),
        ("role", "persona: x", "role"),
        ("experiment", "evaluate: {panel: 3}", "3"),
        ("experiment", "evaluate: {panel: {panel: p, membrs: [random]}}", "membrs"),
        ("panel", "panel: p\ngame: {name: nim}\nmembers: []", "[]"),
        ("panel", "panel: p\ngame: {name: nim}\nmembers: [a]\ndeals: 1", "1"),
    ],
)
def test_mistakes_are_detected(kind: str, text: str, message: str) -> None:
    assert any(message in error for error in list_errors(kind, text))


def test_presets_constants_and_partial_files_are_valid() -> None:
    assert not list_errors("experiment", "learn: {loss: grpo, regularisers: {kl: {weight: 0.1}}}")
    assert not list_errors("experiment", "credit: {weights: {deal: {linear: {start: 0.0, end: 1.0, over: 5}}}}")


def test_fields_and_parts_have_descriptions() -> None:
    schema = json.loads(FILES["experiment"].read_text("utf-8"))
    assert "decay of the first" in json.dumps(schema["$defs"]["LearnSpec"]["properties"]["betas"])
    for name, estimator in schema["$defs"]["estimators"]["properties"].items():
        assert len(estimator["description"]) > 20, name


def list_integers(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Return all places of a schema that require an integer."""
    if isinstance(schema, dict):
        if schema.get("type") == "integer" and "enum" not in schema:
            yield path, schema
        for key, value in schema.items():
            yield from list_integers(value, f"{path}.{key}")
    elif isinstance(schema, list):
        for value in schema:
            yield from list_integers(value, path)


@pytest.mark.parametrize("kind", FILES)
def test_all_integers_have_an_upper_bound(kind: str) -> None:
    """Unbounded integers could run forever, fill the memory or overflow a float."""
    entries = list(list_integers(json.loads(FILES[kind].read_text("utf-8"))))
    assert entries
    assert [path for path, schema in entries if not schema.keys() & {"maximum", "exclusiveMaximum"}] == []
