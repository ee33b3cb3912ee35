"""The table of engine classes and their declared capabilities."""

import json
import subprocess
import sys

import pytest
from pydantic import ValidationError

from agents.engines.in_process import InProcessEngine
from agents.engines.kinds import ENGINES, import_engine, list_kinds_with
from agents.engines.make import check_engine, make_engine
from agents.engines.spec import EngineSpec
from agents.errors import EngineError
from tests.factories.commands import arena, get_refusal
from tests.factories.toy_engine import PLACE, ToyEngine


@pytest.fixture(autouse=True)
def toy_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "toy", f"{PLACE}:ToyEngine")
    monkeypatch.setitem(ENGINES, "uninstalled", f"{PLACE}:Uninstalled")


def test_registered_class_is_an_engine() -> None:
    spec = EngineSpec.model_validate({"kind": "toy"})
    assert type(make_engine(spec)) is ToyEngine and spec.capabilities is ToyEngine.capabilities
    assert type(make_engine(EngineSpec())) is InProcessEngine


@pytest.mark.parametrize("kind", ["in_process", "vllm", "toy"])
def test_settings_limit_contexts_only_if_the_engine_declares_it(kind: str) -> None:
    spec = EngineSpec(kind=kind, max_model_len=512)
    assert (spec.max_context == 512) is import_engine(kind).capabilities.limits_context is (kind == "vllm")


@pytest.mark.parametrize(
    ("kind", "says"),
    [("vlm", "unknown engine 'vlm' — did you mean 'vllm'?"), ("x", r"unknown engine 'x' \(there are: in_process, vll")],
)
def test_an_unknown_kind_is_refused_with_the_nearest(kind: str, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        EngineSpec.model_validate({"kind": kind})


@pytest.mark.parametrize(
    "command", [("run", "selfplay", "--game", "negotiation", "--engine", "vlm"), ("serve", "nano", "--engine", "vlm")]
)
def test_a_command_refuses_an_unknown_kind_in_one_line(command: tuple[str, ...]) -> None:
    assert get_refusal(*command).endswith("unknown engine 'vlm' — did you mean 'vllm'?")


def test_engines_are_listed_with_their_capabilities() -> None:
    result = arena("list", "engines", "--json")
    rows = {row["engine"]: row for row in json.loads(result.out)}
    assert rows["in_process"]["serves"] == "images, adapters, several policies, entropies"
    assert (rows["vllm"]["a seed repeats"], rows["toy"]["a seed repeats"]) == ("up to rounding", "bit by bit")
    assert rows["uninstalled"]["state"] == "not installed: pip install no-such-engine"


def test_missing_capability_is_reported() -> None:
    assert list_kinds_with("records_entropy") == "in_process"
    with pytest.raises(EngineError, match=r"engine\.entropy: toy does not report entropies: set .* to in_process, or"):
        check_engine(EngineSpec(kind="toy", entropy=True))
    with pytest.raises(EngineError, match=r"engine\.kind: uninstalled is not installed: pip install no-such-engine"):
        check_engine(EngineSpec(kind="uninstalled"))


def test_settings_are_read_without_torch() -> None:
    code = (
        "import sys; from arena.config.experiment import Experiment; from agents.engines.spec import EngineSpec; "
        "EngineSpec(kind='vllm'); print([name for name in ('torch', 'vllm', 'ray') if name in sys.modules])"
    )
    process = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"
