"""Create engines from their settings."""

from importlib.util import find_spec

from agents.engines.base import Engine
from agents.engines.kinds import import_engine, list_kinds_with
from agents.engines.spec import EngineSpec
from agents.errors import EngineError
from agents.precision import Precision


def check_engine(spec: EngineSpec) -> None:
    """Raise EngineError if this engine is not installed or cannot do what its settings ask. Starts nothing."""
    capabilities = spec.capabilities
    if spec.entropy and not capabilities.records_entropy:
        raise EngineError(
            f"engine.entropy: {spec.kind} does not report entropies: set engine.kind to "
            f"{list_kinds_with('records_entropy')}, or entropy to false"
        )
    if capabilities.package and find_spec(capabilities.package) is None:
        raise EngineError(f"engine.kind: {spec.kind} is not installed: {capabilities.install}")


def make_engine(spec: EngineSpec, precision: Precision = Precision.FP32, gpus: int = 1) -> Engine:
    """Create an engine, not yet open, that computes in the trainer's precision, one model on `gpus` GPUs.

    If `precision` has bfloat16 weights, so do the models that the engine loads itself. Raises EngineError.
    """
    check_engine(spec)
    return import_engine(spec.kind).create(spec, precision, gpus)
